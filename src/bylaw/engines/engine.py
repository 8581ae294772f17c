"""What an engine is: partitions of rows, and a way to run a task on each of them where its rows are.

An engine needs `names`, `n_partitions` and `run`; the rest has defaults. Tasks are plain objects that can be
pickled, with cloudpickle where a rule has a Python function; so are their results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from bylaw._base.typing import Value
from bylaw.errors import OptionError

# A task gets the number of a partition and its rows as Arrow record batches, and returns what it makes of
# them.
Task = Callable[[int, Iterator[Any]], Any]
Meanings = Mapping[str, Mapping[Any, Value]]  # by column: what each text stands for


class Progress(NamedTuple):
    """How far a walk over the rows is.

    Attributes
    ----------
    number : int
        of the walk, from one on.
    rows : int
        that it has seen.
    n_rows : int or None
        of all, where that is known.
    seconds : float
        since it began.
    """

    number: int
    rows: int
    n_rows: int | None
    seconds: float


class RowMap(Protocol):
    """New columns of each row by itself, such as decisions."""

    @property
    def reads(self) -> list[str]:
        """The columns that it needs."""
        ...

    def make_schema(self, given: Any) -> Any:
        """The Arrow schema of the answers, of that of the columns that are read."""
        ...

    def write_sql(self, dialect: Any, table: str) -> str:
        """The same as one SELECT statement."""
        ...

    def __call__(self, batch: Any, /) -> Any:
        """The answers for an Arrow record batch."""
        ...


class Engine(ABC):
    """Rows in partitions."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of the columns."""

    @property
    @abstractmethod
    def n_partitions(self) -> int: ...

    @abstractmethod
    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """The results of `task(i, batches)` in the order of the partitions i, each with its own rows of these
        columns."""

    @property
    def n_rows(self) -> int | None:
        """Where it is known without looking at the rows."""
        return None

    def describe(self, partition: int) -> str:
        """Where the rows of a partition are, for messages."""
        return f"partition {partition}"

    def check(self) -> None:
        """Raise an `EvidenceError` if the rows are not those of the walks before."""
        return

    def keep_rows(self, scanned: Any) -> Any:
        """A scan whose rows stay where they are, where the engine can sum them up there; otherwise itself."""
        return scanned

    def settle(
        self, texts: Mapping[str, Sequence[Any]], sample: Any, known: Mapping[str, Sequence[Value]]
    ) -> tuple[Engine, Meanings, Any]:
        """Where rows have no types: the engine that reads some columns as what all their values look like,
        what these stand for, and an Arrow table of a sample with the values that are meant. Of some columns
        it is known which values they have."""
        return self, {}, sample

    def map(self, rows: RowMap) -> Any:
        """The answers of `rows` on all rows, lazily, as a frame of the same kind."""
        raise OptionError(
            "there is no frame to give back for rows like these: decide them batch by batch, "
            "policy.decide(columns.evidence(batch), ids=...)"
        )
