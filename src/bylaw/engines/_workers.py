"""Results from workers, with errors that tasks raised and checksums of the rows that they read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.types

from bylaw._base import Floats
from bylaw.engines._engine import ROUNDING, Task
from bylaw.errors import BylawError, EvidenceError


class Outcome(NamedTuple):
    """The outcome of a task on one partition."""

    partition: int
    rows: int
    result: Any
    error: BylawError | None = None
    sums: Mapping[str, float] = {}  # checksums by column, see `sum_column`


def run_on_worker(task: Task, partition: int, batches: Iterable[Any]) -> Outcome:
    """Run a task, and return an error of bylaw as a value.

    Clusters wrap errors that are raised on a worker in errors of their own, or retry in vain.
    """
    rows, sums = 0, dict[str, float]()

    def count() -> Iterator[Any]:
        nonlocal rows
        for batch in batches:
            rows += len(batch)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                sums[name] = sums.get(name, 0.0) + sum_column(column)
            yield batch

    try:
        result = task(partition, count())
    except BylawError as problem:
        problem.add_place(f"partition {partition}")
        return Outcome(partition, rows, None, problem)
    return Outcome(partition, rows, result, sums=sums)


def sum_column(column: pyarrow.Array) -> float:
    """Return a checksum of a column that does not depend on the order of its values.

    It is the sum of x + x^2 over numbers x, or over the bytes of texts.
    """
    numbers: Any = column.dictionary_decode() if isinstance(column, pyarrow.DictionaryArray) else column
    try:
        if pyarrow.types.is_decimal(numbers.type) or pyarrow.types.is_primitive(numbers.type):
            values: Floats = numbers.cast(pyarrow.float64(), safe=False).fill_null(0.0).to_numpy()
        else:
            texts = numbers.cast(pyarrow.large_binary()).fill_null(b"")
            starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
            content = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
            values = content[starts[0] : starts[-1]].astype(np.float64)
    except pyarrow.ArrowException:
        return 0.0  # the task raises an error for such a type
    return float(np.nansum(values) + np.nansum(values * values))


def receive(outcomes: Iterable[Outcome], counts: dict[Any, float], remedy: str) -> Iterator[Any]:
    """Yield the results of tasks; raise an error of a task, or an error if rows have changed.

    `counts` has the number of rows of each partition and the checksums of its columns; the first pass fills
    it.
    """
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        before = counts.setdefault(outcome.partition, outcome.rows)
        if before != outcome.rows:
            raise EvidenceError(
                f"partition {outcome.partition} had {before:,} rows in the first pass and now has "
                f"{outcome.rows:,}, so nothing was fitted; {remedy}"
            )
        for name, found in outcome.sums.items():
            first = counts.setdefault((outcome.partition, name), found)
            if not math.isclose(first, found, rel_tol=ROUNDING):
                raise EvidenceError(
                    f"the column {name!r} of partition {outcome.partition} has changed since the first pass, "
                    f"so nothing was fitted; {remedy}"
                )
        yield outcome.result
