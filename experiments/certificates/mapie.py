"""Selective error with a guarantee beside MAPIE: how often it is certified, how often falsely, and the time.

Answers are given where the score of the likeliest label is high enough, and of those at most a tenth may be
wrong. MAPIE tests thresholds on all rows (`BinaryClassificationController`, precision of "the answer is
right"). bylaw chooses a sequence of policies on a part of the rows and tests them on the others.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from experiments.certificates.selective import Rows, draw
from experiments.data import save
from mapie.risk_control import BinaryClassificationController

from bylaw import Problem, UncertifiedError, accepted, error, rejected, solve

HERE = Path(__file__).parent
LEVEL, FITTED = 0.1, 0.2  # FITTED: the share of rows on which bylaw chooses its sequence
MAPIE, BYLAW = "MAPIE", "bylaw"

Answer = Callable[[Rows], np.ndarray]  # the probabilities with which rows are answered


def certify_with_mapie(rows: Rows) -> Answer | None:
    """The certified rule; None where nothing is certified."""
    controller = BinaryClassificationController(
        lambda confidence: np.column_stack([1 - confidence[:, 0], confidence[:, 0]]),
        risk="precision",
        target_level=1 - LEVEL,
        confidence_level=0.95,
        best_predict_param_choice="recall",
    )
    controller.calibrate(rows.confidence[:, None], 1 - rows.wrong.astype(int))
    if not len(controller.valid_predict_params):
        return None
    threshold = float(controller.best_predict_param)
    return lambda population: (population.confidence >= threshold).astype(float)


def certify_with_bylaw(rows: Rows) -> Answer | None:
    """The same."""
    n = round(FITTED * len(rows.labels))
    held = rows.evidence.rows(slice(n, None)).with_observed(labels=rows.labels[n:])
    options = {"labels": rows.labels[:n], "guarantee": "high_probability", "held_out": held}
    problem = Problem(rejected(), [error() <= LEVEL * accepted()])
    try:
        policy = solve(problem, rows.evidence.rows(slice(n)), **options)
    except UncertifiedError:
        return None
    return lambda population: 1 - policy.probabilities(population.evidence)[:, -1]


def measure(arguments: tuple[int, int, int]) -> list[dict[str, Any]]:
    n, seed, size = arguments
    warnings.simplefilter("ignore")
    rows, population = draw(n, 1.0, seed), draw(size, 1.0, 10_000_000)
    lines = []
    for name, certify in ((MAPIE, certify_with_mapie), (BYLAW, certify_with_bylaw)):
        begin = time.process_time()
        answer = certify(rows)
        seconds = time.process_time() - begin
        answered = None if answer is None else answer(population)
        line = {
            "rows": n,
            "seed": seed,
            "library": name,
            "seconds": seconds,
            "certified": answered is not None,
        }
        coverage = math.nan if answered is None else float(answered.mean())
        wrong = math.nan if answered is None else float((answered * population.wrong).mean())
        lines.append({**line, "coverage": coverage, "false": wrong > LEVEL * coverage})
    return lines


def table_of(found: Sequence[dict[str, Any]]) -> str:
    runs = len({line["seed"] for line in found})
    lines = [
        f"Of {runs} samples; bylaw chooses its sequence on {100 * FITTED:g} % of the rows.\n",
        "| rows | library | certified | false | mean coverage | median seconds |",
        "|---|---|---|---|---|---|",
    ]
    for n, name in dict.fromkeys((line["rows"], line["library"]) for line in found):
        mine = [line for line in found if (line["rows"], line["library"]) == (n, name)]
        coverage = np.nanmean([line["coverage"] for line in mine]) if any(x["certified"] for x in mine) else 0
        cells = (n, name, sum(x["certified"] for x in mine), sum(x["false"] for x in mine))
        seconds = np.median([line["seconds"] for line in mine])
        lines.append("| {:,} | {} | {} | {} |".format(*cells) + f" {100 * coverage:.0f} % | {seconds:.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="two samples of 500 rows")
    arguments = parser.parse_args()
    sizes, runs, size = ((500,), 2, 20_000) if arguments.quick else ((500, 2000, 8000), 65, 200_000)
    with Pool() as pool:
        cases = [(n, seed, size) for n in sizes for seed in range(runs)]
        found = [line for lines in pool.imap(measure, cases) for line in lines]
    save(found, table_of(found), arguments.out, "mapie")


if __name__ == "__main__":
    main()
