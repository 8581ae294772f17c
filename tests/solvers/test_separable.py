"""Sets under rules that are apart: sums label by label, and roots against brute force."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, sparse

from bylaw import Evidence, Problem, Status, miscoverage, selected, size, solve
from bylaw.program import (
    Dual,
    attach_observed,
    compile_observed,
    compile_problem,
    gradient_mapping,
    make_blocks,
)
from bylaw.rows import observe
from bylaw.solvers import FullBatch, _full_batch as full_batch, _separable as separable, find_separate_rules
from bylaw.solvers._separable import sample_evenly, screen_items, solve_separable
from helpers.reference import softmax

ONE_RULE = {
    "coverage": Problem(size(), [miscoverage() <= 0.1]),
    "size": Problem(miscoverage(), [size() <= 2.5]),
}
PER_LABEL = Problem(
    size(),
    [miscoverage().given(label=0) <= 0.3, miscoverage().given(label=2) <= 0.05, selected(3) >= 0.6],
)


def make_evidence(n=2000, K=6, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    return Evidence(softmax(2 * rng.normal(size=(n, K))), weights=weights)


def make_dual(problem, evidence, sharpness=3000.0):
    form = compile_problem(problem, evidence)
    dual = Dual(form, make_blocks(form, evidence), 1.0)
    return dual.with_beta(sharpness / dual.loss_unit)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("problem", [*ONE_RULE.values(), PER_LABEL], ids=[*ONE_RULE, "per label"])
def test_the_root_satisfies_the_optimality_conditions_on_all_rows(problem, weighted):
    dual = make_dual(problem, make_evidence(weighted=weighted))
    found = solve_separable(dual, tol=1e-6)
    assert found is not None
    value, gradient = dual.value_and_gradient(found.multipliers)
    mapping = gradient_mapping(found.multipliers, gradient, dual.loss_unit)
    assert np.linalg.norm(mapping) < 1e-9
    assert found.value == pytest.approx(value, abs=1e-10)
    assert found.status is Status.CONVERGED


@pytest.mark.parametrize("name", ONE_RULE)
def test_one_rule_has_the_root_of_a_sum_over_all_labels(name):
    evidence = make_evidence()
    policy = solve(ONE_RULE[name], evidence)
    chances, n = evidence.probabilities, len(evidence)

    def excess(price):
        margin = 1 - price * chances if name == "coverage" else -chances + price
        inside = 1 / (1 + np.exp(np.clip(policy.beta * margin, -700, 700)))
        return 0.9 - (inside * chances).sum() / n if name == "coverage" else inside.sum() / n - 2.5

    root = optimize.brentq(excess, 1e-3, 1e3, xtol=1e-15, rtol=1e-14)
    assert next(iter(policy.multipliers.values())) == pytest.approx(root, rel=1e-9)


@pytest.mark.parametrize("problem", [*ONE_RULE.values(), PER_LABEL], ids=[*ONE_RULE, "per label"])
def test_newton_steps_on_all_rules_find_the_same_policy(problem, monkeypatch):
    dual = make_dual(problem, make_evidence(), 300.0)
    roots = FullBatch()(dual, tol=1e-9)
    monkeypatch.setattr(full_batch, "solve_separable", lambda *_, **__: None)
    steps = FullBatch()(dual, tol=1e-9)
    assert roots.value == pytest.approx(steps.value, abs=1e-9)
    np.testing.assert_allclose(roots.multipliers, steps.multipliers, rtol=1e-5, atol=1e-7)


def test_a_sample_of_many_rows_leads_to_the_root_of_all(monkeypatch):
    monkeypatch.setattr(separable, "SAMPLE_ITEMS", 2**16)
    dual = make_dual(ONE_RULE["coverage"], make_evidence(n=60_000, K=10))
    assert sample_evenly(dual, 10).n_rows < dual.n_rows / 4
    found = solve_separable(dual, tol=1e-6)
    assert found is not None
    assert abs(dual.value_and_gradient(found.multipliers)[1]) < 1e-10


def test_rows_that_mislead_a_sample_cost_time_and_not_the_answer(monkeypatch):
    monkeypatch.setattr(separable, "SAMPLE_ITEMS", 2**16)
    rng = np.random.default_rng(1)
    scores = softmax(rng.normal(size=(60_000, 10)))
    scores[::9] = softmax(9 * rng.normal(size=(len(scores[::9]), 10)))  # the sample takes every ninth row
    dual = make_dual(ONE_RULE["coverage"], Evidence(scores))
    found, misled = (solve_separable(rows, tol=1e-6) for rows in (dual, sample_evenly(dual, 10)))
    assert found is not None
    assert misled is not None
    assert max(found.multipliers / misled.multipliers, misled.multipliers / found.multipliers) > 2
    assert abs(dual.value_and_gradient(found.multipliers)[1]) < 1e-10


def test_a_rule_that_holds_anyway_costs_nothing():
    problem = Problem(size(), [miscoverage() <= 1.0])
    found = solve_separable(make_dual(problem, make_evidence()), tol=1e-6)
    assert found is not None
    assert found.multipliers.tolist() == [0.0]


def test_rules_out_of_reach_and_rules_that_touch_each_other_are_left_to_others():
    rows = make_evidence(200)
    assert solve_separable(make_dual(Problem(size(), [miscoverage() <= -0.1]), rows), tol=1e-6) is None
    both = Problem(size(), [miscoverage() <= 0.1, size() <= 4.0])
    assert solve_separable(make_dual(both, rows), tol=1e-6) is None


def test_the_rule_of_each_label():
    couplings = sparse.csr_array(np.array([[0.0, 2.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]]))

    def find(n_actions, *others):
        space, base = SimpleNamespace(exclusive=False), np.zeros((6 // n_actions, n_actions))
        form = SimpleNamespace(action_space=space, base=base, bounds=np.zeros(2), couplings=couplings)
        return find_separate_rules(form, *others)

    assert find(3).tolist() == [0, 0, 1]  # two features, three labels
    assert find(6).tolist() == [2, 0, 2, 0, 2, 1]
    assert find(3, couplings[[1, 0]]) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("problem", [ONE_RULE["coverage"], PER_LABEL], ids=["one rule", "per label"])
def test_sums_over_labels_are_those_of_a_pass_over_rows(problem, weighted, monkeypatch):
    monkeypatch.setattr(separable, "TILE_BYTES", 2**12)  # many tiles
    evidence = make_evidence(weighted=weighted)
    labels = np.random.default_rng(2).integers(0, 6, len(evidence))
    dual, rows = make_dual(problem, evidence), observe(evidence.with_observed(labels=labels))
    rates = compile_observed(problem, dual.form, rows)
    dual = attach_observed(dual, rates, rows)
    rules = find_separate_rules(dual.form, rates.couplings)
    assert rules is not None
    low, high = np.full((2, dual.n_rules), [[4.0], [6.0]])
    near = screen_items(dual, rules, low, high, rates.couplings)
    assert 0 < near.columns.shape[1] < 6 * len(evidence)
    narrow = near.narrow(1.1 * low, 0.9 * high)
    assert narrow.columns.shape[1] < near.columns.shape[1]
    for point in (1.1 * low, 0.9 * high):
        total = dual.tally(point, curvature=True)
        for items in (near, narrow):
            assert items.covers(point)
            sums = items.sum(point)
            assert sums.potential == pytest.approx(total.potential, rel=1e-10)
            np.testing.assert_allclose(sums.costs, dual.form.couplings @ total.moments.ravel(), rtol=1e-10)
            np.testing.assert_allclose(sums.observed, rates.couplings @ total.observed.ravel(), rtol=1e-10)
            diagonal = np.diag(dual.second_order(total).restrict(slice(None))) * total.mass
            np.testing.assert_allclose(sums.curvature, diagonal, rtol=1e-6)


def test_a_dual_with_a_ridge_is_left_to_others():
    """Its roots are those of another function."""
    dual = make_dual(ONE_RULE["size"], make_evidence(200))
    assert solve_separable(dual, tol=1e-6) is not None
    assert solve_separable(replace(dual, ridge=0.1), tol=1e-6) is None
