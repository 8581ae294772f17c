from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    Problem,
    demographic_parity,
    equal_opportunity,
    equalized_odds,
    error,
    rejected,
    solve,
)
from bylaw.estimators import JointClassifier
from helpers.people import DEPT, GROUPS, PARITY, SEX, N, X, Y, classifier, gap, unaware


@pytest.mark.slow
def test_known_groups_are_treated_alike():
    fitted = classifier().fit(X, Y, sensitive_features=GROUPS)
    distribution = fitted.predict_proba(X, sensitive_features=GROUPS)
    assert gap(fitted.estimator_.predict_proba(X) > 0.5) > 0.1
    assert gap(distribution) < 0.025
    assert fitted.score(X, Y, sensitive_features=GROUPS) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize(
    "sensitive",
    [
        GROUPS,
        SEX,
        SEX.tolist(),
        GROUPS.sex,
        {"sex": SEX},
        GROUPS[["sex"]],
        SEX.reshape(-1, 1),
        polars.DataFrame({"dept": DEPT, "sex": SEX}),
        polars.Series("sex", SEX),
    ],
    ids=lambda s: type(s).__name__,
)
def test_groups_come_in_many_forms(sensitive):
    wanted = classifier().fit(X, Y, sensitive_features=GROUPS).predict_proba(X, sensitive_features=GROUPS)
    found = (
        classifier().fit(X, Y, sensitive_features=sensitive).predict_proba(X, sensitive_features=sensitive)
    )
    assert np.array_equal(found, wanted)


@pytest.mark.slow
def test_unknown_groups_are_never_looked_at():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    distribution = fitted.predict_proba(X)
    assert gap(distribution) < 0.03
    swapped = GROUPS.assign(sex=GROUPS.sex.map({"F": "M", "M": "F"}))
    assert np.array_equal(fitted.predict_proba(X, sensitive_features=swapped), distribution)


@pytest.mark.slow
def test_the_correction_holds_observed_rates_on_the_fitting_rows():
    base = FrozenEstimator(LogisticRegression().fit(X, Y))
    shy = FrozenEstimator(LogisticRegression(C=1e-3).fit(X, SEX))
    distributions = []
    for correction in (False, True):
        fitted = classifier(base=base, group_estimator=shy, correction=correction)
        distributions.append(fitted.fit(X, Y, sensitive_features=SEX).predict_proba(X))
    assert gap(distributions[0]) > 0.03
    assert gap(distributions[1]) < 0.0206


def test_one_standard_error_is_left_to_new_rows():
    base = FrozenEstimator(LogisticRegression().fit(X, Y))
    fitted = ConstrainedClassifier(base, [rejected() <= 0.2], margin=1.0).fit(X, Y)
    distribution = fitted.predict_proba(X)[:, -1]
    assert distribution.mean() == pytest.approx(0.2 - distribution.std() / np.sqrt(N), abs=1e-3)
    sure = ConstrainedClassifier(base, [rejected() <= 0.2]).fit(X, Y)  # with a chance of 95 %
    distribution = sure.predict_proba(X)[:, -1]
    assert distribution.mean() == pytest.approx(0.2 - 1.645 * distribution.std() / np.sqrt(N), abs=1.5e-3)
    assert sure.policy_.fitted_rates.chance == pytest.approx(0.95, abs=0.02)
    plain = ConstrainedClassifier(base, [rejected() <= 0.2], correction=False).fit(X, Y)
    assert plain.predict_proba(X)[:, -1].mean() == pytest.approx(0.2, abs=1e-6)


@pytest.mark.slow
def test_the_plain_plug_in_is_the_papers():
    base, guess = LogisticRegression().fit(X[:300], Y[:300]), LogisticRegression().fit(X[:300], SEX[:300])
    fitted = classifier(
        base=FrozenEstimator(base), group_estimator=FrozenEstimator(guess), correction=False
    ).fit(X, Y, sensitive_features=SEX)
    chances = pandas.DataFrame(guess.predict_proba(X), columns=guess.classes_)
    evidence = Evidence(base.predict_proba(X), classes=base.classes_, groups={"sex": chances}, normalize=True)
    policy = solve(Problem(error(), [PARITY]), evidence, rng=0)
    assert fitted.predict_proba(X) == pytest.approx(policy.probabilities(evidence), abs=1e-12)


