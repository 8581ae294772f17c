"""Multipliers at which observed rates satisfy the rules.

The observed rate of a rule is, like the predicted one, a mean over rows that is linear in the policy. But a
policy scores actions by what is predicted, so its observed rates are not the gradient of any dual: wanted is
the solution of a complementarity problem,

    lambda >= 0,   v(lambda) <= 0,   lambda' v(lambda) = 0,

with v the excess of the rates that must satisfy the rules. Steps follow a path of growing beta: a soft
policy's rates are smooth, a sharp policy's are staircases of single rows, on which no step leads far. Of few
rules, the derivative of v is known: a point of the path is extrapolated along its tangent to the next beta,
and Newton steps correct it. Where these lead nowhere, and of many rules, each step is a damped Newton step of
the dual whose bounds are shifted until its gradient here is -v: then the decrease of that dual tells how far
its curvature can be trusted. Where observed rates respond more or less than predicted ones, a secant of each
rule learns by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.formulation.blocks import Block
from bylaw.formulation.dual import Dual, Hessian
from bylaw.formulation.observed_rates import ObservedRates, RateExcess, Target
from bylaw.formulation.passes import Tally
from bylaw.formulation.rate_response import RateResponse
from bylaw.formulation.solution import Step
from bylaw.solvers.base import Callback, gradient_mapping
from bylaw.solvers.full_batch import count_first_rows, first_damping, minimize_quadratic, sample_blocks
from bylaw.solvers.label_items import LabelItems, NearItems, find_separate_rules
from bylaw.solvers.linear_complementarity import solve_linearized

PRICED = 1e-6  # multipliers below this share of the loss's unit are none
_FIRST_SHARPNESS = 3.0  # beta of the first stage, times the unit of the loss
_BETA_GROWTH = 3.0
_FEWEST_ROWS = 8  # times those of the first sample of a plug-in
_SHARP = 64.0  # beta, times the unit of the loss, from which on samples grow
_OUTLINED = 2  # stages before rates are looked at
_ASTRAY = 1.0  # units from complementarity: the first step was too long
_SHARES = (0.33, 0.67, 1.0)  # of the way, then, from predicted to observed rates
_STEPS = 5  # in each stage, but for the first and the last
_LAST_STEPS = 10
_RETRY_STEPS = 6
_RETREAT_STEPS = 5
_NEAR = 0.15  # units that a stage may be off before the next one begins
_INSIDE = 0.05  # so that a row more or less misses nothing
_FURTHER = (0.1, 0.4)  # units more, where it does
_TIGHT = 0.1  # units inside the bounds that a priced rule may end
_SOFTENINGS = 2  # that are tried
_SOFT_COST = 0.005  # of the unit of the loss, that a softer policy may cost more
_SETTLED = 0.3  # of the gradient of a shifted dual, when its shift is looked at again
_SOFT_STEPS = 12  # in a stage of the outline
_SOFT_INNER = 3
_CARRIED = 1e3  # times the first damping of a stage, that the one before may hand on
_STUCK = 1.0  # damping, of the trace of the curvature
_BISECTIONS = 30
_CLOSE = 0.1  # of the way inside the bounds that steps aim at: bisection comes closer
_NARROW = 3e-3  # of a multiplier: where few rows show a rule, all of a wide bracket misses alike
_FIRST_EXPANSION = 1.1  # of multipliers, in search of a bracket near those of a sample
_EXPANSION = 4.0  # of multipliers, further away
_AHEAD = _EXPANSION**3  # times that labels are sorted out for, in that search
_GAINS = (0.1, 20.0)  # the least and the most that a secant may state
_SOFT_CHANGE = 5.0  # times that one secant may change a gain, where rates are smooth
_CHANGE = 2.0  # elsewhere
_NEWTON_SHARES = (1.0, 0.25, 0.06)  # of a Newton step, that are tried
_DECREASE = 0.5  # of what a share of a Newton step is to take off the merit
_APART = 1e-3  # of 1 / beta, or of the units of rates: between the points of a difference quotient
_LARGEST = 1e7  # multipliers beyond this many units of the loss lead nowhere


@dataclass(frozen=True)
class ObservedSolution:
    """Multipliers, and the rates of their policy on all rows."""

    multipliers: Floats
    beta: float
    value: float  # of the dual, with the bounds at which the multipliers are optimal
    rates: RateExcess
    excess: Floats  # (M,): of the target; within the tolerance if `holds`
    holds: bool
    conflict: bool  # whether no policy satisfies the predicted rules, shifted by what was observed
    trace: tuple[Step, ...]


class Outline(NamedTuple):
    """A point of the path."""

    multipliers: Floats
    beta: float


@dataclass(frozen=True)
class Complementarity:
    """The problem: a dual whose blocks have observed features, and what must be <= 0.

    Parameters
    ----------
    dual : Dual
        with the bounds as stated.
    rates : ObservedRates
    target : Target
        of predicted and observed excess.
    units : array of shape (n_rules,)
        differences of rates that matter: about a standard error of each.
    tolerance : array of shape (n_rules,)
        the excess that is none.
    room : array of shape (n_rules,)
        how far inside its bound a rule can be held at all; infinite where that is not known.
    response : RateResponse, optional
        how rates respond to multipliers; without it, for many rules, steps rely on the dual's curvature.
    """

    dual: Dual
    rates: ObservedRates
    target: Target
    units: Floats
    tolerance: Floats
    room: Floats
    response: RateResponse | None = None
    further: Floats | float = 0.0  # (M,): how much further inside the bounds steps aim than they do anyway

    def outline(self, rng: np.random.Generator | None = None) -> Outline:
        """Where the path begins: a soft policy on a sample of the rows that about satisfies the rules."""
        walk = _Walk(None)
        blocks = _shuffle(self.dual.blocks, rng)
        sample = replace(self, dual=self.dual.with_rows(sample_blocks(blocks, self._count_rows(0.0))))
        if self._apart:
            return Outline(walk.bisect(sample, np.zeros(self.dual.n_rules)).multipliers, self.dual.beta)
        if not (betas := self._soft_betas()[:_OUTLINED]):
            return Outline(np.zeros(self.dual.n_rules), 0.0)
        begin, found = _blend_in(walk, replace(sample, dual=sample.dual.with_beta(betas[0])))
        for beta in betas[1:]:
            problem = replace(sample, dual=sample.dual.with_beta(beta))
            found = walk.approach(_Stage(problem, _NEAR, _SOFT_STEPS, _SOFT_INNER), found.extrapolate(beta))
        return Outline(begin if found.astray else found.multipliers, found.problem.dual.beta)

    def solve(
        self,
        begin: Outline,
        *,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
        soften: bool = False,
    ) -> ObservedSolution:
        """Follow the path to the dual's beta. With `soften`, a softer policy on the path is an answer too, if
        no sharper one that satisfies the rules is found."""
        walk, passed, here = _Walk(callback), [], begin.multipliers
        if self._apart:
            return walk.bisect(self, begin.multipliers).solution(walk.trace)
        for stage in self._stages(begin.beta, rng):
            here = passed[-1].extrapolate(stage.problem.dual.beta) if passed else here
            passed.append(walk.approach(stage, here))
        here = passed[-1].extrapolate(self.dual.beta) if passed else here
        best = walk.approach(_Stage(self, 0.0, _LAST_STEPS), here)
        for further in _FURTHER:
            if best.holds or best.astray:
                break
            problem = replace(self, further=further * np.minimum(self.units, 2 * self.room))
            inside = walk.approach(_Stage(problem, 0.0, _RETRY_STEPS), best.multipliers)
            best = walk.retreat(self, best, inside) if inside.holds else min(best, inside, key=_miss)
        if soften and not best.holds:
            best = self._soften(walk, passed, best)
        return best.solution(walk.trace)

    @cached_property
    def aim(self) -> Floats:
        """(M,): how far inside the bounds steps aim."""
        return _INSIDE * np.minimum(self.units, 2 * self.room) + self.further

    def _count_rows(self, beta: float) -> int:
        """In a stage. What a sample leaves open of the multipliers, of the order of 1 / sqrt(rows), must stay
        below the width of soft decisions, 1 / beta: from further away, steps do not find back."""
        sharpness = max(beta * self.dual.loss_unit / _SHARP, 1.0)
        return math.ceil(_FEWEST_ROWS * count_first_rows(self.dual) * sharpness**2)

    @cached_property
    def _apart(self) -> bool:
        """Whether no rule's rate depends on another rule's multiplier: sets, and each label's inclusion is
        touched by one rule at most."""
        return find_separate_rules(self.dual.form) is not None

    def _stages(self, above: float, rng: np.random.Generator | None) -> Iterator[_Stage]:
        """Softer policies than the last one on fewer rows, no softer than `above`."""
        blocks, n_rows = _shuffle(self.dual.blocks, rng), self.dual.n_rows
        betas = [beta for beta in self._soft_betas() if beta >= above]
        for beta in betas:
            rows, dual, near = self._count_rows(beta), self.dual.with_beta(beta), _NEAR
            if rows < n_rows:
                ridge = 0.1 * rows**-0.5 / self.dual.loss_unit
                dual = dual.with_rows(sample_blocks(blocks, rows)).with_ridge(ridge)
                near = _NEAR * math.sqrt(n_rows / rows)
            yield _Stage(replace(self, dual=dual), near, _STEPS)

    def _soft_betas(self) -> list[float]:
        first = _FIRST_SHARPNESS / self.dual.loss_unit
        rungs = math.ceil(math.log(max(self.dual.beta / first, 1.0)) / math.log(_BETA_GROWTH))
        return [first * _BETA_GROWTH**k for k in range(rungs)]

    def _soften(self, walk: _Walk, passed: list[_Point], sharp: _Point) -> _Point:
        """The sharpest policy that was passed on the path and satisfies the rules on all rows, if it costs
        hardly more."""
        for near in [point for point in passed[::-1] if point.worst <= _NEAR][:_SOFTENINGS]:
            dual = self.dual.with_beta(near.problem.dual.beta)
            soft = walk.approach(_Stage(replace(self, dual=dual), 0.0, _RETRY_STEPS), near.multipliers)
            if soft.holds and soft.cost <= sharp.cost + _SOFT_COST * self.dual.loss_unit:
                return soft
        return sharp


def _blend_in(walk: _Walk, problem: Complementarity) -> tuple[Floats, _Point]:
    """Multipliers of predicted rates, whose problem is convex, or none if these conflict; and from there a
    point of the target: at once, or little by little if that leads astray."""

    def approach(share: float, begin: Floats) -> _Point:
        def target(rates: RateExcess) -> Floats:
            return (1 - share) * rates.predicted + share * problem.target(rates)

        stage = _Stage(replace(problem, target=target), _NEAR, _SOFT_STEPS, _SOFT_INNER)
        return walk.approach(stage, begin)

    nothing = np.zeros(problem.dual.n_rules)
    predicted = approach(0.0, nothing)
    begin = nothing if predicted.unsolved else predicted.multipliers
    found = approach(1.0, begin)
    if found.unsolved:
        here = begin
        for share in _SHARES:
            found = approach(share, here)
            here = found.multipliers
    return begin, found


def _shuffle(blocks: Sequence[Block], rng: np.random.Generator | None) -> list[Block]:
    return list(blocks) if rng is None else [blocks[i] for i in rng.permutation(len(blocks))]


@dataclass(frozen=True)
class _Stage:
    problem: Complementarity
    near: float  # units from complementarity that will do
    steps: int
    inner: int = 1  # steps for one shift of the bounds: several where rates are smooth

    @property
    def last(self) -> bool:
        """Whether its answer must satisfy the rules."""
        return not self.near

    def ends_at(self, point: _Point, best: _Point) -> bool:
        """Whether no step is to be taken from this point, the best being that one."""
        done = abs(point.residual).max(initial=0.0) <= self.near
        return done or point.astray or (best.holds and best.slack <= _TIGHT)


@dataclass(frozen=True)
class _Point:
    """The problem at some multipliers."""

    problem: Complementarity
    multipliers: Floats
    cost: float  # predicted
    value: float  # of the dual with the bounds as stated
    gradient: Floats
    rates: RateExcess
    total: Tally | None  # with the curvature, where it is known

    @classmethod
    def at(cls, problem: Complementarity, multipliers: Floats, curvature: bool = True) -> _Point:
        dual, response = problem.dual, problem.response if curvature else None
        seen = None if response is None else response.support
        total = dual.tally(multipliers, curvature=curvature, seen_support=seen)
        value, gradient = dual.first_order(total, multipliers)
        rates = problem.rates.measure(dual, total)
        cost = float((dual.form.base * total.moments).sum()) / total.mass
        return cls(problem, multipliers, cost, value, gradient, rates, total)

    @cached_property
    def hessian(self) -> Hessian:
        assert self.total is not None
        return self.problem.dual.second_order(self.total)

    @cached_property
    def excess(self) -> Floats:
        return self.problem.target(self.rates)

    @cached_property
    def residual(self) -> Floats:
        """(M,), in units: how far from complementarity, a little inside the bounds."""
        slack = -self.excess - self.problem.aim
        mapping = gradient_mapping(self.multipliers, slack, self.problem.dual.loss_unit)
        return mapping / self.problem.units

    @cached_property
    def merit(self) -> float:
        return float(np.linalg.norm(self.residual))

    @property
    def worst(self) -> float:
        """Units by which the worst rule is missed."""
        return float((self.excess / self.problem.units).max(initial=0.0))

    @property
    def holds(self) -> bool:
        return bool((self.excess <= self.problem.tolerance).all())

    @cached_property
    def slack(self) -> float:
        """Units by which the loosest rule with a price is inside its bound."""
        priced = self.multipliers > PRICED * self.problem.dual.loss_unit
        return float((-self.excess / self.problem.units)[priced].max(initial=0.0))

    @cached_property
    def conflict(self) -> bool:
        """Weak duality: whether the shifted dual's value exceeds the cost of every policy."""
        dual = self.problem.dual
        if dual.ridge:
            return False
        shifted = self.value - float((self.excess - self.rates.predicted) @ self.multipliers)
        return -shifted > dual.highest_cost or self.astray

    @property
    def unsolved(self) -> bool:
        """Whether it is far from complementarity."""
        return abs(self.residual).max(initial=0.0) > _ASTRAY

    @property
    def astray(self) -> bool:
        """Whether multipliers grow without end."""
        return self.multipliers.max(initial=0.0) > _LARGEST * self.problem.dual.loss_unit

    def freeze(self, gains: Floats) -> Floats:
        """(M,): the shift of the bounds for which the gradient of the dual here is that of the problem."""
        ridge = self.problem.dual.ridge * self.multipliers
        return self.gradient + (self.excess + self.problem.aim) / gains - ridge

    def shifted_norm(self, shift: Floats) -> float:
        """The gradient mapping of the dual with shifted bounds, in units."""
        alpha = self.problem.dual.loss_unit
        mapping = gradient_mapping(self.multipliers, self.gradient - shift, alpha)
        return float(np.linalg.norm(mapping / self.problem.units))

    @cached_property
    def jacobian(self) -> Floats | None:
        """(M, M): the derivative of the excess in the multipliers."""
        response = self.problem.response
        if response is None or self.total is None or self.total.response is None:
            return None
        (predicted, observed), (by_predicted, by_observed) = self.rates, response.differentiate(self.total)
        by_observed = np.where(self.problem.rates.visible[:, None], by_observed, by_predicted)
        far = _APART * self.problem.units
        shares = [
            (self.problem.target(RateExcess(*moved)) - self.excess) / far
            for moved in ((predicted + far, observed), (predicted, observed + far))
        ]
        return shares[0][:, None] * by_predicted + shares[1][:, None] * by_observed

    def find_newton_move(self) -> Floats | None:
        """(M,): the way to where the linearised problem is solved."""
        if self.jacobian is None:
            return None
        there = solve_linearized(self.excess + self.problem.aim, self.jacobian, self.multipliers)
        return there - self.multipliers

    def extrapolate(self, beta: float) -> Floats:
        """(M,): the multipliers of the path at another beta, along its tangent in 1 / beta. Where a group's
        decisions must be drawn by lot, its scores are of the order of 1 / beta all along the path, and no
        step from the last point's multipliers would find that."""
        dual = self.problem.dual
        if self.jacobian is None or beta == dual.beta:
            return self.multipliers
        near = replace(self.problem, dual=dual.with_beta(dual.beta / (1 - _APART)))
        change = _Point.at(near, self.multipliers, curvature=False).excess - self.excess
        ahead = self.excess + self.problem.aim + change * (1 - dual.beta / beta) / _APART
        return solve_linearized(ahead, self.jacobian, self.multipliers)

    def step(self, shift: Floats, damping: float) -> tuple[_Point, float]:
        """A Newton step of the dual with shifted bounds, and the ratio of its decrease to the expected."""
        slope = self.gradient - shift
        model = replace(self.hessian, ridge=self.hessian.ridge + damping)
        guess = (self.multipliers > 0) | (slope < 0)
        multipliers = minimize_quadratic(model, model @ self.multipliers - slope, guess)
        move = multipliers - self.multipliers
        expected = -float(slope @ move + move @ (self.hessian @ move) / 2)
        there = _Point.at(self.problem, multipliers)
        decrease = self.value - there.value + float(shift @ move)
        return there, decrease / expected if expected > 1e-13 * (1 + abs(self.value)) else 1.0

    def solution(self, trace: list[Step]) -> ObservedSolution:
        return ObservedSolution(
            self.multipliers,
            self.problem.dual.beta,
            self.value + float(self.rates.predicted @ self.multipliers),
            self.rates,
            self.excess,
            self.holds,
            self.conflict,
            tuple(trace),
        )


