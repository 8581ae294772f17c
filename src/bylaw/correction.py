"""Correction for miscalibration: rules held on what was observed, not on what the model believes.

A rule's plug-in error is its observed rate less the rate that the probabilities predict. The bounds
are tightened by it (or loosened) and the problem is solved again, a few times, until the observed
rates obey the rules as they were stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw.algebra import LABEL, Rate
from bylaw.decisions import Floats
from bylaw.dual import Block, Dual, blocks_of, one_blas_thread
from bylaw.evidence import Evidence
from bylaw.groups import GroupProbabilities
from bylaw.linear_form import LinearForm, compile_problem
from bylaw.problem import Problem
from bylaw.solution import Solution, Status

Resolve = Callable[[Dual, Floats], Solution]  # a dual with other bounds, and where to start

_CLOSE = 5e-4  # what observed rates may miss
_PRICED = 1e-6  # multipliers below this share of the loss's unit are none
_MOST_STEPS = 16
_DAMPING = 0.8
_ASTRAY = 2.0  # times as bad as the best


@dataclass(frozen=True)
class Observed:
    """The fitted rows as they turned out, in the same blocks and the same order."""

    form: LinearForm  # of the plug-in rows, which the duals have
    couplings: sparse.csr_array  # (M, F * A), in the plug-in form's units
    blocks: Sequence[Block]
    rules: NDArray[np.bool_]  # (M,): those of which everything was seen
    rates: Sequence[Rate]  # M rates that must be <= 0
    evidence: Evidence

    def excess(self, dual: Dual, multipliers: Floats) -> Floats:
        """How far each rule, as stated, is from holding on what was seen, (M,)."""
        weights = (dual.beta * self.form.weights(multipliers)).T
        moments = np.zeros(self.form.base.shape)
        with one_blas_thread():
            for block, seen in zip(dual.blocks, self.blocks, strict=True):
                law = weights @ block.features
                dual.form.decisions.soften(law)
                moments += seen.features @ (law * block.row_weights).T
        return self.couplings @ (moments.ravel() / dual.mass) - self.form.bounds


def observe(problem: Problem, form: LinearForm, evidence: Evidence, labels: Any, groups: Any) -> Observed:
    """What was seen of these rows."""
    seen = evidence.observed(labels, groups)
    observed = compile_problem(problem, seen)
    unseen = {name for name, group in seen.groups.items() if isinstance(group, GroupProbabilities)}
    unseen |= {LABEL} if labels is None else set()
    blind = [bool(unseen.intersection(dict(feature.event))) for feature in form.recipe.features]
    couplings = observed.couplings * (observed.scales / form.scales)[:, None]
    return Observed(
        form=form,
        couplings=sparse.csr_array(couplings),
        blocks=blocks_of(observed, seen),
        rules=abs(form.couplings) @ np.repeat(blind, form.base.shape[1]) == 0,
        rates=[rule.excess for rule, _ in problem.expand(seen.classes, seen.group_values)],
        evidence=seen,
    )


@dataclass(frozen=True)
class Corrected:
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


def correct(dual: Dual, first: Solution, observed: Observed, margins: Floats, resolve: Resolve) -> Corrected:
    """Shift the bounds until the observed rates obey the stated rules, with `margins` (M,) to spare, and
    no rule with a price is held further than that.

    Each step goes towards the error that was measured last. Steps that lead to nothing better
    become shorter; those that lead astray, or to rules that conflict, are taken back.
    """
    here = best = _attempt(dual, first, observed, np.zeros(dual.n_rules))
    gain = 1.0
    for _ in range(_MOST_STEPS):
        if max(best.measure(margins)) <= _CLOSE:
            break
        shift = here.shift + gain * (here.error + margins - here.shift)
        trial = replace(dual, form=replace(dual.form, bounds=dual.form.bounds - shift))
        answer = resolve(trial, here.solution.multipliers)
        if answer.status is Status.INFEASIBLE:
            here, gain, margins = best, gain / 2, margins / 2
            continue
        here = _attempt(trial, answer, observed, shift)
        if here.measure(margins) < best.measure(margins):
            best = here
        elif here.measure(margins) < tuple(_ASTRAY * m for m in best.measure(margins)):
            gain *= _DAMPING
        else:
            here, gain = best, gain / 2
    return best


def _attempt(dual: Dual, solution: Solution, observed: Observed, shift: Floats) -> Corrected:
    plug = -dual.value_and_gradient(solution.multipliers)[1] - shift
    excess = np.where(observed.rules, observed.excess(dual, solution.multipliers), plug)
    return Corrected(dual, solution, shift, excess, excess - plug)
