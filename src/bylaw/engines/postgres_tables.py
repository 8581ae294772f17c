"""Tables and views of PostgreSQL, by the psycopg connection of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg
import pyarrow
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from bylaw.engines.database import PULL, Database, write_table
from bylaw.engines.databases import DatabaseScan
from bylaw.engines.engine import Task
from bylaw.engines.reading import BatchReader
from bylaw.engines.scan import Scan
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows.columns import Columns
from bylaw.scoring import DIALECTS

_BATCH = 2**16  # rows that are pulled at a time
_REPEATABLE = "ISOLATION LEVEL REPEATABLE READ"
_LEVEL = f"{_REPEATABLE}, READ ONLY"  # where no temporary tables are made
_NO_JIT = "SET LOCAL jit = off"  # to compile hundreds of sums takes longer than to compute them
_SEED = "SELECT setseed(0.7)"  # of this session: the same sample every time
_WRONG_TYPES = (
    psycopg.errors.InvalidTextRepresentation,
    psycopg.errors.CannotCoerce,
    psycopg.errors.UndefinedFunction,
)
_TOO_MANY = (psycopg.errors.TooManyColumns, psycopg.errors.StatementTooComplex)


def open_source(source: Any, columns: Columns, table: str | None) -> PostgresTable:
    """A connection, and the name of a table or view."""
    if not isinstance(source, psycopg.Connection):
        raise OptionError(f"scan() takes a psycopg.Connection, not {type(source).__name__}")
    if table is None:
        raise OptionError("scan(connection, columns, table=...) needs the name of the table")
    found = PostgresTable(source, table, frozenset(columns.numbers), tuple(BatchReader(columns).names))
    try:
        found.names  # noqa: B018
    except psycopg.errors.Error as problem:
        raise EvidenceError(f"PostgreSQL cannot read {table}: {problem}") from None
    return found


@dataclass(frozen=True)
class PostgresTable(Database):
    """A table or view. All statements of a solve are in one transaction, each in a savepoint."""

    connection: Any
    title: str
    numbers: frozenset[str]  # columns that are pulled as floats
    reads: tuple[str, ...]  # the columns whose values count
    snapshots: list[str] = field(default_factory=list, repr=False, compare=False)  # of the first walk

    dialect = DIALECTS["postgres"]

    def __str__(self) -> str:
        return self.title

    def keep_rows(self, scanned: Scan) -> DatabaseScan:
        return DatabaseScan.of(scanned)

    @property
    def relation(self) -> str:
        return write_table(self.title, self.dialect)

    @property
    def names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        with self.connection.transaction(), self._cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.relation} LIMIT 0", prepare=False)
            return [column.name for column in cursor.description]

    def _cursor(self, name: str = "") -> Any:
        return self.connection.cursor(name, row_factory=tuple_row)

    def begin(self) -> bool:
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            return False
        with self._cursor() as cursor:  # elsewhere than with autocommit, psycopg itself begins
            cursor.execute(f"{'BEGIN' if self.connection.autocommit else 'SET TRANSACTION'} {_REPEATABLE}")
            cursor.execute(_NO_JIT)
        return True

    def end(self) -> None:
        status = self.connection.info.transaction_status
        if status == TransactionStatus.INTRANS:  # nothing was written, except by a callback of the caller
            self.connection.commit()
        elif status == TransactionStatus.INERROR:
            self.connection.rollback()

    def sum_up(self) -> Any:
        """Return a checksum within a transaction of the caller in which each statement sees the rows anew."""
        if self.ask("SELECT current_setting('transaction_isolation')") != [("read committed",)]:
            return None
        values = ", ".join(map(self.dialect.quote_name, self.reads))
        hashed = f"SUM(hashtextextended(ROW({values})::text, 0)::numeric)"
        return self.ask(f"SELECT COUNT(*), {hashed} FROM {self.relation}")

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        alone = self.connection.info.transaction_status == TransactionStatus.IDLE
        try:
            with self.connection.transaction(), self._cursor() as cursor:
                if alone:
                    cursor.execute(_NO_JIT)
                return cursor.execute(statement, prepare=False).fetchall()
        except _WRONG_TYPES as problem:
            raise EvidenceError(
                f"{self} has a column of another type than its role needs: {problem}"
            ) from None
        except _TOO_MANY as problem:
            raise OptionError(
                f"PostgreSQL cannot sum up so many columns at once ({problem}): {PULL}"
            ) from None

    def run_inside(self, statement: str) -> None:
        try:
            with self.connection.transaction(), self._cursor() as cursor:
                cursor.execute(_SEED)
                cursor.execute(statement, prepare=False)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as problem:
            raise OptionError(
                f"a sample of {self} is kept in a temporary table, which is not allowed here ({problem}): "
                f"grant TEMPORARY on the database, or {PULL}"
            ) from None

    def thin(self, select: str, share: float) -> str:
        return f"SELECT * FROM ({select}) AS whole WHERE random() < {share!r}"

    def check(self) -> None:
        """All walks see the same snapshot: that of one transaction, which stays open."""
        idle = self.connection.info.transaction_status == TransactionStatus.IDLE
        with self._cursor() as cursor:
            if idle:  # elsewhere than with autocommit, psycopg itself begins
                cursor.execute(f"{'BEGIN' if self.connection.autocommit else 'SET TRANSACTION'} {_LEVEL}")
            level, here = cursor.execute(
                "SELECT current_setting('transaction_isolation'), pg_current_snapshot()::text"
            ).fetchone()
        if self.snapshots and here != self.snapshots[0]:
            raise EvidenceError(
                f"the transaction in which {self} was read has ended, and its rows may be others now; scan "
                "it again"
            )
        if level == "read committed":
            raise OptionError(
                "the connection is in a transaction in which every statement may see other rows: commit it, "
                "or begin it with ISOLATION LEVEL REPEATABLE READ"
            )
        self.snapshots[:] = [here]

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        yield task(0, self._pull(columns))

    def _pull(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches of rows, by a cursor on the server."""
        quoted = {name: self.dialect.quote_name(name) for name in columns}
        for name in self.numbers.intersection(columns):
            quoted[name] = self.dialect.cast(quoted[name], self.dialect.double)
        with self._cursor("bylaw_rows") as cursor:
            cursor.execute(f"SELECT {', '.join(quoted.values())} FROM {self.relation}")
            while rows := cursor.fetchmany(_BATCH):
                parts = dict(zip(columns, zip(*rows, strict=True), strict=True))
                yield pyarrow.RecordBatch.from_pydict({name: list(part) for name, part in parts.items()})
