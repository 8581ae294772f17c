"""The speed of the core, as ratios measured in one run: machines differ, ratios less.

The unit is one `np.exp` over an array of the same rows x actions. Prints a table and writes it
to benchmarks/results/core.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from bylaw import Evidence, Problem, demographic_parity, equalized_odds, error, solve
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.solvers import FullBatch
from bylaw.solvers._linear_program import exact_policy

RESULTS = Path(__file__).parent / "results" / "core.md"
PARITY = Problem(error(), [demographic_parity("group", tol=0.01)])
BETA = 1000.0


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def scores(n: int, n_classes: int = 5, n_groups: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """P(label | x) and P(group | x) of rows with six features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6))
    return softmax(0.8 * x @ rng.normal(size=(6, n_classes))), softmax(
        0.7 * x @ rng.normal(size=(6, n_groups))
    )


def evidence_of(labels: np.ndarray, groups: np.ndarray) -> Evidence:
    return Evidence(labels, groups={"group": dict(enumerate(groups.T))})


def seconds(
    *tasks: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The best time of each task. They take turns, so that a busy minute hits all alike."""
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(rounds):
        for task, measured in zip(tasks, times, strict=True):
            start = clock()
            task()
            measured.append(clock() - start)
    return [min(measured) for measured in times]


def passes_at_a_million() -> list[tuple[str, str, str]]:
    labels, groups = scores(1_000_000)
    evidence, small = evidence_of(labels, groups), evidence_of(*scores(10_000))
    form = compile_problem(PARITY, evidence)
    dual = Dual(form, make_blocks(form, evidence), BETA)
    soft = replace(dual, beta=10.0)
    multipliers = FullBatch()(dual).multipliers
    policy = solve(PARITY, evidence, beta=BETA)
    array = np.ascontiguousarray(labels.T)
    unit, one, one_soft, distribution, whole, tenk = seconds(
        lambda: np.exp(array),
        lambda: dual.value_and_gradient(multipliers),
        lambda: soft.value_and_gradient(multipliers),
        lambda: policy.probabilities(evidence),
        lambda: solve(PARITY, evidence, beta=BETA),
        lambda: solve(PARITY, small, beta=BETA),
    )
    return [
        ("the unit: np.exp over 1M rows x 5 actions", f"{1e3 * unit:.0f} ms", ""),
        ("(a) value + gradient, 1M rows x 5 actions x 4 groups, beta 1000", f"{one / unit:.2f} exp", "<= 3"),
        ("(a') the same at beta 10, where no row is decided", f"{one_soft / unit:.2f} exp", "<= 3"),
        ("(c) solve, 1M rows", f"{whole / unit:.0f} exp ({whole:.2f} s)", "<= 60"),
        ("(d) policy.probabilities, 1M rows", f"{distribution / unit:.2f} exp", "<= 4"),
        ("(e) solve, 1M rows against 10k rows", f"{whole / tenk:.0f} times", "<= 100"),
    ]


def against_highs() -> list[tuple[str, str, str]]:
    evidence = evidence_of(*scores(30_000))
    form = compile_problem(PARITY, evidence)
    dual = Dual(form, make_blocks(form, evidence), BETA)
    (ours,) = seconds(lambda: solve(PARITY, evidence, beta=BETA))
    (theirs,) = seconds(lambda: exact_policy(dual), rounds=1)
    ratio = f"{theirs / ours:.0f} times ({theirs:.1f} s against {ours:.3f} s)"
    return [("(b) solve, 30k rows, faster than HiGHS on the same problem", ratio, ">= 150")]


def many_rules() -> list[tuple[str, str, str]]:
    labels, groups = scores(100_000, n_classes=10, n_groups=5)
    draws = np.random.default_rng(1).random(len(groups))[:, None]
    known = (draws > groups.cumsum(axis=1)).sum(axis=1).clip(0, 4)
    evidence = Evidence(labels, groups={"group": known})
    problem = Problem(error(), [equalized_odds("group", tol=0.02)])
    policy = solve(problem, evidence, beta=BETA)
    array = np.ascontiguousarray(labels.T)
    unit, whole = seconds(lambda: np.exp(array), lambda: solve(problem, evidence, beta=BETA), rounds=2)
    cell = f"{whole / unit:.0f} exp ({whole:.1f} s, {policy.solution.status.name.lower()})"
    return [
        (f"(f) equalized odds, 10 classes x 5 groups, {len(policy.multipliers)} rules, 100k rows", cell, "")
    ]


MEMORY = """
import sys
import numpy as np
sys.path.insert(0, {here!r})
from core import BETA, PARITY, evidence_of, scores, solve

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

solve(PARITY, evidence_of(*scores(20_000)), beta=BETA)  # imports and BLAS buffers
before = status("VmRSS")
labels, groups = (np.load(path).copy() for path in {paths!r})
labels.flags.writeable = False  # evidence shares what no one can write to, and copies the rest
policy = solve(PARITY, evidence_of(labels, groups), beta=BETA)
print((status("VmHWM") - before) / (labels.nbytes + groups.nbytes))
"""


def peak_memory() -> list[tuple[str, str, str]]:
    """In a process of its own, inputs included."""
    if not Path("/proc/self/status").exists():
        return [("(c) peak memory of solve, 1M rows, inputs included", "not measured on this system", "<= 3")]
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{name}.npy") for name in ("labels", "groups")]
        for path, array in zip(paths, scores(1_000_000), strict=True):
            np.save(path, array)
        script = MEMORY.format(here=str(Path(__file__).parent), paths=paths)
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [
        (
            "(c) peak memory of solve, 1M rows, read-only inputs included",
            f"{float(run.stdout):.2f} x inputs",
            "<= 3",
        )
    ]


def show(rows: list[tuple[str, str, str]], path: Path | None) -> None:
    """Print the table, and keep it for the docs if there is a path."""
    lines = ["| what | measured | target |", "|---|---|---|"]
    lines += [f"| {what} | {measured} | {target} |" for what, measured, target in rows]
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    show(passes_at_a_million() + peak_memory() + against_highs() + many_rules(), RESULTS)
