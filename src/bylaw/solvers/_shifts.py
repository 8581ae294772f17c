"""Find multipliers at which observed rates satisfy the rules: shift the bounds, solve, select.

A policy scores actions by predicted features, so its observed rates are not the gradient of any dual. But the
plug-in error of a rule, its observed rate less the predicted one, changes little from one policy to the next.
After shifting the bounds by it, the ordinary convex problem has a policy whose observed rates satisfy the
rules as stated. So the shift is a fixed point of

    s  ->  the plug-in error of the policy that is optimal for the bounds b - s,

which Anderson mixing finds in a few warm-started solves. Observed rates are noisy functions of the
multipliers; therefore every policy that was computed is a candidate. The cheapest candidate whose observed
rates satisfy the rules is returned or, if all violate them, the one with the smallest violation.

Constant decisions limit the cost of fitting noise. A policy is rejected if it costs notably more than a
mixture of the policy without rules and a constant decision that satisfies the rules, or if its multipliers
are larger than weak duality allows, given the slack that a constant decision leaves.
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

MOST_SOLVES = 20  # limit of convex problems in the search for a fixed point; most need two or three
NEGLIGIBLE = 1e-3  # savings that do not count, in units of the loss: the cost of randomization at beta="auto"
TIGHTER = (0.0, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 0.99)  # shares by which the level of a ratio is tightened
SHARPEST = 1e9  # a beta, times the unit of the loss, at which hardly any decision is random
MOST_SCANNED = 2**17  # limit of the rows whose changes of decisions are sorted by the price of a ratio rule


@dataclass(frozen=True)
class ObservedSolution:
    """The policy that was selected: its multipliers, and its rates on all rows."""

    dual: Dual  # the dual of the policy: beta or the level of a ratio rule may differ from the problem's
    multipliers: Floats
    value: float  # of the dual whose bounds make the multipliers optimal
    rates: RateExcess
    excess: Floats  # (n_rules,): of each rule; within the tolerance if `holds`
    cost: float  # from observed labels and groups
    holds: bool  # whether the policy satisfies all rules
    conflict: bool  # whether the predicted rules, shifted by the plug-in errors, are infeasible
    trace: tuple[Step, ...] = ()


@dataclass(eq=False)
class ShiftedRules:
    """A search for a policy whose observed rates satisfy the rules, by convex problems with shifted bounds.

    It keeps all policies that were computed, as candidates.

    Parameters
    ----------
    dual : Dual
        the problem with the bounds as stated, on rows with observed features.
    rates : ObservedRates
        the same rules on the observed features.
    target : Target
        computes what must be <= 0 from predicted and observed excesses.
    units : array of shape (n_rules,)
        about a standard error of each rule's rate; zero if observed and predicted rates are equal.
    tolerance : array of shape (n_rules,)
        the excess up to which a rule counts as satisfied.
    room : array of shape (n_rules,)
        by how much a rule can be tightened if its opposite is a rule too; infinite for other rules.
    denominators : sparse array of shape (n_rules, n_features * n_actions), optional
        the coefficients of D for rules of the form N <= D, whose observed ratio may cross its bound at
        several prices; zero for other rules.
    tol : float
        tolerance of the convex problems.
    rng : Generator, optional
        shuffles the samples of the solver.
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
        """Return the cheapest candidate that satisfies the rules, or the one with the smallest violation.

        The search begins with these multipliers, (n_rules,), near the solution.
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
        """The best candidate so far: affordable, satisfying the rules if possible, and cheapest."""
        affordable = [point for point in self.points if self._is_affordable(point)]
        return min(affordable or self.points, key=lambda point: point.rank)

    def _is_affordable(self, point: _Point) -> bool:
        return point.cost <= self.most_cost and point.has_plausible_prices

    @cached_property
    def aim(self) -> Floats:
        """The small slack, (n_rules,), that convex problems leave so that a few rows violate no rule."""
        return 0.05 * np.minimum(self.units, 2 * self.room)

    def measure(self, multipliers: Floats, dual: Dual | None = None) -> _Point:
        """Return the policy with these multipliers and its rates; `dual` may have other levels of ratios."""
        dual = self.dual if dual is None else dual
        total = dual.tally(multipliers)
        return self._make_point(dual, multipliers, dual.first_order(total, multipliers)[0], total)

    @cached_property
    def constants(self) -> list[_Point]:
        """The policies with the same decision on all rows, one for each action."""
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
        """The policy without rules, with its rates and cost."""
        return self.measure(np.zeros(self.dual.n_rules))

    @cached_property
    def mixture(self) -> Mixture:
        """The cheapest mixture of the policy without rules and a constant decision that satisfies the rules.

        Its cost is infinite if all such mixtures violate the rules.
        """
        mixtures = [self.free.mix_with(point)._replace(action=i) for i, point in enumerate(self.constants)]
        return min(mixtures, key=lambda one: one.cost, default=Mixture(0.0, math.inf))

    @property
    def most_cost(self) -> float:
        """The largest cost of a candidate: that of the mixture plus a hundredth of the unit of the loss."""
        return self.mixture.cost + 0.01 * self.dual.loss_unit

    def _make_point(self, dual: Dual, multipliers: Floats, value: float, total: Tally) -> _Point:
        rates, cost = self.rates.measure(self.dual, total), self.rates.measure_cost(total)
        return _Point(self, dual, multipliers, value, rates, cost)

    def _search(self, begin: Floats) -> bool:
        """Compute candidates: without rules, with plug-in bounds, at fixed points, and with tighter bounds.

        Return whether all shifted bounds at the beginning were infeasible for predicted rates.
        """
        nothing, free = np.zeros(self.dual.n_rules), self._visit(self.free)
        # Solve with the stated bounds, else with those shifted by the errors of the policy without rules. If
        # both are infeasible for predicted rates, loosen them; the observed rates then correct the shift.
        noise = (self.units > 0) / math.sqrt(self.dual.n_rows)
        shifts = [nothing, free.proposal, *(-looser * noise for looser in (1, 4, 16))]
        start = next((point for shift in shifts if (point := self._solve(shift, begin))), None)
        # Search for a fixed point of the shift.
        if start is not None:
            self._iterate(start)
        # Scan the prices of rules of the form N <= D whose observed rates differ from the predicted ones.
        if self.denominators is not None:
            for rule in np.flatnonzero((np.diff(self.denominators.indptr) > 0) & (self.units > 0)):
                self._scan(int(rule), self.denominators)
        # Tighten the rules, or use up slack.
        self._refine()
        return start is None

    def _visit(self, point: _Point) -> _Point:
        """Add a policy to the candidates, and record a step."""
        dual = self.dual
        self.points.append(point)
        self.trace.append(Step(len(self.trace), dual.mass, dual.beta, point.value, point.worst))
        if self.callback is not None:
            self.callback(self.trace[-1])
        return point

    def _solve(self, shift: Floats, start: Floats) -> _Point | None:
        """Compute the optimal policy for bounds lowered by `shift`, (n_rules,), and add it to the candidates.

        Return None if these bounds are infeasible for predicted rates, or if the policy is too expensive.
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
            # Propose a shift by Anderson mixing of the last six points, a usual number.
            shift, ahead = self._mix(visited[-6:]), None
            # Halve the step as long as it leads to a conflict, or to a policy that is too expensive.
            while ahead is None and solves < MOST_SOLVES:
                ahead = self._solve(shift, point.multipliers)
                solves += 1
                shift = (shift + point.shift) / 2
                if abs(shift - point.shift).max(initial=0.0) <= self.tol:
                    break
            if ahead is None:
                return
            # Stop if the shift of the active rules has converged.
            moved = abs(ahead.shift - point.shift)[ahead.active | point.active]
            point = ahead
            visited.append(point)
            if moved.max(initial=0.0) <= self.tol:
                return

    def _scan(self, rule: int, denominators: sparse.csr_array) -> None:
        """Add candidates for prices of a rule on a ratio at which its observed ratio satisfies the bound.

        The prices of other rules are fixed, and several levels of the predicted ratio are tried.
        """
        multipliers, form = self.best.multipliers.copy(), self.dual.form
        for share in TIGHTER:
            # The rule N <= D becomes N <= (1 - share) D.
            shares = np.where(np.arange(self.dual.n_rules) == rule, share, 0.0)
            moved = sparse.csr_array(form.couplings + sparse.diags_array(shares) @ denominators)
            dual = self.dual.with_form(replace(form, couplings=moved)) if share else self.dual
            # Try the cheapest prices until one satisfies the rules, with the usual and with the largest beta.
            for price in self._list_prices(dual, rule, multipliers)[:MOST_SOLVES]:
                multipliers[rule] = price
                points = (
                    self._visit(self.measure(multipliers.copy(), dual.with_beta(beta)))
                    for beta in (dual.beta, SHARPEST / dual.loss_unit)
                )
                if any(point.holds for point in points):
                    break

    def _refine(self) -> None:
        """Tighten the bounds further if all candidates violate the rules; otherwise try to use up slack.

        For this, the shift is bisected between the best candidate and the one with the smallest violation.
        """
        # Tighten the active rules until a candidate satisfies all rules.
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
        # Bisect the shift between the best candidate and the one with the smallest violation.
        outside = min(violated, key=lambda point: point.worst)
        for _ in range(MOST_SOLVES // 2):
            if inside.is_tight:
                return
            middle = self._solve((inside.shift + outside.shift) / 2, inside.multipliers)
            if middle is None:
                return
            inside, outside = (middle, outside) if middle.holds else (inside, middle)

    def _mix(self, points: Sequence[_Point]) -> Floats:
        """Return the shift, (n_rules,), that Anderson mixing proposes.

        It is the combination of the proposals of the points that minimizes the residuals of the active rules,
        in standard errors.
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
        """Return prices of one rule at which its observed rate satisfies it, the cheapest policy first.

        The level of the rule in this dual may differ, and the rule's own entry of `multipliers` is ignored.
        The prices of other rules, (n_rules,), are fixed. The scores of a row are linear in the price, so its
        decision follows the upper envelope of one line per action. The changes of the decisions on all rows,
        in order of the price, give excess and cost at every price. Each price in the list is midway between
        two changes.
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
            scores, falls = block.scores(matrix), falls_matrix.T @ block.features  # (n_actions, n_rows)
            paid = [part.T @ block.observed * block.row_weights for part in (excess_matrix, rates.form.base)]
            rows = np.arange(block.n_rows)
            # Begin at price zero with the largest score; of equal scores, the one that falls least.
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
    """A candidate: a policy that was computed, with its rates and its cost."""

    problem: ShiftedRules
    dual: Dual
    multipliers: Floats
    value: float  # of the dual with the bounds as stated
    rates: RateExcess
    cost: float  # from observed labels and groups
    solved: Floats | None = None  # (n_rules,): the shift for which a convex problem had this solution

    @cached_property
    def excess(self) -> Floats:
        """The excess of each rule, (n_rules,), which must be <= 0."""
        return self.problem.target(self.rates)

    @property
    def proposal(self) -> Floats:
        """The shift of bounds that would make observed rates of this policy satisfy the rules, (n_rules,)."""
        return self.excess - self.rates.predicted + self.problem.aim

    @property
    def shift(self) -> Floats:
        """A shift of the bounds for which the policy is optimal, (n_rules,): rules with a price are tight."""
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
        """Whether using up the slack of rules with a price would save almost nothing, to first order."""
        saving = float(self.multipliers @ np.maximum(-self.excess, 0.0))
        return saving <= NEGLIGIBLE * self.problem.dual.loss_unit

    @property
    def active(self) -> NDArray[np.bool_]:
        """A mask of the rules that have a nonzero multiplier or are violated, (n_rules,)."""
        return (self.multipliers > 0) | (self.excess > self.problem.tolerance)

    @property
    def has_plausible_prices(self) -> bool:
        """Whether the multipliers are as small as weak duality requires.

        Because cost(free) + lambda' slack <= cost of any policy with this slack, lambda' slack is at most the
        range of the loss.
        """
        constants = (point for point in self.problem.constants if point.holds)
        slacks = (np.maximum(-point.rates.observed, 0.0) for point in constants)
        most = max((float(self.multipliers @ slack) for slack in slacks), default=0.0)
        return most <= self.problem.dual.loss_unit

    def mix_with(self, other: _Point) -> Mixture:
        """Return the cheapest mixture of this and another policy that satisfies the rules.

        Excess and cost are linear in the share of the other policy, so that the best share is an end of an
        interval.
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
    """A mixture of the policy without rules and the policy of a constant decision."""

    share: float  # of the constant decision
    cost: float  # from observed labels and groups
    action: int = 0  # index of the constant decision
