"""The quadratic of a Newton step under many rules on known groups, by block principal pivoting.

Guessed is which multipliers are above zero, and every rule whose guess is refuted changes sides at once
(Kim and Park, 2011). Rules of different cells hardly touch: whether the guesses get better is asked in each
cell by itself, and only where they do not is one rule at a time exchanged. A guess takes one system, which is
sparse where cells are many: then its cost grows with their number alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import splu

from bylaw._base.typing import Floats
from bylaw.formulation.dual import Hessian

_MOST_GUESSES = 100
_PATIENCE = 3  # guesses in a cell that may get no better, before rules are exchanged one by one
_ROUNDING = 1e-12  # relative size of slopes that are none
_DENSE = 0.05  # of the entries of a matrix: from there on, its sparsity saves nothing
_PIVOT = 0.1  # relative size of a diagonal entry that serves as a pivot: symmetry keeps the factors sparse


def pivot_blocks(model: Hessian, target: Floats, guess: NDArray[np.bool_]) -> Floats | None:
    """argmin over x >= 0 of x' model x / 2 - target' x, where `guess` tells which x are free; None if the
    guesses are used up. The model's rules must have cells."""
    assert model.cells is not None
    free, rules = guess, np.arange(len(target))
    fewest = np.full(int(model.cells.max()) + 1, len(target) + 1)
    patience = np.full(len(fewest), _PATIENCE)
    for _ in range(_MOST_GUESSES):
        point = _solve_free(model, target, free)
        if point is None:
            return None
        slopes = model @ point - target
        wrong = np.where(free, point < 0, slopes < -_ROUNDING * abs(target).max())
        if not wrong.any():
            return point
        counts = np.bincount(model.cells[wrong], minlength=len(fewest))
        patience = np.where(counts < fewest, _PATIENCE, patience - 1)
        fewest = np.minimum(counts, fewest)
        last = np.full(len(fewest), -1)
        np.maximum.at(last, model.cells[wrong], rules[wrong])
        free = free ^ (wrong & ((patience >= 0)[model.cells] | (rules == last[model.cells])))
    return None


def _solve_free(model: Hessian, target: Floats, free: NDArray[np.bool_]) -> Floats | None:
    """(M,): the minimum where all but the free rules are zero; None if the system is singular."""
    point, rules = np.zeros(len(target)), np.flatnonzero(free)
    if not len(rules):
        return point
    couplings = sparse.csr_array(model.couplings)[rules]
    touched = np.unique(couplings.indices)
    couplings = couplings[:, touched]
    curvature = sparse.csr_array(sparse.csr_array(model.curvature)[touched][:, touched])
    dense = curvature.nnz > _DENSE * len(touched) ** 2
    try:
        found = (_solve_dense if dense else _solve_sparse)(couplings, curvature, model.ridge, target[rules])
    except (LinAlgError, RuntimeError):
        return None
    point[rules] = found
    return point


def _solve_dense(
    couplings: sparse.csr_array, curvature: sparse.csr_array, ridge: float, target: Floats
) -> Floats:
    """x of (B H B' + ridge) x = target, with couplings B and curvature H."""
    matrix = couplings @ (couplings @ curvature.toarray()).T
    matrix[np.diag_indices_from(matrix)] += ridge
    return cho_solve(cho_factor(matrix, overwrite_a=True, check_finite=False), target, check_finite=False)


def _solve_sparse(
    couplings: sparse.csr_array, curvature: sparse.csr_array, ridge: float, target: Floats
) -> Floats:
    """The same. All rules meet in the overall rates, so that B H B' is dense; the system in x, w = H y and
    y = B' x is not."""
    n_rules, n_places = len(target), len(curvature.indptr) - 1
    one, lift = sparse.eye_array(n_places), ridge * sparse.eye_array(n_rules)
    parts = [[lift, couplings, None], [couplings.T, None, -one], [None, -one, curvature]]
    factors = splu(
        sparse.block_array(parts, format="csc"),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=_PIVOT,
        options={"SymmetricMode": True},
    )
    return factors.solve(np.append(target, np.zeros(2 * n_places)))[:n_rules]
