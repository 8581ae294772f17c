"""The worst group's rate as an objective, against the epigraph form of the exact linear program."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    InfeasibleRulesError,
    OptionError,
    Policy,
    PolicyFileError,
    Problem,
    RuleError,
    Stream,
    audit,
    cost,
    custom,
    demographic_parity,
    diagnose,
    error,
    explain,
    frontier,
    miscoverage,
    rejected,
    selected,
    sensitivity,
    size,
    solve,
    worst,
)
from bylaw.language._expressions import OVERALL
from bylaw.program import Simplex, gradient_mapping
from bylaw.reductions._worst_group import GroupSearch, GroupWeights, Trial
from helpers.generated_rows import Rows
from helpers.reference import one_hot, parity, rejection


def solve_minimax(rates, rules=(), sets=False, overall=None):
    """The least t with every rate (array (n, A), constant) <= t, under mean(cost * pi) <= bound; beside t, a
    part OVERALL of the rate `overall` counts, if it is given."""
    n, n_actions = rates[0][0].shape
    rows = [np.append((cost / n).ravel(), -1.0) for cost, _ in rates]
    rows += [np.append((cost / n).ravel(), 0.0) for cost, _ in rules]
    beside = np.zeros((n, n_actions)) if overall is None else OVERALL * overall / n
    answer = linprog(
        np.append(beside.ravel(), 1.0),
        A_ub=np.array(rows),
        b_ub=[*(-constant for _, constant in rates), *(bound for _, bound in rules)],
        A_eq=None
        if sets
        else sparse.hstack([sparse.kron(sparse.eye(n), np.ones((1, n_actions))), np.zeros((n, 1))]),
        b_eq=None if sets else np.ones(n),
        bounds=[*[(0, 1)] * (n * n_actions), (None, None)],
    )
    assert answer.status == 0, answer.message
    return answer.x[-1]


def losses(joint, matrix):
    """(n, A) for each (group, label): matrix[label, action] where the row is of that group and label."""
    return joint[:, :, :, None] * matrix


def group_rates(joint, matrix):
    """Given each group: ((n, A), 0)."""
    paid = losses(joint, matrix).sum(axis=2)
    return [(paid[:, s] / joint[:, s].sum(axis=1).mean(), 0.0) for s in range(joint.shape[1])]


def label_rates(joint, matrix):
    paid = losses(joint, matrix).sum(axis=1)
    return [(paid[:, y] / joint[:, :, y].sum(axis=1).mean(), 0.0) for y in range(joint.shape[2])]


def cell_rates(joint, matrix):
    paid = losses(joint, matrix)
    cells = [(s, y) for s in range(joint.shape[1]) for y in range(joint.shape[2])]
    return [(paid[:, s, y] / joint[:, s, y].mean(), 0.0) for s, y in cells]


def wrong(K, reject=False):
    matrix = 1.0 - np.eye(K)
    return np.hstack([matrix, np.zeros((K, 1))]) if reject else matrix


def known_joint(rows):
    return one_hot(rows.group, rows.S)[:, :, None] * rows.P[:, None, :]


CASES = {
    "known": lambda r: ("known", error(), [], group_rates(known_joint(r), wrong(r.K)), []),
    "hidden": lambda r: ("hidden", error(), [], group_rates(r.joint, wrong(r.K)), []),
    "label": lambda r: ("label", error(), [], label_rates(r.joint, wrong(r.K)), []),
    "cells": lambda r: (("known", "label"), error(), [], cell_rates(known_joint(r), wrong(r.K)), []),
    "hidden cells": lambda r: (("hidden", "label"), error(), [], cell_rates(r.joint, wrong(r.K)), []),
    "reject": lambda r: (
        "known",
        error(),
        [rejected() <= 0.15],
        group_rates(known_joint(r), wrong(r.K, reject=True)),
        [(rejection(r.P), 0.15)],
    ),
    "parity": lambda r: (
        "known",
        error(),
        [demographic_parity("hidden", tol=0.03)],
        group_rates(known_joint(r), wrong(r.K)),
        parity(r.T, r.K, 0.03, r.K),
    ),
    "rejected": lambda r: (
        "known",
        rejected(),
        [error() <= 0.1],
        group_rates(known_joint(r), np.eye(r.K + 1)[-1:].repeat(r.K, axis=0)),
        [(losses(known_joint(r), wrong(r.K, reject=True)).sum(axis=(1, 2)), 0.1)],
    ),
    "cost": lambda r: (
        "known",
        cost(700.0 * np.triu(np.ones((r.K, r.K)), 1) + 300.0 * np.tril(np.ones((r.K, r.K)), -1)),
        [],
        group_rates(
            known_joint(r),
            700.0 * np.triu(np.ones((r.K, r.K)), 1) + 300.0 * np.tril(np.ones((r.K, r.K)), -1),
        ),
        [],
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_the_worst_rate_is_that_of_the_exact_program(case, seed):
    rows = Rows(n=240, K=2 + seed % 2, S=2 + seed, seed=seed)
    by, rate, rules, rates, exact_rules = CASES[case](rows)
    evidence, problem = rows.evidence(), Problem(worst(rate, by=by), rules)
    policy = solve(problem, evidence)
    optimum, mean = solve_minimax(rates, exact_rules), sum(cost for cost, _ in rates) / len(rates)
    spread = float((mean.max(axis=1) - mean.min(axis=1)).mean())
    found = max(one.rate for one in policy.group_rates)
    room = policy.entropy_cost + OVERALL * spread + 1e-5 * spread
    assert optimum - 1e-6 * spread <= found <= optimum + room
    assert found == pytest.approx(policy.expected(problem.minimize, evidence), abs=1e-9 * spread)
    for cost_of_rule, bound in exact_rules:
        chances = policy.probabilities(evidence)
        assert (cost_of_rule * chances).sum(axis=1).mean() <= bound + 2e-6


@pytest.mark.parametrize("seed", range(3))
def test_sets_of_the_worst_group(seed):
    rows = Rows(n=200, K=3, S=2, seed=seed)
    joint, K = known_joint(rows), rows.K
    covered = [(-group_rates(joint, np.eye(K))[s][0], 1.0) for s in range(2)]
    policy = solve(Problem(worst(miscoverage(), by="known"), [size() <= 1.4]), rows.evidence())
    optimum = solve_minimax(covered, [(np.ones((200, K)), 1.4)], sets=True)
    assert max(one.rate for one in policy.group_rates) == pytest.approx(optimum, abs=2e-3)
    sizes = group_rates(joint, np.ones((K, K)))
    policy = solve(Problem(worst(size(), by="known"), [miscoverage() <= 0.1]), rows.evidence())
    optimum = solve_minimax(sizes, [(-joint.sum(axis=1), -0.9)], sets=True)
    assert max(one.rate for one in policy.group_rates) == pytest.approx(optimum, abs=1e-2)


def test_an_answer_by_hand():
    """Two rows of a, two of b. Rejecting one row of four helps the worse group b: a keeps its error of 0.1,
    and b's falls from 0.4 to 0.2, where the other row of b remains."""
    P = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]]
    evidence = Evidence(P, groups={"g": ["a", "a", "b", "b"]})
    policy = solve(Problem(worst(error(), by="g"), [rejected() <= 0.25]), evidence)
    assert policy.expected(worst(error(), by="g"), evidence) == pytest.approx(0.2, abs=1e-5)
    assert [one.weight for one in policy.group_rates] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert [one.rate for one in policy.group_rates] == pytest.approx([0.1, 0.2], abs=1e-5)
    # One more row of rejections, a share of 1/4, would spare b an error of 0.4 on one row of two.
    assert policy.prices["rejected() <= 0.25"] == pytest.approx((1 + OVERALL / 2) * 0.8, abs=1e-3)
    assert "worst group g='b', 0.2" in repr(policy)


