"""Actions that nothing tells apart are named, and the problem that the warning proposes does."""

from __future__ import annotations

import re
import time
import warnings

import numpy as np
import pytest

from bylaw import (
    Evidence,
    GuaranteeWarning,
    Problem,
    custom,
    error,
    f1,
    parse,
    precision,
    rejected,
    selected,
    solve,
)
from bylaw.reductions._warnings import find_alike_actions

TWO = Evidence(np.random.default_rng(0).dirichlet([0.5, 1], 500), classes=["fraud", "ok"])
THREE = Evidence(np.random.default_rng(0).dirichlet([1, 1, 1], 500), classes=["fraud", "ok", "other"])
SENIOR = ["fraud", "ok", "senior"]


def drawn(policy, rows):
    """The share of rows that are decided by lot."""
    return (policy.probabilities(rows).max(axis=1) < 0.99).mean()


@pytest.mark.parametrize(
    ("problem", "rows", "names"),
    [
        (Problem(1 - f1("fraud")), THREE, "'ok' and 'other'"),
        (Problem(1 - f1("fraud"), [rejected() <= 0.1]), TWO, "'ok' and 'reject'"),
        (Problem(1 - f1("fraud"), [rejected() <= 0.1]), THREE, "'ok', 'other' and 'reject'"),
        (Problem(1 - f1("fraud"), [selected("senior") <= 0.1], decisions=SENIOR), TWO, "'ok' and 'senior'"),
        (Problem(rejected(), [precision("fraud") >= 0.8]), THREE, "'ok' and 'other'"),
        (Problem(1 - precision("fraud"), [selected("fraud") >= 0.2]), THREE, "'ok' and 'other'"),
    ],
)
def test_chance_decides_and_the_advice_ends_it(problem, rows, names):
    with pytest.warns(GuaranteeWarning, match=f"the policy chooses at random between {names}: ") as told:
        before = solve(problem, rows)
    assert len(told) == 1
    assert drawn(before, rows) > 0.4
    advice = re.search(r"minimize (error\(\)) subject to (?:its rules and )?(.*)$", str(told[0].message))
    again = Problem(parse(advice[1]), [*problem.rules, parse(advice[2])], decisions=problem.decisions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = solve(again, rows)
    assert drawn(policy, rows) < 0.05
    assert policy.expected(error(), rows) < before.expected(error(), rows) - 0.01
    value = before.expected(problem.minimize, rows)
    assert policy.expected(problem.minimize, rows) <= value + 0.011 * abs(value) + 0.002


def test_options_of_one_cost():
    decisions = ["fraud", "ok", "junior", "senior"]
    alike = error() + 0.1 * selected("junior") + 0.1 * selected("senior")
    with pytest.warns(GuaranteeWarning, match="between 'junior' and 'senior': .*gives each a different cost"):
        solve(Problem(alike, decisions=decisions), TWO)
    solve(Problem(alike + 0.01 * selected("senior"), decisions=decisions), TWO)


def test_without_chance_the_first_is_taken():
    with pytest.warns(GuaranteeWarning, match="the policy always takes the first of 'ok' and 'other'"):
        policy = solve(Problem(1 - f1("fraud")), THREE, deterministic=True)
    assert "other" not in set(policy.decide(THREE))


def test_rows_that_are_alike_are_no_actions_that_are():
    evidence = Evidence([[0.5, 0.5]] * 20, costs={"price": np.tile([1e-6, 2e-6], (20, 1))})
    solve(Problem(error()), evidence)
    solve(Problem(custom("price")), evidence)


@pytest.mark.slow
def test_many_classes_are_compared_in_less_time_than_they_are_solved():
    """Pair by pair it would take longer. CPU time, which a busy machine does not change much."""
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.dirichlet(np.full(800, 0.05), 200))
    start = time.process_time()
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    solved = time.process_time()
    assert find_alike_actions(policy, evidence) == ()
    assert time.process_time() - solved < solved - start


def test_actions_that_a_cost_below_zero_tells_apart_are_not_alike():
    rng = np.random.default_rng(2)
    first = rng.random(200)
    first[0] = 0.0  # the largest cost of either action is zero, as if the cost did not matter
    second = np.roll(first, 100)
    rows = Evidence(
        costs={"usd": -np.column_stack([first, second, np.zeros(200)])}, options=["east", "west", "stay"]
    )
    problem = Problem(selected("east") + selected("west"), [custom("usd") <= -0.4])
    assert find_alike_actions(solve(problem, rows), rows) == ()
