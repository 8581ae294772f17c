"""Hashes of rows, and an order of rows that depends on nothing but their content."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats

Hashes = NDArray[np.uint64]

HEX_DIGITS = 13  # of a SHA-256 for each uniform number: exact as a float, and easy to say in SQL
PER_DIGEST = 4  # such numbers in its 256 bits
_START = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def hash_rows(columns: Floats | Sequence[Floats]) -> Hashes:
    """One hash per row, (n_rows,), of an array (n_columns, n_rows) or a list of columns (n_rows,); equal rows
    have equal ones."""
    n_rows = columns.shape[1] if isinstance(columns, np.ndarray) else len(columns[0])
    mixed = np.full(n_rows, _START)
    for column in columns:
        mixed ^= (column + 0.0).view(np.uint64)  # -0.0 is 0.0
        _mix(mixed)
    return mixed


def order_by_content(first: Sequence[Floats], others: Sequence[Floats]) -> NDArray[np.intp]:
    """A random order of the rows, (n_rows,), that depends on what is in them and not on how they come.

    Rows are sorted by a hash of their columns, and then shuffled with a seed that is made of the hashes:
    those that are alike would otherwise stand together. `others` count only among rows that are alike in the
    `first` columns.
    """
    hashes = hash_rows(first)
    ranked = np.lexsort((hash_rows(others), hashes))
    seed = int(hashes.sum(dtype=np.uint64))
    return ranked[np.random.default_rng(seed).permutation(len(ranked))]


def _mix(hashes: Hashes) -> None:
    for _ in range(2):
        hashes *= _ODD
        hashes ^= hashes >> _HALF
