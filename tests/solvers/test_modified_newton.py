"""Small moves from one optimum to the next with the curvature of the last, beside cold solves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bylaw import Problem, Status, demographic_parity, error, rejected
from bylaw.formulation.blocks import make_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import compile_problem
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.modified_newton import ModifiedNewton
from helpers.generated_rows import Rows

ROWS = Rows(n=4000, K=3, S=2)


@pytest.fixture(scope="module")
def dual():
    problem = Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1])
    form = compile_problem(problem, ROWS.evidence())
    return Dual(form, make_blocks(form, ROWS.evidence()), 200.0)


def loosen(dual, amount):
    return replace(dual, form=replace(dual.form, bounds=dual.form.bounds + amount))


def settle(steps, dual, start, tol=1e-7):
    return steps.refine(dual, start, tol=tol, alpha=dual.loss_unit)


def test_a_near_optimum_is_reached_and_is_that_of_a_cold_solve(dual):
    first, moved = FullBatch()(dual, tol=1e-9), loosen(dual, 1e-3)
    found = settle(ModifiedNewton(), moved, first.multipliers)
    assert found is not None
    solution, total = found
    cold = FullBatch()(moved, tol=1e-9)
    assert solution.status is Status.CONVERGED
    assert solution.gradient_mapping <= 1e-7
    assert solution.value == pytest.approx(cold.value, abs=1e-8)
    assert (solution.multipliers >= 0).all()
    np.testing.assert_allclose(total.moments, moved.tally(solution.multipliers).moments)
    assert 0 < solution.steps <= 8


def test_at_the_optimum_nothing_is_done(dual):
    optimum = FullBatch()(dual, tol=1e-9).multipliers
    solution, _ = settle(ModifiedNewton(), dual, optimum)
    assert solution.steps == 0
    assert (solution.multipliers == optimum).all()


def test_curvature_is_kept_while_it_serves(dual, monkeypatch):
    asked = []
    tally = Dual.tally

    def watched(self, multipliers, curvature=False):
        asked.append(curvature)
        return tally(self, multipliers, curvature)

    here, steps = FullBatch()(dual, tol=1e-9).multipliers, ModifiedNewton()
    monkeypatch.setattr(Dual, "tally", watched)
    for amount in (1e-4, 2e-4, 3e-4):
        solution, _ = settle(steps, loosen(dual, amount), here)
        here = solution.multipliers
    assert asked.count(True) == 1
    assert asked.count(False) > 3


def test_a_start_that_is_too_far_gives_none_and_is_forgotten(dual):
    steps = ModifiedNewton()
    assert settle(steps, dual, np.full(dual.n_rules, 50.0)) is None
    assert steps._curvature is None
    near = FullBatch()(dual, tol=1e-9).multipliers
    assert settle(steps, loosen(dual, 1e-4), near) is not None
