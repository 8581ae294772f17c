"""Are certificates right where samples hide or repeat things? Rare heavy rows, and rows that are alike.

The true rate is at the target or just above it, so that a certificate is false. In the first case, 0.3 % of
rows weigh 100 and are all wrong, and most small samples have none of them. In the others scores are equal,
so that samples of one size differ in labels and groups alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from experiments.data import save

from bylaw import Evidence, Problem, error, solve
from bylaw.language import Rule
from bylaw.rows import observe
from bylaw.testing import DecidedRows, HypothesisTest

HERE = Path(__file__).parent
DELTA, HEAVY, HEAVY_SHARE = 0.05, 100.0, 0.003
SPACE = solve(Problem(error()), Evidence([[0.7, 0.3], [0.2, 0.8]])).action_space
Draw = Callable[[int, np.random.Generator], DecidedRows]


def make_rows(wrong: np.ndarray, rows: Evidence, chance: float = 1.0, **options: Any) -> DecidedRows:
    """Rows with the label 0; if they are wrong, the decision is 1 with this probability, and else 0."""
    decisions = np.where(wrong[:, None], [1 - chance, chance], [chance, 1 - chance])
    return DecidedRows(
        observe(rows.with_observed(labels=np.zeros(len(wrong), int))), decisions, SPACE, True, **options
    )


def draw_heavy(n: int, rng: np.random.Generator) -> DecidedRows:
    """A weighted error of 0.27."""
    heavy = rng.random(n) < HEAVY_SHARE
    mass = HEAVY_SHARE * HEAVY
    rest = (0.27 * (1 - HEAVY_SHARE + mass) - mass) / (1 - HEAVY_SHARE)
    wrong = heavy | (rng.random(n) < rest)
    rows = Evidence(np.full((n, 2), 0.5), weights=np.where(heavy, HEAVY, 1.0))
    return make_rows(wrong, rows, largest_weight=HEAVY)


def draw_alike(chance: float, groups: bool) -> Draw:
    """An error of 0.2 where `chance` is one, in each of two groups."""

    def draw(n: int, rng: np.random.Generator) -> DecidedRows:
        names = rng.choice(["a", "b"], n)
        rows = Evidence(np.full((n, 2), 0.5), groups={"g": names} if groups else None)
        return make_rows(rng.random(n) < 0.2, rows, chance)

    return draw


CASES: dict[str, tuple[Draw, Rule]] = {
    "heavy rows, weighted error 0.27": (draw_heavy, error() <= 0.26),
    "alike, deterministic": (draw_alike(1.0, False), error() <= 0.2),
    "alike, randomized": (draw_alike(0.9, False), error() <= 0.2 * 0.9 + 0.8 * 0.1),
    "alike, gap between groups": (
        draw_alike(1.0, True),
        error().given(g="a") - error().given(g="b") <= 0,
    ),
}
SIZES = (100, 460, 500, 3000)


def measure(arguments: tuple[str, int, int]) -> dict[str, Any]:
    name, n, repetitions = arguments
    draw, rule = CASES[name]
    rng, wrong = np.random.default_rng([n, len(name)]), 0
    for _ in range(repetitions):
        test = draw(n, rng).test(rule)
        assert isinstance(test, HypothesisTest)
        wrong += test.p_value(DELTA) <= DELTA
    return {"case": name, "rows": n, "repetitions": repetitions, "certified": wrong / repetitions}


def table_of(found: Sequence[dict[str, Any]]) -> str:
    repetitions, sizes = found[0]["repetitions"], sorted({line["rows"] for line in found})
    error_of_it = math.sqrt(DELTA * (1 - DELTA) / repetitions)
    lines = [
        f"False certificates in % of {repetitions:,} samples (5 % are promised, with a standard error of "
        f"{100 * error_of_it:.1f}).\n",
        "| rows | " + " | ".join(f"{n:,}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for name in CASES:
        cells = [f"{100 * line['certified']:.1f}" for line in found if line["case"] == name]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples, few rows")
    arguments = parser.parse_args()
    sizes, repetitions = ((100,), 5) if arguments.quick else (SIZES, 1000)
    with Pool() as pool:
        found = pool.map(measure, [(name, n, repetitions) for name in CASES for n in sizes], chunksize=1)
    save(found, table_of(found), arguments.out, "hard_cases")


if __name__ == "__main__":
    main()
