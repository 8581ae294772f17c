"""What a policy's fingerprints recognise, whom they take for somebody else, and what they tell of a row.

Unrelated rows: how often two independent samples of one population are taken for each other, by populations
from continuous to two values. Recognition: how often rows are recognised of which a share was fitted, beside
theory. Privacy: how often somebody who knows all other rows guesses right whether a row is in the file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save
from scipy.stats import norm, poisson

from bylaw.policy import fingerprint
from bylaw.policy.fingerprint import (
    BUCKETS,
    EPSILON,
    Fingerprint,
    count_buckets,
    hash_features,
    noise_distribution,
)
from bylaw.policy.recognition import RowsAtHand, measure_sameness, measure_shared, shares_rows

HERE = Path(__file__).parent
LEVELS = (2, 4, 6)  # of evidence, -log of the probability by accident
NEEDED = 15.0
SHARES = (1.0, 0.5, 0.1, 0.05)


class Population(NamedTuple):
    name: str
    draw: Callable[[int, np.random.Generator], np.ndarray]


def of_types(number: int) -> Callable[[int, np.random.Generator], np.ndarray]:
    return lambda n, rng: rng.integers(number, size=n).astype(float)


def clipped(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.normal(0.5, 0.5, n), 0, 1)


def skewed(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.floor(3000 ** rng.random(n))


POPULATIONS = (
    Population("continuous", lambda n, rng: rng.random(n)),
    Population("a third at 0 or 1", clipped),
    Population("100,000 values", of_types(100_000)),
    Population("5,000 values", of_types(5000)),
    Population("3,000 values, skewed", skewed),
    Population("100 values", of_types(100)),
    Population("16 values", of_types(16)),
    Population("8 values", of_types(8)),
)
SIZES = ((200, 200), (2000, 2000), (20_000, 500), (500, 20_000))  # fitted, audited


def at_hand(rows: np.ndarray) -> RowsAtHand:
    return RowsAtHand.from_hashes(hash_features(rows[None]))


def release(rows: np.ndarray) -> Fingerprint:
    return Fingerprint(len(rows), count_buckets(hash_features(rows[None]))).release()


def compare_unrelated(repetitions: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Evidence for unrelated samples; its tail falls as exp(-x)."""
    found = []
    for population in POPULATIONS:
        for fitted, audited in SIZES:
            shared, same = np.zeros(repetitions), np.full(repetitions, -math.inf)
            for i in range(repetitions):
                part = release(population.draw(fitted, rng))
                rows = at_hand(population.draw(audited, rng))
                shared[i] = measure_shared(rows, part)
                if fitted == audited:
                    same[i] = measure_sameness(rows, part)
            tails = {f"shared >= {x}": float((shared >= x).mean()) for x in LEVELS}
            found.append(
                {
                    "kind": "unrelated",
                    "population": population.name,
                    "fitted": fitted,
                    "audited": audited,
                    "repetitions": repetitions,
                    **tails,
                    "largest": shared.max(),
                    "largest same": same.max(),
                }
            )
    return found


def predict_power(fitted: int, audited: int, shared: int) -> float:
    """Of the test of shared rows, by a normal approximation for continuous scores."""
    level, noise = max(fitted / BUCKETS, 1e-3), noise_distribution(1)
    sizes = np.arange(int(level + 12 * math.sqrt(level) + 20))
    chances = np.convolve(noise, poisson.pmf(sizes, level))[5:-5]
    log = np.log(np.maximum(chances, 1e-300))
    scores = log[:-1] - log[1:]
    weights = chances[1:] / chances[1:].sum()
    mean = weights @ scores
    variance = weights @ np.square(scores - mean)
    rise = weights[:-1] @ (scores[1:] - scores[:-1])
    return float(norm.cdf(shared * rise / math.sqrt(audited * variance) - math.sqrt(2 * NEEDED)))


