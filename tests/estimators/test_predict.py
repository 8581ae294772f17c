from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from bylaw import (
    ConstrainedClassifier,
    OptionError,
    demographic_parity,
    disagreement,
    miscoverage,
    size,
)
from helpers.people import DEPT, PARITY, SEX, N, X, Y, classifier


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "reject"),
    [
        (["no", "yes"], "reject"),
        ([0, 1], -1),
        ([-1, 1], -2),
        ([1.0, 2.0], -1.0),
        ([False, True], "reject"),
        (np.array(["no", "yes"], dtype=object), "reject"),
    ],
    ids=str,
)
def test_labels_of_any_type(labels, reject):
    y = np.asarray(labels)[(Y == "yes").astype(int)]
    fitted = classifier(["rejected() <= 0.2"]).fit(X, y)
    drawn = fitted.predict(X)
    assert fitted.actions_.tolist() == [*np.asarray(labels).tolist(), reject]
    assert type(fitted.actions_.tolist()[-1]) is type(reject)
    assert set(drawn.tolist()) == set(fitted.actions_.tolist())
    assert np.mean([d == reject for d in drawn.tolist()]) == pytest.approx(0.2, abs=0.03)
    assert fitted.classes_.tolist() == np.asarray(labels).tolist()


@pytest.mark.slow
def test_the_label_of_a_rejection_is_the_callers():
    fitted = classifier(["rejected() <= 0.2"], reject="ask a human").fit(X, Y)
    assert "ask a human" in fitted.predict(X)


@pytest.mark.slow
def test_draws_by_seed_and_by_id():
    fitted = classifier(["rejected() <= 0.2"], beta=5.0).fit(X, Y)
    assert np.array_equal(fitted.predict(X), fitted.predict(X))
    ids = [f"row {i}" for i in range(N)]
    drawn = fitted.predict(X, ids=ids)
    order = np.random.default_rng(1).permutation(N)
    assert np.array_equal(fitted.predict(X.iloc[order], ids=[ids[i] for i in order]), drawn[order])
    assert np.array_equal(fitted.predict(X[100:110], ids=ids[100:110]), drawn[100:110])
    other = fitted.set_params(random_state=1).predict(X, ids=ids)
    assert not np.array_equal(other, drawn)
    refitted = classifier(["rejected() <= 0.2"], beta=5.0).fit(X, Y).predict(X, ids=ids)
    assert np.array_equal(refitted, drawn)
    free = fitted.set_params(random_state=None)
    assert not np.array_equal(free.predict(X), free.predict(X))


def test_a_secret_key_goes_before_the_seed():
    fitted = classifier(["rejected() <= 0.2"], beta=5.0).fit(X, Y)
    ids = [f"row {i}" for i in range(N)]
    evidence = fitted._make_evidence(X, None, None)
    expected = fitted.policy_.decide(evidence, ids=ids, key="a secret")
    assert fitted.predict(X, ids=ids, key="a secret").tolist() == expected.tolist()
    assert not np.array_equal(fitted.predict(X, ids=ids), expected)
    with pytest.raises(OptionError, match="no effect without ids"):
        fitted.predict(X, key="a secret")
    with pytest.raises(OptionError, match="the secret is set"):
        fitted.predict(X, ids=ids, key="")


@pytest.mark.slow
def test_sets():
    digits, labels = load_digits(return_X_y=True)
    fitted = ConstrainedClassifier(GaussianNB(), [size() <= 1.5], minimize=miscoverage(), random_state=0).fit(
        digits, labels
    )
    inside = fitted.predict_set(digits)
    assert inside.shape == (len(digits), 10)
    assert inside.sum(axis=1).mean() == pytest.approx(1.5, abs=0.05)
    distribution = fitted.predict_proba(digits)
    covered = distribution[np.arange(len(labels)), labels].mean()
    assert fitted.score(digits, labels) == pytest.approx(covered)
    assert not hasattr(fitted, "predict")
    with pytest.raises(AttributeError, match="no attribute 'predict'") as caught:
        fitted.predict(digits)
    assert "sets of labels: use predict_set" in str(caught.value.__cause__)
    assert not hasattr(classifier(), "predict_set")
    with pytest.raises(AttributeError, match="no attribute 'predict_set'") as caught:
        classifier().predict_set(X)
    assert "not sets of labels: use predict" in str(caught.value.__cause__)


@pytest.mark.slow
def test_churn_against_a_model_or_its_labels():
    old = RandomForestClassifier(20, random_state=0).fit(X[:400], Y[:400])
    rule = disagreement("last release") <= 0.05
    by_model = classifier([rule]).fit(X, Y, reference=old)
    by_labels = classifier([rule]).fit(X, Y, reference=old.predict(X))
    distribution = by_model.predict_proba(X)
    assert np.array_equal(distribution, by_labels.predict_proba(X, reference=old.predict(X)))
    agree = distribution[np.arange(N), (old.predict(X) == "yes").astype(int)]
    assert 1 - agree.mean() == pytest.approx(0.05, abs=0.01)
    assert by_model.references_ == {"last release": old}
    by_name = classifier([rule]).fit(X, Y, reference={"last release": old})
    assert np.array_equal(by_name.predict_proba(X), distribution)


@pytest.mark.slow
def test_churn_against_an_earlier_constrained_classifier():
    old = classifier([PARITY, "rejected() <= 0.2"], base=GaussianNB(), reject="human")
    old.fit(X, Y, sensitive_features=SEX)
    rules = [PARITY, "rejected() <= 0.2", disagreement("old") <= 0.215]
    fitted = classifier(rules).fit(X, Y, sensitive_features=SEX, reference=old)
    distribution = fitted.predict_proba(X, sensitive_features=SEX)
    said = old.predict(X, sensitive_features=SEX)
    agree = np.where(said == "human", 0.0, distribution[np.arange(N), (said == "yes").astype(int)])
    assert 1 - agree.mean() == pytest.approx(0.215, abs=0.01)


@pytest.mark.slow
def test_an_earlier_classifier_gets_the_groups_by_name():
    old = classifier([demographic_parity("dept", tol=0.1)]).fit(X, Y, sensitive_features=DEPT)
    rules = [PARITY, disagreement("old") <= 0.3]
    both = {"sex": SEX, "dept": DEPT}
    assert classifier(rules).fit(X, Y, sensitive_features=both, reference=old).references_ == {"old": old}
    with pytest.raises(ValueError, match=r"must have \['dept'\].*got \['sex'\]"):
        classifier(rules).fit(X, Y, sensitive_features=SEX, reference=old)
    sets = ConstrainedClassifier(GaussianNB(), [size() <= 1.2], minimize=miscoverage()).fit(X, Y)
    with pytest.raises(ValueError, match="predicts sets of labels"):
        classifier(rules).fit(X, Y, sensitive_features=SEX, reference=sets)
