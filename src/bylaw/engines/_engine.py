"""Engines: partitions of rows, and a way to run a task on each of them where its rows are.

An engine needs `names`, `n_partitions` and `run`; the rest has defaults. Tasks are plain objects that can be
pickled, with cloudpickle if a rule has a Python function; so are their results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from bylaw._base import Value
from bylaw.errors import EvidenceError, InfeasibleRulesError, OptionError
from bylaw.rows import Columns
from bylaw.scoring import Dialect

ROUNDING = 1e-9  # relative, of sums over rows, which may come in another order
PULL = "pass pull=True to scan, so that the rows are streamed to this process in batches"
# A task gets the number of a partition and its rows as Arrow record batches, and returns any result.
Task = Callable[[int, Iterator[Any]], Any]
Meanings = Mapping[str, Mapping[Any, Value]]  # by column: the value that each text stands for


class Progress(NamedTuple):
    """The progress of a walk over the rows.

    Attributes
    ----------
    number : int
        of the walk, from one on.
    rows : int
        that it has read.
    n_rows : int or None
        of all partitions, if known.
    seconds : float
        since it began.
    """

    number: int
    rows: int
    n_rows: int | None
    seconds: float


class RowMap(Protocol):
    """New columns that depend on one row at a time, such as decisions."""

    @property
    def reads(self) -> list[str]:
        """The columns that it needs."""
        ...

    def make_schema(self, given: Any) -> Any:
        """Return the Arrow schema of the answers, from that of the columns that are read."""
        ...

    def write_sql(self, dialect: Any, table: str) -> str:
        """Write the same as one SELECT statement."""
        ...

    def __call__(self, batch: Any, /) -> Any:
        """Return the answers for an Arrow record batch."""
        ...


class Engine(ABC):
    """Rows in partitions."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the columns."""

    @property
    @abstractmethod
    def n_partitions(self) -> int: ...

    @abstractmethod
    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the results of `task(i, batches)` in the order of the partitions i, each with its own rows of
        these columns."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, if it is known before they are read."""
        return None

    def check(self) -> None:
        """Raise an `EvidenceError` if the rows are not those of earlier walks."""
        return

    def settle(
        self, texts: Mapping[str, Sequence[Any]], sample: Any, known: Mapping[str, Sequence[Value]]
    ) -> tuple[Engine, Meanings, Any]:
        """Decide which values texts stand for, if rows have no types, as in CSV files.

        `texts` are all texts of some columns, `sample` is an Arrow table with these columns, and `known` has
        the values of some of them. Return an engine that reads values, the value of each text by column, and
        the sample with values.
        """
        return self, {}, sample

    def map(self, rows: RowMap) -> Any:
        """Return the answers of `rows` on all rows, lazily, as a frame of the same kind."""
        raise OptionError(
            "rows like these have no frame to give back: decide them batch by batch, "
            "policy.decide(columns.evidence(batch), ids=...), or files part by part, "
            "`bylaw decide policy.json FOLDER -o FOLDER`"
        )


@dataclass(frozen=True)
class Database(Engine):
    """A table of a database, which sums up its rows and streams them if asked to."""

    connection: Any
    title: str
    relation: str  # the name of the table in statements, after FROM
    columns: Columns  # whose values are compared in each walk
    states: list[Any] = field(default_factory=list, repr=False, compare=False)  # of the first walk

    dialect: ClassVar[Dialect]
    n_partitions = 1  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.title

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return all rows of the answer to a statement."""

    @abstractmethod
    def run_inside(self, statement: str) -> None:
        """Make or drop a temporary table."""

    @abstractmethod
    def thin(self, select: str, share: float) -> str:
        """Write a SELECT of a random share of the rows of another SELECT."""

    @abstractmethod
    def begin(self) -> bool:
        """Start a transaction in which all statements see the same rows.

        Return False, and do nothing, within a transaction of the caller.
        """

    @abstractmethod
    def end(self) -> None:
        """Finish the transaction that was started."""

    @abstractmethod
    def sum_up(self) -> Any:
        """Return a checksum of the rows, or None if all statements see the same rows anyway."""

    @contextmanager
    def hold_rows(self) -> Iterator[None]:
        """Make all statements see the same rows; raise an `EvidenceError` in the end if they did not."""
        begun = self.begin()
        try:
            before = self.sum_up()
            try:
                yield
            except InfeasibleRulesError:  # sums of different rows contradict each other, too
                self.check_same(before)
                raise
            self.check_same(before)
        finally:
            if begun:
                self.end()

    def check_same(self, before: Any) -> None:
        """Raise an `EvidenceError` unless the checksum of the rows is still the same."""
        if before != self.sum_up():
            raise EvidenceError(
                f"{self} was changed while its rows were read; nothing was fitted. Scan it again"
            )

    def list_columns(self, names: Sequence[str]) -> str:
        """Write quoted names of columns, with commas between them."""
        return ", ".join(map(self.dialect.quote_name, names))

    @classmethod
    def write_table(cls, table: str | None) -> str:
        """Write the quoted name of a table; dots separate the parts of a qualified one."""
        if table is None:
            raise OptionError("scan(connection, columns, table=...) needs the name of the table")
        return ".".join(map(cls.dialect.quote_name, table.split(".")))
