"""calibrator= of the classifier: the policy's own calibration, by default."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from bylaw import OptionError, equalized_odds, error
from helpers.people import DEPT, PARITY, SEX, N, X, Y, classifier, gap, unaware


class Sure(LogisticRegression):
    """Twenty times as sure as it should be."""

    def predict_proba(self, X):
        logit = 20 * self.decision_function(X)
        yes = 1 / (1 + np.exp(-logit))
        return np.column_stack([1 / (1 + np.exp(logit)), yes])


@pytest.mark.slow
def test_the_default_repairs_scores_that_are_too_sure():
    fitted = classifier(base=Sure()).fit(X, Y, sensitive_features=SEX)
    plain = classifier(base=Sure(), calibrator=None).fit(X, Y, sensitive_features=SEX)
    good = classifier(calibrator=None).fit(X, Y, sensitive_features=SEX)
    assert fitted.calibrator == "auto"
    assert fitted.policy_.calibration is not None
    assert plain.policy_.calibration is None
    errors = [one.expected(error(), X, Y, sensitive_features=SEX) for one in (fitted, good, plain)]
    assert errors[0] == pytest.approx(errors[1], abs=0.005)
    assert gap(fitted.predict_proba(X, sensitive_features=SEX)) < 0.04


def test_good_scores_are_left_as_they_are():
    fitted = classifier().fit(X, Y, sensitive_features=SEX)
    assert fitted.policy_.calibration is None


def test_the_policy_reads_the_models_own_probabilities():
    fitted = classifier(base=Sure()).fit(X, Y, sensitive_features=SEX)
    evidence = fitted._make_evidence(X, SEX, None)
    assert evidence.probabilities == pytest.approx(fitted.estimator_.predict_proba(X))
    assert (fitted.predict_proba(X, sensitive_features=SEX) == fitted.policy_.probabilities(evidence)).all()


@pytest.mark.slow
def test_audits_explanations_and_rates_agree():
    fitted = classifier(base=Sure()).fit(X[:1000], Y[:1000], sensitive_features=SEX[:1000])
    new = {"sensitive_features": SEX[1000:]}
    found = fitted.audit(X[1000:], Y[1000:], **new)
    assert found.cost_after == pytest.approx(fitted.expected(error(), X[1000:], Y[1000:], **new))
    assert found.reliability[0].raw_unevenness > found.reliability[0].unevenness
    why = fitted.explain(X[1000:], **new)
    assert (why.probabilities == fitted.predict_proba(X[1000:], **new)).all()
    with pytest.raises(ValueError, match="rows on which the policy was chosen"):
        fitted.audit(X[:1000], Y[:1000], sensitive_features=SEX[:1000])
    unlabelled = fitted.expected(error(), X[1000:], **new)
    assert unlabelled == pytest.approx(found.cost_after, abs=0.04)


def test_hidden_groups_are_calibrated_too():
    rules = [equalized_odds("sex", tol=0.05)]
    fitted = unaware(rules, calibrator="vector").fit(X, Y, sensitive_features=SEX)
    calibration = fitted.policy_.calibration
    assert calibration is not None
    assert set(calibration.groups) == set(calibration.joint) == {"sex"}
    evidence = fitted.policy_.calibrate(fitted._make_evidence(X, None, None))
    assert evidence.joint["sex"].sum(axis=1) == pytest.approx(evidence.probabilities)


def test_without_labels_there_is_no_calibration():
    frozen = FrozenEstimator(Sure().fit(X, Y))
    assert classifier(base=frozen).fit(X, sensitive_features=SEX).policy_.calibration is None
    assert classifier(base=frozen).fit(X, Y, sensitive_features=SEX).policy_.calibration is not None
    with pytest.raises(OptionError, match="calibrator='vector' needs labels: pass y"):
        classifier(base=frozen, calibrator="vector").fit(X, sensitive_features=SEX)


def test_without_the_correction_scores_are_taken_as_they_are():
    assert (
        classifier(base=Sure(), correction=False).fit(X, Y, sensitive_features=SEX).policy_.calibration
        is None
    )
    with pytest.raises(OptionError, match="calibrator='isotonic' has no effect with correction=False"):
        classifier(calibrator="isotonic", correction=False).fit(X, Y, sensitive_features=SEX)


@pytest.mark.parametrize("name", ["temperature", "vector", "isotonic", "dirichlet"])
def test_a_method_by_name(name):
    fitted = classifier(base=Sure(), calibrator=name).fit(X, Y, sensitive_features=SEX)
    assert fitted.policy_.calibration.labels.method == name
    assert clone(fitted).calibrator == name


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match="calibrator must be one of"):
        classifier(calibrator="platt").fit(X, Y, sensitive_features=SEX)


@pytest.mark.filterwarnings("ignore:a simple policy:bylaw.errors.GuaranteeWarning")
def test_weights_reach_the_calibration():
    """With all weight on rows whose labels are coin flips, scores are worth little."""
    rng = np.random.default_rng(0)
    coin = rng.random(N) < 0.5
    labels = np.where(coin, rng.choice(["yes", "no"], N), Y)
    frozen = FrozenEstimator(LogisticRegression().fit(X, Y))
    slopes = []
    for weights in (np.where(coin, 1.0, 1e-3), np.where(coin, 1e-3, 1.0)):
        fitted = classifier([PARITY], frozen, calibrator="temperature")
        fitted.fit(X, labels, sensitive_features=SEX, sample_weight=weights)
        slopes.append(fitted.policy_.calibration.labels.weights[0, 0])
    assert slopes[0] < 0.3 < 0.7 < slopes[1]


@pytest.mark.slow
def test_a_guarantee_holds_its_rows_out_of_the_calibration():
    fitted = classifier([equalized_odds("dept", tol=0.3)], Sure(), guarantee="high_probability", held_out=0.5)
    fitted.fit(X, Y, sensitive_features={"dept": DEPT})
    assert fitted.policy_.certificate is not None
    assert fitted.policy_.calibration is not None
