"""How often certificates come where a rule holds, and how wide bounds are, beside exact and other bounds.

Decisions are not random here, so that Clopper and Pearson's exact test applies to means. The score test
(Wilson for a rate; Farrington and Manning, 1990, for a gap) and the normal approximation promise nothing at a
given number of rows. The normal approximation is the yardstick for widths.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save
from scipy.optimize import brentq
from scipy.stats import norm

from bylaw.testing import METHODS
from bylaw.testing._betting import Sample
from bylaw.testing._confidence_bounds import make_test

HERE = Path(__file__).parent
DELTA = 0.05
NORMAL, SCORE = "normal", "score"
APPROXIMATE = (SCORE, NORMAL)


class Case(NamedTuple):
    """A rate, or a gap between a group and the others (`share` of rows in the group; 0 for no group)."""

    share: float
    rate: float
    target: float  # of the rate, or of the gap, which is zero
    rows: int


MEANS = (
    Case(0, 0.02, 0.1, 100),
    Case(0, 0.06, 0.1, 500),
    Case(0, 0.08, 0.1, 1000),
    Case(0, 0.087, 0.1, 3000),
    Case(0, 0.001, 0.0018, 20_000),
)
GAPS = (
    Case(0.5, 0.3, 0.1, 500),
    Case(0.05, 0.3, 0.2, 500),
    Case(0.5, 0.3, 0.04, 3000),
    Case(0.05, 0.3, 0.1, 3000),
    Case(0.05, 0.1, 0.07, 3000),
)


def draw_samples(case: Case, rng: np.random.Generator) -> list[Sample]:
    values = (rng.random(case.rows) < case.rate).astype(float)
    if not case.share:
        return [Sample(np.ones(len(values)), values, 0.0, 1.0)]
    inside = rng.permutation(case.rows) < case.share * case.rows
    first, second = inside.astype(float), 1.0 - inside
    return [Sample(first, first * values, 0.0, 1.0), Sample(second, -second * values, -1.0, 0.0)]


def bound_normally(samples: Sequence[Sample]) -> float:
    """Return the upper bound of the rate or the gap by the normal approximation."""
    variance = sum(abs(s.mean) * (1 - abs(s.mean)) / s.sizes.sum() for s in samples)
    return sum(s.mean for s in samples) + norm.ppf(1 - DELTA) * math.sqrt(variance)


def bound_by_score(samples: Sequence[Sample]) -> float:
    """Return the upper bound of the rate or the gap that the score test leaves: the largest value whose
    distance from the estimate is at most the quantile times the standard error under that value."""
    estimate, quantile = sum(s.mean for s in samples), norm.ppf(1 - DELTA)
    counts = [float(s.sizes.sum()) for s in samples]

    def lack(target: float) -> float:
        rates = [target] if len(samples) == 1 else fit_rates(samples, target)
        variance = sum(rate * (1 - rate) / n for rate, n in zip(rates, counts, strict=True))
        return target - estimate - quantile * math.sqrt(variance)

    highest = 1 - 1e-9
    return float(brentq(lack, estimate + 1e-9, highest)) if lack(highest) > 0 else 1.0


def fit_rates(samples: Sequence[Sample], gap: float) -> tuple[float, float]:
    """Return the likeliest rates of two groups whose difference is the gap."""
    n, m = (float(s.sizes.sum()) for s in samples)
    hits, others = (abs(float(s.amounts.sum())) for s in samples)

    def slope(rate: float) -> float:
        first = rate + gap
        return hits / first - (n - hits) / (1 - first) + others / rate - (m - others) / (1 - rate)

    low, high = max(0.0, -gap) + 1e-12, min(1.0, 1 - gap) - 1e-12
    if slope(low) <= 0 or slope(high) >= 0:
        rate = low if slope(low) <= 0 else high
    else:
        rate = float(brentq(slope, low, high))
    return min(rate + gap, 1.0), rate


def measure(arguments: tuple[Case, int, int]) -> list[dict[str, Any]]:
    case, repetitions, seed = arguments
    rng = np.random.default_rng(seed)
    names = (*METHODS, *APPROXIMATE)
    certified, widths = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    for _ in range(repetitions):
        samples = draw_samples(case, rng)
        for method in METHODS:
            test = make_test(samples, method, disjoint=True)
            certified[method] += test.p_value(case.target, DELTA) <= DELTA
            widths[method] += test.bounds(DELTA)[1] - test.estimate
        for method, bound in ((SCORE, bound_by_score(samples)), (NORMAL, bound_normally(samples))):
            certified[method] += bound <= case.target
            widths[method] += bound - sum(s.mean for s in samples)
    return [
        {
            **case._asdict(),
            "method": method,
            "repetitions": repetitions,
            "certified": certified[method] / repetitions,
            "width": widths[method] / repetitions,
        }
        for method in certified
    ]


def table_of(found: Sequence[dict[str, Any]]) -> str:
    repetitions = found[0]["repetitions"]
    names = ("betting", "Clopper-Pearson", "Hoeffding-Bentkus", "score test", "normal")
    lines = [
        f"Certified in % of {repetitions:,} samples; in brackets the mean width of the bound, in units of "
        "that of the normal approximation.\n",
        "| rule | rows | " + " | ".join(names) + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(Case(*(row[name] for name in Case._fields)) for row in found):
        rows = {r["method"]: r for r in found if Case(*(r[name] for name in Case._fields)) == case}
        unit = rows[NORMAL]["width"]
        cells = [
            f"{100 * rows[method]['certified']:.0f} ({rows[method]['width'] / unit:.2f})"
            for method in ("betting", "clopper_pearson", "hoeffding_bentkus", SCORE, NORMAL)
        ]
        what = f"a rate of {case.rate:g}, at most {case.target:g}"
        if case.share:
            what = (
                f"a gap of 0 between {100 * case.share:g} % of the rows and the others, at most "
                f"{case.target:g} (rates of {case.rate:g})"
            )
        lines.append(f"| {what} | {case.rows:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples of two cases")
    arguments = parser.parse_args()
    cases, repetitions = ((*MEANS[:1], *GAPS[:1]), 10) if arguments.quick else ((*MEANS, *GAPS), 500)
    with Pool() as pool:
        work = [(case, repetitions, seed) for seed, case in enumerate(cases)]
        found = [row for rows in pool.imap(measure, work) for row in rows]
    save(found, table_of(found), arguments.out, "power")


if __name__ == "__main__":
    main()
