from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bylaw import EvidenceError, OptionError
from bylaw.estimators import LocalPolynomialClassifier
from bylaw.estimators._local_polynomial import KERNELS

WRITTEN_OUT = {
    "rectangular": lambda u: 1.0 * (u <= 1),
    "triangular": lambda u: (1 - u) * (u <= 1),
    "epanechnikov": lambda u: (1 - u**2) * (u <= 1),
    "biweight": lambda u: (1 - u**2) ** 2 * (u <= 1),
    "tricube": lambda u: (1 - u**3) ** 3 * (u <= 1),
    "gaussian": lambda u: np.exp(-(u**2) / 2) * (u <= 6),
}


def data(n=300, d=2, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.digitize(X.sum(axis=1) + rng.normal(size=n) * 0.5, np.linspace(-0.5, 0.5, K - 1))


def by_least_squares(X, target, x, degree, bandwidth, kernel, weights):
    """The definition: a weighted polynomial regression around x, read at x."""
    offsets = X - x
    powers = [p for p in itertools.product(range(degree + 1), repeat=X.shape[1]) if sum(p) <= degree]
    design = np.column_stack([np.prod(offsets ** np.array(p), axis=1) for p in powers])
    root = np.sqrt(WRITTEN_OUT[kernel](np.linalg.norm(offsets, axis=1) / bandwidth) * weights)
    theta = np.linalg.lstsq(design * root[:, None], target * root[:, None], rcond=None)[0]
    return theta[powers.index((0,) * X.shape[1])]


def clipped(estimates):
    estimates = np.clip(estimates, 0, 1)
    return estimates / estimates.sum()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("degree", "d"), [(0, 1), (1, 2), (2, 2), (3, 1), (1, 3)])
def test_the_definition(kernel, degree, d):
    X, y = data(d=d)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X))
    bandwidth = 0.9 if kernel != "gaussian" else 0.4
    model = LocalPolynomialClassifier(degree=degree, bandwidth=bandwidth, kernel=kernel)
    found = model.fit(X, y, sample_weight=weights).predict_proba(X[:10])
    target = np.eye(3)[y]
    wanted = [clipped(by_least_squares(X, target, x, degree, bandwidth, kernel, weights)) for x in X[:10]]
    assert found == pytest.approx(np.array(wanted), abs=1e-8)


@pytest.mark.slow
def test_the_bandwidth_by_leaving_rows_out():
    X, y = data(n=120, K=2)
    model = LocalPolynomialClassifier().fit(X, y)
    assert model.bandwidth_ == model.bandwidths_[model.errors_.argmin()]
    assert 0 < model.errors_.argmin() < len(model.errors_) - 1
    for bandwidth, found in list(zip(model.bandwidths_, model.errors_, strict=True))[4::3]:
        total = 0.0
        for i in range(len(X)):
            others = np.arange(len(X)) != i
            alone = LocalPolynomialClassifier(bandwidth=bandwidth).fit(X[others], y[others])
            chances = alone.predict_proba(X[[i]])[0]
            total += ((chances - np.eye(2)[y[i]]) ** 2).sum()
        assert found == pytest.approx(total / len(X), abs=1e-9)


def test_where_the_fit_is_not_unique():
    X, y = data()
    model = LocalPolynomialClassifier(bandwidth=0.5).fit(X, y)
    far = model.predict_proba([[50.0, 50.0]])
    assert far == pytest.approx(np.bincount(y)[None] / len(y))
    one = LocalPolynomialClassifier(bandwidth=0.5).fit(X[:, :1], y).predict_proba(X[:9, :1])
    constant = np.column_stack([X[:, 0], np.ones(len(X))])
    idle = LocalPolynomialClassifier(bandwidth=0.5).fit(constant, y).predict_proba(constant[:9])
    assert idle == pytest.approx(one)


@pytest.mark.slow
def test_the_error_shrinks_with_the_rows():
    new, _ = data(1000, seed=9)
    errors = []
    for n in (300, 3000):
        rng = np.random.default_rng(n)
        X = rng.uniform(-1, 1, (n, 2))
        truth = lambda x: 1 / (1 + np.exp(-3 * x[:, 0] - 4 * x[:, 0] * x[:, 1]))  # noqa: E731
        model = LocalPolynomialClassifier(degree=2).fit(X, rng.random(n) < truth(X))
        errors.append(np.abs(model.predict_proba(new)[:, 1] - truth(new)).mean())
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 0.04


def test_in_a_pipeline_with_text_labels():
    X, y = data()
    labels = np.array(["low", "middle", "high"])[y]
    model = make_pipeline(StandardScaler(), LocalPolynomialClassifier()).fit(1000 * X, labels)
    assert model.score(1000 * X, labels) > 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": -1}, "degree must be a whole number"),
        ({"degree": 1.5}, "degree must be a whole number"),
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"bandwidth": 0}, "bandwidth must be a positive number"),
        ({"bandwidth": "wide"}, "bandwidth must be a positive number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(OptionError, match=message):
        LocalPolynomialClassifier(**options).fit(*data())


def test_one_class_is_refused():
    with pytest.raises(EvidenceError, match="got one class"):
        LocalPolynomialClassifier().fit([[0.0], [1.0]], ["a", "a"])


@pytest.mark.slow
@parametrize_with_checks([LocalPolynomialClassifier()])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_leave_one_out_error_is_that_of_refits(weighted):
    """Without row i, the regression around it is fitted again, for each of three labels."""
    X, y = data(n=60, d=1)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighted else np.ones(len(X))
    model = LocalPolynomialClassifier(degree=1, bandwidth=0.5, kernel="triangular")
    model.fit(X, y, sample_weight=weights)
    target, errors = np.eye(3)[y], []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        found = by_least_squares(X[rest], target[rest], X[i], 1, 0.5, "triangular", weights[rest])
        errors.append(((clipped(found) - target[i]) ** 2).sum())
    wanted = np.average(errors, weights=weights)
    assert model._leave_one_out_error(0.5, np.arange(len(X))) == pytest.approx(wanted, rel=1e-6)
