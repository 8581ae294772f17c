"""How close streams come: violation and excess cost on a population whose optimum is known.

A population of half a million rows is generated, and its optimum found by the full batch with a beta that
leaves less than 0.0001 of the unit of the loss to randomisation. Streams are drawn from it, row by row and
with replacement, so that every rate of a policy on the population is known without error. The default and the
full batch estimate the groups' frequencies from their rows; the paper's optimizers are told the population's.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.data import save

from bylaw import (
    ConvergenceWarning,
    Evidence,
    Policy,
    Problem,
    Stream,
    demographic_parity,
    error,
    miscoverage,
    rejected,
    size,
    solve,
)

HERE = Path(__file__).parent
BATCH = 20_000
OPTIMIZERS = ("stochastic", "full batch", "sgd3", "acsa", "sgd")


@dataclass(frozen=True)
class Case:
    name: str
    problem: Problem
    generate: Callable[[int, np.random.Generator], Evidence]


def to_probabilities(scores: np.ndarray) -> np.ndarray:
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def three_classes(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of three classes, the features behind them, and a group of 30 % that differs in two."""
    member = rng.random(rows) < 0.3
    x = rng.normal(size=(rows, 4)) + member[:, None] * np.array([0.8, -0.5, 0.0, 0.0])
    slopes = 1.2 * np.random.default_rng(12345).normal(size=(4, 3))
    return to_probabilities(x @ slopes), x, member


def known_groups(rows: int, rng: np.random.Generator) -> Evidence:
    probabilities, _, member = three_classes(rows, rng)
    return Evidence(probabilities, groups={"group": np.where(member, "a", "b")})


def hidden_groups(rows: int, rng: np.random.Generator) -> Evidence:
    probabilities, x, _ = three_classes(rows, rng)
    chance = 1 / (1 + np.exp(1.4 - x[:, 0] + 0.6 * x[:, 1]))
    return Evidence(probabilities, groups={"group": {"a": chance, "b": 1 - chance}})


def letters(rows: int, rng: np.random.Generator) -> Evidence:
    """26 classes, of which the likeliest has a probability of 0.65 on average."""
    slopes = 2 * np.random.default_rng(12345).normal(size=(6, 26))
    return Evidence(to_probabilities(rng.normal(size=(rows, 6)) @ slopes))


PARITY = demographic_parity("group", tol=0.02)
CASES = (
    Case("parity, known groups", Problem(error(), [PARITY]), known_groups),
    Case("parity, hidden groups", Problem(error(), [PARITY]), hidden_groups),
    Case("parity and rejection", Problem(error(), [PARITY, rejected() <= 0.1]), known_groups),
    Case("sets of size 1.5", Problem(miscoverage(), [size() <= 1.5]), letters),
    Case("sets that miss 10 %", Problem(size(), [miscoverage() <= 0.1]), letters),
)


def fit(case: Case, whole: Evidence, chosen: np.ndarray, optimizer: str) -> Policy:
    if optimizer == "full batch":
        return solve(case.problem, whole.rows(chosen))
    told = {} if optimizer == "stochastic" else frequencies(whole)
    stream = Stream(case.problem, len(chosen), optimizer=optimizer, frequencies=told)
    for first in range(0, len(chosen), BATCH):
        stream.partial_fit(whole.rows(chosen[first : first + BATCH]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what they would say is measured below
        return stream.policy()


def frequencies(whole: Evidence) -> dict[str, dict[str, float]]:
    values = whole.group_values.get("group", ())
    return (
        {"group": {value: float(whole.event_probability((("group", value),)).mean()) for value in values}}
        if values
        else {}
    )


def judge(case: Case, policy: Policy, whole: Evidence, optimum: float) -> dict[str, float]:
    distribution = policy.probabilities(whole)
    rules = case.problem.expand(whole.classes, whole.group_values)
    excesses = [policy.expected(found.rule.excess, whole, probabilities=distribution) for found in rules]
    cost = policy.expected(case.problem.minimize, whole, probabilities=distribution)
    return {"violation": max(*excesses, 0.0), "excess": cost - optimum}


def measure(case: Case, sizes: dict[int, int], points: int) -> list[dict[str, Any]]:
    """For each number of rows, as many seeds."""
    whole = case.generate(points, np.random.default_rng(0))
    optimum = -solve(case.problem, whole, beta=10 * solve(case.problem, whole).beta).solution.value
    found = []
    for rows, seeds in sizes.items():
        for seed in range(seeds):
            chosen = np.random.default_rng([seed, rows]).integers(points, size=rows)
            for optimizer in OPTIMIZERS:
                row = {"problem": case.name, "optimizer": optimizer, "rows": rows, "seed": seed}
                policy = fit(case, whole, chosen, optimizer)
                found.append({**row, **judge(case, policy, whole, optimum), "optimum": optimum})
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Means over seeds; in brackets the standard error in units of the last digit."""
    sizes = sorted({row["rows"] for row in found})
    head = [f"{name}, T = {rows:,}" for rows in sizes for name in ("violation", "excess cost")]
    lines = ["| problem | optimizer | " + " | ".join(head) + " |", "|---|---" + "|--:" * len(head) + "|"]
    for problem in dict.fromkeys(row["problem"] for row in found):
        for optimizer in OPTIMIZERS:
            cells = []
            for rows in sizes:
                mine = [
                    row
                    for row in found
                    if (row["problem"], row["optimizer"], row["rows"]) == (problem, optimizer, rows)
                ]
                cells += [show([row[field] for row in mine]) for field in ("violation", "excess")]
            lines.append(f"| {problem} | {optimizer} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def show(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.4f}" + ("" if np.isnan(error) else f" ({10_000 * error:.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows and seeds, to see that it runs")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    sizes = {3000: 2} if arguments.quick else {10_000: 5, 100_000: 5, 1_000_000: 2}
    points = 10_000 if arguments.quick else 500_000
    found = [row for case in CASES for row in measure(case, sizes, points)]
    save(found, table(found), arguments.out, "streams")


if __name__ == "__main__":
    main()
