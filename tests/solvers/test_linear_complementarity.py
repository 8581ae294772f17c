"""By the conditions of the problem itself."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw.solvers.linear_complementarity import solve_linearized


@pytest.mark.parametrize("seed", range(30))
def test_rules_hold_and_bind_where_they_have_a_price(seed):
    rng = np.random.default_rng(seed)
    M = int(rng.integers(1, 6))
    half = rng.normal(size=(M, M))
    skew = rng.normal(size=(M, M))
    slopes = -(half @ half.T + 0.1 * np.eye(M) + 0.3 * (skew - skew.T))  # definite, but not symmetric
    excess, here = rng.normal(size=M), np.maximum(rng.normal(size=M), 0)
    point = solve_linearized(excess, slopes, here)
    there = excess + slopes @ (point - here)
    assert (point >= 0).all()
    assert there.max() <= 1e-9
    assert point * there == pytest.approx(0, abs=1e-9)


def test_multipliers_that_change_nothing_stay():
    assert solve_linearized(np.array([0.3]), np.zeros((1, 1)), np.array([2.0])) == pytest.approx(2.0)
    twice = solve_linearized(np.ones(2), -np.ones((2, 2)), np.array([1.0, 3.0]))  # the same rule two times
    assert twice == pytest.approx([1.5, 3.5])
