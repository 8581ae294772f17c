"""Find multipliers at which observed rates satisfy the rules: shift the bounds, solve, select.

A policy scores actions by predicted features, so its observed rates are not the gradient of any dual. But the
plug-in error of a rule, its observed rate less the predicted one, changes little from one policy to the next.
Under bounds that are shifted by it, the ordinary convex problem has a policy whose observed rates satisfy the
rules as stated. So the shift is a fixed point of

    s  ->  the plug-in error of the policy that is optimal under the bounds b - s,

which Anderson mixing finds in a few warm-started solves. Observed rates are noisy functions of the
multipliers, hence every policy that was visited is a candidate: the cheapest that satisfies the rules as
observed is returned or, if there is none, the one that violates them least.

Constant decisions keep this from fitting noise at any price. No policy is returned that costs notably more
than a mixture of the policy without rules and a constant decision that satisfies the rules, and no multiplier
is larger than weak duality allows for the slack that a constant decision leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats
from bylaw.program import Callback, Dual, ObservedRates, RateExcess, Status, Step, Tally, Target
from bylaw.solvers._full_batch import FullBatch
from bylaw.solvers._separable import bisect_observed, find_separate_rules

MOST_SOLVES = 20  # convex problems in the search for a fixed point; it takes two or three, rarely ten
NEGLIGIBLE = 1e-3  # of the loss's unit: savings below what randomization costs at an automatic beta
# The search for the price of a ratio: shares that are taken from the predicted level, a beta (times the unit
# of the loss) at which hardly any row is decided at random, and rows whose changes are sorted by the price.
TIGHTER = (0.0, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 0.99)
SHARPEST = 1e9
MOST_SCANNED = 2**17


@dataclass(frozen=True)
class ObservedSolution:
    """Multipliers, and the rates of their policy on all rows."""

    dual: Dual  # the multipliers' own: beta or the level of a ratio rule may differ from the problem's
    multipliers: Floats
    value: float  # of the dual with the bounds at which the multipliers are optimal
    rates: RateExcess
    excess: Floats  # (M,): of the target; within the tolerance if `holds`
    cost: float  # as observed
    holds: bool
    conflict: bool  # whether no policy satisfies the predicted rules, shifted by what was observed
    trace: tuple[Step, ...] = ()


@dataclass(eq=False)
class ShiftedRules:
    """Rules on observed rates, as a family of convex problems with shifted bounds, and the policies visited.

    Parameters
    ----------
    dual : Dual
        the problem with the bounds as stated, on rows with observed features.
    rates : ObservedRates
        the same rules on the observed features.
    target : Target
        what must be <= 0, from predicted and observed excess.
    units : array of shape (n_rules,)
        about a standard error of each rule's rate; zero where observed rates are the predicted ones.
    tolerance : array of shape (n_rules,)
        the excess that counts as none.
    room : array of shape (n_rules,)
        how far inside its bound a rule can be held if its opposite is a rule too; infinite for other rules.
    denominators : sparse array of shape (n_rules, n_features * n_actions), optional
        D of the rules of the form N <= D, whose observed ratio may cross its bound at several prices; zero
        for other rules.
    tol : float
        precision of the convex problems.
    rng : Generator, optional
    callback : callable, optional
        called with each `Step`.
    """

    dual: Dual
    rates: ObservedRates
    target: Target
    units: Floats
    tolerance: Floats
    room: Floats
    denominators: sparse.csr_array | None
    tol: float
    rng: np.random.Generator | None = None
    callback: Callback | None = None
    points: list[_Point] = field(default_factory=list, init=False)
    trace: list[Step] = field(default_factory=list, init=False)

    def solve(self, begin: Floats) -> ObservedSolution:
        """Return the cheapest policy found that satisfies the rules, or the one that violates them least.

        The search begins with these multipliers, (M,), near the answer.
        """
        conflict = False
        if find_separate_rules(self.dual.form) is None:
            conflict = self._search(begin)
        else:  # each rule has a root of its own
            held = bisect_observed(self.dual, self.rates, self.target, self.tolerance, begin)
            self._visit(self.measure(held))
        best = self.best
        return ObservedSolution(
            dual=best.dual,
            multipliers=best.multipliers,
            value=best.value + float(best.rates.predicted @ best.multipliers),
            rates=best.rates,
            excess=best.excess,
            cost=best.cost,
            holds=best.holds,
            conflict=conflict and not best.holds,
            trace=tuple(self.trace),
        )

    @property
    def best(self) -> _Point:
        """The policy to return, of those visited so far."""
        affordable = [point for point in self.points if self._is_affordable(point)]
        return min(affordable or self.points, key=lambda point: point.rank)

    def _is_affordable(self, point: _Point) -> bool:
        return point.cost <= self.most_cost and point.has_plausible_prices

    @cached_property
    def aim(self) -> Floats:
        """How far inside the bounds steps aim, (M,): a little, so that one row violates nothing."""
        return 0.05 * np.minimum(self.units, 2 * self.room)

    def measure(self, multipliers: Floats, dual: Dual | None = None) -> _Point:
        """Return the policy with these multipliers, of the dual or of one with other levels of ratios."""
        dual = self.dual if dual is None else dual
        total = dual.tally(multipliers)
        return self._make_point(dual, multipliers, dual.first_order(total, multipliers)[0], total)

    @cached_property
    def constants(self) -> list[_Point]:
        """The policies that make the same decision on all rows, one for each action."""
        if not self.dual.form.action_space.exclusive:
            return []
        nothing = np.zeros(self.dual.n_rules)
        whole = self.dual.tally(nothing, whole=True)
        assert whole.observed is not None
        features, observed = whole.moments.sum(axis=1), whole.observed.sum(axis=1)
        return [
            self._make_point(
                self.dual,
                nothing,
                0.0,
                replace(whole, moments=np.outer(features, one), observed=np.outer(observed, one)),
            )
            for one in self.dual.form.action_space.constant_decisions()
        ]

    @cached_property
    def free(self) -> _Point:
        """The policy without rules."""
        return self.measure(np.zeros(self.dual.n_rules))

    @cached_property
    def mixture(self) -> Mixture:
        """The cheapest mixture of the policy without rules and a constant decision that satisfies the rules.

        Its cost is infinite if there is none.
        """
        mixtures = [self.free.mix_with(point)._replace(action=i) for i, point in enumerate(self.constants)]
        return min(mixtures, key=lambda one: one.cost, default=Mixture(0.0, math.inf))

    @property
    def most_cost(self) -> float:
        """The largest cost of a policy that is not notably more expensive than the mixture."""
        return self.mixture.cost + 0.01 * self.dual.loss_unit

    def _make_point(self, dual: Dual, multipliers: Floats, value: float, total: Tally) -> _Point:
        rates, cost = self.rates.measure(self.dual, total), self.rates.measure_cost(total)
        return _Point(self, dual, multipliers, value, rates, cost)

    def _search(self, begin: Floats) -> bool:
        """Visit the policy without rules, the plug-in policy, fixed points, and tighter policies.

        Return whether no policy satisfies the predicted rules, shifted by what was observed.
        """
        nothing, free = np.zeros(self.dual.n_rules), self._visit(self.free)
        # Begin with the bounds as predicted, then with those that are right for the policy without rules.
        # Where both conflict as predicted, loosen them: what is observed there tells how far that was right.
        noise = (self.units > 0) / math.sqrt(self.dual.n_rows)
        shifts = [nothing, free.proposal, *(-looser * noise for looser in (1, 4, 16))]
        start = next((point for shift in shifts if (point := self._solve(shift, begin))), None)
        if start is not None:
            self._iterate(start)
        # Rules of the form N <= D need a scan if their observed rates differ from the predicted ones.
        if self.denominators is not None:
            for rule in np.flatnonzero((np.diff(self.denominators.indptr) > 0) & (self.units > 0)):
                self._scan(int(rule), self.denominators)
        self._refine()
        return start is None

    def _visit(self, point: _Point) -> _Point:
        """Make a policy a candidate."""
        dual = self.dual
        self.points.append(point)
        self.trace.append(Step(len(self.trace), dual.mass, dual.beta, point.value, point.worst))
        if self.callback is not None:
            self.callback(self.trace[-1])
        return point

    def _solve(self, shift: Floats, start: Floats) -> _Point | None:
        """Visit the optimal policy under shifted bounds.

        Return None if these conflict as predicted, or if the policy is too expensive.
        """
        dual = self.dual
        shifted = dual.with_bounds(dual.form.bounds - shift)
        # A convex problem takes ten to thirty steps, unless its rules conflict.
        solution = FullBatch(100)(shifted, tol=self.tol, start=start, rng=self.rng)
        if solution.status is not Status.CONVERGED:
            return None
        point = self._visit(replace(self.measure(solution.multipliers), solved=shift))
        return point if self._is_affordable(point) else None

    def _iterate(self, point: _Point) -> None:
        """Search for a fixed point of the shift by Anderson mixing."""
        visited, solves = [point], 0
        while solves < MOST_SOLVES and not (point.holds and point.is_tight):
            shift, ahead = self._mix(visited[-6:]), None  # as usual in the literature
            # Halve a step that leads to a conflict, or to a policy that is too expensive.
            while ahead is None and solves < MOST_SOLVES:
                ahead = self._solve(shift, point.multipliers)
                solves += 1
                shift = (shift + point.shift) / 2
                if abs(shift - point.shift).max(initial=0.0) <= self.tol:
                    break
            if ahead is None:
                return
            moved = abs(ahead.shift - point.shift)[ahead.active | point.active]
            point = ahead
            visited.append(point)
            if moved.max(initial=0.0) <= self.tol:
                return

    def _scan(self, rule: int, denominators: sparse.csr_array) -> None:
        """Visit the cheapest prices of a ratio rule at which its observed ratio is within the bound.

        The other rules' prices are fixed, and several levels of the predicted ratio are tried.
        """
        multipliers, form = self.best.multipliers.copy(), self.dual.form
        for share in TIGHTER:
            # The rule N <= D becomes N <= (1 - share) D.
            shares = np.where(np.arange(self.dual.n_rules) == rule, share, 0.0)
            moved = sparse.csr_array(form.couplings + sparse.diags_array(shares) @ denominators)
            dual = self.dual.with_form(replace(form, couplings=moved)) if share else self.dual
            for price in self._list_prices(dual, rule, multipliers)[:MOST_SOLVES]:
                multipliers[rule] = price
                points = (
                    self._visit(self.measure(multipliers.copy(), dual.with_beta(beta)))
                    for beta in (dual.beta, SHARPEST / dual.loss_unit)
                )
                if any(point.holds for point in points):
                    break

    def _refine(self) -> None:
        """Aim further inside if no policy satisfies the rules, otherwise use up slack.

        The slack is bisected between the best policy and the one that violates the rules least.
        """
        for further in (2, 8, 20):
            if self.best.holds:
                break
            near = self.best
            extra = np.where(near.active, np.maximum(near.excess, 0.0) + further * self.aim, 0.0)
            self._solve(near.proposal + extra, near.multipliers)
        inside = self.best
        violated = [point for point in self.points if not point.holds]
        if not (inside.holds and violated):
            return
        outside = min(violated, key=lambda point: point.worst)
        for _ in range(MOST_SOLVES // 2):
            if inside.is_tight:
                return
            middle = self._solve((inside.shift + outside.shift) / 2, inside.multipliers)
            if middle is None:
                return
            inside, outside = (middle, outside) if middle.holds else (inside, middle)

    def _mix(self, points: Sequence[_Point]) -> Floats:
        """Return the shift (M,) that Anderson mixing proposes.

        It is the combination of the points' proposals in which the residuals of the active rules, in standard
        errors, cancel as well as they can.
        """
        proposals = np.array([point.proposal for point in points])
        if len(points) == 1:
            return proposals[0]
        residuals = proposals - [point.shift for point in points]
        weights = points[-1].active / np.maximum(self.units, self.tolerance)
        steps = np.diff(residuals * weights, axis=0)
        factors, *_ = np.linalg.lstsq(steps.T, residuals[-1] * weights, rcond=1e-8)
        return proposals[-1] - factors @ np.diff(proposals, axis=0)

    def _list_prices(self, dual: Dual, rule: int, multipliers: Floats) -> list[float]:
        """List prices of one rule at which its observed rate satisfies it, the cheapest policy first.

        The rule may have another level in this dual, and its own multiplier is ignored. The other rules'
        prices, (M,), are fixed. A row's scores are linear in the price, so its decision follows the upper
        envelope of as many lines as there are actions. The changes of all rows in order of the price give
        excess and cost at every price. Each price that is listed is in the middle between two changes.
        """
        rates, n_actions = self.rates, dual.form.base.shape[1]
        others = np.where(np.arange(len(multipliers)) == rule, 0.0, multipliers)
        matrix = dual.form.score_matrix(others)
        falls_matrix = dual.form.couplings[[rule]].toarray().reshape(matrix.shape)
        excess_matrix = rates.couplings[[rule]].toarray().reshape(-1, n_actions)
        changes = [np.zeros((3, 0))]  # price, change of the excess, change of the cost
        n_rows = sum(block.n_rows for block in dual.blocks)
        blocks = dual.blocks[:: max(math.ceil(n_rows / MOST_SCANNED), 1)]  # rows may be sorted by group
        mass = sum(block.mass for block in blocks)
        excess, cost = -self.dual.form.bounds[rule] * mass, 0.0
        for block in blocks:
            assert block.observed is not None
            scores, falls = block.scores(matrix), falls_matrix.T @ block.features  # (A, n_rows)
            paid = [part.T @ block.observed * block.row_weights for part in (excess_matrix, rates.form.base)]
            rows = np.arange(block.n_rows)
            # Begin with the largest score; of equal ones, that which falls least.
            decision = np.lexsort((falls, -scores), axis=0)[0]
            excess, cost = excess + paid[0][decision, rows].sum(), cost + paid[1][decision, rows].sum()
            while len(rows):
                # Go to the next price at which an action whose score falls more slowly takes over.
                slower = falls[decision, rows] - falls[:, rows]
                with np.errstate(divide="ignore", invalid="ignore"):
                    crossings = (scores[decision, rows] - scores[:, rows]) / slower
                crossings = np.where(slower > 0, crossings, np.inf)
                ahead, prices = crossings.argmin(axis=0), crossings.min(axis=0)
                moving = np.isfinite(prices)
                rows, before, ahead = rows[moving], decision[moving], ahead[moving]
                changes.append(
                    np.array([prices[moving], *(part[ahead, rows] - part[before, rows] for part in paid)])
                )
                decision = ahead
        prices, *moves = np.concatenate(changes, axis=1)
        if not len(prices):
            return []
        order = np.argsort(prices, kind="stable")
        ends = np.concatenate([[0.0], np.maximum(prices[order], 0.0), [2 * prices.max() + dual.loss_unit]])
        excesses, costs = (np.concatenate([[0.0], np.cumsum(move[order])]) for move in moves)
        held = (excess + excesses <= self.tolerance[rule] * mass) & (np.diff(ends) > 0)
        places = np.flatnonzero(held)
        places = places[np.argsort(costs[places], kind="stable")]
        return ((ends[places] + ends[places + 1]) / 2).tolist()


@dataclass(frozen=True)
class _Point:
    """A policy that was visited."""

    problem: ShiftedRules
    dual: Dual
    multipliers: Floats
    value: float  # of the dual with the bounds as stated
    rates: RateExcess
    cost: float  # as observed
    solved: Floats | None = None  # (M,): the shift of the bounds for which it was solved, if it was

    @cached_property
    def excess(self) -> Floats:
        """The excess of the target, (M,), which must be <= 0."""
        return self.problem.target(self.rates)

    @property
    def proposal(self) -> Floats:
        """The shift under which this policy's predicted rates satisfy the rules as observed, (M,)."""
        return self.excess - self.rates.predicted + self.problem.aim

    @property
    def shift(self) -> Floats:
        """(M,): a shift for which the policy is optimal, as rules with a price are tight."""
        return -self.rates.predicted if self.solved is None else self.solved

    @cached_property
    def holds(self) -> bool:
        return bool((self.excess <= self.problem.tolerance).all())

    @property
    def worst(self) -> float:
        """The largest violation, in standard errors."""
        units = np.maximum(self.problem.units, self.problem.tolerance)
        return float((self.excess / units).max(initial=0.0))

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of selection: policies that satisfy the rules by cost, then others by violation."""
        return (False, self.cost) if self.holds else (True, self.worst)

    @property
    def is_tight(self) -> bool:
        """Whether the slack of rules with a price could, to first order, save next to nothing."""
        saving = float(self.multipliers @ np.maximum(-self.excess, 0.0))
        return saving <= NEGLIGIBLE * self.problem.dual.loss_unit

    @property
    def active(self) -> NDArray[np.bool_]:
        """The rules with a price, and violated ones, (M,)."""
        return (self.multipliers > 0) | (self.excess > self.problem.tolerance)

    @property
    def has_plausible_prices(self) -> bool:
        """Whether weak duality allows the multipliers.

        As cost(free) + lambda' slack <= cost of any policy that leaves the slack, lambda' slack is at most
        the range of the loss.
        """
        constants = (point for point in self.problem.constants if point.holds)
        slacks = (np.maximum(-point.rates.observed, 0.0) for point in constants)
        most = max((float(self.multipliers @ slack) for slack in slacks), default=0.0)
        return most <= self.problem.dual.loss_unit

    def mix_with(self, other: _Point) -> Mixture:
        """Return the cheapest mixture with another policy that satisfies the rules.

        Its excess and its cost are linear in the share of the other policy, so that the best share is an end
        of an interval.
        """
        slopes = other.excess - self.excess
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = (self.problem.tolerance - self.excess) / slopes
        low = float(crossings[slopes < 0].max(initial=0.0))
        high = float(crossings[slopes > 0].min(initial=1.0))
        fixed = self.excess[slopes == 0] <= self.problem.tolerance[slopes == 0]
        if low > high or not fixed.all():
            return Mixture(0.0, math.inf)
        costs = [(1 - share) * self.cost + share * other.cost for share in (low, high)]
        return Mixture(low, costs[0]) if costs[0] <= costs[1] else Mixture(high, costs[1])


class Mixture(NamedTuple):
    """A mixture of the policy without rules and a constant decision."""

    share: float  # of the constant decision
    cost: float  # as observed
    action: int = 0
