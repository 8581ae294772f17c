"""What a fitted classifier tells of its own rows: frontiers, reports, and evidence of new rows."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    audit,
    demographic_parity,
    error,
    rejected,
)
from helpers.people import PARITY, SEX, N, X, Y, classifier, unaware

BUDGET = rejected() <= 0.1
TEST = slice(1000, None)


@pytest.fixture(scope="module")
def fitted():
    model = ConstrainedClassifier(LogisticRegression(), [PARITY, BUDGET], cv=3, random_state=0)
    return model.fit(X[:1000], Y[:1000], sensitive_features=SEX[:1000])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"margin": 0.0},
        {"correction": False},
        {"group_estimator": LogisticRegression()},
        {"calibrator": "isotonic", "margin": 1.0},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*about too few rows")
def test_a_frontier_is_what_fit_would_choose(options):
    """Against fits at the same levels: as observed, with the same folds, labels, groups and margins."""
    levels = [0.03, 0.1]

    def fit(tol):
        rules = [demographic_parity("sex", tol=tol), BUDGET]
        model = ConstrainedClassifier(LogisticRegression(), rules, cv=3, random_state=0, tol=1e-7, **options)
        return model.fit(X, Y, sensitive_features=SEX)

    model = fit(0.05)
    found = model.frontier({demographic_parity("sex", tol=0.05): levels}, tol=1e-7)
    for level, cost, policy in zip(levels, found.cost, found.policies, strict=True):
        other = fit(level)
        rows = other._fitted_rows
        assert policy.expected(rejected(), rows) == pytest.approx(
            other.policy_.expected(rejected(), rows), abs=2e-3
        )
        assert policy.probabilities(rows) == pytest.approx(other.policy_.probabilities(rows), abs=0.05)
        chances = other.policy_.probabilities(rows)
        observed = 1 - chances[np.arange(N), rows.labels] - chances[:, 2]
        if options.get("correction", True):
            assert cost == pytest.approx(observed.mean(), abs=1e-3)
        else:  # as the probabilities predict
            assert cost == pytest.approx(other.policy_.expected(error(), rows.without_observed()), abs=1e-4)


def test_a_frontier_depends_on_the_labels(fitted):
    """With shuffled labels the same scores cost more: the frontier is not that of the probabilities alone."""
    model = FrozenEstimator(LogisticRegression().fit(X, Y))
    costs = []
    for labels in (Y, np.random.default_rng(0).permutation(Y)):
        clf = ConstrainedClassifier(model, [BUDGET], calibrator=None, margin=0).fit(X, labels)
        costs.append(clf.frontier({BUDGET: [0.1, 0.2]}).cost)
    assert (costs[1] > costs[0] + 0.1).all()


def test_a_saved_classifier_has_no_rows_and_says_so(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert fitted._fitted_rows is not None
    assert again._fitted_rows is None
    assert np.array_equal(
        again.predict_proba(X[TEST], sensitive_features=SEX[TEST]),
        fitted.predict_proba(X[TEST], sensitive_features=SEX[TEST]),
    )
    for ask in (lambda: again.frontier({BUDGET: [0.1]}), lambda: again.report()):
        with pytest.raises(OptionError, match="not saved with a classifier: fit the classifier again"):
            ask()
    assert not hasattr(clone(fitted), "_fitted_rows")


@pytest.mark.slow
def test_a_report_of_the_fit_and_of_other_rows(fitted, tmp_path):
    made = fitted.report(tmp_path / "page.html", levels=0, title="Hiring")
    assert (tmp_path / "page.html").read_text() == made.html
    assert "<h1>Hiring</h1>" in made.html
    assert "estimated to hold" in made.html
    judged = fitted.report(None, X[TEST], Y[TEST], sensitive_features=SEX[TEST], levels=0)
    found = fitted.audit(X[TEST], Y[TEST], sensitive_features=SEX[TEST])
    assert str(found.verdict) in judged.html
    assert re.search(r"\b500\sheld-out cases", judged.html)


def test_a_report_refuses_rows_of_the_fit_and_labels_without_rows(fitted):
    with pytest.raises(EvidenceError, match="chosen"):
        fitted.report(None, X[:500], Y[:500], sensitive_features=SEX[:500], levels=0)
    with pytest.raises(OptionError, match="y must be passed together with X, the held-out rows"):
        fitted.report(None, y=Y[TEST])


@pytest.mark.slow
def test_evidence_of_new_rows_is_what_predict_decides_on(fitted):
    weights = np.linspace(1, 2, 500)
    rows = fitted.evidence(X[TEST], sensitive_features=SEX[TEST], sample_weight=weights)
    assert isinstance(rows, Evidence)
    assert np.array_equal(
        fitted.policy_.probabilities(rows), fitted.predict_proba(X[TEST], sensitive_features=SEX[TEST])
    )
    assert rows.probabilities == pytest.approx(fitted.estimator_.predict_proba(X[TEST]))
    assert rows.weights.tolist() == weights.tolist()
    assert rows.group_values == {"sex": ("F", "M")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = audit(fitted.policy_, rows, labels=Y[TEST], largest_weight=2.0)
        other = fitted.audit(
            X[TEST], Y[TEST], sensitive_features=SEX[TEST], sample_weight=weights, largest_weight=2.0
        )
    assert [rule.estimate for rule in one.rules] == [rule.estimate for rule in other.rules]


def test_evidence_refuses_what_predict_refuses(fitted):
    with pytest.raises(EvidenceError, match="sensitive_features must have"):
        fitted.evidence(X[TEST])
    with pytest.raises(EvidenceError, match="sample_weight has 9 rows"):
        fitted.evidence(X[TEST], sensitive_features=SEX[TEST], sample_weight=np.ones(9))
    with pytest.raises(EvidenceError, match="in another order"):
        fitted.evidence(
            X[TEST],
            sensitive_features=SEX[TEST],
            sample_weight=pandas.Series(np.ones(500), X.index[TEST][::-1]),
        )


def test_no_rules_may_be_none():
    one, other = (classifier(()).set_params(rules=rules).fit(X, Y) for rules in (None, ()))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert Problem(error(), None) == Problem(error())


def test_violations_are_a_small_table():
    rule = demographic_parity(["sex", "dept"], tol=0.02)
    model = unaware([rule, BUDGET], cv=2)
    groups = pandas.DataFrame({"sex": SEX, "dept": np.where(X.v > 0, "a", "b")})
    found = model.fit(X, Y, sensitive_features=groups).violations(X, Y, sensitive_features=groups)
    assert len(found) == 2 * 2 * 2 * 2 + 1  # attributes, groups, labels, sides; and the budget
    table = found.to_frame()
    assert table["rule"].tolist() == [str(rule), str(BUDGET)]
    assert table["rules"].tolist() == [16, 1]
    of_parity = {name: excess for name, excess in found.items() if name != str(BUDGET)}
    assert table["worst"].tolist() == [max(of_parity.values()), found[str(BUDGET)]]
    assert table["violated"].tolist() == [
        sum(excess > 0 for excess in found.values()) - (found[str(BUDGET)] > 0),
        int(found[str(BUDGET)] > 0),
    ]
    assert found[table["at"][0]] == table["worst"][0]
    assert len(repr(found).splitlines()) == 3
    assert max(map(len, repr(found).splitlines())) < 80


def test_violations_that_no_row_tells_are_no_violations():
    fitted = classifier(cv=2).fit(X, Y, sensitive_features=SEX)
    women = SEX == "F"
    found = fitted.violations(X[women], Y[women], sensitive_features=SEX[women])
    (line,) = found.statements
    assert np.isfinite(line.worst)
    assert "sex='F'" in line.at
    assert line.rules == 8


def test_weights_of_fitted_rows_are_those_of_their_own_rows():
    weights = np.where(Y[:200] == Y[0], 3.0, 1.0)
    model = ConstrainedClassifier(LogisticRegression(), [BUDGET], cv=KFold(3, shuffle=True, random_state=0))
    rows = model.fit(X[:200], Y[:200], sample_weight=weights)._fitted_rows
    labels = np.array(rows.classes)[rows.labels]
    assert not (labels == Y[:200]).all()  # folds change the order
    np.testing.assert_array_equal(rows.weights, np.where(labels == Y[0], 3.0, 1.0))
