"""Rules as observed by shifted bounds, against thresholds, mixtures and constant decisions by brute force."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    ConvergenceWarning,
    Evidence,
    GuaranteeWarning,
    Problem,
    accepted,
    demographic_parity,
    equalized_odds,
    error,
    miscoverage,
    precision,
    rejected,
    size,
    solve,
)


def binary(scores):
    return Evidence(np.column_stack([1 - scores, scores]))


def draw_scores(n, seed):
    """Calibrated scores near the level of the rule, and their labels."""
    rng = np.random.default_rng(seed)
    scores = 1 / (1 + np.exp(-0.5 * rng.normal(size=n) - 0.7))
    return scores, (rng.random(n) < scores).astype(int)


@pytest.mark.parametrize("n", [300, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_a_precision_floor_has_the_recall_of_the_best_threshold(n, seed):
    scores, labels = draw_scores(n, seed)
    policy = solve(Problem(error().given(label=1), [precision(1) >= 0.75]), binary(scores), labels=labels)
    chosen = policy.probabilities(binary(scores))[:, 1]
    hits = np.cumsum(labels[np.argsort(-scores)])
    best = hits[hits >= 0.75 * np.arange(1, n + 1)].max()
    assert chosen @ labels >= (0.75 - 1e-5) * chosen.sum()
    assert chosen @ labels >= 0.95 * best


@pytest.mark.parametrize("seed", range(4))
def test_a_selective_error_accepts_as_many_rows_as_the_best_threshold(seed):
    scores, labels = draw_scores(600, seed)
    problem = Problem(rejected(), [error() <= 0.2 * accepted()])
    policy = solve(problem, binary(scores), labels=labels)
    chosen = policy.probabilities(binary(scores))
    sure = np.maximum(scores, 1 - scores)
    right = np.where(scores > 0.5, labels, 1 - labels)[np.argsort(-sure)]
    counts = np.arange(1, len(scores) + 1)
    most = counts[np.cumsum(1 - right) <= 0.2 * counts].max(initial=0)
    wrong = chosen[np.arange(600), 1 - labels].sum()
    assert wrong <= (0.2 + 1e-5) * chosen[:, :2].sum()
    assert chosen[:, :2].sum() >= 0.95 * most


@pytest.mark.parametrize("seed", range(12))
def test_group_scores_without_information_do_not_make_absurd_policies(seed):
    """The group is noise to the scores, and its gap on the fitted rows is noise, too. A mixture of the model
    and a constant decision has no gap where the constant is taken: it bounds the cost."""
    rng = np.random.default_rng(seed)
    n, tol = 300, 0.05
    scores = 1 / (1 + np.exp(-1.5 * rng.normal(size=n)))
    groups, labels = rng.integers(0, 2, n), (rng.random(n) < scores).astype(int)
    unsure = np.clip(0.5 + 0.03 * rng.normal(size=n), 0.01, 0.99)
    shares = {0: 1 - unsure, 1: unsure}
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": shares})
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        policy = solve(
            Problem(error(), [demographic_parity("g", tol=tol)]),
            evidence,
            labels=labels,
            groups={"g": groups},
        )
    chosen = policy.probabilities(evidence)[:, 1]
    model = (scores > 0.5).astype(float)
    gap = max(abs(model[groups == g].mean() - model.mean()) for g in (0, 1))
    share = max(1 - tol / gap, 0.0)
    constant = min(labels.mean(), 1 - labels.mean())
    mixture = (1 - share) * (model != labels).mean() + share * constant
    cost = (chosen * (1 - labels) + (1 - chosen) * labels).mean()
    assert cost <= mixture + 0.011


def test_a_rule_that_only_noise_could_satisfy_is_reported_with_its_size():
    rng = np.random.default_rng(0)
    n = 2000
    groups = rng.integers(0, 2, n)
    scores = np.clip(rng.random(n) + 0.1 * groups, 0.0, 1.0)
    evidence = Evidence(
        np.column_stack([1 - scores, scores]), groups={"g": {0: np.full(n, 0.5), 1: np.full(n, 0.5)}}
    )
    problem = Problem(error(), [demographic_parity("g", tol=0.01)])
    with pytest.warns(ConvergenceWarning, match=r"is violated by 0\.0\d+"):
        solve(problem, evidence, groups={"g": groups})


@pytest.mark.parametrize("seed", range(3))
def test_odds_hold_as_observed_and_are_tight(seed):
    rng = np.random.default_rng(seed)
    n, tol = 2000, 0.05
    x, groups = rng.normal(size=n), rng.integers(0, 3, n)
    chance = 1 / (1 + np.exp(-1.5 * x - 0.8 * (groups - 1)))
    labels = (rng.random(n) < chance).astype(int)
    scores = 1 / (1 + np.exp(-1.2 * x - 0.5 * (groups - 1)))  # not calibrated
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
    problem = Problem(error(), [equalized_odds("g", tol=tol)])
    policy = solve(problem, evidence, labels=labels, calibrate="none")
    chosen = policy.probabilities(evidence)[:, 1]
    gaps = [
        abs(chosen[(labels == y) & (groups == g)].mean() - chosen[labels == y].mean())
        for y in (0, 1)
        for g in range(3)
    ]
    assert max(gaps) <= tol + 1e-5
    assert max(gaps) >= tol - 0.004


@pytest.mark.parametrize("seed", range(6))
def test_a_classifier_whose_groups_are_noise_stays_near_its_model(seed):
    """The features do not tell the group: no policy has a gap, and a rule on it should cost little."""
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(2300, 3)), rng.choice(["x", "y"], 2300)
    y = (X[:, 0] + 0.5 * (groups == "x") + rng.normal(size=2300) > 0).astype(int)
    fitted, new = slice(0, 300), slice(300, None)
    rule = demographic_parity("g", tol=0.05)
    classifier = ConstrainedClassifier(
        LogisticRegression(), [rule], group_estimator=LogisticRegression(), random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        classifier.fit(X[fitted], y[fitted], sensitive_features=pd.Series(groups[fitted], name="g"))
    chosen = classifier.predict_proba(X[new])[:, 1]
    wrong = (chosen * (1 - y[new]) + (1 - chosen) * y[new]).mean()
    plain = 1 - LogisticRegression().fit(X[fitted], y[fitted]).score(X[new], y[new])
    constant = min(y[new].mean(), 1 - y[new].mean())
    assert wrong <= (plain + constant) / 2
    assert max(classifier.policy_.prices.values()) <= 1 / 0.05  # the range of the loss over the tolerance


def test_scores_that_a_constant_decision_beats_are_reported():
    rng = np.random.default_rng(0)
    n = 2000
    labels = (rng.random(n) < 0.15).astype(int)
    scores = rng.random(n)  # about something else
    problem = Problem(error(), [rejected() <= 0.1])
    with pytest.warns(GuaranteeWarning, match=r"a simple policy satisfies every rule and costs 0\.\d+"):
        solve(problem, binary(scores), labels=labels, calibrate="none")


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 400])
def test_sets_of_each_label_cover_new_rows_as_often_as_stated(n):
    """On average over samples, as conformal sets do; a plain quantile of n rows would cover 1 / n less."""
    covered = []
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        chances = rng.dirichlet(np.full(3, 0.5), n + 2000)
        labels = (rng.random((n + 2000, 1)) > chances.cumsum(axis=1)[:, :2]).sum(axis=1)
        rules = [miscoverage().given(label=k) <= 0.1 for k in range(3)]
        policy = solve(Problem(size(), rules), Evidence(chances[:n]), labels=labels[:n], calibrate="none")
        inside = policy.probabilities(Evidence(chances[n:]))[np.arange(2000), labels[n:]]
        covered.append([inside[labels[n:] == k].mean() for k in range(3)])
    mean, noise = np.mean(covered), np.std(np.mean(covered, axis=1)) / np.sqrt(60)
    assert 0.9 - 2 * noise <= mean <= 0.9 + 2 * noise + 1 / (n / 3)
