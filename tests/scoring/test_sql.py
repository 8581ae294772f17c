"""Exported statements, run by DuckDB and PostgreSQL; what the others would read, parsed."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas
import pytest
import sqlglot
from hypothesis import given, strategies as st

from bylaw import Columns, Evidence, OptionError, Policy, Problem, custom, error, solve
from bylaw.export import to_sql
from bylaw.language import LABEL, CostColumn
from bylaw.scoring import DIALECTS
from bylaw.scoring._printers import write_sum
from helpers.databases import in_duckdb, in_postgres, postgres_server
from helpers.export_cases import (
    AWKWARD,
    AWKWARD_CASES,
    REAL_CASES,
    TOLERANCE,
    Case,
    awkward as awkward_case,
    check,
)

CASES = {**AWKWARD_CASES, **REAL_CASES}


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as connection:
        yield connection


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.slow)])
def database(request):
    """A dialect, and what runs it: statement, frame -> frame."""
    if request.param == "duckdb":
        return "duckdb", in_duckdb
    connection = request.getfixturevalue("postgres")
    return "postgres", lambda statement, frame: in_postgres(connection, statement, frame)


def answers(case: Case, database, frame=None, **options):
    """The distribution (n_rows, n_actions) and the decisions of the rows, in their order."""
    dialect, run = database
    options = {"id_column": "id", **options}
    statement = to_sql(case.policy, case.columns, dialect=dialect, table="rows", **options)
    result = run(statement, case.frame if frame is None else frame)
    result = result.set_index("id").loc[(case.frame if frame is None else frame)["id"]]
    count = len(case.policy.actions)
    decisions = result.iloc[:, count:].to_numpy()
    if decisions.shape[1] == 1:
        decisions = decisions[:, 0]
    return result.iloc[:, :count].to_numpy().astype(float), decisions


def as_decided(case: Case, decisions):
    """Decisions of several types are text."""
    if len({type(action) for action in case.policy.actions}) > 1:
        names = {str(action): action for action in case.policy.actions}
        return np.array([names[decision] for decision in decisions], dtype=object)
    return decisions


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_law_and_every_decision_are_the_policys(name, database):
    case = CASES[name]()
    distribution, decisions = answers(case, database)
    check(case, distribution, as_decided(case, decisions))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*list(AWKWARD_CASES)[::4], "without_chance"])
def test_another_key(name, database):
    case = CASES[name]()
    key = "release 'ü' \\ 2"
    distribution, decisions = answers(case, database, key=key)
    check(case, distribution, as_decided(case, decisions), key)
    assert (case.decisions(key) != case.decisions()).any() or name in ("decided", "without_chance")


def test_decisions_alone():
    case = AWKWARD_CASES["sets"]()
    options = {"dialect": "duckdb", "table": "rows", "probabilities": False}
    alone = in_duckdb(to_sql(case.policy, case.columns, id_column="id", **options), case.frame)
    assert list(alone.columns) == ["id", *(f"in_{label}" for label in case.policy.actions)]
    assert (alone.set_index("id").loc[case.frame["id"]].to_numpy() == case.decisions()).all()
    with pytest.raises(OptionError, match="id_column must be given if probabilities=False"):
        to_sql(case.policy, case.columns, **options)


def list_parts(case, feature):
    """The kinds of columns that a feature is computed from."""
    attributes, event = case.policy.feature_map.attributes, dict(feature.event)
    label = event.pop(LABEL, None) is not None
    hidden = any(not attributes[name].known for name in event)
    if any(attributes[name].known for name in event):
        yield "a known group"
    if hidden or label:
        yield "joint" if hidden and label else "groups" if hidden else "probabilities"
    if isinstance(feature.source, CostColumn):
        yield "costs"
    elif feature.source is not None:
        roles = case.columns.references[feature.source.name]
        yield "an earlier label" if isinstance(roles, str) else "references"


def test_the_cases_weigh_every_kind_of_column():
    seen = set()
    for build in AWKWARD_CASES.values():
        features = zip(build().policy.feature_map.features, build().policy.score_matrix, strict=True)
        seen |= {
            part for feature, weights in features if weights.any() for part in list_parts(build(), feature)
        }
    numbers = {"probabilities", "groups", "joint", "references", "costs"}
    assert seen == {*numbers, "a known group", "an earlier label"}


@pytest.mark.slow
def test_postgres_of_old_habits_reads_the_same(postgres):
    """With this setting backslashes escape in every text."""
    case = awkward_case()
    with warnings.catch_warnings():
        postgres.execute("SET standard_conforming_strings = off")
        try:
            distribution, decisions = answers(
                case, ("postgres", lambda text, frame: in_postgres(postgres, text, frame))
            )
        finally:
            postgres.execute("SET standard_conforming_strings = on")
    check(case, distribution, decisions)


BROKEN = {
    "an unseen value": ("sex", "X"),
    "no value": ("sex", None),
    "an unseen number": ("dept", 7),
    "an unseen label of the earlier model": ("old", 9),
    "no probability": ("p1", None),
    "no number": ("p1", np.nan),
    "a negative probability": ("p0", -0.01),
    "probabilities that do not sum to one": ("p2", 0.99999),
    "group probabilities that do not sum to one": ("race b", 0.999),
    "joint probabilities that do not sum to one": ("j01", 0.999),
    "no cost": ("c3", None),
    "an infinite cost": ("c2", np.inf),
    "a huge probability": ("p0", 1e300),
}


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_the_policy_refuses_get_null(what, database):
    case = AWKWARD_CASES["everything"]()
    column, value = BROKEN[what]
    frame = case.frame.copy()
    if value is None and frame[column].dtype.kind != "f":
        frame[column] = frame[column].astype(object)
    frame.loc[5, column] = value
    with pytest.raises(Exception, match=r"\w"):
        case.policy.probabilities(case.columns.evidence(frame))
    distribution, decisions = answers(case, database, frame)
    assert np.isnan(distribution[5]).all()
    assert decisions[5] is None
    others = np.arange(len(frame)) != 5
    assert np.abs(distribution[others] - case.distribution[others]).max() <= TOLERANCE
    assert (as_decided(case, decisions[others]) == case.decisions()[others]).all()


def test_a_set_of_a_row_that_is_refused_is_null(database):
    case = AWKWARD_CASES["sets"]()
    frame = case.frame.copy()
    frame.loc[0, "a"] = 0.9999
    distribution, inside = answers(case, database, frame)
    assert np.isnan(distribution[0]).all()
    assert list(inside[0]) == [None] * 6


def test_rows_without_an_id_are_not_decided(database):
    case = AWKWARD_CASES["sets"]()
    frame = case.frame[:2].copy()
    frame.loc[1, "id"] = None
    dialect, run = database
    result = run(to_sql(case.policy, case.columns, dialect=dialect, table="rows", id_column="id"), frame)
    lost = result[result["id"].isna()]
    assert lost.filter(like="in_").isna().all(axis=None)
    assert lost.filter(like="p_").notna().all(axis=None)


def test_scores_that_overflow_are_not_decided():
    case = AWKWARD_CASES["everything"]()
    frame = case.frame.copy()
    frame.loc[3, ["c0", "c1", "c2", "c3"]] = [1e308, -1e308, 1e308, -1e308]
    distribution, decisions = answers(case, ("duckdb", in_duckdb), frame)
    assert np.isnan(distribution[3]).all()
    assert decisions[3] is None


def test_earlier_models_with_numbers_may_reject(database):
    """Then their column is of text, such as the decisions of an earlier export."""
    case = AWKWARD_CASES["everything"]()
    old = case.frame["old"].astype(object)
    old[::3] = "reject"
    evidence = replace_reference(case.evidence, old)
    distribution, _ = answers(case, database, case.frame.assign(old=old.astype(str)))
    assert np.abs(distribution - case.policy.probabilities(evidence)).max() <= TOLERANCE
    assert np.abs(distribution - case.distribution).max() > 0.01


def test_numbers_of_earlier_models_may_come_as_floats(database):
    """As pandas makes them of a column with gaps."""
    case = AWKWARD_CASES["everything"]()
    distribution, _ = answers(case, database, case.frame.assign(old=case.frame["old"].astype(float)))
    assert np.abs(distribution - case.distribution).max() <= TOLERANCE


def replace_reference(evidence, labels):
    other = Evidence(evidence.probabilities, references={"old": labels.to_numpy()})
    return evidence.with_columns(references=other.references)


def test_columns_are_kept_and_named(database):
    case = AWKWARD_CASES["everything"]()
    dialect, run = database
    statement = to_sql(case.policy, case.columns, dialect=dialect, table="rows", keep=["sex", "old"])
    result = run(statement, case.frame)
    assert list(result) == ["sex", "old", "p_0", "p_1", "p_2", "p_reject"]
    statement = to_sql(case.policy, case.columns, dialect=dialect, table="rows", id_column="id", keep=["sex"])
    result = run(statement, case.frame)
    assert list(result) == ["id", "sex", "p_0", "p_1", "p_2", "p_reject", "decision"]
    assert (result.set_index("id").sex.loc[case.frame.id].to_numpy() == case.frame.sex).all()


def test_names_that_differ_by_case_stay_apart():
    P = np.random.default_rng(0).dirichlet([1, 1, 1], 50)
    frame = pandas.DataFrame({"id": range(50), "x": P[:, 0], "y": P[:, 1], "z": P[:, 2]})
    columns = Columns(["x", "y", "z"], classes=["yes", "Yes", "1"])
    policy = solve(Problem(error()), columns.evidence(frame))
    result = in_duckdb(to_sql(policy, columns, dialect="duckdb", table="rows", id_column="id"), frame)
    assert list(result) == ["id", "p_yes", "p_Yes_2", "p_1", "decision"]


def test_no_number_makes_a_name_that_of_another_class():
    P = np.random.default_rng(0).dirichlet([1, 1, 1], 50)
    frame = pandas.DataFrame({"id": range(50), "x": P[:, 0], "y": P[:, 1], "z": P[:, 2]})
    columns = Columns(["x", "y", "z"], classes=["A", "a", "a_2"])
    policy = solve(Problem(error()), columns.evidence(frame), beta=5.0)
    result = in_duckdb(to_sql(policy, columns, dialect="duckdb", table="rows", id_column="id"), frame)
    assert list(result) == ["id", "p_A", "p_a_3", "p_a_2", "decision"]
    distribution = policy.probabilities(columns.evidence(frame))
    shown = result.sort_values("id")["p_a_2"].to_numpy(float)
    np.testing.assert_allclose(shown, distribution[:, 2], atol=TOLERANCE)


def test_qualified_tables():
    case = AWKWARD_CASES["decided"]()
    options = {"dialect": "postgres", "id_column": "id"}
    assert 'FROM "my ""schema"""."t"\n' in to_sql(case.policy, case.columns, table='my "schema".t', **options)
    assert 'FROM "a.b"."t"\n' in to_sql(case.policy, case.columns, table=["a.b", "t"], **options)


