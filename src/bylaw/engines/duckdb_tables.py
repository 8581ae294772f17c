"""Tables, views and files that DuckDB reads, by the connection or the relation of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bylaw.engines.database import Database, write_table
from bylaw.engines.databases import DatabaseScan
from bylaw.engines.engine import Task
from bylaw.engines.reading import BatchReader
from bylaw.engines.scan import Scan
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows.columns import Columns
from bylaw.scoring import DIALECTS

_VIEW = "bylaw_relation"  # what statements call a relation
_BATCH = 2**17  # rows that are pulled at a time
_SEED = 7
_TRANSACTION = "SELECT txid_current()"  # its number


def open_source(source: Any, columns: Columns, table: str | None) -> DuckTable:
    """A relation; or a connection and a table, a view, or a call such as read_parquet('...')."""
    reads = tuple(BatchReader(columns).names)
    if isinstance(source, duckdb.DuckDBPyRelation):
        if table is not None:
            raise OptionError("table= goes with a connection; a DuckDB relation needs none")
        return DuckTable("the relation", source, reads)
    if table is None:
        raise OptionError("scan(connection, columns, table=...) needs the name of the table")
    text = table if "(" in table else write_table(table, DuckTable.dialect)
    try:
        return DuckTable(table, source.sql(f"SELECT * FROM {text}"), reads, source, text)
    except duckdb.Error as problem:
        raise EvidenceError(f"DuckDB cannot read {table}: {problem}") from None


@dataclass(frozen=True)
class DuckTable(Database):
    """What a connection reads; or a relation, which statements see as a view that exists while they run."""

    title: str
    rows: Any  # a relation
    reads: tuple[str, ...]  # the columns whose values count
    connection: Any = None
    source: str = _VIEW  # after FROM
    states: list[Any] = field(default_factory=list, repr=False, compare=False)  # checksum of the first walk

    dialect = DIALECTS["duckdb"]

    def __str__(self) -> str:
        return self.title

    def keep_rows(self, scanned: Scan) -> DatabaseScan:
        return DatabaseScan.of(scanned)

    @property
    def relation(self) -> str:
        return self.source

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
                f"{self} has a column of another type than its role needs: {problem}"
            ) from None

    def run_inside(self, statement: str) -> None:
        with suppress(duckdb.TransactionException):  # it has failed, and its temporary tables go with it
            self.ask(statement)

    def begin(self) -> bool:
        # Outside of a transaction, each statement is one of its own. To begin another within that of the
        # caller, whose statements all see the same rows of tables, would make DuckDB give up the caller's.
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
        """Also within a transaction: views may read files."""
        values = ", ".join(map(self.dialect.quote_name, self.reads))
        return self.ask(f"SELECT COUNT(*), SUM(hash({values})) FROM {self.relation}")

    def check(self) -> None:
        """Compare the rows that are pulled with those of the first walk."""
        if self.states:
            self.check_same(self.states[0])
        else:
            self.states.append(self.sum_up())

    def thin(self, select: str, share: float) -> str:
        return f"SELECT * FROM ({select}) AS whole USING SAMPLE {100 * share} PERCENT (bernoulli, {_SEED})"

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        quoted = ", ".join(map(self.dialect.quote_name, columns))
        reader = self.rows.project(quoted).to_arrow_reader(_BATCH)
        yield task(0, iter(reader))
