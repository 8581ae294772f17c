"""Tables and views in PostgreSQL, read by a psycopg connection of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from bylaw.engines._engine import PULL, Database, Task
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import BATCH_ROWS, Columns
from bylaw.scoring import DIALECTS

_NO_JIT = "SET LOCAL jit = off"  # compiling hundreds of sums takes longer than computing them
_WRONG_TYPES = (
    psycopg.errors.InvalidTextRepresentation,
    psycopg.errors.CannotCoerce,
    psycopg.errors.UndefinedFunction,
)
_TOO_MANY = (psycopg.errors.TooManyColumns, psycopg.errors.StatementTooComplex)


def open_source(source: Any, columns: Columns, table: str | None) -> PostgresTable:
    """Return the engine that reads a table or view by a psycopg connection."""
    if not isinstance(source, psycopg.Connection):
        raise OptionError(f"a PostgreSQL source must be a psycopg.Connection, got {type(source).__name__}")
    found = PostgresTable(source, str(table), PostgresTable.write_table(table), columns)
    try:
        found.names  # noqa: B018
    except psycopg.errors.Error as problem:
        raise EvidenceError(f"PostgreSQL cannot read {table}: {problem}") from None
    return found


@dataclass(frozen=True)
class PostgresTable(Database):
    """A table or view, read in one transaction, with a savepoint for each statement."""

    dialect = DIALECTS["postgres"]

    @property
    def names(self) -> list[str]:
        with self.connection.transaction(), self._cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.relation} LIMIT 0", prepare=False)
            return [column.name for column in cursor.description]

    def _cursor(self, name: str = "") -> Any:
        return self.connection.cursor(name, row_factory=tuple_row)

    @property
    def _is_idle(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.IDLE

    def begin(self, mode: str = "") -> bool:
        if not self._is_idle:
            return False
        with self._cursor() as cursor:  # without autocommit, psycopg begins the transaction
            begin = "BEGIN" if self.connection.autocommit else "SET TRANSACTION"
            cursor.execute(f"{begin} ISOLATION LEVEL REPEATABLE READ{mode}")
            cursor.execute(_NO_JIT)
        return True

    def end(self) -> None:
        status = self.connection.info.transaction_status
        if status == TransactionStatus.INTRANS:  # nothing was written, except by a callback of the caller
            self.connection.commit()
        elif status == TransactionStatus.INERROR:
            self.connection.rollback()

    def sum_up(self) -> Any:
        """Return a checksum of the rows, or None if all statements see the same rows anyway.

        Rows may change between statements in a transaction of the caller that is READ COMMITTED.
        """
        if self.ask("SELECT current_setting('transaction_isolation')") != [("read committed",)]:
            return None
        hashed = f"SUM(hashtextextended(ROW({self.list_columns(self.columns.names)})::text, 0)::numeric)"
        return self.ask(f"SELECT COUNT(*), {hashed} FROM {self.relation}")

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        alone = self._is_idle
        try:
            with self.connection.transaction(), self._cursor() as cursor:
                if alone:
                    cursor.execute(_NO_JIT)
                return cursor.execute(statement, prepare=False).fetchall()
        except _WRONG_TYPES as problem:
            raise EvidenceError(
                f"the columns of {self} must have the types that their roles require: {problem}"
            ) from None
        except _TOO_MANY as problem:
            raise OptionError(f"PostgreSQL cannot sum so many columns at once ({problem}); {PULL}") from None

    def run_inside(self, statement: str) -> None:
        try:
            with self.connection.transaction(), self._cursor() as cursor:
                cursor.execute("SELECT setseed(0.7)")  # the same sample every time
                cursor.execute(statement, prepare=False)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as problem:
            raise OptionError(
                f"a sample of {self} must be stored in a temporary table, which is not allowed ({problem}); "
                f"grant TEMPORARY on the database, or {PULL}"
            ) from None

    def thin(self, select: str, share: float) -> str:
        return f"SELECT * FROM ({select}) AS whole WHERE random() < {share!r}"

    def check(self) -> None:
        # All passes see the snapshot of one transaction, which stays open.
        self.begin(", READ ONLY")  # without temporary tables
        with self._cursor() as cursor:
            level, here = cursor.execute(
                "SELECT current_setting('transaction_isolation'), pg_current_snapshot()::text"
            ).fetchone()
        if self.states and here != self.states[0]:
            raise EvidenceError(
                f"the transaction in which {self} was read has ended, and its rows may have changed; scan it "
                "again"
            )
        if level == "read committed":
            raise OptionError(
                "the connection must not be in a transaction in which rows may change between statements; "
                "commit it, or begin it with ISOLATION LEVEL REPEATABLE READ"
            )
        self.states[:] = [here]

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        quoted = {name: self.dialect.quote_name(name) for name in columns}
        for name in {*self.columns.numbers}.intersection(columns):
            quoted[name] = self.dialect.cast(quoted[name], self.dialect.double)

        def pull() -> Iterator[Any]:
            with self._cursor(
                "bylaw_rows"
            ) as cursor:  # a server-side cursor, which returns batches one by one
                cursor.execute(f"SELECT {', '.join(quoted.values())} FROM {self.relation}")
                while rows := cursor.fetchmany(BATCH_ROWS):
                    parts = zip(columns, zip(*rows, strict=True), strict=True)
                    yield pyarrow.RecordBatch.from_pydict({name: list(part) for name, part in parts})

        yield task(0, pull())
