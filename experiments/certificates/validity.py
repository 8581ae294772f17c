"""Are certificates right as often as they say? Rules whose true rate is exactly at the target.

A population of half a million rows with labels and groups is generated, so that every true rate is known
exactly. From it samples are drawn again and again, and the rule that the rate is below the target, which only
just does not hold, is put to the test. A false certificate may come in 5 of 100 samples.
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
from bylaw.language import Rate
from bylaw.rows import ObservedRows, observe
from bylaw.testing import DecidedRows, HypothesisTest, Untestable

HERE = Path(__file__).parent
DELTA = 0.05
METHODS = ("betting", "hoeffding_bentkus")
WIDTHS = 100  # samples of which bounds are computed, too
HEAVY = 20.0  # weight of rare rows, on which errors are frequent
COMPANIONS = 5  # unlabelled rows for each labelled one


class Kind(NamedTuple):
    rate: Rate
    weighted: bool = False
    hidden: str = ""  # how well groups and labels are guessed, where more rows show neither


GAP, NESTED = (
    selected(2).given(sex="M") - selected(2).given(sex="F"),
    selected(2).given(sex="M") - selected(2),
)
KINDS: dict[str, Kind] = {
    "mean": Kind(rejected()),
    "group-conditional": Kind(error().given(sex="F")),
    "gap to all rows": Kind(NESTED),
    "gap between groups": Kind(GAP),
    "ratio": Kind(0.8 * selected(2).given(sex="M") - selected(2).given(sex="F")),
    "odds": Kind(selected(2).given(sex="M", label=2) - selected(2).given(label=2)),
    "selective error": Kind(error() - 0.2 * accepted()),
    "set size": Kind(size()),
    "miscoverage": Kind(miscoverage()),
    "gap to all rows, group of 5 %": Kind(selected(2).given(town="small") - selected(2)),
    "gap between groups, one of 5 %": Kind(selected(2).given(town="small") - selected(2).given(town="large")),
    "mean, weights from 1 to 20": Kind(error(), weighted=True),
    "gap to all rows, weights from 1 to 20": Kind(NESTED, weighted=True),
    "error, with unlabelled rows": Kind(error(), hidden="well"),
    "gap to all rows, hidden groups, with unlabelled rows": Kind(NESTED, hidden="well"),
    "the same, groups guessed wrongly": Kind(NESTED, hidden="wrongly"),
    "odds, hidden groups, with unlabelled rows": Kind(
        selected(2).given(sex="M", label=2) - selected(2).given(label=2), hidden="well"
    ),
}
SOFT = {"near-deterministic": "auto", "soft": 6.0}  # inverse temperatures


class Case(NamedTuple):
    kind: str
    policy: str
    rows: int
    repetitions: int
    population: int
    seed: int


class People(NamedTuple):
    chances: np.ndarray  # (n, 3)
    labels: np.ndarray
    sex: np.ndarray
    town: np.ndarray
    male: np.ndarray  # P(sex = M | x)


def draw_people(n: int, seed: int = 0) -> People:
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.3, "F", "M")
    x = 1.5 * rng.normal(size=n) + 0.8 * (sex == "M")
    middle = np.exp(-(x**2))
    scores = np.exp(np.column_stack([-x, np.log(0.3 + middle), x]))
    chances = scores / scores.sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    town = np.where(rng.random(n) < 0.05 * np.exp(0.4 * x - 0.25), "small", "large")
    odds = 0.7 / 0.3 * np.exp((x**2 - (x - 0.8) ** 2) / (2 * 1.5**2))
    return People(chances, labels.clip(0, 2), sex, town, odds / (1 + odds))


def population(n: int, seed: int = 0) -> tuple[Evidence, np.ndarray]:
    """With known groups, and labels."""
    people = draw_people(n, seed)
    return Evidence(people.chances, groups={"sex": people.sex, "town": people.town}), people.labels


class World(NamedTuple):
    evidence: Evidence
    seen: ObservedRows
    distribution: np.ndarray
    policy: Policy


@cache
def world(sets: bool, softness: str, n: int, weighted: bool, hidden: str) -> World:
    """The population, a policy for it that was chosen on other rows, and what it decides."""
    people = draw_people(n)
    problem = Problem(miscoverage(), [size() <= 1.5]) if sets else Problem(error(), [rejected() <= 0.15])
    policy = solve(problem, Evidence(draw_people(5000, seed=1).chances), beta=SOFT[softness])
    groups: dict[str, Any] = {"sex": people.sex, "town": people.town}
    columns: dict[str, Any] = {}
    if hidden:
        male = people.male if hidden == "well" else 1 - people.male
        groups["sex"] = {"F": 1 - male, "M": male}
        columns["joint"] = {"sex": np.stack([1 - male, male], 1)[:, :, None] * people.chances[:, None]}
    if weighted:
        heavy = np.random.default_rng(2).random(n) < 0.04 * (people.chances.max(axis=1) < 0.6)
        columns["weights"] = np.where(heavy, HEAVY, 1.0)
    evidence = Evidence(people.chances, groups=groups, **columns)
    seen = observe(
        evidence.with_observed(labels=people.labels, true_groups={"sex": people.sex} if hidden else None)
    )
    return World(evidence, seen, policy.probabilities(evidence), policy)


def draw_rows(there: World, kind: Kind, n: int, rng: np.random.Generator) -> DecidedRows:
    part, more = (rng.integers(len(there.evidence), size=size) for size in (n, COMPANIONS * n))
    space, unlabelled = there.policy.action_space, None
    if kind.hidden:
        unlabelled = DecidedRows(there.evidence.rows(more), there.distribution[more], space, False)
    return DecidedRows(
        there.seen.rows(part),
        there.distribution[part],
        space,
        labelled=True,
        unlabelled=unlabelled,
        largest_weight=HEAVY if kind.weighted else None,
    )


def measure(case: Case) -> list[dict[str, Any]]:
    """How often the rule is certified at the target, and how wide the bounds are."""
    kind = KINDS[case.kind]
    sets = case.kind in ("set size", "miscoverage")
    there = world(sets, case.policy, case.population, kind.weighted, kind.hidden)
    truth = there.policy.expected(kind.rate, there.seen, probabilities=there.distribution)
    rng = np.random.default_rng(case.seed)
    methods = METHODS[:1] if kind.weighted or kind.hidden else METHODS
    wrong, widths = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0.0)
    tested = 0
    for number in range(case.repetitions):
        rows = draw_rows(there, kind, case.rows, rng)
        tests = [rows.test(kind.rate <= truth, method) for method in methods]
        if isinstance(tests[0], Untestable):
            continue  # a group without a row
        tested += 1
        for method, test in zip(methods, tests, strict=True):
            assert isinstance(test, HypothesisTest)
            wrong[method] += test.p_value(DELTA) <= DELTA
            if number < WIDTHS:
                widths[method] += test.bounds(DELTA)[1] - test.estimate
    return [
        {
            "kind": case.kind,
            "policy": case.policy,
            "rows": case.rows,
            "method": method,
            "truth": truth,
            "repetitions": tested,
            "certified": wrong[method] / tested,
            "mean width": widths[method] / min(WIDTHS, tested),
        }
        for method in methods
    ]


def table_of(found: Sequence[dict[str, Any]]) -> str:
    """Per kind and policy: the worst rate of false certificates, and widths."""
    repetitions = max(row["repetitions"] for row in found)
    limit = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / repetitions)
    sizes = sorted({row["rows"] for row in found})
    lines = [
        f"False certificates in % of {repetitions:,} samples (5 % are promised; {100 * limit:.1f} % with "
        "three standard errors), and the mean width of the bound.\n",
        "| rule | policy | "
        + " | ".join(f"{n:,} rows" for n in sizes)
        + " | Hoeffding-Bentkus, worst | "
        + " | ".join(f"width at {n:,}: betting / H.-B." for n in (sizes[0], sizes[-1]))
        + " |",
        "|---|---|" + "---|" * (len(sizes) + 3),
    ]
    for kind, policy in dict.fromkeys((row["kind"], row["policy"]) for row in found):
        rows = [r for r in found if (r["kind"], r["policy"]) == (kind, policy)]
        bet, other = ([r for r in rows if r["method"] == m] for m in METHODS)
        cells = [f"{100 * next(r['certified'] for r in bet if r['rows'] == n):.1f}" for n in sizes]
        cells.append(f"{100 * max(r['certified'] for r in other):.1f}" if other else "")
        cells += [
            " / ".join(f"{r['mean width']:.4f}" for m in (bet, other) for r in m if r["rows"] == n)
            for n in (sizes[0], sizes[-1])
        ]
        lines.append(f"| {kind} | {policy} | " + " | ".join(cells) + " |")
    worst = max(found, key=lambda r: r["certified"])
    lines.append(
        f"\nThe worst of all {len(found)} cells: {100 * worst['certified']:.2f} % ({worst['kind']}, "
        f"{worst['rows']:,} rows, {worst['method'].replace('_', '-')})."
    )
    return "\n".join(lines) + "\n"


def list_settings(sizes: Sequence[int]) -> list[tuple[str, str, int]]:
    """Soft policies for the kinds whose values are 0 or 1 otherwise."""
    soft = ("mean", "gap to all rows", "gap between groups", "selective error", "set size")
    pairs = [(kind, policy) for kind in KINDS for policy in SOFT if policy != "soft" or kind in soft]
    return [(kind, policy, n) for n in sorted(sizes, reverse=True) for kind, policy in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples, few rows")
    arguments = parser.parse_args()
    sizes, repetitions, total = ((200,), 4, 20_000) if arguments.quick else ((100, 500, 3000), 1000, 500_000)
    cases = [Case(*setting, repetitions, total, seed) for seed, setting in enumerate(list_settings(sizes))]
    with Pool() as pool:
        found = [row for rows in pool.imap(measure, cases) for row in rows]
    found.sort(key=lambda r: (list(KINDS).index(r["kind"]), r["policy"], r["rows"], r["method"]))
    save(found, table_of(found), arguments.out, "validity")


if __name__ == "__main__":
    main()
