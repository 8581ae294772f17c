"""What people have today to watch a rule in production: false alarms, and days until a breach is noticed.

Every contestant watches the same simulated rows; those whose package is not installed are left out, and the
table says so. `make experiment NAME=monitor-peers` installs them in an environment of their own.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Collection
from importlib import import_module
from importlib.metadata import version
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import save
from experiments.monitoring.contestants import CONTESTANTS, Contestant
from experiments.monitoring.streams import BOUND, REFERENCE_DAYS, REFERENCE_GAP, ROWS, make_stream

HERE = Path(__file__).parent
SHARES = {"half of the rows": 0.5, "5 % of the rows": 0.05}  # of group b
MONTHS, YEAR = 60, 365
CHANGE, LATER = 60, 120  # days before a change, and after it
FEW = 5  # no quantiles of fewer streams
PROJECTS = {"glide": "glide-py"}  # where a package's project has another name


class Scenario(NamedTuple):
    share: float
    gap: float  # of all days or, after a change, of the later ones
    change: bool

    @property
    def gaps(self) -> list[float]:
        return [REFERENCE_GAP] * CHANGE + [self.gap] * LATER if self.change else [self.gap] * YEAR


SCENARIOS = [
    Scenario(share, gap, change)
    for share in SHARES.values()
    for gap, change in ((BOUND, False), (REFERENCE_GAP, False), (0.15, True), (0.1, True))
]


class Case(NamedTuple):
    scenario: Scenario
    seed: int
    contestants: tuple[int, ...]  # numbers in CONTESTANTS


def measure(case: Case) -> list[dict[str, Any]]:
    """The first alarm of each contestant on one stream."""
    found = []
    stream = make_stream(case.scenario.gaps, case.scenario.share, case.seed)
    for number in case.contestants:
        contestant = CONTESTANTS[number]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other libraries
            if contestant.package:
                import_module(contestant.package)
            start = time.perf_counter()
            day = contestant.watch(stream)
        seconds = round(time.perf_counter() - start, 4)
        row = {"contestant": contestant.name, **case.scenario._asdict(), "seed": case.seed}
        found.append({**row, "first_alarm": -1 if day is None else day, "seconds": seconds})
    return found


def cases(quick: bool, done: Collection[str] = ()) -> list[Case]:
    """Every scenario with every seed, for those contestants that watch so many; the slow ones come first.
    Those that are `done` are left out."""
    there = [
        number
        for number, contestant in enumerate(CONTESTANTS)
        if contestant.importable and contestant.name not in done
    ]
    runs = {
        number: min(CONTESTANTS[number].runs, 2) if quick else CONTESTANTS[number].runs for number in there
    }
    return [
        Case(scenario, seed, watching)
        for seed in range(max(runs.values()))
        for watching in [tuple(number for number in there if seed < runs[number])]
        for scenario in SCENARIOS
    ]


def percent(alarms: pandas.Series) -> str:
    return f"{100 * alarms.mean():.0f}"


def false_alarms(found: pandas.DataFrame) -> list[str]:
    """The share of streams with an alarm within two months and within a year."""
    return [percent((found.first_alarm >= 0) & (found.first_alarm < days)) for days in (MONTHS, YEAR)]


def delays(found: pandas.DataFrame) -> list[str]:
    """The share that alarmed before the change, and of the others' days until the alarm two quantiles."""
    early = (found.first_alarm >= 0) & (found.first_alarm < CHANGE)
    days = found.first_alarm[~early] - CHANGE + 1  # 1: at the end of the first day with the new gap
    days = days.astype(float).where(days > 0, np.inf)
    if len(days) < FEW:
        return [percent(early), "–", "–"]
    quantiles = np.quantile(days, [0.5, 0.9], method="inverted_cdf")
    return [percent(early), *(f"{day:.0f}" if np.isfinite(day) else f"> {LATER}" for day in quantiles)]


def line_of(contestant: Contestant, found: pandas.DataFrame) -> str:
    cells = [
        contestant.name,
        contestant.asks,
        f"{len(found) // found[['gap', 'change']].drop_duplicates().shape[0]:,}",
    ]
    for gap, change in ((BOUND, False), (REFERENCE_GAP, False), (0.15, True), (0.1, True)):
        part = found[(found.gap == gap) & (found.change == change)]
        cells += delays(part) if change else false_alarms(part)
    return "| " + " | ".join(cells) + " |"


