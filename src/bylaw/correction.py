"""Correction for miscalibration: rules held on what was observed, not on what the model believes.

A rule's plug-in error is its observed rate less the rate that the probabilities predict. The bounds
are tightened by it (or loosened) and the problem is solved again, a few times, until the observed
rates obey the rules as they were stated.
"""

from __future__ import annotations

import math
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
_MOST_STEPS = 12
_FULL_STEPS = 3  # then damped: with few rows, observed rates jump
_DAMPING = 0.6
_MOST_HALVINGS = 6


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
    dual: Dual  # with the bounds that make the observed rates obey
    solution: Solution
    excess: Floats  # (M,): what the observed rates still miss, in the rules' own units


def correct(dual: Dual, first: Solution, observed: Observed, margins: Floats, resolve: Resolve) -> Corrected:
    """Shift the bounds until the observed rates obey the stated rules, with `margins` (M,) to spare, and
    no rule with a price is held further than that.

    Of all attempts the best is kept. Where the shifted rules conflict, the step towards them is
    halved, and so are the margins.
    """
    stated, shift, solution = dual.form.bounds, np.zeros(dual.n_rules), first
    best, least = None, (math.inf, math.inf)
    for step in range(_MOST_STEPS + 1):
        plug = -dual.value_and_gradient(solution.multipliers)[1] - shift
        seen = np.where(observed.rules, observed.excess(dual, solution.multipliers), plug)
        measure = _measure(seen + margins, solution.multipliers > _PRICED * dual.loss_unit)
        if measure < least:
            best, least = Corrected(dual, solution, seen * dual.form.scales), measure
        if step == _MOST_STEPS or max(measure) <= _CLOSE:
            break
        gain = 1.0 if step < _FULL_STEPS else _DAMPING
        move = gain * (seen - plug + margins - shift)
        for _ in range(_MOST_HALVINGS):
            trial = replace(dual, form=replace(dual.form, bounds=stated - shift - move))
            answer = resolve(trial, solution.multipliers)
            if answer.status is not Status.INFEASIBLE:
                break
            move, margins = move / 2, margins / 2
        else:
            break
        dual, solution, shift = trial, answer, shift + move
    assert best is not None
    return best


def _measure(excess: Floats, priced: NDArray[np.bool_]) -> tuple[float, float]:
    """How much the worst rule is missed, if noticeably; then how far the worst is from holding just so."""
    missed = float(excess.max())
    return max(missed, _CLOSE), max(missed, float(-excess[priced].min(initial=0.0)))


def tightened(stated: LinearForm, corrected: Dual) -> Floats:
    """By how much each bound was tightened, in the rules' own units, (M,)."""
    return (stated.bounds - corrected.form.bounds) * stated.scales
