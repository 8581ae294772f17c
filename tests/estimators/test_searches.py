"""Cross-validation and grid searches: a scorer that cannot score is an error of `fit` with what to write."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, disagreement, miscoverage, rejected, size
from helpers.people import PARITY, SEX, X, Y

FEW = slice(0, 300)
X_FEW, Y_FEW, SEX_FEW = X[FEW], Y[FEW], SEX[FEW]
OPTIONS = {"cv": 2, "margin": 0.0, "random_state": 0}


def make(rules=(PARITY,), **options):
    return ConstrainedClassifier(LogisticRegression(), list(rules), **OPTIONS, **options)


def search(model, **options):
    return GridSearchCV(model, {"margin": [0.0, 1.0]}, cv=2, **options)


def read_lines(message):
    """The lines of code in an error."""
    return [
        line.strip() for line in message.splitlines() if line.strip().startswith(("sklearn.", "clf = clf."))
    ]


@pytest.mark.slow
def test_without_routing_the_error_has_two_lines_that_work():
    clf = make()
    with pytest.raises(ValueError, match="but not to score: enable metadata routing") as caught:
        search(clf).fit(X_FEW, Y_FEW, sensitive_features=SEX_FEW)
    lines = read_lines(str(caught.value))
    assert lines == [
        "sklearn.set_config(enable_metadata_routing=True)",
        "clf = clf.set_fit_request(sensitive_features=True).set_score_request(sensitive_features=True)",
    ]
    names = {"sklearn": sklearn, "clf": clf}
    try:
        for line in lines:
            exec(line, names)
        found = search(names["clf"], error_score="raise").fit(X_FEW, Y_FEW, sensitive_features=SEX_FEW)
    finally:
        sklearn.set_config(enable_metadata_routing=False)
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_a_pipeline_and_labels_of_an_earlier_model_are_told_the_same():
    pipe = make_pipeline(StandardScaler(), make([disagreement("old") <= 0.1]))
    with pytest.raises(ValueError, match=r"set_score_request\(reference=True\)"):
        cross_val_score(
            pipe, X_FEW, Y_FEW, cv=2, params={"constrainedclassifier__reference": np.roll(Y_FEW, 1)}
        )


def test_accuracy_needs_no_groups_and_so_gets_none():
    with pytest.raises(
        ValueError, match=r"accuracy_score calls predict without sensitive_features, .* Leave"
    ):
        search(make(), scoring="accuracy").fit(X_FEW, Y_FEW, sensitive_features=SEX_FEW)


def test_accuracy_of_sets_says_what_to_use():
    sets = ConstrainedClassifier(LogisticRegression(), miscoverage() <= 0.2, minimize=size(), **OPTIONS)
    with pytest.raises(ValueError, match=r"the decisions are sets of labels\. Leave out scoring="):
        cross_validate(sets, X_FEW, Y_FEW, cv=2, scoring=["accuracy", "f1_macro"])
    assert np.isfinite(cross_val_score(sets, X_FEW, Y_FEW, cv=2)).all()


def test_accuracy_with_rejections_says_that_they_count_as_errors():
    clf = make([rejected() <= 0.1])
    with pytest.warns(UserWarning, match=r"counts a rejection as a wrong label\. Leave out scoring="):
        scores = cross_val_score(clf, X_FEW, Y_FEW, cv=2, scoring="accuracy")
    assert (scores < cross_val_score(clf, X_FEW, Y_FEW, cv=2)).all()


@pytest.mark.slow
def test_what_can_score_is_left_alone():
    """Labels alone, the classifier's own score, a function of the caller, and a scorer outside a search."""
    assert np.isfinite(cross_val_score(make(()), X_FEW, Y_FEW, cv=2, scoring="accuracy")).all()
    clf = make([rejected() <= 0.1])

    def answer_rate(model, features, labels):
        return 1 - model.expected("rejected()", features)

    assert cross_val_score(clf, X_FEW, Y_FEW, cv=2, scoring=answer_rate) == pytest.approx([0.9] * 2, abs=0.05)
    groups = {"sensitive_features": SEX_FEW}

    def with_groups(model, features, labels):
        return model.score(features, labels, sensitive_features=SEX_FEW[: len(labels)])

    scores = cross_val_score(make(), X_FEW, Y_FEW, cv=2, scoring=with_groups, params=groups)
    assert np.isfinite(scores).all()
    assert get_scorer("accuracy")(make(()).fit(X_FEW, Y_FEW), X_FEW, Y_FEW) > 0.5
