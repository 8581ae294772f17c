"""Are certificates right as often as they say? Rules whose true rate is at the target, or just beyond it.

A population of a million rows with labels and groups is generated, so that every true rate is known exactly.
From it samples are drawn again and again, and a rule that does not hold, or only just, is put to the test. A
false certificate may come in 5 of 100 samples.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save

from bylaw import (
    Evidence,
    Policy,
    Problem,
    accepted,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.auditing.hypotheses import SPENT, HeldOutSample, Hypothesis, HypothesisTest
from bylaw.data.outcomes import observe
from bylaw.language.expressions import Rate

HERE = Path(__file__).parent
DELTA = 0.05
BEYOND = 0.005  # the true rate exceeds the target by this
METHODS = ("betting", "hoeffding_bentkus")
KINDS: dict[str, Rate] = {
    "mean": rejected(),
    "group-conditional": error().given(sex="F"),
    "gap to everybody": selected(2).given(sex="M") - selected(2),
    "gap between groups": selected(2).given(sex="M") - selected(2).given(sex="F"),
    "ratio": 0.8 * selected(2).given(sex="M") - selected(2).given(sex="F"),
    "selective error": error() - 0.2 * accepted(),
    "set size": size(),
    "miscoverage": miscoverage(),
}
SOFT = {"near-deterministic": "auto", "soft": 6.0}  # inverse temperatures


class Case(NamedTuple):
    kind: str
    policy: str
    rows: int
    repetitions: int
    population: int
    seed: int


def population(n: int, seed: int = 0) -> tuple[Evidence, np.ndarray]:
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.3, "F", "M")
    x = 1.5 * rng.normal(size=n) + 0.8 * (sex == "M")
    middle = np.exp(-(x**2))
    scores = np.exp(np.column_stack([-x, np.log(0.3 + middle), x]))
    chances = scores / scores.sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    return Evidence(chances, groups={"sex": sex}), labels.clip(0, 2)


class World(NamedTuple):
    seen: Evidence
    distribution: np.ndarray
    policy: Policy


@cache
def world(sets: bool, softness: str, n: int) -> World:
    """The population, a policy for it that was chosen on other rows, and what it decides."""
    evidence, labels = population(n)
    problem = Problem(miscoverage(), [size() <= 1.5]) if sets else Problem(error(), [rejected() <= 0.15])
    policy = solve(problem, population(5000, seed=1)[0], beta=SOFT[softness])
    return World(observe(evidence, labels), policy.probabilities(evidence), policy)


def measure(case: Case) -> list[dict[str, Any]]:
    """How often the rule is certified at the target and beyond, and how wide the bounds are."""
    rate = KINDS[case.kind]
    sets = case.kind in ("set size", "miscoverage")
    there = world(sets, case.policy, case.population)
    truth = there.policy.expected(rate, there.seen, probabilities=there.distribution)
    rng = np.random.default_rng(case.seed)
    wrong, widths = {m: np.zeros(2) for m in METHODS}, dict.fromkeys(METHODS, 0.0)
    for _ in range(case.repetitions):
        part = rng.integers(case.population, size=case.rows)
        rows = HeldOutSample(
            there.seen.rows(part), there.distribution[part], there.policy.action_space, labelled=True
        )
        hypothesis = rows.make_hypothesis(rate <= truth, SPENT * DELTA)
        assert isinstance(hypothesis, Hypothesis)
        for method in METHODS:
            test = HypothesisTest(hypothesis, method, DELTA)
            for i, target in enumerate((truth, truth - BEYOND)):
                least = min(bound.log_e_value(target) for bound in test.bounds)
                wrong[method][i] += math.exp(-least) + hypothesis.spent <= DELTA
            widths[method] += test.upper - hypothesis.estimate
    return [
        {
            "kind": case.kind,
            "policy": case.policy,
            "rows": case.rows,
            "method": method,
            "truth": truth,
            "repetitions": case.repetitions,
            "certified at the target": wrong[method][0] / case.repetitions,
            "certified beyond it": wrong[method][1] / case.repetitions,
            "mean width": widths[method] / case.repetitions,
        }
        for method in METHODS
    ]


def table_of(found: Sequence[dict[str, Any]]) -> str:
    """Per kind and policy: the worst rate of false certificates, and widths at the most rows."""
    repetitions = found[0]["repetitions"]
    limit = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / repetitions)
    sizes = sorted({row["rows"] for row in found})
    lines = [
        f"False certificates in % of {repetitions:,} samples, the worst over {sizes[0]:,} to {sizes[-1]:,} "
        f"rows (5 % are promised; {100 * limit:.1f} % with three standard errors), and the mean width of "
        "the bound.\n",
        "| rule | policy | at the target | beyond it | Hoeffding-Bentkus, at the target | "
        + " | ".join(f"width at {n:,}: betting / H.-B." for n in (sizes[0], sizes[-1]))
        + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for policy in SOFT:
            rows = [r for r in found if (r["kind"], r["policy"]) == (kind, policy)]
            bet, other = ([r for r in rows if r["method"] == m] for m in METHODS)
            widths = [
                " / ".join(f"{r['mean width']:.4f}" for m in (bet, other) for r in m if r["rows"] == n)
                for n in (sizes[0], sizes[-1])
            ]
            cells = [
                max(r["certified at the target"] for r in bet),
                max(r["certified beyond it"] for r in bet),
                max(r["certified at the target"] for r in other),
            ]
            lines.append(
                f"| {kind} | {policy} | " + " | ".join([*(f"{100 * c:.1f}" for c in cells), *widths]) + " |"
            )
    worst = max(max(r["certified at the target"], r["certified beyond it"]) for r in found)
    lines.append(f"\nThe worst of all: {100 * worst:.2f} %.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples, few rows")
    arguments = parser.parse_args()
    rows, repetitions, total = (200, 1000, 5000, 20_000), 2000, 1_000_000
    if arguments.quick:
        rows, repetitions, total = (200, 500), 40, 20_000
    settings = [(kind, policy, n) for n in sorted(rows, reverse=True) for kind in KINDS for policy in SOFT]
    cases = [Case(*setting, repetitions, total, seed) for seed, setting in enumerate(settings)]
    with Pool() as pool:
        found = [row for rows in pool.imap(measure, cases) for row in rows]
    found.sort(key=lambda r: (list(KINDS).index(r["kind"]), r["policy"], r["rows"], r["method"]))
    save(found, table_of(found), arguments.out, "validity")


if __name__ == "__main__":
    main()
