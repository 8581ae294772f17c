"""A custom engine: a pool of processes that read Parquet files. Ray or Slurm can be used in the same way."""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet

from bylaw import Columns, Problem, demographic_parity, error, rejected, solve
from bylaw.engines import Scan
from bylaw.engines._engine import Engine


def run_on_file(task, partition, path, columns):
    table = pyarrow.parquet.read_table(path, columns=list(columns))
    return task(partition, iter(table.to_batches()))


@dataclass(frozen=True)
class ProcessPool(Engine):
    paths: tuple[Path, ...]

    @property
    def names(self):
        return pyarrow.parquet.read_schema(self.paths[0]).names

    @property
    def n_partitions(self):
        return len(self.paths)

    def run(self, task, columns):
        with ProcessPoolExecutor(2) as pool:
            jobs = [pool.submit(run_on_file, task, i, path, columns) for i, path in enumerate(self.paths)]
            yield from (job.result() for job in jobs)  # in the order of the partitions


def write_files(folder: Path) -> tuple[Path, ...]:
    """Write the scores of 30,000 cases to three files."""
    rng, paths = np.random.default_rng(0), []
    for i in range(3):
        score, sex = rng.beta(2, 3, 10_000), rng.choice(["F", "M"], 10_000)
        score = np.where(sex == "M", score**0.8, score)
        paths.append(folder / f"{i}.parquet")
        pandas.DataFrame({"no": 1 - score, "yes": score, "sex": sex}).to_parquet(paths[-1])
    return tuple(paths)


def main() -> None:
    problem = Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1])
    columns = Columns(["no", "yes"], groups={"sex": "sex"})
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        elsewhere = solve(problem, Scan(ProcessPool(paths), columns))
        here = solve(problem, columns.evidence(pandas.concat(map(pandas.read_parquet, paths))))
    print(f"in processes {elsewhere.solution.value:.12f}, in memory {here.solution.value:.12f}")


if __name__ == "__main__":
    main()