@pytest.mark.slow
def test_group_and_label_come_from_one_model():
    rule = equalized_odds("sex", tol=0.03)
    fitted = unaware([rule]).fit(X, Y, sensitive_features=GROUPS)
    assert len(fitted.group_estimators_["sex"].classes_) == 4
    distribution = fitted.predict_proba(X)
    assert max(gap(distribution, Y == label) for label in ("no", "yes")) < 0.045
    product = unaware([rule], joint="product").fit(X, Y, sensitive_features=GROUPS)
    assert len(product.group_estimators_["sex"].classes_) == 2
    assert not np.allclose(product.predict_proba(X), distribution)


@pytest.mark.slow
def test_the_pair_model_agrees_with_the_classifier():
    fitted = unaware([equalized_odds("sex", tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    evidence = fitted._make_evidence(X, None, None)
    joint = evidence.joint["sex"]
    assert joint.sum(axis=1) == pytest.approx(fitted.estimator_.predict_proba(X), abs=1e-12)
    pairs = fitted.group_estimators_["sex"].predict_proba(X).reshape(-1, 2, 2)
    assert joint / joint.sum(axis=1, keepdims=True) == pytest.approx(pairs / pairs.sum(axis=1, keepdims=True))


@pytest.mark.slow
def test_a_frozen_pair_model_serves():
    base = FrozenEstimator(LogisticRegression().fit(X[:500], Y[:500]))
    pair = JointClassifier(LogisticRegression()).fit(X[:500], {"sex": SEX[:500], "label": Y[:500]})
    rule = equal_opportunity("sex", tol=0.03)
    fitted = classifier([rule], base=base, group_estimator=FrozenEstimator(pair)).fit(
        X, Y, sensitive_features=SEX
    )
    assert max(fitted.violations(X, Y, sensitive_features=SEX).values()) < 6e-4
    alone = FrozenEstimator(LogisticRegression().fit(X[:500], SEX[:500]))
    with pytest.raises(ValueError, match="JointClassifier fitted on sex and label together"):
        classifier([rule], base=base, group_estimator=alone).fit(X, Y, sensitive_features=SEX)


@pytest.mark.slow
def test_several_attributes_and_their_intersections():
    apart = unaware([demographic_parity(["sex", "dept"], tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    assert set(apart.group_estimators_) == {"sex", "dept"}
    assert max(gap(apart.predict_proba(X)), gap(apart.predict_proba(X), by=DEPT)) < 0.045
    crossed = classifier([demographic_parity(("sex", "dept"), tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    distribution = crossed.predict_proba(X, sensitive_features=GROUPS)
    assert gap(distribution, by=np.char.add(SEX, DEPT)) < 0.04
    hidden = unaware([demographic_parity(("sex", "dept"), tol=0.05)]).fit(X, Y, sensitive_features=GROUPS)
    assert set(hidden.group_estimators_) == {("sex", "dept")}
    assert gap(hidden.predict_proba(X), by=np.char.add(SEX, DEPT)) < 0.075


@pytest.mark.slow
def test_one_attribute_known_and_one_not():
    rules = [PARITY, demographic_parity("dept", tol=0.02)]
    fitted = classifier(rules, group_estimator={"sex": LogisticRegression()}).fit(
        X, Y, sensitive_features=GROUPS
    )
    assert set(fitted.group_estimators_) == {"sex"}
    distribution = fitted.predict_proba(X, sensitive_features=DEPT.tolist() and {"dept": DEPT})
    assert max(gap(distribution), gap(distribution, by=DEPT)) < 0.03
    with pytest.raises(ValueError, match=r"sensitive_features must have \['dept'\]"):
        fitted.predict(X)


@pytest.mark.slow
def test_one_tolerance_per_group():
    rule = demographic_parity("sex", tol={"F": 0.01, "M": 0.3})
    fitted = classifier([rule]).fit(X, Y, sensitive_features=SEX)
    distribution = fitted.predict_proba(X, sensitive_features=SEX)
    assert np.abs(distribution[SEX == "F"].mean(axis=0) - distribution.mean(axis=0)).max() < 0.02


@pytest.mark.slow
def test_a_rows_answer_does_not_depend_on_its_batch():
    """Even where the model of the groups knows nothing of some labels. Both models answer one row as they
    answer many, to the last bit: a matrix product would not, on every processor."""
    base, model = DecisionTreeClassifier(max_depth=4, random_state=0), KNeighborsClassifier(3)
    fitted = classifier([equalized_odds("sex", tol=0.05)], base, group_estimator=model).fit(
        X, Y, sensitive_features=SEX
    )
    distribution = fitted.predict_proba(X[:60])
    assert np.array_equal(
        np.concatenate([fitted.predict_proba(X[i : i + 1]) for i in range(60)]), distribution
    )


@pytest.mark.slow
def test_an_unknown_group_is_guessed_given_the_known_one():
    """Race goes with sex, which X does not show: a product of the two would miss it."""
    race = np.where(
        np.random.default_rng(1).random(N) < 0.9,
        np.where(SEX == "F", "a", "b"),
        np.where(SEX == "F", "b", "a"),
    )
    both = {"sex": SEX, "race": race}
    rules = [demographic_parity(("sex", "race"), tol=0.05)]
    fitted = classifier(rules, group_estimator={"race": LogisticRegression()}).fit(
        X, Y, sensitive_features=both
    )
    evidence = fitted._make_evidence(X, both, None)
    guessed = evidence.event_probability((("race", "b"), ("sex", "F"))).mean()
    assert guessed == pytest.approx(((SEX == "F") & (race == "b")).mean(), abs=0.01)


@pytest.mark.slow
def test_one_model_for_attributes_by_a_tuple():
    rules = [demographic_parity(["sex", "dept"], tol=0.05)]
    by_tuple = classifier(rules, group_estimator={("sex", "dept"): LogisticRegression()})
    by_tuple.fit(X, Y, sensitive_features=GROUPS)
    assert np.array_equal(
        by_tuple.predict_proba(X), unaware(rules).fit(X, Y, sensitive_features=GROUPS).predict_proba(X)
    )
    pair = JointClassifier(LogisticRegression()).fit(X, {"sex": SEX, "label": Y})
    rule = [equal_opportunity("sex", tol=0.05)]
    frozen = classifier(
        rule, FrozenEstimator(LogisticRegression().fit(X, Y)), group_estimator=FrozenEstimator(pair)
    )
    assert frozen.fit(X, Y).predict(X).shape == Y.shape  # the frozen model brings its values


@pytest.mark.slow
def test_a_frozen_group_model_may_know_more_values():
    seen = np.where(np.random.default_rng(1).random(N) < 0.05, "Q", SEX)
    guess = FrozenEstimator(LogisticRegression().fit(X, seen))
    with pytest.raises(ValueError, match="sex='Q', but no row of the evidence"):
        classifier(group_estimator=guess).fit(X, Y, sensitive_features=SEX)
    fitted = classifier(group_estimator=guess, correction=False).fit(X, Y, sensitive_features=SEX)
    assert any("sex='Q'" in rule for rule in fitted.multipliers_)


class Distorted(LogisticRegression):
    """Ranks rows well and is far too sure of it."""

    def predict_proba(self, X):
        sharp = super().predict_proba(X) ** 4
        return sharp / sharp.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the policy chooses at random between")  # the error is allowed to be large
def test_a_calibrator_learns_what_scores_are_worth():
    options = {"minimize": rejected(), "correction": False}
    rule = [error() <= 0.1]
    trusting = classifier(rule, Distorted(), **options).fit(X, Y)
    wary = classifier(rule, Distorted(), calibrator=LogisticRegression(), **options).fit(X, Y)
    assert trusting.expected(error(), X, Y) > 0.13
    assert wary.expected(error(), X, Y) == pytest.approx(0.1, abs=0.015)


@pytest.mark.slow
def test_a_calibrator_sees_all_scores():
    """Of labels and of groups, and tells both from them."""
    calibrator = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = unaware(calibrator=calibrator).fit(X, Y, sensitive_features=SEX, sample_weight=np.ones(N))
    label_model, group_model = fitted.trained_.calibrators
    assert label_model[-1].coef_.shape == (1, 2)
    evidence = fitted._make_evidence(X, None, None)
    scores = np.column_stack(
        [
            np.diff(fitted.estimator_.predict_log_proba(X)[:, ::-1]),
            np.diff(fitted.group_estimators_["sex"].predict_log_proba(X)[:, ::-1]),
        ]
    )
    assert evidence.probabilities == pytest.approx(label_model.predict_proba(scores))
    chances = evidence.groups["sex"].probabilities
    assert chances == pytest.approx(group_model.predict_proba(scores))
    frozen = [FrozenEstimator(LogisticRegression().fit(X, target)) for target in (Y, SEX)]
    with pytest.raises(
        ValueError, match=r"a classifier as calibrator needs groups: pass sensitive_features with \['sex'\]"
    ):
        classifier(base=frozen[0], group_estimator=frozen[1], calibrator=calibrator).fit(X, Y)
    with pytest.raises(ValueError, match="a classifier as calibrator needs labels"):
        classifier((), FrozenEstimator(LogisticRegression().fit(X, Y)), calibrator=calibrator).fit(X)
