"""Numerical helpers: small or sparse matrices, softmax and sigmoid, and hashes of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base._typing import Floats

Matrix: TypeAlias = Floats | sparse.csr_array
_SMALL = 2**12  # entries, of which a dense product is faster than the overhead of a sparse one


def compact(matrix: Matrix) -> Matrix:
    """Return the same matrix, dense if it is small: a sparse product takes tens of microseconds."""
    return as_dense(matrix) if math.prod(matrix.shape or ()) <= _SMALL else matrix


def as_dense(matrix: Matrix) -> Floats:
    return matrix.toarray() if isinstance(matrix, sparse.sparray) else matrix


def find_columns(matrix: Matrix) -> NDArray[np.integer]:
    """Return the columns with any entry, in order."""
    if isinstance(matrix, np.ndarray):
        return np.flatnonzero(matrix.any(axis=0))
    return np.unique(matrix.indices)


def find_mirrors(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Return for each row the first that equals it or its negative, (n_rows,)."""
    first: dict[tuple[bytes, bytes], int] = {}
    mirrors = np.arange(len(matrix.indptr) - 1)
    for j in range(len(mirrors)):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        places, values = matrix.indices[part].tobytes(), np.asarray(matrix.data[part], dtype=np.float64)
        same = first.setdefault((places, values.tobytes()), j)
        mirrors[j] = min(same, first.get((places, (-values).tobytes()), j))
    return mirrors


# exp(-40) is below the rounding error of a probability: such actions get probability zero.
NEGLIGIBLE = -40.0
_TILE = 2**18  # bytes of scores at a time: what one step writes, the next one finds in the cache


def softmax(scores: Floats) -> Floats:
    """Turn scores (n_actions, n_rows) into probabilities in place; return log-sum-exp, (n_rows,)."""
    peak, total = normalize(scores, scores)
    return np.log(total, out=total) + peak


def normalize(scores: Floats, out: Floats) -> tuple[Floats, Floats]:
    """Write probabilities to `out`, which may be the scores; these are overwritten.

    Return the largest score and the sum of exp(score - largest), (n_rows,) each.
    """
    peak = scores.max(axis=0)
    scores -= peak
    _exp_or_zero(scores)
    total = scores.sum(axis=0)
    np.divide(scores, total, out=out)
    return peak, total


def sigmoid(scores: Floats) -> Floats:
    """Turn scores (n_labels, n_rows) into probabilities in place; return the sum of softplus, (n_rows,)."""
    potential = np.zeros(scores.shape[1])
    for part in split_labels(scores):
        potential += np.maximum(part, 0.0).sum(axis=0)
        potential += np.log(_sigmoid(part)).sum(axis=0)
    return potential


def separate(scores: Floats, out: Floats) -> None:
    """Write the sigmoid of scores to `out`, which may be the scores; these are overwritten."""
    for part, target in zip(split_labels(scores), split_labels(out), strict=True):
        _sigmoid(part)
        target[...] = part


def split_labels(scores: Floats) -> Iterator[Floats]:
    """Yield a few labels at a time of scores (n_labels, n_rows), which fit in the cache."""
    step = max(_TILE // (scores.itemsize * max(scores.shape[1], 1)), 1)
    return (scores[start : start + step] for start in range(0, len(scores), step))


def _sigmoid(scores: Floats) -> Floats:
    """Turn scores into probabilities in place; return 1 + exp(-|score|), (n_labels, n_rows)."""
    included = scores > 0
    np.negative(np.abs(scores, out=scores), out=scores)
    _exp_or_zero(scores)
    above_one = 1.0 + scores
    np.copyto(scores, 1.0, where=included)
    scores /= above_one
    return above_one


def _exp_or_zero(scores: Floats) -> None:
    """Take exp of scores <= 0 in place, zero where negligible.

    At a large beta almost every row is decided, and only few entries need exp; both ways give the same bits.
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

HEX_DIGITS = 13  # of a SHA-256 for each uniform number: exact as a float, and easy to say in SQL
PER_DIGEST = 4  # such numbers in its 256 bits


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

    Rows are sorted by a hash of their columns, and then shuffled with a seed that is made of the hashes:
    equal rows would otherwise stand together. `others` count only among rows that are equal in the `first`
    columns.
    """
    hashes = hash_rows(first)
    ranked = np.lexsort((hash_rows(others), hashes))
    seed = int(hashes.sum(dtype=np.uint64))
    return ranked[np.random.default_rng(seed).permutation(len(ranked))]