def test_groups_that_are_not_the_worst_are_not_left_to_chance():
    """Without the part of the rate over all rows, every group would be made as bad as the worst."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 2000)
    yes = 1 / (1 + np.exp(-rng.normal(size=2000) * np.where(group, 6.0, 0.5)))
    evidence = Evidence(np.column_stack([1 - yes, yes]), groups={"g": group})
    policy = solve(Problem(worst(error(), by="g")), evidence)
    best = [np.minimum(yes, 1 - yes)[group == g].mean() for g in (0, 1)]
    assert [one.rate for one in policy.group_rates] == pytest.approx(best, abs=1e-3)


@pytest.mark.slow
def test_rates_are_those_that_turned_out():
    """Scores that are too sure of themselves in one group: the weights follow the labels."""
    rng = np.random.default_rng(1)
    group, z = rng.integers(0, 3, 6000), rng.normal(size=6000)
    yes = 1 / (1 + np.exp(-z * 2))
    truth = rng.random(6000) < np.where(group == 2, 0.5 + (yes - 0.5) * 0.5, yes)
    evidence = Evidence(np.column_stack([1 - yes, yes]), groups={"g": group})
    problem = Problem(worst(error(), by="g"), [rejected() <= 0.3])
    for options in ({}, {"margin": 1.0}):
        policy = solve(problem, evidence, labels=truth.astype(int), **options)
        plain = solve(problem, evidence)
        chances = (policy.probabilities(evidence), plain.probabilities(evidence))
        wrong = [p[:, 0] * truth + p[:, 1] * ~truth for p in chances]
        rates, before = (np.array([w[group == g].mean() for g in range(3)]) for w in wrong)
        assert rates.max() < before.max() - 0.01
        assert [one.rate for one in policy.group_rates] == pytest.approx(rates, abs=1e-9)
        weighed = [one.rate for one in policy.group_rates if one.weight > 0.01]
        assert max(weighed) - min(weighed) < 0.01


def reject_unsure(yes, group, wrong, budget):
    """The least error of the worst group, if the least sure rows of each group are rejected: by halves."""
    order = np.argsort(abs(yes - 0.5))
    left = []
    for s in np.unique(group):
        errors = wrong[order][group[order] == s]
        left.append(1.0 * (errors.sum() - np.append(0, errors.cumsum())) / len(errors))  # after k rejections

    def count_rejections(level):
        ends = [int(np.argmax(rates <= level)) for rates in left]
        parts = [
            (r[k - 1] - level) / (r[k - 1] - r[k]) if k else 1.0 for r, k in zip(left, ends, strict=True)
        ]
        return sum(ends) + sum(parts) - len(parts)

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if count_rejections(middle) <= budget * len(yes) else (middle, high)
    return high


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_small_groups_share_the_worst_rate_as_observed(seed, n_groups):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rng.integers(30, 300, n_groups))
    z = rng.normal(size=len(group)) * np.array([2.5, 1.5, 1.0])[group]
    yes = 1 / (1 + np.exp(-z))
    labels = rng.random(len(group)) < 1 / (1 + np.exp(-z * np.array([1.0, 0.7, 1.0])[group]))
    evidence = Evidence(np.column_stack([1 - yes, yes]), groups={"g": group})
    problem = Problem(worst(error(), by="g"), [rejected() <= 0.25])
    policy = solve(problem, evidence, labels=labels.astype(int))
    best = reject_unsure(yes, group, (yes > 0.5) != labels, 0.25)
    assert best - 0.003 <= max(one.rate for one in policy.group_rates) <= best + 0.006
    assert policy.expected(rejected(), evidence) <= 0.25 + 1e-6


def test_labels_of_small_groups_without_rules():
    """Among cells of group and label, weights move the thresholds: brute force over those of two groups."""
    rng = np.random.default_rng(3)
    group, z = np.repeat([0, 1], [150, 60]), rng.normal(size=210) - 0.5
    yes = 1 / (1 + np.exp(-z))
    labels = (rng.random(210) < 1 / (1 + np.exp(-z - 0.7 * group))).astype(int)
    evidence = Evidence(np.column_stack([1 - yes, yes]), groups={"g": group})
    policy = solve(Problem(worst(error(), by=("g", "label"))), evidence, labels=labels)
    best = 0.0
    for s in (0, 1):
        cells = [(yes[(group == s) & (labels == y)], y) for y in (0, 1)]
        levels = [max(((cell >= t) != y).mean() for cell, y in cells) for t in np.linspace(0, 1, 2001)]
        best = max(best, min(levels))
    assert max(one.rate for one in policy.group_rates) <= best + 0.01


@pytest.mark.slow
def test_weights_follow_margins():
    """Margins move parity, and with it the groups' rates: those with a weight stay together."""
    rng = np.random.default_rng(0)
    group = rng.choice(3, 3000, p=[0.5, 0.3, 0.2])
    scores = rng.normal(size=(3000, 3)) * np.array([1.5, 2.3, 3.2])[group][:, None]
    scores[:, 0] += 0.5 * (group == 1)
    P = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels = (P.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    problem = Problem(worst(error(), by="g"), [rejected() <= 0.1, demographic_parity("g", tol=0.05)])
    policy = solve(problem, Evidence(P, groups={"g": group}), labels=labels, margin=1.0)
    weighed = [one.rate for one in policy.group_rates if one.weight > 0.05]
    assert len(weighed) > 1
    assert max(weighed) - min(weighed) < 0.004


def test_a_group_may_be_dearer_than_all_groups_on_average():
    """The dual's value exceeds every cost of equal weights, and that is no conflict."""
    costs = np.array([[0.0, 1.0, 2.0]] * 50 + [[10.0, 12.0, 13.0]] * 50)
    evidence = Evidence([[0.5, 0.5]] * 100, groups={"g": [0] * 50 + [1] * 50}, costs={"fee": costs})
    policy = solve(Problem(worst(custom("fee"), by="g"), [rejected() <= 0.2, selected(0) <= 0.5]), evidence)
    assert [one.weight for one in policy.group_rates] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert max(one.rate for one in policy.group_rates) == pytest.approx(10.0, abs=0.01)


@pytest.mark.slow
def test_a_frontier_has_the_worst_rate_at_each_level():
    evidence = Rows(n=600, K=2, S=3, seed=2).evidence()
    budget = rejected() <= 0.1
    problem = Problem(worst(error(), by="known"), [budget])
    found = frontier(problem, evidence, {budget: [0.0, 0.1, 0.2]})
    alone = [
        solve(Problem(problem.minimize, [rejected() <= level]), evidence).expected(problem.minimize, evidence)
        for level in (0.0, 0.1, 0.2)
    ]
    assert found.cost == pytest.approx(alone, abs=1e-5)
    middle = found.policies[1]
    assert middle.expected(problem.minimize, evidence) == pytest.approx(found.cost[1], abs=1e-9)
    assert max(one.rate for one in middle.group_rates) == pytest.approx(found.cost[1], abs=1e-9)
    near = frontier(problem, evidence, {budget: [0.099, 0.101]}, tol=1e-6)
    assert found.prices[1, 0] == pytest.approx((near.cost[0] - near.cost[1]) / 0.002, rel=0.05)
    reach = sensitivity(problem, evidence).statements[0]
    assert reach.price == pytest.approx(found.prices[1, 0], abs=1e-3)


def test_conflicts_are_those_of_the_rules():
    evidence = Rows(n=300, K=2, S=2).evidence()
    problem = Problem(worst(error(), by="known"), [error() <= 0.01, rejected() <= 0.01])
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(problem, evidence)
    assert set(caught.value.conflict) == {"error() <= 0.01", "rejected() <= 0.01"}
    assert not diagnose(problem, evidence).feasible


def test_it_is_saved_explained_and_audited(tmp_path):
    evidence = Rows(n=400, K=2, S=2).evidence()
    policy = solve(Problem(worst(error(), by=("known", "label")), [rejected() <= 0.1]), evidence)
    policy.save(tmp_path / "policy.json")
    again = Policy.load(tmp_path / "policy.json")
    assert again.problem.minimize == policy.problem.minimize
    for one, other in zip(again.group_rates, policy.group_rates, strict=True):  # two digits in a file
        assert (one.group, one[1:]) == (other.group, pytest.approx(other[1:], rel=0.05))
    why = explain(again, evidence)
    scores = policy.beta * why.scores
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert chances / chances.sum(axis=1, keepdims=True) == pytest.approx(
        policy.probabilities(evidence), abs=1e-6
    )
    found = audit(policy, evidence, fitted_rows="estimate")
    assert found.group_rates == pytest.approx(
        {f"known={s}, label={y}": one.rate for one in policy.group_rates for (_, s), (_, y) in [one.group]}
    )
    assert found.cost_after == pytest.approx(max(found.group_rates.values()))
    assert "known=0, label=1: " in repr(found)
    assert found.to_dict()["group_rates"] == found.group_rates


def test_a_changed_file_is_refused(tmp_path):
    policy = solve(Problem(worst(error(), by="known")), Rows(n=100, K=2, S=2).evidence())
    policy.save(tmp_path / "policy.json")
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace('"known": 1', '"known": 0'))
    with pytest.raises(PolicyFileError):
        Policy.load(tmp_path / "policy.json")


