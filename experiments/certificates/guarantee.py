"""Do the rules of certified policies hold? Random splits of real rows, judged on a large part left out.

A third of the rows trains the models, once. The others are split again and again: a quarter of them
chooses the policy, a quarter certifies it, and the rest, left out, says whether the rules hold. Gender is no
feature and is unknown when decisions are made; the true one is seen on the rows that choose and certify.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import DATA, Table, adult, logistic, save, wages

from bylaw import (
    ConvergenceWarning,
    Evidence,
    Problem,
    UncertifiedError,
    demographic_parity,
    error,
    rejected,
    solve,
)
from bylaw.rows import observe

HERE = Path(__file__).parent


class Setting(NamedTuple):
    load: Callable[[Path], Table]
    problem: Problem


SETTINGS = {
    "Adult: parity 0.05, at most 10 % rejected": Setting(
        adult, Problem(error(), [demographic_parity("gender", tol=0.05), rejected() <= 0.1])
    ),
    "wages: parity 0.05, five classes": Setting(
        wages, Problem(error(), [demographic_parity("gender", tol=0.05)])
    ),
}


class Scored(NamedTuple):
    """Rows that the models have not seen."""

    evidence: Evidence
    labels: np.ndarray
    gender: np.ndarray


@cache
def scored(name: str, folder: Path, rows: int | None) -> Scored:
    X, y, groups = (part[:rows] for part in SETTINGS[name].load(folder))
    order = np.random.default_rng(0).permutation(len(X))
    train, rest = np.split(order, [len(X) // 3])
    gender = groups.gender.to_numpy()
    model = logistic(X).fit(X.iloc[train], y[train])
    guess = logistic(X).fit(X.iloc[train], gender[train])
    sexes = dict(zip(guess.classes_, guess.predict_proba(X.iloc[rest]).T, strict=True))
    evidence = Evidence(
        model.predict_proba(X.iloc[rest]), classes=model.classes_.tolist(), groups={"gender": sexes}
    )
    return Scored(evidence, y[rest], gender[rest])


def measure(name: str, folder: Path, rows: int | None, seed: int) -> list[dict[str, Any]]:
    """Of one split: the worst excess and the cost on what is left out, plain and certified."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says what is missed
    evidence, labels, gender = scored(name, folder, rows)
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, held, left = np.split(order, [len(order) // 4, len(order) // 2])
    problem = SETTINGS[name].problem
    seen = {"labels": labels[fit], "groups": {"gender": gender[fit]}}
    held_out = evidence.rows(held).with_observed(labels=labels[held], true_groups={"gender": gender[held]})
    found = []
    for way, options in (
        ("plain", {}),
        ("certified", {"guarantee": "high_probability", "held_out": held_out}),
    ):
        line = {"setting": name, "seed": seed, "way": way}
        try:
            policy = solve(problem, evidence.rows(fit), **seen, **options)
        except UncertifiedError as problem_found:
            found.append({**line, "uncertified": str(problem_found)})
            continue
        rest = evidence.rows(left)
        outcome = observe(rest.with_observed(labels=labels[left], true_groups={"gender": gender[left]}))
        distribution = policy.probabilities(rest)
        rules = [found.rule.excess for found in problem.expand(outcome.classes, outcome.group_values)]
        excess = max(policy.expected(rule, outcome, probabilities=distribution) for rule in rules)
        cost = policy.expected(problem.minimize, outcome, probabilities=distribution)
        margin = policy.certificate.margin if policy.certificate else 0.0
        found.append({**line, "excess": excess, "cost": cost, "margin": margin})
    return found


def table_of(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| | all rules hold on rows left out | worst excess, points | mean cost | not certified |",
        "|---|---|---|---|---|",
    ]
    for name in SETTINGS:
        for way in ("plain", "certified"):
            rows = [row for row in found if (row["setting"], row["way"]) == (name, way)]
            done = [row for row in rows if "excess" in row]
            held = sum(row["excess"] <= 0 for row in done)
            worst = max(0.0, *(row["excess"] for row in done))
            cost = np.mean([row["cost"] for row in done])
            lines.append(
                f"| {name}, {way} | {held} of {len(done)} | {100 * worst:.2f} | {100 * cost:.2f} % | "
                f"{len(rows) - len(done)} |"
            )
    return "\n".join(lines) + "\n"


def _measure(arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    return measure(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="two splits")
    arguments = parser.parse_args()
    seeds = 2 if arguments.quick else 100
    cases = [(name, arguments.data_dir, None, seed) for name in SETTINGS for seed in range(seeds)]
    with Pool() as pool:
        found = [row for rows in pool.imap(_measure, cases) for row in rows]
    save(found, table_of(found), arguments.out, "guarantee")


if __name__ == "__main__":
    main()
