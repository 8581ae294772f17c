"""The quadratic of a Newton step under many rules on known groups, by block principal pivoting.

Guessed is which multipliers are above zero, and every rule whose guess is refuted changes sides at once
(Kim and Park, 2011). Rules of different cells touch hardly: whether the guesses get better is asked in each cell
by itself, and only where they do not is one rule at a time exchanged. A guess takes one sparse system, whose
cost grows with the number of cells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from bylaw._base.typing import Floats
from bylaw.formulation.dual import Hessian

_MOST_GUESSES = 100
_PATIENCE = 3  # guesses in a cell that may get no better, before rules are exchanged one by one
_ROUNDING = 1e-12  # relative size of slopes that are none
_PIVOT = 0.1  # relative size of a diagonal entry that serves as a pivot: symmetry keeps the factors sparse


def pivot_blocks(model: Hessian, target: Floats, guess: NDArray[np.bool_]) -> Floats | None:
    """argmin over x >= 0 of x' model x / 2 - target' x, where `guess` tells which x are free; None if the
    guesses are used up. The model's rules must have cells."""
    assert model.cells is not None
    free, rules, system = guess, np.arange(len(target)), _build_system(model)
    fewest = np.full(int(model.cells.max()) + 1, len(target) + 1)
    patience = np.full(len(fewest), _PATIENCE)
    for _ in range(_MOST_GUESSES):
        point = _solve_free(system, target, free)
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


def _build_system(model: Hessian) -> sparse.csc_array:
    """(M + 2 Q, M + 2 Q): (B H B' + ridge) x = target is dense, as all rules meet in the overall rates. Its
    twin in x, w = H y and y = B' x is sparse."""
    couplings, curvature = sparse.csr_array(model.couplings), sparse.csr_array(model.curvature)
    ridge = model.ridge * sparse.eye_array(couplings.shape[0])
    one = sparse.eye_array(couplings.shape[1])
    parts = [[ridge, couplings, None], [couplings.T, None, -one], [None, -one, curvature]]
    return sparse.block_array(parts, format="csc")


def _solve_free(system: sparse.csc_array, target: Floats, free: NDArray[np.bool_]) -> Floats | None:
    """(M,): the minimum where all but the free rules are zero; None if the system is singular."""
    point, n_rules = np.zeros(len(target)), np.count_nonzero(free)
    if not n_rules:
        return point
    n_places = (system.shape[0] - len(target)) // 2
    touched = np.zeros(n_places, dtype=bool)
    part = system[:, np.flatnonzero(free)]
    touched[part.indices[part.indices >= len(target)] - len(target)] = True
    kept = np.flatnonzero(np.concatenate([free, touched, touched]))
    try:
        factors = splu(
            system[:, kept][kept],
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=_PIVOT,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None
    point[free] = factors.solve(np.append(target[free], np.zeros(len(kept) - n_rules)))[:n_rules]
    return point
