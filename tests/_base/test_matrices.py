"""Small matrices are dense, large ones sparse, and both say the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bylaw._base import as_dense, compact, find_columns, find_mirrors


@pytest.mark.parametrize("width", [5, 5000])
def test_columns_with_entries(width):
    rows, columns = np.array([0, 2, 0]), np.array([3, 1, 3])
    matrix = compact(sparse.csr_array((np.array([1.0, 2.0, 4.0]), (rows, columns)), shape=(3, width)))
    assert sparse.issparse(matrix) == (width == 5000)
    assert as_dense(matrix)[0, 3] == 5.0
    assert find_columns(matrix).tolist() == [1, 3]


def test_compact_leaves_what_is_dense():
    dense = np.eye(3)
    assert compact(dense) is dense
    np.testing.assert_array_equal(compact(sparse.csr_array(dense)), dense)


def test_mirrors_are_the_first_equal_or_opposite_rows():
    rows = [[1.0, 0, 2], [0, 3, 0], [-1.0, 0, -2], [1.0, 0, 2], [0, -3, 0], [2.0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert find_mirrors(sparse.csr_array(rows)).tolist() == [0, 1, 0, 0, 1, 5, 6, 6]
