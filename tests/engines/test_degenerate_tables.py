"""One-hot, constant and tied scores in a database: the solver ends, at the optimum of the exact program."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas
import pytest

from bylaw import (
    Columns,
    Evidence,
    InfeasibleRulesError,
    Problem,
    demographic_parity,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.engines import scan
from helpers.reference import Reference, error_loss, on, one_hot, parity, rejection

KINDS = ["one-hot", "constant", "uniform", "tied", "halves", "mostly one-hot"]
GAPS = [0.0, 1e-4, 1e-2, 0.1]


def draw_scores(kind, rng):
    """(n, K): scores of a degenerate kind."""
    n, n_classes = int(rng.choice([2, 10, 60, 300])), int(rng.integers(2, 5))
    certain = np.eye(n_classes)
    match kind:
        case "one-hot":
            return certain[np.arange(n) % n_classes]
        case "constant":
            return np.tile(rng.dirichlet(np.ones(n_classes)), (n, 1))
        case "uniform":
            return np.full((n, n_classes), 1 / n_classes)
        case "tied":
            return rng.dirichlet(np.ones(n_classes), 3)[rng.integers(0, 3, n)]
        case "halves":
            return (certain[rng.integers(0, n_classes, n)] + certain[rng.integers(0, n_classes, n)]) / 2
        case _:
            scores = rng.dirichlet(np.ones(n_classes), n)
            return np.where(rng.random((n, 1)) < 0.7, certain[rng.integers(0, n_classes, n)], scores)


def solve_in_database(problem, scores, groups):
    names = [f"p{k}" for k in range(scores.shape[1])]
    frame = pandas.DataFrame(scores, columns=names).assign(g=groups)
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        connection.execute("CREATE TABLE t AS SELECT * FROM frame")
        return solve(problem, scan(connection, Columns(names, groups={"g": "g"}), table="t"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_degenerate_tables_are_solved_as_by_the_exact_program(kind, seed):
    rng = np.random.default_rng(seed)
    scores = draw_scores(kind, rng)
    n, n_classes = scores.shape
    groups = np.resize(["x", "y"], n)
    gap, share = float(rng.choice(GAPS)), float((scores.argmax(axis=1) == 0).mean())
    n_actions = n_classes + 1
    rules, costs = [rejected() <= gap], [(rejection(scores), gap)]
    if rng.random() < 0.7:
        rules.append(selected("p0") <= share - gap)
        costs.append((on(0, np.ones(n), n_actions), share - gap))
    if rng.random() < 0.5:
        rules.append(demographic_parity("g", tol=gap))
        costs += parity(one_hot((groups == "y").astype(int), 2), n_classes, gap, n_actions)
    reference = Reference(error_loss(scores, n_actions), costs)
    optimum = reference.optimum()
    problem = Problem(error(), rules)
    if optimum is None:
        with pytest.raises(InfeasibleRulesError):
            solve_in_database(problem, scores, groups)
        return
    policy = solve_in_database(problem, scores, groups)
    evidence = Evidence(scores, classes=[f"p{k}" for k in range(n_classes)], groups={"g": groups})
    decisions = policy.probabilities(evidence)
    assert reference.excesses(decisions).max() < 1e-4
    assert abs(reference.cost(decisions) - optimum) < 2e-3
