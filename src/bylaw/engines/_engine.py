"""The interface of engines, which run a task on each partition of the rows where these are stored.

An engine needs `names`, `n_partitions` and `run`; other methods have defaults. Tasks and their results must
be picklable, by cloudpickle if a rule has a Python function.
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

ROUNDING = 1e-9  # relative error of sums over rows in another order
PULL = "pass pull=True to scan, so that the rows are streamed to this process in batches"
# A task gets the number of a partition and its rows as Arrow record batches, and returns any result.
Task = Callable[[int, Iterator[Any]], Any]
Meanings = Mapping[str, Mapping[Any, Value]]  # by column, the value that each text stands for


class Progress(NamedTuple):
    """The progress of a pass over the rows.

    Attributes
    ----------
    number : int
        the number of the pass, from one.
    rows : int
        the number of rows read so far.
    n_rows : int or None
        the number of all rows, if it is known.
    seconds : float
        the time since the pass began.
    """

    number: int
    rows: int
    n_rows: int | None
    seconds: float


class RowMap(Protocol):
    """A function that computes new columns from each row, such as decisions."""

    @property
    def reads(self) -> list[str]:
        """The names of the columns that it needs."""
        ...

    def make_schema(self, given: Any) -> Any:
        """Return the Arrow schema of the new columns, from the schema `given` of the columns read."""
        ...

    def write_sql(self, dialect: Any, table: str) -> str:
        """Return a SELECT statement that computes the new columns of a table."""
        ...

    def __call__(self, batch: Any, /) -> Any:
        """Return the new columns of an Arrow record batch."""
        ...


class Engine(ABC):
    """A source of rows in partitions, which runs tasks on them."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the columns."""

    @property
    @abstractmethod
    def n_partitions(self) -> int: ...

    @abstractmethod
    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the results of `task(i, batches)` in the order of the partitions i.

        `batches` are the rows of partition i, with the given columns.
        """

    @property
    def n_rows(self) -> int | None:
        """The number of rows, or None if it is not known before they are read."""
        return None

    def check(self) -> None:
        """Raise an `EvidenceError` if the rows were changed since the last pass."""
        return

    def settle(
        self, texts: Mapping[str, Sequence[Any]], sample: Any, known: Mapping[str, Sequence[Value]]
    ) -> tuple[Engine, Meanings, Any]:
        """Determine the values that texts stand for, if the rows have no types, as in CSV files.

        Parameters
        ----------
        texts : dict
            by column, all its distinct texts.
        sample : pyarrow.Table
            rows with these columns.
        known : dict
            by column, its values, if they are known.

        Returns
        -------
        tuple
            an engine that reads values, the value of each text by column, and the sample with values.
        """
        return self, {}, sample

    def map(self, rows: RowMap) -> Any:
        """Return a lazy frame of the same library with the new columns that a `RowMap` computes."""
        raise OptionError(
            "rows from this source cannot be returned as a lazy frame; decide them batch by batch, "
            "policy.decide(columns.evidence(batch), ids=...), or file by file, "
            "`bylaw decide policy.json FOLDER -o FOLDER`"
        )


@dataclass(frozen=True)
class Database(Engine):
    """A table of a database, which can sum its rows or stream them."""

    connection: Any
    title: str
    relation: str  # the name of the table in statements, after FROM
    columns: Columns  # whose checksums are compared in each pass
    states: list[Any] = field(
        default_factory=list, repr=False, compare=False
    )  # the checksum or snapshot of the first pass

    dialect: ClassVar[Dialect]
    n_partitions = 1  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.title

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return all rows of the result of a statement."""

    @abstractmethod
    def run_inside(self, statement: str) -> None:
        """Run a statement that creates or drops a temporary table."""

    @abstractmethod
    def thin(self, select: str, share: float) -> str:
        """Return a SELECT of a random share of the rows of another SELECT."""

    @abstractmethod
    def begin(self) -> bool:
        """Start a transaction in which all statements see the same rows, and return True.

        If the caller has started a transaction, do nothing and return False.
        """

    @abstractmethod
    def end(self) -> None:
        """Finish the transaction that `begin` started."""

    @abstractmethod
    def sum_up(self) -> Any:
        """Return a checksum of the rows, or None if all statements see the same rows anyway."""

    @contextmanager
    def hold_rows(self) -> Iterator[None]:
        """Return a context in which all statements see the same rows; raise an error if they changed."""
        begun = self.begin()
        try:
            before = self.sum_up()
            try:
                yield
            except InfeasibleRulesError:  # changed rows may also have inconsistent sums
                self.check_same(before)
                raise
            self.check_same(before)
        finally:
            if begun:
                self.end()

    def check_same(self, before: Any) -> None:
        """Raise an `EvidenceError` if the checksum of the rows differs from `before`."""
        if before != self.sum_up():
            raise EvidenceError(
                f"{self} was changed while its rows were read, so nothing was fitted; scan it again"
            )

    def list_columns(self, names: Sequence[str]) -> str:
        """Return quoted names of columns, separated by commas."""
        return ", ".join(map(self.dialect.quote_name, names))

    @classmethod
    def write_table(cls, table: str | None) -> str:
        """Return the quoted name of a table; dots separate the parts of a qualified name."""
        if table is None:
            raise OptionError("table= must be given for a database: scan(connection, columns, table=...)")
        return ".".join(map(cls.dialect.quote_name, table.split(".")))
