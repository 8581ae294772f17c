"""Matrices of coefficients: dense where they are small, sparse where they are not."""

from __future__ import annotations

import math
from typing import TypeAlias

from scipy import sparse

from bylaw._base.typing import Floats

Matrix: TypeAlias = Floats | sparse.csr_array
_SMALL = 2**12  # entries, of which a dense product is faster than the overhead of a sparse one


def compact(matrix: sparse.csr_array) -> Matrix:
    """The same matrix for products: a sparse one takes tens of microseconds, however small it is."""
    return matrix.toarray() if math.prod(matrix.shape or ()) <= _SMALL else matrix


def as_dense(matrix: Matrix) -> Floats:
    return matrix.toarray() if isinstance(matrix, sparse.sparray) else matrix
