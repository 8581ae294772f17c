"""Tables, views and files that DuckDB reads, by the connection or the relation of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from bylaw.backends.database import Database, write_table
from bylaw.backends.databases import DatabaseScan
from bylaw.backends.engine import Task
from bylaw.backends.scan import Scan
from bylaw.data.columns import Columns
from bylaw.errors import EvidenceError, OptionError
from bylaw.sql.dialects import DIALECTS

_VIEW = "bylaw_relation"  # what statements call a relation
_BATCH = 2**17  # rows that are pulled at a time
_SEED = 7


def open_source(source: Any, columns: Columns, table: str | None) -> DuckTable:
    """A relation; or a connection and a table, a view, or a call such as read_parquet('...')."""
    if isinstance(source, duckdb.DuckDBPyRelation):
        if table is not None:
            raise OptionError("table= goes with a connection; a DuckDB relation needs none")
        return DuckTable("the relation", source)
    if table is None:
        raise OptionError("scan(connection, columns, table=...) needs the name of the table")
    text = table if "(" in table else write_table(table, DuckTable.dialect)
    try:
        return DuckTable(table, source.sql(f"SELECT * FROM {text}"), source, text)
    except duckdb.Error as problem:
        raise EvidenceError(f"DuckDB cannot read {table}: {problem}") from None


@dataclass(frozen=True)
class DuckTable(Database):
    """What a connection reads; or a relation, which statements see as a view that exists while they run."""

    title: str
    rows: Any  # a relation
    connection: Any = None
    source: str = _VIEW  # after FROM

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
        self.ask(statement)

    def thin(self, select: str, share: float) -> str:
        return f"SELECT * FROM ({select}) AS whole USING SAMPLE {100 * share} PERCENT (bernoulli, {_SEED})"

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        quoted = ", ".join(map(self.dialect.quote_name, columns))
        reader = self.rows.project(quoted).to_arrow_reader(_BATCH)
        yield task(0, iter(reader))
