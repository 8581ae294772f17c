"""Rows that are updated between passes: databases show one snapshot, and elsewhere the change is noticed."""

from __future__ import annotations

import contextlib

import duckdb
import numpy as np
import pandas
import polars
import psycopg
import pyarrow
import pytest

from bylaw import Columns, Problem, demographic_parity, error, scan, selected, solve
from bylaw.engines._sql_sums import SummedRows
from bylaw.engines._workers import sum_column
from bylaw.errors import EvidenceError
from helpers.databases import fill_postgres, postgres_server

COLUMNS = Columns(["p_no", "p_yes"], classes=["no", "yes"], groups={"sex": "sex"})
PROBLEM = Problem(error(), [demographic_parity("sex", tol=0.02)])
# Fewer rows are decided "yes" after the change: the answer, and even whether the rules conflict, is another.
CHANGE = "UPDATE scores SET p_no = p_no * 0.3 + 0.7, p_yes = p_yes * 0.3 WHERE sex = 'F'"


def make_frame(n_rows: int = 600) -> pandas.DataFrame:
    rng = np.random.default_rng(11)
    sex = rng.choice(["F", "M"], n_rows)
    yes = rng.beta(np.where(sex == "F", 2.0, 3.0), 2.0)
    return pandas.DataFrame({"p_no": 1 - yes, "p_yes": yes, "sex": sex})


def change_frame(frame: pandas.DataFrame) -> pandas.DataFrame:
    yes = np.where(frame["sex"] == "F", 0.3 * frame["p_yes"], frame["p_yes"])
    return frame.assign(p_no=1 - yes, p_yes=yes)


def expect(frame: pandas.DataFrame) -> float:
    return solve(PROBLEM, COLUMNS.evidence(frame), tol=1e-8).solution.value


def change_at(monkeypatch, passes: int, change) -> list[int]:
    """Call `change` before this sum over all rows, where the first is number 1."""
    asked, ask = [0], SummedRows._ask

    def ask_later(self, wanted):
        asked[0] += 1
        if asked[0] == passes:
            change()
        return ask(self, wanted)

    monkeypatch.setattr(SummedRows, "_ask", ask_later)
    return asked


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as connection:
        yield connection


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.slow)])
def connections(request):
    """Two connections to a database whose table scores has the rows."""
    frame = make_frame()
    if request.param == "duckdb":
        with duckdb.connect() as one, one.cursor() as other:
            one.execute("CREATE TABLE scores AS SELECT * FROM frame")
            yield one, other
    else:
        postgres = request.getfixturevalue("postgres")
        fill_postgres(postgres, "scores", frame)
        with psycopg.connect(postgres.info.dsn) as one:
            yield one, postgres
            one.rollback()


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 2, 5])
def test_an_update_by_others_does_not_change_the_answer(connections, monkeypatch, passes):
    one, other = connections
    asked = change_at(monkeypatch, passes, lambda: other.execute(CHANGE))
    found = solve(PROBLEM, scan(one, COLUMNS, table="scores"), tol=1e-8)
    assert asked[0] >= passes
    assert found.solution.value == pytest.approx(expect(make_frame()), abs=1e-9)
    later = solve(PROBLEM, scan(one, COLUMNS, table="scores"), tol=1e-8)
    assert later.solution.value == pytest.approx(expect(change_frame(make_frame())), abs=1e-9)


def test_an_update_does_not_make_rules_conflict(connections, monkeypatch):
    one, other = connections
    share = float((make_frame()["p_yes"] > 0).mean())
    problem = Problem(error(), [selected("yes").given(sex="F") >= 0.9 * share])
    change_at(monkeypatch, 2, lambda: other.execute("UPDATE scores SET sex = 'M' WHERE p_yes > 0.1"))
    solve(problem, scan(one, COLUMNS, table="scores"))


@pytest.mark.slow
def test_no_transaction_is_left_open(connections):
    one, _ = connections

    def fail(step):
        raise RuntimeError("stop")

    for options in ({}, {"callback": fail}):
        with contextlib.suppress(RuntimeError):
            solve(PROBLEM, scan(one, COLUMNS, table="scores"), **options)
        if isinstance(one, psycopg.Connection):
            assert one.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        else:
            one.begin()  # an error within a transaction
            one.rollback()


