"""Spark DataFrames: executors run tasks in Python workers, and Spark SQL computes decisions.

The workers need bylaw, NumPy, SciPy, narwhals and pyarrow installed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow
from pyspark import TaskContext
from pyspark.sql.classic.dataframe import DataFrame

from bylaw.engines._engine import Engine, RowMap, Task
from bylaw.engines._workers import receive, run_on_worker
from bylaw.errors import OptionError
from bylaw.rows import Columns

_REMEDY = (
    "Spark computes a DataFrame anew in each pass, and random or shuffled rows may differ: cache() it first, "
    "or write it to Parquet"
)


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """Return the engine that reads a Spark DataFrame; raise an error for one of Spark Connect."""
    if not isinstance(source, DataFrame):
        connected = ".connect." in type(source).__module__
        raise OptionError(
            "a Spark source must be a DataFrame of a classic session, got one of Spark Connect, which has no "
            "access to partitions; or write the rows to Parquet and scan the folder"
            if connected
            else f"a Spark source must be a DataFrame, got {type(source).__name__}"
        )
    return SparkFrame(source)


@dataclass(frozen=True)
class SparkFrame(Engine):
    """The partitions of a Spark DataFrame.

    They must be the same in each pass, so their numbers of rows and checksums are compared.
    """

    frame: Any
    counts: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return "the Spark DataFrame"

    @property
    def names(self) -> list[str]:
        return self.frame.columns

    @property
    def n_partitions(self) -> int:
        return self.frame.rdd.getNumPartitions()

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Run a task as one Spark job; its result rows are a partition's number and pickled outcome."""
        quoted = [f"`{name.replace('`', '``')}`" for name in columns]  # names may have dots
        found = (
            self.frame.select(*quoted)
            .mapInArrow(partial(_run, task), "partition int, outcome binary")
            .collect()
        )
        outcomes = (pickle.loads(row.outcome) for row in sorted(found, key=lambda row: row.partition))
        return receive(outcomes, self.counts, _REMEDY)

    def map(self, rows: RowMap) -> Any:
        """Return a Spark DataFrame with the new columns, which are null on invalid rows."""
        view = f"bylaw_{uuid.uuid4().hex}"
        self.frame.createOrReplaceTempView(view)
        session = self.frame.sparkSession
        try:
            return session.sql(rows.write_sql("spark", view))
        finally:
            session.catalog.dropTempView(view)  # the returned frame has its plan


def _run(task: Task, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Run a task on the batches of a partition, in the form that Spark's mapInArrow needs."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    outcome = run_on_worker(task, partition, batches)
    yield pyarrow.RecordBatch.from_pydict(
        {"partition": pyarrow.array([partition], pyarrow.int32()), "outcome": [pickle.dumps(outcome)]}
    )
