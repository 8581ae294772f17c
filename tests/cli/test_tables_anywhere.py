"""Tables in other shapes, from standard input, and results on standard output, in every command."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as parquet
import pytest

from bylaw import Policy
from bylaw.errors import EvidenceError
from bylaw.rows import TableFile

RULE = ("--rule", "rejected() <= 0.1")


def feed(monkeypatch, path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))


@pytest.fixture
def shapes(folder):
    """The same rows as a list of records, as lines in .json, with semicolons, and compressed."""
    for name in ("scores", "new"):
        rows = parquet.read_table(f"{name}.parquet").to_pandas()
        rows.to_json(f"{name}.json", orient="records")
        rows.to_json(f"{name}-lines.json", orient="records", lines=True)
        rows.to_csv(f"{name}-semicolons.csv", sep=";", index=False)
        rows.to_csv(f"{name}.csv.gz", index=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["{}.json", "{}-lines.json", "{}.csv.gz", "{}*.json", "{}-semicolons.csv"])
def test_every_shape_is_the_same_table(shape, shapes, bylaw):
    if "*" in shape:  # a pattern of one file
        (shapes / "scores-lines.json").unlink()
    how = ("--delimiter", ";") if "semicolons" in shape else ()
    answer = bylaw("fit", shape.format("scores"), *how, *RULE, "-o", "p.json")
    assert answer.code == 0, answer.err
    assert bylaw("fit", "scores.parquet", *RULE, "-o", "q.json").code == 0
    np.testing.assert_allclose(
        Policy.load("p.json").score_matrix, Policy.load("q.json").score_matrix, atol=1e-7
    )


def test_json_that_is_no_table_is_refused_in_words(folder, bylaw):
    for content, message in (
        ('{"p_no": [0.5], "p_yes": [0.5]}', "must be a list of objects"),
        ('[{"p_no": 0.5}, 7]', "row 1 must be an object, got 7"),
        ("[", "cannot be read as JSON"),
        (f"{'[' * 200}", "nested more than 100 deep"),
    ):
        (folder / "bad.json").write_text(content)
        with pytest.raises(EvidenceError, match=r"bad\.json") as caught:
            _ = TableFile(folder / "bad.json").names
        assert message in str(caught.value)


def test_json_is_written_as_a_list(policy, bylaw):
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "d.json").code == 0
    found = json.loads((policy.parent / "d.json").read_text())
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "d.parquet").code == 0
    assert found == parquet.read_table("d.parquet").to_pylist()


def test_an_other_delimiter_is_advised_and_checked(shapes, bylaw):
    advised = bylaw("fit", "scores-semicolons.csv", *RULE, "-o", "p.json")
    assert (advised.code, "pass --delimiter ';'" in advised.err) == (2, True)
    wrong = bylaw("fit", "scores-semicolons.csv", "--delimiter", ";;", *RULE, "-o", "p.json")
    assert (wrong.code, "the delimiter must be one character" in wrong.err) == (2, True)


COMMANDS = {
    "fit": (["fit", "-", *RULE, "-o", "p.json"], "scores"),
    "certify": (["fit", "scores.parquet", *RULE, "--certify", "-", "-o", "p.json"], "new"),
    "audit": (["audit", "policy.json", "-"], "new"),
    "refit": (["refit", "policy.json", "-", "-o", "p.json"], "new"),
    "report": (["report", "policy.json", "-", "-o", "r.html"], "scores"),
    "frontier": (["frontier", "-", *RULE, "--levels", "0.05,0.1"], "scores"),
    "diagnose": (["diagnose", "-", *RULE], "scores"),
    "explain": (["explain", "policy.json", "-", "--row", "3"], "new"),
    "watch": (["watch", "policy.json", "-", "--state", "w.json", "--rule", "rejected() <= 0.2"], "new"),
    "decide": (["decide", "policy.json", "-", "-o", "d.csv"], "new"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_reads_standard_input(name, policy, shapes, bylaw, monkeypatch):
    command, table = COMMANDS[name]
    feed(monkeypatch, shapes / f"{table}-semicolons.csv")
    answer = bylaw(*command, "--format", "csv", "--delimiter", ";")
    assert answer.code in (0, 4) or (name == "certify" and "held-out rows" in answer.err), answer.err
    assert bylaw(*command).code == 2  # the format of a pipe cannot be told


def test_standard_input_is_read_once_and_not_by_the_studio(folder, bylaw):
    twice = bylaw("fit", "-", *RULE, "--certify", "-", "--format", "csv", "-o", "p.json")
    assert (twice.code, "only one table can be standard input" in twice.err) == (2, True)
    idle = bylaw("fit", "scores.parquet", *RULE, "--format", "csv", "-o", "p.json")
    assert (idle.code, "--format has no effect without -" in idle.err) == (2, True)
    studio = bylaw("studio", "-", "--no-browser")
    assert (studio.code, "the table of the studio must be a file" in studio.err) == (2, True)


@pytest.mark.slow
def test_every_command_that_writes_writes_to_standard_output(policy, folder, bylaw):
    fitted = bylaw("fit", "scores.parquet", "--rules", "rules.toml", "-o", "-")
    assert json.loads(fitted.out)["format"] == "bylaw-policy"
    assert "policy: standard output" in fitted.err
    later = bylaw("refit", "policy.json", "new.parquet", "-o", "-")
    assert json.loads(later.out)["format"] == "bylaw-policy"
    page = bylaw("report", "policy.json", "scores.parquet", "-o", "-")
    assert page.out.lstrip().lower().startswith("<!doctype html")
    curve = bylaw("frontier", "scores.parquet", *RULE, "--levels", "0.05,0.1", "-o", "-")
    assert curve.out.splitlines()[0].startswith('"rejected() <= level"')
    assert len(curve.out.splitlines()) == 3
    assert "shadow price" in curve.err
    assert bylaw("export", "python", "policy.json").out.startswith('"""A policy')
    assert not (folder / "-").exists()
    clash = bylaw("fit", "scores.parquet", *RULE, "-o", "-", "--json")
    assert (clash.code, "choose one" in clash.err) == (2, True)
    other = bylaw("fit", "scores.parquet", *RULE, "-o", "p.json", "--report", "-")
    assert (other.code, "only -o can be standard output" in other.err) == (2, True)


@pytest.mark.slow
def test_a_model_of_onnx_goes_down_a_pipe(policy, folder):
    call = [sys.executable, "-m", "bylaw", "export", "onnx", "policy.json", "-o", "-"]
    ended = subprocess.run(call, capture_output=True, check=True, cwd=folder, env=dict(os.environ))
    assert subprocess.run([*call[:-1], "p.onnx"], check=True, cwd=folder).returncode == 0
    assert ended.stdout == (folder / "p.onnx").read_bytes()


def test_sql_without_a_dialect_lists_them_and_without_a_file_prints(policy, bylaw):
    asked = bylaw("export", "sql", "policy.json")
    assert asked.code == 2
    assert "duckdb, postgres, bigquery, snowflake, spark" in asked.err
    assert "SELECT" in bylaw("export", "sql", "policy.json", "--dialect", "postgres").out


def test_the_package_is_a_program(folder):
    call = [sys.executable, "-m", "bylaw", "--version"]
    assert subprocess.run(call, capture_output=True, check=True, text=True).stdout.startswith("bylaw ")
