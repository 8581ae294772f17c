from __future__ import annotations

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from bylaw.errors import EvidenceError
from bylaw.estimators._inputs import read_labels
from bylaw.estimators._training import make_splits

LABELS = np.repeat(["a", "b"], [40, 60])
X = np.zeros((100, 1))


@pytest.mark.parametrize("labels", [LABELS, None])
def test_folds_are_shuffled_and_repeatable(labels):
    first, again, other = (make_splits(5, X, labels, seed, {}) for seed in (0, 0, 1))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0][1], other[0][1])
    for train, test in first:
        assert np.array_equal(np.sort(np.r_[train, test]), np.arange(100))
        assert np.ptp(np.flatnonzero(np.isin(np.arange(40), test))) > 15  # not a block of neighbours


def test_folds_and_splits_keep_the_shares_of_labels():
    for splits in (make_splits(5, X, LABELS, 0, {}), make_splits(0.5, X, LABELS, 0, {})):
        assert all((LABELS[test] == "a").mean() == pytest.approx(0.4) for _, test in splits)


def test_splits_as_masks():
    mask = np.arange(100) < 50
    ((train, test),) = make_splits([(mask, ~mask)], X, LABELS, 0, {})
    assert np.array_equal(train, np.arange(50))
    assert np.array_equal(test, np.arange(50, 100))


def test_a_frozen_model_has_classes_in_any_order():
    model = FrozenEstimator(LogisticRegression().fit([[0.0], [1.0]], ["a", "b"]))
    model.estimator.classes_ = np.array(["b", "c", "a"])
    codes, classes = read_labels(model, np.zeros((4, 1)), np.array(["a", "b", "c", "a"]))
    assert codes.tolist() == [2, 0, 1, 2]
    assert classes.tolist() == ["b", "c", "a"]


def test_by_default_a_rare_class_has_fewer_folds():
    labels = np.r_[np.zeros(40, int), np.ones(3, int)]
    splits = make_splits(None, np.zeros((43, 1)), labels, 0, {})
    assert len(splits) == 3
    assert all(labels[test].sum() == 1 for _, test in splits)
    assert len(make_splits(None, np.zeros((80, 1)), np.arange(80) % 2, 0, {})) == 5
    with pytest.raises(EvidenceError, match=r"every class must have at least 5 rows if cv=5.* lower cv"):
        make_splits(5, np.zeros((43, 1)), labels, 0, {})