def test_the_statement_says_what_it_is():
    case = AWKWARD_CASES["everything"]()
    statement = to_sql(case.policy, case.columns, dialect="duckdb", table="rows")
    assert f"-- digest {case.policy.digest}" in statement
    assert "-- subject to rejected() <= 0.1" in statement
    assert "-- P(race='b', sex='F')" in statement


def test_saved_policies_write_the_same(tmp_path):
    case = AWKWARD_CASES["everything"]()
    case.policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    options = {"dialect": "duckdb", "table": "rows", "id_column": "id"}
    assert to_sql(loaded, case.columns, **options) == to_sql(case.policy, case.columns, **options)


# The other three are parsed, and run as DuckDB would say it.

CLOUD = ["bigquery", "snowflake", "spark"]


def as_double(node):
    """Numbers such as 0.1 are floats for BigQuery, decimals for DuckDB."""
    if isinstance(node, sqlglot.exp.Literal) and not node.is_string and "." in node.this:
        return sqlglot.exp.cast(sqlglot.exp.Literal.string(node.this), "double")
    return node


def cloud_case(name):
    return awkward_case(names=False) if name == "awkward" else CASES[name]()


# What sqlglot cannot translate: the ways to read hex digits.
HEXADECIMAL = "CREATE MACRO hexadecimal(digits, a, b := 0) AS CAST('0x' || digits AS BIGINT)"


