"""The order of rows by their content: the same however they come, and as good as random."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw._base import hash_rows, order_by_content


def test_equal_rows_have_equal_hashes_and_others_do_not():
    column = np.array([0.0, -0.0, 1.0, 1.0 + 2**-52])
    hashes = hash_rows([column])
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 3
    assert (hash_rows(np.array([column, column])) != hashes).all()


def test_the_order_is_that_of_the_content():
    rng = np.random.default_rng(0)
    score, label = rng.integers(0, 4, 300).astype(float), rng.integers(0, 2, 300).astype(float)
    order = order_by_content([score], [label])
    assert sorted(order.tolist()) == list(range(300))
    for _ in range(3):
        shuffled = rng.permutation(300)
        again = order_by_content([score[shuffled]], [label[shuffled]])
        assert (score[shuffled][again] == score[order]).all()
        assert (label[shuffled][again] == label[order]).all()


def test_other_columns_count_only_among_equal_rows():
    rng = np.random.default_rng(1)
    score = rng.random(200)
    orders = [order_by_content([score], [rng.random(200)]) for _ in range(2)]
    assert (orders[0] == orders[1]).all()


def test_equal_rows_do_not_stand_together():
    """Of 2,000 samples of 30 zeros and 30 ones, each place has a one in about half, and so often it is
    followed by its like (29 of 59)."""
    rng = np.random.default_rng(2)
    total, alike = np.zeros(60), 0.0
    for _ in range(2000):
        extra = rng.random()  # another sample each time
        column = np.repeat([extra, 1.0 + extra], 30)
        found = column[order_by_content([column], [column])] > 1
        total += found
        alike += np.mean(found[1:] == found[:-1]) / 2000
    assert alike == pytest.approx(29 / 59, abs=0.01)
    assert np.abs(total / 2000 - 0.5).max() < 4.5 * 0.5 / np.sqrt(2000)