def test_the_callers_transaction_goes_on(connections):
    one, other = connections
    one.execute("BEGIN" if isinstance(one, duckdb.DuckDBPyConnection) else "SELECT 1")
    one.execute("UPDATE scores SET sex = 'M' WHERE p_yes > 0.9")
    changed = make_frame()
    changed.loc[changed["p_yes"] > 0.9, "sex"] = "M"
    found = solve(PROBLEM, scan(one, COLUMNS, table="scores"), tol=1e-8)
    assert found.solution.value == pytest.approx(expect(changed), abs=1e-9)
    count = "SELECT COUNT(*) FROM scores WHERE p_yes > 0.9 AND sex = 'F'"
    assert one.execute(count).fetchone() == (0,)
    assert other.execute(count).fetchone() != (0,)  # it was not committed
    one.rollback()
    assert one.execute(count).fetchone() != (0,)  # nor lost before


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 3])
def test_an_update_is_noticed_in_a_transaction_that_sees_it(postgres, monkeypatch, passes):
    fill_postgres(postgres, "scores", make_frame())
    with psycopg.connect(postgres.info.dsn) as one:
        one.execute("SELECT 1")  # begins a transaction that is READ COMMITTED
        change_at(monkeypatch, passes, lambda: postgres.execute(CHANGE))
        with pytest.raises(EvidenceError, match="scores was changed while its rows were read"):
            solve(PROBLEM, scan(one, COLUMNS, table="scores"))
        one.rollback()


@pytest.mark.parametrize("pull", [False, True])
def test_a_file_that_is_replaced_behind_a_view_is_noticed(tmp_path, monkeypatch, pull):
    path = tmp_path / "rows.parquet"
    make_frame().to_parquet(path)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW scores AS SELECT * FROM read_parquet('{path}')")

        def replace(progress):
            if progress.number == 1:
                change_frame(make_frame()).to_parquet(path)

        rows = scan(connection, COLUMNS, table="scores", pull=pull, progress=replace)
        with pytest.raises(EvidenceError, match="was changed while its rows were read"):
            solve(PROBLEM, rows)


def make_dask(path):
    import dask.dataframe

    return dask.dataframe.read_parquet(path)


@pytest.mark.slow
@pytest.mark.parametrize("read", [polars.scan_parquet, make_dask], ids=["polars", "dask"])
@pytest.mark.parametrize("column", ["p_yes", "sex"])
def test_a_file_that_is_replaced_behind_a_frame_is_noticed(tmp_path, read, column):
    path = tmp_path / "rows.parquet"
    frame = make_frame()
    frame.to_parquet(path)
    moved = frame.assign(sex=frame["sex"].mask(frame.index < 9, "M"))
    other = change_frame(frame) if column == "p_yes" else moved

    def replace(progress):
        if progress.number == 1:
            new = tmp_path / "new"
            other.to_parquet(new)
            new.replace(path)

    with pytest.raises(EvidenceError, match=r"changed since the first pass|changed while they were read"):
        solve(PROBLEM, scan(read(path), COLUMNS, progress=replace))


@pytest.mark.parametrize(
    "values",
    [
        pyarrow.array([0.25, None, 0.5, float("nan")]),
        pyarrow.array([3, 1, None]),
        pyarrow.array([True, False, None]),
        pyarrow.array(["a", "bc", None, "é"]),
        pyarrow.array(["a", "bc", "a"]).dictionary_encode(),
        pyarrow.array(["a", "bc"], pyarrow.large_string()),
        pyarrow.array([b"a", b"bc"]),
    ],
    ids=str,
)
def test_sums_do_not_depend_on_the_order_or_on_how_rows_are_cut(values):
    total = sum_column(values)
    assert total > 0
    assert sum_column(values.take(pyarrow.array(np.arange(len(values))[::-1]))) == pytest.approx(total)
    assert sum_column(values.slice(0, 1)) + sum_column(values.slice(1)) == pytest.approx(total)
    assert sum_column(values.slice(1)) != pytest.approx(total)


@pytest.mark.parametrize(("one", "other"), [([1.0, 3.0], [2.0, 2.0]), (["ac"], ["bb"])])
def test_values_that_trade_a_part_change_the_sum(one, other):
    """A plain sum would stay the same."""
    assert sum_column(pyarrow.array(one)) != pytest.approx(sum_column(pyarrow.array(other)))