# Each case in one dialect, one after the other, and two of them in all.
IN_CLOUD = {(name, CLOUD[i % len(CLOUD)]): None for i, name in enumerate(AWKWARD_CASES)}
IN_CLOUD |= {(name, dialect): None for name in ("everything", "awkward") for dialect in CLOUD}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dialect"), IN_CLOUD)
def test_translated_statements_decide_alike(name, dialect):
    case = cloud_case(name)

    def translated(statement, frame):
        statement = statement.replace("TO_NUMBER(", "hexadecimal(").replace("conv(", "hexadecimal(")
        parsed = sqlglot.parse_one(statement, read=dialect).transform(as_double)
        return in_duckdb(parsed.sql("duckdb"), frame, HEXADECIMAL)

    distribution, decisions = answers(case, (dialect, translated))
    check(case, distribution, as_decided(case, decisions))


@pytest.mark.parametrize(("name", "dialect"), IN_CLOUD)
def test_keyed_statements_parse(name, dialect):
    case = cloud_case(name)
    statement = to_sql(case.policy, case.columns, dialect=dialect, table="rows", id_column="id", key="k'\\")
    [parsed] = sqlglot.parse(statement, read=dialect)
    texts = {node.this for node in parsed.find_all(sqlglot.exp.Literal) if node.is_string}
    assert "k'\\/" in texts
    if name == "awkward":
        assert set(AWKWARD) <= texts


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15))
def test_any_text_stays_between_its_quotes(dialect, text):
    language = DIALECTS[dialect]
    [literal] = sqlglot.parse(f"SELECT {language.write_literal(text)} AS x", read=dialect)
    if "${" not in text:  # sqlglot reads no \u0024
        assert literal.expressions[0].this.this == text
    try:
        quoted = language.quote_name(text)
    except OptionError:
        assert "${" in text
    else:
        # sqlglot knows no backslashes in names; DuckDB and PostgreSQL are asked themselves.
        inner = quoted[1:-1]
        mark = "\\`" if dialect == "bigquery" else 2 * quoted[0]
        assert quoted[0] not in inner.replace("\\\\", "").replace(mark, "")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back_to_the_last_bit(number):
    import duckdb

    assert duckdb.sql(f"SELECT {DIALECTS['duckdb'].write_literal(number)}").fetchall() == [(number,)]


