"""Names that reorder text: exact where they are data, escaped where people read them. Secrets: nowhere."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas
import pytest

from bylaw import Columns, Evidence, OptionError, Problem, error, miscoverage, rejected, size, solve
from bylaw.export import onnx_model, to_python, to_sql
from bylaw.scoring import write_comment
from helpers.databases import in_duckdb, in_postgres, postgres_server
from helpers.hostile import CONTROLS, DIRECTIONS, HIDDEN, SURROGATES, UNSEEN, hostile_policy, hostile_rows

DIALECTS = ["duckdb", "postgres", "bigquery", "snowflake", "spark"]
SECRET = "5f0c3a1b97e24d6c8b5f0c3a1b97e24d"


def columns_of(evidence):
    name = next(iter(evidence.groups))
    return Columns(["p_0", "p_1"], classes=evidence.classes, groups={name: "group"})


def frame_of(evidence):
    group = next(iter(evidence.known_groups.values()))
    values = np.array(group.values, dtype=object)[group.codes]
    ids = [f"id {i}" for i in range(len(evidence))]
    p_0, p_1 = evidence.probabilities.T
    return pandas.DataFrame({"id": ids, "p_0": p_0, "p_1": p_1, "group": values})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_comments_of_sql_hold_nothing_that_reorders_them(dialect):
    policy, evidence = hostile_policy(), hostile_rows()
    statement = to_sql(policy, columns_of(evidence), dialect=dialect, table="rows", id_column="id")
    comments = [line for line in statement.splitlines() if line.lstrip().startswith("--")]
    assert len(comments) > 4
    assert not any(HIDDEN.search(line) for line in comments)


@pytest.mark.parametrize("write", [write_comment, partial(write_comment, mark="#")])
@pytest.mark.parametrize("text", [*DIRECTIONS, *CONTROLS, *UNSEEN])
def test_a_comment_is_one_line_of_what_can_be_seen(write, text):
    line = write(f"before {text} after")
    assert not HIDDEN.search(line)
    assert len(line.splitlines()) == 1


def test_decisions_of_sql_are_exact():
    policy, evidence = hostile_policy(), hostile_rows()
    statement = to_sql(policy, columns_of(evidence), dialect="duckdb", table="rows", id_column="id")
    frame = frame_of(evidence)
    answers = in_duckdb(statement, frame)
    assert answers["decision"].tolist() == policy.decide(evidence, ids=frame["id"]).tolist()


def test_a_python_module_has_names_as_escapes():
    policy, evidence = hostile_policy(), hostile_rows()
    source = to_python(policy, columns_of(evidence))
    assert not HIDDEN.search(source)
    module = {}
    exec(source, module)
    frame = frame_of(evidence)
    decided = [module["decide"](row, row["id"]) for row in frame.to_dict("records")]
    assert decided == policy.decide(evidence, ids=frame["id"]).tolist()
    with pytest.raises(ValueError, match="key must not be empty"):
        module["decide"](frame.to_dict("records")[0], "id", key="")


def test_an_onnx_model_takes_names_as_they_are():
    assert onnx_model(hostile_policy())


@pytest.mark.parametrize("name", SURROGATES)
def test_halves_of_characters_in_names_of_columns_are_refused(name):
    evidence = Evidence([[0.4, 0.6], [0.2, 0.8]])
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    fine = {"columns": Columns(["a", "b"], classes=[0, 1]), "table": "rows", "id_column": "id"}
    for bad in (
        {"columns": Columns(["a", name], classes=[0, 1])},
        {"table": name},
        {"id_column": name},
        {"key": name},
        {"keep": [name]},
    ):
        with pytest.raises(OptionError, match="lone surrogate"):
            to_sql(policy, dialect="duckdb", **{**fine, **bad})
    to_python(policy, Columns(["a", name], classes=[0, 1])).encode()


def made_of(sets):
    scores = np.random.default_rng(1).random(300)
    evidence = Evidence(np.column_stack([1 - scores, scores]), classes=["50 %", "%(key)s"])
    rules = [miscoverage() <= 0.1] if sets else [rejected() <= 0.2]
    policy = solve(Problem(size() if sets else error(), rules), evidence, beta=5.0)
    frame = pandas.DataFrame({"id": np.arange(300), "p_0": 1 - scores, "p_1": scores})
    return policy, evidence, frame


@pytest.mark.parametrize("sets", [False, True])
@pytest.mark.parametrize(
    ("placeholder", "values"), [("$key", {"key": SECRET}), ("?", [SECRET]), ("$1", [SECRET])]
)
def test_a_secret_key_is_a_parameter_of_sql(sets, placeholder, values):
    import duckdb

    policy, evidence, frame = made_of(sets)
    columns = Columns(["p_0", "p_1"], classes=evidence.classes)
    statement = to_sql(
        policy, columns, dialect="duckdb", table="rows", id_column="id", key_parameter=placeholder
    )
    assert policy.digest + "/" not in statement
    with duckdb.connect() as connection:
        connection.register("rows", frame)
        answers = connection.execute(statement, values).df()
    expected = policy.decide(evidence, ids=frame["id"], key=SECRET)
    assert (expected != policy.decide(evidence, ids=frame["id"])).any()
    decided = answers[[f"in_{label}" for label in policy.actions]] if sets else answers["decision"]
    assert (decided.to_numpy() == expected).all()


@pytest.mark.slow
def test_a_secret_key_is_a_parameter_of_postgres():
    policy, evidence, frame = made_of(False)
    columns = Columns(["p_0", "p_1"], classes=evidence.classes)
    expected = policy.decide(evidence, ids=frame["id"], key=SECRET).tolist()
    options = {"dialect": "postgres", "table": "rows", "id_column": "id"}
    with postgres_server() as connection:
        in_postgres(connection, "SELECT 1 AS one", frame)  # makes the table
        for placeholder, values in (("%s", [SECRET]), ("%(key)s", {"key": SECRET})):
            statement = to_sql(policy, columns, **options, key_parameter=placeholder)
            rows = sorted(connection.execute(statement, values).fetchall())
            assert [row[-1] for row in rows] == expected


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("placeholder", ["?", "$1", "$key", ":key", "@key", "%s", "%(key)s"])
@pytest.mark.parametrize("sets", [False, True])
def test_the_parameter_occurs_once(dialect, placeholder, sets):
    policy, evidence, _ = made_of(sets)
    columns = Columns(["p_0", "p_1"], classes=evidence.classes)
    statement = to_sql(
        policy, columns, dialect=dialect, table="rows", id_column="id", key_parameter=placeholder
    )
    assert "\0" not in statement
    if placeholder.startswith("%"):
        assert re.findall(r"%(?:\(\w+\))?s", statement.replace("%%", "")) == [placeholder]
    else:
        assert statement.count(f"CAST({placeholder} AS") == 1
        assert "50 %" in statement
        assert "50 %%" not in statement


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_parameter": SECRET}, "not the key itself"),
        ({"key_parameter": "$1; DROP TABLE rows"}, "placeholder"),
        ({"key_parameter": "$key", "key": "release"}, "must not be given together"),
        ({"key_parameter": "$key", "id_column": None}, "no effect without id_column"),
        ({"key": ""}, "the secret is set"),
    ],
)
def test_keys_that_make_no_sense(options, message):
    policy, evidence, _ = made_of(False)
    columns = Columns(["p_0", "p_1"], classes=evidence.classes)
    with pytest.raises(OptionError, match=message) as refused:
        to_sql(policy, columns, **{"dialect": "duckdb", "table": "rows", "id_column": "id", **options})
    assert SECRET not in str(refused.value)
