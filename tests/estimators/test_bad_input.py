from __future__ import annotations

import numpy as np
import pandas
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bylaw import (
    demographic_parity,
    disagreement,
    error,
    rejected,
    selected,
)
from helpers.people import GROUPS, SEX, N, X, Y, aware, classifier, unaware


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: classifier().fit(X, Y),
            r"sensitive_features must have \['sex'\], to which the rules refer: pass this column",
        ),
        (
            lambda: classifier().fit(X, Y, sensitive_features=GROUPS[["dept"]]),
            r"must have \['sex'\], to which the rules refer, got \['dept'\]: pass this column",
        ),
        (lambda: classifier().fit(X, Y, sensitive_feature=SEX), "did you mean 'sensitive_features'"),
        (lambda: classifier().fit(X, Y, sensitive_features="sex"), "must be a column, got the text 'sex'"),
        (
            lambda: classifier([selected("maybe") <= 0.1]).fit(X, Y),
            r"must be one of the classes .* got 'maybe'",
        ),
        (lambda: classifier(()).fit(X, Y).score(X, pandas.Series(Y)[::-1]), "in another order"),
        (lambda: unaware().fit(X, Y), r"must have the column 'sex', to which the rules refer"),
        (lambda: classifier().fit(X, Y, sensitive_features=SEX[:9]), r"\['sex'\] has 9 rows, but X has 1500"),
        (lambda: classifier().fit(X, Y[:9]), "y has 9 rows, but X has 1500"),
        (lambda: classifier(()).fit(X, Y, sample_weight=[1.0]), "sample_weight has 1 rows"),
        (lambda: classifier(()).fit(X, Y, sample_weight=-np.ones(N)), "sample_weight must be finite"),
        (
            lambda: classifier().fit(X, Y, sensitive_features=GROUPS.sex.where(X.u > -1)),
            r"sensitive_features\['sex'\] has \d+ missing values, the first in row",
        ),
        (lambda: classifier().fit(X, Y, sensitive_features=np.full(N, "F")), "single value"),
        (
            lambda: classifier([demographic_parity("sex", tol={"F": 0.1, "M": 0.1, "X": 0.1})]).fit(
                X, Y, sensitive_features=SEX
            ),
            r"got one for \{'X'\}",
        ),
        (lambda: classifier(()).fit(X, np.full(N, "no")), "got one class"),
        (
            lambda: classifier(()).fit(X, np.r_[["rare"], Y[1:]]),
            r"at least 2 rows if cv=.*, got 1 for \['rare'\]",
        ),
        (
            lambda: classifier((), cv=0.5).fit(X, np.r_[["rare"], Y[1:]]),
            r"at least 2 rows if cv=0.5, got 1 for \['rare'\]",
        ),
        (lambda: classifier(()).fit(X), "requires y to be passed"),
        (lambda: classifier((), cv=1).fit(X, Y), "at least 2 folds"),
        (lambda: classifier((), cv=1.5).fit(X, Y), "between 0 and 1"),
        (lambda: classifier((), base=StandardScaler()).fit(X, Y), "predict_proba or decision_function"),
        (
            lambda: unaware(joint="both").fit(X, Y, sensitive_features=SEX),
            "joint must be one of",
        ),
        (
            lambda: classifier(group_estimator={"race": LogisticRegression()}).fit(
                X, Y, sensitive_features=SEX
            ),
            r"must have models for attributes in the rules, .*, got one for \['race'\]",
        ),
        (
            lambda: classifier([disagreement("old") <= 0.1]).fit(X, Y),
            "must have the labels of the earlier model 'old'",
        ),
        (
            lambda: classifier([disagreement("old") <= 0.1]).fit(X, Y, reference=np.full(N, "maybe")),
            "'maybe' in row 0 is not a class",
        ),
        (
            lambda: classifier([disagreement("a") <= 0.1, disagreement("b") <= 0.1]).fit(X, Y, reference=Y),
            r"the columns that the rules refer to, \['a', 'b'\], got one column",
        ),
        (lambda: classifier().fit(X, Y, sensitive_features=np.full((N, 2), "F")), "2 columns without names"),
        (
            lambda: classifier().fit(X, Y, sensitive_features=GROUPS.sex.sample(frac=1, random_state=0)),
            r"sensitive_features and X have different indexes \(the same labels in another order",
        ),
        (
            lambda: (
                classifier()
                .fit(X, Y, sensitive_features=SEX)
                .predict(X[["v", "u", "w"]], sensitive_features=SEX)
            ),
            "feature names should match",
        ),
        (
            lambda: aware().predict(X[["u"]], sensitive_features=SEX),
            "feature names should match",
        ),
        (lambda: aware().predict(X), r"sensitive_features must have \['sex'\]"),
        (
            lambda: aware().predict(X[:2], sensitive_features=["F", "X"]),
            r"values that the policy was not fitted on: \['X'\]",
        ),
        (
            lambda: classifier(()).fit(X, Y).predict(X, ids=[1, 2]),
            "ids has 2 rows",
        ),
        (
            lambda: classifier((), reject="no", decisions="reject").fit(X, Y),
            "must differ from all classes, got .*; choose another",
        ),
        (
            lambda: classifier(()).fit(X, Y).score(X, np.full(N, "maybe")),
            "labels: 'maybe' in row 0 is not a class",
        ),
    ],
)
def test_bad_input_is_named(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_class_that_a_frozen_model_does_not_know():
    base = FrozenEstimator(DummyClassifier().fit(X, Y))
    with pytest.raises(
        ValueError, match=r"labels that the frozen estimator was trained on, .*, got \['maybe'\]"
    ):
        classifier([error() <= 0.9], base, minimize=rejected()).fit(X, np.full(N, "maybe"))


@pytest.mark.slow
def test_rules_are_judged_on_what_is_seen():
    fitted = classifier([selected("yes").given(label="no") <= 0.2]).fit(X, Y)
    with pytest.raises(ValueError, match="pass y"):
        fitted.violations(X)
    hidden = unaware().fit(X, Y, sensitive_features=SEX)
    with pytest.raises(ValueError, match=r"sensitive_features must have the true \['sex'\]"):
        hidden.violations(X, Y)
