from __future__ import annotations

import numpy as np
import polars
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bylaw import (
    demographic_parity,
    parse,
)
from helpers.people import GROUPS, PARITY, SEX, N, X, Y, classifier, gap, unaware


@pytest.mark.slow
def test_grid_search_over_models_and_rules():
    grid = {"estimator__C": [0.001, 1.0], "rules": [[PARITY], [demographic_parity("sex", tol=0.1)]]}
    model = unaware(cv=3, calibrator=None)  # a calibration would repair scores that are shrunk too much
    search = GridSearchCV(model, grid, cv=3).fit(X, Y, sensitive_features=GROUPS)
    assert search.best_params_ == {"estimator__C": 1.0, "rules": [demographic_parity("sex", tol=0.1)]}
    assert search.predict(X).shape == (N,)


@pytest.mark.slow
def test_a_pipeline_with_polars_all_the_way():
    frame = polars.from_pandas(X)
    pipe = make_pipeline(StandardScaler(), unaware()).set_output(transform="polars")
    pipe.fit(frame, Y, constrainedclassifier__sensitive_features=polars.from_pandas(GROUPS))
    assert pipe[-1].feature_names_in_.tolist() == ["u", "v", "w"]
    assert gap(pipe.predict_proba(frame)) < 0.03
    pipe.set_output(transform="pandas").fit(X, Y, constrainedclassifier__sensitive_features=GROUPS)
    assert gap(pipe.predict_proba(X)) < 0.03


@pytest.mark.slow
def test_polars_labels_and_weights():
    wanted = classifier(["rejected() <= 0.1"]).fit(X, Y, sample_weight=np.linspace(1, 2, N)).predict_proba(X)
    found = classifier(["rejected() <= 0.1"]).fit(
        polars.from_pandas(X), polars.Series(Y), sample_weight=polars.Series(np.linspace(1, 2, N))
    )
    assert np.array_equal(found.predict_proba(polars.from_pandas(X)), wanted)


@pytest.mark.slow
def test_cross_validation_and_calibration():
    drawn = cross_val_predict(
        classifier(["rejected() <= 0.1"], CalibratedClassifierCV(LinearSVC())), X, Y, cv=3
    )
    assert (drawn == "reject").mean() == pytest.approx(0.1, abs=0.03)
    scores = cross_val_score(classifier(["rejected() <= 0.1"]), X, Y, cv=3)
    assert scores.min() > 0.78


@pytest.mark.slow
def test_metadata_is_routed():
    weights = np.where(SEX == "F", 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        aware = (
            classifier(base=LogisticRegression().set_fit_request(sample_weight=True))
            .set_fit_request(sensitive_features=True, sample_weight=True)
            .set_score_request(sensitive_features=True, sample_weight=True)
            .set_predict_request(sensitive_features=True)
        )
        search = GridSearchCV(aware, {"cv": [3]}, cv=3)
        search.fit(X, Y, sensitive_features=SEX, sample_weight=weights)
        model = search.best_estimator_.estimator_
        assert model.coef_ == pytest.approx(LogisticRegression().fit(X, Y, sample_weight=weights).coef_)
        pipe = make_pipeline(StandardScaler(), aware).fit(X, Y, sensitive_features=SEX)
        assert pipe.predict(X, sensitive_features=SEX).shape == (N,)
        grouped = classifier((), cv=GroupKFold(4).set_split_request(groups=True)).fit(
            X, Y, groups=np.arange(N) % 7
        )
        assert grouped.score(X, Y) > 0.7
        deaf = classifier(base=LogisticRegression().set_fit_request(sample_weight=False))
        fitted = deaf.fit(X, Y, sensitive_features=SEX, sample_weight=weights)
        assert fitted.estimator_.coef_ == pytest.approx(LogisticRegression().fit(X, Y).coef_)
        guess = {"sex": LogisticRegression().set_fit_request(sample_weight=True)}
        hidden = classifier(
            base=LogisticRegression().set_fit_request(sample_weight=True), group_estimator=guess
        )
        hidden.fit(X, Y, sensitive_features=SEX, sample_weight=weights)
        wanted = LogisticRegression().fit(X, SEX == "M", sample_weight=weights).coef_
        assert hidden.group_estimators_["sex"].coef_ == pytest.approx(wanted)


@pytest.mark.slow
def test_rules_as_text_and_rules_used_again():
    by_text = classifier([str(PARITY)]).fit(X, Y, sensitive_features=SEX)
    assert by_text.policy_.problem.rules == (PARITY,) == (parse(str(PARITY)),)
    half = slice(N // 2)
    again = classifier([PARITY]).fit(X[half], Y[half], sensitive_features=SEX[half])
    assert list(again.multipliers_) == list(by_text.multipliers_)
