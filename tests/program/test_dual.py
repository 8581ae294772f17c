"""The paper's lemmas, as properties of random problems at random multipliers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bylaw import (
    Evidence,
    Problem,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    omits,
    rejected,
    size,
    solve,
)
from bylaw.program import (
    BLOCK_ROWS,
    Block,
    Dual,
    _blocks as blocks_module,
    compile_problem,
    compute_scores,
    make_blocks,
)
from helpers import reference as ref
from helpers.generated_rows import Rows

MANY = 64  # classes: so many that products leave out the zeros among the weights


def labels(rows):
    rules = [demographic_parity("hidden", tol=0.05), disagreement("old") <= 0.3]
    arrays = [*ref.parity(rows.T, rows.K, 0.05, rows.K), (ref.churn(rows.old, rows.K), 0.3)]
    return Problem(error(), rules), ref.Reference(ref.error_loss(rows.P, rows.K), arrays)


def rejection(rows):
    rules = [equalized_odds("hidden", tol=0.1), rejected() <= 0.2]
    arrays = [*ref.odds(rows.joint, rows.P, 0.1, rows.K + 1), (ref.rejection(rows.P), 0.2)]
    loss = ref.error_loss(rows.P, rows.K + 1) + 0.1 * ref.rejection(rows.P)
    return Problem(error() + 0.1 * rejected(), rules), ref.Reference(loss, arrays)


def sets(rows):
    rules = [size() <= 1.2, omits("old") <= 0.4]
    arrays = [(np.ones_like(rows.P), 1.2), (-ref.one_hot(rows.old, rows.K), 0.4 - 1)]
    return Problem(miscoverage(), rules), ref.Reference(-rows.P, arrays, sets=True, loss_constant=1)


@st.composite
def situations(draw):
    """A dual, multipliers, and the same problem as plain arrays (in the dual's row order)."""
    classes = draw(st.sampled_from([2, 3, 4, MANY]))
    rows = Rows(n=40, K=classes, S=draw(st.integers(2, 3)), seed=draw(st.integers(0, 10**6)))
    kinds = [labels, sets] if classes == MANY else [labels, rejection, sets]  # odds are rules by the thousand
    problem, reference = draw(st.sampled_from(kinds))(rows)
    weights = np.random.default_rng(rows.seed).exponential(size=rows.n) if draw(st.booleans()) else None
    form = compile_problem(problem, rows.evidence())
    evidence = rows.evidence(weights=weights)
    beta = draw(st.sampled_from([0.5, 5.0, 50.0]))
    dual = Dual(form, make_blocks(form, evidence), beta)
    multipliers = np.random.default_rng(rows.seed + 1).exponential(draw(st.floats(0.01, 2)), dual.n_rules)
    multipliers[draw(st.integers(0, dual.n_rules)) :] = 0
    return dual, multipliers, reference, weights


def pick_some(n_rules):
    """Return at most nine rules, the first and the last among them."""
    return sorted(set(np.linspace(0, n_rules - 1, 9).astype(int)))


def law_of(dual, multipliers):
    """pi, (n, A), from the paper's formula on the compiled scores."""
    features = np.concatenate([block.features for block in dual.blocks], axis=1)
    scores = (dual.beta * dual.form.score_matrix(multipliers)).T @ features
    dual.form.action_space.to_probabilities(scores)
    return scores.T


def mapping(multipliers, gradient, alpha):
    return (multipliers - np.maximum(multipliers - alpha * gradient, 0)) / alpha


def spectral(reference):
    """C(x) as (n, M, A), the bounds inside for labels, apart for sets."""
    return np.stack([cost - (0 if reference.sets else bound) for cost, bound in reference.rules], axis=1)


def norms(reference):
    """||C(x)||_{1->2}, or its bound for sets, (n,)."""
    columns = np.linalg.norm(spectral(reference), axis=1)
    if reference.sets:
        return columns.sum(axis=1) + np.linalg.norm([bound for _, bound in reference.rules])
    return columns.max(axis=1)


@pytest.mark.slow
@given(situations())
def test_the_gradient_is_the_negative_violation(situation):
    dual, multipliers, reference, weights = situation
    _, gradient = dual.value_and_gradient(multipliers)
    distribution = law_of(dual, multipliers)
    np.testing.assert_allclose(gradient, -reference.excesses(distribution, weights), atol=1e-10)


@pytest.mark.slow
@given(situations())
def test_the_value_is_the_smoothed_dual(situation):
    dual, multipliers, reference, weights = situation
    scores = -reference.loss - sum(
        lam * cost for lam, (cost, _) in zip(multipliers, reference.rules, strict=True)
    )
    if reference.sets:
        per_row = np.logaddexp(0, dual.beta * scores).sum(axis=1) / dual.beta
    else:
        per_row = np.logaddexp.reduce(dual.beta * scores, axis=1) / dual.beta
    bounds = np.array([bound for _, bound in reference.rules])
    expected = np.average(per_row, weights=weights) + bounds @ multipliers - reference.loss_constant
    assert dual.value_and_gradient(multipliers)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@given(situations())
def test_gradient_by_finite_differences(situation):
    dual, multipliers, _, _ = situation
    value = lambda point: dual.value_and_gradient(point)[0]  # noqa: E731
    step = 1e-5 / dual.beta
    for j in pick_some(dual.n_rules):
        e = np.eye(dual.n_rules)[j] * step
        slope = (value(multipliers + e) - value(multipliers - e)) / (2 * step)
        assert dual.value_and_gradient(multipliers)[1][j] == pytest.approx(slope, abs=2e-4)


@pytest.mark.slow
@given(situations())
def test_hessian_by_finite_differences(situation):
    dual, multipliers, _, _ = situation
    gradient = lambda point: dual.value_and_gradient(point)[1]  # noqa: E731
    hessian = dual.hessian(multipliers)
    step = 1e-5 / dual.beta
    for j in pick_some(dual.n_rules):
        e = np.eye(dual.n_rules)[j] * step
        column = (gradient(multipliers + e) - gradient(multipliers - e)) / (2 * step)
        np.testing.assert_allclose(hessian[:, j], column, atol=1e-4 * (1 + dual.beta))


@pytest.mark.slow
@given(situations(), st.floats(1e-3, 1e3))
def test_violation_is_at_most_the_gradient_mapping(situation, alpha):
    dual, multipliers, reference, weights = situation
    gradient = dual.value_and_gradient(multipliers)[1]
    violation = np.linalg.norm(np.maximum(reference.excesses(law_of(dual, multipliers), weights), 0))
    assert violation <= np.linalg.norm(mapping(multipliers, gradient, alpha)) + 1e-10


@pytest.mark.slow
@given(situations(), st.floats(1e-3, 1e3))
def test_risk_bound(situation, alpha):
    """Lemma "grad_map_stat": against the best policy that obeys the rules."""
    dual, multipliers, reference, weights = situation
    optimum = reference.optimum(weights)
    if optimum is None:
        return
    gradient = dual.value_and_gradient(multipliers)[1]
    length = np.linalg.norm(mapping(multipliers, gradient, alpha))
    mean_norm = np.average(norms(reference), weights=weights)
    bound = (np.linalg.norm(multipliers) + alpha * mean_norm) * length
    bound += 2 * dual.form.action_space.entropy / dual.beta
    assert reference.cost(law_of(dual, multipliers), weights) <= optimum + bound + 1e-9


@pytest.mark.slow
@given(situations())
def test_the_constants_are_the_papers(situation):
    dual, _, reference, weights = situation
    squares = norms(reference) ** 2
    scale = 1.0 if weights is None else weights / weights.mean()
    # The rows' own mean, or that of the steps they take, which are as large as their weights.
    expected = max(np.mean(scale * squares), np.mean(scale**2 * squares))
    assert dual.sigma2 == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert dual.mean_norm == pytest.approx(np.average(norms(reference), weights=weights), rel=1e-6, abs=1e-6)
    assert dual.smoothness == pytest.approx(2 * dual.beta * dual.sigma2)


@pytest.mark.slow
@given(situations(), st.floats(1e-3, 1))
def test_the_gradient_is_lipschitz(situation, distance):
    dual, multipliers, _, _ = situation
    move = np.random.default_rng(0).normal(size=dual.n_rules) * distance / dual.beta
    there = dual.value_and_gradient(multipliers + move)[1]
    here = dual.value_and_gradient(multipliers)[1]
    assert np.linalg.norm(there - here) <= dual.smoothness * np.linalg.norm(move) + 1e-10


@pytest.mark.slow
@given(situations())
def test_stochastic_gradients_are_unbiased_and_of_bounded_variance(situation):
    dual, multipliers, _, weights = situation
    (block,) = dual.blocks
    each = np.array(
        [
            dual.stochastic_gradient(multipliers, Block(block.features[:, [i]], None))
            for i in range(len(block.features.T))
        ]
    )
    mean = np.average(each, axis=0, weights=weights)
    np.testing.assert_allclose(mean, dual.value_and_gradient(multipliers)[1], atol=1e-9)
    variance = np.average(((each - mean) ** 2).sum(axis=1), weights=weights)
    assert variance <= dual.sigma2 + 1e-9
    # Rows drawn evenly, each stepping with its weight, as the optimizers do.
    scale = np.ones(len(each)) if weights is None else weights / weights.mean()
    steps = scale[:, None] * each
    assert ((steps - mean) ** 2).sum(axis=1).mean() <= dual.sigma2 + 1e-9


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([labels, rejection, sets]))
def test_kkt_at_the_optimum(seed, kind):
    rows = Rows(n=60, K=3, seed=seed)
    problem, reference = kind(rows)
    if reference.optimum() is None:
        return
    evidence = rows.evidence()
    policy = solve(problem, evidence, beta=100)
    multipliers = np.array(list(policy.multipliers.values()))
    excesses = reference.excesses(policy.probabilities(evidence))
    assert (multipliers >= 0).all()
    assert excesses.max() <= 1e-6
    assert np.minimum(multipliers, -excesses).max() <= 1e-6  # complementary slackness