def recognise(
    sizes: Sequence[tuple[int, int]], repetitions: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """How often rows are recognised of which a share of the smaller side is on both sides."""
    found = []
    for fitted, audited in sizes:
        for share in SHARES:
            common, hits = round(share * min(fitted, audited)), 0
            for _ in range(repetitions):
                rows = rng.random(fitted + audited - common)
                hits += shares_rows(at_hand(rows[:audited]), (release(rows[audited - common :]),))
            found.append(
                {
                    "kind": "recognised",
                    "fitted": fitted,
                    "audited": audited,
                    "share": share,
                    "repetitions": repetitions,
                    "rate": hits / repetitions,
                    "theory": predict_power(fitted, audited, common),
                }
            )
    return found


def recognise_coarse(
    sizes: Sequence[int], repetitions: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """How often the very same rows are recognised where scores are coarse."""
    found = []
    for population in POPULATIONS:
        for n in sizes:
            hits = 0
            for _ in range(repetitions):
                rows = population.draw(n, rng)
                hits += shares_rows(at_hand(rows), (release(rows),))
            found.append(
                {
                    "kind": "same",
                    "population": population.name,
                    "fitted": n,
                    "repetitions": repetitions,
                    "rate": hits / repetitions,
                }
            )
    return found


def attack(draws: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Right guesses of two equally likely sets by their likelihood ratio: the row is in, or it is not."""
    found = []
    for kind, moved in (("left out", 1), ("exchanged for another", 2)):
        right, most = 0, 0.0
        for i in range(draws):
            rows = rng.random(500)
            others = (rows, rows[1:], np.r_[rows[1:], rng.random()])
            sets = [count_buckets(hash_features(x[None])) for x in others]
            sides = [sets[0], sets[moved]]
            truth = i % 2
            seen = Fingerprint(500, sides[truth].copy()).release().counts
            ratio = EPSILON * (np.abs(seen - sides[1]).sum() - np.abs(seen - sides[0]).sum())
            right += (ratio <= 0) == truth if ratio else 0.5
            most = max(most, abs(ratio))
        found.append(
            {
                "kind": "attack",
                "population": kind,
                "repetitions": draws,
                "rate": right / draws,
                "theory": 1 / (1 + math.exp(-moved * EPSILON)),
                "largest": most,
            }
        )
    return found


def table_of(found: Sequence[dict[str, Any]]) -> str:
    by_kind = {kind: [r for r in found if r["kind"] == kind] for kind in ("unrelated", "recognised")}
    return "\n".join(
        [
            *_unrelated_lines(by_kind["unrelated"]),
            *_recognised_lines(by_kind["recognised"]),
            *_coarse_lines([r for r in found if r["kind"] == "same"]),
            *_attack_lines([r for r in found if r["kind"] == "attack"]),
        ]
    )


def _unrelated_lines(found: list[dict[str, Any]]) -> list[str]:
    times = found[0]["repetitions"]
    lines = [
        f"Unrelated samples of one population, {times:,} pairs of each of {len(SIZES)} sizes: how often "
        f"evidence is at least 2, 4 and 6 (at most {', '.join(f'{math.exp(-x):.2%}' for x in LEVELS)} by "
        f"theory), and the largest. Rows are refused from {NEEDED:g}, and from 12 as the very same.\n",
        "| scores | ≥ 2 | ≥ 4 | ≥ 6 | largest | largest, the very same |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["population"] for r in found):
        rows = [r for r in found if r["population"] == name]
        cells = [f"{np.mean([r[f'shared >= {x}'] for r in rows]):.2%}" for x in LEVELS]
        largest, same = (max(r[key] for r in rows) for key in ("largest", "largest same"))
        lines.append(f"| {name} | {' | '.join(cells)} | {largest:.1f} | {same:.1f} |")
    return [*lines, ""]


def _recognised_lines(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"Continuous scores: how often shared rows are recognised, in % of {found[0]['repetitions']:,} "
        "samples (by theory), by the share of the smaller side that is on both.\n",
        "| fitted | audited | " + " | ".join(f"{100 * s:g} % shared" for s in SHARES) + " |",
        "|---|---|" + "---|" * len(SHARES),
    ]
    for fitted, audited in dict.fromkeys((r["fitted"], r["audited"]) for r in found):
        rows = [r for r in found if (r["fitted"], r["audited"]) == (fitted, audited)]
        cells = [f"{100 * r['rate']:.0f} ({100 * r['theory']:.0f})" for r in rows]
        lines.append(f"| {fitted:,} | {audited:,} | {' | '.join(cells)} |")
    return [*lines, ""]


def _coarse_lines(found: list[dict[str, Any]]) -> list[str]:
    sizes = list(dict.fromkeys(r["fitted"] for r in found))
    lines = [
        f"The very same rows, in % of {found[0]['repetitions']:,} samples.\n",
        "| scores | " + " | ".join(f"{n:,} rows" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for name in dict.fromkeys(r["population"] for r in found):
        cells = [f"{100 * r['rate']:.0f}" for r in found if r["population"] == name]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _attack_lines(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"Somebody who knows all other rows and the row itself guesses from the file whether it is in, which "
        f"it is in half of all files; right in % of {found[0]['repetitions']:,} files. Hashes of rows gave "
        "100 %.\n",
        "| the row is otherwise | epsilon | right | at most, by theory |",
        "|---|---|---|---|",
    ]
    for row, epsilon in zip(found, (EPSILON, 2 * EPSILON), strict=True):
        cells = f"{100 * row['rate']:.1f} | {100 * row['theory']:.1f}"
        lines.append(f"| {row['population']} | {epsilon:g} | {cells} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples")
    quick = parser.parse_args()
    fingerprint._SECRET = b"the same noise in every run"
    rng = np.random.default_rng(0)
    sizes = [(n, n) for n in (50, 100, 300, 1000, 10_000, 100_000)]
    sizes += [(10_000, 1000), (100_000, 1000), (1000, 10_000), (10_000, 100_000)]
    pairs, times, coarse, draws = 300, 50, (200, 1000, 10_000), 10_000
    if quick.quick:
        sizes, pairs, times, coarse, draws = [(100, 100), (1000, 1000)], 3, 4, (200,), 100
    found = [
        *compare_unrelated(pairs, rng),
        *recognise(sizes, times, rng),
        *recognise_coarse(coarse, times, rng),
        *attack(draws, rng),
    ]
    save(found, table_of(found), quick.out, "fingerprints")


if __name__ == "__main__":
    main()
