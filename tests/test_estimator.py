from __future__ import annotations

import pickle

import numpy as np
import pandas
import polars
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    InfeasibleRulesError,
    Problem,
    demographic_parity,
    disagreement,
    equal_opportunity,
    equalized_odds,
    error,
    miscoverage,
    parse,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.conditional import JointClassifier

N = 1500
rng = np.random.default_rng(0)
SEX = rng.choice(["F", "M"], N)
DEPT = rng.choice(["a", "b"], N)
X = pandas.DataFrame(
    {
        "u": rng.normal(size=N) + (SEX == "F"),
        "v": rng.normal(size=N) + (DEPT == "a"),
        "w": rng.normal(size=N),
    }
)
Y = np.where(0.8 * X.u - X.v + rng.normal(size=N) > 0, "yes", "no")
GROUPS = pandas.DataFrame({"sex": SEX, "dept": DEPT})
PARITY = demographic_parity("sex", tol=0.02)


def classifier(rules=(PARITY,), base=None, margin=0.0, **options):
    base = LogisticRegression() if base is None else base
    return ConstrainedClassifier(base, list(rules), margin=margin, random_state=0, **options)


def unaware(rules=(PARITY,), **options):
    return classifier(rules, group_estimator=LogisticRegression(), **options)


def aware():
    return classifier().fit(X, Y, sensitive_features=SEX)


def gap(law, among=slice(None), by=SEX):
    """Worst difference of a group's selection rate from everybody's, written out."""
    law, by = law[among], by[among]
    return max(np.abs(law[by == s].mean(axis=0) - law.mean(axis=0)).max() for s in np.unique(by))


# scikit-learn's contract.

OVER_ACTIONS = "predict_proba is over the actions: the classes and the rejection"
RANDOM = "decisions are drawn at random; with ids they do not depend on the batch"


def not_applicable(estimator):
    if not estimator.rules:
        return {}
    return {
        "check_classifiers_train": OVER_ACTIONS,
        "check_estimator_sparse_array": OVER_ACTIONS,
        "check_estimator_sparse_matrix": OVER_ACTIONS,
        "check_methods_sample_order_invariance": RANDOM,
        "check_methods_subset_invariance": RANDOM,
    }


@parametrize_with_checks(
    [
        ConstrainedClassifier(LogisticRegression(), cv=3),
        ConstrainedClassifier(LogisticRegression(), cv=0.5),
        ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", cv=3),
    ],
    expected_failed_checks=not_applicable,
)
def test_scikit_learn(estimator, check):
    check(estimator)


def test_clones_and_pickles():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.multipliers_ == fitted.multipliers_
    fresh = clone(fitted)
    assert not hasattr(fresh, "policy_")
    assert fresh.rules == fitted.rules
    assert np.array_equal(
        fresh.fit(X, Y, sensitive_features=GROUPS).predict_proba(X), fitted.predict_proba(X)
    )


# Groups.


def test_known_groups_are_treated_alike():
    fitted = classifier().fit(X, Y, sensitive_features=GROUPS)
    law = fitted.predict_proba(X, sensitive_features=GROUPS)
    assert gap(fitted.estimator_.predict_proba(X) > 0.5) > 0.1
    assert gap(law) < 0.025
    assert fitted.score(X, Y, sensitive_features=GROUPS) > 0.75


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


def test_unknown_groups_are_never_looked_at():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    law = fitted.predict_proba(X)
    assert gap(law) < 0.03
    swapped = GROUPS.assign(sex=GROUPS.sex.map({"F": "M", "M": "F"}))
    assert np.array_equal(fitted.predict_proba(X, sensitive_features=swapped), law)


def test_the_correction_holds_observed_rates_on_the_fitting_rows():
    base = FrozenEstimator(LogisticRegression().fit(X, Y))
    shy = FrozenEstimator(LogisticRegression(C=1e-3).fit(X, SEX))
    laws = []
    for correction in (False, True):
        fitted = classifier(base=base, group_estimator=shy, correction=correction)
        laws.append(fitted.fit(X, Y, sensitive_features=SEX).predict_proba(X))
    assert gap(laws[0]) > 0.03
    assert gap(laws[1]) < 0.0206


