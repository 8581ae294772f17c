"""Exit codes and failures, for people and for machines."""

from __future__ import annotations

import json

import pyarrow.parquet as parquet
import pytest

from bylaw.cli.console import MEANINGS, ExitCode

CONFLICT = ("--rule", "selected('yes') <= 0.1", "--rule", "selected('no') <= 0.1")
FAILURES = {
    "usage": (("fit", "scores.parquet"), 2, "Missing option"),
    "no such option": (("fit", "scores.parquet", "--nonsense"), 2, "No such option"),
    "option": (("fit", "scores.parquet", "-o", "p.json"), 2, "at least one rule must be given"),
    "file": (("audit", "policy.json", "nowhere.parquet"), 2, "no such file: nowhere.parquet"),
    "policy": (("show", "nowhere.json"), 2, "nowhere.json"),
    "conflict": (("fit", "scores.parquet", *CONFLICT, "-o", "p.json"), 1, "the rules conflict"),
    "decide": (
        ("decide", "policy.json", "scores.parquet", "-o", "x.doc"),
        2,
        "the name of a table must end in",
    ),
    "watch": (("watch", "policy.json", "nowhere.csv", "--state", "w.json"), 2, "nowhere.csv"),
    "explain": (("explain", "policy.json"), 2, "a row must be given"),
    "frontier": (("frontier", "scores.parquet", "--rule", "rejected() <="), 2, "rejected() <="),
    "diagnose": (("diagnose", "scores.parquet", "--rule", "recall('maybe') >= 1"), 2, "maybe"),
    "refit": (("refit", "policy.json", "nowhere.csv", "-o", "p.json"), 2, "nowhere.csv"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_json_with_the_exit_code(name, policy, bylaw):
    command, code, message = FAILURES[name]
    answer = bylaw(*command, "--json")
    told = json.loads(answer.out)
    assert answer.code == told["exit_code"] == code
    assert message in told["error"]
    assert message in answer.err  # people read it in the log


def test_a_conflict_has_its_rules_for_machines(folder, bylaw):
    told = json.loads(bylaw("fit", "scores.parquet", *CONFLICT, "-o", "p.json", "--json").out)
    assert told["kind"] == "InfeasibleRulesError"
    assert set(told["conflict"]) == {"selected('yes') <= 0.1", "selected('no') <= 0.1"}


@pytest.mark.slow
def test_what_cannot_be_certified_is_json_too(folder, bylaw):
    parquet.write_table(parquet.read_table("held.parquet").slice(0, 60), "few.parquet")
    rules = ("--rule", "demographic_parity('sex', tol=0.02)", "--rule", "rejected() <= 0.1")
    answer = bylaw("fit", "scores.parquet", *rules, "--certify", "few.parquet", "-o", "p.json", "--json")
    told = json.loads(answer.out)
    assert (answer.code, told["exit_code"], told["kind"]) == (1, 1, "UncertifiedError")
    assert told["rule"] == "demographic_parity('sex', tol=0.02)"
    assert told["rows"] == 60


def test_a_fault_is_json_too(policy, bylaw, monkeypatch):
    monkeypatch.setattr("bylaw.cli.commands.fit._list_card", lambda _: 1 / 0)
    answer = bylaw("show", "policy.json", "--json")
    assert (answer.code, json.loads(answer.out)["exit_code"]) == (3, 3)


@pytest.mark.slow
def test_undecided_and_trouble_have_codes_of_their_own(policy, bylaw):
    undecided = bylaw("audit", "policy.json", "held.parquet", "--rule", "rejected() <= 0.1", "--json")
    trouble = bylaw("audit", "policy.json", "nowhere.parquet", "--json")
    assert (undecided.code, json.loads(undecided.out)["exit_code"]) == (4, 4)
    assert trouble.code == 2


def test_every_exit_code_is_in_the_help(bylaw):
    text = " ".join(bylaw("--help").out.split())
    for code in (*ExitCode, 130):
        assert f"{int(code)} {' '.join(MEANINGS[code].split()[:4])}" in text
