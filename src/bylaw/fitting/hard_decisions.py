"""Decisions without chance: multipliers for which the rules hold on the likeliest action of each row.

At the optimum of the exact program only as many rows as there are rules are decided by lot. So a hard policy
comes as near to a rule as one row allows, unless many rows have the same scores: these change their decision
together. Bounds are shifted, by what the hard rates of a sharp policy miss them by, until hard rates satisfy
the rules; what is left is met by raising the prices of the rules that are missed, one by one.

A hard policy is a policy whose beta is so large that its softmax is zero or one: whatever reads a policy
reads this one. Where scores are equal, the first action is taken: the others cost a trifle more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.errors import GuaranteeWarning
from bylaw.fitting.bias_correction import CorrectedSolution, Correction
from bylaw.fitting.fitted_policy import make_policy
from bylaw.formulation.blocks import make_block
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import Feature, LinearForm
from bylaw.formulation.passes import Tally
from bylaw.formulation.solution import HardDecisions, Solution, Status
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.solvers.full_batch import FullBatch

CONSTANT = Feature(None, ())  # whose weights break ties
_HARDEST = 1e12  # beta, times the unit of the loss
_TIE = 1e-9  # of the unit of the loss: what each action costs more than the one before
_SHARPER = 6.0  # beta, from one stage to the next
_SHARPEST = 200.0  # times the beta of the randomised policy
_ROWS_AT_BOUNDARY = 8.0  # about as many are left undecided by the sharp policy
_ROUNDS = 16
_LOOSE = 2.0  # rows: a rule with a price that is held further inside is loosened
_RAISES = 40  # of a price, by factors of two and by halves
_PRICED = 1e-9  # of the unit of the loss

Excess = Callable[[Dual, Tally], Floats]  # (M,): what must be <= 0, of a policy whose rows were tallied


@dataclass(frozen=True)
class HardPolicy:
    """Multipliers whose likeliest actions are the decisions."""

    dual: Dual  # with the beta of decisions without chance
    multipliers: Floats
    total: Tally
    excess: Floats  # (M,), in units of the dual
    tol: float

    @property
    def cost(self) -> float:
        form = self.dual.form
        return float((form.base * self.total.moments).sum()) / self.total.mass + form.base_constant

    @property
    def holds(self) -> bool:
        return bool((self.excess <= self.tol).all())

    @cached_property
    def rank(self) -> tuple[float, float]:
        """Rather a rule that holds than a lower cost."""
        return float(np.maximum(self.excess - self.tol, 0.0).max(initial=0.0)), self.cost

    def solution(self, randomised: Solution) -> Solution:
        """As that of a randomised policy, with the violations of hard decisions."""
        missed = float(np.linalg.norm(np.maximum(self.excess, 0.0)))
        value, _ = self.dual.first_order(self.total, self.multipliers)
        status = randomised.status if self.holds else Status.MISSED
        return replace(
            randomised, multipliers=self.multipliers, gradient_mapping=missed, value=value, status=status
        )


def predict_excess(dual: Dual, total: Tally) -> Floats:
    """Of the rates that the probabilities predict."""
    return dual.form.operator @ (total.moments.ravel() / total.mass) - dual.form.bounds


@dataclass(frozen=True)
class Hardening:
    """From a randomised policy to one without chance, on the rows of a dual."""

    dual: Dual
    measure: Excess
    tol: float

    def find(self, multipliers: Floats, shift: Floats | None = None) -> HardPolicy:
        """The best policy met: of those that satisfy the rules the cheapest, or the one that misses least.
        `shift` (M,) is how much tighter than stated the randomised one is held."""
        best = self._look(multipliers)
        if not self.dual.n_rules:
            return best
        shift = np.zeros(len(multipliers)) if shift is None else shift
        best = min(best, self._shift_bounds(multipliers, shift), key=lambda found: found.rank)
        return best if best.holds else min(best, self._raise_prices(best), key=lambda found: found.rank)

    @cached_property
    def hard(self) -> Dual:
        """The dual of decisions without chance; of equal actions, the first is the cheapest."""
        dual, form = self.dual, self.dual.form
        base = form.base.copy()
        base[form.feature_map.features.index(CONSTANT)] += (
            _TIE * dual.loss_unit * np.arange(1, base.shape[1] + 1)
        )
        return dual.with_form(replace(form, base=base)).with_beta(_HARDEST / dual.loss_unit)

    @cached_property
    def resolution(self) -> Floats:
        """(M,): how far one row moves each rule, in units of the dual."""
        return measure_resolution(self.dual.form, self.dual.n_rows)

    def _look(self, multipliers: Floats) -> HardPolicy:
        total = self.hard.tally(multipliers)
        return HardPolicy(self.hard, multipliers, total, self.measure(self.hard, total), self.tol)

    def _shift_bounds(self, multipliers: Floats, shift: Floats) -> HardPolicy:
        """Sharp policies with bounds shifted by what their hard decisions miss."""
        dual, found = self.dual, list[HardPolicy]()
        unit, bounds = dual.loss_unit, dual.form.bounds
        sharpest = min(_SHARPEST * dual.beta, max(dual.beta, dual.n_rows / (_ROWS_AT_BOUNDARY * unit)))
        beta = dual.beta
        for _ in range(_ROUNDS):
            beta = min(_SHARPER * beta, sharpest)
            sharp = dual.with_beta(beta).with_bounds(bounds - shift)
            answer = FullBatch().refine(sharp, multipliers, tol=max(self.tol, 1e-2 / dual.n_rows))
            if answer.status is Status.INFEASIBLE:
                break
            multipliers = answer.multipliers
            here = self._look(multipliers)
            found.append(here)
            excess, priced = here.excess, multipliers > _PRICED * unit
            loose = priced & (excess < -_LOOSE * self.resolution)
            if here.holds and not loose.any() and beta == sharpest:
                break
            moved = np.where(loose, excess / 2, 0.0)
            shift = shift + np.where(excess > self.tol, excess + self.resolution / 4, moved)
        return min(found, key=lambda one: one.rank, default=self._look(multipliers))

    def _raise_prices(self, best: HardPolicy) -> HardPolicy:
        """The price of the rule that is missed most is raised until it holds, and no further than it must."""
        for _ in range(2 * self.dual.n_rules):
            rule = int(best.excess.argmax())
            if best.excess[rule] <= self.tol:
                break
            raised = self._raise_price(best, rule)
            if raised is None or raised.rank >= best.rank:
                break
            best = raised
        return best

    def _raise_price(self, best: HardPolicy, rule: int) -> HardPolicy | None:
        low, step, found = 0.0, 1e-3 * self.dual.loss_unit / self.dual.n_rows, None
        for _ in range(_RAISES):
            trial = self._look(best.multipliers + np.eye(1, self.dual.n_rules, rule)[0] * step)
            if trial.excess[rule] <= self.tol:
                found, step = trial, (low + step) / 2
            else:
                low, step = step, 2 * step if found is None else (step + low) / 2
        return found


def measure_resolution(form: LinearForm, n_rows: int) -> Floats:
    """(M,): how far one row moves each rule, in units of the form."""
    rarest = [
        min((form.frequencies.get(c, 1.0) for c in found.rule.excess.by_condition()), default=1.0)
        for found in form.rules
    ]
    return 1 / (n_rows * np.array(rarest) * form.scales)


def warn_of_ties(policy: HardPolicy, evidence: Evidence) -> None:
    """Where a rule is missed without chance: which, by how much, and how many rows decide alike."""
    form = policy.dual.form
    rule = int((policy.excess * form.scales).argmax())
    excess, one = policy.excess[rule] * form.scales[rule], measure_resolution(form, policy.dual.n_rows)[rule]
    tied, scores = _find_ties(policy, evidence)
    message = (
        f"without chance, {form.names[rule]!r} is missed by {excess:.3g} (one row is worth "
        f"{one * form.scales[rule]:.2g} of it)"
    )
    if tied > 1:
        message += f". {tied:,} rows have the same scores, {scores}, and are decided alike"
    message += (
        f": loosen this rule by {excess:.3g}, tell such rows apart by a finer score, or allow lotteries "
        "(lottery=True)"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=4)


def _find_ties(policy: HardPolicy, evidence: Evidence) -> tuple[int, str]:
    """The most rows with the same features among those nearest to a boundary, and their probabilities."""
    form = policy.dual.form
    features = make_block(form, form.feature_map.admit(evidence)).features
    scores = form.score_matrix(policy.multipliers).T @ features
    top = np.sort(scores, axis=0)
    gaps = top[-1] - top[-2] if form.action_space.exclusive else abs(scores).min(axis=0)
    _, places, counts = np.unique(features, axis=1, return_inverse=True, return_counts=True)
    together = counts[places.ravel()]
    nearest = gaps <= np.quantile(gaps, 0.1)
    row = int(np.flatnonzero(nearest)[together[nearest].argmax()])
    return int(together[row]), str(evidence.probabilities[row].round(4).tolist())


def describe_hard(policy: HardPolicy, randomised: Dual, multipliers: Floats) -> HardDecisions:
    """What giving up chance costs."""
    total = randomised.tally(multipliers)
    form = randomised.form
    cost = float((form.base * total.moments).sum()) / total.mass + form.base_constant
    return HardDecisions(policy.cost, cost)


def make_hard_policy(
    problem: Problem, evidence: Evidence, dual: Dual, solution: Solution, tol: float
) -> Policy:
    """Without chance, from a randomised solution for predicted rates; warns of rules that it misses."""
    found = Hardening(dual, predict_excess, tol).find(solution.multipliers)
    if not found.holds:
        warn_of_ties(found, evidence)
    policy = make_policy(problem, found.dual, found.solution(solution))
    return replace(policy, hard=describe_hard(found, dual, solution.multipliers))


def harden(correction: Correction, randomised: CorrectedSolution) -> CorrectedSolution:
    """Without chance, from a randomised solution for rates as observed; warns of rules that it misses."""
    rates, target = correction.rates, randomised.target
    hardening = Hardening(
        randomised.dual, lambda dual, total: target(rates.measure(dual, total)), correction.tol
    )
    multipliers = randomised.solution.multipliers
    found = hardening.find(multipliers, randomised.shift)
    hard = CorrectedSolution(
        found.dual,
        found.solution(randomised.solution),
        rates.measure(found.dual, found.total),
        target,
        describe_hard(found, randomised.dual, multipliers),
    )
    stated = target.stated_excess(hard.rates)
    if (stated > correction.tol).any():
        warn_of_ties(replace(found, excess=stated), correction.evidence)
    return correction.conclude(hard)