def test_groups_without_rows_and_columns_that_are_missing():
    evidence = Evidence([[0.5, 0.5]] * 3, groups={"a": [0, 0, 1], "b": [0, 1, 1]})
    with pytest.raises(EvidenceError, match=r"every group must have rows, got none with a=1, b=0"):
        solve(Problem(worst(error(), by=("a", "b"))), evidence)
    with pytest.raises(RuleError, match="no group column 'c'"):
        solve(Problem(worst(error(), by="c")), evidence)


def test_a_group_without_rows_is_named_on_other_rows():
    rows = Rows(n=300, K=2, S=3, seed=0)
    evidence = rows.evidence()
    policy = solve(Problem(worst(error(), by="known"), [rejected() <= 0.1]), evidence)
    fewer = Rows(n=200, K=2, S=3, seed=1)
    fewer = fewer.evidence().rows(np.flatnonzero(fewer.group < 2))
    told = r"worst\(error\(\), by='known'\) is computed without the groups that have no rows: known=2\."
    with pytest.warns(GuaranteeWarning, match=told):
        found = audit(policy, fewer)
    assert set(found.group_rates) == {"known=0", "known=1"}
    with pytest.warns(GuaranteeWarning, match=told):
        assert policy.expected(policy.problem.minimize, fewer) == pytest.approx(found.cost_after)