@pytest.mark.slow
def test_numbers_read_back_in_postgres(postgres):
    numbers = np.random.default_rng(0).normal(size=200) * 10.0 ** np.random.default_rng(1).integers(
        -290, 290, 200
    )
    literals = ", ".join(map(DIALECTS["postgres"].write_literal, numbers.tolist()))
    assert postgres.execute(f"SELECT {literals}").fetchone() == tuple(numbers.tolist())


def refused(match, case=None, **options):
    case = case or AWKWARD_CASES["everything"]()
    options = {"columns": case.columns, "dialect": "duckdb", "table": "rows", **options}
    with pytest.raises(OptionError, match=match):
        to_sql(case.policy, options.pop("columns"), **options)


def test_what_is_missing_is_said_by_name():
    columns = AWKWARD_CASES["everything"]().columns
    groups = dict(columns.groups)
    lacking = {name: column for name, column in groups.items() if name != "sex"}
    refused("groups must have columns for 'sex'", columns=replace(columns, groups=lacking))
    refused(
        r"groups\['sex'\] must be one column, because",
        columns=replace(columns, groups={**groups, "sex": {"F": "p0"}}),
    )
    refused(
        "because the policy was fitted with probabilities",
        columns=replace(columns, groups={**groups, "race": "sex"}),
    )
    refused("one column for each value", columns=replace(columns, groups={**groups, "race": {"b": "race b"}}))
    refused(r"P\(race, label \| x\)", columns=replace(columns, joint={}))
    refused("column of labels for 'old'", columns=replace(columns, references={}))
    refused("one column per class", columns=replace(columns, references={"old": ["p0"]}))
    refused(r"custom\('visit'\)", columns=replace(columns, costs={"visit": ["c0"]}))
    refused("in this order", columns=replace(columns, classes=[2, 1, 0]))
    refused("in this order", columns=replace(columns, classes=None))
    together = AWKWARD_CASES["unknown_together"]()
    apart = {"sex": {"F": "x", "M": "y"}, "race": {1: "a", 2: "b", 3: "c"}}
    refused("depends jointly on race and sex", together, columns=replace(together.columns, groups=apart))


def test_options_that_make_no_sense():
    refused("dialect must be one of", dialect="oracle")
    refused("no effect without id_column", key="k")
    refused("key must be text, got a value of type int", id_column="id", key=5)
    refused("list of columns", keep="sex")
    refused("not empty", table="")
    refused("not empty", table="a..b")
    refused("not empty", table="a\0b")
    refused("must have at most 63 bytes", dialect="postgres", keep=["ü" * 32])
    refused("must differ from the columns of the result, got 'P_reject'", keep=["P_reject"])
    refused("must differ from the columns of the result, got 'decision'", id_column="decision")
    refused("variable", AWKWARD_CASES["awkward"](), dialect="spark")


def test_functions_stay_in_python():
    evidence = Evidence([[0.2, 0.8]] * 3)
    policy = solve(Problem(error() + custom(lambda rows: rows.probabilities, name="f")), evidence)
    with pytest.raises(OptionError, match="cannot be exported"):
        to_sql(policy, Columns(["a", "b"], classes=[0, 1]), dialect="duckdb", table="rows")


def test_comments_are_one_line():
    for dialect in DIALECTS:
        for name in AWKWARD_CASES:
            case = cloud_case(name)
            statement = to_sql(case.policy, case.columns, dialect=dialect, table="rows")
            for line in statement.splitlines():
                assert not re.search(r"--.*\\$", line)


@pytest.mark.slow
def test_long_sums_are_nested_and_complete():
    """Some databases refuse expressions that nest as deep as a sum is long."""
    terms = [f"t{i}" for i in range(250)]
    text = write_sum(terms)
    assert re.findall(r"t\d+", text) == terms
    depth = text.count("(")
    assert depth == 3
    assert write_sum(terms[:3]) == "t0 + t1 + t2"
