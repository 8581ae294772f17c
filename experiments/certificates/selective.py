"""Selective error with a guarantee: how often the held-out rows certify a policy, and of what coverage.

The rule is error() <= a * accepted(), and as few rows as possible are rejected. Two ways to be cautious: the
level a is tightened (as `solve` does), or the rule keeps a distance of so many standard errors from its
bound, which few accepted rows may not leave. Beside them a threshold search: rows are accepted by the score
of their best label, and thresholds are tested on the same held-out rows with the same bound, from the one
that looks clearest on the fitted rows down. All three have the same rows.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from experiments.data import save

from bylaw import (
    ConvergenceWarning,
    Evidence,
    Problem,
    UncertifiedError,
    accepted,
    error,
    rejected,
    solve,
)
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.testing._betting import Sample
from bylaw.testing._confidence_bounds import make_test

HERE = Path(__file__).parent
DELTA = 0.05
POPULATION = 200_000
WAYS = ("tightened level", "distance from the bound", "threshold search")


class Setting(NamedTuple):
    level: float
    fitted: int
    held_out: int
    sharpness: float  # above one, scores are too sure


SETTINGS = tuple(
    Setting(0.1, fitted, held_out, sharpness)
    for fitted, held_out in ((2000, 1000), (5000, 2000))
    for sharpness in (1.0, 2.0)
)


class Rows(NamedTuple):
    evidence: Evidence
    labels: np.ndarray

    @property
    def confidence(self) -> np.ndarray:
        return self.evidence.probabilities.max(axis=1)

    @property
    def wrong(self) -> np.ndarray:
        return (self.evidence.probabilities.argmax(axis=1) != self.labels).astype(float)


def draw(n: int, sharpness: float, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = 2 * rng.normal(size=n)
    labels = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    score = 1 / (1 + np.exp(-sharpness * x))
    return Rows(Evidence(np.column_stack([1 - score, score])), labels)


def excess(rows: Rows, threshold: float, level: float) -> np.ndarray:
    """(n_rows,): the mean is at most zero if the selective error is at most the level."""
    return np.where(rows.confidence >= threshold, rows.wrong - level, 0.0)


def search_threshold(fit: Rows, held: Rows, level: float) -> float | None:
    """The lowest threshold that passes, before the first that does not."""
    effort, n = -math.log(DELTA), len(held.labels)
    thresholds = np.quantile(fit.confidence, np.linspace(0.98, 0.0, 50))
    values = [excess(fit, threshold, level) for threshold in thresholds]
    clearness = [-z.mean() / (math.sqrt(2 * effort / n) * z.std() + effort / n) for z in values]
    passed = None
    for threshold in thresholds[int(np.argmax(clearness)) :]:
        values = excess(held, threshold, level)
        sample = Sample(np.ones(len(values)), values, -level, 1 - level)
        if make_test([sample], "betting", disjoint=True).p_value(0.0, DELTA) > DELTA:
            break
        passed = float(threshold)
    return passed


def certify(
    way: str, setting: Setting, fit: Rows, held: Rows, population: Rows
) -> tuple[float, float] | None:
    """Coverage and selective error on the population; None where nothing is certified."""
    if way == "threshold search":
        threshold = search_threshold(fit, held, setting.level)
        if threshold is None:
            return None
        kept = population.confidence >= threshold
        return float(kept.mean()), float(population.wrong[kept].mean())
    problem = Problem(rejected(), [error() <= setting.level * accepted()])
    options = {
        "labels": fit.labels,
        "guarantee": "high_probability",
        "held_out": held.evidence.with_observed(labels=held.labels),
    }
    find = RatioRules.find if way == "tightened level" else lambda _: None
    try:
        with patch.object(RatioRules, "find", find):
            policy = solve(problem, fit.evidence, **options)
    except UncertifiedError:
        return None
    chances = policy.probabilities(population.evidence)
    coverage = 1 - float(chances[:, -1].mean())
    right = chances[np.arange(len(chances)), population.labels].mean()
    return coverage, (coverage - float(right)) / coverage


def measure(setting: Setting, repetitions: int, size: int) -> list[dict[str, Any]]:
    population = draw(size, setting.sharpness, seed=10_000)
    lines = []
    for seed in range(repetitions):
        fit = draw(setting.fitted, setting.sharpness, seed)
        held = draw(setting.held_out, setting.sharpness, 1000 + seed)
        for way in WAYS:
            begin = time.perf_counter()
            found = certify(way, setting, fit, held, population)
            coverage, selective = (math.nan, math.nan) if found is None else found
            lines.append(
                {
                    **setting._asdict(),
                    "seed": seed,
                    "way": way,
                    "coverage": coverage,
                    "selective error": selective,
                    "seconds": time.perf_counter() - begin,
                }
            )
    return lines


def table_of(found: Sequence[dict[str, Any]]) -> str:
    repetitions = 1 + max(line["seed"] for line in found)
    lines = [
        f"Certified, of {repetitions}; in brackets the mean coverage of those that are.\n",
        "| level | rows fitted / held out | scores | " + " | ".join(WAYS) + " |",
        "|---|---|---|---|---|---|",
    ]
    wrong = dict.fromkeys(WAYS, 0)
    for setting in dict.fromkeys(tuple(line[name] for name in Setting._fields) for line in found):
        level, fitted, held_out, sharpness = setting
        cells = []
        for way in WAYS:
            mine = [x for x in found if x["way"] == way and tuple(x[n] for n in Setting._fields) == setting]
            done = [line for line in mine if not math.isnan(line["coverage"])]
            wrong[way] += sum(line["selective error"] > level for line in done)
            coverage = f" ({100 * np.mean([line['coverage'] for line in done]):.0f} %)" if done else ""
            cells.append(f"{len(done)}{coverage}")
        scores = "calibrated" if sharpness == 1 else f"{sharpness:g} times too sure"
        lines.append(f"| {level:g} | {fitted:,} / {held_out:,} | {scores} | " + " | ".join(cells) + " |")
    total = len(found) // len(WAYS)
    shares = ", ".join(f"{100 * count / total:.1f} % ({way})" for way, count in wrong.items())
    lines.append(
        f"\nCertified although the rule does not hold on the population: {shares}; 5 % are promised."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="two samples of one setting")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says what is missed
    settings, repetitions, size = (SETTINGS[:1], 2, 20_000) if arguments.quick else (SETTINGS, 10, POPULATION)
    found = [line for setting in settings for line in measure(setting, repetitions, size)]
    save(found, table_of(found), arguments.out, "selective")


if __name__ == "__main__":
    main()