def test_products_without_zeros_are_products():
    """Weights of 1 in 64 places, as with many classes, take the other way; both give the same."""
    rng = np.random.default_rng(0)
    weights, features = rng.normal(size=(130, 64)), rng.normal(size=(130, 50))
    few = np.where(rng.random(weights.shape) < 1 / 64, weights, 0.0)
    few[:, 3] = 0.0
    for chosen in (weights, few):
        expected = np.einsum("fa,fn->an", chosen, features)
        np.testing.assert_allclose(compute_scores(chosen, features), expected, atol=1e-12)


def test_tallies_of_parts_add_up():
    rows = Rows(n=50, K=3)
    problem, _ = labels(rows)
    form = compile_problem(problem, rows.evidence())
    w = np.random.default_rng(0).random(50)
    (whole,) = make_blocks(form, rows.evidence(weights=w))
    parts = [Block(whole.features[:, cut], whole.weights[cut]) for cut in (slice(0, 17), slice(17, None))]
    once, twice = (
        Dual(form, blocks, 10.0).tally(np.ones(len(form.names)), curvature=True)
        for blocks in ([whole], parts)
    )
    for name in ("mass", "potential", "moments", "curvature"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name), rtol=1e-10, atol=1e-12)


def test_parts_of_blocks_that_are_joined_again_have_the_same_sums():
    rows = Rows(n=50, K=3)
    problem, _ = labels(rows)
    form = compile_problem(problem, rows.evidence())
    (whole,) = make_blocks(form, rows.evidence())
    parts = [whole.rows(slice(0, 17)), whole.rows(slice(17, None))]
    once, twice = (
        Dual(form, blocks, 10.0).tally(np.ones(len(form.names)), curvature=True)
        for blocks in ([whole], blocks_module.join_blocks(parts))
    )
    for name in ("mass", "potential", "moments", "curvature"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name), rtol=1e-10, atol=1e-12)


