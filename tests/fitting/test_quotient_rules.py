"""Rates given a decision, bounded: against linear programs written out by hand, and as observed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    GuaranteeWarning,
    InfeasibleRulesError,
    Policy,
    Problem,
    RuleError,
    Status,
    Verdict,
    audit,
    cost,
    demographic_parity,
    error,
    f1,
    frontier,
    miscoverage,
    precision,
    recall,
    rejected,
    selected,
    sensitivity,
    size,
    solve,
)

SHARP = 1e5  # beta: rounding to the linear program costs log(4) / SHARP


def draw_rows(n, seed=0, concentration=1.0):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet([concentration] * 3, n)
    sex = np.where(rng.random(n) < 0.5, "F", "M")
    labels = np.array([rng.choice(["a", "b", "c"], p=p) for p in P])
    return Evidence(P, classes=["a", "b", "c"], groups={"sex": sex}), labels


def solve_by_hand(P, loss, rules):
    """The least mean loss (n, A) over policies whose means of rules (n, A) are at most zero."""
    n, n_actions = loss.shape
    found = linprog(
        loss.ravel() / n,
        A_ub=np.array([rule.ravel() / n for rule in rules]),
        b_ub=np.zeros(len(rules)),
        A_eq=np.kron(np.eye(n), np.ones(n_actions)),
        b_eq=np.ones(n),
        bounds=(0, None),
    )
    assert found.status == 0
    return found.fun


def lose(P, reject=0.6):
    """(n, 4): the probability of error of each label, and the cost of a rejection."""
    return np.column_stack([1 - P, np.full(len(P), reject)])


@pytest.mark.parametrize("seed", range(5))
def test_a_bound_on_the_error_of_a_decision_is_the_linear_program(seed):
    evidence, _ = draw_rows(60, seed, 0.4)
    P, women = evidence.probabilities, np.asarray(evidence.groups["sex"].codes) == 0
    rules = [error().given(decision="a") <= 0.2, error().given(sex="F", decision="b") <= 0.15]
    first, second = np.zeros((2, 60, 4))
    first[:, 0] = (1 - P[:, 0]) - 0.2
    second[:, 1] = np.where(women, (1 - P[:, 1]) - 0.15, 0.0)
    least = solve_by_hand(P, lose(P), [first, second])
    policy = solve(Problem(error() + 0.6 * rejected(), rules), evidence, beta=SHARP)
    assert policy.expected(policy.problem.minimize, evidence) == pytest.approx(least, abs=3e-5)
    for rule in rules:  # not a number where the decision is never taken
        assert not policy.expected(rule.left, evidence) > rule.level + 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_precision_recall_and_f1_are_the_linear_program(seed):
    evidence, _ = draw_rows(60, seed, 0.4)
    P = evidence.probabilities
    rules = [precision("c") >= 0.6, recall("b") >= 0.4, f1("a") >= 0.4]
    one, two, three = np.zeros((3, 60, 4))
    one[:, 2] = 0.6 - P[:, 2]
    two[:, 1] = -P[:, 1] / P[:, 1].mean()
    two += 0.4
    three[:, 0] = 0.4 - 2 * P[:, 0]
    three += 0.4 * P[:, :1]
    least = solve_by_hand(P, lose(P), [one, two, three])
    policy = solve(Problem(error() + 0.6 * rejected(), rules), evidence, beta=SHARP)
    assert policy.expected(policy.problem.minimize, evidence) == pytest.approx(least, abs=3e-5)
    for rule, rate in zip(rules, (precision("c"), recall("b"), f1("a")), strict=True):
        assert policy.expected(rate, evidence) >= rule.level - 1e-5


def test_precision_of_a_label_in_sets():
    evidence, _ = draw_rows(200)
    free = solve(Problem(miscoverage() + 0.2 * size()), evidence)
    held = solve(Problem(miscoverage() + 0.2 * size(), [precision("a") >= 0.6]), evidence)
    assert free.expected(precision("a"), evidence) < 0.59
    assert held.expected(precision("a"), evidence) == pytest.approx(0.6, abs=1e-5)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(size(), [miscoverage().given(decision="a") <= 0.1]), "is not defined if decisions are sets"),
        (Problem(error(), [error().given(decision="x") <= 0.1]), "must be one of"),
        (Problem(error(), [error().given(decision="reject") <= 0.1]), "must be one of"),
        (Problem(rejected(), [error().given(decision="reject") <= 0.1]), "equals 0 for every policy"),
        (Problem(error(), [selected("a").given(decision="a") <= 0.1]), "equals 1 for every policy"),
        (Problem(error(), [precision("x") >= 0.1]), "one of the classes"),
        (Problem(error(), [precision("a") - precision("b") <= 0.1]), "is not linear, since it compares"),
        (Problem(size(), [f1("a") >= 0.1]), r"bound precision\(label\) and recall\(label\)"),
    ],
)
def test_what_makes_no_sense_is_refused(problem, message):
    with pytest.raises(RuleError, match=message):
        solve(problem, draw_rows(50)[0])


def test_a_group_cannot_be_called_decision():
    with pytest.raises(ValueError, match="must not be named 'decision'"):
        Evidence([[0.5, 0.5]], groups={"decision": ["a"]})


def test_the_cost_of_a_rejection_is_bounded_too():
    evidence, _ = draw_rows(300)
    matrix = [[0, 1, 1, 0.9], [1, 0, 1, 0.1], [1, 1, 0, 0.5]]
    rule = cost(matrix).given(decision="reject") <= 0.3
    policy = solve(Problem(error(), [rule, rejected() >= 0.2]), evidence)
    assert policy.expected(cost(matrix).given(decision="reject"), evidence) <= 0.3 + 1e-5


@pytest.mark.slow
def test_prices_are_those_of_the_level():
    evidence, _ = draw_rows(4000)
    costs, levels = [], (0.148, 0.15, 0.152)
    for level in levels:
        policy = solve(Problem(error(), [error().given(decision="c") <= level]), evidence, tol=1e-9)
        costs.append(policy.expected(error(), evidence))
        if level == 0.15:
            (price,) = policy.prices.values()
    assert price == pytest.approx((costs[0] - costs[2]) / (levels[2] - levels[0]), rel=0.02)
    traced = frontier(policy.problem, evidence, {policy.problem.rules[0]: [0.15]})
    assert float(np.ravel(traced.prices)[0]) == pytest.approx(price, rel=1e-2)
    (reach,) = sensitivity(policy.problem, evidence).statements
    assert reach.price == pytest.approx(price, rel=0.05)


@pytest.mark.slow
def test_rare_decisions_are_held_as_precisely():
    evidence, _ = draw_rows(20_000, concentration=0.5)
    rules = [selected("c") <= 0.01, precision("c") <= 0.5, selected("c") >= 0.005]
    policy = solve(Problem(error(), rules), evidence)
    assert policy.expected(precision("c"), evidence) <= 0.5 + 3e-6
    rough = solve(Problem(error(), rules), evidence, tol=1e-3)  # of the quotient, not of what it is part of
    assert rough.expected(precision("c"), evidence) == pytest.approx(0.5, abs=1e-3)


def test_rules_on_quotients_hold_as_observed():
    evidence, labels = draw_rows(6000, 3)
    rules = [error().given(decision="a") <= 0.2, precision("c") >= 0.8, demographic_parity("sex", tol=0.05)]
    policy = solve(Problem(error() + 0.6 * rejected(), rules), evidence, labels=labels)
    assert policy.solution.status is Status.CONVERGED
    judged = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    assert judged.verdict is Verdict.HOLDS
    rates = {rule.rule: rule for rule in judged.rules}
    assert 0.17 < rates["error().given(decision='a') <= 0.2"].estimate <= 0.2 + 1e-5
    assert 0.83 > rates["precision('c') >= 0.8"].estimate >= 0.8 - 1e-5
    for name, excess in policy.observed.items():
        assert excess == pytest.approx(rates[name].excess, abs=1e-6)


@pytest.mark.slow
def test_where_no_shift_of_the_bound_helps_another_level_does():
    """Few rows are decided "c": as predicted, they leave no room for a margin as large as the error."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet([1, 1, 1], 4000)
    rng.choice(["F", "M"], 4000)
    labels = np.array([rng.choice(["a", "b", "c"], p=p) for p in P])[:2000]
    evidence = Evidence(P[:2000], classes=["a", "b", "c"])
    policy = solve(Problem(error() + 0.6 * rejected(), [precision("c") >= 0.85]), evidence, labels=labels)
    assert policy.solution.status is Status.CONVERGED
    taken = policy.probabilities(evidence)[:, 2]
    assert (taken * (labels == "c")).sum() / taken.sum() >= 0.85


