"""Tables, views and files in DuckDB, read by a connection or a relation of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bylaw.engines._engine import Database, Task
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import BATCH_ROWS, Columns
from bylaw.scoring import DIALECTS

_VIEW = "bylaw_relation"  # the name of the relation in statements
_TRANSACTION = "SELECT txid_current()"  # the number of the transaction


def open_source(source: Any, columns: Columns, table: str | None) -> DuckTable:
    """Return the engine that reads a DuckDB relation, or a table by a connection.

    The table may be a view, or a call such as read_parquet('...').
    """
    if isinstance(source, duckdb.DuckDBPyRelation):
        if table is not None:
            raise OptionError("table= must be left out for a DuckDB relation")
        return DuckTable(None, "the relation", _VIEW, columns, rows=source)
    text = table if table is not None and "(" in table else DuckTable.write_table(table)
    try:
        return DuckTable(source, str(table), text, columns, rows=source.sql(f"SELECT * FROM {text}"))
    except duckdb.Error as problem:
        raise EvidenceError(f"DuckDB cannot read {table}: {problem}") from None


@dataclass(frozen=True)
class DuckTable(Database):
    """A table that a connection reads, or a relation, which statements use as a temporary view."""

    rows: Any = field(kw_only=True)  # a DuckDB relation

    dialect = DIALECTS["duckdb"]

    @property
    def names(self) -> list[str]:
        return list(self.rows.columns)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            if self.connection is not None:
                return self.connection.execute(statement).fetchall()
            return self.rows.query(_VIEW, statement).fetchall()
        except (duckdb.ConversionException, duckdb.BinderException) as problem:
            raise EvidenceError(
                f"the columns of {self} must have the types that their roles require: {problem}"
            ) from None

    def run_inside(self, statement: str) -> None:
        with suppress(duckdb.TransactionException):  # it has failed, and has dropped its temporary tables
            self.ask(statement)

    def begin(self) -> bool:
        # Outside of a transaction, each statement is a transaction with its own number. Within one of the
        # caller, statements see the same rows of tables, and beginning another would end the caller's.
        if self.connection is None or self.ask(_TRANSACTION) == self.ask(_TRANSACTION):
            return False
        self.ask("BEGIN TRANSACTION")
        return True

    def end(self) -> None:
        try:
            self.ask("COMMIT")  # nothing was written, except by a callback of the caller
        except duckdb.Error:
            with suppress(duckdb.Error):
                self.ask("ROLLBACK")

    def sum_up(self) -> Any:
        # Needed even within a transaction, since views may read files.
        return self.ask(
            f"SELECT COUNT(*), SUM(hash({self.list_columns(self.columns.names)})) FROM {self.relation}"
        )

    def check(self) -> None:
        """Raise an `EvidenceError` if the checksum of the rows has changed since the first pass."""
        if self.states:
            self.check_same(self.states[0])
        else:
            self.states.append(self.sum_up())

    def thin(self, select: str, share: float) -> str:
        return f"SELECT * FROM ({select}) AS whole USING SAMPLE {100 * share} PERCENT (bernoulli, 7)"

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        yield task(0, iter(self.rows.project(self.list_columns(columns)).to_arrow_reader(BATCH_ROWS)))