def test_one_group_alone_is_a_plain_rate():
    evidence = Evidence([[0.8, 0.2], [0.4, 0.6]], groups={"a": ["x", "x"]})
    policy = solve(Problem(worst(error(), by="a"), [rejected() <= 0.5]), evidence)
    assert [(one.weight, round(one.rate, 4)) for one in policy.group_rates] == [(1.0, 0.1)]


def test_a_stream_refuses_it():
    with pytest.raises(OptionError, match="minimize must be a rate over all rows in a stream"):
        Stream(Problem(worst(error(), by="g"), [rejected() <= 0.1]), 1000)


def test_an_objective_on_known_groups_needs_no_rules():
    evidence = Evidence([[0.8, 0.2], [0.4, 0.6]], groups={"a": ["x", "y"]})
    problem = Problem(0.5 * error().given(a="x") + 0.5 * error().given(a="y"))
    assert solve(problem, evidence).expected(error(), evidence) == pytest.approx(0.3, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_on_the_simplex_is_the_nearest_point(seed):
    rng = np.random.default_rng(seed)
    simplex, point = Simplex(4, 2.5), rng.normal(size=6) * 2
    nearest = simplex.project(point)
    assert nearest.min() >= 0
    assert nearest[2:].sum() == pytest.approx(2.5)
    for _ in range(200):
        other = np.append(rng.exponential(size=2), 2.5 * rng.dirichlet(np.ones(4)))
        assert (point - nearest) @ (other - nearest) <= 1e-9  # obtuse: no other point is nearer
    assert gradient_mapping(nearest, np.zeros(6), 1.0, simplex) == pytest.approx(np.zeros(6))


def test_weights_under_which_rules_hold_are_preferred_to_a_lower_worst_rate():
    evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]], groups={"s": ["a", "b", "a", "b"]})
    search = GroupSearch(Problem(worst(error(), by="s"), [rejected() <= 0.1]), evidence)
    dual = SimpleNamespace(n_rows=len(evidence), loss_unit=1.0)
    missed = Trial(GroupWeights(search.equal_weights, np.zeros(1)), np.array([0.1, 0.2]), violated=True)

    def try_weights(weights):
        return Trial(GroupWeights(weights, np.ones(1)), np.array([0.3, 0.4]), violated=False)

    assert not search.improve(dual, missed, try_weights).violated
