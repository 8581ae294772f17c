"""Ten million rows of Parquet decided by the command line, against copying the same table with pyarrow alone.

Prints a table and writes it to benchmarks/results/decide.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from core import show

RESULTS = Path(__file__).parent / "results" / "decide.md"
CHUNK = 1_000_000
SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("p_no", pyarrow.float64()),
        ("p_yes", pyarrow.float64()),
        ("sex", pyarrow.string()),
    ]
)
COPY = """
import sys
import pyarrow.parquet as parquet
with parquet.ParquetFile(sys.argv[1], pre_buffer=False) as source:
    with parquet.ParquetWriter(sys.argv[2], source.schema_arrow) as target:
        for batch in source.iter_batches(131_072):
            target.write_batch(batch)
"""


def generate(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    with parquet.ParquetWriter(path, SCHEMA) as writer:
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            yes, sex = rng.random(count), np.array(["F", "M"], dtype=object)[rng.integers(2, size=count)]
            columns = {"id": np.arange(start, start + count), "p_no": 1 - yes, "p_yes": yes, "sex": sex}
            writer.write_table(pyarrow.table(columns, schema=SCHEMA), row_group_size=131_072)


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and the peak memory in megabytes of the largest process so far."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def race(folder: Path, rows: int, rounds: int) -> list[tuple[str, str, str]]:
    source, small, policy = (folder / name for name in ("rows.parquet", "small.parquet", "policy.json"))
    generate(source, rows)
    generate(small, min(rows, 50_000))
    bylaw = [sys.executable, "-c", "from bylaw.cli import main; main()"]
    rules = ["--rule", "demographic_parity('sex', tol=0.02)", "--rule", "rejected() <= 0.1"]
    timed([*bylaw, "fit", str(small), *rules, "-o", str(policy)])
    soft, softly = folder / "soft.toml", folder / "soft.json"
    soft.write_text("[solve]\nbeta = 5.0\n")
    timed([*bylaw, "fit", str(small), "--rules", str(soft), *rules, "-o", str(softly)])
    copy = [sys.executable, "-c", COPY, str(source), str(folder / "copy.parquet")]
    decide = [
        *bylaw,
        "decide",
        str(policy),
        str(source),
        "--id-column",
        "id",
        "-o",
        str(folder / "out.parquet"),
    ]
    draw = [str(softly) if part == str(policy) else part for part in decide]
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        copied, _ = timed(copy)
        decided, _ = timed(decide)
        drawn, peak = timed(draw)
        times.append((copied, decided, drawn))
    copied, decided, drawn = (min(column) for column in zip(*times, strict=True))
    return [
        (f"copy {rows:,} rows with pyarrow", f"{copied:.1f} s", ""),
        ("decide them, keyed by id", f"{decided:.1f} s, {decided / copied:.2f} times", "<= 3"),
        ("decide them, every row by a draw (beta 5)", f"{drawn:.1f} s, {drawn / copied:.2f} times", "<= 4"),
        ("peak memory", f"{peak:.0f} MB", "< 500"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        show(race(Path(name), arguments.rows, arguments.rounds), arguments.out)
