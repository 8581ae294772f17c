"""Rows in Parquet files that are never in memory at once, against reading the same columns by pyarrow alone.

Prints a table and writes it to benchmarks/results/larger_than_memory.md. `--rows 100_000_000` is the case of
the documentation, `--folder` keeps the files between runs.
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

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from bylaw import Columns, Problem, demographic_parity, equalized_odds, error, rejected, scan, solve
from bylaw.backends.files import TableFiles
from core import show, softmax

RESULTS = Path(__file__).parent / "results" / "larger_than_memory.md"
PART = 5_000_000  # rows of a file
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
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else ["VmHWM: 0"]
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return {"seconds": seconds, "passes": policy.solution.passes, "megabytes": peak / 1024}


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


def measure(folder: Path, rounds: int) -> list[tuple[str, str, str]]:
    files = sorted(folder.glob("*.parquet"))
    rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    size = sum(file.stat().st_size for file in files) / 1e9
    read(folder)  # into the cache of files
    lines, alone = [], []
    for name in PROBLEMS:
        found = []
        for _ in range(rounds):
            alone.append(read(folder))
            found.append(fit_apart(folder, name))
        best = min(found, key=lambda one: one["seconds"])
        ratio = best["seconds"] / min(alone)
        what = f"solve, {name}, {rows:,} rows x 5 classes x 4 groups"
        lines.append((what, f"{ratio:.1f} times ({best['seconds']:.1f} s)", "<= 6"))
        lines.append((f"its passes over all rows, {name}", f"{best['passes']}", "<= 6"))
        lines.append((f"its peak memory, {name}", f"{best['megabytes']:.0f} MB", "< 1500"))
    first, later = measure_sums(files[0])
    lines.append(("what a partition of a million rows sends back, first pass", f"{first:,.0f} kB", ""))
    lines.append(("the same, second pass", f"{later:,.0f} kB", ""))
    unit = f"the unit: reading the columns with pyarrow, {size:.1f} GB of Parquet"
    return [(unit, f"{min(alone):.1f} s", ""), *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fit", choices=PROBLEMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(fit(arguments.folder, arguments.fit)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(exist_ok=True)
        if not any(folder.iterdir()):
            generate(folder, arguments.rows)
        show(measure(folder, arguments.rounds), RESULTS)


if __name__ == "__main__":
    main()
