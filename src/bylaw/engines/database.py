"""What a database is: a table that can be asked for sums, and whose rows can be pulled."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from bylaw.engines.engine import Engine
from bylaw.errors import EvidenceError, InfeasibleRulesError
from bylaw.scoring import Dialect

PULL = "pass pull=True to scan, so that the rows are streamed to this process in batches"


class Database(Engine):
    """A table of a database."""

    dialect: ClassVar[Dialect]

    @property
    @abstractmethod
    def relation(self) -> str:
        """What statements call the table, after FROM."""

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The few rows of an answer."""

    @abstractmethod
    def run_inside(self, statement: str) -> None:
        """Make or drop a temporary table."""

    @abstractmethod
    def thin(self, select: str, share: float) -> str:
        """A SELECT of this share of the rows of another one, by chance."""

    @abstractmethod
    def begin(self) -> bool:
        """Begin a transaction in which all statements see the same rows; return False, and do nothing, within
        a transaction of the caller."""

    @abstractmethod
    def end(self) -> None:
        """End the transaction that was begun."""

    @abstractmethod
    def sum_up(self) -> Any:
        """Return a checksum of the rows, or None if all statements see the same rows anyway."""

    @contextmanager
    def hold_rows(self) -> Iterator[None]:
        """Let all statements see the same rows; raise an `EvidenceError` in the end if they did not."""
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

    @property
    def n_partitions(self) -> int:
        return 1

    def describe(self, partition: int) -> str:
        return str(self)


def write_table(table: str, dialect: Dialect) -> str:
    """Its quoted name; dots separate the parts of a qualified one."""
    return ".".join(dialect.quote_name(part) for part in table.split("."))
