"""Rows that are far from any boundary are set aside: where a screen covers, nothing is lost by it."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, demographic_parity, error, miscoverage, rejected, size
from bylaw.formulation.blocks import make_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import compile_problem
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.screening import Screen
from helpers.generated_rows import Rows

ROWS = Rows(n=6000, K=3, S=2)
PROBLEMS = {
    "labels": Problem(error(), [demographic_parity("hidden", tol=0.03), rejected() <= 0.1]),
    "sets": Problem(size(), [miscoverage() <= 0.2, demographic_parity("known", tol=0.05)]),
}


@pytest.fixture(params=PROBLEMS)
def screened(request):
    form = compile_problem(PROBLEMS[request.param], ROWS.evidence())
    dual = Dual(form, make_blocks(form, ROWS.evidence()), 1.0)
    dual = Dual(form, dual.blocks, 2000.0 / dual.loss_unit)
    here = FullBatch()(dual, tol=1e-7).multipliers
    step = 1e-3 * np.abs(here) + 1e-4
    matrix = form.score_matrix
    return dual, here, step, Screen.ahead(dual, matrix(here), matrix(here + step) - matrix(here), 2.0)


def test_gradients_on_the_near_rows_are_those_of_all_rows(screened):
    dual, here, step, screen = screened
    near = screen.reduced(dual)
    assert 0 < screen.near_mass < dual.mass
    for share in (0.0, 1.0, 2.0):
        point = here + share * step
        assert screen.covers(dual.form.score_matrix(point))
        whole, part = (d.value_and_gradient(point)[1] for d in (dual, near))
        np.testing.assert_allclose(part * screen.near_mass / dual.mass, whole, atol=1e-6)


def test_a_point_far_from_the_path_is_not_covered(screened):
    dual, here, _, screen = screened
    for far in (np.zeros(dual.n_rules), 5 * here + 1.0):
        assert not screen.covers(dual.form.score_matrix(far))
    gradient = screen.reduced(dual).value_and_gradient(np.zeros(dual.n_rules))[1]
    whole = dual.value_and_gradient(np.zeros(dual.n_rules))[1]
    assert np.abs(gradient * screen.near_mass / dual.mass - whole).max() > 1e-3  # and it would matter


@pytest.mark.parametrize("screened", ["labels"], indirect=True)
def test_weights_of_features_that_no_rule_touches_must_not_move(screened):
    dual, here, _, screen = screened
    weights = dual.form.score_matrix(here)
    assert screen.covers(weights)
    untouched = np.setdiff1d(np.arange(len(weights)), dual.support[0].features)
    assert len(untouched)
    for feature in untouched:
        moved = weights.copy()
        moved[feature, 0] += 1.0
        assert not screen.covers(moved)
