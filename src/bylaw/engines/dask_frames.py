"""Dask DataFrames: tasks run where the partitions are, on the workers of a cluster or in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas
import pyarrow
from dask.base import compute, get_scheduler
from dask.delayed import delayed

from bylaw.engines.engine import Engine, RowMap, Task
from bylaw.engines.outcomes import Outcome, RemoteTask, receive
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows.columns import Columns

_BATCH_ROWS = 2**17
_TOGETHER = 64  # partitions that a scheduler without a cluster gets at a time: their results are in memory
_REMEDY = "Persist the frame first, or write it to Parquet and scan that"


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """A Dask DataFrame of pandas partitions."""
    if table is not None:
        raise OptionError("table= names a table of a database; a Dask DataFrame needs none")
    if not isinstance(getattr(source, "_meta", None), pandas.DataFrame):
        raise OptionError(
            f"of Dask, scan() takes a DataFrame whose partitions are of pandas, not {type(source).__name__}"
        )
    return DaskFrame(source)


@dataclass(frozen=True)
class DaskFrame(Engine):
    """The partitions of a frame. Whether they are computed in each walk or kept in the memory of the workers
    (`persist`) is the caller's choice."""

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
        """Rows stay on the workers; a worker that dies is replaced by Dask, and its partitions are walked
        again."""
        # A node of its own in the graph, so that a task goes to each worker once, and as it is.
        shared = delayed(RemoteTask(task), traverse=False, pure=False)
        run = delayed(_run, pure=False)
        parts = self.frame[list(columns)].to_delayed()
        tasks = [run(shared, i, part) for i, part in enumerate(parts)]
        client = _find_client()
        outcomes = _compute_here(tasks) if client is None else _compute_on_cluster(client, tasks)
        try:
            yield from receive(outcomes, self.counts, _REMEDY)
        finally:
            outcomes.close()  # now, and not when the garbage is collected: what is left need not be computed

    def map(self, rows: RowMap) -> Any:
        """A Dask DataFrame with the same partitions and index."""
        chosen = self.frame[rows.reads]
        meta = _map_part(chosen._meta, rows)
        return chosen.map_partitions(_map_part, rows, meta=meta, align_dataframes=False)


def _find_client() -> Any:
    """The client of a cluster, where Dask would compute on one."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "compute") else None


def _compute_on_cluster(client: Any, tasks: list[Any]) -> Generator[Outcome, None, None]:
    """All at once, so that what partitions have in common is computed once; results wait on the workers."""
    futures = deque(client.compute(tasks))
    try:
        while futures:
            yield futures[0].result()
            futures.popleft()
    finally:
        for future in futures:
            future.release()


def _compute_here(tasks: list[Any]) -> Generator[Outcome, None, None]:
    for first in range(0, len(tasks), _TOGETHER):
        yield from compute(*tasks[first : first + _TOGETHER])


def _run(task: RemoteTask, partition: int, rows: pandas.DataFrame) -> Outcome:
    return task(partition, _read_batches(rows))


def _read_batches(rows: pandas.DataFrame) -> Iterator[pyarrow.RecordBatch]:
    try:
        table = pyarrow.Table.from_pandas(rows, preserve_index=False)
    except pyarrow.ArrowException as problem:
        raise EvidenceError(f"a column mixes types of values: {problem}") from None
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _map_part(part: pandas.DataFrame, rows: RowMap) -> pandas.DataFrame:
    schema = rows.make_schema(pyarrow.Schema.from_pandas(part, preserve_index=False))
    answers = [rows(batch) for batch in _read_batches(part) if len(batch)]
    found = pyarrow.Table.from_batches(answers, schema).to_pandas()
    return found.set_index(part.index)
