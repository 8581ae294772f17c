"""Newton steps on rows that are seen once: as close as the full batch on the same rows."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    demographic_parity,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    size,
    solve,
)
from bylaw.program import Block, Dual, compile_problem, make_blocks
from bylaw.solvers import (
    TILE_ROWS,
    FullBatch,
    SampledRows,
    StochasticNewton,
    _stochastic_newton as stochastic_newton,
)
from helpers.generated_rows import Rows

ROWS = Rows(n=20_000, K=3, S=2)
LETTERS = np.random.default_rng(3).dirichlet(np.full(26, 0.08), size=20_000)
PROBLEMS = {
    "parity": (Problem(error(), [demographic_parity("known", tol=0.02)]), ROWS.evidence()),
    "rejection": (
        Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1]),
        ROWS.evidence(),
    ),
    "odds": (Problem(error(), [equalized_odds("known", tol=0.05)]), ROWS.evidence()),
    "budget": (Problem(rejected(), [error() <= 0.15]), ROWS.evidence()),
    "dollars": (Problem(1000 * error(), [rejected() <= 0.1]), ROWS.evidence()),
    "size": (Problem(miscoverage(), [size() <= 1.5]), Evidence(LETTERS)),
    "miscoverage": (Problem(size(), [miscoverage() <= 0.1]), Evidence(LETTERS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROBLEMS)
def test_as_close_as_the_full_batch(kind):
    """And without a warning, which would be an error here."""
    problem, evidence = PROBLEMS[kind]
    policy = solve(problem, evidence, solver="stochastic", rng=0)
    exact = solve(problem, evidence)
    assert policy.beta == exact.beta
    rules = problem.expand(evidence.classes, evidence.group_values)
    assert max(policy.expected(found.rule.excess, evidence) for found in rules) < 0.003
    costs = [found.expected(problem.minimize, evidence) for found in (policy, exact)]
    assert costs[0] == pytest.approx(costs[1], abs=0.003 * exact.guarantee.alpha)


def test_of_two_sides_of_a_rule_at_most_one_has_a_price():
    """Where noise and the floor at zero hold both up, the gap is driven to zero instead of its bound."""
    policy = solve(*PROBLEMS["parity"], solver="stochastic")
    prices = np.array(list(policy.multipliers.values())).reshape(-1, 2)
    assert (prices.min(axis=1) == 0).all()
    assert prices.max() > 0


def walk(n, weights=None, problem=PROBLEMS["rejection"][0], beta=200.0):
    evidence = ROWS.evidence().rows(slice(0, n))
    form = compile_problem(problem, evidence)
    dual = Dual(form, make_blocks(form, evidence), beta)
    features = np.concatenate([block.features for block in dual.blocks], axis=1).T
    weights = np.ones(n) if weights is None else weights
    state = StochasticNewton().begin(1.0, 1.0, n, np.zeros(dual.n_rules))
    state.advance(SampledRows.from_dual(dual, features, weights))
    return dual, features, state


def test_the_model_is_the_sum_of_the_expansions():
    """By finite differences: where the second tile comes, the sum has the exact gradient of both tiles but
    for the first tile's remainder, of second order in a short step."""
    dual, features, first = walk(TILE_ROWS)
    couplings = dual.rules.couplings
    before = StochasticNewton().begin(1.0, 1.0, 0, first.point)
    before.__dict__.update(first.__dict__)
    before.resolution = 1e9  # curvature at beta itself, to be exact
    here = Block(features.T.copy(), np.ones(TILE_ROWS))
    before.slope, before.curvature = np.zeros_like(before.slope), np.zeros_like(before.curvature)
    before.mass, point = 1e-300, before.point.copy()
    before._step(dual, here)
    alone = Dual(dual.form, [here], dual.beta)
    for step in (0.0, 1e-5):
        moved = point + step
        slope = before.slope - before.curvature @ (couplings.T @ moved)
        model = dual.form.bounds - couplings @ slope / TILE_ROWS
        _, gradient = alone.value_and_gradient(moved)
        np.testing.assert_allclose(model, gradient, atol=1e-12 + 0.01 * step)