def test_one_standard_error_is_left_to_new_rows():
    base = FrozenEstimator(LogisticRegression().fit(X, Y))
    fitted = ConstrainedClassifier(base, [rejected() <= 0.2]).fit(X, Y)
    law = fitted.predict_proba(X)[:, -1]
    assert law.mean() == pytest.approx(0.2 - law.std() / np.sqrt(N), abs=1e-3)
    plain = ConstrainedClassifier(base, [rejected() <= 0.2], correction=False).fit(X, Y)
    assert plain.predict_proba(X)[:, -1].mean() == pytest.approx(0.2, abs=1e-6)


def test_the_plain_plug_in_is_the_papers():
    base, guess = LogisticRegression().fit(X[:300], Y[:300]), LogisticRegression().fit(X[:300], SEX[:300])
    fitted = classifier(
        base=FrozenEstimator(base), group_estimator=FrozenEstimator(guess), correction=False
    ).fit(X, Y, sensitive_features=SEX)
    chances = pandas.DataFrame(guess.predict_proba(X), columns=guess.classes_)
    evidence = Evidence(base.predict_proba(X), classes=base.classes_, groups={"sex": chances}, normalize=True)
    policy = solve(Problem(error(), [PARITY]), evidence, rng=0)
    assert fitted.predict_proba(X) == pytest.approx(policy.probabilities(evidence), abs=1e-12)


def test_group_and_label_come_from_one_model():
    rule = equalized_odds("sex", tol=0.03)
    fitted = unaware([rule]).fit(X, Y, sensitive_features=GROUPS)
    assert len(fitted.group_estimators_["sex"].classes_) == 4
    law = fitted.predict_proba(X)
    assert max(gap(law, Y == label) for label in ("no", "yes")) < 0.045
    product = unaware([rule], joint="product").fit(X, Y, sensitive_features=GROUPS)
    assert len(product.group_estimators_["sex"].classes_) == 2
    assert not np.allclose(product.predict_proba(X), law)


