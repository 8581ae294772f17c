"""Prices at a bound of zero are slopes of the exact program's optimum, though multipliers are not unique."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    Problem,
    custom,
    demographic_parity,
    equalized_odds,
    error,
    explain,
    frontier,
    precision,
    rejected,
    selected,
    solve,
)
from bylaw.program import compile_problem
from bylaw.reductions._policies import find_least_multipliers
from helpers.generated_rows import Rows
from helpers.reference import error_loss, one_hot, parity


def find_least_cost(rows, members, tol):
    """Of the exact program: error under parity of these memberships, (n, S), within the tolerance."""
    n, n_actions = len(rows.P), rows.K
    rules = parity(members, rows.K, tol, n_actions)
    answer = linprog(
        error_loss(rows.P, n_actions).ravel() / n,
        A_ub=np.array([cost.ravel() / n for cost, _ in rules]),
        b_ub=[bound for _, bound in rules],
        A_eq=sparse.kron(sparse.eye(n), np.ones((1, n_actions))),
        b_eq=np.ones(n),
        bounds=(0, 1),
    )
    return answer.fun


@pytest.mark.parametrize("attribute", ["known", "hidden"])
@pytest.mark.parametrize(("n_groups", "n_classes"), [(2, 2), (3, 2), (4, 2), (3, 3)])
def test_the_price_of_exact_parity_is_the_slope_at_zero(n_groups, n_classes, attribute):
    rows = Rows(n=400, K=n_classes, S=n_groups, seed=n_groups)
    members = one_hot(rows.group, n_groups) if attribute == "known" else rows.T
    step = 1e-5
    slope = (find_least_cost(rows, members, 0.0) - find_least_cost(rows, members, step)) / step
    family = demographic_parity(attribute, tol=0)
    policy = solve(Problem(error(), [family]), rows.evidence(), beta=20_000.0)
    assert policy.prices[str(family)] == pytest.approx(slope, rel=0.02)
    found = frontier(Problem(error(), [family]), rows.evidence(), {family: [0.0, 0.01]}, beta=20_000.0)
    assert found.prices[0, 0] == pytest.approx(policy.prices[str(family)], rel=0.02)


def test_decisions_stay_as_they_are():
    rows = Rows(n=300, K=3, S=3, seed=1)
    problem = Problem(error(), [equalized_odds("known", tol=0), rejected() <= 0.1])
    policy = solve(problem, rows.evidence())
    form = compile_problem(problem, rows.evidence())
    multipliers = policy.solution.multipliers
    found = find_least_multipliers(form, multipliers)
    assert found.min() >= 0
    assert (found / form.scales).sum() <= (multipliers / form.scales).sum() + 1e-12
    opposite = found[: len(found) // 2 * 2].reshape(-1, 2)
    assert (opposite.min(axis=1) <= 1e-9).all()
    assert policy.rule_prices[-1].multiplier == pytest.approx((multipliers / form.scales)[-1])
    scores = explain(policy, rows.evidence()).scores * policy.beta
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = chances / chances.sum(axis=1, keepdims=True)
    assert shares == pytest.approx(policy.probabilities(rows.evidence()), abs=1e-6)


def test_multipliers_that_are_unique_are_kept():
    rows = Rows(n=300, K=2, S=2, seed=0)
    problem = Problem(error(), [precision(1) >= 0.8, selected(1).given(known=0) >= 0.9 * selected(1)])
    form = compile_problem(problem, rows.evidence())
    multipliers = np.array([0.3, 0.2])
    assert (form.bounds == 0).all()
    assert find_least_multipliers(form, multipliers) is multipliers


def test_the_least_prices_are_those_of_rules_in_their_own_units():
    """A budget in thousands and the same one in tenths: one more of each is one tenth more."""
    rng = np.random.default_rng(4)
    rows = Evidence(rng.dirichlet([1, 1], 300), costs={"thousands": rng.normal(size=(300, 2))})
    budget = custom("thousands")
    form = compile_problem(Problem(error(), [budget <= 0, 10_000 * budget <= 0]), rows)
    multipliers = np.array([2.0, 0.0])
    least = form.prices(find_least_multipliers(form, multipliers))
    assert least == pytest.approx([0.0, form.prices(multipliers)[0] / 10_000], rel=1e-9)
