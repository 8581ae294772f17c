"""What comes back from a worker: the result of a task or the error that it raised, and the rows it saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from bylaw.backends.engine import Task
from bylaw.errors import BylawError, EvidenceError


class Outcome(NamedTuple):
    """Of a task on one partition."""

    partition: int
    rows: int
    result: Any
    error: BylawError | None = None


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
        return Outcome(partition, seen.rows, result)


@dataclass
class _CountedBatches:
    batches: Iterable[Any]
    rows: int = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.rows += len(batch)
            yield batch


def receive(outcomes: Iterable[Outcome], counts: dict[int, int], remedy: str) -> Iterator[Any]:
    """The results, or the first error. `counts` has the rows of each partition in the walks before, and
    learns them in the first: where they differ, the rows are not the same any more."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        before = counts.setdefault(outcome.partition, outcome.rows)
        if before != outcome.rows:
            raise EvidenceError(
                f"partition {outcome.partition} had {before:,} rows when they were first read, and now has "
                f"{outcome.rows:,}; nothing was fitted. {remedy}"
            )
        yield outcome.result
