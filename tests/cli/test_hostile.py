"""Hostile names in tables, flags and files: shown as escapes, written exactly, refused in plain words."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw.rows import TableFile
from helpers.hostile import HIDDEN, REORDERED

GROUP = f"sex{REORDERED}"
LABELS = [f"no{REORDERED}", f"yes{REORDERED}"]


@pytest.fixture
def hostile(folder, bylaw):
    """A table of hostile names, and a policy fitted on it."""
    rng = np.random.default_rng(0)
    score = rng.random(2000)
    columns = {
        "id": [f"{i}{REORDERED}" for i in range(2000)],
        f"p_{LABELS[0]}": 1 - score,
        f"p_{LABELS[1]}": score,
        GROUP: np.where(rng.random(2000) < score, f"F{REORDERED}", f"M{REORDERED}").tolist(),
        "outcome": np.where(rng.random(2000) < score, LABELS[1], LABELS[0]).tolist(),
    }
    parquet.write_table(pyarrow.table(columns), "hostile.parquet")
    rule = f"demographic_parity({GROUP!r}, tol=0.05)"
    return ["hostile.parquet", "--rule", rule, "--rule", "rejected() <= 0.1", "--label", "outcome"]


@pytest.mark.slow
def test_no_command_shows_what_reorders_text(hostile, folder, bylaw):
    table = hostile[0]
    commands = [
        ["fit", *hostile, "-o", "p.json"],
        ["show", "p.json"],
        ["explain", "p.json", table, "--row", "3", "--id-column", "id"],
        ["audit", "p.json", table, "--label", "outcome", "--fitted-rows", "estimate"],
        ["diagnose", table, "--rule", hostile[2]],
        ["frontier", table, "--rule", "rejected() <= 0.1", "--sweep", "rejected() <= 0.1"],
        ["decide", "p.json", table, "--id-column", "id", "-o", "d.parquet"],
        ["audit", "p.json", table, "--label", "missing\u202e\x1b[31m"],
        ["export", "python", "p.json", "-o", "-"],
    ]
    for command in commands:
        answer = bylaw(*command)
        assert "internal error of bylaw" not in answer.err
        assert not HIDDEN.search(answer.out + answer.err), command
    decided = set(TableFile(folder / "d.parquet").read()["decision"].to_pylist())
    assert decided <= {*LABELS, "reject"}
    for command in commands[1:4]:
        answer = bylaw(*command, "--json")
        assert not HIDDEN.search(answer.out), command
        assert json.loads(answer.out)
    assert json.loads(bylaw("show", "p.json", "--json").out)["actions"] == [*LABELS, "reject"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        [b"fit", b"scores.parquet", b"--rule", b"rejected() <= 0.1", b"--label", b"\xff", b"-o", b"p.json"],
        [b"fit", b"scores.parquet", b"--rule", b"selected('\xff') <= 0.1", b"-o", b"p.json"],
        [b"show", b"\xff.json"],
    ],
)
def test_bytes_that_are_no_text_are_refused_in_plain_words(arguments, folder):
    call = [sys.executable, "-c", "from bylaw.cli import main; main()"]
    ended = subprocess.run([*map(os.fsencode, call), *arguments], capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    assert b"\\udcff" in ended.stderr


@pytest.mark.slow
def test_a_policy_in_a_file_whose_name_is_no_text(folder, bylaw):
    name = os.fsdecode(b"\xff.json")
    fit = ["fit", "scores.parquet", "--rule", "rejected() <= 0.1", "-o", name]
    assert "\\udcff.json" in bylaw(*fit).out
    shown = json.loads(bylaw(*fit, "--json").out)
    assert shown["policy"] == name


def test_deeply_nested_lines_are_refused(folder, bylaw):
    line = '{"id": 1, "p_no": 0.4, "p_yes": 0.6, "x": ' + "[" * 50_000 + "]" * 50_000 + "}"
    (folder / "deep.jsonl").write_text('{"id": 0, "p_no": 0.4, "p_yes": 0.6, "x": []}\n' + line)
    answer = bylaw("fit", "deep.jsonl", "--rule", "rejected() <= 0.1", "-o", "p.json")
    assert answer.code == 2
    assert "nested more than 100 deep" in answer.err
