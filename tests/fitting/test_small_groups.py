"""Groups with few rows that rules refer to: one warning names them all."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bylaw import (
    Evidence,
    GuaranteeWarning,
    Problem,
    demographic_parity,
    equal_opportunity,
    error,
    rejected,
    solve,
)


def draw_rows(counts, seed=0):
    races = np.repeat(list(counts), list(counts.values()))
    scores = np.random.default_rng(seed).random(len(races))
    return Evidence(np.column_stack([1 - scores, scores]), groups={"race": races})


@pytest.mark.parametrize("rule", [demographic_parity("race", tol=0.2), equal_opportunity("race", tol=0.3)])
def test_one_warning_names_all_small_groups_and_their_rows(rule):
    with pytest.warns(GuaranteeWarning) as caught:
        solve(Problem(error(), [rule]), draw_rows({"a": 3, "b": 9, "c": 10, "d": 200}))
    (message,) = [str(one.message) for one in caught]
    assert "race='a' has 3 rows; race='b' has 9 rows" in message
    assert "race='c'" not in message
    assert "Merge them" in message


@pytest.mark.parametrize(
    ("rules", "counts"),
    [
        ([demographic_parity("race", tol=0.2)], {"a": 10, "b": 200}),
        ([rejected() <= 0.1], {"a": 1, "b": 200}),  # no rule refers to them
        ([demographic_parity("race", tol=0.2)], {"a": 2, "b": 3}),  # every group of a small table is small
    ],
)
def test_there_is_no_warning_otherwise(rules, counts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(Problem(error(), rules), draw_rows(counts))
