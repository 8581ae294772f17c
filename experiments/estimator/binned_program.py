"""Parity as a linear program over bins of scores: in each group, the share of each bin that is selected.

As in LinearPost (Xian and Zhao), with the labels' own means in place of calibrated scores.
"""

from __future__ import annotations

import numpy as np
from benchmarks.peers.programs import Rule
from benchmarks.peers.rows import Rows
from scipy.optimize import linprog

BINS = 50  # of each group, with about as many rows each


def solve_binned(rows: Rows, rule: Rule) -> object:
    """P(decision = 1) for each group and bin, such that the groups' rates are within the tolerance."""
    n_groups = int(rows.groups.max()) + 1
    edges = [make_edges(rows.scores[rows.groups == group, 1]) for group in range(n_groups)]
    cells = find_cells(rows, edges)
    n_cells = n_groups * BINS
    mass = np.bincount(cells, minlength=n_cells) / len(rows)
    positive = np.bincount(cells, rows.labels, minlength=n_cells) / len(rows)
    member = np.repeat(np.eye(n_groups), BINS, axis=1)
    shares = member * mass / (member @ mass)[:, None]  # (n_groups, n_cells): selected shares in, rates out
    pairs = [(g, h) for g in range(n_groups) for h in range(n_groups) if g != h]
    found = linprog(
        mass - 2 * positive,  # what selecting costs more than not selecting
        A_ub=np.array([shares[g] - shares[h] for g, h in pairs]),
        b_ub=np.full(len(pairs), rule.tol),
        bounds=(0, 1),
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(found.message)

    def decide(new: Rows) -> np.ndarray:
        chosen = found.x[find_cells(new, edges)]
        return np.column_stack([1 - chosen, chosen])

    return decide


def make_edges(scores: np.ndarray) -> np.ndarray:
    """(BINS - 1,): between the bins."""
    return np.quantile(scores, np.arange(1, BINS) / BINS)


def find_cells(rows: Rows, edges: list[np.ndarray]) -> np.ndarray:
    """(n_rows,): the number of each row's group and bin."""
    bins = np.zeros(len(rows), dtype=int)
    for group, inner in enumerate(edges):
        here = rows.groups == group
        bins[here] = group * BINS + np.searchsorted(inner, rows.scores[here, 1], side="right")
    return bins
