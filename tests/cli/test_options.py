"""Options are checked before anything is read, and those without effect are refused by name."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Evidence, Policy, Problem, solve
from bylaw.cli.options import check_confidence, refuse_idle
from bylaw.errors import OptionError

FIT = ["fit", "none.parquet", "-o", "p.json", "--rule", "rejected() <= 0.1"]
FRONTIER = ["frontier", "none.parquet", "--rule", "rejected() <= 0.1"]
CERTIFY = ["--certify", "held.parquet"]
CUSTOM = ["--rule", "custom('visit') <= 1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*FIT, *CERTIFY, "--confidence", "7"], "confidence must be a number between 0 and 1"),
        ([*FIT, *CERTIFY, "--confidence", "nan"], "confidence must be a number between 0 and 1"),
        ([*FIT, "--margin", "-1"], "margin must be a number of standard errors"),
        ([*FIT, "--margin", "inf"], "margin must be a number of standard errors"),
        (["audit", "none.json", "none.parquet", "--confidence", "95"], "confidence must be a number"),
        (["audit", "none.json", "none.parquet", "--method", "magic"], "method must be one of ['betting', "),
        (["audit", "none.json", "none.parquet", "--fitted-rows", "yes"], "fitted_rows must be one of"),
        (
            ["report", "none.json", "none.parquet", "-o", "r.html", "--held-out", "x", "--confidence", "0"],
            "confidence must be a number",
        ),
        ([*FRONTIER, "--levels", "0:nan:3"], "--levels: a level must be finite, got nan"),
        ([*FRONTIER, "--levels", "0.1,inf"], "--levels: a level must be finite, got inf"),
        ([*FRONTIER, "--levels", "0:1:2000"], "between 1 and 1000 levels"),
        ([*FRONTIER, "--levels", "0:1:0"], "between 1 and 1000 levels"),
        ([*FRONTIER, "--levels", "1:2"], "first:last:count"),
        (
            ["frontier", "none.parquet", "--rule", "demographic_parity('sex', tol=.1)", "--levels", "-1"],
            "must not be negative",
        ),
        ([*FRONTIER, "--plot", "frontier.gif"], "--plot must be a file that ends in .png, .svg or .pdf"),
        ([*FRONTIER, "-o", "frontier.xls"], "the name of a table must end in one of"),
        ([*FRONTIER, "--sweep", "error() <= 0.1"], "--sweep: the problem has no rule 'error() <= 0.1'"),
        (["frontier", "none.parquet", "--rules", "empty.toml"], "must have at least one rule to vary"),
        ([*FIT, *CUSTOM, *CERTIFY, "--limit", "visit=0"], "--limit must be NAME=LEAST:MOST, got 'visit=0'"),
        ([*FIT, *CUSTOM, *CERTIFY, "--limit", "visit=0:nan"], "the most of visit must be finite"),
        ([*FIT, *CUSTOM, *CERTIFY, "--limit", "visit=2:1"], "LEAST <= MOST, got visit=2:1"),
        (
            [*FIT, *CUSTOM, *CERTIFY, "--limit", "visit=0:1", "--limit", "visit=0:2"],
            "--limit must be given once for each name, got visit twice",
        ),
        (
            [*FIT, "--group", "sex=a", "--group", "sex=b"],
            "--group must be given once for each name, got sex twice",
        ),
        ([*FIT, "--group", "sex="], "--group must be NAME=COLUMN, got 'sex='"),
        ([*FIT, "--label", ""], "--label must name a column or value"),
        ([*FIT, "--scores", ""], "--scores must name a column or value"),
        ([*FIT, "--classes", ""], "--classes must name a column or value"),
        ([*FIT, "--weight", ""], "--weight must name a column or value"),
        ([*FIT, "--id-column", ""], "--id-column must name a column or value"),
        (
            ["export", "sql", "none.json", "-o", "p.sql", "--dialect", "oracle"],
            "dialect must be one of ['duckdb', ",
        ),
        (
            ["explain", "none.json", "none.parquet", "--row", "x"],
            "--row must be the number of a row, counted from 0, got 'x'",
        ),
    ],
)
def test_options_are_checked_before_anything_is_read(arguments, message, folder, bylaw):
    """None of the files is there, so whoever reads one first has another message."""
    (folder / "empty.toml").write_text("rules = []\n")
    answer = bylaw(*arguments)
    assert answer.code == 2
    assert message in answer.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("solve", "message"),
    [
        ("tol = 0", "r.toml, [solve]: tol must be a positive number"),
        ("margin = -1", "r.toml, [solve]: margin must be a number of standard errors"),
        ("beta = -1", "r.toml, [solve]: beta must be a positive number"),
        ("beta = 'hot'", "r.toml, [solve]: beta must be one of ['auto', 'paper']"),
        ("solver = 'magic'", "r.toml, [solve]: solver must be one of ['auto', "),
    ],
)
def test_how_to_solve_is_checked_before_rows_are_read(solve, message, folder, bylaw):
    (folder / "r.toml").write_text(f'rules = "rejected() <= 0.1"\n[solve]\n{solve}\n')
    answer = bylaw("fit", "none.parquet", "--rules", "r.toml", "-o", "p.json")
    assert answer.code == 2
    assert message in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*FIT, "--confidence", "0.9"], "--confidence has no effect without --certify or --held-out"),
        (
            [*FIT, "--report", "r.html", "--confidence", "0.9"],
            "--confidence has no effect without --certify or --held-out",
        ),
        ([*FIT, *CUSTOM, "--limit", "visit=0:1"], "--limit has no effect without --certify or --held-out"),
        ([*FIT, *CERTIFY, "--limit", "visit=0:1"], "no rule uses custom('visit')"),
        ([*FIT, "--held-out", "held.parquet"], "--held-out has no effect without --report"),
        ([*FIT, *CERTIFY, "--margin", "1"], "--certify finds the margin itself"),
        (
            ["fit", "none.parquet", "-o", "p.json", "--rules", "margin.toml", *CERTIFY],
            "--certify finds the margin itself",
        ),
        (
            ["fit", "none.parquet", "-o", "p.json", "--rules", "empty.toml", *CERTIFY],
            "--certify has no effect without rules",
        ),
        (
            ["fit", "none.parquet", "-o", "p.json", "--rules", "empty.toml", "--margin", "1"],
            "--margin has no effect without rules",
        ),
        (
            ["report", "none.json", "none.parquet", "-o", "r.html", "--confidence", "0.9"],
            "--confidence has no effect without --held-out",
        ),
        (
            ["report", "none.json", "none.parquet", "-o", "r.html", "--limit", "visit=0:1"],
            "--limit has no effect without --held-out",
        ),
    ],
)
def test_options_without_effect_are_refused(arguments, message, folder, bylaw):
    (folder / "empty.toml").write_text("rules = []\n")
    (folder / "margin.toml").write_text('rules = "rejected() <= 0.1"\n[solve]\nmargin = 1\n')
    answer = bylaw(*arguments)
    assert answer.code == 2
    assert message in answer.err


@pytest.mark.parametrize("option", [["--confidence", "0.9"], ["--method", "betting"]])
def test_an_estimate_has_no_bounds_and_so_no_confidence(option, policy, bylaw):
    audit = ["audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate"]
    assert "estimated to hold" in bylaw(*audit).out
    answer = bylaw(*audit, *option)
    assert (answer.code, answer.out) == (2, "")
    assert f"{option[0]} has no effect without held-out rows" in answer.err


@pytest.mark.slow
def test_confidence_is_that_of_the_audit(policy, bylaw):
    audit = ["audit", "policy.json", "held.parquet", "--json"]
    assert json.loads(bylaw(*audit).out)["confidence"] == 0.95
    assert json.loads(bylaw(*audit, "--confidence", "0.9").out)["confidence"] == 0.9


@pytest.mark.slow
def test_a_key_is_for_draws(policy, bylaw):
    rows = parquet.read_table("new.parquet")
    scores = np.column_stack([rows["p_no"], rows["p_yes"]])
    known = Evidence(scores, classes=["no", "yes"], groups={"sex": rows["sex"].to_pylist()})
    open_row = int(Policy.load(policy).probabilities(known).max(axis=1).argmin())
    parquet.write_table(rows.drop(["id"]), "nameless.parquet")
    answer = bylaw("explain", "policy.json", "nameless.parquet", "--row", open_row, "--key", "a")
    assert answer.code == 2
    assert "--key has no effect without an id of the row" in answer.err
    explain = ["explain", "policy.json", "new.parquet", "--row", open_row, "--json", "--key"]
    assert len({json.loads(bylaw(*explain, key).out)["decision"] for key in "abcdefgh"}) > 1


def test_a_key_of_sql_needs_ids(folder, bylaw):
    rows = parquet.read_table("new.parquet")
    scores = Evidence(np.column_stack([rows["p_no"], rows["p_yes"]]), classes=["no", "yes"])
    solve(Problem("error()", ["rejected() <= 0.1"]), scores).save("api.json")
    export = ["export", "sql", "api.json", "--dialect", "duckdb", "-o", "p.sql", "--key", "a"]
    answer = bylaw(*export)
    assert answer.code == 2
    assert "--key has no effect without --id-column" in answer.err
    assert bylaw(*export, "--id-column", "id").code == 0


@pytest.mark.slow
def test_groups_that_the_policy_does_not_read_are_refused_or_left_alone(folder, bylaw):
    rows = parquet.read_table("scores.parquet").append_column("town", pyarrow.array(["a", "b"] * 1500))
    parquet.write_table(rows, "towns.parquet")
    fit = ["fit", "towns.parquet", "--rules", "rules.toml", "--group", "town", "-o", "p.json"]
    assert bylaw(*fit, "--report", "r.html").code == 0
    assert "town" in (folder / "r.html").read_text()
    answer = bylaw("decide", "p.json", "towns.parquet", "--group", "town", "-o", "d.csv")
    assert answer.code == 2
    assert "--group town has no effect, because the policy does not use town" in answer.err
    answer = bylaw("explain", "p.json", "new.parquet", "--row", "1", "--group-probabilities", "town=p_*")
    assert answer.code == 2
    assert "--group-probabilities town has no effect" in answer.err
    assert bylaw("decide", "p.json", "new.parquet", "-o", "d.csv").code == 0, "a table without towns"
    assert bylaw("audit", "p.json", "held.parquet", "--rule", "rejected() <= 0.15").code == 0
    assert Policy.load("p.json").card.columns["groups"] == {"town": "town", "sex": "sex"}


def test_idle_flags_and_defaults():
    refuse_idle("more", limit=None, json=False, rule=[])
    for value in (0.0, "", ["a"], True):
        with pytest.raises(OptionError, match="--key-file has no effect without more"):
            refuse_idle("more", json=None, key_file=value)
    assert check_confidence(None) == 0.95
    assert check_confidence(0.5) == 0.5


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["report", "policy.json", "scores.parquet", "-o", "scores.parquet"],
            "is an input or another output",
        ),
        (["report", "policy.json", "scores.parquet", "-o", "none/r.html"], "the folder none does not exist"),
        (
            ["report", "policy.json", "scores.parquet", "-o", "r.html", "--largest-weight", "2"],
            "--largest-weight has no effect without --held-out",
        ),
        (
            ["report", "policy.json", "scores.parquet", "-o", "r.html", "--propensity-weights", "p_no"],
            "--propensity-weights has no effect",
        ),
        (
            ["diagnose", "scores.parquet", "--rules", "rules.toml", "--propensity-weights", "p_no"],
            "--propensity-weights has no effect",
        ),
    ],
)
def test_commands_refuse_what_they_would_ignore_or_overwrite(policy, folder, bylaw, command, message):
    before = (folder / "scores.parquet").read_bytes()
    answer = bylaw(*command)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    assert (folder / "scores.parquet").read_bytes() == before


def test_rules_prints_a_file_alone_or_the_language_before_it(bylaw):
    alone, whole = bylaw("rules", "--example"), bylaw("rules")
    assert tomllib.loads(alone.out)["minimize"] == "error()"
    assert whole.out.rstrip().endswith(alone.out.rstrip())
    assert "precision('fraud')" in whole.out
