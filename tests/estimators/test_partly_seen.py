"""Classifiers that are fitted with labels and groups of some rows only."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from bylaw import ConstrainedClassifier, EvidenceError, OptionError, equalized_odds, error, rejected
from bylaw.estimators._inputs import FitRows, stack_rows
from bylaw.estimators._training import make_splits
from bylaw.rows import KnownGroup, observe
from helpers.people import GROUPS, PARITY, SEX, X, Y, classifier, unaware

SHOWN = np.random.default_rng(8).random(len(X)) < 0.4
FEW = np.flatnonzero(SHOWN)
MORE = np.flatnonzero(~SHOWN)
WITHIN = error() <= 0.2


def partly(y=Y, shown=SHOWN):
    return np.where(shown, y, None)


@pytest.mark.parametrize(
    "spell",
    [
        lambda y: partly(y),
        lambda y: np.where(SHOWN, y == "yes", np.nan),
        lambda y: pandas.Series(partly(y), dtype="string"),
        lambda y: pandas.Series(np.where(SHOWN, y == "yes", None)).astype("Int64"),
        lambda y: polars.Series(partly(y).tolist()),
        lambda y: np.ma.MaskedArray((y == "yes").astype(int), mask=~SHOWN),
        lambda y: partly(y).tolist(),
    ],
)
def test_the_model_is_trained_on_labelled_rows_and_the_policy_chosen_on_all(spell):
    found = classifier([rejected() <= 0.1]).fit(X, spell(Y))
    alone = LogisticRegression().fit(X.iloc[FEW], Y[FEW])
    assert found.estimator_.coef_ == pytest.approx(alone.coef_)
    assert len(found.classes_) == 2
    assert found.expected("rejected()", X) == pytest.approx(0.1, abs=0.02)


def test_unlabelled_rows_are_rows_with_missing_labels():
    rules = [error() <= 0.24, PARITY]
    order = np.concatenate([FEW, MORE])
    joined = classifier(rules).fit(X.iloc[order], partly()[order], sensitive_features=SEX[order])
    separate = classifier(rules).fit(
        X.iloc[FEW],
        Y[FEW],
        sensitive_features=SEX[FEW],
        unlabelled=X.iloc[MORE],
        unlabelled_sensitive_features=SEX[MORE],
    )
    assert separate.multipliers_ == joined.multipliers_
    alone = classifier(rules).fit(X.iloc[FEW], Y[FEW], sensitive_features=SEX[FEW])
    assert separate.multipliers_ != alone.multipliers_


def test_rules_hold_by_prediction_powered_rates():
    found = classifier([WITHIN], minimize="rejected()", cv=0.5).fit(X, partly())
    train = make_splits(0.5, X, Y, 0, {}, SHOWN)[0][0]
    assert SHOWN[train].all()
    kept = np.setdiff1d(np.arange(len(X)), train)
    excess = found.violations(X.iloc[kept], partly()[kept])[str(WITHIN)]
    assert abs(excess) < 0.02


def test_one_split_trains_on_labelled_rows_and_predicts_all_others():
    train, test = make_splits(0.3, X, Y, 0, {}, SHOWN)[0]
    assert sorted(np.concatenate([train, test])) == list(range(len(X)))
    assert set(MORE) <= set(test)
    assert len(train) == pytest.approx(0.7 * len(FEW), abs=2)


def test_each_fold_has_its_share_of_unlabelled_rows():
    splits = make_splits(5, X, Y, 0, {}, SHOWN)
    assert [(~SHOWN[test]).sum() for _, test in splits] == pytest.approx([len(MORE) / 5] * 5, abs=1)
    few = np.ones(len(X), dtype=bool)
    few[:3] = False
    assert len(make_splits(5, X, Y, 0, {}, few)) == 5  # and no warning
    labels = np.array(["a"] * 20 + ["b"] * 20)
    with pytest.raises(
        EvidenceError, match=r"every class must have at least 5 rows if cv=5, got 2 for \['b'\]"
    ):
        make_splits(5, np.zeros((40, 1)), labels, 0, {}, np.arange(40) < 22)


@pytest.mark.slow
def test_a_hidden_group_is_learned_from_the_rows_that_show_it():
    groups = GROUPS.assign(sex=np.where(SHOWN, SEX, None))
    found = unaware().fit(X, Y, sensitive_features=groups)
    alone = LogisticRegression().fit(X.iloc[FEW], SEX[FEW])
    assert found.group_estimators_["sex"].coef_ == pytest.approx(alone.coef_)
    excess = found.violations(X, Y, sensitive_features=groups)
    assert max(excess.values()) < 0.03
    both = unaware([equalized_odds("sex", tol=0.05)]).fit(X, partly(), sensitive_features=groups)
    cells = np.char.add(SEX[FEW].astype(str), Y[FEW].astype(str))
    together = LogisticRegression().fit(X.iloc[FEW], cells)
    assert both.group_estimators_["sex"].coef_ == pytest.approx(together.coef_)
    counts = [((SEX == s) & (Y == y) & SHOWN).sum() for s in ("F", "M") for y in ("no", "yes")]
    assert both.trained_.hidden[0].frequencies.ravel().tolist() == counts
    more = unaware().fit(X.iloc[FEW], Y[FEW], sensitive_features=SEX[FEW], unlabelled=X.iloc[MORE])
    assert more.group_estimators_["sex"].coef_ == pytest.approx(alone.coef_)
    also = unaware().fit(
        X.iloc[FEW],
        Y[FEW],
        sensitive_features=SEX[FEW],
        unlabelled=X.iloc[MORE],
        unlabelled_sensitive_features=SEX[MORE],
    )
    assert also.group_estimators_["sex"].coef_ == pytest.approx(
        LogisticRegression().fit(X.iloc[[*FEW, *MORE]], SEX[[*FEW, *MORE]]).coef_, abs=1e-3
    )


def test_calibrators_learn_from_rows_that_show_everything():
    found = unaware(calibrator=LogisticRegression()).fit(
        X, partly(), sensitive_features=np.where(np.arange(len(X)) % 2, SEX, None)
    )
    assert max(found.violations(X, Y, sensitive_features=SEX).values()) < 0.06


def test_frozen_estimators_need_no_labels_at_all():
    model = FrozenEstimator(LogisticRegression().fit(X, Y))
    rules = [rejected() <= 0.1]
    plain = classifier(rules, model).fit(X)
    assert classifier(rules, model).fit(X, [None] * len(X)).multipliers_ == plain.multipliers_
    split = classifier(rules, model).fit(X.iloc[:900], unlabelled=X.iloc[900:])
    assert split.multipliers_ == pytest.approx(plain.multipliers_)


@pytest.mark.slow
def test_a_guarantee_from_rows_of_which_some_are_labelled():
    options = {"guarantee": "high_probability", "random_state": 0}
    found = ConstrainedClassifier(LogisticRegression(), [error() <= 0.35], **options).fit(X, partly())
    assert found.policy_.certificate.p_value <= 0.05


@pytest.mark.parametrize(
    "make",
    [np.asarray, lambda rows: rows, lambda rows: polars.DataFrame(rows.to_dict("list")), sparse.csr_array],
)
def test_rows_of_every_kind_are_stacked(make):
    both = stack_rows(make(X.iloc[:10]), make(X.iloc[10:14]))
    assert type(both) is type(make(X))
    dense = both.toarray() if sparse.issparse(both) else np.asarray(both)
    assert dense == pytest.approx(np.asarray(X.iloc[:14]))
    found = classifier([rejected() <= 0.1]).fit(make(X.iloc[FEW]), Y[FEW], unlabelled=make(X.iloc[MORE]))
    assert found.predict_proba(make(X)).shape == (len(X), 3)


def test_scores_and_audits_with_missing_labels():
    found = classifier([WITHIN], minimize="rejected()").fit(X, Y)
    wrong = classifier([rejected() <= 0.1]).fit(X, Y)
    evidence = wrong._make_evidence(X, None, None)
    rows = observe(evidence.with_observed(labels=partly()))
    rate = wrong.policy_.expected(error(), rows, probabilities=wrong.predict_proba(X))
    assert wrong.score(X, partly()) == pytest.approx(1 - rate)
    assert wrong.expected(error(), X, partly()) == pytest.approx(rate)
    assert wrong.score(X, partly()) == pytest.approx(wrong.score(X, Y), abs=0.02)
    audit = found.audit(X, partly(), fitted_rows="estimate")
    assert audit.seen_rows == {"label": len(FEW)}
    assert list(found.violations(X, partly())) == [str(WITHIN)]
    with pytest.raises(EvidenceError, match="at least one label to score"):
        wrong.score(X, [None] * len(X))
    with pytest.raises(EvidenceError, match="pass y"):
        found.violations(X, [None] * len(X))


def test_weights_of_being_seen_reach_the_rates():
    chance = np.where(X.u > 0, 0.8, 0.1)
    shown = np.random.default_rng(11).random(len(X)) < chance
    y = partly(shown=shown)
    weights = np.where(shown, 1 / chance, np.nan)
    with_weights = classifier([WITHIN], minimize="rejected()").fit(X, y, propensity_weights=weights)
    without = classifier([WITHIN], minimize="rejected()").fit(X, y)
    assert with_weights.multipliers_ != without.multipliers_
    assert with_weights.expected(error(), X, y, propensity_weights=weights) != with_weights.expected(
        error(), X, y
    )
    rate = with_weights.expected(error(), X, y, propensity_weights=weights)
    excess = with_weights.violations(X, y, propensity_weights=weights)[str(WITHIN)]
    assert excess == pytest.approx(rate - 0.2, abs=1e-9)
    found = with_weights.audit(X, y, propensity_weights=weights, fitted_rows="estimate")
    assert not found.seen_at_random


@pytest.mark.parametrize(
    ("problem", "arguments", "match"),
    [
        (OptionError, {"unlabelled_sensitive_features": SEX}, "has no effect without unlabelled"),
        (OptionError, {"propensity_weights": np.ones(len(X))}, "if no label or group is missing"),
        (OptionError, {"unlabelled": X, "sample_weight": np.ones(len(X))}, "sample_weight has no weights"),
        (EvidenceError, {"unlabelled": X}, "unlabelled_sensitive_features must have"),
        (EvidenceError, {"unlabelled": X[["u", "v"]]}, "feature names"),
        (EvidenceError, {"sensitive_features": np.where(SHOWN, SEX, None)}, "missing values"),
        (EvidenceError, {"propensity_weights": np.ones(3)}, "propensity_weights has 3 rows"),
        (EvidenceError, {"propensity_weights": ["a"] * len(X)}, "must be numbers"),
    ],
)
def test_refusals(problem, arguments, match):
    arguments = {"sensitive_features": SEX, **arguments}
    with pytest.raises((problem, ValueError), match=match):
        classifier().fit(X, Y, **arguments)


def test_more_refusals():
    with pytest.raises(ValueError, match="NaN"):
        classifier().fit(X, np.full(len(X), np.nan), sensitive_features=SEX)
    with pytest.raises(EvidenceError, match="missing values"):
        classifier().fit(X, [None] * len(X), sensitive_features=SEX)
    churn = classifier(["disagreement('old') <= 0.2"])
    with pytest.raises(OptionError, match="reference 'old' has no labels for the unlabeled rows"):
        churn.fit(X, Y, reference=Y, unlabelled=X)
    old = LogisticRegression().fit(X, Y)
    assert churn.fit(X.iloc[FEW], Y[FEW], reference=old, unlabelled=X.iloc[MORE]).references_ == {"old": old}
    listed = classifier([rejected() <= 0.1], cv=[(np.arange(700), np.arange(700, len(X)))])
    with pytest.raises(OptionError, match="cv must also list the unlabeled rows"):
        listed.fit(X, Y, unlabelled=X)
    with pytest.raises(OptionError, match="with correction=False"):
        classifier([rejected() <= 0.1], correction=False, margin="auto").fit(
            X, partly(), propensity_weights=np.ones(len(X))
        )
    with pytest.raises(EvidenceError, match="same type as X"):
        stack_rows(X, X.to_numpy())


def draw_population(n_rows, seed):
    """Two features; a hidden group whose labels follow another line than those of the others."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, 2))
    group = (rng.random(n_rows) < 1 / (1 + np.exp(-1.5 * features[:, 0]))).astype(int)
    logit = 1.2 * features[:, 0] + features[:, 1] + 0.7 * group - 0.3
    return features, group, (rng.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(int)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bylaw.ConvergenceWarning", "ignore::bylaw.GuaranteeWarning")
def test_few_labels_and_many_rows_miss_a_rule_hardly_more_than_all_labels():
    """Excess on the population of equal odds of a hidden group, over twelve samples."""
    rule = equalized_odds("s", tol=0.05)
    features, group, labels = draw_population(100_000, 999)
    excess = {"all": [], "tenth": []}
    for seed in range(12):
        x, s, y = draw_population(4000, seed)
        shown = np.random.default_rng([seed, 1]).random(4000) < 0.1
        seen = {"all": (y, s), "tenth": (np.where(shown, y, np.nan), np.where(shown, s, np.nan))}
        for name, (of_label, of_group) in seen.items():
            found = ConstrainedClassifier(
                LogisticRegression(), [rule], group_estimator=LogisticRegression(), margin=0, random_state=0
            ).fit(x, of_label, sensitive_features={"s": of_group})
            missed = found.violations(features, labels, sensitive_features={"s": group})
            excess[name].append(max(missed.values()))
    gap = np.subtract(excess["tenth"], excess["all"])
    assert abs(gap.mean()) < 2 * gap.std(ddof=1) / np.sqrt(len(gap)), (excess, gap.mean())


@pytest.mark.slow
def test_unlabelled_rows_that_show_their_group_have_the_weight_of_one_row():
    order, weights = np.concatenate([FEW, MORE]), 1.0 + np.arange(len(FEW)) % 3
    rules, sex = [PARITY, error() <= 0.35], np.where(np.arange(len(X)) % 3, SEX, None)
    joined = unaware(rules).fit(
        X.iloc[order],
        partly()[order],
        sensitive_features=sex[order],
        propensity_weights=np.concatenate([weights, np.ones(len(MORE))]),
    )
    separate = unaware(rules).fit(
        X.iloc[FEW],
        Y[FEW],
        sensitive_features=sex[FEW],
        propensity_weights=weights,
        unlabelled=X.iloc[MORE],
        unlabelled_sensitive_features=sex[MORE],
    )
    assert separate.multipliers_ == joined.multipliers_


def test_weights_of_seen_rows_count_where_any_attribute_is_partly_seen():
    """Also where another attribute is seen in full, or not at all."""
    X = np.zeros((2, 1))
    partly, fully, never = (np.array(codes) for codes in ([0, -1], [0, 0], [-1, -1]))
    for codes, sex, incomplete in ((partly, fully, True), (never, partly, True), (fully, never, False)):
        rows = FitRows(X, codes, {"sex": KnownGroup(("F",), sex)}, {})
        assert rows.incomplete == incomplete
