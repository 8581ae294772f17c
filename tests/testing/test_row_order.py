"""Rows that are sorted by their content are found; rows in any other order are not complained about."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bylaw import Evidence, GuaranteeWarning, Monitor, Problem, demographic_parity, error, solve
from bylaw.testing._watched_rows import count_changes


def test_changes_by_hand():
    changes, expected, _ = count_changes(np.array([0, 0, 1, 1]))
    assert (changes, expected) == (1, pytest.approx(2.0))  # of the six orders: 1, 2, 3, 1, 2, 3 changes
    assert count_changes(np.zeros(5, np.int64)) == (0, 0.0, 0.0)


def test_the_expected_number_and_its_deviation_by_simulation():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [300, 150, 50])
    found = [count_changes(rng.permutation(codes)) for _ in range(500)]
    assert np.mean([changes for changes, _, _ in found]) == pytest.approx(found[0][1], rel=0.01)
    assert 0.7 < np.std([distance for _, _, distance in found]) < 1.4


@pytest.fixture(scope="module")
def policy():
    rng = np.random.default_rng(0)
    score = rng.random(400)
    rows = Evidence(np.column_stack([1 - score, score]), groups={"sex": rng.choice(["F", "M"], 400)})
    return solve(Problem(error(), [demographic_parity("sex", tol=0.5)]), rows)


def batch(seed, by=None):
    rng = np.random.default_rng(seed)
    score, sex = rng.random(500), rng.choice(["F", "M"], 500)
    labels = (rng.random(500) < score).astype(int)
    order = np.arange(500) if by is None else np.argsort({"sex": sex, "score": score, "label": labels}[by])
    score, sex = score[order], sex[order]
    return Evidence(np.column_stack([1 - score, score]), groups={"sex": sex}), labels[order]


@pytest.mark.parametrize(("by", "said"), [("sex", "sex"), ("score", "the decision"), ("label", "the label")])
def test_sorted_rows_are_named(policy, by, said):
    rows, labels = batch(1, by)
    with pytest.warns(GuaranteeWarning, match=f"rows are sorted by {said}: it changes"):
        Monitor(policy).update(rows, labels=labels)


def test_rows_as_they_come_are_not(policy):
    monitor = Monitor(policy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(30):
            rows, labels = batch(seed)
            monitor.update(rows, labels=[None] * 250 + labels[250:].tolist())
