"""What leaves a database: by PostgreSQL's own account and by what crosses the wire, by DuckDB's log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable

import duckdb
import numpy as np
import pandas
import psycopg
import pytest

from bylaw import (
    Columns,
    InfeasibleRulesError,
    Problem,
    demographic_parity,
    equalized_odds,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.engines import scan
from bylaw.engines._duckdb_tables import DuckTable
from helpers.databases import fill_postgres, postgres_server

N_ROWS = 2000
COLUMNS = Columns(["a", "b", "c"], groups={"sex": "sex"})
PARITY = Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1])
ODDS = Problem(error(), [equalized_odds("sex", tol=0.05)])
CONFLICT = Problem(error(), [selected("a") >= 0.9, selected("b").given(sex="F") >= 0.9])
MOST_NUMBERS = 150  # of a statement: 2 cells with 9 moments and 45 pairs for odds, and a few totals


def make_frame() -> pandas.DataFrame:
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame(rng.dirichlet([1, 1, 1], N_ROWS), columns=list("abc"))
    return frame.assign(sex=rng.choice(["F", "M"], N_ROWS))


def solve_all(rows) -> None:
    """Whatever a user may ask for, a conflict and its diagnosis too."""
    solve(PARITY, rows)
    solve(ODDS, rows)
    with pytest.raises(InfeasibleRulesError):
        solve(CONFLICT, rows)


def check_answers(answers: list[list[tuple[str, ...]]], frame: pandas.DataFrame) -> None:
    """Of each statement the fields of its rows, as text: few, and none of them a value of a row."""
    assert len(answers) > 20
    assert max(sum(map(len, rows)) for rows in answers) <= MOST_NUMBERS
    assert not find_values(answers, frame)


def find_values(answers: list[list[tuple[str, ...]]], frame: pandas.DataFrame) -> set[str]:
    """The values of rows among all fields."""
    values = {repr(value) for name in "abc" for value in frame[name].tolist()}
    return values & {field for rows in answers for row in rows for field in row}


def split_arrays(fields: Iterable[str]) -> tuple[str, ...]:
    """Each number of an array is a field."""
    return tuple(part.strip() for field in fields for part in field.strip("{}[]").split(","))


@pytest.fixture(scope="module")
def postgres():
    with postgres_server("shared_preload_libraries=pg_stat_statements") as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
        fill_postgres(connection, "scores", make_frame())
        yield connection


def trace(connection: psycopg.Connection, run: Callable[[], None]) -> list[list[tuple[str, ...]]]:
    """All rows that the server sends meanwhile, by statement, as libpq writes them down."""
    with tempfile.TemporaryFile() as file:
        connection.pgconn.trace(file.fileno())
        run()
        connection.pgconn.untrace()
        file.seek(0)
        lines = file.read().decode().splitlines()
        messages = [line.split("\t")[3:] for line in lines if "\t" in line]  # else a statement goes on
    answers: list[list[tuple[str, ...]]] = [[]]
    for kind, *content in messages:
        if kind == "DataRow":
            fields = "\t".join(content).split("'")[1::2]
            answers[-1].append(split_arrays(fields))
        elif kind == "CommandComplete":
            answers.append([])
    return answers


@pytest.mark.slow
def test_only_sums_cross_the_wire_from_postgres(postgres):
    rows = scan(postgres, COLUMNS, table="scores")
    answers = trace(postgres, lambda: solve_all(rows))
    check_answers(answers, make_frame())
    assert sum(map(len, answers)) < N_ROWS / 2  # dozens of passes of two cells each


@pytest.mark.slow
def test_the_same_trace_shows_rows_that_are_pulled(postgres):
    rows = scan(postgres, COLUMNS, table="scores", pull=True)
    answers = trace(postgres, lambda: solve(PARITY, rows) and None)
    postgres.rollback()
    assert sum(map(len, answers)) >= N_ROWS
    assert len(find_values(answers, make_frame())) > 2.9 * N_ROWS


@pytest.mark.slow
def test_by_postgres_own_account_every_select_returns_a_row_for_each_cell(postgres):
    postgres.execute("SELECT pg_stat_statements_reset()")
    solve_all(scan(postgres, COLUMNS, table="scores"))
    found = postgres.execute("SELECT query, calls, rows FROM pg_stat_statements").fetchall()
    stored = [rows for query, _, rows in found if query.startswith("CREATE TEMPORARY TABLE bylaw_sample_")]
    assert max(stored) == N_ROWS  # these stay
    returned = {query: rows / calls for query, calls, rows in found if not query.startswith("CREATE")}
    assert max(returned.values()) <= 2
    kinds = {query.split()[0] for query in returned}
    assert kinds <= {"SELECT", "BEGIN", "COMMIT", "DROP", "SET", "SAVEPOINT", "RELEASE"}


@pytest.mark.slow
def test_only_sums_are_fetched_from_duckdb(monkeypatch):
    """All that its log has went through `ask`."""
    answers, statements, ask = [], [], DuckTable.ask

    def record(self, statement):
        found = ask(self, statement)
        statements.append(statement)
        answers.append([split_arrays(map(repr, row)) for row in found])
        return found

    monkeypatch.setattr(DuckTable, "ask", record)
    frame = make_frame()
    connection = duckdb.connect()
    connection.register("frame", frame)
    connection.execute("CREATE TABLE scores AS SELECT * FROM frame")
    connection.execute("CALL enable_logging('QueryLog')")
    solve_all(scan(connection, COLUMNS, table="scores"))
    logged = connection.execute("SELECT message FROM duckdb_logs() WHERE type = 'QueryLog'").fetchall()
    connection.execute("CALL disable_logging()")
    ours = [text.rstrip(";") for (text,) in logged if "duckdb_logs" not in text]
    assert ours == statements
    check_answers(answers, frame)