class _Items:
    """A problem whose rules are apart, looked at label by label."""

    def __init__(self, problem: Complementarity) -> None:
        self.problem = problem
        form, observed = problem.dual.form, problem.rates.couplings
        rules = find_separate_rules(form, observed) if problem.dual.source is None else None
        self.items = None if rules is None else LabelItems(problem.dual, rules, observed, keep=True)
        self.near: NearItems | None = None

    def look(self, multipliers: Floats, low: Floats, high: Floats) -> _Point:
        """The problem at multipliers (M,) between ends that later looks do not leave, if they are finite."""
        problem, dual = self.problem, self.problem.dual
        if self.items is None:
            return _Point.at(problem, multipliers, curvature=False)
        if self.near is None or not self.near.covers(multipliers):
            ahead = np.where(np.isinf(high), _AHEAD * multipliers, high)
            self.near = self.items.screen(np.minimum(low, multipliers), np.maximum(ahead, multipliers))
        elif np.isfinite(high).all():
            self.near = self.near.narrow(low, high)
        sums, mass, form = self.near.sum(multipliers), self.near.mass, dual.form
        predicted, observed = sums.costs / mass - form.bounds, sums.observed / mass - form.bounds
        rates = RateExcess(predicted, np.where(problem.rates.visible, observed, predicted))
        ridge = dual.ridge * multipliers
        value = sums.potential / mass + float((form.bounds + ridge / 2) @ multipliers) - form.base_constant
        return _Point(problem, multipliers, sums.loss / mass, value, ridge - predicted, rates, None)


