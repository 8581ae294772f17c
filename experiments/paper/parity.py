"""Demographic parity where the group is unknown when a decision is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from experiments.data import Remembered
from experiments.paper.copt import copt
from experiments.paper.data import Sample, split
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from bylaw import ConstrainedClassifier, Evidence, Problem, demographic_parity, error, solve

EXPONENTS = {
    "Communities and Crime": (1.3, 2, 4, 8, 16, 32, 512),
    "Adult": (1, 2, 4, 5, 6, 8, 16, 32, 128),
}
FULL, COPT, ALL_ROWS = "full batch", "COPT, T = 800", "bylaw, all labelled rows"
FAIRLEARN = ("fairlearn-1", "fairlearn-2")
BASE = "base model"


def measure(sample: Sample, seed: int, exponents: tuple[float, ...]) -> list[dict[str, Any]]:
    """Unfairness of each group and risk on the test rows, of every method at every tolerance."""
    train, unlabelled, test = split(sample, sample.group, seed)
    scaler = StandardScaler().fit(train.X)
    train, unlabelled, test = (
        part._replace(X=scaler.transform(part.X)) for part in (train, unlabelled, test)
    )
    found = [
        {"method": BASE, "exponent": 0.0, **judged(learner().fit(train.X, train.y).predict(test.X), test)}
    ]
    for method, exponent, chance in chances(train, unlabelled, test, exponents, seed):
        found.append({"method": method, "exponent": exponent, **judged(chance, test)})
    return [{"seed": seed, **row} for row in found]


def chances(
    train: Sample, unlabelled: Sample, test: Sample, exponents: tuple[float, ...], seed: int
) -> Iterator[tuple[str, float, np.ndarray]]:
    """Of every method and tolerance: P(decision = 1 | x) of the test rows."""
    models = learner().fit(train.X, train.y), learner().fit(train.X, train.group)
    seen, new = (evidence_of(*models, part.X) for part in (unlabelled, test))
    everyone = Sample(*(np.concatenate(parts) for parts in zip(train, unlabelled, strict=True)))
    Remembered.trained.clear()
    for exponent in exponents:
        tol = 2.0**-exponent
        problem = Problem(error(), [demographic_parity("group", tol=tol)])
        yield FULL, exponent, solve(problem, seen).probabilities(new)[:, 1]
        yield COPT, exponent, copt(problem, seen, 800, seed).probabilities(new)[:, 1]
        yield ALL_ROWS, exponent, cross_fitted(everyone, tol).predict_proba(as_frame(test.X))[:, 1]
        for name, labelled in zip(FAIRLEARN, (everyone, train), strict=True):
            peer = ExponentiatedGradient(learner(), DemographicParity(difference_bound=tol))
            peer.fit(labelled.X, labelled.y, sensitive_features=labelled.group)
            yield name, exponent, peer._pmf_predict(test.X)[:, 1]


def learner() -> LogisticRegression:
    return LogisticRegression(max_iter=5000)


def evidence_of(label_model: Any, group_model: Any, X: np.ndarray) -> Evidence:
    groups = dict(zip(group_model.classes_.tolist(), group_model.predict_proba(X).T, strict=True))
    return Evidence(label_model.predict_proba(X), groups={"group": groups})


def cross_fitted(rows: Sample, tol: float) -> ConstrainedClassifier:
    """Our classifier on the rows that fairlearn-1 has, labels and groups included, with the calibrator of the
    documentation."""
    cubic = make_pipeline(StandardScaler(), PolynomialFeatures(3), LogisticRegression(max_iter=500))
    classifier = ConstrainedClassifier(
        Remembered(learner()),
        [demographic_parity("group", tol=tol)],
        group_estimator=Remembered(learner()),
        calibrator=cubic,
        margin=0,
        random_state=0,
    )
    return classifier.fit(as_frame(rows.X), rows.y, sensitive_features=rows.group)


def as_frame(X: np.ndarray) -> Any:
    """With an index, by which trained models are remembered."""
    import pandas

    return pandas.DataFrame(X)


def judged(chance: np.ndarray, test: Sample) -> dict[str, float]:
    """The Kolmogorov-Smirnov distance between the decisions of each group and those of all, and the risk. Of
    two classes, the distance is the difference of the rates of class 1; `gap` keeps the sign of group 1's."""
    gaps = [float(chance[test.group == group].mean() - chance.mean()) for group in (0, 1)]
    risk = float(np.where(test.y == 1, 1 - chance, chance).mean())
    return {"unfairness 0": abs(gaps[0]), "unfairness 1": abs(gaps[1]), "gap": gaps[1], "risk": risk}
