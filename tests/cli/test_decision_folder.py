"""Decisions of a folder: one part for each file, and what happens when a run is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

import bylaw as package
from bylaw.rows import TableFile
from helpers.command_line import table

HOME = str(Path(package.__file__).parents[1])
DECIDE = ("decide", "policy.json", "parts", "-o", "out")


@pytest.fixture
def parts(policy, folder):
    """Four files, two of them with the same name."""
    rows = table(4000, 5)
    for i, name in enumerate(("a", "b", "x/a", "y/a")):
        (folder / "parts" / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(rows.slice(1000 * i, 1000), f"parts/{name}.parquet", row_group_size=400)
    parquet.write_table(rows, "whole.parquet")
    return folder


def list_files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def contents(folder):
    return {name: (folder / name).read_bytes() for name in list_files(folder) if name != "_bylaw.json"}


def states(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


def test_parts_keep_their_names_and_places(parts, bylaw):
    answer = bylaw(*DECIDE)
    assert (answer.code, answer.out) == (0, "4,000 decisions in 4 parts: out\n")
    names = ["a.parquet", "b.parquet", "x/a.parquet", "y/a.parquet"]
    assert list_files(parts / "out") == ["_bylaw.json", *names]
    assert bylaw("decide", "policy.json", "whole.parquet", "-o", "whole_out.parquet").code == 0
    whole = parquet.read_table("whole_out.parquet")
    assert pyarrow.concat_tables(parquet.read_table(f"out/{name}") for name in names).equals(whole)
    assert bylaw("decide", "policy.json", "parts", "-o", "one.parquet").code == 0
    assert parquet.read_table("one.parquet").equals(whole)
    assert TableFile(parts / "out").read().equals(whole)  # the list of parts is no table


def test_parts_of_another_format(parts, bylaw):
    assert bylaw("decide", "policy.json", "parts/**/a.parquet", "-o", "out", "--format", "csv.gz").code == 0
    assert list_files(parts / "out") == ["_bylaw.json", "a.csv.gz", "x/a.csv.gz", "y/a.csv.gz"]
    assert bylaw("decide", "policy.json", "parts/x/a.parquet", "-o", "x.csv").code == 0
    read = pyarrow.csv.read_csv("out/x/a.csv.gz")
    assert read.equals(pyarrow.csv.read_csv("x.csv"))
    pyarrow.csv.write_csv(table(10, 0), "c.csv")
    (parts / "two").mkdir()
    pyarrow.csv.write_csv(table(10, 0), "two/c.csv")
    pyarrow.csv.write_csv(table(10, 0), "two/c.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    answer = bylaw("decide", "policy.json", "two", "-o", "out2", "--format", "parquet")
    assert answer.code == 2
    assert "would both be written to c.parquet" in answer.err


def test_what_is_complete_is_skipped(parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    before = states(parts / "out")
    answer = bylaw(*DECIDE, "--json")
    assert "4 of 4 parts are complete already and were skipped" in answer.err
    assert json.loads(answer.out)["rows"] == 4000
    assert json.loads(answer.out)["skipped"] == 4
    assert states(parts / "out") == before


@pytest.mark.slow
def test_what_changed_is_decided_anew(parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    parquet.write_table(table(700, 9), "parts/b.parquet")  # an input
    (parts / "out" / "x" / "a.parquet").unlink()  # outputs
    (parts / "out" / "y" / "a.parquet").write_bytes(b"damaged")
    (parts / "parts" / "z").mkdir()
    parquet.write_table(table(30, 9), "parts/z/a.parquet")  # a new input
    answer = bylaw(*DECIDE)
    assert "1 of 5 parts are complete already" in answer.err
    assert answer.out == "3,730 decisions in 5 parts: out\n"
    assert bylaw(*DECIDE[:-1], "fresh").code == 0
    assert contents(parts / "out") == contents(parts / "fresh")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--probabilities"], "it differs in --probabilities"),
        (["--keep", "sex"], "it differs in --keep"),
        (["--key", "another"], "it differs in the key"),
        (["--format", "csv"], "it differs in --format"),
    ],
)
def test_other_options_are_another_run(options, message, parts, bylaw):
    assert bylaw(*DECIDE, "--key", "mine").code == 0
    own = [] if "--key" in options else ["--key", "mine"]
    before = contents(parts / "out")
    answer = bylaw(*DECIDE, *own, *options)
    assert answer.code == 2
    assert message in answer.err
    assert "choose another folder, or pass --overwrite" in answer.err
    assert contents(parts / "out") == before
    assert bylaw(*DECIDE, *own, *options, "--overwrite").code == 0
    assert bylaw(*DECIDE[:-1], "fresh", *own, *options).code == 0
    assert contents(parts / "out") == contents(parts / "fresh")
    assert "mine" not in (parts / "out" / "_bylaw.json").read_text()


def test_another_policy_is_another_run(parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    assert bylaw("fit", "scores.parquet", "--rule", "rejected() <= 0.3", "-o", "policy.json").code == 0
    answer = bylaw(*DECIDE, "--id-column", "id")
    assert answer.code == 2
    assert "it differs in the policy" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("content", ["{", "[]", '{"format": "bylaw-decisions", "version": 1}'])
def test_a_damaged_list(content, parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    (parts / "out" / "_bylaw.json").write_text(content)
    answer = bylaw(*DECIDE)
    assert answer.code == 2
    assert "_bylaw.json" in answer.err
    assert "--overwrite" in answer.err
    assert bylaw(*DECIDE, "--overwrite").code == 0


def test_a_list_from_elsewhere_removes_nothing_outside(parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    path = parts / "out" / "_bylaw.json"
    content = json.loads(path.read_text())
    content["parts"]["../whole.parquet"] = content["parts"]["a.parquet"]
    path.write_text(json.dumps(content))
    assert bylaw(*DECIDE, "--overwrite").code == 0
    assert (parts / "whole.parquet").exists()


def test_files_of_others_are_not_written_over(parts, bylaw):
    (parts / "out").mkdir()
    (parts / "out" / "b.parquet").write_bytes(b"mine")
    answer = bylaw(*DECIDE)
    assert answer.code == 2
    assert "out/b.parquet exists already" in answer.err
    assert list_files(parts / "out") == ["b.parquet"]


def test_parts_of_files_that_are_gone(parts, bylaw):
    assert bylaw(*DECIDE).code == 0
    (parts / "parts" / "b.parquet").unlink()
    answer = bylaw(*DECIDE)
    assert "out has 1 parts whose files no longer exist, such as b.parquet" in answer.err
    assert answer.out == "3,000 decisions in 3 parts: out\n"
    assert bylaw(*DECIDE, "--overwrite").code == 0
    assert "b.parquet" not in list_files(parts / "out")


@pytest.mark.parametrize("output", ["parts", "parts/out", "missing/out"])
def test_where_parts_cannot_go(output, parts, bylaw):
    before = list_files(parts)
    assert bylaw("decide", "policy.json", "parts", "-o", output).code == 2
    assert bylaw("decide", "policy.json", "parts/**/*.parquet", "-o", "parts/out").code == 2
    assert list_files(parts) == before


@pytest.mark.parametrize("output", ["out", "one.parquet"])
@pytest.mark.parametrize("how", ["changes", "vanishes"])
def test_a_file_that_changes_while_it_is_read(how, output, parts, bylaw, monkeypatch):
    own = TableFile.parse_values

    def disturb(file, rows):
        if file.path.name == "b.parquet":
            file.path.unlink() if how == "vanishes" else os.utime(file.path, ns=(1, 1))
        monkeypatch.setattr(TableFile, "parse_values", own if file.path.name == "b.parquet" else disturb)
        return own(file, rows)

    monkeypatch.setattr(TableFile, "parse_values", disturb)
    answer = bylaw("decide", "policy.json", "parts", "-o", output)
    assert answer.code == 2
    word = "removed" if how == "vanishes" else "changed"
    assert f"parts/b.parquet was {word} while its rows were read" in answer.err
    assert not (parts / "one.parquet").exists()
    if output == "out":
        assert list_files(parts / "out") == ["_bylaw.json", "a.parquet"]


def test_empty_files_have_empty_parts(parts, bylaw):
    parquet.write_table(table(4, 0).slice(0, 0), "parts/b.parquet")
    answer = bylaw(*DECIDE)
    assert answer.out == "3,000 decisions in 4 parts: out\n"
    assert parquet.read_table("out/b.parquet").column_names == ["id", "decision"]
    assert len(parquet.read_table("out/b.parquet")) == 0


def test_a_bad_row_loses_one_part(parts, bylaw):
    rows = parquet.read_table("parts/x/a.parquet")
    cells = rows["p_no"].to_pylist()
    cells[437] = 9.0
    parquet.write_table(rows.set_column(1, "p_no", pyarrow.array(cells)), "parts/x/a.parquet")
    answer = bylaw(*DECIDE)
    assert answer.code == 2
    assert "parts/x/a.parquet, rows from 0" in answer.err
    assert "row 437" in answer.err
    assert list_files(parts / "out") == ["_bylaw.json", "a.parquet", "b.parquet"]


KILLS = {  # what is replaced by an end without notice
    "while a part is decided": ("bylaw.cli.decisions", "Decider", "decide", 3),
    "before a part is listed": ("bylaw.cli.decision_folder", "DecisionFolder", "finish", 2),
    "while the list is written": ("bylaw.cli.decision_folder", "DecisionFolder", "_write_list", 3),
}
SCRIPT = """
import os, signal, sys
import {module} as home
own, left = home.{kind}.{name}, [{count}]
def killed(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return own(*arguments)
home.{kind}.{name} = killed
from bylaw.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", KILLS)
def test_a_run_that_is_killed_goes_on(when, parts, bylaw):
    module, kind, name, count = KILLS[when]
    script = SCRIPT.format(module=module, kind=kind, name=name, count=count)
    command = [sys.executable, "-c", script, *DECIDE]
    ended = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": HOME}, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    done = json.loads((parts / "out" / "_bylaw.json").read_text())["parts"]
    assert 1 <= len(done) < 4
    (parts / "out" / "x").mkdir(exist_ok=True)
    (parts / "out" / "x" / ".bylaw-0123.partial").write_bytes(b"as on a file system that needs names")
    before = states(parts / "out")["a.parquet"]
    answer = bylaw(*DECIDE)
    assert answer.code == 0, answer.err
    assert f"{len(done)} of 4 parts are complete already" in answer.err
    assert (parts / "out" / "a.parquet").stat().st_mtime_ns <= before
    assert bylaw(*DECIDE[:-1], "fresh").code == 0
    assert contents(parts / "out") == contents(parts / "fresh")


def test_overwrite_is_for_folders(parts, bylaw):
    answer = bylaw("decide", "policy.json", "parts", "-o", "one.parquet", "--overwrite")
    assert answer.code == 2
    assert "--overwrite has no effect without a folder of parts" in answer.err
