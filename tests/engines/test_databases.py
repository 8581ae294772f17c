"""Rows in DuckDB and PostgreSQL: the same answer as in memory, by sums that the database computes."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pandas
import psycopg
import pytest

from bylaw import (
    Columns,
    EvidenceError,
    InfeasibleRulesError,
    OptionError,
    Policy,
    Problem,
    Status,
    custom,
    demographic_parity,
    diagnose,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.engines import scan
from bylaw.engines._sql_sums import SummedRows
from bylaw.program import Dual, compile_problem, make_blocks, measure_excesses, sum_features
from helpers.databases import fill_postgres, postgres_server

LABELS = ["no", "maybe", "yes"]
JOINT = [[f"{s} {label}" for label in LABELS] for s in ("old", "young")]
COLUMNS = Columns(
    ["p no", "p maybe", 'p "yes"'],
    classes=LABELS,
    groups={"sex": "sex", "site": "site", "age": {"old": "p old", "young": "p young"}},
    joint={"age": JOINT},
    references={"last": "last", "soft": ["s0", "s1", "s2"]},
    costs={"visit": ["c0", "c1", "c2"]},
)
WEIGHTED = replace(COLUMNS, weights="w")

PROBLEMS = {
    "no rules": Problem(error()),
    "known groups": Problem(error(), [demographic_parity("sex", tol=0.02)]),
    "two known groups": Problem(error(), [demographic_parity(("sex", "site"), tol=0.05)]),
    "unknown groups": Problem(error(), [demographic_parity("age", tol=0.02)]),
    "joint": Problem(error(), [equalized_odds("age", tol=0.05)]),
    "rejection": Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1]),
    "odds": Problem(error(), [equalized_odds("sex", tol=0.05)]),
    "labels of an earlier model": Problem(error(), [disagreement("last") <= 0.3]),
    "an earlier model's probabilities": Problem(error(), [disagreement("soft").given(sex="F") <= 0.5]),
    "costs": Problem(custom("visit"), [error() <= 0.5, selected("yes").given(site=3) >= 0.4]),
    "large costs": Problem(error(), [custom("visit") <= 6e5]),
    "sets under one rule": Problem(size(), [miscoverage() <= 0.1]),
    "sets": Problem(size(), [miscoverage() <= 0.1, miscoverage().given(sex="F") <= 0.08]),
}


@cache
def make_frame(n_rows: int = 3000) -> pandas.DataFrame:
    rng = np.random.default_rng(5)
    sex, site = rng.choice(["F", "M"], n_rows), rng.integers(1, 4, n_rows)
    chances = rng.gamma(np.where(sex[:, None] == "F", [[1.0, 1, 2]], [[2.0, 1, 1]]) * [1, 1, 1.2])
    chances /= chances.sum(axis=1, keepdims=True)
    given_label = rng.beta([2, 1, 1], [1, 1, 2], size=(n_rows, 3))  # P(young | x, label)
    joint = (np.stack([1 - given_label, given_label], axis=1) * chances[:, None]).reshape(n_rows, -1)
    young = joint[:, 3:].sum(axis=1)
    columns = dict(zip(COLUMNS.probabilities, chances.T, strict=True))
    columns |= {"sex": sex, "site": site, "p old": 1 - young, "p young": young}
    columns |= dict(zip((name for row in JOINT for name in row), joint.T, strict=True))
    columns |= {"last": rng.choice([*LABELS, "reject"], n_rows)}
    columns |= dict(zip(["s0", "s1", "s2"], rng.dirichlet([1, 1, 1], n_rows).T, strict=True))
    columns |= dict(zip(["c0", "c1", "c2"], 1e6 * rng.gamma([1, 2, 1], size=(n_rows, 3)).T, strict=True))
    columns |= {"w": rng.choice([0.0, 0.5, 2.0], n_rows), "id": np.arange(n_rows)}
    return pandas.DataFrame(columns)


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as connection:
        connection.execute("CREATE SCHEMA risk")
        yield connection


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.slow)])
def connect(request):
    """From a frame to a connection whose table risk.scores has its rows."""

    def in_duckdb(frame):
        connection = duckdb.connect()
        connection.execute("CREATE SCHEMA risk")
        connection.register("frame", frame)
        connection.execute("CREATE TABLE risk.scores AS SELECT * FROM frame")
        connection.unregister("frame")
        return connection

    def in_postgres(frame):
        connection = request.getfixturevalue("postgres")
        fill_postgres(connection, "risk.scores", frame)
        return connection

    return in_duckdb if request.param == "duckdb" else in_postgres


def read(connection, columns=COLUMNS, **options):
    return scan(connection, columns, table="risk.scores", **options)


def list_tables(connection):
    found = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
    return {name for (name,) in found if name.startswith("bylaw")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_is_that_of_rows_in_memory(name, connect):
    problem, frame = PROBLEMS[name], make_frame()
    rows = read(connect(frame))
    found, wanted = solve(problem, rows, tol=1e-8), solve(problem, COLUMNS.evidence(frame), tol=1e-8)
    assert found.solution.status is wanted.solution.status is Status.CONVERGED
    assert found.solution.value == pytest.approx(wanted.solution.value, rel=1e-9, abs=1e-9)
    assert found.beta == pytest.approx(wanted.beta, rel=1e-12)
    assert found.guarantee.sigma == pytest.approx(wanted.guarantee.sigma, rel=1e-9)
    assert found.guarantee.mean_norm == pytest.approx(wanted.guarantee.mean_norm, rel=1e-9)
    assert found.frequencies == pytest.approx(wanted.frequencies, rel=1e-12)
    evidence = COLUMNS.evidence(frame)
    np.testing.assert_allclose(found.probabilities(evidence), wanted.probabilities(evidence), atol=1e-4)
    assert rows.passes <= 6


OPTIONS = {
    "beside labels": (
        replace(COLUMNS, references={"last": "last"}, costs={}, options=["ask", "wait"]),
        Problem(
            error() + 0.2 * selected("ask"),
            [selected("wait") <= 0.1, disagreement("last") <= 0.5],
            decisions=[*LABELS, "ask", "wait"],
        ),
    ),
    "without labels": (
        Columns(
            groups={"sex": "sex"},
            references={"last": "last"},
            costs={"visit": ["c0", "c1", "c2"]},
            options=LABELS,
        ),
        Problem(
            custom("visit"),
            [disagreement("last") <= 0.5, demographic_parity("sex", tol=0.02), selected("yes") <= 0.3],
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_memory(connect, name):
    columns, problem = OPTIONS[name]
    frame = make_frame().replace({"last": {"reject": "wait"}}) if columns.classes else make_frame()
    found = solve(problem, read(connect(frame), columns), tol=1e-8)
    wanted = solve(problem, columns.evidence(frame), tol=1e-8)
    assert found.solution.value == pytest.approx(wanted.solution.value, rel=1e-9)
    distance = np.abs(
        found.probabilities(columns.evidence(frame)) - wanted.probabilities(columns.evidence(frame))
    )
    assert distance.mean() <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["known groups", "joint", "costs"])
def test_rows_have_weights(name, connect):
    problem, frame = PROBLEMS[name], make_frame()
    connection = connect(frame)
    found = solve(problem, read(connection, WEIGHTED), tol=1e-8)
    wanted = solve(problem, WEIGHTED.evidence(frame), tol=1e-8)
    assert found.solution.value == pytest.approx(wanted.solution.value, rel=1e-9, abs=1e-9)
    assert found.guarantee.sigma == pytest.approx(wanted.guarantee.sigma, rel=1e-9)
    assert found.guarantee.rows == wanted.guarantee.rows < len(frame)
    assert found.solution.value != pytest.approx(
        solve(problem, COLUMNS.evidence(frame)).solution.value, abs=1e-4
    )


@pytest.mark.parametrize("name", ["rejection", "joint", "costs", "sets"])
def test_every_sum_is_that_of_rows_in_memory(name, connect):
    """Also those that a solve does not ask for."""
    problem, frame = PROBLEMS[name], make_frame()
    table = read(connect(frame), WEIGHTED).survey(problem)
    form = compile_problem(problem, table.evidence)
    beta = 50 / np.ptp(form.base) if name != "costs" else 1e-4
    there = table.make_dual(form).with_beta(beta)
    here = Dual(form, make_blocks(form, WEIGHTED.evidence(frame)), beta)
    multipliers = np.random.default_rng(0).random(there.n_rules) * (1e5 if name == "costs" else 1)
    np.testing.assert_allclose(
        there.hessian(multipliers), here.hessian(multipliers), rtol=1e-7, atol=1e-9 * beta
    )
    np.testing.assert_allclose(*(one.best_responses([multipliers])[0] for one in (there, here)), rtol=1e-9)
    assert there.conflict(multipliers) == pytest.approx(here.conflict(multipliers), rel=1e-9)
    np.testing.assert_allclose(there.total(sum_features)[0], here.total(sum_features)[0], rtol=1e-9)
    ours, theirs = (measure_excesses(dual, multipliers) for dual in (there, here))
    for part in ("mass", "squared_mass", "value", "excesses", "scaled", "squares"):
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-8, err_msg=part)


@pytest.mark.slow
def test_most_groups_are_columns_where_cells_are_many(connect, monkeypatch):
    monkeypatch.setattr("bylaw.engines._databases._MOST_SUMMED_CELLS", 2)
    problem, frame = PROBLEMS["two known groups"], make_frame()
    found = solve(problem, read(connect(frame)), tol=1e-8)
    wanted = solve(problem, COLUMNS.evidence(frame), tol=1e-8)
    assert found.solution.value == pytest.approx(wanted.solution.value, abs=1e-9)


def test_a_sample_leads_near_the_answer(connect, monkeypatch):
    """Of more rows than a sample holds."""
    monkeypatch.setattr("bylaw.engines._sql_sums.SAMPLE_ROWS", 1500)
    problem, frame = PROBLEMS["known groups"], make_frame()
    rows = read(connection := connect(frame))
    found, wanted = solve(problem, rows, tol=1e-8), solve(problem, COLUMNS.evidence(frame), tol=1e-8)
    assert found.solution.value == pytest.approx(wanted.solution.value, abs=1e-9)
    assert 4 < rows.passes <= 12
    assert not list_tables(connection)


def test_temporary_tables_are_gone_when_something_fails(connect):
    def fail(step):
        raise RuntimeError("stop")

    connection = connect(make_frame())
    with pytest.raises(RuntimeError, match="stop"):
        solve(PROBLEMS["known groups"], read(connection), callback=fail)
    assert not list_tables(connection)


CONFLICT = Problem(error(), [selected("yes").given(sex="F") >= 0.7, selected("no") >= 0.8])


@pytest.mark.slow
def test_conflicts_are_diagnosed_by_sums(connect):
    frame = make_frame()
    connection = connect(frame)
    wanted = diagnose(CONFLICT, COLUMNS.evidence(frame))
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(CONFLICT, read(connection))
    for found in (caught.value.diagnosis, diagnose(CONFLICT, read(connection))):
        assert found.conflict == wanted.conflict
        assert found.relaxation == pytest.approx(wanted.relaxation, abs=1e-6)
        assert found.least == pytest.approx(wanted.least, abs=1e-6)
    fine = diagnose(PROBLEMS["known groups"], read(connection))
    assert fine.slack == pytest.approx(
        diagnose(PROBLEMS["known groups"], COLUMNS.evidence(frame)).slack, abs=1e-6
    )


BROKEN = {
    "no probability": ("p no", None, "1 row with no probability from 0 to 1 in 'p no'"),
    "no number": ("p no", np.nan, "'p no'"),
    "a logit": ("p maybe", 3.0, "'p maybe'; fill in missing values; if these are logits, apply softmax"),
    "another sum": ("p maybe", 0.99, "not summing to one"),
    "no group": ("sex", None, "no value in 'sex'; fill it in"),
    "an unseen label": ("last", "perhaps", "an unknown class in 'last'; it must be one of"),
    "no cost": ("c0", np.inf, "no finite number in 'c0'"),
    "a negative weight": ("w", -1.0, "an invalid weight in 'w'"),
    "a negative probability": ("p old", -0.5, "'p old'"),
    "other joint probabilities": ("old yes", 0.9, "'old no', 'old maybe', 'old yes', .* not summing to one"),
}
ALL = Problem(
    custom("visit"),
    [disagreement("last") <= 0.9, equalized_odds("age", tol=0.5), error().given(sex="F") <= 0.9],
)


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_cannot_be_used_are_named(what, connect):
    column, value, message = BROKEN[what]
    frame = make_frame(100).copy()
    frame.loc[7, column] = value
    with pytest.raises(EvidenceError, match=message):
        solve(ALL, read(connect(frame), WEIGHTED))


@pytest.mark.slow
def test_tables_that_cannot_be_used_are_named(connect):
    frame = make_frame(100)
    connection = connect(frame)
    with pytest.raises(EvidenceError, match=r"cannot read risk\.nothing"):
        scan(connection, COLUMNS, table="risk.nothing")
    with pytest.raises(EvidenceError, match="has no column 'q'"):
        read(connection, Columns(["p no", "q"]))
    with pytest.raises(OptionError, match="table= must be given for a database"):
        scan(connection, COLUMNS)
    with pytest.raises(EvidenceError, match="weights must be positive"):
        solve(ALL, read(connect(frame.assign(w=0.0)), WEIGHTED))
    rows = read(connect(make_frame().assign(**{"p old": 0.9, "p young": 0.1})))
    with pytest.raises(EvidenceError, match=r"must add up to the age .* in the same order"):
        solve(PROBLEMS["joint"], rows)
    with pytest.raises(EvidenceError, match="must have at least one row"):
        solve(ALL, read(connect(frame[:0])))
    ids = Columns(COLUMNS.probabilities, groups={"id": "id"})
    with pytest.raises(EvidenceError, match="must have at most 1,000 combinations"):
        solve(Problem(error(), [demographic_parity("id", tol=0.1)]), read(connect(make_frame()), ids))
    with pytest.raises(EvidenceError, match="no decisions of the earlier model 'none'"):
        solve(Problem(error(), [disagreement("none") <= 0.1]), read(connect(frame)))


def test_a_table_that_changes_is_noticed(connect, monkeypatch):
    connection = connect(make_frame())
    ask = SummedRows._ask

    def change(self, passes):
        connection.execute("DELETE FROM risk.scores WHERE id = 5")
        return ask(self, passes)

    monkeypatch.setattr(SummedRows, "_ask", change)
    with pytest.raises(EvidenceError, match=r"risk.scores was changed while its rows were read"):
        solve(PROBLEMS["known groups"], read(connection))


@pytest.mark.slow
def test_what_needs_rows_is_refused_and_pulled_rows_do(connect):
    frame = make_frame().assign(label=np.random.default_rng(0).choice(LABELS, 3000))
    connection, problem = connect(frame), PROBLEMS["known groups"]
    evidence, labelled = COLUMNS.evidence(frame), replace(COLUMNS, label="label")
    rows = read(connection)
    for options in (
        {"margin": 1.0},
        {"guarantee": "high_probability", "held_out": evidence},
        {"solver": "sgd3"},
    ):
        with pytest.raises(OptionError, match=r"for rows in a database, got .* pull=True"):
            solve(problem, rows, **options)
    with pytest.raises(OptionError, match="calibrate must be None for scanned rows"):
        solve(problem, rows, calibrate="auto")
    with pytest.raises(
        OptionError, match=r"rules on observed columns cannot be computed in a database.* pull=True"
    ):
        solve(problem, read(connection, labelled))
    with pytest.raises(OptionError, match=r"normalize the probabilities in the table.* pull=True"):
        solve(problem, read(connection, replace(COLUMNS, normalize=True)))
    computed = custom(lambda rows: rows.probabilities, name="f")
    with pytest.raises(OptionError, match=r"custom\('f'\) is a Python function.* pull=True"):
        solve(Problem(error(), [computed <= 1]), rows)
    assert rows.passes == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = Problem(error(), [equalized_odds("sex", tol=0.1)])
        found = solve(problem, read(connection, labelled, pull=True))
        wanted = solve(problem, evidence, labels=frame["label"], calibrate="none")
    assert found.solution.value == pytest.approx(wanted.solution.value, abs=1e-6)
    if isinstance(connection, psycopg.Connection):
        connection.rollback()


@pytest.mark.parametrize("name", ["joint", "costs"])
def test_pulled_rows_give_the_same_answer(name, connect):
    problem, frame = PROBLEMS[name], make_frame()
    connection = connect(frame)
    rows = read(connection, pull=True)
    found, wanted = solve(problem, rows, tol=1e-8), solve(problem, COLUMNS.evidence(frame), tol=1e-8)
    assert found.solution.value == pytest.approx(wanted.solution.value, rel=1e-9)
    assert found.fingerprints[0].rows == len(frame)
    if isinstance(connection, psycopg.Connection):
        connection.rollback()
        connection.execute("UPDATE risk.scores SET w = 1")
        with pytest.raises(EvidenceError, match="scan it again"):
            solve(problem, rows)
        connection.rollback()


@pytest.mark.slow
def test_all_pulled_rows_are_of_one_snapshot(postgres):
    fill_postgres(postgres, "risk.scores", make_frame())
    with psycopg.connect(postgres.info.dsn, autocommit=False) as other:
        other.execute("SELECT 1")
        with pytest.raises(OptionError, match="rows may change between statements; commit it"):
            solve(PROBLEMS["known groups"], read(other, pull=True))
    with psycopg.connect(postgres.info.dsn) as other:
        rows = read(other, pull=True)
        before = solve(PROBLEMS["known groups"], rows)
        postgres.execute("DELETE FROM risk.scores WHERE sex = 'F' AND id % 2 = 0")
        assert solve(PROBLEMS["known groups"], rows).digest == before.digest
        other.rollback()


def test_progress_is_told_of_every_pass(connect):
    told = []
    rows = read(connect(make_frame()), progress=told.append)
    solve(PROBLEMS["known groups"], rows)
    assert [each.number for each in told] == list(range(1, rows.passes + 1))
    assert {each.rows for each in told[1:]} == {3000}


@pytest.mark.slow
def test_the_callers_transaction_is_left_as_it_was(postgres):
    fill_postgres(postgres, "risk.scores", make_frame())
    with psycopg.connect(postgres.info.dsn) as other:
        solve(PROBLEMS["known groups"], read(other))
        assert other.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        other.execute("CREATE TABLE risk.mine (x int)")
        with pytest.raises(EvidenceError):
            solve(ALL, read(other, replace(WEIGHTED, weights="c0", probabilities=["w", "c1", "c2"])))
        assert other.execute("SELECT COUNT(*) FROM risk.mine").fetchone() == (0,)
        other.rollback()


@pytest.mark.slow
def test_duckdb_reads_files_views_and_relations(tmp_path):
    frame, problem = make_frame(), PROBLEMS["known groups"]
    wanted = solve(problem, COLUMNS.evidence(frame), tol=1e-8).solution.value
    frame[:1000].to_parquet(tmp_path / "a.parquet")
    frame[1000:].to_parquet(tmp_path / "b.parquet")
    connection = duckdb.connect()
    files = f"read_parquet('{tmp_path}/*.parquet')"
    connection.execute(f"CREATE VIEW scores AS SELECT * FROM {files}")
    sources = [
        scan(connection, COLUMNS, table=files),
        scan(connection, COLUMNS, table="scores"),
        scan(connection.sql(f"SELECT * FROM {files}"), COLUMNS),
        scan(connection.sql(f"SELECT * FROM {files}"), COLUMNS, pull=True),
    ]
    for rows in sources:
        assert solve(problem, rows, tol=1e-8).solution.value == pytest.approx(wanted, abs=1e-9)


def test_a_policy_of_unseen_rows_says_that_they_have_no_fingerprint(connect, tmp_path):
    policy = solve(PROBLEMS["known groups"], read(connect(make_frame())))
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.guarantee.rows == 3000
    assert "risk.scores" in loaded.card.source
    assert "no fingerprint" in loaded.card.source


@pytest.mark.slow
def test_the_snippet_for_postgres_runs(postgres, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "larger_than_memory.md"
    (snippet,) = re.findall(r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    frame = make_frame().rename(columns={"p old": "p_no", "p young": "p_yes"})
    fill_postgres(postgres, "risk.scores", frame[["p_no", "p_yes", "sex"]].assign(weight=1 + frame["w"]))
    for variable, name in {"PGHOST": "host", "PGUSER": "user", "PGDATABASE": "dbname"}.items():
        monkeypatch.setenv(variable, getattr(postgres.info, name))
    namespace: dict = {}
    exec(compile(snippet, page.name, "exec"), namespace)
    assert namespace["policy"].solution.status is Status.CONVERGED


@pytest.mark.slow
def test_tiny_numbers_do_not_underflow(connect):
    """Which PostgreSQL refuses."""
    frame = make_frame().copy()
    tiny = frame.index % 7 == 0
    frame.loc[tiny, COLUMNS.probabilities] = [1e-90, 1e-300, 1.0]
    frame.loc[tiny, "c0"] = 1e-99
    frame["w"] = np.where(tiny, 1e-49, frame["w"])
    for problem in (
        Problem(error(), [custom("visit").given(label="no") <= 6e5]),
        Problem(error(), [equalized_odds("sex", tol=0.05)]),
    ):
        found = solve(problem, read(connect(frame), WEIGHTED), tol=1e-8)
        wanted = solve(problem, WEIGHTED.evidence(frame), tol=1e-8)
        assert found.solution.value == pytest.approx(wanted.solution.value, abs=1e-9)


@pytest.mark.slow
def test_without_temporary_tables_postgres_says_what_to_do(postgres):
    fill_postgres(postgres, "risk.scores", make_frame())
    with psycopg.connect(postgres.info.dsn, autocommit=True) as other:
        other.execute("SET default_transaction_read_only = on")
        with pytest.raises(OptionError, match=r"temporary table, which is not allowed .* pull=True"):
            solve(PROBLEMS["known groups"], read(other))


@pytest.mark.slow
def test_connections_that_do_not_serve_are_refused(postgres):
    with pytest.raises(OptionError, match="table= must be left out for a DuckDB relation"):
        scan(duckdb.connect().sql("SELECT 0.5 AS a, 0.5 AS b"), Columns(["a", "b"]), table="t")
    with pytest.raises(OptionError, match=r"must be a psycopg\.Connection, got Cursor"):
        scan(postgres.cursor(), COLUMNS, table="risk.scores")


def test_columns_of_other_types_are_refused(connect):
    connection = connect(make_frame(10))
    for columns in (Columns(["sex", "p no"]), Columns(["p no", "p maybe"], references={"last": "s0"})):
        with pytest.raises(EvidenceError, match="must have the types that their roles require"):
            solve(Problem(error(), [disagreement("last") <= 1]), read(connection, columns))


@pytest.mark.slow
def test_more_sums_than_an_answer_has_columns(connect):
    """Of odds among 9 classes there are 2,025 products of two places."""
    labels = [f"p{k}" for k in range(9)]
    frame = pandas.DataFrame(np.random.default_rng(0).dirichlet(np.ones(9), 200), columns=labels)
    frame["sex"] = np.where(frame.index % 2, "F", "M")
    columns = Columns(labels, groups={"sex": "sex"})
    problem = Problem(error(), [equalized_odds("sex", tol=0.5)])
    table = read(connect(frame), columns).survey(problem)
    form = compile_problem(problem, table.evidence)
    multipliers = np.random.default_rng(0).random(len(form.bounds))
    there = table.make_dual(form).with_beta(20.0).hessian(multipliers)
    here = Dual(form, make_blocks(form, columns.evidence(frame)), 20.0).hessian(multipliers)
    np.testing.assert_allclose(there, here, atol=1e-7)


@pytest.mark.slow
def test_more_columns_than_postgres_has_are_refused(postgres):
    labels = [f"p{k}" for k in range(700)]
    frame = pandas.DataFrame(np.full((3, 700), 1 / 700), columns=labels)
    fill_postgres(postgres, "risk.scores", frame)
    with pytest.raises(OptionError, match=r"cannot sum so many columns at once .* pull=True"):
        solve(Problem(error(), [rejected() <= 0.1]), read(postgres, Columns(labels)))


@pytest.mark.slow
def test_few_passes_over_many_rows():
    """4 groups, 5 classes."""
    rng, n_rows, labels = np.random.default_rng(0), 20_000, list("abcde")
    group = rng.integers(0, 4, n_rows)
    chances = rng.gamma(1 + np.eye(5)[group])
    frame = pandas.DataFrame(chances / chances.sum(axis=1, keepdims=True), columns=labels)
    connection = duckdb.connect()
    connection.register("frame", frame.assign(group=group))
    connection.execute("CREATE TABLE scores AS SELECT * FROM frame")
    parity = demographic_parity("group", tol=0.02)
    for rules in ([parity], [parity, rejected() <= 0.1], [equalized_odds("group", tol=0.03)]):
        rows = scan(connection, Columns(labels, groups={"group": "group"}), table="scores")
        assert solve(Problem(error(), rules), rows).solution.status is Status.CONVERGED
        assert rows.passes <= 6
