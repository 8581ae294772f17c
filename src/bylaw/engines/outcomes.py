"""What comes back from a worker: the result of a task or the error that it raised, and the rows it saw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.types

from bylaw._base.typing import Floats
from bylaw.engines.engine import Task
from bylaw.errors import BylawError, EvidenceError

_ROUNDING = 1e-9  # relative, of sums of a column: rows may come in another order


class Outcome(NamedTuple):
    """Of a task on one partition."""

    partition: int
    rows: int
    result: Any
    error: BylawError | None = None
    sums: Mapping[str, float] = {}  # of what each column holds, by which a change is noticed


@dataclass(frozen=True)
class RemoteTask:
    """Runs a task on a worker. Clusters wrap what is raised there into errors of their own, or try again in
    vain; so an error of ours comes back as a value."""

    task: Task

    def __call__(self, partition: int, batches: Iterable[Any]) -> Outcome:
        seen = _CountedBatches(batches)
        try:
            result = self.task(partition, iter(seen))
        except BylawError as problem:
            problem.add_place(f"partition {partition}")
            return Outcome(partition, seen.rows, None, problem)
        return Outcome(partition, seen.rows, result, sums=seen.sums)


@dataclass
class _CountedBatches:
    batches: Iterable[Any]
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.rows += len(batch)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                self.sums[name] = self.sums.get(name, 0.0) + sum_column(column)
            yield batch


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
        return 0.0  # of another type, whose task says so
    return float(np.nansum(values) + np.nansum(values * values))


def receive(outcomes: Iterable[Outcome], counts: dict[Any, float], remedy: str) -> Iterator[Any]:
    """The results, or the first error. `counts` has the rows of each partition and the sums of its columns in
    the walks before, and learns them in the first: where they differ, the rows are not the same any more."""
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
            if not math.isclose(
                counts.setdefault((outcome.partition, name), found), found, rel_tol=_ROUNDING
            ):
                raise EvidenceError(
                    f"the column {name!r} of partition {outcome.partition} has other values than when it was "
                    f"first read: rows changed while they were read, and nothing was fitted. {remedy}"
                )
        yield outcome.result
