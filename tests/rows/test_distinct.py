"""Distinct numbers by counting, as by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw.rows._groups import find_distinct


@pytest.mark.parametrize(
    "vector",
    [
        np.array([3, -2, 3, 7, -2]),
        np.array([True, False, True]),
        np.array([255, 0, 7], dtype=np.uint8),
        np.array([2**63 + 5, 2**63 + 1], dtype=np.uint64),
        np.array([10**12, -(10**12), 0]),
        np.array([], dtype=np.int64),
    ],
)
def test_as_by_sorting(vector):
    values, places = find_distinct(vector)
    expected, its_places = np.unique(vector, return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert values.dtype == vector.dtype
    assert places.tolist() == its_places.tolist()
