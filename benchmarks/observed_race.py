"""Rules as observed for two classes and two known groups, beside error-parity and OxonFair: processor time.

    python -m benchmarks.observed_race [--quick] [--data-dir DIR] [--out FILE]

Contestants are those of the race of peers, here in one process and in turns, from arrays to a fitted policy.
Beside the time stand the error and the widest gap between groups on other rows, so that nobody is fast by
being wrong. Prints a table and writes it to benchmarks/results/observed_race.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.core import seconds, show
from benchmarks.peers.parity import CONTESTS, OURS, Contest
from benchmarks.peers.rows import Rows
from benchmarks.peers.tables import adult_rows, drawn
from experiments.data import DATA

RESULTS = Path(__file__).parent / "results" / "observed_race.md"
SIZES = (3000, 10_000, 50_000, 1_000_000)
FEW_ROWS = 100_000  # up to which there are more rounds
PEERS = ("error-parity", "OxonFair")
Line = tuple[str, str, str]


def race(contest: Contest, rows: Rows, test: Rows, rounds: int) -> dict[str, tuple[float, str]]:
    """Seconds of each contestant's fit, and how good it is on other rows."""
    fits = {name: partial(contest.contestants[name], rows, contest.rule) for name in (OURS, *PEERS)}
    judged = {name: contest.judged(fit()(test), test) for name, fit in fits.items()}  # also a warm start
    times = seconds(*fits.values(), rounds=rounds, clock=time.process_time)
    return {
        name: (
            taken,
            f"error {100 * judged[name]['error']:.2f} %, gap {100 * judged[name]['gap']:.1f} points",
        )
        for name, taken in zip(fits, times, strict=True)
    }


def describe(contest: str, n: int, found: dict[str, tuple[float, str]]) -> Iterator[Line]:
    """One line per peer: the time of bylaw as a multiple of the peer's."""
    ours, quality = found[OURS]
    for peer in PEERS:
        theirs, their_quality = found[peer]
        yield (
            f"{contest} as observed, {n:,} rows, {OURS} against {peer}",
            f"{ours / theirs:.2f} times ({1e3 * ours:.1f} ms, {quality}; against {1e3 * theirs:.1f} ms, "
            f"{their_quality})",
            find_target(contest, n, peer),
        )


def find_target(contest: str, n: int, peer: str) -> str:
    """At a million rows the rule that needs labels is the harder one; below, OxonFair is the fastest peer."""
    many = n > FEW_ROWS
    return ("< 1" if contest == "odds" else "") if many else ("<= 1" if peer == "OxonFair" else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--quick", action="store_true", help="few rows: only whether it runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # peers'
    pool, test = adult_rows(arguments.data_dir, arguments.quick)["adult"]
    lines = list[Line]()
    for name in ("parity", "odds"):
        for n in (800,) if arguments.quick else arguments.sizes:
            found = race(CONTESTS[name], drawn(pool, n), test, rounds=15 if n <= FEW_ROWS else 4)
            lines += describe(name, n, found)
    show(lines, None if arguments.quick else arguments.out)


if __name__ == "__main__":
    main()