@pytest.mark.slow
def test_certified_on_held_out_rows():
    evidence, labels = draw_rows(12_000, 4)
    fitted, held = evidence.rows(slice(0, 6000)), evidence.rows(slice(6000, None))

    problem = Problem(error() + 0.6 * rejected(), [error().given(decision="a") <= 0.25])
    policy = solve(
        problem,
        fitted,
        labels=labels[:6000],
        guarantee="high_probability",
        held_out=held.with_observed(labels=labels[6000:]),
    )
    assert policy.certificate is not None
    assert policy.expected(error().given(decision="a"), held) < 0.25


@pytest.mark.slow
def test_a_conflict_names_the_quotient():
    evidence, _ = draw_rows(300)
    problem = Problem(error(), [precision("c") >= 0.95, selected("c") >= 0.5])
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(problem, evidence)
    found = caught.value.diagnosis
    assert set(found.conflict) == {"precision('c') >= 0.95", "selected('c') >= 0.5"}
    surest = np.sort(evidence.probabilities[:, 2])[::-1][:150].mean()  # of those that half of the rows leave
    assert found.least["precision('c') >= 0.95"] == pytest.approx(surest, abs=2e-4)
    solve(Problem(error(), [precision("c") >= surest - 3e-4, selected("c") >= 0.5]), evidence)