def test_the_first_tile_alone_is_solved_like_the_full_batch():
    dual, _, state = walk(TILE_ROWS)
    exact = FullBatch()(dual, tol=1e-6).multipliers
    assert -dual.value_and_gradient(state.answer)[1].min() < 0.01
    np.testing.assert_allclose(state.answer, exact, atol=0.05)


def test_tiles_of_one_call_or_of_many():
    dual, features, once = walk(3 * TILE_ROWS)
    parts = StochasticNewton().begin(1.0, 1.0, 0, np.zeros(dual.n_rules))
    for part in np.split(features, 3):
        parts.advance(SampledRows.from_dual(dual, part, np.ones(TILE_ROWS)))
    assert (parts.answer == once.answer).all()
    assert parts.steps == once.steps == 3 * TILE_ROWS


def test_curvature_is_measured_over_the_sampling_error_of_all_rows_so_far(monkeypatch):
    """Multipliers may still go as far as their sampling error, which shrinks with the root of the rows."""
    betas, measure = [], stochastic_newton.TallyPass

    def watch(matrix, beta, space, places=None):
        betas.extend([] if places is None else [beta])
        return measure(matrix, beta, space, places)

    monkeypatch.setattr(stochastic_newton, "TallyPass", watch)
    walk(9 * TILE_ROWS, beta=1e6)
    np.testing.assert_allclose(np.array(betas[1:]) / betas[0], np.sqrt(np.arange(2, 10)), rtol=1e-12)


def test_rows_of_no_weight_leave_no_trace():
    weights = np.repeat([0.0, 1.0, 0.0, 1.0], TILE_ROWS)
    dual, features, state = walk(4 * TILE_ROWS, weights)
    other = StochasticNewton().begin(1.0, 1.0, 0, np.zeros(dual.n_rules))
    other.advance(SampledRows.from_dual(dual, features[weights > 0], np.ones(2 * TILE_ROWS)))
    np.testing.assert_allclose(state.answer, other.answer, atol=2e-3)


@pytest.mark.slow
def test_weights_count():
    w = np.where(ROWS.P.max(axis=1) > 0.6, 5.0, 0.2)
    problem, evidence = Problem(error(), [rejected() <= 0.2]), Evidence(ROWS.P, weights=w)
    weighted = solve(problem, evidence, solver="stochastic")
    assert weighted.expected(rejected(), evidence) == pytest.approx(0.2, abs=0.003)
    assert abs(weighted.expected(rejected(), Evidence(ROWS.P)) - 0.2) > 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bylaw.errors.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_the_first_rows_of_a_small_group_do_not_throw_it_off_course(seed):
    """Two rows in a hundred, whose rates have a standard error of 0.04: with sharp curvature, by which a tile
    shows next to nothing of them, rules were missed by 0.1 to 0.9."""
    rng = np.random.default_rng(seed)
    group = rng.choice(4, size=10_000, p=[0.6, 0.28, 0.1, 0.02])
    x = rng.normal(size=(10_000, 4)) + group[:, None] * np.array([0.5, -0.3, 0, 0])
    scores = np.exp(x @ (1.2 * np.random.default_rng(12345).normal(size=(4, 3))))
    evidence = Evidence(scores / scores.sum(axis=1, keepdims=True), groups={"g": group})
    problem = Problem(error(), [demographic_parity("g", tol=0.0), rejected() <= 0.05])
    rules = problem.expand(evidence.classes, evidence.group_values)
    policies = [solve(problem, evidence, solver="stochastic", rng=draw) for draw in range(9)]
    worst = [max(policy.expected(found.rule.excess, evidence) for found in rules) for policy in policies]
    assert np.median(worst) < 0.1  # a quarter of all draws still go astray, and say so


def test_it_needs_no_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "bylaw.solvers._kernels", None)
    evidence = ROWS.evidence().rows(slice(0, 3000))
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence, solver="stochastic")
    assert policy.expected(rejected(), evidence) == pytest.approx(0.1, abs=0.01)
    assert not solve(Problem(error()), evidence, solver="stochastic").multipliers
