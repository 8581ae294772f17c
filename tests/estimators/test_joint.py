from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.svm import LinearSVC

from bylaw import EvidenceError, OptionError
from bylaw.estimators import JointClassifier


def draw_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    sex = np.where(rng.random(600) < 1 / (1 + np.exp(-X[:, 0])), "F", "M")
    return X, sex, np.where(X[:, 1] + (sex == "F") + rng.normal(size=600) > 0, 1, 0)


X, SEX, LABEL = draw_rows()


def objects(*columns):
    return np.array(columns, dtype=object).T


def test_group_and_label_are_learned_together():
    columns = {"sex": SEX, "label": LABEL}
    model = JointClassifier(LogisticRegression()).fit(X, columns)
    joint = model.predict_joint(X)
    assert model.values_ == (("F", "M"), (0, 1))
    assert joint.shape == (600, 2, 2)
    assert joint.sum(axis=(1, 2)) == pytest.approx(np.ones(600))
    # The label depends on sex beyond X, which a product of marginals would lose.
    sex, label = model.predict_proba(X)
    together = joint[:, 0, 1].mean() - (sex[:, 0] * label[:, 1]).mean()
    observed = ((SEX == "F") & (LABEL == 1)).mean() - (sex[:, 0] * label[:, 1]).mean()
    assert observed > 0.03
    assert together == pytest.approx(observed, abs=0.01)


@pytest.mark.parametrize(
    "wrap", [pandas.DataFrame, polars.DataFrame, lambda c: np.array(list(c.values()), dtype=object).T]
)
def test_columns_come_as_frames_or_arrays(wrap):
    columns = {"sex": SEX, "label": LABEL}
    plain = JointClassifier(LogisticRegression()).fit(X, columns).predict_joint(X)
    assert np.array_equal(JointClassifier(LogisticRegression()).fit(X, wrap(columns)).predict_joint(X), plain)


def test_cells_that_nobody_is_in_have_no_chance():
    label = np.where(SEX == "F", 1, LABEL)
    joint = JointClassifier(BernoulliNB()).fit(X, {"sex": SEX, "label": label}).predict_joint(X)
    assert (joint[:, 0, 0] == 0).all()
    assert joint.sum(axis=(1, 2)) == pytest.approx(np.ones(600))


def test_a_decision_function_is_calibrated():
    joint = JointClassifier(LinearSVC()).fit(X, {"sex": SEX, "label": LABEL}).predict_joint(X)
    assert joint[:, 0].sum(axis=1).mean() == pytest.approx((SEX == "F").mean(), abs=0.03)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (SEX, r"shape \(n_rows, n_columns\), got the shape \(600,\)"),
        ({"sex": SEX, "label": LABEL[:9]}, "of the same length"),
        ({"sex": np.where(X[:, 0] > 0, None, SEX)}, "missing values"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(EvidenceError, match=message):
        JointClassifier(LogisticRegression()).fit(X, columns)


def test_an_estimator_without_probabilities():
    with pytest.raises(OptionError, match="predict_proba or decision_function"):
        JointClassifier(object()).fit(X, {"sex": SEX})


def test_marginals_are_sums_of_the_joint():
    label = np.where(X[:, 1] > 0.8, 2, LABEL)  # three labels, two groups: shapes cannot be swapped
    model = JointClassifier(LogisticRegression()).fit(X, {"sex": SEX, "label": label})
    joint, (sex, labels) = model.predict_joint(X), model.predict_proba(X)
    np.testing.assert_allclose(sex, joint.sum(axis=2))
    np.testing.assert_allclose(labels, joint.sum(axis=1))
