"""Results that come back from workers, with the errors that tasks raised and the rows that they read."""

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
    sums: Mapping[str, float] = {}  # by column, see `sum_column`: they show whether its values changed


def run_on_worker(task: Task, partition: int, batches: Iterable[Any]) -> Outcome:
    """Run a task, and return an error of ours as a value.

    Clusters wrap what is raised on a worker into errors of their own, or try again in vain.
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
    """Return a sum over the values of a column that changes when they do, whatever their order: of numbers x,
    of x + x^2, and of texts, the same of their bytes."""
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
        return 0.0  # the task raises an error about a type like this
    return float(np.nansum(values) + np.nansum(values * values))


def receive(outcomes: Iterable[Outcome], counts: dict[Any, float], remedy: str) -> Iterator[Any]:
    """Yield the results; raise the first error, or one if rows are not those of earlier walks.

    `counts` has the number of rows of each partition and the sums of its columns. The first walk fills it.
    """
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        before = counts.setdefault(outcome.partition, outcome.rows)
        if before != outcome.rows:
            raise EvidenceError(
                f"partition {outcome.partition} had {before:,} rows when they were first read, and now has "
                f"{outcome.rows:,}; nothing was fitted. {remedy}"
            )
        for name, found in outcome.sums.items():
            first = counts.setdefault((outcome.partition, name), found)
            if not math.isclose(first, found, rel_tol=ROUNDING):
                raise EvidenceError(
                    f"the column {name!r} of partition {outcome.partition} has other values than when it was "
                    f"first read: rows changed while they were read, and nothing was fitted. {remedy}"
                )
        yield outcome.result
