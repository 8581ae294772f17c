"""The figure in docs/monitoring.md: six weeks of a policy; in the last two, the rates of one group are worse.

Run with --out FILE to write it to another file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from bylaw import Evidence, Monitor, Problem, error, rejected, selected, solve

mpl.use("Agg")
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "monitor.png"


def applicants(n, rng, shift=0.0):
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    x = 1.5 * rng.normal(size=n) + np.where(sex == "M", 0.5, -shift)
    good = 1 / (1 + np.exp(-x))
    y = np.where(rng.random(n) < good, "good", "bad")
    return Evidence(np.column_stack([1 - good, good]), classes=["bad", "good"], groups={"sex": sex}), y


def watch(days: int = 42) -> Monitor:
    rng = np.random.default_rng(0)
    women, men = selected("good").given(sex="F"), selected("good").given(sex="M")
    policy = solve(Problem(error(), [women >= 0.9 * men, rejected() <= 0.1]), applicants(8000, rng)[0])
    monitor = Monitor(policy, rules=[women >= 0.8 * men, rejected() <= 0.12], run_length=365 * 500)
    for day in range(days):
        rows, _ = applicants(500, rng, shift=0.0 if day < 30 else 0.5)
        monitor.update(rows)
    return monitor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    monitor = watch()
    monitor.plot().savefig(arguments.out, dpi=150)
    print(monitor)
