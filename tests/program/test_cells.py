"""Rows sorted by cell: the same sums as over dense features."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.program import (
    BLOCK_ROWS,
    Block,
    Cells,
    Dual,
    _blocks as blocks_module,
    _dual as passes_module,
    attach_observed,
    compile_observed,
    compile_problem,
    join_blocks,
    make_blocks,
    sum_blocks,
)
from bylaw.rows import observe
from bylaw.solvers._screening import Metric, ScreenPass
from helpers.reference import rounding

N, K = 2000, 3


def draw_rows():
    """Return probabilities, two columns of groups, probabilities of a third group, and labels."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(K), N)
    sex, race = rng.choice(["f", "m"], N, p=[0.2, 0.8]), rng.integers(0, 3, N)
    age = rng.dirichlet(np.ones(2), N)
    return P, sex, race, age, (rng.random(N)[:, None] > P.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)


P, SEX, RACE, AGE, LABELS = draw_rows()
PROBLEMS = {
    "one": Problem(error(), [equalized_odds("sex", tol=0.05)]),
    "two": Problem(error(), [demographic_parity("sex", tol=0.02), equalized_odds("race", tol=0.1)]),
    "together": Problem(
        error() + 0.1 * rejected(), [demographic_parity(("sex", "race"), tol=0.05), rejected() <= 0.2]
    ),
    "hidden": Problem(error(), [demographic_parity("sex", tol=0.02), demographic_parity("age", tol=0.05)]),
    "one value": Problem(error(), [selected(1).given(race=2) >= 0.3, disagreement("old") <= 0.4]),
    "sets": Problem(miscoverage(), [size().given(sex="f") <= 1.2, size() <= 1.5]),
}


def make_evidence(order=slice(None), weights=None):
    return Evidence(
        P[order],
        groups={"sex": SEX[order], "race": RACE[order], "age": dict(zip("yo", AGE[order].T, strict=True))},
        references={"old": RACE[order]},
        weights=None if weights is None else weights[order],
    )


def make_duals(name, weights=None, beta=30.0):
    """Sorted by cell, and the same rows with dense features."""
    evidence = make_evidence(weights=weights)
    form = compile_problem(PROBLEMS[name], evidence)
    dual = Dual(form, make_blocks(form, evidence), beta)
    return dual, Dual(form, [Block(block.features, block.weights) for block in dual.blocks], beta)


