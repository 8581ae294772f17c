"""Rows that are far from any boundary are set aside: where a screen covers, nothing is lost by it."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, demographic_parity, error, miscoverage, rejected, size
from bylaw.program import Dual, compile_problem, make_blocks, sum_blocks
from bylaw.solvers import FullBatch
from bylaw.solvers._screening import Metric, ScreenPass
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
    metric, weights = Metric.of(dual), form.score_matrix(here)
    allowance = 3 * metric.length(form.score_matrix(here + step) - weights)
    plan = ScreenPass(weights, metric, allowance, 20 / dual.beta)
    return dual, here, step, plan, dual.total(plan)[0]


def find_gradient(dual, screen, point):
    """Compute the gradient from the near rows and the sums over the far ones."""
    (near,) = sum_blocks(screen.near, [dual.make_tally_pass(point)])
    return dual.first_order(near + screen.far_tally(dual.form.score_matrix(point)), point)[1]


def test_gradients_on_the_near_rows_are_those_of_all_rows(screened):
    dual, here, step, plan, screen = screened
    assert 0 < sum(block.mass for block in screen.near) < dual.mass
    for share in (0.0, 1.0, 2.0):
        point = here + share * step
        assert plan.covers(dual.form.score_matrix(point))
        whole = dual.value_and_gradient(point)[1]
        np.testing.assert_allclose(find_gradient(dual, screen, point), whole, atol=1e-6)


def test_a_point_far_from_the_path_is_not_covered(screened):
    dual, here, _, plan, screen = screened
    for far in (np.zeros(dual.n_rules), 5 * here + 1.0):
        assert not plan.covers(dual.form.score_matrix(far))
    gradient = find_gradient(dual, screen, np.zeros(dual.n_rules))
    whole = dual.value_and_gradient(np.zeros(dual.n_rules))[1]
    assert np.abs(gradient - whole).max() > 1e-3  # and it would matter


@pytest.mark.parametrize("screened", ["labels"], indirect=True)
def test_weights_of_features_that_no_rule_touches_must_not_move(screened):
    dual, here, _, plan, _ = screened
    weights = dual.form.score_matrix(here)
    assert plan.covers(weights)
    untouched = np.setdiff1d(np.arange(len(weights)), dual.rules.support.features)
    assert len(untouched)
    for feature in untouched:
        moved = weights.copy()
        moved[feature, 0] += 1.0
        assert not plan.covers(moved)
