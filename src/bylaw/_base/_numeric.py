"""Types of arrays, small or sparse matrices, softmax and sigmoid, and hashes of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Value = str | int | float | bool  # a label, or a value of a group
Matrix: TypeAlias = Floats | sparse.csr_array
_SMALL = 2**12  # largest number of entries for which a dense product is faster than a sparse one


def compact(matrix: Matrix) -> Matrix:
    """Return the matrix as a dense array if it is small, because sparse products have a large overhead."""
    return as_dense(matrix) if math.prod(matrix.shape or ()) <= _SMALL else matrix


def as_dense(matrix: Matrix) -> Floats:
    return matrix.toarray() if isinstance(matrix, sparse.sparray) else matrix


def find_columns(matrix: Matrix) -> NDArray[np.integer]:
    """Return the indices of the columns with nonzero entries, in order."""
    if isinstance(matrix, np.ndarray):
        return np.flatnonzero(matrix.any(axis=0))
    return np.unique(matrix.indices)


def find_mirrors(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Return, for each row, the index of the first row that equals it or its negative, (n_rows,)."""
    first: dict[tuple[bytes, bytes], int] = {}
    mirrors = np.arange(len(matrix.indptr) - 1)
    for j in range(len(mirrors)):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        places, values = matrix.indices[part].tobytes(), np.asarray(matrix.data[part], dtype=np.float64)
        same = first.setdefault((places, values.tobytes()), j)
        mirrors[j] = min(same, first.get((places, (-values).tobytes()), j))
    return mirrors


# Actions with smaller scores, relative to the largest, get probability zero, because exp(-40) is below the
# rounding error of a probability.
NEGLIGIBLE = -40.0
_TILE = 2**18  # bytes of scores that are processed at a time, so that they stay in the cache


def softmax(scores: Floats) -> Floats:
    """Replace scores (n_actions, n_rows) by probabilities in place; return log-sum-exp, (n_rows,)."""
    peak, total = normalize(scores, scores)
    return np.log(total, out=total) + peak


def normalize(scores: Floats, out: Floats) -> tuple[Floats, Floats]:
    """Write the softmax of scores (n_actions, n_rows) to `out`, which may be `scores`; these are overwritten.

    Return the largest score and the sum of exp(score - largest) on each row, (n_rows,) each.
    """
    peak = scores.max(axis=0)
    scores -= peak
    _exp_or_zero(scores)
    total = scores.sum(axis=0)
    np.divide(scores, total, out=out)
    return peak, total


def sigmoid(scores: Floats) -> Floats:
    """Replace scores (n_labels, n_rows) by probabilities in place; return the sums of softplus, (n_rows,)."""
    potential = np.zeros(scores.shape[1])
    for part in split_labels(scores):
        potential += np.maximum(part, 0.0).sum(axis=0)
        potential += np.log(_sigmoid(part)).sum(axis=0)
    return potential


def separate(scores: Floats, out: Floats) -> None:
    """Write the sigmoid of the scores to `out`, which may be `scores`; these are overwritten."""
    for part, target in zip(split_labels(scores), split_labels(out), strict=True):
        _sigmoid(part)
        target[...] = part


def split_labels(scores: Floats) -> Iterator[Floats]:
    """Yield scores (n_labels, n_rows) a few labels at a time, so that they fit in the cache."""
    step = max(_TILE // (scores.itemsize * max(scores.shape[1], 1)), 1)
    return (scores[start : start + step] for start in range(0, len(scores), step))


def _sigmoid(scores: Floats) -> Floats:
    """Replace scores (n_labels, n_rows) by probabilities in place; return 1 + exp(-|score|)."""
    included = scores > 0
    np.negative(np.abs(scores, out=scores), out=scores)
    _exp_or_zero(scores)
    above_one = 1.0 + scores
    np.copyto(scores, 1.0, where=included)
    scores /= above_one
    return above_one


def _exp_or_zero(scores: Floats) -> None:
    """Replace scores <= 0 by their exponentials in place, or by zero if negligible.

    With a large beta almost every decision is certain, so exp is computed only for the few other entries.
    """
    near = scores > NEGLIGIBLE
    undecided = near & (scores < 0)  # exp(0) is 1
    if np.count_nonzero(undecided) > undecided.size // 3 or not scores.flags.c_contiguous:
        np.exp(scores, out=scores)
        scores *= near
        return
    flat = scores.reshape(-1)
    places = np.flatnonzero(undecided)
    terms = np.exp(flat[places])
    scores[...] = near
    flat[places] = terms


Hashes = NDArray[np.uint64]

HEX_DIGITS = 13  # digits of a SHA-256 for each uniform number: exact as a float, and short in SQL
PER_DIGEST = 4  # uniform numbers from the 256 bits of one SHA-256


def hash_rows(columns: Floats | Sequence[Floats]) -> Hashes:
    """Return one hash per row, (n_rows,), of an array (n_columns, n_rows) or a list of columns.

    Equal rows have equal hashes.
    """
    n_rows = columns.shape[1] if isinstance(columns, np.ndarray) else len(columns[0])
    mixed = np.full(n_rows, np.uint64(0x9E3779B97F4A7C15))
    for column in columns:
        mixed ^= (column + 0.0).view(np.uint64)  # -0.0 is 0.0
        for _ in range(2):  # multiply by an odd constant, and let high bits change the low ones
            mixed *= np.uint64(0xD6E8FEB86659FD93)
            mixed ^= mixed >> np.uint64(32)
    return mixed


def order_by_content(first: Sequence[Floats], others: Sequence[Floats]) -> NDArray[np.intp]:
    """Return a random order of the rows, (n_rows,), that depends only on their content.

    Rows are sorted by a hash of their columns `first`, and equal rows by their columns `others`. They are
    then shuffled with a seed computed from the hashes, so that equal rows do not stay together.
    """
    hashes = hash_rows(first)
    ranked = np.lexsort((hash_rows(others), hashes))
    seed = int(hashes.sum(dtype=np.uint64))
    return ranked[np.random.default_rng(seed).permutation(len(ranked))]


def choose_shown(counts: Sequence[float], min_cell: int) -> Mask:
    """Return a mask of the cells that may be shown, (n_cells,), given the number of rows in each cell.

    Cells with fewer than `min_cell` rows are hidden. The sum of the hidden cells can be computed as the total
    less the cells that are shown. If only one cell is hidden, or the hidden cells have fewer than `min_cell`
    rows in all, then the smallest other cells are hidden, too (secondary suppression). Empty cells are shown.

    Examples
    --------
    >>> choose_shown([1, 40, 200], min_cell=10).tolist()
    [False, False, True]
    >>> choose_shown([1, 40, 200], min_cell=0).tolist()
    [True, True, True]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    # Expected numbers of rows are sums, with rounding errors.
    hidden = (sizes > 0) & (sizes < min_cell - 1e-9)
    for place in np.argsort(sizes, kind="stable"):
        if not hidden.any() or (hidden.sum() > 1 and sizes[hidden].sum() >= min_cell):
            break
        hidden[place] |= sizes[place] > 0
    return ~hidden
