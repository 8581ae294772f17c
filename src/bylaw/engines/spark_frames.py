"""Spark DataFrames: tasks run in the Python workers of the executors; decisions are made by Spark's SQL.

The workers need bylaw, NumPy, SciPy, narwhals and pyarrow installed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow
from pyspark import TaskContext
from pyspark.sql.classic.dataframe import DataFrame

from bylaw.engines.engine import Engine, RowMap, Task
from bylaw.engines.outcomes import Outcome, RemoteTask, receive
from bylaw.errors import OptionError
from bylaw.rows.columns import Columns

_SCHEMA = "partition int, outcome binary"
_REMEDY = (
    "Spark computes a DataFrame anew in each walk, and what is random or shuffled may then differ: cache() "
    "it first, or write it to Parquet"
)


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """A DataFrame of a classic session; Spark Connect is refused."""
    if table is not None:
        raise OptionError("table= names a table of a database; of Spark, pass spark.table(...)")
    if not isinstance(source, DataFrame):
        connected = ".connect." in type(source).__module__
        raise OptionError(
            "Spark Connect does not show the partitions of a DataFrame, by which rows are summed: use a "
            "classic session, or write the rows to Parquet and scan the folder"
            if connected
            else f"of Spark, scan() takes a DataFrame, not {type(source).__name__}"
        )
    return SparkFrame(source)


@dataclass(frozen=True)
class SparkFrame(Engine):
    """The partitions of a frame. They must be the same in each walk; their numbers of rows are compared."""

    frame: Any
    counts: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return "the Spark DataFrame"

    @property
    def names(self) -> list[str]:
        return self.frame.columns

    @property
    def n_partitions(self) -> int:
        return self._n_partitions

    @cached_property
    def _n_partitions(self) -> int:
        return self.frame.rdd.getNumPartitions()

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """One Spark job; each partition gives one row, its number and the pickled outcome."""
        chosen = self.frame.select(*map(_quote, columns))
        collected = chosen.mapInArrow(_PartitionTask(RemoteTask(task)), _SCHEMA).collect()
        found = {row.partition: row.outcome for row in collected}
        outcomes = (pickle.loads(found[i]) for i in sorted(found))
        return receive(outcomes, self.counts, _REMEDY)

    def map(self, rows: RowMap) -> Any:
        """A Spark DataFrame; what `rows` would refuse is null there."""
        view = f"bylaw_{uuid.uuid4().hex}"
        self.frame.createOrReplaceTempView(view)
        session = self.frame.sparkSession
        try:
            return session.sql(rows.write_sql("spark", view))
        finally:
            session.catalog.dropTempView(view)  # the frame that was made has its plan


@dataclass(frozen=True)
class _PartitionTask:
    """What Spark calls with the batches of a partition."""

    task: RemoteTask

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        outcome: Outcome = self.task(partition, batches)
        numbers = pyarrow.array([partition], pyarrow.int32())
        found = pyarrow.array([pickle.dumps(outcome)], pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays([numbers, found], ["partition", "outcome"])


def _quote(name: str) -> str:
    """A name that may have dots in it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
