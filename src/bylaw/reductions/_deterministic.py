"""Decisions without chance: multipliers for which the rules hold on the likeliest action of each row.

At the optimum of the exact program only as many rows as there are rules are decided by lot. So a hard policy
comes as near to a rule as one row allows, unless many rows have the same scores: these change their decision
together. Bounds are shifted, by what the hard rates of a sharp policy miss them by, until hard rates satisfy
the rules; what is left is met by raising the prices of the rules that are missed, one by one. Where rows
with the same scores make that dear, other prices are looked at (`PriceSearch`).

A hard policy is a policy whose beta is so large that its softmax is zero or one: whatever reads a policy
reads this one. Where scores are equal, the first action is taken: the others cost a trifle more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bylaw._base.runtime import find_stack_level
from bylaw._base.typing import Floats
from bylaw.errors import GuaranteeWarning
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.program.blocks import make_block
from bylaw.program.dual import Dual, Tally
from bylaw.program.linear_form import Feature
from bylaw.program.solution import HardDecisions, Solution, Status
from bylaw.reductions._observe import CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import add_hard, make_guarantee, make_policy
from bylaw.reductions._price_search import PriceSearch, count_looks
from bylaw.rows.evidence import Evidence
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
_NARROW = 1e-7  # price, in units of the loss: nearer to a boundary, a softmax is not zero or one
_HIGHEST = 10.0  # price, in units of the loss: beyond, rounding errors would decide equal rows
_HALF = 0.5  # of a row for each rule that binds: what giving up chance costs where all scores differ
_PRICED = 1e-9  # of the unit of the loss
_SURE = 0.99  # a decision whose likeliest action has a lower probability is drawn by lot
Excess = Callable[[Dual, Tally], Floats]  # (M,): what must be <= 0, of a policy whose rows were tallied


@dataclass(frozen=True)
class RulesAt:
    """The rules and the cost of a policy, as a rule of one whose likeliest actions are the decisions."""

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

    @property
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

    def find(self, multipliers: Floats, shift: Floats | None = None) -> RulesAt:
        """The best policy met: of those that satisfy the rules the cheapest, or the one that misses least.
        `shift` (M,) is how much tighter than stated the randomised one is held."""
        best = self._look(multipliers)
        if not self.dual.n_rules:
            return best
        shift = np.zeros(len(multipliers)) if shift is None else shift
        best = min(best, self._shift_bounds(multipliers, shift), key=lambda found: found.rank)
        if not best.holds:
            best = min(best, self._raise_prices(best), key=lambda found: found.rank)
        return self._search_prices(best, multipliers) if self._is_dear(best, multipliers) else best

    def _is_dear(self, best: RulesAt, multipliers: Floats) -> bool:
        """Whether giving up chance costs more than half of the rows that the randomised policy decides by
        lot, one for each rule that binds: then many rows have the same scores."""
        if (best.excess > self.resolution + self.tol).any():
            return True
        few = _HALF * (int((multipliers > _PRICED * self.dual.loss_unit).sum()) + 1)
        price = best.cost - self.tally(self.dual, multipliers).cost
        return price > few * self.dual.loss_unit / self.dual.n_rows

    def _search_prices(self, best: RulesAt, multipliers: Floats) -> RulesAt:
        unit, n_looks = self.dual.loss_unit, count_looks(self.dual.n_rows)
        return PriceSearch(self._look, best, _PRICED * unit, n_looks).run(multipliers)

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
        return measure_resolution(self.dual)

    def _look(self, multipliers: Floats) -> RulesAt:
        return self.tally(self.hard, multipliers)

    def tally(self, dual: Dual, multipliers: Floats) -> RulesAt:
        """The rules and the cost at some multipliers, with or without chance."""
        total = dual.tally(multipliers)
        return RulesAt(dual, multipliers, total, self.measure(dual, total), self.tol)

    def _shift_bounds(self, multipliers: Floats, shift: Floats) -> RulesAt:
        """Sharp policies with bounds shifted by what their hard decisions miss."""
        dual, found = self.dual, list[RulesAt]()
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

    def _raise_prices(self, best: RulesAt) -> RulesAt:
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

    def _raise_price(self, best: RulesAt, rule: int) -> RulesAt | None:
        """Twice as far until the rule holds, then by halves."""
        low, high, found = 0.0, math.inf, None
        step = 1e-3 * self.dual.loss_unit / self.dual.n_rows
        for _ in range(_RAISES):
            trial = self._look(best.multipliers + np.eye(1, self.dual.n_rules, rule)[0] * step)
            if trial.excess[rule] <= self.tol:
                high, found = step, trial
            elif step > _HIGHEST * self.dual.loss_unit:
                break
            else:
                low = step
            if high - low <= _NARROW * self.dual.loss_unit:
                break
            step = 2 * step if found is None else (low + high) / 2
        return found


def measure_resolution(dual: Dual) -> Floats:
    """(M,): how far one row can move each rule, in units of the dual."""
    largest = np.max([np.abs(block.features).max(axis=1) for block in dual.blocks], axis=0)  # (F,)
    moved = abs(dual.form.couplings).multiply(np.repeat(largest, dual.form.base.shape[1]))
    return moved.max(axis=1).toarray().ravel() / dual.n_rows


def warn_of_ties(found: RulesAt, randomised: RulesAt, evidence: Evidence) -> None:
    """Where a rule is missed without chance: which, by how much and, if that is more than a row, whose
    decisions the randomised policy draws by lot."""
    form = found.dual.form
    one_row = measure_resolution(found.dual) * form.scales
    excess = found.excess * form.scales
    missed = excess > one_row + found.tol
    if not missed.any():
        _warn_within_a_row(found, excess, one_row)
        return
    rule = int(np.where(missed, excess, -np.inf).argmax())
    drawn, tied, scores = _find_ties(randomised, evidence)
    same = f", {tied:,} of them with the same scores, {scores}" if tied > 1 else ""
    message = (
        f"without chance, {form.names[rule]!r} is missed by {excess[rule]:.3g} (one row is worth "
        f"{one_row[rule]:.2g}): the randomised policy decides {drawn:,} rows by lot{same}. Loosen this rule "
        f"by {excess[rule]:.3g}, tell such rows apart by a finer score, or allow randomized decisions "
        "(deterministic=False; with ids=, the same id always gets the same decision)"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def _warn_within_a_row(found: RulesAt, excess: Floats, one_row: Floats) -> None:
    """Where the rule that is missed most is missed by less than what one row is worth."""
    if found.holds:
        return
    rule = int(np.where(found.excess > found.tol, excess, -np.inf).argmax())
    message = (
        f"without chance, {found.dual.form.names[rule]!r} is missed by {excess[rule]:.3g}, which is less "
        f"than one row is worth ({one_row[rule]:.2g}). Loosen this rule by as much, or allow randomized "
        "decisions (deterministic=False)"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def _find_ties(randomised: RulesAt, evidence: Evidence) -> tuple[int, int, str]:
    """How many rows are decided by lot, the most of them that have the same features, and the probabilities
    of these."""
    dual, form = randomised.dual, randomised.dual.form
    features = make_block(form, form.feature_map.admit(evidence)).features
    chances = dual.beta * (form.score_matrix(randomised.multipliers).T @ features)
    form.action_space.to_probabilities(chances)
    drawn = np.flatnonzero(form.action_space.decision_confidence(chances.T) < _SURE)
    if not len(drawn):
        return 0, 0, ""
    _, places, counts = np.unique(features[:, drawn], axis=1, return_inverse=True, return_counts=True)
    together = counts[places.ravel()]
    row = int(together.argmax())
    return len(drawn), int(together[row]), str(evidence.probabilities[drawn[row]].round(4).tolist())


def describe_hard(found: RulesAt, randomised: RulesAt) -> HardDecisions:
    """What giving up chance costs."""
    mapping = float(np.linalg.norm(np.maximum(randomised.excess, 0.0)))
    solution = Solution(randomised.multipliers, Status.CONVERGED, mapping, 0.0, 0)
    excess = make_guarantee(randomised.dual, solution).excess_cost
    return HardDecisions(found.cost, randomised.cost, excess)


def make_hard_policy(
    problem: Problem, evidence: Evidence, dual: Dual, solution: Solution, tol: float
) -> Policy:
    """Without chance, from a randomised solution for predicted rates; warns of rules that it misses."""
    hardening = Hardening(dual, predict_excess, tol)
    randomised = hardening.tally(dual, solution.multipliers)
    found = hardening.find(solution.multipliers)
    warn_of_ties(found, randomised, evidence)
    policy = make_policy(problem, found.dual, found.solution(solution))
    return add_hard(policy, describe_hard(found, randomised))


def harden(
    correction: Correction, solved: CorrectedSolution, restate: Restate = as_stated
) -> CorrectedSolution:
    """Without chance, from a randomised solution for rates as observed; warns of rules that it misses as
    they are stated."""
    rates, target = correction.rates, solved.target
    hardening = Hardening(solved.dual, lambda dual, total: target(rates.measure(dual, total)), correction.tol)
    randomised = hardening.tally(solved.dual, solved.solution.multipliers)
    found = hardening.find(solved.solution.multipliers, solved.shift)
    measured, hard = rates.measure(found.dual, found.total), describe_hard(found, randomised)
    solution = found.solution(solved.solution)
    corrected = CorrectedSolution(found.dual, solution, measured, target, hard)
    stated = restate(correction.conclude(corrected))
    excess = stated.target.stated_excess(stated.rates)
    warn_of_ties(replace(found, excess=excess), randomised, correction.evidence)
    return stated