def test_a_policy_with_quotients_is_saved_and_loaded(tmp_path):
    evidence, _ = draw_rows(300)
    rules = [error().given(sex="F", decision="b") <= 0.2, precision("c") >= 0.7]
    policy = solve(Problem(error() + 0.6 * rejected(), rules), evidence)
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.problem.rules == policy.problem.rules
    assert (loaded.probabilities(evidence) == policy.probabilities(evidence)).all()


def test_a_decision_that_is_never_taken_is_vacuous():
    evidence, labels = draw_rows(400)
    fitted, held = evidence.rows(slice(0, 200)), evidence.rows(slice(200, None))
    policy = solve(Problem(error(), [selected("c") <= 0, precision("c") >= 0.9]), fitted)
    with pytest.warns(GuaranteeWarning, match="argmax"):
        taken = policy.decide(held, method="argmax")
    found = audit(policy, held, labels=labels[200:], decisions=taken)
    (vacuous,) = [rule for rule in found.rules if "precision" in rule.rule]
    assert vacuous.verdict is Verdict.UNJUDGED
    assert "'c' is never taken, so that its ratio is 0/0 and counts as satisfied" in vacuous.reason


@pytest.mark.parametrize("rule", [precision("a") >= 90, error().given(decision="a") <= -1])
def test_percents_are_no_fractions(rule):
    """They would hold where the decision is never taken, and nowhere else."""
    rows = Evidence([[0.9, 0.1], [0.2, 0.8]], classes=["a", "b"])
    with pytest.raises(RuleError, match=r"write 0\.9 for 90 %"):
        solve(Problem(error(), [rule]), rows)


def test_an_objective_of_a_class_that_does_not_exist():
    rows = Evidence([[0.9, 0.1], [0.2, 0.8]], classes=["a", "b"])
    with pytest.raises(RuleError, match=r"label of f1\(\) must be one of the classes"):
        solve(Problem(1 - f1("A")), rows)
