"""Options beside the labels of a classifier."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from bylaw import ConstrainedClassifier, OptionError, RuleError, custom, disagreement, error, selected

X, Y = make_classification(600, flip_y=0.2, random_state=0)
DECISIONS = [0, 1, "junior", "senior"]
MINIMIZE = error() + 0.2 * selected("junior") + 0.05 * selected("senior")


def make(rules, **options):
    settings = {"minimize": MINIMIZE, "decisions": DECISIONS, "random_state": 0, "margin": 0, **options}
    return ConstrainedClassifier(LogisticRegression(), rules, **settings)


def test_a_classifier_sends_cases_to_experts():
    classifier = make([selected("senior") <= 0.05]).fit(X, Y)
    assert classifier.actions_.tolist() == DECISIONS
    law = classifier.predict_proba(X)
    assert law.shape == (600, 4)
    assert law[:, 3].mean() == pytest.approx(0.05, abs=0.01)
    assert set(classifier.predict(X, ids=range(600))) <= set(DECISIONS)
    wrong = law[np.arange(600), 1 - Y].mean()
    assert classifier.expected("error()", X, Y) == pytest.approx(wrong)
    assert list(classifier.violations(X, Y)) == ["selected('senior') <= 0.05"]


def test_options_of_an_earlier_classifier_agree_with_nothing():
    old = make([selected("senior") <= 0.05]).fit(X, Y)
    new = make([disagreement("old") <= 0.5]).fit(X, Y, reference={"old": old})
    before = old.predict(X)
    law = new.predict_proba(X, reference={"old": before_as_labels(before)})
    same = [law[i, label] for i, label in enumerate(before) if label in (0, 1)]
    assert 1 - sum(same) / 600 <= 0.5 + 0.05


def before_as_labels(decisions):
    return np.array([d if d in (0, 1) else "reject" for d in decisions], dtype=object)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(RuleError, match="'senior' costs nothing"):
        make([], minimize=error() + 0.2 * selected("junior")).fit(X, Y)
    with pytest.raises(RuleError, match="without 1"):
        make([], decisions=[0, "junior"]).fit(X, Y)
    with pytest.raises(OptionError, match="pass a function of the evidence"):
        make([], minimize=custom("skill")).fit(X, Y)