INTRODUCTION = f"""\
{ROWS} decisions a day about two groups, 30 % approved; the rule: P(approve | a) - P(approve | b) <= {BOUND}.
Before each stream all have seen {REFERENCE_DAYS} days with a gap of {REFERENCE_GAP}. The same rows for all.

False alarms: % of streams with at least one alarm within {MONTHS} and within {YEAR} days, with the gap at the
bound and at {REFERENCE_GAP}. Delay: {CHANGE} days at {REFERENCE_GAP}, then {LATER} days at 0.15 or at 0.10:
the % that alarmed before the change and, for the other streams, the median and the 90 % quantile of the days
from the change to the first alarm (1: at the end of the first day), unless fewer than {FEW} are left.

Who asks for the "rule" tests the gap against {BOUND}; who asks for "change" compares with the reference, so
that its alarms at the bound are of a change that took place, from {REFERENCE_GAP} to {BOUND}, though the rule
is kept.
"""
COLUMNS = ["", "asks for", "streams"]
COLUMNS += [
    f"at {BOUND}: {MONTHS} days",
    f"{YEAR} days",
    f"at {REFERENCE_GAP}: {MONTHS} days",
    f"{YEAR} days",
]
COLUMNS += ["to 0.15: before", "median", "90 %", "to 0.10: before", "median", "90 %"]
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


def packages() -> str:
    """The versions of what was compared, and what is missing."""
    names = list(dict.fromkeys(contestant.package for contestant in CONTESTANTS if contestant.package))
    absent = {contestant.package for contestant in CONTESTANTS if not contestant.importable}
    there = [PROJECTS.get(name, name) for name in names if name not in absent]
    shown = [f"{name} {version(name)}" for name in [*there, "numpy", "pandas"]]
    text = f"Python {platform.python_version()}, {', '.join(shown)}."
    missing = ", ".join(PROJECTS.get(name, name) for name in names if name in absent)
    return text + (f" Not installed, and left out: {missing}." if missing else "")


def table_of(tallied: list[dict[str, Any]]) -> str:
    """Of a tally, with a row for each stream again."""
    counted = pandas.DataFrame(tallied)
    rows = counted.loc[counted.index.repeat(counted.streams)]
    text = INTRODUCTION
    for title, share in SHARES.items():
        text += f"\nGroup b is {title}.\n\n{HEADER}"
        for contestant in CONTESTANTS:
            part = rows[(rows.contestant == contestant.name) & (rows.share == share)]
            text += line_of(contestant, part) + "\n" if len(part) else ""
    return f"{text}\n{packages()}\n"


def tally(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many streams had their first alarm on which day (-1: never); every stream would be megabytes."""
    days = ["contestant", *Scenario._fields, "first_alarm"]
    counted = pandas.DataFrame(found).groupby(days, sort=False).agg(streams=("seed", "size")).reset_index()
    return counted.sort_values(days).to_dict("records")


def times_of(found: list[dict[str, Any]]) -> str:
    """Seconds a stream took on average, until its first alarm where a contestant stops there."""
    means = pandas.DataFrame(found).groupby("contestant", sort=False).seconds.mean()
    return "".join(f"{name}: {seconds:.3f} s a stream\n" for name, seconds in means.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="two streams of each kind")
    parser.add_argument(
        "--add",
        action="store_true",
        help="only who is not in the saved tally yet; streams depend on seeds alone",
    )
    arguments = parser.parse_args()
    saved = arguments.out / "peers.csv"
    before = pandas.read_csv(saved).to_dict("records") if arguments.add else []
    names = {row["contestant"] for row in before}
    with Pool() as pool:
        found = [row for rows in pool.imap(measure, cases(arguments.quick, names)) for row in rows]
    tallied = [*before, *tally(found)]
    save(tallied, table_of(tallied), arguments.out, "peers")
    print(times_of(found), end="")


if __name__ == "__main__":
    main()
