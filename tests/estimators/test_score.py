from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

from bylaw import (
    GuaranteeWarning,
    InfeasibleRulesError,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    rejected,
    selected,
)
from helpers.people import DEPT, GROUPS, SEX, N, X, Y, aware, classifier, unaware


@pytest.mark.slow
def test_scores_are_expected_and_observed():
    fitted = classifier(["rejected() <= 0.2"], beta=5.0).fit(X, Y)
    distribution = fitted.predict_proba(X)
    wrong = 1 - distribution[:, 2] - distribution[np.arange(N), (Y == "yes").astype(int)]
    assert fitted.score(X, Y) == pytest.approx(1 - wrong.mean())
    weights = np.linspace(0, 1, N)
    assert fitted.score(X, Y, weights) == pytest.approx(1 - np.average(wrong, weights=weights))
    assert fitted.expected(error(), X, Y) == pytest.approx(wrong.mean())
    assert fitted.expected(rejected(), X) == pytest.approx(distribution[:, 2].mean())


@pytest.mark.slow
def test_violations_are_observed_by_rule():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    distribution = fitted.predict_proba(X)
    found = fitted.violations(X, Y, sensitive_features=GROUPS)
    name = "selected('yes').given(sex='F') - selected('yes') <= 0.02"
    assert found[name] == pytest.approx(distribution[SEX == "F", 1].mean() - distribution[:, 1].mean() - 0.02)
    assert set(found) == set(fitted.multipliers_)


def test_a_batch_without_some_group_is_judged_where_it_can_be():
    fitted = aware()
    women = SEX == "F"
    found = fitted.violations(X[women], Y[women], sensitive_features=SEX[women])
    assert {rule for rule, excess in found.items() if np.isnan(excess)} == {
        r for r in found if "sex='M'" in r
    }
    assert len(found) == len(fitted.multipliers_)


@pytest.mark.slow
def test_other_rates_than_the_rules_own():
    fitted = aware()
    distribution = fitted.predict_proba(X, sensitive_features=SEX)
    wrong = 1 - distribution[np.arange(N), (Y == "yes").astype(int)]
    found = fitted.expected("error().given(dept='a')", X, Y, sensitive_features=GROUPS)
    assert found == pytest.approx(wrong[DEPT == "a"].mean())
    old = np.where(X.w > 0, "yes", "no")
    found = fitted.expected(disagreement("old"), X, sensitive_features=SEX, reference=old)
    assert found == pytest.approx(1 - distribution[np.arange(N), (old == "yes").astype(int)].mean())
    hidden = unaware([equalized_odds("sex", tol=0.03)]).fit(X, Y, sensitive_features=SEX)
    rate = error().given(sex="F")
    assert abs(hidden.expected(rate, X, Y) - hidden.expected(rate, X, Y, sensitive_features=SEX)) < 0.02
    assert (
        hidden.expected(rate, X, Y) < 0.4 < 0.6 < hidden.expected(rate, X, np.where(Y == "yes", "no", "yes"))
    )


@pytest.mark.slow
def test_a_failed_fit_leaves_the_old_one():
    old = RandomForestClassifier(10, random_state=0).fit(X, Y)
    fitted = classifier([disagreement("old") <= 0.05]).fit(X, Y, reference=old)
    distribution = fitted.predict_proba(X)
    fitted.set_params(rules=[disagreement("old") <= 0.05, selected("yes") >= 0.99])
    with pytest.raises(InfeasibleRulesError):
        fitted.fit(X, Y, reference=DummyClassifier().fit(X, Y))
    assert np.array_equal(fitted.predict_proba(X), distribution)


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [lambda: None, lambda: 3, lambda: np.random.RandomState(0), lambda: np.random.default_rng(0)],
    ids=["none", "number", "legacy", "generator"],
)
def test_any_random_state(state):
    fitted = classifier(["rejected() <= 0.2"]).set_params(random_state=state()).fit(X, Y)
    assert (fitted.predict(X) == "reject").mean() == pytest.approx(0.2, abs=0.05)
    assert np.array_equal(fitted.predict(X, ids=range(N)), fitted.predict(X, ids=range(N)))


@pytest.mark.slow
def test_small_cells_are_named_and_not_corrected():
    rare = np.where(np.arange(N) < 12, "Q", SEX)
    with pytest.warns(GuaranteeWarning, match=r"sex='Q'\).* \(12 rows, standard error"):
        fitted = unaware().fit(X, Y, sensitive_features=rare)
    rates = fitted.policy_.fitted_rates.rules
    assert all((rate.trust < 1) == ("'Q'" in rate.rule) for rate in rates if rate.rows < 20)
    assert all(rate.rows == pytest.approx(12) for rate in rates if "'Q'" in rate.rule)
    with pytest.warns(GuaranteeWarning, match=r"fewer than 20 rows, or .* \(sex='Q'"):
        unaware().set_params(correction=False).fit(X, Y, sensitive_features=rare)


def test_explanations_compare_with_the_models_own_answers():
    fitted = classifier(["rejected() <= 0.1"]).fit(X, Y)
    found = fitted.explain(X)
    assert (found.before == fitted.estimator_.predict_proba(X).argmax(axis=1)).all()
    assert found.moved.mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.slow
def test_explanations_say_what_moved_a_row():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    found = fitted.explain(X)
    distribution = fitted.predict_proba(X)
    assert (found.after == distribution.argmax(axis=1)).all()
    assert (found.before == fitted.estimator_.predict_proba(X).argmax(axis=1)).all()
    assert 10 < (found.after != found.before).sum() < N / 2
    assert set(found.rules) == {rule for rule, price in fitted.multipliers_.items() if price}


@pytest.mark.slow
def test_the_notebook_shows_rules_and_prices():
    fresh, fitted = classifier(), classifier().fit(X, Y, sensitive_features=GROUPS)
    assert "LogisticRegression" in fresh._repr_html_()
    assert "price" not in fresh._repr_html_()
    shown = fitted._repr_html_()
    assert "price" in shown
    assert "selected(&#x27;yes&#x27;).given(sex=&#x27;F&#x27;)" in shown
    assert "price" in fitted._repr_mimebundle_()["text/html"]


def test_outcomes_of_a_function_of_the_evidence():
    """What was predicted to cost nothing cost one unit for each "yes"."""

    def fee(evidence):
        return np.zeros((len(evidence), 2))

    clf = classifier([custom(fee) <= 0.1], correction=False).fit(X[:700], Y[:700])
    options = {"limits": {"fee": (0, 1)}}
    blind = clf.audit(X[700:], Y[700:], **options).rules[0]
    assert (str(blind.verdict), blind.estimate) == ("not judged", 0.0)
    outcomes = {"fee": np.tile([0.0, 1.0], (len(X) - 700, 1))}
    seen = clf.audit(X[700:], Y[700:], **options, outcomes=outcomes).rules[0]
    assert seen.estimate == pytest.approx(clf.predict_proba(X[700:])[:, 1].mean())
    assert str(seen.verdict) == "violated"


@pytest.mark.parametrize("correction", [True, False])
def test_a_tolerance_finer_than_a_group_can_show_is_said_at_fit(correction):
    """The group has 60 rows, and one is more than a point of its rate."""
    rare = np.where(np.arange(N) < 60, "Q", SEX)
    model = classifier([demographic_parity("sex", tol=0.01)], correction=correction, cv=2)
    with pytest.warns(GuaranteeWarning, match=r"sex='Q'.*60 rows"):
        model.fit(X, Y, sensitive_features=rare)
