"""Matrices of coefficients: dense where they are small, sparse where they are not."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats

Matrix: TypeAlias = Floats | sparse.csr_array
_SMALL = 2**12  # entries, of which a dense product is faster than the overhead of a sparse one


def compact(matrix: Matrix) -> Matrix:
    """The same matrix for products: a sparse one takes tens of microseconds, however small it is."""
    return as_dense(matrix) if math.prod(matrix.shape or ()) <= _SMALL else matrix


def as_dense(matrix: Matrix) -> Floats:
    return matrix.toarray() if isinstance(matrix, sparse.sparray) else matrix


def add_entries(
    values: Floats, rows: NDArray[np.integer], columns: NDArray[np.integer], shape: tuple[int, int]
) -> Matrix:
    """The matrix with these values, (n,), at these places; where several share one, with their sum."""
    if math.prod(shape) > _SMALL:
        return sparse.csr_array((values, (rows, columns)), shape=shape)
    matrix = np.zeros(shape)
    np.add.at(matrix, (rows, columns), values)
    return matrix


def find_columns(matrix: Matrix) -> NDArray[np.integer]:
    """The columns with any entry, in order."""
    if isinstance(matrix, np.ndarray):
        return np.flatnonzero(matrix.any(axis=0))
    return np.unique(matrix.indices)


def find_mirrors(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """(n_rows,): for each row the first that equals it or its negative."""
    first: dict[tuple[bytes, bytes], int] = {}
    mirrors = np.arange(len(matrix.indptr) - 1)
    for j in range(len(mirrors)):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        places, values = matrix.indices[part].tobytes(), np.asarray(matrix.data[part], dtype=np.float64)
        same = first.setdefault((places, values.tobytes()), j)
        mirrors[j] = min(same, first.get((places, (-values).tobytes()), j))
    return mirrors
