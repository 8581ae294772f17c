"""Where the core used to be slow: many groups, many classes, many rules. CPU seconds on one BLAS thread.

Prints a table and writes it to benchmarks/results/cliffs.md. With --quick, only the cases of a few seconds,
and nothing is written. Words after that choose the cases whose name has them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded

import numpy as np

from bylaw import Evidence, Policy, Problem, demographic_parity, equalized_odds, error, solve
from core import scores, show

RESULTS = Path(__file__).parent / "results" / "cliffs.md"
Case = Callable[[], tuple[str, str]]


def draw(chances: np.ndarray, seed: int) -> np.ndarray:
    """One value per row."""
    draws = np.random.default_rng(seed).random(len(chances))[:, None]
    return (draws > chances.cumsum(axis=1)).sum(axis=1).clip(0, chances.shape[1] - 1)


def known(n: int, n_classes: int = 5, n_groups: int = 4) -> Evidence:
    labels, groups = scores(n, n_classes, n_groups)
    labels.flags.writeable = False  # evidence shares what no one can write to
    return Evidence(labels, groups={"group": draw(groups, 1)})


def parity(tol: float = 0.01) -> Problem:
    return Problem(error(), [demographic_parity("group", tol=tol)])


def odds(tol: float = 0.02) -> Problem:
    return Problem(error(), [equalized_odds("group", tol=tol)])


def cpu_seconds(task: Callable[[], Policy]) -> tuple[float, Policy]:
    start = time.process_time()
    policy = task()
    return time.process_time() - start, policy


def solved(problem: Problem, evidence: Evidence, **options: object) -> str:
    taken, policy = cpu_seconds(lambda: solve(problem, evidence, **options))
    return f"{taken:.2f} s, {policy.solution.steps} steps, {policy.solution.status.name.lower()}"


def observed() -> str:
    evidence = known(3_000, 4, 4)
    return solved(odds(), evidence, labels=draw(evidence.probabilities, 2))


def beside_parity(n: int) -> str:
    evidence = known(n)
    slow, _ = cpu_seconds(lambda: solve(odds(), evidence))
    fast, _ = cpu_seconds(lambda: solve(parity(), evidence))
    return f"{slow / fast:.1f} times ({slow:.2f} s against {fast:.2f} s)"


MEMORY = """
import sys
sys.path.insert(0, {here!r})
from cliffs import known, parity, solve

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

solve(parity(), known(20_000))  # imports and BLAS buffers
before = status("VmRSS")
evidence = known({n}, 10, 100)
open("/proc/self/clear_refs", "w").write("5")  # forget what it took to draw the rows
inputs = evidence.probabilities.nbytes + evidence.groups["group"].codes.nbytes
solve(parity(0.05), evidence)
print((status("VmHWM") - before) / inputs)
"""


def memory(n: int) -> str:
    """In a process of its own, inputs included."""
    if not Path("/proc/self/clear_refs").exists():
        return "not measured on this system"
    script = MEMORY.format(here=str(Path(__file__).parent), n=n)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return f"{float(run.stdout):.1f} x inputs"


def cases(quick: bool) -> list[tuple[str, Callable[[], str], str]]:
    many, most = (100_000, 500_000) if quick else (200_000, 5_000_000)
    return [
        (
            "equalized odds, 10 classes x 5 known groups, 50k rows",
            lambda: solved(odds(), known(50_000, 10, 5)),
            "<= 1 s",
        ),
        (
            "equalized odds, 10 classes x 20 known groups, 50k rows",
            lambda: solved(odds(), known(50_000, 10, 20)),
            "<= 10 s",
        ),
        ("parity, 10 known groups, 50k rows", lambda: solved(parity(), known(50_000, 5, 10)), ""),
        ("parity, 50 known groups, 50k rows", lambda: solved(parity(), known(50_000, 5, 50)), "<= 2 s"),
        (f"memory, 100 known groups x 10 classes, {many} rows", lambda: memory(many), "<= 4 x inputs"),
        (f"equalized odds against parity, {most} rows", lambda: beside_parity(most), "<= 4 times"),
        ("parity, 300 classes, 10k rows", lambda: solved(parity(), known(10_000, 300, 4)), "<= 1.5 s"),
        ("odds as observed, 4 classes x 4 groups, 3k rows", observed, "<= 0.3 s"),
    ]


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    words = [word for word in arguments if word != "--quick"]
    solve(parity(), known(5_000))  # imports
    chosen = [case for case in cases(quick) if all(word in case[0] for word in words)]
    rows = []
    for what, measure, target in chosen:
        rows.append((what, measure(), target))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    show(rows, None if quick or words else RESULTS)


if __name__ == "__main__":
    main(sys.argv[1:])
