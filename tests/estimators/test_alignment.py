"""Whatever has one value for each row of X: an index of pandas that differs from that of X is refused."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pandas
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from bylaw import ConstrainedClassifier, EvidenceError, demographic_parity, disagreement
from bylaw.estimators import JointClassifier, LocalPolynomialClassifier

N = 120


def draw_rows():
    """Return an index, features with that index, and series whose index is the one of an array's rows."""
    rng = np.random.default_rng(0)
    index = rng.permutation(N)
    X = pandas.DataFrame(rng.normal(size=(N, 2)), columns=["u", "v"], index=index)
    label = np.where(X.u + rng.normal(size=N) > 0, 1, 0)
    sex = np.where(X.v + rng.normal(size=N) > 0, "F", "M")
    return (
        index,
        X,
        pandas.Series(label),
        pandas.Series(sex, name="sex"),
        pandas.Series(rng.integers(0, 2, N)),
    )


INDEX, X, Y, SEX, OLD = draw_rows()
ONES = pandas.Series(np.ones(N))
GIVEN = {"y": Y, "sensitive_features": SEX, "reference": OLD, "sample_weight": ONES}
RULES = [demographic_parity("sex", tol=0.3), disagreement("old") <= 0.9]
OTHERS = {
    "another order": lambda column: column.set_axis(INDEX)[::-1],
    "other labels": lambda column: column,
    "a column of a dict": lambda column: {"sex": column} if column is SEX else column[::-1],
}


def make(rows=X):
    model = FrozenEstimator(LogisticRegression().fit(rows, Y))
    return ConstrainedClassifier(model, RULES, correction=False, random_state=0)


def align(given):
    return {name: column.set_axis(INDEX) for name, column in given.items()}


@pytest.fixture(scope="module")
def fitted():
    return make().fit(X, **align(GIVEN))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", GIVEN)
def test_fit(name, other):
    with pytest.raises(EvidenceError, match=rf"{name}.* and X have different indexes"):
        make().fit(X, **{**align(GIVEN), name: other(GIVEN[name])})


def test_columns_beside_an_array_are_compared_with_each_other():
    make(X.to_numpy()).fit(X.to_numpy(), **GIVEN)
    with pytest.raises(EvidenceError, match="sensitive_features and y have different indexes"):
        make(X.to_numpy()).fit(X.to_numpy(), **{**GIVEN, "sensitive_features": SEX[::-1]})


def test_metadata_and_unlabelled_rows():
    plain = ConstrainedClassifier(LogisticRegression(), cv=GroupKFold(2), random_state=0)
    with pytest.raises(EvidenceError, match="groups and X have different indexes"):
        plain.fit(X, Y.set_axis(INDEX), groups=pandas.Series(np.arange(N) % 4))
    with pytest.raises(EvidenceError, match="unlabelled_sensitive_features and unlabelled have different"):
        make().fit(X, **align(GIVEN), unlabelled=X, unlabelled_sensitive_features=SEX)
    with pytest.raises(EvidenceError, match="propensity_weights and X have different indexes"):
        make().fit(X, **align(GIVEN), propensity_weights=ONES)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "explain"])
def test_decisions(fitted, method):
    decide, given = getattr(fitted, method), align({"sensitive_features": SEX, "reference": OLD})
    decide(X, **given)
    for name, column in {"sensitive_features": SEX, "reference": OLD}.items():
        for other in (column, column.set_axis(INDEX).sort_index()):
            with pytest.raises(EvidenceError, match=f"{name} and X have different indexes"):
                decide(X, **{**given, name: other})


def test_ids(fitted):
    given, ids = align({"sensitive_features": SEX, "reference": OLD}), pandas.Series(range(N))
    fitted.predict(X, **given, ids=ids.set_axis(INDEX))
    for other in (ids, ids.set_axis(INDEX).sort_index()):
        with pytest.raises(EvidenceError, match="ids and X have different indexes"):
            fitted.predict(X, **given, ids=other)


@pytest.mark.parametrize("method", ["score", "violations", "audit", "expected"])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", [*GIVEN, "propensity_weights", "decisions"])
def test_observed_rows(fitted, method, name, other):
    columns = {**GIVEN, "propensity_weights": ONES, "decisions": OLD}
    if name not in signature(getattr(fitted, method)).parameters:
        pytest.skip("not a parameter")
    given = {**align(GIVEN), name: other(columns[name])}
    rate = ["error()"] if method == "expected" else []
    options = {"fitted_rows": "estimate"} if method == "audit" else {}
    with pytest.raises(EvidenceError, match=rf"{name}.* and X have different indexes"):
        getattr(fitted, method)(*rate, X, **given, **options)


def test_other_estimators():
    JointClassifier(LogisticRegression()).fit(X, {"sex": SEX.set_axis(INDEX), "y": Y.set_axis(INDEX)})
    with pytest.raises(EvidenceError, match=r"columns\['sex'\] and X have different indexes"):
        JointClassifier(LogisticRegression()).fit(X, {"sex": SEX, "y": Y})
    with pytest.raises(EvidenceError, match="y and X have different indexes"):
        LocalPolynomialClassifier(bandwidth=1.0).fit(X, Y)
