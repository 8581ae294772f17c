"""Correction for miscalibration: rules held on what was observed, not on what the model believes.

A rule's plug-in error is its observed rate less the rate that the probabilities predict. The bounds
are tightened by it (or loosened) and the problem is solved again, a few times, until the observed
rates satisfy the rules as they were stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import ObservedRows, observe
from bylaw.formulation.dual import Block, Dual, limit_blas_threads, make_blocks
from bylaw.formulation.linear_form import LinearForm, compile_problem, compute_scores
from bylaw.formulation.solution import Solution, Status
from bylaw.language.expressions import Rate
from bylaw.language.problem import Problem

Resolve = Callable[[Dual, Floats], Solution]  # a dual with other bounds, and where to start

FEW_ROWS = 20  # fewer tell nothing about a rate
_CLOSE = 5e-4  # what observed rates may be off
_EXACT = 1e-6  # what is not missed at all
_PUSHES = (1.0, 2.0, 4.0, 8.0)  # times what is close
_PRICED = 1e-6  # multipliers below this share of the loss's unit are none
_MOST_STEPS = 16
_DAMPING = 0.8
_ASTRAY = 2.0  # times as bad as the best
_MOST_STARTS = 4
_MOST_HALVINGS = 20
_BISECTIONS = 5


@dataclass(frozen=True)
class CompiledOutcomes:
    """The fitted rows as they turned out, in the same blocks and the same order."""

    form: LinearForm  # of the plug-in rows, which the duals have
    couplings: sparse.csr_array  # (M, F * A), in the plug-in form's units
    blocks: Sequence[Block]
    rules: NDArray[np.bool_]  # (M,): those of which everything was seen, on enough rows
    rates: Sequence[Rate]  # M rates that must be <= 0
    evidence: ObservedRows

    def excess(self, dual: Dual, multipliers: Floats) -> Floats:
        """How far each rule, as stated, is from holding on what was seen, (M,)."""
        weights = dual.beta * self.form.score_matrix(multipliers)
        moments = np.zeros(self.form.base.shape)
        with limit_blas_threads():
            for block, seen in zip(dual.blocks, self.blocks, strict=True):
                probabilities = compute_scores(weights, block.features)
                dual.form.action_space.to_probabilities(probabilities)
                moments += seen.features @ (probabilities * block.row_weights).T
        return self.couplings @ (moments.ravel() / dual.mass) - self.form.bounds


def compile_outcomes(
    problem: Problem, form: LinearForm, evidence: Evidence, labels: Any, groups: Any, seen_weights: Any = None
) -> CompiledOutcomes:
    """What was seen of these rows; rates are prediction-powered where some rows lack labels or groups."""
    seen = observe(evidence, labels, groups, seen_weights)
    outcome = compile_problem(problem, seen)
    unseen = seen.unseen
    rates = [found.rule.excess for found in outcome.rules]
    counts = {
        event: share * len(seen) * seen.seen_share(event) for event, share in outcome.frequencies.items()
    }
    fewest = np.array(
        [min((counts[a.conditions] for a, _ in r.terms if a.conditions), default=math.inf) for r in rates]
    )
    blind = [bool(unseen.intersection(dict(feature.event))) for feature in form.feature_map.features]
    couplings = outcome.couplings * (outcome.scales / form.scales)[:, None]
    return CompiledOutcomes(
        form=form,
        couplings=sparse.csr_array(couplings),
        blocks=make_blocks(outcome, seen),
        rules=(abs(form.couplings) @ np.repeat(blind, form.base.shape[1]) == 0) & (fewest >= FEW_ROWS),
        rates=rates,
        evidence=seen,
    )


@dataclass(frozen=True)
class CorrectedSolution:
    """A solution for shifted bounds, and what the observed rates make of it."""

    dual: Dual
    solution: Solution
    shift: Floats  # (M,): how much tighter the bounds are than stated
    excess: Floats  # (M,): observed, of the stated rules
    error: Floats  # (M,): observed less predicted

    def measure(self, margins: Floats) -> tuple[float, float]:
        """How much the worst rule is missed, if noticeably; then how far the worst of those that are
        missed or have a price is from holding just so."""
        excess = self.excess + margins
        priced = self.solution.multipliers > _PRICED * self.dual.loss_unit
        missed = float(excess.max())
        return max(missed, _CLOSE), max(missed, float(-excess[priced].min(initial=0.0)))


def start_correction(
    dual: Dual, first: Solution, seen: CompiledOutcomes, resolve: Resolve
) -> CorrectedSolution | None:
    """The plug-in answer. Where the rules conflict in the model's opinion, one for bounds shifted by its
    error, if such can be found: where it tried hardest to satisfy them, or where it knew no rules."""
    none = np.zeros(dual.n_rules)
    if first.status is not Status.INFEASIBLE:
        return _evaluate(dual, first, seen, none)
    for solution in (first, replace(first, multipliers=none)):
        for _ in range(_MOST_STARTS):
            shift = _evaluate(dual, solution, seen, none).error
            trial = _shift_bounds(dual, shift)
            solution = resolve(trial, none)
            if solution.status is not Status.INFEASIBLE:
                return _evaluate(trial, solution, seen, shift)
    return None


def correct_bounds(
    dual: Dual, begin: CorrectedSolution, seen: CompiledOutcomes, margins: Floats, resolve: Resolve
) -> CorrectedSolution:
    """Shift the bounds until the observed rates satisfy the stated rules, with `margins` (M,) to spare, and
    no rule with a price is held further than that.

    Each step goes towards the error that was measured last. Steps that lead to nothing better
    become shorter; those that lead astray, or to rules that conflict, are taken back.
    """
    here = best = begin
    gain = 1.0
    for _ in range(_MOST_STEPS):
        if max(best.measure(margins)) <= _CLOSE:
            break
        shift = here.shift + gain * (here.error + margins - here.shift)
        trial = _shift_bounds(dual, shift)
        answer = resolve(trial, here.solution.multipliers)
        if answer.status is Status.INFEASIBLE:
            here, gain, margins = best, gain / 2, margins / 2
            continue
        here = _evaluate(trial, answer, seen, shift)
        if here.measure(margins) < best.measure(margins):
            best = here
        elif here.measure(margins) < tuple(_ASTRAY * m for m in best.measure(margins)):
            gain *= _DAMPING
        else:
            here, gain = best, gain / 2
    return best


def enforce_rules(
    dual: Dual, near: CorrectedSolution, seen: CompiledOutcomes, margins: Floats, resolve: Resolve
) -> CorrectedSolution:
    """From close to on the right side: what is still missed by a little is aimed at from further and
    further inside."""
    for push in _PUSHES:
        over = near.excess + margins
        if over.max(initial=0.0) <= _EXACT:
            break
        aim = margins + np.where(over > 0, over + push * _CLOSE, 0.0)
        inside = correct_bounds(dual, near, seen, aim, resolve)
        near = min(near, inside, key=lambda one: float((one.excess + margins).max()))
    return near


def _shift_bounds(dual: Dual, shift: Floats) -> Dual:
    return replace(dual, form=replace(dual.form, bounds=dual.form.bounds - shift))


def _evaluate(dual: Dual, solution: Solution, seen: CompiledOutcomes, shift: Floats) -> CorrectedSolution:
    plug = -dual.value_and_gradient(solution.multipliers)[1] - shift
    excess = np.where(seen.rules, seen.excess(dual, solution.multipliers), plug)
    return CorrectedSolution(dual, solution, shift, excess, excess - plug)


def find_affordable_margins(begin: CorrectedSolution, margins: Floats, resolve: Resolve) -> Floats:
    """The margins, or half of the largest part of them that leaves a policy, if that is less."""
    return find_affordable_share(begin, margins, resolve, most=2.0) / 2 * margins


def find_affordable_share(begin: CorrectedSolution, margins: Floats, resolve: Resolve, most: float) -> float:
    """The largest part of these margins, up to `most`, that leaves a policy."""

    def leaves_a_policy(share: float) -> bool:
        answer = resolve(_shift_bounds(begin.dual, share * margins), begin.solution.multipliers)
        return answer.status is not Status.INFEASIBLE

    if leaves_a_policy(most):
        return most
    high = most
    for _ in range(_MOST_HALVINGS):
        if leaves_a_policy(high / 4):
            break
        high /= 4
    else:
        return 0.0
    low = high / 4
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if leaves_a_policy(middle) else (low, middle)
    return low
