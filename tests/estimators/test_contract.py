from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from bylaw import (
    ConstrainedClassifier,
)
from helpers.people import GROUPS, X, Y, unaware

OVER_ACTIONS = "predict_proba is over the actions: the classes and the rejection"
RANDOM = "decisions are drawn at random; with ids they do not depend on the batch"


def not_applicable(estimator):
    if not estimator.rules:
        return {}
    return {
        "check_classifiers_train": OVER_ACTIONS,
        "check_estimator_sparse_array": OVER_ACTIONS,
        "check_estimator_sparse_matrix": OVER_ACTIONS,
        "check_methods_sample_order_invariance": RANDOM,
        "check_methods_subset_invariance": RANDOM,
    }


@pytest.mark.slow
@parametrize_with_checks(
    [
        ConstrainedClassifier(LogisticRegression()),  # the defaults
        ConstrainedClassifier(LogisticRegression(), cv=0.5),
        ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", cv=3),
    ],
    expected_failed_checks=not_applicable,
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_clones_and_pickles():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.multipliers_ == fitted.multipliers_
    fresh = clone(fitted)
    assert not hasattr(fresh, "policy_")
    assert fresh.rules == fitted.rules
    assert np.array_equal(
        fresh.fit(X, Y, sensitive_features=GROUPS).predict_proba(X), fitted.predict_proba(X)
    )
