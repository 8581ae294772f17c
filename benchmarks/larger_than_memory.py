"""Rows in Parquet files that are never in memory at once, against reading the same columns by pyarrow alone.

Prints a table and writes it to benchmarks/results/larger_than_memory.md, and a figure to docs/images. The
documentation has `--rows 1000000 10000000 100000000`; `--folder` keeps the files between runs.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from bylaw import Columns, Problem, demographic_parity, equalized_odds, error, rejected, scan, solve
from bylaw.engines import TableFiles
from core import show, softmax

RESULTS = Path(__file__).parent / "results" / "larger_than_memory.md"
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "larger_than_memory.png"
PART = 5_000_000  # rows of a file
CLUSTER_ROWS, MACHINES, CORES = 1e10, 100, 8  # of which the table has an estimate
LINK = 125.0  # megabytes a second
CHUNK = 500_000
REGIONS = np.array(["east", "north", "south", "west"], dtype=object)
COLUMNS = Columns([f"p_{k}" for k in range(5)], classes=range(5), groups={"region": "region"})
PROBLEMS = {
    "parity": Problem(error(), [demographic_parity("region", tol=0.01)]),
    "parity + rejection": Problem(error(), [demographic_parity("region", tol=0.01), rejected() <= 0.1]),
    "equalized odds": Problem(error(), [equalized_odds("region", tol=0.02)]),
}


def generate(folder: Path, rows: int) -> None:
    """Five classes and four known groups, in files of five million rows."""
    rng = np.random.default_rng(0)
    labels, groups = rng.normal(size=(6, 5)), rng.normal(size=(6, 4))
    fields = [(name, pyarrow.float64()) for name in COLUMNS.probabilities]
    schema = pyarrow.schema([*fields, ("region", pyarrow.string())])
    for start in range(0, rows, PART):
        path = folder / f"part-{start // PART:04d}.parquet"
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            for first in range(start, min(start + PART, rows), CHUNK):
                x = rng.normal(size=(min(CHUNK, rows - first), 6))
                chances, regions = softmax(0.8 * x @ labels), softmax(0.7 * x @ groups)
                drawn = (rng.random(len(x))[:, None] > regions.cumsum(axis=1)).sum(axis=1).clip(0, 3)
                columns = dict(zip(COLUMNS.probabilities, chances.T.copy(), strict=True))
                table = pyarrow.table({**columns, "region": REGIONS[drawn]}, schema=schema)
                writer.write_table(table, row_group_size=131_072)


def read(folder: Path) -> float:
    """Seconds to read the columns with pyarrow, and do nothing with them."""
    start = time.perf_counter()
    for batch in pyarrow.dataset.dataset(folder).to_batches(columns=COLUMNS.needed, batch_readahead=4):
        del batch
    return time.perf_counter() - start


def fit(folder: Path, name: str) -> dict[str, float]:
    """In this process."""
    rows, start = scan(folder, COLUMNS), time.perf_counter()
    policy = solve(PROBLEMS[name], rows)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "passes": policy.solution.passes, "megabytes": measure_memory()}


def measure_memory() -> float:
    """The peaks of this process and of those that it has started, added up, as Linux tells them."""
    here, peaks = Path("/proc/self"), 0
    children = [path.read_text().split() for path in here.glob("task/*/children")]
    for process in ["self", *(child for several in children for child in several)]:
        lines = (here.parent / process / "status").read_text().splitlines()
        peaks += next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
    return peaks / 1024


def fit_apart(folder: Path, name: str) -> dict[str, float]:
    """In a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--fit", name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_sums(folder: Path) -> tuple[float, float]:
    """Kilobytes that a partition sends back in the first walk and in each further one."""
    sizes: list[list[int]] = []

    class Weighed(TableFiles):
        def run(self, task, columns):
            sizes.append([])
            for result in super().run(task, columns):
                sizes[-1].append(len(pickle.dumps(result)))
                yield result

    rows = scan(folder, COLUMNS)
    engine = Weighed(rows.engine.title, rows.engine.files, rows.engine.states)
    rows = replace(rows, engine=engine)
    solve(PROBLEMS["parity"], rows)
    return np.mean(sizes[0]) / 1024, np.mean(sizes[-1]) / 1024


