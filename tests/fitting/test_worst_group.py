"""The worst group's rate as an objective, against the epigraph form of the exact linear program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    EvidenceError,
    InfeasibleRulesError,
    OptionError,
    Policy,
    Problem,
    RuleError,
    audit,
    cost,
    demographic_parity,
    diagnose,
    error,
    explain,
    frontier,
    miscoverage,
    rejected,
    sensitivity,
    size,
    solve,
    worst,
)
from bylaw.formulation.simplex import Simplex
from bylaw.language.worst import OVERALL
from bylaw.solvers.base import gradient_mapping
from helpers.generated_rows import Rows
from helpers.reference import on, one_hot, parity, rejection


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
    for (cost_of_rule, bound) in exact_rules:
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
