"""A record of what 300 random problems are answered, for changes that must change no answer.

    python -m experiments.fuzz.golden --write golden.json
    python -m experiments.fuzz.golden --compare golden.json

Costs, prices, observed rates, decisions, errors and warnings of problems of all kinds: as predicted, with
options, with labels and margins, of the worst group, deterministic, certified, and on files. Numbers are
compared to 1e-6, relative to one or to their size; errors and warnings by their class.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from experiments.fuzz.labelled import random_labelled, time_limit
from experiments.fuzz.options import random_options
from experiments.fuzz.run import random_case, random_problem, random_rows

from bylaw import (
    BylawError,
    Columns,
    Evidence,
    Policy,
    Problem,
    demographic_parity,
    error,
    miscoverage,
    precision,
    rejected,
    scan,
    selected,
    size,
    solve,
    worst,
)

TOL = 1e-6
MOST_SECONDS = 300.0
Solved = tuple[Policy, Evidence]


def solve_predicted(seed: int) -> Solved:
    rows, problem = random_case(seed)
    return solve(problem, rows.evidence), rows.evidence


def solve_options(seed: int) -> Solved:
    rows, problem = random_options(seed)
    return solve(problem, rows.evidence), rows.evidence


def solve_labelled(seed: int) -> Solved:
    given, rng = random_labelled(seed), np.random.default_rng([seed, 1])
    labels = given.outcomes.labels if given.with_labels else None
    groups = {"hidden": given.outcomes.groups["hidden"]} if given.with_groups else None
    options = {
        "margin": [0.0, 0.0, 1.0, "auto"][rng.integers(4)],
        "calibrate": [None, "none", "temperature"][rng.integers(3)],
    }
    return solve(
        given.problem, given.rows.evidence, labels=labels, groups=groups, **options
    ), given.rows.evidence


def solve_worst(seed: int) -> Solved:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    plain = random_problem(rows, rng)
    goal = worst(plain.minimize, by=str(rng.choice(["known", "hidden", "label"])))
    return solve(Problem(goal, plain.rules, decisions=plain.kind), rows.evidence), rows.evidence


def solve_deterministic(seed: int) -> Solved:
    rows, problem = random_case(seed)
    return solve(problem, rows.evidence, deterministic=True), rows.evidence


def solve_certified(seed: int) -> Solved:
    """Rows of a logistic model, a half of which certifies."""
    rng = np.random.default_rng(seed)
    n, x = 1200, rng.normal(size=1200)
    groups = np.where(rng.random(n) < 0.4, "a", "b")
    score = 1 / (1 + np.exp(-1.5 * x - 0.3 * (groups == "a")))
    labels = (rng.random(n) < score).astype(int)
    problem = [
        Problem(error(), [rejected() <= 0.3, demographic_parity("g", tol=0.15)]),
        Problem(rejected(), [error() <= 0.2]),
        Problem(size(), [miscoverage() <= 0.15]),
        Problem(1 - selected(1), [precision(1) >= 0.7]),
    ][rng.integers(4)]
    evidence = Evidence(np.column_stack([1 - score, score]), groups={"g": groups})
    fitted, held_out = evidence.rows(slice(0, 600)), evidence.rows(slice(600, n))
    options = {"guarantee": "high_probability", "held_out": held_out.with_observed(labels=labels[600:])}
    return solve(problem, fitted, labels=labels[:600], **options), fitted


def solve_scanned(seed: int) -> Solved:
    """Rows in a file, some of them with labels."""
    rng = np.random.default_rng(seed)
    n, K = int(rng.integers(50, 400)), int(rng.integers(2, 5))
    frame = pandas.DataFrame(rng.dirichlet(np.ones(K), n), columns=[f"c{k}" for k in range(K)])
    names = list(frame.columns)
    frame["g"] = rng.choice(["x", "y", "z"], n)
    frame["truth"] = np.array(names)[(frame[names].to_numpy() + rng.gumbel(size=(n, K)) * 0.2).argmax(axis=1)]
    rules = [
        rejected() <= float(rng.uniform(0, 0.3)),
        demographic_parity("g", tol=float(rng.uniform(0, 0.1))),
    ]
    rules += [selected(names[0]) >= 0.2] if rng.random() < 0.5 else []
    columns = Columns(names, groups={"g": "g"}, label="truth" if rng.random() < 0.5 else None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        frame.to_parquet(path)
        policy = solve(Problem(error() + 0.1 * rejected(), rules), scan(path, columns))
    return policy, Columns(names, groups={"g": "g"}).evidence(frame)


KINDS: Mapping[str, tuple[int, Callable[[int], Solved]]] = {
    "predicted": (90, solve_predicted),
    "options": (40, solve_options),
    "labelled": (80, solve_labelled),
    "worst": (20, solve_worst),
    "deterministic": (30, solve_deterministic),
    "certified": (20, solve_certified),
    "scanned": (20, solve_scanned),
}


def record(case: tuple[str, int]) -> dict[str, Any]:
    """Return everything that a user sees of one problem's answer."""
    kind, seed = case
    found: dict[str, Any] = {"kind": kind, "seed": seed}
    with warnings.catch_warnings(record=True) as caught, time_limit(MOST_SECONDS):
        warnings.simplefilter("always")
        try:
            policy, rows = KINDS[kind][1](seed)
        except TimeoutError:
            return {**found, "error": "TimeoutError"}
        except (BylawError, ValueError) as refusal:
            return {**found, "error": type(refusal).__name__}
        chances = policy.probabilities(rows)
    pattern = np.cos(np.arange(chances.size)).reshape(chances.shape)
    return {
        **found,
        "error": "",
        "warnings": sorted(one.category.__name__ for one in caught),
        "prices": list(policy.prices.values()),
        "observed": list((policy.observed or {}).values()),
        "tightened": list(policy.tightened.values()),
        "decisions": [
            *chances[:3].ravel().tolist(),
            *chances.mean(axis=0).tolist(),
            float((chances * pattern).mean()),
        ],
    }


def list_cases(share: float = 1.0) -> list[tuple[str, int]]:
    """Return the kinds and seeds of the problems, or of the first ones of each kind."""
    return [(kind, seed) for kind, (count, _) in KINDS.items() for seed in range(round(count * share))]


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """List what differs between two records of one problem."""
    apart = []
    for name, old in before.items():
        new = after.get(name, after["error"])
        if isinstance(old, list) and isinstance(new, list) and old and isinstance(old[0], float):
            close = len(old) == len(new) and np.allclose(old, new, rtol=TOL, atol=TOL, equal_nan=True)
        else:
            close = old == new
        if not close:
            apart.append(f"{before['kind']} {before['seed']}: {name} was {old}, is {new}")
    return apart


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="where to keep the answers")
    parser.add_argument("--compare", type=Path, help="answers to compare with")
    parser.add_argument("--share", type=float, default=1.0, help="of the problems of each kind")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    cases = list_cases(arguments.share)
    with Pool(arguments.processes) as pool:
        found = pool.map(record, cases, chunksize=5)
    if arguments.write:
        arguments.write.write_text(json.dumps(found, indent=1))
    kinds = pandas.Series([one["kind"] + (", refused" if one["error"] else "") for one in found])
    print(kinds.value_counts(sort=False).to_string())
    if not arguments.compare:
        return 0
    before = {(one["kind"], one["seed"]): one for one in json.loads(arguments.compare.read_text())}
    apart = [line for one in found for line in compare(before[one["kind"], one["seed"]], one)]
    print("\n".join([*apart, f"{len(apart)} differences"]))
    return int(bool(apart))


if __name__ == "__main__":
    raise SystemExit(main())
