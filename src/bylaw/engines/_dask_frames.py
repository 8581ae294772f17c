"""Dask DataFrames, whose partitions are processed on the workers of a cluster or in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas
import pyarrow
from dask.base import compute, get_scheduler
from dask.delayed import delayed

from bylaw.engines._engine import Engine, RowMap, Task
from bylaw.engines._workers import Outcome, receive, run_on_worker
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import BATCH_ROWS, Columns

_TOGETHER = 64  # partitions to compute at a time without a cluster, since their results are in memory
_REMEDY = "persist the frame first, or write it to Parquet and scan that"


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """Return the engine that reads a Dask DataFrame with pandas partitions."""
    if not isinstance(getattr(source, "_meta", None), pandas.DataFrame):
        raise OptionError(
            f"a Dask source must be a DataFrame with pandas partitions, got {type(source).__name__}"
        )
    return DaskFrame(source)


@dataclass(frozen=True)
class DaskFrame(Engine):
    """The partitions of a Dask DataFrame.

    They are computed anew in each pass over the rows, unless the caller keeps them in memory (`persist`).
    """

    frame: Any
    counts: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return "the Dask DataFrame"

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def n_partitions(self) -> int:
        return self.frame.npartitions

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Run a task on the workers; if a worker dies, Dask replaces it and reads its partitions again."""
        # The task is a node of the graph, so that it is sent to each worker only once.
        shared = delayed(task, traverse=False, pure=False)
        run = delayed(_run, pure=False)
        parts = self.frame[list(columns)].to_delayed()
        outcomes = _compute([run(shared, i, part) for i, part in enumerate(parts)])
        try:
            yield from receive(outcomes, self.counts, _REMEDY)
        finally:
            outcomes.close()  # now, not at garbage collection, so that the remaining tasks are not computed

    def map(self, rows: RowMap) -> Any:
        """Return a Dask DataFrame with the new columns, and the same partitions and index."""
        chosen = self.frame[rows.reads]
        meta = _map_part(chosen._meta, rows)
        return chosen.map_partitions(_map_part, rows, meta=meta, align_dataframes=False)


def _compute(tasks: list[Any]) -> Generator[Outcome, None, None]:
    """Compute tasks on the default Dask cluster; without one, compute a few at a time in this process."""
    client = getattr(get_scheduler(), "__self__", None)
    if not hasattr(client, "compute"):
        for first in range(0, len(tasks), _TOGETHER):
            yield from compute(*tasks[first : first + _TOGETHER])
        return
    # All at once, so that common parts of partitions are computed once; results stay on the workers.
    futures = deque(client.compute(tasks))  # type: ignore[union-attr]
    try:
        while futures:
            yield futures[0].result()
            futures.popleft()
    finally:
        for future in futures:
            future.release()


def _run(task: Task, partition: int, rows: pandas.DataFrame) -> Outcome:
    return run_on_worker(task, partition, _read_batches(rows))


def _read_batches(rows: pandas.DataFrame) -> Iterator[pyarrow.RecordBatch]:
    try:
        table = pyarrow.Table.from_pandas(rows, preserve_index=False)
    except pyarrow.ArrowException as problem:
        raise EvidenceError(f"the values of a column must have one type: {problem}") from None
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _map_part(part: pandas.DataFrame, rows: RowMap) -> pandas.DataFrame:
    schema = rows.make_schema(pyarrow.Schema.from_pandas(part, preserve_index=False))
    answers = [rows(batch) for batch in _read_batches(part) if len(batch)]
    found = pyarrow.Table.from_batches(answers, schema).to_pandas()
    return found.set_index(part.index)
