"""The speed of sets of labels, as ratios measured in one run: with a thousand classes, and as observed.

CPU time; the unit is one `np.exp` over an array of the same rows x classes. Prints a table and writes it to
benchmarks/results/sets.md.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bylaw import Evidence, Problem, miscoverage, size, solve
from core import seconds, show, softmax

RESULTS = Path(__file__).parent / "results" / "sets.md"
LEVELS = (0.12, 0.1, 0.08)


def rows(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """P(label | x), a little too sure of itself, and labels."""
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=(n, n_classes))
    scores[np.arange(n), rng.integers(n_classes, size=n)] += 8
    draws = rng.random(n)[:, None]
    labels = (draws > softmax(0.8 * scores).cumsum(axis=1)).sum(axis=1).clip(0, n_classes - 1)
    chances = softmax(scores)
    chances.flags.writeable = False  # evidence shares what no one can write to
    return chances, labels


def thousand_classes() -> list[tuple[str, str, str]]:
    chances, _ = rows(5000, 1000)
    problems = Problem(miscoverage(), [size() <= 5.0]), Problem(size(), [miscoverage() <= 0.1])
    unit, small, covering, sorting = seconds(
        lambda: np.exp(chances),
        *(lambda problem=problem: solve(problem, Evidence(chances)) for problem in problems),
        lambda: np.sort(chances, axis=None),
        clock=time.process_time,
    )
    cells = [f"{whole / unit:.0f} exp ({whole:.2f} s)" for whole in (small, covering, sorting)]
    return [
        ("the unit: np.exp over 5k rows x 1,000 classes", f"{1e3 * unit:.0f} ms", ""),
        ("sorting the same numbers", cells[2], ""),
        ("solve, miscoverage() with size() <= 5", cells[0], "<= .3 s"),
        ("solve, size() with miscoverage() <= .1", cells[1], "<= .3 s"),
    ]


def as_observed() -> list[tuple[str, str, str]]:
    chances, labels = rows(10_000, 100)
    here, there, labels = chances[:5000], Evidence(chances[5000:]), labels[:5000]
    problems = [Problem(size(), [miscoverage() <= level]) for level in LEVELS]

    def fit() -> list[np.ndarray]:
        evidence = Evidence(here)
        return [solve(problem, evidence, labels=labels).probabilities(there) for problem in problems]

    unit, whole = seconds(lambda: np.exp(here), fit, clock=time.process_time)
    cell = f"{whole / unit:.0f} exp ({whole:.2f} s)"
    what = "three levels of miscoverage as observed, 5k rows x 100 classes, and as many new rows"
    return [(what, cell, "<= .5 s")]


if __name__ == "__main__":
    show(thousand_classes() + as_observed(), RESULTS)
