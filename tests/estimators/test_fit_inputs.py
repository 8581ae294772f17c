from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    KFold,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bylaw import (
    demographic_parity,
    disagreement,
    rejected,
)
from helpers.people import DEPT, GROUPS, PARITY, SEX, N, X, Y, classifier, gap


class Remembers(LogisticRegression):
    """Says how many rows it was trained on."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = len(X)
        return super().fit(X, y, sample_weight=sample_weight)


@pytest.mark.slow
def test_folds_train_on_all_rows_and_a_split_on_its_part():
    assert classifier((), Remembers()).fit(X, Y).estimator_.seen_ == N
    assert classifier((), Remembers(), cv=0.4).fit(X, Y).estimator_.seen_ == 0.6 * N


@pytest.mark.slow
def test_the_policy_is_chosen_on_rows_the_model_has_not_seen():
    """A forest knows its own rows by heart and would see nothing to refer."""
    rule = "error() <= 0.15"
    forest = RandomForestClassifier(50, random_state=0)
    options = {"minimize": rejected(), "correction": False}
    honest = classifier([rule], forest, **options).fit(X, Y)
    by_heart = classifier([rule], FrozenEstimator(forest.fit(X, Y)), **options).fit(X, Y)
    assert honest.policy_.multipliers[rule] > 0.5
    assert by_heart.policy_.multipliers[rule] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("cv", [3, 0.5, KFold(4, shuffle=True, random_state=1)], ids=str)
def test_rows_keep_their_companions_through_the_splits(cv):
    """Weights, groups, references and labels follow their rows into the policy's evidence."""
    order = np.arange(N)
    base = FrozenEstimator(LogisticRegression().fit(X, Y))
    options = {"group_estimator": {"dept": LogisticRegression()}}
    rules = [PARITY, demographic_parity("dept", tol=0.03), disagreement("old") <= 0.2]
    old = np.where(X.w > 0, "yes", "no")
    weights = np.exp(X.w.to_numpy() / 2)
    fitted = classifier(rules, base, cv=cv, **options).fit(
        X, Y, sensitive_features=GROUPS, reference=old, sample_weight=weights
    )
    distribution = fitted.predict_proba(X, sensitive_features=GROUPS, reference=old)
    mean = lambda column, here=slice(None): np.average(column[here], axis=0, weights=weights[here])  # noqa: E731
    for by in (SEX, DEPT):
        for s in np.unique(by):
            assert np.abs(mean(distribution, by == s) - mean(distribution)).max() < 0.06
    assert mean(1 - distribution[order, (old == "yes").astype(int)]) < 0.23


@pytest.mark.slow
def test_a_frozen_model_needs_no_labels():
    base = FrozenEstimator(LogisticRegression().fit(X[:500], Y[:500]))
    fitted = classifier(["rejected() <= 0.1"], base).fit(X)
    assert fitted.estimator_ is base
    assert fitted.predict_proba(X)[:, -1].mean() == pytest.approx(0.1, abs=1e-6)
    hidden = classifier(base=base, group_estimator=LogisticRegression()).fit(X, sensitive_features=GROUPS)
    assert gap(hidden.predict_proba(X)) < 0.03


@pytest.mark.slow
def test_a_decision_function_is_calibrated_first():
    fitted = classifier(base=LinearSVC()).fit(X, Y, sensitive_features=SEX)
    assert isinstance(fitted.estimator_, CalibratedClassifierCV)
    assert gap(fitted.predict_proba(X, sensitive_features=SEX)) < 0.025


@pytest.mark.slow
def test_weights_reach_the_model_and_the_policy():
    weights = np.where(SEX == "F", 5.0, 1.0)
    rules = [rejected() <= 0.2]
    fitted = classifier(rules).fit(X, Y, sample_weight=weights)
    plain = LogisticRegression().fit(X, Y, sample_weight=weights)
    assert fitted.estimator_.coef_ == pytest.approx(plain.coef_)
    distribution = (
        classifier(rules, FrozenEstimator(plain)).fit(X, Y, sample_weight=weights).predict_proba(X)[:, -1]
    )
    assert np.average(distribution, weights=weights) == pytest.approx(0.2, abs=1e-6)
    assert abs(distribution.mean() - 0.2) > 1e-3
    piped = classifier(rules, make_pipeline(StandardScaler(), LogisticRegression(C=1e6)))
    piped.fit(X, Y, sample_weight=weights)
    alone = LogisticRegression(C=1e6).fit(X, Y, sample_weight=weights)
    assert piped.estimator_.predict_proba(X) == pytest.approx(alone.predict_proba(X), abs=1e-3)
    with pytest.warns(UserWarning, match="KNeighborsClassifier does not accept sample_weight"):
        classifier(rules, KNeighborsClassifier()).fit(X, Y, sample_weight=weights)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_the_calibrator(routing):
    weights = np.where(Y == "yes", 20.0, 1.0)
    means = []
    with sklearn.config_context(enable_metadata_routing=routing):
        asks = LogisticRegression().set_fit_request(sample_weight=True) if routing else LogisticRegression()
        scaler = StandardScaler().set_fit_request(sample_weight=False) if routing else StandardScaler()
        for calibrator in (None, asks, make_pipeline(scaler, asks)):
            fitted = classifier((), asks, calibrator=calibrator).fit(X, Y, sample_weight=weights)
            means.append(fitted._make_evidence(X, None, None).probabilities[:, 1].mean())
    assert means == pytest.approx([means[0]] * 3, abs=0.02)
    assert means[0] > 0.8  # without weights it is about a half


def test_weights_reach_the_last_step_of_a_pipeline():
    weights = np.where(Y == "yes", 20.0, 1.0)
    piped = classifier((), make_pipeline(StandardScaler(), LogisticRegression(C=1e6)))
    found = piped.fit(X, Y, sample_weight=weights).estimator_
    alone = LogisticRegression(C=1e6).fit(X, Y, sample_weight=weights)
    assert found.predict_proba(X) == pytest.approx(alone.predict_proba(X), abs=1e-3)
    assert found[0].mean_ == pytest.approx(X.mean().to_numpy())  # the scaler gets none of them
