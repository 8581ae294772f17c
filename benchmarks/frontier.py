"""What a frontier of 50 points costs, in cold solves at one level, measured in one run.

Time is that of the processor (`time.process_time`), the best of several rounds in turns: on a machine
that others use too, it says more than the clock on the wall.
Prints a table and writes it to benchmarks/results/frontier.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bylaw import Problem, demographic_parity, error, rejected, solve
from bylaw.fitting import frontier
from core import evidence_of, scores, show

RESULTS = Path(__file__).parent / "results" / "frontier.md"
PARITY = Problem(error(), [demographic_parity("group", tol=0.02)])
REJECTION = Problem(error(), [rejected() <= 0.1])
TOLERANCES = (1e-5, 1e-6)  # the default of frontier(), and that of solve()


def processor_seconds(*tasks: Callable[[], object], rounds: int = 5) -> list[float]:
    """The best time of each task; they take turns."""
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(rounds):
        for task, measured in zip(tasks, times, strict=True):
            start = time.process_time()
            task()
            measured.append(time.process_time() - start)
    return [min(measured) for measured in times]


def paths(problem: Problem, n_classes: int, highest: float, what: str) -> list[tuple[str, str, str]]:
    evidence = evidence_of(*scores(100_000, n_classes))
    levels = np.linspace(0, highest, 50)
    cold, *walks = processor_seconds(
        lambda: solve(problem, evidence),
        *(
            lambda tol=tol: frontier(problem, evidence, {problem.rules[0]: levels}, tol=tol)
            for tol in TOLERANCES
        ),
    )
    return [
        (
            f"{what}, tol={tol:g}",
            f"{walk / cold:.1f} cold solves ({walk:.2f} s of CPU against {cold:.3f} s)",
            "<= 5",
        )
        for tol, walk in zip(TOLERANCES, walks, strict=True)
    ]


if __name__ == "__main__":
    show(
        paths(PARITY, 5, 0.1, "50 levels of demographic parity, 4 groups, 100k rows x 5 classes")
        + paths(REJECTION, 2, 0.3, "50 levels of rejection, 100k rows x 2 classes"),
        RESULTS,
    )
