"""Audits of a fitted classifier, and classifiers with a guarantee."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from bylaw import EvidenceError, OptionError, demographic_parity, error, rejected
from helpers.people import SEX, X, Y, classifier, unaware

TRAIN, TEST = slice(0, 1000), slice(1000, None)
LOOSE = (demographic_parity("sex", tol=0.25), rejected() <= 0.3)


def fitted(make=classifier, rules=LOOSE, **options):
    return make(rules, **options).fit(X[TRAIN], Y[TRAIN], sensitive_features=SEX[TRAIN])


@pytest.mark.slow
@pytest.mark.parametrize("make", [classifier, unaware], ids=["known", "hidden"])
def test_audits_observe_what_violations_do(make):
    model = fitted(make)
    found = model.audit(X[TEST], Y[TEST], sensitive_features=SEX[TEST])
    violations = model.violations(X[TEST], Y[TEST], sensitive_features=SEX[TEST])
    assert {rule.rule: rule.excess for rule in found.rules} == pytest.approx(violations, abs=1e-9)
    assert found.cost_after == pytest.approx(1 - model.score(X[TEST], Y[TEST], sensitive_features=SEX[TEST]))


@pytest.mark.slow
@pytest.mark.parametrize("cv", [5, 0.5], ids=["folds", "split"])
@pytest.mark.parametrize("part", [slice(0, 1000), slice(0, 300), slice(0, 1000, 3)])
def test_rows_of_the_training_are_refused(cv, part):
    model = fitted(cv=cv)
    with pytest.raises(EvidenceError, match="held out"):
        model.audit(X[part], Y[part], sensitive_features=SEX[part])
    estimate = model.audit(X[part], Y[part], sensitive_features=SEX[part], fitted_rows="estimate")
    assert not estimate.certificate


@pytest.mark.slow
def test_rows_of_the_training_are_refused_also_where_scores_are_coarse():
    """32 leaves and two groups. With a certificate, counts of two parts add up, and so does their noise."""
    for options in ({}, {"guarantee": "high_probability", "held_out": 0.4}, {"cv": 0.5}):
        model = fitted(base=DecisionTreeClassifier(max_depth=5), **options)
        with pytest.raises(EvidenceError, match="held out"):
            model.audit(X[TRAIN], Y[TRAIN], sensitive_features=SEX[TRAIN])
        model.audit(X[TEST], Y[TEST], sensitive_features=SEX[TEST])


def test_other_rules_weights_and_decisions():
    model = fitted()
    weights = np.where(SEX == "F", 2.0, 1.0)[TEST]
    options = {"sensitive_features": SEX[TEST], "rules": error() <= 0.6}
    plain = model.audit(X[TEST], Y[TEST], **options)
    weighted = model.audit(X[TEST], Y[TEST], sample_weight=weights, largest_weight=2.0, **options)
    expected = model.expected(error(), X[TEST], Y[TEST], sensitive_features=SEX[TEST], sample_weight=weights)
    assert weighted.rules[0].estimate == pytest.approx(expected)
    assert weighted.rules[0].estimate != pytest.approx(plain.rules[0].estimate, abs=1e-4)
    taken = model.predict(X[TEST], sensitive_features=SEX[TEST])
    judged = model.audit(X[TEST], Y[TEST], decisions=taken, **options)
    assert judged.rules[0].estimate == pytest.approx(((taken != Y[TEST]) & (taken != "reject")).mean())


@pytest.mark.slow
@pytest.mark.parametrize(("make", "cv"), [(classifier, 3), (unaware, 0.5)], ids=["known", "hidden"])
def test_a_guarantee_holds_out_a_part_of_the_rows(make, cv):
    model = fitted(make, guarantee="high_probability", held_out=0.4, cv=cv)
    certificate = model.policy_.certificate
    assert certificate.rows == 400
    assert certificate.p_value <= 0.05
    with pytest.raises(EvidenceError, match="held out"):
        model.audit(X[TRAIN], Y[TRAIN], sensitive_features=SEX[TRAIN])


@pytest.mark.slow
def test_the_models_have_not_seen_the_certificate_rows():
    """A nearest neighbour would know the label of every row it was trained on."""
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append(len(X))
            return super().fit(X, y)

    fitted(base=Watched(), guarantee="high_probability", held_out=0.4, cv=3)
    assert max(seen) == 600


def test_a_frozen_model_needs_no_labels_for_rules_without():
    model = FrozenEstimator(LogisticRegression().fit(X[TRAIN], Y[TRAIN]))
    rest = classifier([rejected() <= 0.3], base=model, guarantee="high_probability").fit(X[TEST])
    assert rest.policy_.certificate.rows == 350  # 70 %: no model is trained on the others


@pytest.mark.slow
def test_weights_reach_the_certificate():
    weights = np.where(SEX == "F", 2.0, 1.0)
    model = classifier(LOOSE, guarantee="high_probability", held_out=0.4)
    rows = {"sensitive_features": SEX[TRAIN], "sample_weight": weights[TRAIN]}
    with pytest.raises(EvidenceError, match="pass largest_weight="):
        model.fit(X[TRAIN], Y[TRAIN], **rows)
    model.set_params(largest_weight=2.0).fit(X[TRAIN], Y[TRAIN], **rows)
    assert model.policy_.certificate.p_value <= 0.05


@pytest.mark.slow
def test_it_is_repeated_by_a_seed_and_cloned():
    model = fitted(guarantee="high_probability", held_out=0.4)
    again = clone(model).fit(X[TRAIN], Y[TRAIN], sensitive_features=SEX[TRAIN])
    assert again.policy_.digest == model.policy_.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guarantee": "certain"}, "guarantee must be one of"),
        (
            {"guarantee": "high_probability", "held_out": 30},
            "held_out must be a number between 0 and 1",
        ),
        ({"guarantee": "high_probability", "held_out": 1e-6}, "leaves no row"),
        ({"guarantee": "high_probability", "confidence": 95}, "confidence must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(OptionError, match=message):
        fitted(**options)
