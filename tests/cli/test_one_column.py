"""One column of scores for two classes, in every command that reads a table."""

from __future__ import annotations

import json
import runpy

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Evidence, Policy

RULES = ("--rule", "demographic_parity('sex', tol=0.02)", "--rule", "rejected() <= 0.1")


def keep_one(name, column="p_yes", called="score"):
    """The table with one column of scores, and the same as CSV."""
    rows = parquet.read_table(f"{name}.parquet")
    others = [other for other in ("p_no", "p_yes") if other != column]
    rows = rows.drop_columns(others)
    names = [called if other == column else other for other in rows.column_names]
    parquet.write_table(rows.rename_columns(names), f"one_{name}.parquet")


@pytest.fixture
def one(policy, bylaw):
    """A policy that was fitted on one column."""
    for name in ("scores", "new", "held"):
        keep_one(name)
    fit = bylaw("fit", "one_scores.parquet", "--positive", "yes", *RULES, "-o", "one.json")
    assert fit.code == 0, fit.err
    assert "the probability of 'yes' is the column score" in fit.err
    return "one.json"


def test_it_is_the_policy_of_two_columns(one, policy):
    single, both = Policy.load(one), Policy.load(policy)
    assert single.action_space == both.action_space
    np.testing.assert_allclose(single.score_matrix, both.score_matrix, atol=1e-12)
    assert single.card.columns["probabilities"] == ["score"]
    assert (single.card.columns["classes"], single.card.columns["positive"]) == (["no", "yes"], "yes")


@pytest.mark.slow
def test_every_command_reads_it(one, policy, bylaw):
    for table, name in (("new.parquet", "policy.json"), ("one_new.parquet", one)):
        key = ("--key", "the same")
        assert bylaw("decide", name, table, "-o", f"{name}.parquet", "--probabilities", *key).code == 0
    first, second = (parquet.read_table(f"{name}.parquet") for name in ("policy.json", one))
    assert first["decision"] == second["decision"]
    np.testing.assert_allclose(first["decision_p_yes"], second["decision_p_yes"], atol=1e-9)
    said = [
        json.loads(bylaw("explain", name, table, "--row", "7", "--json").out)["actions"]
        for name, table in (("policy.json", "new.parquet"), (one, "one_new.parquet"))
    ]
    assert [line["score"] for line in said[0]] == pytest.approx([line["score"] for line in said[1]])
    row = bylaw("explain", one, "--row", '{"score": 0.7, "sex": "F"}')
    assert row.code == 0, row.err
    for command in (
        ("audit", one, "one_held.parquet"),
        ("report", one, "one_scores.parquet", "-o", "r.html"),
        ("diagnose", "one_scores.parquet", "--positive", "yes", *RULES),
        ("frontier", "one_scores.parquet", "--positive", "yes", *RULES, "--levels", "0.05,0.1"),
        ("watch", one, "one_new.parquet", "--state", "w.json"),
        ("refit", one, "one_new.parquet", "-o", "later.json"),
        ("fit", "one_scores.parquet", "--positive", "yes", *RULES, "--scan", "-o", "scanned.json"),
    ):
        answer = bylaw(*command)
        assert answer.code in (0, 4), (command, answer.err)


@pytest.mark.slow
def test_exports_compute_the_other_class(one, bylaw):
    statement = bylaw("export", "sql", one, "--dialect", "duckdb", "--table", "rows").out
    rows = parquet.read_table("one_new.parquet")
    connection = duckdb.connect()
    connection.register("rows", rows)
    found = connection.sql(statement).fetchnumpy()
    chosen = Policy.load(one)
    columns = Columns(["score"], ["no", "yes"], groups={"sex": "sex"}, positive="yes")
    chances = chosen.probabilities(columns.evidence(rows))
    order = np.argsort(found["id"])
    np.testing.assert_allclose(found["p_reject"][order], chances[:, 2], atol=1e-9)
    assert bylaw("export", "python", one, "-o", "one.py").code == 0
    module = runpy.run_path("one.py")
    assert module["COLUMNS"] == ["score", "sex"]
    for i in range(20):
        row = {"score": rows["score"][i].as_py(), "sex": rows["sex"][i].as_py()}
        assert module["probabilities"](row) == pytest.approx(chances[i].tolist(), abs=1e-9)


@pytest.mark.slow
def test_either_class_may_be_the_positive_one(one, bylaw):
    """The same policy, on a table whose score is that of the other class."""
    keep_one("new", "p_no", "risk")
    scores = ("--scores", "risk", "--positive", "no")
    assert bylaw("decide", one, "one_new.parquet", *scores, "-o", "risk.parquet").code == 0
    keep_one("new")
    assert bylaw("decide", one, "one_new.parquet", "-o", "plain.parquet").code == 0
    assert parquet.read_table("risk.parquet") == parquet.read_table("plain.parquet")
    both = bylaw("decide", one, "new.parquet", "--scores", "p_no,p_yes", "-o", "both.parquet")
    assert both.code == 0, both.err
    assert parquet.read_table("both.parquet") == parquet.read_table("plain.parquet")


def test_classes_are_those_of_the_labels_or_are_stated(folder, bylaw):
    keep_one("scores")
    rows = parquet.read_table("one_scores.parquet")
    parquet.write_table(rows.drop_columns(["outcome"]), "bare.parquet")
    asked = bylaw("fit", "bare.parquet", "--positive", "yes", *RULES, "-o", "p.json")
    assert asked.code == 2
    assert "classes must name two classes, 'yes' and another" in asked.err
    assert "--classes OTHER,yes" in asked.err
    stated = ("--positive", "yes", "--classes", "yes,no")
    assert bylaw("fit", "bare.parquet", *stated, *RULES, "-o", "p.json").code == 0
    assert Policy.load("p.json").action_space.classes == ("yes", "no")
    wrong = bylaw("fit", "one_scores.parquet", "--positive", "perhaps", *RULES, "-o", "p.json")
    assert (wrong.code, "got 'perhaps': the column 'outcome' has" in wrong.err) == (2, True)
    which = bylaw("fit", "one_scores.parquet", "--scores", "score", *RULES, "-o", "p.json")
    assert "must be given; name it with --positive CLASS" in which.err


def test_numbers_as_classes_and_a_rules_file(folder, bylaw):
    rows = parquet.read_table("scores.parquet").to_pandas()
    rows = rows.rename(columns={"p_yes": "score"}).drop(columns=["p_no"])
    rows["outcome"] = (rows["outcome"] == "yes").astype(int)
    rows.to_csv("numbers.csv", index=False)
    (folder / "one.toml").write_text(
        'rules = ["rejected() <= 0.1"]\n[columns]\nprobabilities = "score"\npositive = 1\nlabel = "outcome"\n'
    )
    assert bylaw("fit", "numbers.csv", "--rules", "one.toml", "-o", "p.json").code == 0
    assert Policy.load("p.json").actions == (0, 1, "reject")


def test_columns_of_one_score_in_python():
    table = pyarrow.table({"s": [0.25, 1.0]})
    found = Columns(["s"], ["a", "b"]).evidence(table)
    assert found.probabilities.tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert isinstance(found, Evidence)
    other = Columns(["s"], ["a", "b"], positive="a").evidence(table)
    assert other.probabilities.tolist() == [[0.25, 0.75], [1.0, 0.0]]