class _Walk:
    """Steps through the stages, with what they have learned: damping, and the gain of each rule."""

    def __init__(self, callback: Callback | None) -> None:
        self.callback = callback
        self.trace: list[Step] = []
        self.damping = math.inf
        self.gains: Floats | float = 1.0

    def approach(self, stage: _Stage, multipliers: Floats) -> _Point:
        """The point found that is nearest to complementarity; in the last stage, of those that satisfy the
        rules the tightest, if there are any."""
        point = best = _Point.at(stage.problem, multipliers)
        rank = _rank if stage.last else _rank_merit
        for _ in range(stage.steps):
            ahead = None if stage.ends_at(point, best) else self._correct(point)
            if ahead is None:
                break
            point, best = ahead, min(best, ahead, key=rank)
        first = first_damping(point.hessian, stage.problem.dual.loss_unit)
        self.damping = first if math.isinf(self.damping) else min(max(self.damping, first), _CARRIED * first)
        end = len(self.trace) + stage.steps
        while len(self.trace) < end and not stage.ends_at(point, best):
            point = self._advance(point, min(stage.inner, end - len(self.trace)))
            best = min(best, point, key=rank)
        return best

    def _correct(self, point: _Point) -> _Point | None:
        """A Newton step, shortened until it leads nearer to complementarity; None if it does not."""
        move = point.find_newton_move()
        if move is None:
            return None
        for share in _NEWTON_SHARES:
            trial = _Point.at(point.problem, point.multipliers + share * move)
            self._record(trial)
            if trial.merit < (1 - _DECREASE * share) * point.merit:
                return trial
        return None

    def _advance(self, point: _Point, inner: int) -> _Point:
        """Some steps towards the optimum of the dual that is shifted by what is observed here; or the same
        point again, with what was learned from one that is no better."""
        dual = point.problem.dual
        gains, damping = self.gains * np.ones(dual.n_rules), self.damping
        shift, there, ratio = point.freeze(gains), point, 0.0
        for _ in range(inner):
            trial, ratio = there.step(shift, self.damping)
            self._record(trial)
            if ratio < 0.25:
                self.damping *= 8
            elif ratio > 0.6:
                least = max(1e-12 / dual.loss_unit, 1e-13 * there.hessian.trace)
                self.damping = max(self.damping / 10, least)
            there = trial if ratio > 1e-3 else there
            if there.merit < point.merit or there.shifted_norm(shift) <= _SETTLED * point.shifted_norm(shift):
                break
        better = there.merit < point.merit
        if better or inner > 1:
            self.gains = _learn_gains(gains, point, there, _SOFT_CHANGE if inner > 1 else _CHANGE)
        if better:
            return there
        if self.damping > max(_STUCK * point.hessian.trace, 1 / dual.loss_unit):
            self.damping = first_damping(there.hessian, dual.loss_unit)
            return there  # no step improves: rather a worse point than none
        self.damping = max(self.damping, 8 * damping)
        return point

    def retreat(self, problem: Complementarity, near: _Point, inside: _Point) -> _Point:
        """Between a point that nearly satisfies the rules and one that does with room, one with less room."""
        best, low, high = inside, 0.0, 1.0
        for _ in range(_RETREAT_STEPS):
            middle = (low + high) / 2
            way = inside.multipliers - near.multipliers
            trial = _Point.at(problem, near.multipliers + middle * way, curvature=False)
            self._record(trial)
            low, high = (low, middle) if trial.holds else (middle, high)
            best = min(best, trial, key=_rank)
        return best

    def bisect(self, problem: Complementarity, near: Floats) -> _Point:
        """Where rules are apart, each has a root of its own: brackets of all of them are halved together. The
        answer is the end at which each rule holds."""
        unit, items = problem.dual.loss_unit, _Items(problem)
        low, high = np.zeros(problem.dual.n_rules), np.full(problem.dual.n_rules, np.inf)
        trial, expansion = np.maximum(near, PRICED * unit), _FIRST_EXPANSION
        for _ in range(_BISECTIONS):
            point = items.look(trial, low, high)
            self._record(point)
            held = point.excess <= problem.tolerance
            low, high = np.where(held, low, trial), np.where(held, trial, high)
            close = (point.excess >= -_CLOSE * problem.aim) & (high <= (1 + _NARROW) * low)
            settled = held & close | (high <= PRICED * unit)
            if (settled | (trial > _LARGEST * unit)).all():
                break
            middle = np.where(low > 0, np.sqrt(low * high), high / expansion)
            trial = np.where(settled, high, np.where(np.isinf(high), low * expansion, middle))
            expansion = min(expansion**3, _EXPANSION)
        ends = np.where(np.isinf(high), low, np.where(high <= PRICED * unit, 0.0, high))
        return items.look(ends, ends, ends)

    def _record(self, point: _Point) -> None:
        dual = point.problem.dual
        self.trace.append(Step(len(self.trace), dual.mass, dual.beta, point.value, point.merit))
        if self.callback is not None:
            self.callback(self.trace[-1])


def _miss(point: _Point) -> float:
    return point.worst


def _rank_merit(point: _Point) -> float:
    return point.merit


def _rank(point: _Point) -> tuple[bool, float]:
    return (False, point.slack) if point.holds else (True, point.merit)


def _learn_gains(gains: Floats, here: _Point, there: _Point, change: float) -> Floats:
    """Secants: how far the excess moved for one unit of the predicted rate, of rules that moved notably."""
    moved = there.rates.predicted - here.rates.predicted
    notable = abs(moved) > np.maximum(0.2 * abs(here.excess), 1e-3 * here.problem.units)
    slope = (there.excess - here.excess) / np.where(notable, moved, 1.0)
    slope = np.clip(np.clip(slope, gains / change, gains * change), *_GAINS)
    return np.where(notable, np.sqrt(gains * slope), gains)
