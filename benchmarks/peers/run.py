"""A race against peers: the same rows, one run; time and memory of the fit, quality on other rows.

python -m benchmarks.peers.run [--quick] [--out DIR] [--data-dir DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers import report, sets, tables
from benchmarks.peers.parity import CONTESTS, DRAWS
from benchmarks.peers.rows import MOST_FEATURES
from experiments.data import DATA, ROOT, save

LIMIT = 50.0  # seconds of one fit
GIBIBYTES = 12.0  # of one contestant
ROUNDS = 5  # at most
PACKAGES = ("scipy", "cvxpy", "fairlearn", "error-parity", "oxonfair", "mapie", "puncc")
SMOKE = "Few rows in one process, imports counted: only whether it runs."
Job = tuple[str, str, int]


def parity_jobs(sizes: tuple[int, ...]) -> list[Job]:
    """By contest and contestant, from few rows to many."""
    return [
        (key, name, size)
        for key, contest in CONTESTS.items()
        for name in contest.contestants
        for size in sizes
    ]


def set_jobs() -> list[Job]:
    return [(key, name, 0) for key in sets.CONTESTS for name in sets.CONTESTANTS]


def processed(jobs: list[Job], folder: Path, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """What these jobs, in one fresh process, have to say; the one that ends it is told by how it ended."""
    limits = map(str, (LIMIT, GIBIBYTES, rounds))
    command = [sys.executable, "-m", "benchmarks.peers.measure", str(folder), *limits]
    run = subprocess.run(
        command, input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode:
        slow = run.returncode == -signal.SIGALRM
        found.append({"failed": f"more than {LIMIT:.0f} s" if slow else "crashed"})
    return found


def raced(folder: Path, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """A process for each measurement, but none where the last one says that it would take too long."""
    before: dict[tuple[str, str], tuple[int, float]] = {}  # rows, and seconds if it went well
    for contest, name, size in parity_jobs(sizes) + set_jobs():
        found: dict[str, Any] = {"failed": "not run"}
        fewer, seconds = before.get((contest, name), (1, 0.0))
        trains = contest in CONTESTS and name in CONTESTS[contest].training
        if seconds * size / fewer <= LIMIT and not (trains and size > MOST_FEATURES):
            print(f"{contest}, {name}, {size or 'all'} rows", file=sys.stderr, flush=True)
            (found,) = processed([(contest, name, size)], folder)
        before[contest, name] = (size, found.get("seconds", float("inf")))
        yield {"contest": contest, "contestant": name, "rows": size, **found}


def smoked(folder: Path, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Everything in one process: whether it runs, not how fast."""
    jobs = parity_jobs(sizes) + set_jobs()
    for (contest, name, size), found in zip(jobs, processed(jobs, folder, rounds=1), strict=True):
        yield {"contest": contest, "contestant": name, "rows": size, **found}


def how_measured(seeds: int) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"Seconds and peak memory of the fit alone, in a process of its own; imports, the rows themselves "
        f"and a first small fit are not counted; the best of up to {ROUNDS} rounds; in brackets, as a "
        f"multiple of the seconds of bylaw, or of bylaw with its models trained where the peer trains. "
        f'At most {LIMIT:.0f} s and {GIBIBYTES:.0f} GiB each; "not run" '
        f"where fewer rows already said that it would take longer, or where it would train on more than "
        f"{MOST_FEATURES:,} rows. Error, and the widest gap between groups in points, on rows that nobody "
        f"fitted on, with the randomness of decisions integrated out (error-parity only draws: the mean of "
        f"{DRAWS} draws). Sets: means over {seeds} splits into halves for calibration and test, the "
        f"sets of APS and RAPS drawn once each; seconds for {len(sets.LEVELS)} levels, with the sets of the "
        f"test rows; the size at equal coverage is read off between these levels. "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, help="folder of the tables")
    parser.add_argument("--quick", action="store_true", help="few rows, one process: only whether it runs")
    arguments = parser.parse_args()
    out = arguments.out or ROOT / "benchmarks" / "results"
    images = arguments.out or ROOT / "docs" / "images"
    sizes, seeds = ((800,), 1) if arguments.quick else ((10_000, 100_000, 1_000_000), 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables.prepare(folder, arguments.data_dir, sizes, arguments.quick)
        sets.prepare(folder, arguments.data_dir, seeds, arguments.quick)
        found = list((smoked if arguments.quick else raced)(folder, sizes))
    how = SMOKE if arguments.quick else how_measured(seeds)
    report.draw(found, images / "peers.png")
    save(found, report.text_of(found, sizes, how), out, "peers")


if __name__ == "__main__":
    main()