def test_blocks_hold_every_row_once_and_each_is_a_fair_sample():
    n = 2 * BLOCK_ROWS + 5
    P = np.column_stack([np.linspace(0, 1, n), 1 - np.linspace(0, 1, n)])  # sorted rows
    form = compile_problem(Problem(error()), Evidence(P))
    blocks = make_blocks(form, Evidence(P))
    assert len(blocks) == 3
    feature = list(form.feature_map.features).index((None, (("label", 0),)))
    seen = np.concatenate([block.features[feature] for block in blocks])
    np.testing.assert_array_equal(np.sort(seen), P[:, 0])
    assert max(abs(block.features[feature].mean() - 0.5) for block in blocks) < 1e-3


def test_constants_are_those_of_the_rows_they_are_of(monkeypatch):
    monkeypatch.setattr(blocks_module, "_SORTED_VALUES", 0)
    evidence = Rows(n=3 * BLOCK_ROWS, K=3, S=2).evidence()
    form = compile_problem(Problem(error(), [demographic_parity("known", tol=0.05)]), evidence)
    dual = Dual(form, make_blocks(form, evidence), beta=20.0)
    assert dual.loss_range
    whole, part = dual.sample(dual.blocks, 5.0), dual.sample(dual.blocks[:1], 5.0)
    assert whole.loss_range == dual.loss_range
    assert part.loss_range == Dual(form, dual.blocks[:1], 5.0).loss_range != dual.loss_range
    point = np.linspace(0.1, 0.4, dual.n_rules)
    raised = dual.with_beta(dual.beta, ridge=0.3)
    assert raised.rules is dual.rules
    value, gradient = dual.value_and_gradient(point)
    assert raised.value_and_gradient(point)[0] == pytest.approx(value + 0.15 * point @ point)
    np.testing.assert_allclose(raised.value_and_gradient(point)[1], gradient + 0.3 * point)
