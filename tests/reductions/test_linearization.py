"""Predictive parity, against a grid of linear programs written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    OptionError,
    Policy,
    Problem,
    Verdict,
    audit,
    demographic_parity,
    error,
    frontier,
    precision,
    predictive_parity,
    recall,
    rejected,
    scan,
    selected,
    solve,
)
from bylaw.reductions._linearize import _LevelSearch
from bylaw.reductions._objectives import WarmSolver
from bylaw.report import report
from bylaw.rows import observe
from bylaw.solvers import FullBatch


def draw_rows(n, seed=0):
    """Two classes; the scores of one group are surer than those of the other."""
    rng = np.random.default_rng(seed)
    women = rng.random(n) < 0.5
    yes = np.where(women, rng.beta(2, 3, n), rng.beta(0.6, 0.5, n))
    labels = np.where(rng.random(n) < yes, "yes", "no")
    sex = np.where(women, "F", "M")
    return Evidence(np.column_stack([1 - yes, yes]), classes=["no", "yes"], groups={"sex": sex}), labels


def cost_at(level, yes, women, tol, between):
    """The least error + 0.3 rejections with precisions of "yes" near a level."""
    n = len(yes)
    loss = np.column_stack([yes, 1 - yes, np.full(n, 0.3)]).ravel() / n
    rules, equal = [], []
    room = tol if between == "overall" else tol / 2
    for member in (women, ~women):
        for sign in (1, -1):
            rule = np.zeros((n, 3))
            rule[:, 1] = sign * member * (yes - level) - room * member
            rules.append(rule.ravel() / n)
    if between == "overall":
        whole = np.zeros((n, 3))
        whole[:, 1] = yes - level
        equal = [whole.ravel() / n]
    often = np.zeros((n, 3))
    often[:, 1] = -yes / yes.mean()
    found = linprog(
        loss,
        A_ub=np.vstack([*rules, often.ravel() / n]),
        b_ub=np.append(np.zeros(4), -0.5),
        A_eq=np.vstack([np.kron(np.eye(n), np.ones(3)), *equal]),
        b_eq=np.append(np.ones(n), np.zeros(len(equal))),
        bounds=(0, None),
    )
    return found.fun if found.status == 0 else np.inf


def find_best(yes, women, tol, between):
    """Over a grid of levels, ever finer."""
    low, high = 0.0, 1.0
    for _ in range(4):
        levels = np.linspace(low, high, 21)
        costs = [cost_at(level, yes, women, tol, between) for level in levels]
        k = int(np.argmin(costs))
        low, high = levels[max(k - 1, 0)], levels[min(k + 1, 20)]
    return min(costs)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "between"), [(0, "overall"), (1, "groups"), (2, "overall")])
def test_the_best_level_is_found(seed, between):
    evidence, _ = draw_rows(50, seed)
    yes, women = evidence.probabilities[:, 1], np.asarray(evidence.groups["sex"].codes) == 0
    family = predictive_parity("sex", tol=0.02, between=between, labels=["yes"])
    problem = Problem(error() + 0.3 * rejected(), [family, recall("yes") >= 0.5])
    policy = solve(problem, evidence, beta=1e5)
    best = find_best(yes, women, 0.02, between)
    assert policy.expected(problem.minimize, evidence) == pytest.approx(best, abs=5e-4)
    assert policy.expected(problem.minimize, evidence) >= best - 1e-5
    for found in problem.expand(evidence.classes, evidence.group_values):
        assert not policy.expected(found.rule.excess, evidence) > 1e-4  # not a number for 0/0


@pytest.mark.slow
def test_all_labels_several_attributes_and_other_rules():
    evidence, _ = draw_rows(1500)
    age = np.where(np.arange(1500) % 3 == 0, "old", "young")
    evidence = Evidence(
        evidence.probabilities, classes=["no", "yes"], groups={"sex": evidence.groups["sex"], "age": age}
    )
    rules = [
        predictive_parity(["sex", "age"], tol=0.02),
        demographic_parity("age", tol=0.05),
        rejected() <= 0.1,
        selected("yes") >= 0.2,
    ]
    policy = solve(Problem(error(), rules), evidence)
    expanded = policy.problem.expand(evidence.classes, evidence.group_values)
    assert len(expanded) == 2 * 2 * 2 * 2 + 2 * 2 * 2 + 2
    for found in expanded:
        assert policy.expected(found.rule.excess, evidence) <= 1e-4
    assert str(rules[0]) in policy.prices


@pytest.mark.slow
def test_parity_as_observed():
    evidence, labels = draw_rows(6000)
    family = predictive_parity("sex", tol=0.03, labels=["yes"])
    policy = solve(Problem(error(), [family, selected("yes") >= 0.3]), evidence, labels=labels)
    found = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    assert found.verdict is Verdict.HOLDS
    assert all(rule.excess <= 1e-4 for rule in found.rules)
    assert len(found.rules) == 5


@pytest.mark.slow
def test_a_gap_of_quotients_is_audited():
    evidence, labels = draw_rows(40_000, 1)
    fitted, held = evidence.rows(slice(0, 5000)), evidence.rows(slice(5000, None))
    free = solve(Problem(error(), [selected("yes") >= 0.3]), fitted)
    family = predictive_parity("sex", tol=0.03, labels=["yes"])
    found = audit(free, held, labels=labels[5000:], rules=family)
    gap = precision("yes").given(sex="M") - precision("yes")
    (judged,) = [rule for rule in found.rules if rule.rule == str(gap <= 0.03)]
    taken, sex = free.probabilities(held)[:, 1], np.asarray(held.groups["sex"].codes) == 1
    right = labels[5000:] == "yes"
    by_hand = (taken * right * sex).sum() / (taken * sex).sum() - (taken * right).sum() / taken.sum()
    assert judged.estimate == pytest.approx(by_hand)
    assert judged.lower < by_hand < judged.upper
    assert judged.verdict is Verdict.VIOLATED
    policy = solve(Problem(error(), [predictive_parity("sex", tol=0.0, labels=["yes"])]), fitted)
    assert audit(policy, held, labels=labels[5000:], rules=family).verdict is Verdict.CERTIFIED


@pytest.mark.slow
def test_the_derivative_of_the_cost_is_that_of_the_level():
    """So that the frontier's prices are right: by finite differences."""
    evidence, _ = draw_rows(2000)
    family = predictive_parity("sex", tol=0.02, labels=["yes"])
    found = frontier(Problem(error(), [family]), evidence, {family: [0.019, 0.02, 0.021]}, tol=1e-8)
    slope = (found.cost[0] - found.cost[2]) / 0.002
    assert np.ravel(found.prices)[1] == pytest.approx(slope, rel=0.05)


