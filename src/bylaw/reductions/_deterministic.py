"""Deterministic decisions: multipliers for which the likeliest actions of the rows satisfy the rules.

An exactly optimal policy decides at most as many rows at random as there are rules. A deterministic policy
can therefore satisfy each rule up to about one row, unless many rows have the same scores and change their
decision together. Three steps search for it. First, a sequence of sharper policies is solved with bounds that
are shifted by the violations of their deterministic decisions. Second, the price of the most violated rule
is raised until that rule is satisfied. Third, if equal scores make the result expensive, other prices are
tried (`PriceSearch`).

A deterministic policy has a beta so large that its softmax is zero or one, so the same code evaluates both
kinds of policies. Among equal scores, the first action is taken, because later ones cost slightly more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bylaw._base import Floats, find_stack_level
from bylaw.errors import GuaranteeWarning
from bylaw.language import Problem
from bylaw.policy import Policy
from bylaw.program import Dual, Feature, HardDecisions, Solution, Status, Tally, make_block
from bylaw.reductions._observe import CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import add_hard, make_guarantee, make_policy
from bylaw.rows import Evidence
from bylaw.solvers import BETA_GROWTH, FullBatch

CONSTANT = Feature(None, ())  # the feature that is one on every row; its weights break ties
TIE = 1e-9  # extra cost of each action over the one before it, in units of the loss
PRICED = 1e-9  # a smaller multiplier, in units of the loss, counts as zero
Excess = Callable[[Dual, Tally], Floats]  # computes from a pass how far rates are beyond their bounds, (M,)


@dataclass(frozen=True)
class RulesAt:
    """The cost of a policy, and how far each of its rates is beyond its bound."""

    dual: Dual  # with the beta of the policy
    multipliers: Floats
    total: Tally
    excess: Floats  # (M,): how far each rate is beyond its bound, in units of the dual
    tol: float

    @property
    def cost(self) -> float:
        """The predicted cost of the policy."""
        form = self.dual.form
        return float((form.base * self.total.moments).sum()) / self.total.mass + form.base_constant

    @property
    def holds(self) -> bool:
        """Whether all rules are satisfied."""
        return bool((self.excess <= self.tol).all())

    @property
    def rank(self) -> tuple[float, float]:
        """The largest violation and then the cost, for comparisons; lower is better."""
        return float(np.maximum(self.excess - self.tol, 0.0).max(initial=0.0)), self.cost

    def solution(self, randomized: Solution) -> Solution:
        """Return a copy of the randomized solution with these multipliers and violations."""
        missed = float(np.linalg.norm(np.maximum(self.excess, 0.0)))
        value, _ = self.dual.first_order(self.total, self.multipliers)
        status = randomized.status if self.holds else Status.MISSED
        return replace(
            randomized, multipliers=self.multipliers, gradient_mapping=missed, value=value, status=status
        )


def predict_excess(dual: Dual, total: Tally) -> Floats:
    """Return by how much each predicted rate exceeds the bound of its rule, (M,)."""
    return dual.form.operator @ (total.moments.ravel() / total.mass) - dual.form.bounds


@dataclass(frozen=True)
class Hardening:
    """A search for a deterministic policy near a randomized one, on the rows of a dual."""

    dual: Dual
    measure: Excess
    tol: float

    def find(self, multipliers: Floats, shift: Floats | None = None) -> RulesAt:
        """Return the cheapest deterministic policy that satisfies the rules, or the least violating one.

        `shift`, (M,), states by how much the bounds of the randomized policy were tightened.
        """
        best = self._evaluate(multipliers)
        if not self.dual.n_rules:
            return best
        shift = np.zeros(len(multipliers)) if shift is None else shift
        best = min(best, self._shift_bounds(multipliers, shift), key=lambda found: found.rank)
        if not best.holds:
            best = min(best, self._raise_prices(best), key=lambda found: found.rank)
        if self._is_expensive(best, multipliers):
            best = PriceSearch(self._evaluate, best, PRICED * self.dual.loss_unit, self.dual.n_rows).run(
                multipliers
            )
        return best

    def _is_expensive(self, best: RulesAt, multipliers: Floats) -> bool:
        """Return whether the deterministic policy costs so much that many rows seem to have equal scores.

        Without equal scores, the extra cost is at most about half of the rows that the randomized policy
        decides at random, and there is one such row for each binding rule.
        """
        if (best.excess > self.resolution + self.tol).any():
            return True
        few = (int((multipliers > PRICED * self.dual.loss_unit).sum()) + 1) / 2
        price = best.cost - self.tally(self.dual, multipliers).cost
        return price > few * self.dual.loss_unit / self.dual.n_rows

    @cached_property
    def hard(self) -> Dual:
        """The dual with a beta so large that decisions are deterministic; ties go to the first action."""
        dual, form = self.dual, self.dual.form
        base = form.base.copy()
        base[form.feature_map.features.index(CONSTANT)] += (
            TIE * dual.loss_unit * np.arange(1, base.shape[1] + 1)
        )
        return dual.with_form(replace(form, base=base)).with_beta(1e12 / dual.loss_unit)

    @cached_property
    def resolution(self) -> Floats:
        """How much the decision of one row can change the rate of each rule, (M,), in units of the dual."""
        return measure_resolution(self.dual)

    def _evaluate(self, multipliers: Floats) -> RulesAt:
        return self.tally(self.hard, multipliers)

    def tally(self, dual: Dual, multipliers: Floats) -> RulesAt:
        """Measure the cost and the rates of the policy with these multipliers."""
        total = dual.tally(multipliers)
        return RulesAt(dual, multipliers, total, self.measure(dual, total), self.tol)

    def _shift_bounds(self, multipliers: Floats, shift: Floats) -> RulesAt:
        """Solve sharper and sharper policies with bounds shifted by the violations of deterministic ones."""
        dual, found = self.dual, list[RulesAt]()
        unit, bounds = dual.loss_unit, dual.form.bounds
        # About eight rows are left undecided by the sharpest policy.
        sharpest = min(200.0 * dual.beta, max(dual.beta, dual.n_rows / (8.0 * unit)))
        beta = dual.beta
        for _ in range(16):
            beta = min(BETA_GROWTH * beta, sharpest)
            sharp = dual.with_beta(beta).with_bounds(bounds - shift)
            answer = FullBatch().refine(sharp, multipliers, tol=max(self.tol, 1e-2 / dual.n_rows))
            if answer.status is Status.INFEASIBLE:
                break
            multipliers = answer.multipliers
            here = self._evaluate(multipliers)
            found.append(here)
            excess, priced = here.excess, multipliers > PRICED * unit
            loose = priced & (excess < -2.0 * self.resolution)  # two rows inside
            if here.holds and not loose.any() and beta == sharpest:
                break
            moved = np.where(loose, excess / 2, 0.0)
            shift = shift + np.where(excess > self.tol, excess + self.resolution / 4, moved)
        return min(found, key=lambda one: one.rank, default=self._evaluate(multipliers))

    def _raise_prices(self, best: RulesAt) -> RulesAt:
        """Raise the price of the most violated rule until the rule is satisfied, and repeat."""
        for _ in range(2 * self.dual.n_rules):
            rule = int(best.excess.argmax())
            if best.excess[rule] <= self.tol:
                break
            raised = self._raise_price(best, rule)
            if raised is None or raised.rank >= best.rank:
                break
            best = raised
        return best

    def _raise_price(self, best: RulesAt, rule: int) -> RulesAt | None:
        """Double the increase of a price until its rule is satisfied, then bisect the increase."""
        low, high, found = 0.0, math.inf, None
        step = 1e-3 * self.dual.loss_unit / self.dual.n_rows
        for _ in range(40):
            trial = self._evaluate(best.multipliers + np.eye(1, self.dual.n_rules, rule)[0] * step)
            if trial.excess[rule] <= self.tol:
                high, found = step, trial
            elif step > 10.0 * self.dual.loss_unit:  # rounding errors would decide equal rows
                break
            else:
                low = step
            if high - low <= 1e-7 * self.dual.loss_unit:  # nearer, a softmax is not zero or one
                break
            step = 2 * step if found is None else (low + high) / 2
        return found


@dataclass
class PriceSearch:
    """A random search for prices, for rows with equal scores, where rates jump and derivatives do not help.

    Each price is scaled, and lowered to the least value at which the rules are satisfied. Then all prices are
    moved at random, in smaller and smaller steps around the best prices and around other ones. The random
    numbers are always the same.
    """

    evaluate: Callable[[Floats], RulesAt]
    best: RulesAt
    least: float  # a smaller price counts as zero
    n_rows: int
    left: int = field(init=False)  # number of remaining trials

    def __post_init__(self) -> None:
        self.left = min(max(2**24 // self.n_rows, 50), 1000)

    def run(self, around: Floats) -> RulesAt:
        """Return the best policy near the best prices so far and near the prices `around`, (M,)."""
        half = self.left - self.left // 2
        # Scale one price after the other, the highest first, as long as half of the trials are left.
        for rule in np.argsort(-self.best.multipliers, kind="stable").tolist():
            if self.best.multipliers[rule] <= self.least or self.left - 17 < half:
                break
            self._scale_price(rule, self.best.multipliers)
        rng, n_trials = np.random.default_rng(0), self.left
        sizes = np.geomspace(1.0, 1e-3, max(n_trials // 2, 1))
        for k in range(n_trials):
            center = around if k % 2 else self.best.multipliers
            self._try(self._move(center, sizes[min(k // 2, len(sizes) - 1)], rng))
        return self.best

    def _try(self, multipliers: Floats) -> RulesAt:
        self.left -= 1
        trial = self.evaluate(multipliers)
        if trial.rank < self.best.rank:
            self.best = trial
        return trial

    def _scale_price(self, rule: int, multipliers: Floats) -> None:
        """Try nine factors of a price, then bisect below the least one at which the rules are satisfied."""

        def holds(factor: float) -> bool:
            scaled = multipliers.copy()
            scaled[rule] *= factor
            return self._try(scaled).holds

        factors = (0.0, 0.5, 0.8, 0.95, 1.05, 1.25, 1.6, 2.0, 3.0)
        held = [factor for factor in factors if holds(factor)]
        if not held or not held[0]:
            return
        low, high = factors[factors.index(held[0]) - 1], held[0]
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)

    def _move(self, center: Floats, size: float, rng: np.random.Generator) -> Floats:
        """Return prices with random changes to a random subset; prices of zero rarely change."""
        n_rules, highest = len(center), max(float(center.max()), self.least)
        share = rng.choice((0.15, 0.4, 0.8))
        moved = rng.random(n_rules) < np.where(center > self.least, share, min(share, 2.0 / n_rules))
        moved[rng.integers(n_rules)] |= not moved.any()
        return np.maximum(center + size * highest * moved * rng.standard_normal(n_rules), 0.0)


def measure_resolution(dual: Dual) -> Floats:
    """Return how much the decision of one row can change the rate of each rule, (M,), in dual units."""
    largest = np.max([np.abs(block.features).max(axis=1) for block in dual.blocks], axis=0)  # (F,)
    moved = abs(dual.form.couplings).multiply(np.repeat(largest, dual.form.base.shape[1]))
    return moved.max(axis=1).toarray().ravel() / dual.n_rows


def warn_of_ties(solved: RulesAt, randomized: RulesAt, evidence: Evidence) -> None:
    """Warn if deterministic decisions violate a rule.

    The warning states the size of the violation and, if it exceeds the effect of one row, how many rows the
    randomized policy decides at random.
    """
    form, resolution = solved.dual.form, measure_resolution(solved.dual)
    one_row, excess = resolution * form.scales, solved.excess * form.scales
    beyond = excess > one_row + solved.tol
    if solved.holds and not beyond.any():
        return
    rule = int(np.where(beyond if beyond.any() else solved.excess > solved.tol, excess, -np.inf).argmax())
    violated = f"as deterministic decisions, {form.names[rule]!r} is violated by {excess[rule]:.3g}"
    if beyond.any():
        drawn, tied, scores = _find_ties(randomized, evidence)
        same = f", {tied:,} of them with the same scores, {scores}" if tied > 1 else ""
        message = (
            f"{violated} (one row is worth {one_row[rule]:.2g}): the randomized policy assigns {drawn:,} "
            f"rows at random{same}. Loosen this rule by {excess[rule]:.3g}, distinguish such rows by a finer "
            "score, or allow randomized decisions (deterministic=False; with ids=, the same id always gets "
            "the same decision)"
        )
    else:
        message = (
            f"{violated}, which is less than one row is worth ({one_row[rule]:.2g}). Loosen this rule by as "
            "much, or allow randomized decisions (deterministic=False)"
        )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def _find_ties(randomized: RulesAt, evidence: Evidence) -> tuple[int, int, str]:
    """Return the number of rows decided at random, the size of their largest tie, and its probabilities.

    A tie is a set of rows with equal features.
    """
    dual, form = randomized.dual, randomized.dual.form
    features = make_block(form, form.feature_map.admit(evidence)).features
    chances = dual.beta * (form.score_matrix(randomized.multipliers).T @ features)
    form.action_space.to_probabilities(chances)
    drawn = np.flatnonzero(form.action_space.decision_confidence(chances.T) < 0.99)
    if not len(drawn):
        return 0, 0, ""
    _, places, counts = np.unique(features[:, drawn], axis=1, return_inverse=True, return_counts=True)
    together = counts[places.ravel()]
    row = int(together.argmax())
    return len(drawn), int(together[row]), str(evidence.probabilities[drawn[row]].round(4).tolist())


def describe_hard(found: RulesAt, randomized: RulesAt) -> HardDecisions:
    """Return the costs of deterministic and of randomized decisions."""
    mapping = float(np.linalg.norm(np.maximum(randomized.excess, 0.0)))
    solution = Solution(randomized.multipliers, Status.CONVERGED, mapping, 0.0, 0)
    excess = make_guarantee(randomized.dual, solution).excess_cost
    return HardDecisions(found.cost, randomized.cost, excess)


def make_hard_policy(
    problem: Problem, evidence: Evidence, dual: Dual, solution: Solution, tol: float
) -> Policy:
    """Return the deterministic policy near a solution for predicted rates; warn of violations."""
    hardening = Hardening(dual, predict_excess, tol)
    randomized = hardening.tally(dual, solution.multipliers)
    found = hardening.find(solution.multipliers)
    warn_of_ties(found, randomized, evidence)
    policy = make_policy(problem, found.dual, found.solution(solution))
    return add_hard(policy, describe_hard(found, randomized))


def harden(
    correction: Correction, solved: CorrectedSolution, restate: Restate = as_stated
) -> CorrectedSolution:
    """Return the deterministic solution near a solution for observed rates; warn of violations."""
    rates, target = correction.rates, solved.target
    hardening = Hardening(solved.dual, lambda dual, total: target(rates.measure(dual, total)), correction.tol)
    randomized = hardening.tally(solved.dual, solved.solution.multipliers)
    found = hardening.find(solved.solution.multipliers, solved.shift)
    measured, hard = rates.measure(found.dual, found.total), describe_hard(found, randomized)
    solution = found.solution(solved.solution)
    corrected = CorrectedSolution(found.dual, solution, measured, target, hard)
    stated = restate(correction.conclude(corrected))
    excess = stated.target.stated_excess(stated.rates)
    warn_of_ties(replace(found, excess=excess), randomized, correction.facts.evidence)
    return stated
