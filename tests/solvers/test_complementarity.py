"""Observed rates that satisfy the rules: against quantiles, and by counting."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bylaw import Evidence, Problem, equalized_odds, error, miscoverage, size, solve
from bylaw.solvers import complementarity
from helpers.reference import softmax


def draw_labels(P, seed):
    return (np.random.default_rng(seed).random(len(P))[:, None] > P.cumsum(axis=1)).sum(axis=1)


@pytest.mark.parametrize("confidence", [0.5, 1.0, 3.0])
def test_sets_of_each_label_are_as_small_as_by_its_quantile(confidence):
    """However sure the scores are, and rule by rule: coverage 90 % of each label, in about its best size."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 4000)
    logits = rng.normal(size=(4000, 8)) + 3 * rng.lognormal(0, 0.4, 4000)[:, None] * np.eye(8)[labels]
    P = softmax(confidence * logits)
    problem = Problem(size(), [miscoverage().given(label=k) <= 0.1 for k in range(8)])
    sets = solve(problem, Evidence(P), labels=labels).probabilities(Evidence(P))
    covered = [sets[labels == k, k].mean() for k in range(8)]
    assert min(covered) >= 0.9 - 1e-6
    thresholds = [np.sort(P[labels == k, k])[int(0.1 * (labels == k).sum())] for k in range(8)]
    assert sets.sum(axis=1).mean() < 1.03 * (thresholds <= P).sum(axis=1).mean()


@pytest.mark.parametrize("sure", [0.5, 1.0, 2.0])
def test_odds_hold_as_counted(sure):
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 2, 6000)
    logits = 1.5 * rng.normal(size=(6000, 2)) + 0.8 * np.eye(2)[groups]
    labels = draw_labels(softmax(logits), 2)
    evidence = Evidence(softmax(sure * logits), groups={"g": groups})
    policy = solve(Problem(error(), [equalized_odds("g", tol=0.02)]), evidence, labels=labels)
    chosen = policy.probabilities(evidence)[:, 1]
    gaps = [
        chosen[(labels == y) & (groups == g)].mean() - chosen[labels == y].mean()
        for y in (0, 1)
        for g in (0, 1)
    ]
    assert max(map(abs, gaps)) <= 0.02 + 1e-6
    assert max(map(abs, gaps)) > 0.015  # and no tighter than it must be
    assert max(policy.observed.values()) == pytest.approx(max(map(abs, gaps)) - 0.02, abs=1e-9)


def test_the_path_goes_on_along_its_tangent(monkeypatch):
    """Odds of a group whose decisions must be drawn by lot: multipliers move by the order of 1 / beta, and a
    point of the path, extrapolated, is nearer to the next one than the point itself."""
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 2, 20_000)
    labels = (rng.random(20_000) < np.where(groups == 1, 0.6, 0.3)).astype(int)
    told = np.where(groups == 1, 1.5, 0.6)  # by the scores, of the label
    logits = 2 * told * ((2 * labels - 1) * told + rng.normal(size=20_000)) + np.where(groups == 1, 0.4, -0.8)
    evidence = Evidence(softmax(np.column_stack([0 * logits, logits])), groups={"g": groups})
    stages, approach = [], complementarity._Walk.approach

    def watch(self, stage, begin):
        found = approach(self, stage, begin)
        stages.append((stage.problem.dual.beta, begin, found.multipliers))
        return found

    monkeypatch.setattr(complementarity._Walk, "approach", watch)
    rule = equalized_odds("g", tol=0.02, between="groups", labels=[1])
    policy = solve(Problem(error(), [rule]), evidence, labels=labels)
    assert policy.solution.status.name == "CONVERGED"
    steps = [(last, *here) for (soft, _, last), (beta, *here) in pairwise(stages) if beta > 1.01 * soft]
    assert len(steps) >= 4
    for last, begin, found in steps[-3:]:
        assert np.linalg.norm(begin - found) < 0.5 * np.linalg.norm(last - found)
