"""Polars LazyFrames, whose query runs in Polars' streaming engine and returns rows in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import polars
import polars.selectors
import pyarrow

from bylaw.engines._engine import Engine, RowMap, Task
from bylaw.engines._workers import Outcome, receive, run_on_worker
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import Columns

_BATCH_ROWS = 2**17
_PARTITION_BATCHES = 8
_REMEDY = "write the rows to Parquet and scan that"


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """Return the engine that reads a Polars LazyFrame."""
    if not isinstance(source, polars.LazyFrame):
        raise OptionError(
            f"a Polars source must be a LazyFrame, got {type(source).__name__}; pass rows in memory as "
            "Evidence: columns.evidence(frame)"
        )
    return PolarsFrame(source)


@dataclass(frozen=True)
class PolarsFrame(Engine):
    """The rows of a Polars query in their order, with about a million per partition.

    The query runs anew in each pass, and once more to count its rows.
    """

    frame: polars.LazyFrame
    counts: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return "the LazyFrame"

    @property
    def names(self) -> list[str]:
        return self.frame.collect_schema().names()

    @cached_property
    def n_rows(self) -> int:  # type: ignore[override]
        return self.frame.select(polars.len()).collect(engine="streaming").item()

    @property
    def n_partitions(self) -> int:
        return -(-self.n_rows // (_BATCH_ROWS * _PARTITION_BATCHES))

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Run a task in this process, on one partition after the other, while Polars reads ahead."""
        try:
            yield from receive(self._run(task, columns), self.counts, _REMEDY)
        except polars.exceptions.PolarsError as problem:
            raise EvidenceError(
                f"the query failed: {problem}. Run it alone; if its files changed while they were read, "
                f"start again, or {_REMEDY}"
            ) from None

    def _run(self, task: Task, columns: Sequence[str]) -> Iterator[Outcome]:
        # In order and in batches of one size, so that sums are reproduced exactly.
        frames = self._select(columns).collect_batches(
            chunk_size=_BATCH_ROWS, maintain_order=True, lazy=True, engine="streaming"
        )
        for i in range(self.n_partitions):
            yield run_on_worker(task, i, _as_batches(islice(frames, _PARTITION_BATCHES)))
        if next(frames, None) is not None:
            raise EvidenceError(f"the query had {self.n_rows:,} rows at first and now has more; {_REMEDY}")

    def map(self, rows: RowMap) -> polars.LazyFrame:
        """Return a LazyFrame with the new columns, which can be collected by the streaming engine."""

        def answer(frame: polars.DataFrame) -> polars.DataFrame:
            schema = rows.make_schema(frame.clear().to_arrow().schema)
            answers = [rows(batch) for batch in _as_batches([frame]) if len(batch)]
            found = polars.from_arrow(pyarrow.Table.from_batches(answers, schema))
            assert isinstance(found, polars.DataFrame)
            return found

        chosen = self._select(rows.reads)
        schema = answer(polars.DataFrame(schema=chosen.collect_schema())).schema
        return chosen.map_batches(answer, schema=schema, streamable=True)

    def _select(self, columns: Sequence[str]) -> polars.LazyFrame:
        return self.frame.select(polars.selectors.by_name(*columns))


def _as_batches(frames: Iterable[polars.DataFrame]) -> Iterator[pyarrow.RecordBatch]:
    for frame in frames:
        yield from frame.rechunk().to_arrow().to_batches()