@pytest.mark.slow
def test_the_policy_is_saved_with_the_family_as_stated(tmp_path):
    evidence, _ = draw_rows(400)
    family = predictive_parity("sex", tol=0.02, labels=["yes"])
    policy = solve(Problem(error(), [family]), evidence)
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json").problem.rules == (family,)
    assert "has that label as its true one" in report(policy, evidence, levels=3).html


@pytest.mark.slow
@pytest.mark.parametrize("observed", [False, True])
def test_prices_and_summaries_speak_of_the_rule_as_stated(observed):
    evidence, labels = draw_rows(1500)
    problem = Problem(error(), [predictive_parity("sex", tol=0.05, labels=["yes"]), rejected() <= 0.1])
    policy = solve(problem, evidence, labels=labels if observed else None)
    assert list(policy.prices) == [str(rule) for rule in problem.rules]
    stated = {str(one.rule): one.rule for one in problem.expand(evidence.classes, evidence.group_values)}
    assert [price.rule for price in policy.rule_prices] == list(stated)
    assert " precision('yes') <= " not in repr(policy)
    if observed:
        rows = observe(evidence.with_observed(labels=labels))
        chances = policy.probabilities(evidence)
        for name, excess in policy.observed.items():
            measured = policy.expected(stated[name].excess, rows, probabilities=chances)
            assert excess == pytest.approx(measured, abs=1e-6)


def test_rows_elsewhere_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas

    from bylaw import Columns

    evidence, _ = draw_rows(100)
    frame = pandas.DataFrame(evidence.probabilities, columns=["no", "yes"])
    frame["sex"] = ["F", "M"] * 50
    frame.to_parquet(tmp_path / "rows.parquet")
    rows = scan(tmp_path / "rows.parquet", Columns(["no", "yes"], groups={"sex": "sex"}))
    with pytest.raises(OptionError, match="must be solved with all rows in memory"):
        solve(Problem(error(), [predictive_parity("sex", tol=0.1)]), rows)


@pytest.mark.slow
def test_a_linear_problem_around_the_solution():
    evidence, _ = draw_rows(400)
    family = predictive_parity("sex", tol=0.02, labels=["yes"])
    found = _LevelSearch(Problem(error(), [family]), WarmSolver(evidence, FullBatch(), "auto", 1e-6)).search()
    texts = [str(rule.rule) for rule in found.dual.form.rules]
    assert [text.partition(" ")[0] for text in texts[:4]] == [
        "precision('yes').given(sex='F')",
        "precision('yes').given(sex='F')",
        "precision('yes').given(sex='M')",
        "precision('yes').given(sex='M')",
    ]
    assert str(found.problem.rules[0]) == str(family)