def test_the_pair_model_agrees_with_the_classifier():
    fitted = unaware([equalized_odds("sex", tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    evidence = fitted._evidence(X, None, None)
    joint = evidence.joint["sex"]
    assert joint.sum(axis=1) == pytest.approx(fitted.estimator_.predict_proba(X), abs=1e-12)
    pairs = fitted.group_estimators_["sex"].predict_proba(X).reshape(-1, 2, 2)
    assert joint / joint.sum(axis=1, keepdims=True) == pytest.approx(pairs / pairs.sum(axis=1, keepdims=True))


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


def test_several_attributes_and_their_intersections():
    apart = unaware([demographic_parity(["sex", "dept"], tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    assert set(apart.group_estimators_) == {"sex", "dept"}
    assert max(gap(apart.predict_proba(X)), gap(apart.predict_proba(X), by=DEPT)) < 0.045
    crossed = classifier([demographic_parity(("sex", "dept"), tol=0.03)]).fit(X, Y, sensitive_features=GROUPS)
    law = crossed.predict_proba(X, sensitive_features=GROUPS)
    assert gap(law, by=np.char.add(SEX, DEPT)) < 0.04
    hidden = unaware([demographic_parity(("sex", "dept"), tol=0.05)]).fit(X, Y, sensitive_features=GROUPS)
    assert set(hidden.group_estimators_) == {("sex", "dept")}
    assert gap(hidden.predict_proba(X), by=np.char.add(SEX, DEPT)) < 0.075


def test_one_attribute_known_and_one_not():
    rules = [PARITY, demographic_parity("dept", tol=0.02)]
    fitted = classifier(rules, group_estimator={"sex": LogisticRegression()}).fit(
        X, Y, sensitive_features=GROUPS
    )
    assert set(fitted.group_estimators_) == {"sex"}
    law = fitted.predict_proba(X, sensitive_features=DEPT.tolist() and {"dept": DEPT})
    assert max(gap(law), gap(law, by=DEPT)) < 0.03
    with pytest.raises(ValueError, match=r"speak of \['dept'\], which must be known"):
        fitted.predict(X)


def test_one_tolerance_per_group():
    rule = demographic_parity("sex", tol={"F": 0.01, "M": 0.3})
    fitted = classifier([rule]).fit(X, Y, sensitive_features=SEX)
    law = fitted.predict_proba(X, sensitive_features=SEX)
    assert np.abs(law[SEX == "F"].mean(axis=0) - law.mean(axis=0)).max() < 0.02


def test_a_rows_answer_does_not_depend_on_its_batch():
    """Even where the model of the groups knows nothing of some labels."""
    model = KNeighborsClassifier(3)
    fitted = classifier([equalized_odds("sex", tol=0.05)], group_estimator=model).fit(
        X, Y, sensitive_features=SEX
    )
    law = fitted.predict_proba(X[:60])
    assert np.array_equal(np.concatenate([fitted.predict_proba(X[i : i + 1]) for i in range(60)]), law)


def test_an_unknown_group_is_guessed_given_the_known_one():
    """Race goes with sex, which X does not show: a product of the two would miss it."""
    race = np.where(rng.random(N) < 0.9, np.where(SEX == "F", "a", "b"), np.where(SEX == "F", "b", "a"))
    both = {"sex": SEX, "race": race}
    rules = [demographic_parity(("sex", "race"), tol=0.05)]
    fitted = classifier(rules, group_estimator={"race": LogisticRegression()}).fit(
        X, Y, sensitive_features=both
    )
    evidence = fitted._evidence(X, both, None)
    guessed = evidence.chance((("race", "b"), ("sex", "F"))).mean()
    assert guessed == pytest.approx(((SEX == "F") & (race == "b")).mean(), abs=0.01)


def test_a_frozen_group_model_may_know_more_values():
    seen = np.where(rng.random(N) < 0.05, "Q", SEX)
    guess = FrozenEstimator(LogisticRegression().fit(X, seen))
    with pytest.raises(ValueError, match="sex='Q', but they have no weight here"):
        classifier(group_estimator=guess).fit(X, Y, sensitive_features=SEX)
    fitted = classifier(group_estimator=guess, correction=False).fit(X, Y, sensitive_features=SEX)
    assert any("sex='Q'" in rule for rule in fitted.multipliers_)


class Distorted(LogisticRegression):
    """Ranks rows well and is far too sure of it."""

    def predict_proba(self, X):
        sharp = super().predict_proba(X) ** 4
        return sharp / sharp.sum(axis=1, keepdims=True)


def test_a_calibrator_learns_what_scores_are_worth():
    options = {"minimize": rejected(), "correction": False}
    rule = [error() <= 0.1]
    trusting = classifier(rule, Distorted(), **options).fit(X, Y)
    wary = classifier(rule, Distorted(), calibrator=LogisticRegression(), **options).fit(X, Y)
    assert trusting.expected(error(), X, Y) > 0.13
    assert wary.expected(error(), X, Y) == pytest.approx(0.1, abs=0.015)


def test_a_calibrator_sees_all_scores():
    """Of labels and of groups, and tells both from them."""
    calibrator = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = unaware(calibrator=calibrator).fit(X, Y, sensitive_features=SEX, sample_weight=np.ones(N))
    calibration = fitted.trained_.calibration
    assert calibration.label_model[-1].coef_.shape == (1, 2)
    evidence = fitted._evidence(X, None, None)
    scores = np.column_stack(
        [
            np.diff(fitted.estimator_.predict_log_proba(X)[:, ::-1]),
            np.diff(fitted.group_estimators_["sex"].predict_log_proba(X)[:, ::-1]),
        ]
    )
    assert evidence.probabilities == pytest.approx(calibration.label_model.predict_proba(scores))
    chances = evidence.groups["sex"].probabilities
    assert chances == pytest.approx(calibration.group_models[0].predict_proba(scores))
    with pytest.raises(ValueError, match="a calibrator learns from labels"):
        classifier((), FrozenEstimator(LogisticRegression().fit(X, Y)), calibrator=calibrator).fit(X)


# How the rows are used.


class Remembers(LogisticRegression):
    """Says how many rows it was trained on."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = len(X)
        return super().fit(X, y, sample_weight=sample_weight)


def test_folds_train_on_all_rows_and_a_split_on_its_part():
    assert classifier((), Remembers()).fit(X, Y).estimator_.seen_ == N
    assert classifier((), Remembers(), cv=0.4).fit(X, Y).estimator_.seen_ == 0.6 * N


def test_the_policy_is_chosen_on_rows_the_model_has_not_seen():
    """A forest knows its own rows by heart and would see nothing to refer."""
    rule = "error() <= 0.15"
    forest = RandomForestClassifier(50, random_state=0)
    options = {"minimize": rejected(), "correction": False}
    honest = classifier([rule], forest, **options).fit(X, Y)
    by_heart = classifier([rule], FrozenEstimator(forest.fit(X, Y)), **options).fit(X, Y)
    assert honest.policy_.multipliers[rule] > 0.5
    assert by_heart.policy_.multipliers[rule] < 0.05


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
    law = fitted.predict_proba(X, sensitive_features=GROUPS, reference=old)
    mean = lambda column, here=slice(None): np.average(column[here], axis=0, weights=weights[here])  # noqa: E731
    for by in (SEX, DEPT):
        for s in np.unique(by):
            assert np.abs(mean(law, by == s) - mean(law)).max() < 0.06
    assert mean(1 - law[order, (old == "yes").astype(int)]) < 0.23


def test_a_frozen_model_needs_no_labels():
    base = FrozenEstimator(LogisticRegression().fit(X[:500], Y[:500]))
    fitted = classifier(["rejected() <= 0.1"], base).fit(X)
    assert fitted.estimator_ is base
    assert fitted.predict_proba(X)[:, -1].mean() == pytest.approx(0.1, abs=1e-6)
    hidden = classifier(base=base, group_estimator=LogisticRegression()).fit(X, sensitive_features=GROUPS)
    assert gap(hidden.predict_proba(X)) < 0.03


def test_a_decision_function_is_calibrated_first():
    fitted = classifier(base=LinearSVC()).fit(X, Y, sensitive_features=SEX)
    assert isinstance(fitted.estimator_, CalibratedClassifierCV)
    assert gap(fitted.predict_proba(X, sensitive_features=SEX)) < 0.025


def test_weights_reach_the_model_and_the_policy():
    weights = np.where(SEX == "F", 5.0, 1.0)
    rules = [rejected() <= 0.2]
    fitted = classifier(rules).fit(X, Y, sample_weight=weights)
    plain = LogisticRegression().fit(X, Y, sample_weight=weights)
    assert fitted.estimator_.coef_ == pytest.approx(plain.coef_)
    law = classifier(rules, FrozenEstimator(plain)).fit(X, Y, sample_weight=weights).predict_proba(X)[:, -1]
    assert np.average(law, weights=weights) == pytest.approx(0.2, abs=1e-6)
    assert abs(law.mean() - 0.2) > 1e-3
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.warns(UserWarning, match="Pipeline takes no sample_weight"):
        classifier(rules, pipe).fit(X, Y, sample_weight=weights)


# Decisions.


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


def test_the_label_of_a_rejection_is_the_callers():
    fitted = classifier(["rejected() <= 0.2"], reject="ask a human").fit(X, Y)
    assert "ask a human" in fitted.predict(X)


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


def test_sets():
    digits, labels = load_digits(return_X_y=True)
    fitted = ConstrainedClassifier(GaussianNB(), [size() <= 1.5], minimize=miscoverage(), random_state=0).fit(
        digits, labels
    )
    inside = fitted.predict_set(digits)
    assert inside.shape == (len(digits), 10)
    assert inside.sum(axis=1).mean() == pytest.approx(1.5, abs=0.05)
    law = fitted.predict_proba(digits)
    covered = law[np.arange(len(labels)), labels].mean()
    assert fitted.score(digits, labels) == pytest.approx(covered)
    assert not hasattr(fitted, "predict")
    with pytest.raises(AttributeError) as caught:
        fitted.predict  # noqa: B018
    assert "use predict_set" in str(caught.value.__cause__)
    assert not hasattr(classifier(), "predict_set")


def test_churn_against_a_model_or_its_labels():
    old = RandomForestClassifier(20, random_state=0).fit(X[:400], Y[:400])
    rule = disagreement("last release") <= 0.05
    by_model = classifier([rule]).fit(X, Y, reference=old)
    by_labels = classifier([rule]).fit(X, Y, reference=old.predict(X))
    law = by_model.predict_proba(X)
    assert np.array_equal(law, by_labels.predict_proba(X, reference=old.predict(X)))
    agree = law[np.arange(N), (old.predict(X) == "yes").astype(int)]
    assert 1 - agree.mean() == pytest.approx(0.05, abs=0.01)
    assert by_model.references_ == {"last release": old}
    by_name = classifier([rule]).fit(X, Y, reference={"last release": old})
    assert np.array_equal(by_name.predict_proba(X), law)


def test_churn_against_an_earlier_constrained_classifier():
    old = classifier([PARITY, "rejected() <= 0.2"], base=GaussianNB(), reject="human")
    old.fit(X, Y, sensitive_features=SEX)
    rules = [PARITY, "rejected() <= 0.2", disagreement("old") <= 0.215]
    fitted = classifier(rules).fit(X, Y, sensitive_features=SEX, reference=old)
    law = fitted.predict_proba(X, sensitive_features=SEX)
    said = old.predict(X, sensitive_features=SEX)
    agree = np.where(said == "human", 0.0, law[np.arange(N), (said == "yes").astype(int)])
    assert 1 - agree.mean() == pytest.approx(0.215, abs=0.01)


# Judgement.


def test_scores_are_expected_and_observed():
    fitted = classifier(["rejected() <= 0.2"], beta=5.0).fit(X, Y)
    law = fitted.predict_proba(X)
    wrong = 1 - law[:, 2] - law[np.arange(N), (Y == "yes").astype(int)]
    assert fitted.score(X, Y) == pytest.approx(1 - wrong.mean())
    weights = np.linspace(0, 1, N)
    assert fitted.score(X, Y, weights) == pytest.approx(1 - np.average(wrong, weights=weights))
    assert fitted.expected(error(), X, Y) == pytest.approx(wrong.mean())
    assert fitted.expected(rejected(), X) == pytest.approx(law[:, 2].mean())


def test_violations_are_observed_by_rule():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    law = fitted.predict_proba(X)
    found = fitted.violations(X, Y, sensitive_features=GROUPS)
    name = "selected('yes').given(sex='F') - selected('yes') <= 0.02"
    assert found[name] == pytest.approx(law[SEX == "F", 1].mean() - law[:, 1].mean() - 0.02)
    assert set(found) == set(fitted.multipliers_)


def test_a_batch_without_some_group_is_judged_where_it_can_be():
    fitted = aware()
    women = SEX == "F"
    found = fitted.violations(X[women], Y[women], sensitive_features=SEX[women])
    assert {rule for rule, excess in found.items() if np.isnan(excess)} == {
        r for r in found if "sex='M'" in r
    }
    assert len(found) == len(fitted.multipliers_)


def test_other_rates_than_the_rules_own():
    fitted = aware()
    law = fitted.predict_proba(X, sensitive_features=SEX)
    wrong = 1 - law[np.arange(N), (Y == "yes").astype(int)]
    found = fitted.expected("error().given(dept='a')", X, Y, sensitive_features=GROUPS)
    assert found == pytest.approx(wrong[DEPT == "a"].mean())
    old = np.where(X.w > 0, "yes", "no")
    found = fitted.expected(disagreement("old"), X, sensitive_features=SEX, reference=old)
    assert found == pytest.approx(1 - law[np.arange(N), (old == "yes").astype(int)].mean())
    hidden = unaware([equalized_odds("sex", tol=0.03)]).fit(X, Y, sensitive_features=SEX)
    rate = error().given(sex="F")
    assert abs(hidden.expected(rate, X, Y) - hidden.expected(rate, X, Y, sensitive_features=SEX)) < 0.02
    assert (
        hidden.expected(rate, X, Y) < 0.4 < 0.6 < hidden.expected(rate, X, np.where(Y == "yes", "no", "yes"))
    )


def test_a_failed_fit_leaves_the_old_one():
    old = RandomForestClassifier(10, random_state=0).fit(X, Y)
    fitted = classifier([disagreement("old") <= 0.05]).fit(X, Y, reference=old)
    law = fitted.predict_proba(X)
    fitted.set_params(rules=[disagreement("old") <= 0.05, selected("yes") >= 0.99])
    with pytest.raises(InfeasibleRulesError):
        fitted.fit(X, Y, reference=DummyClassifier().fit(X, Y))
    assert np.array_equal(fitted.predict_proba(X), law)


@pytest.mark.parametrize(
    "state",
    [None, 3, np.random.RandomState(0), np.random.default_rng(0)],
    ids=["none", "number", "legacy", "generator"],
)
def test_any_random_state(state):
    fitted = classifier(["rejected() <= 0.2"]).set_params(random_state=state).fit(X, Y)
    assert (fitted.predict(X) == "reject").mean() == pytest.approx(0.2, abs=0.05)
    assert np.array_equal(fitted.predict(X, ids=range(N)), fitted.predict(X, ids=range(N)))


def test_explanations_say_what_moved_a_row():
    fitted = unaware().fit(X, Y, sensitive_features=GROUPS)
    found = fitted.explain(X)
    law = fitted.predict_proba(X)
    assert (found.after == law.argmax(axis=1)).all()
    assert (found.before == fitted.estimator_.predict_proba(X).argmax(axis=1)).all()
    assert 10 < (found.after != found.before).sum() < N / 2
    assert set(found.rules) == {rule for rule, price in fitted.multipliers_.items() if price}


def test_the_notebook_shows_rules_and_prices():
    fresh, fitted = classifier(), classifier().fit(X, Y, sensitive_features=GROUPS)
    assert "LogisticRegression" in fresh._repr_html_()
    assert "price" not in fresh._repr_html_()
    shown = fitted._repr_html_()
    assert "price" in shown
    assert "selected(&#x27;yes&#x27;).given(sex=&#x27;F&#x27;)" in shown
    assert "price" in fitted._repr_mimebundle_()["text/html"]


# Life in pipelines.


def test_grid_search_over_models_and_rules():
    grid = {"estimator__C": [0.001, 1.0], "rules": [[PARITY], [demographic_parity("sex", tol=0.1)]]}
    search = GridSearchCV(unaware(cv=3), grid, cv=3).fit(X, Y, sensitive_features=GROUPS)
    assert search.best_params_ == {"estimator__C": 1.0, "rules": [demographic_parity("sex", tol=0.1)]}
    assert search.predict(X).shape == (N,)


def test_a_pipeline_with_polars_all_the_way():
    frame = polars.from_pandas(X)
    pipe = make_pipeline(StandardScaler(), unaware()).set_output(transform="polars")
    pipe.fit(frame, Y, constrainedclassifier__sensitive_features=polars.from_pandas(GROUPS))
    assert pipe[-1].feature_names_in_.tolist() == ["u", "v", "w"]
    assert gap(pipe.predict_proba(frame)) < 0.03
    pipe.set_output(transform="pandas").fit(X, Y, constrainedclassifier__sensitive_features=GROUPS)
    assert gap(pipe.predict_proba(X)) < 0.03


def test_polars_labels_and_weights():
    wanted = classifier(["rejected() <= 0.1"]).fit(X, Y, sample_weight=np.linspace(1, 2, N)).predict_proba(X)
    found = classifier(["rejected() <= 0.1"]).fit(
        polars.from_pandas(X), polars.Series(Y), sample_weight=polars.Series(np.linspace(1, 2, N))
    )
    assert np.array_equal(found.predict_proba(polars.from_pandas(X)), wanted)


def test_cross_validation_and_calibration():
    drawn = cross_val_predict(
        classifier(["rejected() <= 0.1"], CalibratedClassifierCV(LinearSVC())), X, Y, cv=3
    )
    assert (drawn == "reject").mean() == pytest.approx(0.1, abs=0.03)
    scores = cross_val_score(classifier(["rejected() <= 0.1"]), X, Y, cv=3)
    assert scores.min() > 0.78


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


def test_rules_as_text_and_rules_used_again():
    by_text = classifier([str(PARITY)]).fit(X, Y, sensitive_features=SEX)
    assert by_text.policy_.problem.rules == (PARITY,) == (parse(str(PARITY)),)
    half = slice(N // 2)
    again = classifier([PARITY]).fit(X[half], Y[half], sensitive_features=SEX[half])
    assert list(again.multipliers_) == list(by_text.multipliers_)


# Bad input.


ODDS = equalized_odds("sex", tol=0.03)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: classifier().fit(X, Y), r"speak of \['sex'\].*pass sensitive_features with this column"),
        (lambda: unaware().fit(X, Y), r"speak of 'sex': pass sensitive_features"),
        (lambda: classifier().fit(X, Y, sensitive_features=SEX[:9]), r"\['sex'\] has 9 rows, but X has 1500"),
        (lambda: classifier().fit(X, Y[:9]), "y has 9 rows, but X has 1500"),
        (lambda: classifier(()).fit(X, Y, sample_weight=[1.0]), "sample_weight has 1 rows"),
        (lambda: classifier(()).fit(X, Y, sample_weight=-np.ones(N)), "sample_weight must be finite"),
        (
            lambda: classifier().fit(X, Y, sensitive_features=GROUPS.sex.where(X.u > -1)),
            r"sensitive_features\['sex'\] has \d+ missing values, the first in row",
        ),
        (lambda: classifier().fit(X, Y, sensitive_features=np.full(N, "F")), "single value"),
        (
            lambda: classifier([ODDS]).fit(X, np.where(SEX == "F", "no", Y), sensitive_features=SEX),
            r"label='yes', sex='F', but they have no weight here; remove the rule, merge the group",
        ),
        (
            lambda: unaware([ODDS]).fit(X, np.where(SEX == "F", "no", Y), sensitive_features=SEX),
            r"label='yes', sex='F', but they have no weight here",
        ),
        (
            lambda: classifier([demographic_parity("sex", tol={"F": 0.1, "M": 0.1, "X": 0.1})]).fit(
                X, Y, sensitive_features=SEX
            ),
            r"a tolerance is given for \{'X'\}",
        ),
        (lambda: classifier(()).fit(X, np.full(N, "no")), "y has one class"),
        (lambda: classifier(()).fit(X, np.r_[["rare"], Y[1:]]), r"at least 5 rows, and \['rare'\] has 1"),
        (lambda: classifier((), cv=0.5).fit(X, np.r_[["rare"], Y[1:]]), r"at least 2 rows, and \['rare'\]"),
        (lambda: classifier(()).fit(X), "requires y to be passed"),
        (lambda: classifier((), cv=1).fit(X, Y), "at least 2 folds"),
        (lambda: classifier((), cv=1.5).fit(X, Y), "between 0 and 1"),
        (lambda: classifier((), base=StandardScaler()).fit(X, Y), "predict_proba or decision_function"),
        (
            lambda: unaware(joint="both").fit(X, Y, sensitive_features=SEX),
            "joint must be one of",
        ),
        (
            lambda: classifier(group_estimator={"race": LogisticRegression()}).fit(
                X, Y, sensitive_features=SEX
            ),
            r"model for \['race'\], of which no rule speaks",
        ),
        (lambda: classifier([disagreement("old") <= 0.1]).fit(X, Y), "compare with 'old': pass reference="),
        (
            lambda: classifier([disagreement("old") <= 0.1]).fit(X, Y, reference=np.full(N, "maybe")),
            "'maybe' in row 0 is not a class",
        ),
        (
            lambda: classifier([disagreement("a") <= 0.1, disagreement("b") <= 0.1]).fit(X, Y, reference=Y),
            r"one column, and the rules speak of \['a', 'b'\]",
        ),
        (lambda: classifier().fit(X, Y, sensitive_features=np.full((N, 2), "F")), "2 columns without names"),
        (
            lambda: classifier().fit(X, Y, sensitive_features=GROUPS.sex.sample(frac=1, random_state=0)),
            "same index as 'X' in another order",
        ),
        (
            lambda: (
                classifier()
                .fit(X, Y, sensitive_features=SEX)
                .predict(X[["v", "u", "w"]], sensitive_features=SEX)
            ),
            "feature names should match",
        ),
        (
            lambda: aware().predict(X[["u"]], sensitive_features=SEX),
            "feature names should match",
        ),
        (lambda: aware().predict(X), r"which must be known to decide"),
        (
            lambda: aware().predict(X[:2], sensitive_features=["F", "X"]),
            r"values the policy was not fitted on: \['X'\]",
        ),
        (
            lambda: classifier(()).fit(X, Y).predict(X, ids=[1, 2]),
            "ids has 2 rows",
        ),
        (
            lambda: classifier((), reject="no", decisions="reject").fit(X, Y),
            "is also a class; choose another",
        ),
        (
            lambda: classifier(()).fit(X, Y).score(X, np.full(N, "maybe")),
            "labels: 'maybe' in row 0 is not a class",
        ),
    ],
)
def test_bad_input_is_named(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_class_that_a_frozen_model_does_not_know():
    base = FrozenEstimator(DummyClassifier().fit(X, Y))
    with pytest.raises(ValueError, match=r"labels that the frozen estimator does not know: \['maybe'\]"):
        classifier([error() <= 0.9], base, minimize=rejected()).fit(X, np.full(N, "maybe"))


def test_rules_are_judged_on_what_is_seen():
    fitted = classifier([selected("yes").given(label="no") <= 0.2]).fit(X, Y)
    with pytest.raises(ValueError, match="pass y"):
        fitted.violations(X)
    hidden = unaware().fit(X, Y, sensitive_features=SEX)
    with pytest.raises(ValueError, match=r"pass sensitive_features with the true \['sex'\]"):
        hidden.violations(X, Y)
