"""The speed of an audit of many rules, in CPU time, against that of one rule.

Prints a table and writes it to benchmarks/results/audit.md.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np

from bylaw import Evidence, Policy, Problem, audit, error, selected, solve
from core import seconds, show

RESULTS = Path(__file__).parent / "results" / "audit.md"
GROUPS = 20
ROWS = 300_000


def rows(n: int, seed: int) -> tuple[Evidence, np.ndarray]:
    """Rows of twenty known groups, and their labels."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(GROUPS, size=n)
    chances = 1 / (1 + np.exp(-rng.normal(size=n) - 0.2 * (groups % 3)))
    labels = (rng.random(n) < chances).astype(int)
    return Evidence(np.column_stack([1 - chances, chances]), groups={"group": groups}), labels


def fit(n_rules: int) -> Policy:
    rules = [selected(1).given(group=k) <= 0.62 for k in range(GROUPS)]
    rules += [error().given(group=k) <= 0.5 for k in range(GROUPS)]
    return solve(Problem(error(), rules[:n_rules]), rows(20_000, seed=1)[0])


def race() -> list[tuple[str, str, str]]:
    evidence, labels = rows(ROWS, seed=0)
    one, many = fit(1), fit(2 * GROUPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these rows were looked at before
        audits = [lambda policy=policy: audit(policy, evidence, labels=labels) for policy in (one, many)]
        alone, all_rules = seconds(*audits, rounds=3, clock=time.process_time)
    return [
        (f"audit of one rule, {ROWS:,} rows", f"{alone:.2f} s", ""),
        (f"audit of {2 * GROUPS} rules", f"{all_rules / alone:.1f} times ({all_rules:.2f} s)", "<= 1 s"),
    ]


if __name__ == "__main__":
    show(race(), RESULTS)
