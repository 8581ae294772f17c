"""Objectives that are not linear, against programs written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    Policy,
    Problem,
    RuleError,
    accepted,
    audit,
    balanced_error,
    cost,
    demographic_parity,
    error,
    f1,
    frontier,
    g_mean,
    precision,
    recall,
    rejected,
    selected,
    solve,
)
from bylaw.report import report

SHARP = 1e7


def draw_rows(n, seed=0, concentration=0.5, classes=("a", "b", "c")):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet([concentration] * len(classes), n)
    sex = np.where(rng.random(n) < 0.3 + 0.4 * P[:, 0], "F", "M")
    labels = np.array([rng.choice(classes, p=p) for p in P])
    return Evidence(P, classes=classes, groups={"sex": sex}), labels


def minimize_ratio_by_hand(numerator, denominator, rules=(), constants=(0.0, 0.0)):
    """Charnes and Cooper (1962): the least of (E[numerator] + a) / (E[denominator] + b) over policies whose
    means of rules are at most zero, all of shape (n, A), as a linear program in t pi and t."""
    n, n_actions = numerator.shape
    one_each = np.hstack([np.kron(np.eye(n), np.ones(n_actions)), -np.ones((n, 1))])
    whole = np.append(denominator.ravel() / n, constants[1])
    bounded = np.array([np.append(rule.ravel() / n, 0.0) for rule in rules]) if rules else None
    found = linprog(
        np.append(numerator.ravel() / n, constants[0]),
        A_ub=bounded,
        b_ub=np.zeros(len(rules)) if rules else None,
        A_eq=np.vstack([one_each, whole]),
        b_eq=np.append(np.zeros(n), 1.0),
        bounds=(0, None),
    )
    assert found.status == 0
    return found.fun


def bound_parity(evidence, n_actions, tol):
    """demographic_parity("sex", tol=tol) as rules of shape (n, A)."""
    women = np.asarray(evidence.groups["sex"].codes) == 0
    rules = []
    for member in (women, ~women):
        weight = member / member.mean() - 1.0
        for a in range(len(evidence.classes)):
            for sign in (1, -1):
                rule = np.full((len(evidence), n_actions), -tol)
                rule[:, a] += sign * weight
                rules.append(rule)
    return rules


@pytest.mark.filterwarnings("ignore:the policy chooses at random between")
@pytest.mark.parametrize("seed", range(4))
def test_f1_is_maximised(seed):
    evidence, _ = draw_rows(60, seed)
    P = evidence.probabilities
    numerator, denominator = np.zeros((2, 60, 3))
    numerator[:, 2], denominator[:, 2] = 1 - 2 * P[:, 2], 1.0
    share = P[:, 2].mean()
    least = minimize_ratio_by_hand(numerator, denominator, constants=(share, share))
    policy = solve(Problem(1 - f1("c")), evidence, beta=SHARP)
    assert policy.expected(1 - f1("c"), evidence) == pytest.approx(least, abs=1e-6)
    rules = bound_parity(evidence, 3, 0.05)
    held = minimize_ratio_by_hand(numerator, denominator, rules, constants=(share, share))
    policy = solve(Problem(1 - f1("c"), [demographic_parity("sex", tol=0.05)]), evidence, beta=SHARP)
    assert held > least + 1e-4
    assert policy.expected(1 - f1("c"), evidence) == pytest.approx(held, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_error_among_answers_is_minimised(seed):
    evidence, _ = draw_rows(60, seed)
    P = evidence.probabilities
    numerator = np.column_stack([1 - P, np.zeros(60)])
    denominator = np.column_stack([np.ones((60, 3)), np.zeros(60)])
    few = np.full((60, 4), -0.2)
    few[:, 3] += 1
    rules = [few, *bound_parity(evidence, 4, 0.03)]
    least = minimize_ratio_by_hand(numerator, denominator, rules)
    stated = [rejected() <= 0.2, demographic_parity("sex", tol=0.03)]
    policy = solve(Problem(error() / accepted(), stated), evidence, beta=SHARP)
    assert policy.expected(error() / accepted(), evidence) == pytest.approx(least, abs=1e-6)


def test_a_price_is_that_of_the_ratio():
    evidence, _ = draw_rows(3000)
    values, levels = [], (0.195, 0.2, 0.205)
    for level in levels:
        policy = solve(Problem(error() / accepted(), [rejected() <= level]), evidence, tol=1e-8)
        values.append(policy.expected(error() / accepted(), evidence))
        if level == 0.2:
            price = policy.prices["rejected() <= 0.2"]
    assert price == pytest.approx((values[0] - values[2]) / (levels[2] - levels[0]), rel=0.02)


def maximise_product(P):
    """max sqrt(recall 0 * recall 1) of two classes: on the frontier, rows go to class 0 by their odds."""
    order = np.argsort(-P[:, 0] / P[:, 1])
    mine, other = P[order, 0] / P[:, 0].sum(), P[order, 1] / P[:, 1].sum()
    first = np.append(0, np.cumsum(mine))
    second = 1 - np.append(0, np.cumsum(other))
    best = 0.0
    for i in range(len(P)):
        share = np.linspace(0, 1, 20_001)
        products = (first[i] + share * mine[i]) * (second[i] - share * other[i])
        best = max(best, products.max())
    return float(np.sqrt(best))


@pytest.mark.parametrize("seed", range(4))
def test_the_geometric_mean_of_recalls_is_maximised(seed):
    rare = np.random.default_rng(seed).beta(0.5, 3, 40)
    evidence = Evidence(np.column_stack([1 - rare, rare]), classes=["no", "yes"])
    policy = solve(Problem(1 - g_mean()), evidence, beta=1e4)
    best = maximise_product(evidence.probabilities)
    assert policy.expected(g_mean(), evidence) == pytest.approx(best, abs=1e-4)
    assert policy.expected(g_mean(), evidence) <= best + 1e-7


@pytest.mark.slow
def test_the_geometric_mean_obeys_rules():
    evidence, _ = draw_rows(500)
    free = solve(Problem(1 - g_mean()), evidence)
    held = solve(Problem(1 - g_mean(), [selected("a") <= 0.2]), evidence)
    assert held.expected(selected("a"), evidence) <= 0.2 + 1e-6
    assert held.expected(g_mean(), evidence) < free.expected(g_mean(), evidence)
    # Any move from the optimum that stays within the rules loses: mix with many other policies.
    rng, best, law = np.random.default_rng(0), held.expected(g_mean(), evidence), held.probabilities(evidence)
    for _ in range(50):
        loss = cost((1 - np.eye(3)) * rng.exponential(size=(3, 3)))
        other = solve(Problem(loss, [selected("a") <= 0.2]), evidence).probabilities(evidence)
        mixed = 0.95 * law + 0.05 * other
        assert held.expected(g_mean(), evidence, probabilities=mixed) <= best + 2e-4


def test_the_balanced_error_is_linear():
    evidence, _ = draw_rows(400)
    policy = solve(Problem(balanced_error()), evidence)
    P = evidence.probabilities
    by_hand = (P / P.mean(axis=0)).argmax(axis=1)
    assert (policy.probabilities(evidence).argmax(axis=1) == by_hand).mean() > 0.99
    parts = [policy.expected(error().given(label=y), evidence) for y in "abc"]
    assert policy.expected(balanced_error(), evidence) == pytest.approx(np.mean(parts))
    held = solve(Problem(error(), [balanced_error() <= 0.3]), evidence)
    assert held.expected(balanced_error(), evidence) <= 0.3 + 1e-6


def test_ratios_with_rules_as_observed():
    evidence, labels = draw_rows(3000)
    rules = [demographic_parity("sex", tol=0.05), error().given(decision="a") <= 0.2]
    policy = solve(Problem(1 - f1("c"), rules), evidence, labels=labels)
    found = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    assert all(rule.excess <= 1e-5 for rule in found.rules)
    assert found.objective == "1 - f1('c')"
    assert found.cost_after == pytest.approx(0.5, abs=0.3)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(1 - precision("a")), r"selected\('a'\) can be zero"),
        (Problem(error() / rejected()), r"rejected\(\) can be zero"),
        (Problem(g_mean()), "one geometric mean with a negative sign"),
        (Problem(error(), [g_mean() >= 0.5]), "rules cannot bound it"),
        (Problem(error() - precision("a")), "is not linear, since it compares"),
        (Problem(f1("a") + f1("b")), "is not linear, since it compares"),
    ],
)
def test_what_has_no_optimum_is_refused(problem, message):
    with pytest.raises(RuleError, match=message):
        solve(problem, draw_rows(50)[0])


@pytest.mark.filterwarnings("ignore:the policy chooses at random between")
def test_a_rule_keeps_a_denominator_up():
    evidence, _ = draw_rows(60)
    P = evidence.probabilities
    numerator, denominator = np.zeros((2, 60, 3))
    numerator[:, 0], denominator[:, 0] = 1 - P[:, 0], 1.0
    often = np.full((60, 3), 0.2)
    often[:, 0] -= 1
    least = minimize_ratio_by_hand(numerator, denominator, [often])
    policy = solve(Problem(1 - precision("a"), [selected("a") >= 0.2]), evidence, beta=SHARP)
    assert policy.expected(1 - precision("a"), evidence) == pytest.approx(least, abs=1e-6)


@pytest.mark.filterwarnings("ignore:the policy chooses at random between")
@pytest.mark.parametrize("objective", [1 - f1("c"), error() / accepted(), 1 - g_mean(), balanced_error()])
def test_objectives_are_saved_traced_and_reported(objective, tmp_path):
    evidence, _ = draw_rows(300)
    rule = rejected() <= 0.2
    policy = solve(Problem(objective, [rule]), evidence)
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.problem.minimize == objective
    assert (loaded.probabilities(evidence) == policy.probabilities(evidence)).all()
    traced = frontier(policy.problem, evidence, {rule: [0.1, 0.2]})
    assert traced.cost[1] == pytest.approx(policy.expected(objective, evidence), abs=5e-3)
    assert str(objective) in repr(traced)
    words = (
        "of those that get a wrong one"
        if objective == error() / accepted()
        else " mean "
        if "g_mean" in str(objective)
        else ""
    )
    assert words in report(loaded, evidence, levels=3).html


@pytest.mark.filterwarnings("ignore:the policy chooses at random between")
def test_text_is_read(tmp_path):
    evidence, _ = draw_rows(300)
    one = solve(Problem("1 - f1('c')", ["recall('a') >= 0.2"]), evidence)
    two = solve(Problem(1 - f1("c"), [recall("a") >= 0.2]), evidence)
    assert (one.probabilities(evidence) == two.probabilities(evidence)).all()