def bound_terms(dual):
    """Return how large the terms of a row in the Hessian can be; their differences may be much smaller."""
    return dual.beta * np.square(dual.form.couplings).sum(axis=1).max()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_sums_are_those_of_dense_features(name, weighted, monkeypatch):
    """Up to rounding, if also rows that are nearly decided count for the curvature."""
    rng = np.random.default_rng(1)
    dual, dense = make_duals(name, rng.exponential(size=N) if weighted else None)
    assert dual.blocks[0].layout is not None
    assert len(dual.blocks[0].columns) < len(dense.blocks[0].columns)
    multipliers = rng.exponential(0.3, dual.n_rules)
    for ours, theirs in zip(
        dual.value_and_gradient(multipliers), dense.value_and_gradient(multipliers), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    nearly = dual.hessian(multipliers)
    monkeypatch.setattr(passes_module, "_DECIDED", 0.0)
    hessian, wanted = dual.second_order(dual.tally(multipliers, curvature=True)), dense.hessian(multipliers)
    largest = bound_terms(dual)
    np.testing.assert_allclose(dual.hessian(multipliers), wanted, rtol=0, atol=rounding(N, largest))
    np.testing.assert_allclose(
        hessian @ multipliers, wanted @ multipliers, rtol=0, atol=rounding(N, largest * multipliers.sum())
    )
    assert hessian.trace == pytest.approx(np.trace(wanted))
    # Nearly decided rows have a curvature of at most 1e-9 times beta times their squared features.
    np.testing.assert_allclose(nearly, wanted, rtol=0, atol=2e-9 * largest)
    np.testing.assert_allclose(*(one.best_responses([multipliers])[0] for one in (dual, dense)), atol=1e-12)
    for constant in ("mass", "loss_unit", "highest_cost", "mean_norm", "sigma2", "n_rows"):
        assert getattr(dual, constant) == pytest.approx(getattr(dense, constant), abs=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_features_are_those_of_the_recipe(name):
    evidence = make_evidence()
    form = compile_problem(PROBLEMS[name], evidence)
    (block,) = make_blocks(form, evidence)
    wanted = form.feature_map.columns(evidence, slice(None), np.empty((len(form.feature_map.features), N)))
    ours, theirs = (rows[:, np.lexsort(rows)] for rows in (block.features, wanted))
    np.testing.assert_array_equal(ours, theirs)


def test_some_rows_keep_their_cells():
    rng = np.random.default_rng(1)
    dual, _ = make_duals("two", weights=rng.exponential(size=N))
    (block,) = dual.blocks
    for part in (slice(3, None, 7), np.flatnonzero(rng.random(N) < 0.3), slice(0, 0)):
        some = block.rows(part)
        np.testing.assert_array_equal(some.features, block.features[:, part])
        np.testing.assert_array_equal(some.weights, block.weights[part])
    halves = [block.rows(slice(i, None, 2)) for i in range(2)]
    (joined,) = join_blocks(halves)
    multipliers = rng.exponential(0.3, dual.n_rules)
    whole, again = (dual.with_rows([rows]).hessian(multipliers) for rows in (block, joined))
    np.testing.assert_allclose(whole, again, rtol=0, atol=rounding(N, bound_terms(dual)))


def test_blocks_have_their_share_of_each_cell(monkeypatch):
    monkeypatch.setattr(blocks_module, "_SORTED_VALUES", 0)
    n = 3 * BLOCK_ROWS
    rng = np.random.default_rng(1)
    groups = np.sort(rng.choice(5, n, p=[0.01, 0.09, 0.2, 0.3, 0.4]))
    evidence = Evidence(rng.dirichlet(np.ones(2), n), groups={"group": groups})
    form = compile_problem(Problem(error(), [demographic_parity("group", tol=0.1)]), evidence)
    blocks = make_blocks(form, evidence)
    counts = np.array([np.diff(block.starts) for block in blocks])
    assert len(blocks) == 3
    np.testing.assert_array_equal(counts.sum(axis=0), np.bincount(groups))
    assert np.ptp(counts, axis=0).max() <= 1


def test_small_cells_are_not_cut_finer():
    evidence = make_evidence(slice(0, 200))
    form = compile_problem(PROBLEMS["two"], evidence)
    assert Cells.find(form.feature_map, evidence) == Cells(("sex",), (2,))
    few = make_evidence(slice(0, 100))
    assert make_blocks(compile_problem(PROBLEMS["one"], few), few)[0].layout is None


@pytest.mark.parametrize("seen", ["all", "some"])
@pytest.mark.parametrize("name", ["one", "two", "hidden"])
def test_observed_sums_are_those_of_dense_features(name, seen):
    rng = np.random.default_rng(1)
    evidence, labels = make_evidence(), LABELS.astype(float)
    if seen == "some":
        labels[rng.random(N) < 0.5] = np.nan
    problem = PROBLEMS[name]
    form, rows = compile_problem(problem, evidence), observe(evidence.with_observed(labels=labels))
    rates = compile_observed(problem, form, rows)
    dual = attach_observed(Dual(form, make_blocks(form, evidence), 20.0), rates, rows)
    multipliers = rng.exponential(0.3, dual.n_rules)
    features = form.feature_map.columns(evidence, slice(None), np.empty((len(form.base), N)))
    scores = 20.0 * form.score_matrix(multipliers).T @ features
    form.action_space.to_probabilities(scores)
    outcome = rates.form.feature_map
    observed = outcome.columns(rows, slice(None), np.empty((len(outcome.features), N)))
    error = rounding(N, np.abs(observed).sum(axis=1).max())
    np.testing.assert_allclose(dual.tally(multipliers).observed, observed @ scores.T, rtol=0, atol=error)
    np.testing.assert_allclose(dual.blocks[0].observed.sum(axis=1), observed.sum(axis=1), rtol=0, atol=error)


def test_a_screen_has_the_gradient_of_all_rows():
    dual, _ = make_duals("two", beta=3000.0)
    here = np.full(dual.n_rules, 0.02)
    there = here * 1.01
    metric, (start, end) = Metric.of(dual), (dual.form.score_matrix(point) for point in (here, there))
    plan = ScreenPass(start, metric, 2 * metric.length(end - start), 20 / dual.beta)
    (screen,) = dual.total(plan)
    assert plan.covers(end)
    assert 0 < sum(block.mass for block in screen.near) < dual.mass
    (near,) = sum_blocks(screen.near, [dual.make_tally_pass(there)])
    gradient = dual.first_order(near + screen.far_tally(end), there)[1]
    np.testing.assert_allclose(gradient, dual.value_and_gradient(there)[1], atol=1e-6)


@pytest.mark.parametrize("name", ["one", "two", "together", "hidden"])
def test_the_order_of_rows_does_not_matter(name):
    policy = solve(PROBLEMS[name], make_evidence(), beta=200.0, tol=1e-9)
    shuffled = solve(
        PROBLEMS[name], make_evidence(np.random.default_rng(1).permutation(N)), beta=200.0, tol=1e-9
    )
    np.testing.assert_allclose(
        policy.probabilities(make_evidence()), shuffled.probabilities(make_evidence()), atol=1e-6
    )


def solve_many_classes(order, block_rows, monkeypatch):
    """Solve with weights; single groups' rows may be within one block."""
    rng = np.random.default_rng(5)
    chances = rng.dirichlet(np.full(40, 0.3), size=2500)
    groups, weights = rng.integers(3, size=2500), rng.uniform(0.5, 2.0, size=2500)
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(blocks_module, "_SORTED_VALUES", 0)
    rows = Evidence(chances[order], groups={"g": groups[order]}, weights=weights[order])
    policy = solve(Problem(error(), [demographic_parity("g", tol=0.01)]), rows, beta=500.0, tol=1e-10)
    return policy.solution.value, policy.probabilities(Evidence(chances, groups={"g": groups}))


@pytest.mark.parametrize("block_rows", [8192, 600])
def test_answers_depend_on_neither_order_nor_blocks(block_rows, monkeypatch):
    value, chances = solve_many_classes(np.arange(2500), 8192, monkeypatch)
    order = np.random.default_rng(6).permutation(2500)
    other_value, other_chances = solve_many_classes(order, block_rows, monkeypatch)
    assert other_value == pytest.approx(value, abs=1e-9)
    np.testing.assert_array_equal(chances.argmax(axis=1), other_chances.argmax(axis=1))
    np.testing.assert_allclose(chances, other_chances, atol=1e-6)
