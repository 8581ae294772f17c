"""Every option is checked by `fit`, and none is accepted and ignored."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bylaw import (
    ConstrainedClassifier,
    OptionError,
    demographic_parity,
    equalized_odds,
    error,
    rejected,
)
from helpers.people import GROUPS, PARITY, SEX, X, Y

FROZEN = FrozenEstimator(LogisticRegression().fit(X, Y))
CROSSED = demographic_parity(("sex", "dept"), tol=0.1)


def fit(rules=(PARITY,), base=None, **options):
    model = ConstrainedClassifier(LogisticRegression() if base is None else base, list(rules), **options)
    return model.fit(X, Y, sensitive_features=GROUPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -1}, "margin must be a number of standard errors"),
        ({"margin": "wide"}, "margin must be a number of standard errors"),
        ({"margin": -1, "correction": False}, "margin must be a number of standard errors"),
        ({"confidence": 7}, "confidence must be a number between 0 and 1"),
        ({"held_out": 42}, "held_out must be a number between 0 and 1"),
        ({"joint": "both"}, r"joint must be one of \['model', 'product'\]"),
        ({"method": "coin"}, r"method must be one of \['sample', 'systematic', 'argmax'\]"),
        ({"correction": 1}, r"correction must be one of \[True, False\]"),
        ({"guarantee": True}, "guarantee must be one of"),
        ({"beta": -1.0}, "beta must be a positive number"),
        ({"beta": "hot"}, "beta must be"),
        ({"tol": 0}, "tol must be a positive number"),
        ({"solver": "newton"}, "solver must be one of .* got 'newton'"),
        ({"cv": "five"}, "cv must be a number of folds, a fraction such as 0.5, or a splitter, got 'five'"),
        ({"cv": True}, "cv must be at least 2 folds"),
        ({"random_state": "seed"}, "random_state must be None, a whole number from 0"),
        ({"random_state": -1}, "random_state must be None, a whole number from 0"),
        ({"random_state": True}, "random_state must be None, a whole number from 0"),
        ({"n_jobs": 0}, "n_jobs must be a number of jobs, or -1"),
        ({"n_jobs": 1.5}, "n_jobs must be a whole number"),
        ({"calibrator": StandardScaler()}, "calibrator must be a classifier with predict_proba"),
        ({"calibrator": FROZEN}, "calibrator must not be frozen, because fit trains it"),
        ({"group_estimator": StandardScaler()}, "group_estimator must be a classifier with predict_proba"),
    ],
    ids=str,
)
def test_each_option_is_checked(options, message):
    with pytest.raises(OptionError, match=message):
        fit(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 99, "correction": False}, "margin=99 has no effect with correction=False: leave out"),
        ({"margin": 1.0, "guarantee": "high_probability"}, "margin=1.0 has no effect with a guarantee"),
        ({"confidence": 0.9}, "confidence=0.9 has no effect without a guarantee: leave out confidence"),
        ({"held_out": 0.2}, "held_out=0.2 has no effect without a guarantee: leave out held_out"),
        (
            {"rules": (), "guarantee": "high_probability"},
            "guarantee='high_probability' has no effect without",
        ),
        ({"joint": "product"}, "joint='product' has no effect without a group_estimator"),
        ({"joint": "product", "group_estimator": {}}, "joint='product' has no effect without"),
        (
            {"joint": "product", "group_estimator": LogisticRegression()},
            "joint='product' has no effect if no rule refers to an unknown group and the label together",
        ),
        (
            {"rules": [rejected() <= 0.1], "group_estimator": RandomForestClassifier()},
            r"group_estimator=RandomForestClassifier\(\) has no effect if no rule refers to a group",
        ),
        (
            {"rules": [CROSSED], "group_estimator": dict.fromkeys(["sex", "dept"], LogisticRegression())},
            r"must have models for \[\('sex', 'dept'\)\] only, got others for \['dept'\]",
        ),
        ({"reject": "human"}, "reject='human' has no effect if no rule refers to rejections"),
        ({"base": FROZEN, "cv": 3}, "cv=3 has no effect if all models are frozen: leave out cv"),
        ({"base": FROZEN, "cv": KFold(3)}, "cv=KFold.* has no effect if all models are frozen"),
        ({"base": FROZEN, "n_jobs": 2}, "n_jobs=2 has no effect if all models are frozen"),
        ({"cv": 0.5, "n_jobs": 2}, "n_jobs=2 has no effect with one split instead of folds"),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        fit(**options)


def test_arguments_for_a_frozen_estimator_are_refused():
    model = ConstrainedClassifier(FROZEN, [rejected() <= 0.2])
    with pytest.raises(OptionError, match=r"fit\(\) got \['verbose'\] for the estimator, which is frozen"):
        model.fit(X, Y, verbose=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"correction": False},
        {"correction": False, "margin": 0},
        {"guarantee": "high_probability", "rules": [rejected() <= 0.5]},
        {"guarantee": "high_probability", "margin": 0.0, "rules": [rejected() <= 0.5], "confidence": 0.8},
        {"base": FROZEN},
        {"base": FROZEN, "group_estimator": LogisticRegression(), "cv": 3, "n_jobs": 1},
        {"base": FrozenEstimator(LinearSVC().fit(X, Y)), "cv": 3},  # its calibration is trained
        {
            "joint": "product",
            "group_estimator": LogisticRegression(),
            "rules": [equalized_odds("sex", tol=0.1)],
        },
        {"rules": [rejected() <= 0.1], "reject": "human"},
        {"rules": [error() <= 0.5], "reject": "human", "decisions": "reject", "minimize": rejected()},
        {"rules": (), "group_estimator": LogisticRegression(), "margin": 2.0},  # the baseline of a comparison
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:the policy chooses at random between")  # the error is allowed to be large
def test_options_that_go_together(options):
    assert fit(**options).policy_ is not None


@pytest.mark.slow
def test_the_defaults_of_margin_confidence_and_held_out():
    base = {"base": FROZEN, "rules": [rejected() <= 0.3], "random_state": 0}
    rule = "rejected() <= 0.3"
    one, two = (fit(margin=m, **base).policy_.tightened[rule] for m in (1.0, 2.0))
    assert fit(**base).policy_.tightened[rule] == pytest.approx(1.645 * one, rel=0.05)  # 95 % of the time
    assert two == pytest.approx(2 * one, rel=0.01)
    assert fit(correction=False, **base).policy_.tightened[rule] == 0
    sure = fit(guarantee="high_probability", **base).policy_.certificate
    assert (sure.rows, sure.confidence) == (1050, 0.95)  # 70 %: no model is trained on the others
    trained = fit(guarantee="high_probability", **{**base, "base": LogisticRegression()}).policy_.certificate
    assert trained.rows == 450
    other = fit(guarantee="high_probability", held_out=0.2, confidence=0.8, **base).policy_.certificate
    assert (other.rows, other.confidence) == (300, 0.8)


@pytest.mark.slow
def test_five_folds_are_the_default():
    by_default, five, three = (fit(cv=cv, random_state=0).policy_.digest for cv in (None, 5, 3))
    assert by_default == five != three


@pytest.mark.slow
def test_clones_and_grids_keep_the_defaults():
    model = ConstrainedClassifier(LogisticRegression(), [rejected() <= 0.2], cv=3, random_state=0)
    assert clone(model).get_params()["margin"] == "auto"
    grid = [{"correction": [True, False]}, {"margin": [0.0, 2.0]}, {"guarantee": ["high_probability"]}]
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.slow
def test_an_earlier_fit_survives_a_refused_option():
    fitted = fit(random_state=0)
    before = fitted.predict(X, sensitive_features=SEX)
    with pytest.raises(OptionError, match="confidence"):
        fitted.set_params(confidence=7).fit(X, Y, sensitive_features=SEX)
    assert (fitted.predict(X, sensitive_features=SEX) == before).all()


class Untrainable(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        raise AssertionError("options are checked before any model is trained")


@pytest.mark.parametrize("options", [{"solver": "newton"}, {"tol": 0}, {"beta": "hot"}, {"confidence": 7}])
def test_options_are_checked_before_any_training(options):
    with pytest.raises(OptionError):
        fit(base=Untrainable(), **options)


@pytest.mark.parametrize(("method", "message"), [("argmax", "ids"), ("systematic", "ids")])
def test_ids_go_with_sampling_each_row_by_itself(method, message):
    fitted = fit([rejected() <= 0.2], base=FROZEN, method=method)
    with pytest.raises(OptionError, match=message):
        fitted.predict(X, ids=range(len(X)))
