"""Contests on parity: who takes part, each as the peer's own documentation would have it.

A contestant is a function of the rows to fit on and the rule; it returns its distribution, the chance of each
decision on any rows. Everyone imports what it needs itself, so that nobody pays for the memory of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from benchmarks.peers.programs import Law, Rule, by_cvxpy, by_scipy
from benchmarks.peers.rows import Rows

OURS = "bylaw"
DRAWS = 100  # that stand for the distribution of a peer that only draws


def bylaw(rows: Rows, rule: Rule, observed: bool = True) -> Law:
    """`observed`: the rule holds for the labels and groups that were seen, not only for the predicted."""
    from bylaw import Problem, demographic_parity, equalized_odds, error, solve

    family = equalized_odds if rule.odds else demographic_parity
    labels = [1] if rows.scores.shape[1] == 2 else None  # of two labels, one says it all
    problem = Problem(error(), [family("group", tol=rule.tol, between="groups", labels=labels)])
    seen: dict[str, Any] = {"labels": rows.labels} if rule.odds else {}
    if not rule.known:
        seen["groups"] = {"group": rows.groups}
    policy = solve(problem, evidence_of(rows, rule), **(seen if observed else {}))
    return lambda new: policy.probabilities(evidence_of(new, rule))


def evidence_of(rows: Rows, rule: Rule) -> Any:
    from bylaw import Evidence

    group = rows.groups if rule.known else dict(enumerate(rows.guesses.T))
    return Evidence(rows.scores, groups={"group": group})


def bylaw_and_models(rows: Rows, rule: Rule) -> Law:
    """The models of label and group are trained on the same rows first."""
    from sklearn.linear_model import LogisticRegression

    income, gender = (
        LogisticRegression(max_iter=500).fit(rows.features, target) for target in (rows.labels, rows.groups)
    )

    def scored(some: Rows) -> Rows:
        scores, guesses = income.predict_proba(some.features), gender.predict_proba(some.features)
        return Rows(scores, some.labels, some.groups, guesses)

    distribution = bylaw(scored(rows), rule)
    return lambda new: distribution(scored(new))


def threshold_optimizer(rows: Rows, rule: Rule) -> Law:
    from benchmarks.peers.given import Given
    from fairlearn.postprocessing import ThresholdOptimizer

    peer = ThresholdOptimizer(
        estimator=Given(2),
        constraints="equalized_odds" if rule.odds else "demographic_parity",
        tol=None if rule.odds else rule.tol,  # it has no tolerance for equalized odds
        prefit=True,
        predict_method="predict_proba",
    )
    peer.fit(rows.scores, rows.labels, sensitive_features=rows.groups)
    return lambda new: peer._pmf_predict(new.scores, sensitive_features=new.groups)


def exponentiated_gradient(rows: Rows, rule: Rule) -> Law:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    # It bounds the distance of a group from all rows: of two groups, the smaller is farther away.
    bound = rule.tol * (1 - np.bincount(rows.groups).min() / len(rows))
    peer = ExponentiatedGradient(LogisticRegression(max_iter=500), DemographicParity(difference_bound=bound))
    peer.fit(rows.features, rows.labels, sensitive_features=rows.groups)
    return lambda new: peer._pmf_predict(new.features)


def error_parity(rows: Rows, rule: Rule) -> Law:
    from error_parity import RelaxedThresholdOptimizer

    constraint = "equalized_odds" if rule.odds else "demographic_parity"
    peer = RelaxedThresholdOptimizer(
        predictor=lambda X: X[:, 1], constraint=constraint, tolerance=rule.tol, seed=0
    )
    peer.fit(rows.scores, rows.labels, group=rows.groups)

    def distribution(new: Rows) -> np.ndarray:
        chance = np.mean([peer.predict(new.scores, group=new.groups) for _ in range(DRAWS)], axis=0)
        return np.column_stack([1 - chance, chance])

    return distribution


def oxonfair(rows: Rows, rule: Rule) -> Law:
    from oxonfair import DeepDataDict, DeepFairPredictor, group_metrics as metrics

    def inputs(some: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        odds = np.log(some.scores[:, 1:]) - np.log(some.scores[:, :1])
        return some.labels, odds, some.groups

    peer = DeepFairPredictor(*inputs(rows), use_actual_groups=True)
    metric = metrics.equalized_odds_max if rule.odds else metrics.demographic_parity
    peer.fit(metrics.accuracy, metric, rule.tol)
    return lambda new: np.eye(2)[np.argmax(peer.predict_proba(DeepDataDict(*inputs(new))), axis=1)]


PROGRAMS: Mapping[str, Callable[[Rows, Rule], Law]] = {
    "SciPy, HiGHS": by_scipy,
    "cvxpy, Clarabel": by_cvxpy,
}


@dataclass(frozen=True)
class Contest:
    title: str
    short: str  # the same, for a figure
    kind: str  # of rows
    rule: Rule
    contestants: Mapping[str, Callable[[Rows, Rule], Law]]
    training: tuple[str, ...] = ()  # who trains models, and so needs features

    def judged(self, distribution: np.ndarray, rows: Rows) -> dict[str, float]:
        """Error, and the widest gap between groups in any decision's rate (given a true label)."""
        right = distribution[np.arange(len(rows)), rows.labels]
        strata = [rows.labels == y for y in np.unique(rows.labels)] if self.rule.odds else [slice(None)]
        gaps = []
        for stratum in strata:
            chances, groups = distribution[stratum], rows.groups[stratum]
            rates = [chances[groups == g].mean(axis=0) for g in np.unique(groups)]
            gaps += [np.abs(one - other).max() for one, other in combinations(rates, 2)]
        return {"error": float(1 - right.mean()), "gap": float(max(gaps))}


THRESHOLDS = {
    "fairlearn, ThresholdOptimizer": threshold_optimizer,
    "error-parity": error_parity,
    "OxonFair": oxonfair,
}
CONTESTS = {
    "parity": Contest(
        "Demographic parity, the group is known: two classes, two groups",
        "Demographic parity, group known",
        "adult",
        Rule(0.02),
        {OURS: bylaw, **PROGRAMS, **THRESHOLDS},
    ),
    "odds": Contest(
        "Equalized odds, the group is known: two classes, two groups",
        "Equalized odds, group known",
        "adult",
        Rule(0.02, odds=True),
        {OURS: bylaw, f"{OURS}, as predicted": partial(bylaw, observed=False), **PROGRAMS, **THRESHOLDS},
    ),
    "unaware": Contest(
        "Demographic parity, the group is unknown when a decision is made: two classes, two groups",
        "Demographic parity, group unknown",
        "adult-unaware",
        Rule(0.02, known=False),
        {
            OURS: bylaw,
            f"{OURS}, as predicted": partial(bylaw, observed=False),
            f"{OURS}, models trained too": bylaw_and_models,
            **PROGRAMS,
            "fairlearn, ExponentiatedGradient": exponentiated_gradient,
        },
        training=(f"{OURS}, models trained too", "fairlearn, ExponentiatedGradient"),
    ),
    "classes": Contest(
        "Demographic parity, the group is known: five classes, four groups",
        "Five classes, four groups, known",
        "annotations",
        Rule(0.01),
        {OURS: bylaw, **PROGRAMS},
    ),
}
