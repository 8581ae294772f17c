"""The linear program of parity, for solvers of linear programs.

Unknown are the chances of each decision on each row, (n_rows, n_classes - 1) since the first class takes
the rest, and the rate of each decision in each cell of rows: a group, or a group and a true label. Rates as
unknowns of their own keep the matrix sparse. The prices of the equations that define them turn the score of
any row, also of a new one, into a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sparse
from benchmarks.peers.rows import Rows
from scipy.optimize import linprog
from scipy.spatial import KDTree

Law = Callable[[Rows], np.ndarray]  # the chance of each decision, (n_rows, n_classes)


@dataclass(frozen=True)
class Rule:
    """Rates of every decision differ between groups by at most `tol`; with `odds`, given each true label."""

    tol: float
    odds: bool = False
    known: bool = True  # whether the group is there when a decision is made

    def cells(self, rows: Rows) -> sparse.csr_array:
        """P(the row is in the cell | x), (n_rows, n_cells)."""
        n, n_groups = len(rows), rows.groups.max() + 1
        if self.known:
            chances = sparse.csr_array((np.ones(n), rows.groups, np.arange(n + 1)), shape=(n, n_groups))
        else:
            chances = sparse.csr_array(rows.guesses)
        if not self.odds:
            return chances
        return sparse.hstack([chances * column[:, None] for column in rows.scores.T], format="csr")

    def contrasts(self, n_groups: int, n_classes: int) -> sparse.csr_array:
        """One row for each two cells that are compared, (n_pairs, n_cells)."""
        pairs = list(combinations(range(n_groups), 2))
        pair = np.zeros((len(pairs), n_groups))
        for row, (first, second) in enumerate(pairs):
            pair[row, first], pair[row, second] = 1, -1
        return sparse.csr_array(sparse.kron(sparse.eye_array(n_classes if self.odds else 1), pair))


def costs_of(scores: np.ndarray) -> np.ndarray:
    """What deciding for a class costs more than deciding for the first, (n_rows, n_classes - 1)."""
    return scores[:, :1] - scores[:, 1:]


def law_of(rows: Rows, rule: Rule, prices: np.ndarray, chances: np.ndarray) -> Law:
    """Decisions on any rows, from the prices of rates (n_cells, n_classes - 1) and the chances of decisions
    on the fitted rows (n_rows, n_classes - 1)."""
    # Under equalized odds, prices may leave a whole group indifferent; its chances then say more.
    return by_neighbours(rows, chances) if rule.odds else by_prices(rows, rule, prices)


def by_neighbours(fitted: Rows, chances: np.ndarray) -> Law:
    """As the fitted row of the same group with the nearest scores is decided."""
    whole = np.column_stack([1 - chances.sum(axis=1), chances]).clip(0, 1)

    def distribution(rows: Rows) -> np.ndarray:
        decided = np.empty_like(rows.scores)
        for group in np.unique(rows.groups):
            here, there = rows.groups == group, fitted.groups == group
            _, nearest = KDTree(fitted.scores[there]).query(rows.scores[here])
            decided[here] = whole[there][nearest]
        return decided

    return distribution


def by_prices(fitted: Rows, rule: Rule, prices: np.ndarray) -> Law:
    frequencies = rule.cells(fitted).mean(axis=0)

    def distribution(rows: Rows) -> np.ndarray:
        costs = costs_of(rows.scores) + rule.cells(rows) @ (prices / frequencies[:, None])
        best = np.hstack([np.zeros((len(rows), 1)), costs]).argmin(axis=1)
        return np.eye(costs.shape[1] + 1)[best]

    return distribution


def by_scipy(rows: Rows, rule: Rule) -> Law:
    cells, n, free = rule.cells(rows), len(rows), rows.scores.shape[1] - 1
    frequencies = cells.mean(axis=0)
    parts = cells / (n * frequencies)  # a column sums to one: chances in, rates out
    contrasts = rule.contrasts(rows.groups.max() + 1, free + 1)
    eye = sparse.eye_array
    compared = sparse.kron(eye(free), contrasts)
    if free > 1:  # the first class has the rest
        compared = sparse.vstack([compared, sparse.kron(np.ones((1, free)), contrasts)])
    limits = sparse.vstack([compared, -compared])
    nothing = sparse.csr_array((limits.shape[0], n * free))
    inequalities, bounds = sparse.hstack([nothing, limits]), np.full(limits.shape[0], rule.tol)
    if free > 1:
        sums = sparse.hstack([eye(n)] * free + [sparse.csr_array((n, cells.shape[1] * free))])
        inequalities, bounds = sparse.vstack([inequalities, sums]), np.concatenate([bounds, np.ones(n)])
    rates = sparse.hstack([-sparse.kron(eye(free), parts.T), eye(cells.shape[1] * free)])
    costs = np.concatenate([costs_of(rows.scores).T.ravel() / n, np.zeros(rates.shape[0])])
    found = linprog(
        costs,
        A_ub=inequalities.tocsc(),
        b_ub=bounds,
        A_eq=rates.tocsc(),
        b_eq=np.zeros(rates.shape[0]),
        bounds=(0, 1),
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    prices, chances = found.eqlin.marginals.reshape(free, -1).T, found.x[: n * free].reshape(free, n).T
    return law_of(rows, rule, prices, chances)


def by_cvxpy(rows: Rows, rule: Rule) -> Law:
    import cvxpy

    cells, n, free = rule.cells(rows), len(rows), rows.scores.shape[1] - 1
    frequencies = cells.mean(axis=0)
    parts = cells / (n * frequencies)
    contrasts = rule.contrasts(rows.groups.max() + 1, free + 1)
    chances = cvxpy.Variable((n, free), nonneg=True)
    rates = cvxpy.Variable((cells.shape[1], free))
    defined = parts.T @ chances == rates
    obeyed = [defined, cvxpy.abs(contrasts @ rates) <= rule.tol]
    if free > 1:
        obeyed += [
            cvxpy.sum(chances, axis=1) <= 1,
            cvxpy.abs(contrasts @ cvxpy.sum(rates, axis=1)) <= rule.tol,
        ]
    else:
        obeyed += [chances <= 1]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.vdot(costs_of(rows.scores) / n, chances)), obeyed)
    problem.solve(solver=cvxpy.CLARABEL)  # also what it chooses by itself
    if problem.status != "optimal":
        raise RuntimeError(problem.status)
    return law_of(rows, rule, np.asarray(defined.dual_value), chances.value)
