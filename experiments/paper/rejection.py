"""Controlled rejection: at most a given share of the rows is left unanswered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from experiments.paper.copt import copt
from experiments.paper.data import Sample, split
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, error, rejected, solve
from bylaw.solvers import resolve_beta

THRESHOLDS = (0.2, 0.1, 0.05, 0.025, 0.0125)
FULL, COPT_800, COPT_100, ARGMAX = "full batch", "COPT, T = 800", "COPT, T = 100", "COPT, T = 100, argmax"
BASELINE, BASE, NO_BETA = "BinClassRO", "base model", "gradient without beta"
LEVELS = np.arange(0, 0.4, 0.005)  # where BinClassRO is known, to read off its risk at any rejection rate


def measure(sample: Sample, seed: int, thresholds: tuple[float, ...] = THRESHOLDS) -> list[dict[str, Any]]:
    """Rejection rate and risk on the test rows, of every method at every threshold."""
    train, unlabelled, test = split(sample, sample.y, seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)).fit(train.X, train.y)
    seen, new = model.predict_proba(unlabelled.X), model.predict_proba(test.X)
    curve = np.array([judged(referred_below(seen, new, level), test.y) for level in LEVELS])
    found = []
    for threshold in thresholds:
        for method, distribution in distributions(seen, new, threshold, seed):
            rate, risk = judged(distribution, test.y)
            baseline = float(np.interp(rate, *curve.T))
            found.append(
                {
                    "method": method,
                    "threshold": threshold,
                    "seed": seed,
                    "rejected": rate,
                    "risk": risk,
                    "BinClassRO's risk there": baseline,
                }
            )
    return found


def distributions(
    seen: np.ndarray, new: np.ndarray, threshold: float, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Of every method: P(decision | x) of the new rows, the rejection last."""
    problem, evidence, asked = Problem(error(), [rejected() <= threshold]), Evidence(seen), Evidence(new)
    yield FULL, solve(problem, evidence).probabilities(asked)
    yield COPT_800, copt(problem, evidence, 800, seed).probabilities(asked)
    few = copt(problem, evidence, 100, seed).probabilities(asked)
    yield COPT_100, few
    yield ARGMAX, np.eye(3)[few.argmax(axis=1)]
    yield BASELINE, referred_below(seen, new, threshold)
    yield BASE, referred_below(seen, new, 0.0)
    yield NO_BETA, without_beta(seen, new, threshold)


def judged(distribution: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Rejection rate and risk, the randomness integrated out."""
    return float(distribution[:, -1].mean()), float(distribution[np.arange(len(labels)), 1 - labels].mean())


def referred_below(seen: np.ndarray, new: np.ndarray, level: float) -> np.ndarray:
    """BinClassRO of Denis and Hebiri: reject where the confidence is among the lowest, by the distribution of
    confidences on the unlabelled rows."""
    confidences = np.sort(seen.max(axis=1))
    rank = np.searchsorted(confidences, new.max(axis=1), side="right") / len(confidences)
    answers = np.where(rank < level, 2, new.argmax(axis=1))
    return np.eye(3)[answers]


def without_beta(seen: np.ndarray, new: np.ndarray, threshold: float) -> np.ndarray:
    """What the paper's public code tends to: the gradient of beta = 1 and a policy with the beta of T."""

    def excess(multiplier: float) -> float:
        rejecting = np.exp(-multiplier)
        return float(np.mean(rejecting / (np.exp(seen - 1).sum(axis=1) + rejecting))) - threshold

    scores = np.column_stack([new - 1, np.full(len(new), -brentq(excess, 0, 20))])
    return softmax(resolve_beta("paper", len(seen), float) * scores, axis=1)
