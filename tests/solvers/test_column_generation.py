"""Linear programs over mixtures of policies: dual feasible prices, and answers beside the exact program."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from bylaw import Problem, demographic_parity, error, rejected
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.solvers import GAP, ColumnGeneration, MixtureProgram
from bylaw.solvers._linear_program import exact_policy
from helpers.generated_rows import Rows

ROWS = Rows(n=150, K=2, S=2)


def make_dual(*rules):
    form = compile_problem(Problem(error(), rules), ROWS.evidence())
    return Dual(form, make_blocks(form, ROWS.evidence()), 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_projected_prices_are_dual_feasible(seed):
    """No slack pays under them: loosening' lambda <= price, with equality where slack may be negative."""
    rng = np.random.default_rng(seed)
    loosening = sparse.csr_array(np.eye(3)[rng.integers(0, 3, 6)] * rng.uniform(0.5, 2, 6)[:, None])
    price, given = rng.uniform(0.1, 1, 3), rng.normal(0.5, 1, 6)
    program = MixtureProgram(np.arange(6), np.zeros(6), price, loosening)
    found = program.project_prices(given)
    assert (found >= 0).all()
    assert (loosening.T @ found <= price + 1e-12).all()
    kept = program.project_prices(found / 2)
    np.testing.assert_allclose(kept, found / 2)  # what is feasible stays
    free = MixtureProgram(np.arange(6), np.zeros(6), price, loosening, least_slack=-math.inf)
    used = loosening.T @ np.maximum(given, 0) > 0
    np.testing.assert_allclose((loosening.T @ free.project_prices(given))[used], price[used])


def test_the_least_violation_of_one_rule_is_that_of_the_exact_program():
    """The least error under parity: the other rule's own rate as goal, against HiGHS on all rows."""
    dual = make_dual(demographic_parity("known", tol=0.01), rejected() <= 0.1, error() <= 0.0)
    last = dual.n_rules - 1
    goal = np.eye(1, dual.n_rules, last)[0]
    others = np.arange(last)
    program = MixtureProgram(others, goal, np.zeros(0), sparse.csr_array((last, 0)), allowed=1e-9)
    found = ColumnGeneration(dual, None).solve(program, lambda bounds: bounds.within(GAP))
    exact = exact_policy(make_dual(demographic_parity("known", tol=0.01), rejected() <= 0.1))
    assert found.upper == pytest.approx(exact.cost, abs=1e-6)
    assert found.lower == pytest.approx(exact.cost, abs=1e-6)
    assert found.violations[others].max() <= 1e-8