class Measured(NamedTuple):
    """One problem on one table."""

    name: str
    rows: int
    gigabytes: float  # of Parquet
    alone: float  # seconds of reading
    seconds: float
    passes: int
    megabytes: float


def measure(folder: Path, rounds: int) -> list[Measured]:
    files = sorted(folder.glob("*.parquet"))
    rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    size = sum(file.stat().st_size for file in files) / 1e9
    read(folder)  # into the cache of files
    found, alone = {}, []
    for name in PROBLEMS:
        runs = []
        for _ in range(rounds):
            alone.append(read(folder))
            runs.append(fit_apart(folder, name))
        found[name] = min(runs, key=lambda one: one["seconds"])
    return [Measured(name, rows, size, min(alone), **best) for name, best in found.items()]


def tabulate(found: list[Measured], folder: Path) -> list[tuple[str, str, str]]:
    lines = []
    for one in found:
        unit = (f"reading {one.rows:,} rows with pyarrow, {one.gigabytes:.2g} GB", f"{one.alone:.2f} s", "")
        lines += [unit] if unit not in lines else []
        what, target = f"solve, {one.name}, {one.rows:,} rows", "<= 6" if one.rows >= 10**7 else ""
        lines.append((what, f"{one.seconds / one.alone:.1f} times reading ({one.seconds:.1f} s)", target))
        lines.append((f"{what}: passes over all rows", f"{one.passes}", "<= 6"))
        lines.append((f"{what}: peak memory of all processes", f"{one.megabytes:.0f} MB", "< 1500"))
    first, later = measure_sums(folder)
    lines.append(("what a partition of a million rows sends back, first pass", f"{first:,.0f} kB", ""))
    lines.append(("the same, second pass", f"{later:,.0f} kB", ""))
    return [
        *lines,
        *expect(max((one for one in found if one.name == "parity"), key=lambda one: one.rows), first, later),
    ]


def expect(one: Measured, first: float, later: float) -> list[tuple[str, str, str]]:
    """On a cluster, from what one process takes for a row and a pass, and from what comes back at most: four
    times the sample, and the near rows of this table."""
    sums = (4 * first + later * min(one.rows / 1e6, 25)) / 1e3  # megabytes, of both passes
    walk = CLUSTER_ROWS * one.seconds / (one.rows * one.passes) / (MACHINES * CORES)
    what = f"computed: {one.name}, {CLUSTER_ROWS:.0e} rows on {MACHINES} machines of {CORES} cores"
    return [
        (f"{what}, a pass", f"{walk:.0f} s", ""),
        (f"{what}, sums of all passes to the client", f"{sums:.0f} MB, {sums / LINK:.0f} s at 1 Gbit/s", ""),
    ]


def draw(found: list[Measured], path: Path) -> None:
    """Seconds against rows, beside reading alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    rows = sorted({one.rows for one in found})
    for name in PROBLEMS:
        seconds = [one.seconds for one in found if one.name == name]
        axes.loglog(rows, seconds, marker="o", label=f"solve, {name}")
    alone = [min(one.alone for one in found if one.rows == count) for count in rows]
    axes.loglog(rows, alone, marker="s", color="gray", label="reading the columns, pyarrow alone")
    axes.loglog(rows, 6 * np.array(alone), linestyle="--", color="gray", label="six times as long")
    axes.set(xlabel="rows of five classes and four groups", ylabel="seconds, two cores")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, help="where the files are kept between runs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fit", choices=PROBLEMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(fit(arguments.folder, arguments.fit)))
        return
    with tempfile.TemporaryDirectory() as name:
        base, found = arguments.folder or Path(name), []
        for rows in arguments.rows:
            folder = base / f"rows-{rows}"
            if not folder.exists():
                folder.mkdir(parents=True)
                generate(folder, rows)
            found += measure(folder, arguments.rounds)
            print(*found[-len(PROBLEMS) :], sep="\n", file=sys.stderr, flush=True)
        show(tabulate(found, base / f"rows-{arguments.rows[0]}"), RESULTS)
    draw(found, FIGURE)


if __name__ == "__main__":
    main()
