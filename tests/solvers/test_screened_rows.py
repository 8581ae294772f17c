"""Near rows in memory and sums over far ones: the same tallies as from all rows."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, demographic_parity, equalized_odds, error, miscoverage, rejected, size
from bylaw.program import Dual, attach_observed, compile_observed, compile_problem, make_blocks, sum_blocks
from bylaw.rows import observe
from bylaw.solvers import FullBatch, screen_rows
from helpers.generated_rows import Rows

ROWS = Rows(n=4000, K=3, S=2, seed=1)
PROBLEMS = {
    "known": Problem(error(), [demographic_parity("known", tol=0.02)]),
    "hidden": Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1]),
    "odds": Problem(error(), [equalized_odds("known", tol=0.05)]),
    "sets": Problem(miscoverage(), [size() <= 1.5]),
}


class CountedRows:
    """Rows in memory that stand for rows elsewhere, and count how often all are looked at."""

    def __init__(self, dual):
        self.blocks, self.n_rows, self.mass, self.passes = dual.blocks, dual.n_rows, dual.mass, 0

    def total(self, *passes):
        self.passes += 1
        return sum_blocks(self.blocks, passes)


def make_duals(name, weights=None):
    evidence = ROWS.evidence(weights=weights)
    form = compile_problem(PROBLEMS[name], evidence)
    dual = Dual(form, make_blocks(form, evidence), 1.0)
    dual = dual.with_beta(2000.0 / dual.loss_unit)
    source = CountedRows(dual)
    return dual, screen_rows(dual.with_source(source)), source


def assert_alike(one, two):
    for name in ("mass", "potential", "moments", "curvature", "observed"):
        if getattr(one, name) is not None:
            expected = getattr(two, name)
            size = np.abs(expected).max()
            np.testing.assert_allclose(getattr(one, name), expected, rtol=1e-9, atol=1e-9 * size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_tallies_are_those_of_all_rows(name, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 4000) if weighted else None
    dual, screened, _ = make_duals(name, weights)
    optimum = FullBatch()(dual, tol=1e-5).multipliers
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.001, 0.02, 0.5, 0.001):
        point = np.maximum(optimum + scale * rng.normal(size=len(optimum)), 0.0)
        assert_alike(screened.tally(point, curvature=True), dual.tally(point, curvature=True))


def test_nearby_points_take_no_walk_and_distant_ones_do():
    dual, screened, source = make_duals("known")
    optimum = FullBatch()(dual, tol=1e-5).multipliers
    screened.tally(optimum)
    assert source.passes == 1
    near = screened.source.kept[1].near
    assert 0 < sum(block.n_rows for block in near) <= 0.3 * 4000
    screened.tally(optimum + 1e-4)
    assert source.passes == 1
    screened.tally(optimum + 5.0 * (np.arange(len(optimum)) == 0))
    assert source.passes == 2


def test_a_softer_policy_is_looked_at_on_all_rows():
    dual, screened, source = make_duals("known")
    optimum = FullBatch()(dual, tol=1e-5).multipliers
    screened.tally(optimum)
    soft = screened.with_beta(dual.beta / 100)
    assert_alike(soft.tally(optimum), dual.with_beta(dual.beta / 100).tally(optimum))
    assert source.passes == 2
    for beta in (dual.beta, 2 * dual.beta):
        assert_alike(screened.with_beta(beta).tally(optimum), dual.with_beta(beta).tally(optimum))


def test_observed_moments():
    evidence = ROWS.evidence()
    labels = np.random.default_rng(2).integers(3, size=4000)
    problem, seen = PROBLEMS["odds"], observe(evidence.with_observed(labels=labels))
    form = compile_problem(problem, evidence)
    dual = Dual(form, make_blocks(form, evidence), 1.0)
    dual = attach_observed(
        dual.with_beta(2000.0 / dual.loss_unit), compile_observed(problem, form, seen), seen
    )
    screened = screen_rows(dual.with_source(CountedRows(dual)))
    point = FullBatch()(dual, tol=1e-4).multipliers
    for multipliers in (point, 1.01 * point):
        assert_alike(screened.tally(multipliers, curvature=True), dual.tally(multipliers, curvature=True))
