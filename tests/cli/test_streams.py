"""Compressed tables, standard input and output, and columns that are kept."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as parquet
import pytest

import bylaw as package

HOME = str(Path(package.__file__).parents[1])


@pytest.fixture
def plain(policy, folder, bylaw):
    """The decisions of new.parquet, and the same rows as CSV."""
    pyarrow.csv.write_csv(parquet.read_table("new.parquet"), "new.csv")
    assert bylaw("decide", "policy.json", "new.csv", "-o", "plain.csv").code == 0
    return (folder / "plain.csv").read_bytes()


def feed(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.slow
def test_compressed_csv_in_and_out(plain, folder, bylaw):
    (folder / "new.csv.gz").write_bytes(gzip.compress((folder / "new.csv").read_bytes()))
    assert bylaw("decide", "policy.json", "new.csv.gz", "-o", "out.csv.gz").code == 0
    assert (folder / "out.csv.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert gzip.decompress((folder / "out.csv.gz").read_bytes()) == plain
    for command in (
        ("fit", "new.csv.gz", "--rules", "rules.toml", "-o", "again.json"),
        ("explain", "policy.json", "new.csv.gz", "--row", "3"),
        ("frontier", "new.csv.gz", "--rules", "rules.toml", "--levels", "0:0.1:2", "-o", "curve.csv.gz"),
    ):
        assert bylaw(*command).code == 0, command
    assert b"," in gzip.decompress((folder / "curve.csv.gz").read_bytes())


@pytest.mark.parametrize("content", ["truncated", "not compressed"])
def test_a_damaged_compressed_table_is_named_and_nothing_is_written(content, plain, folder, bylaw):
    text = (folder / "new.csv").read_bytes()
    (folder / "bad.csv.gz").write_bytes(text if content == "not compressed" else gzip.compress(text)[:-2000])
    answer = bylaw("decide", "policy.json", "bad.csv.gz", "-o", "out.csv.gz")
    assert answer.code == 2
    assert "bad.csv.gz cannot be read as csv" in answer.err
    assert not (folder / "out.csv.gz").exists()


def test_standard_input_and_output(plain, folder, bylaw, monkeypatch):
    feed(monkeypatch, (folder / "new.csv").read_bytes())
    answer = bylaw("decide", "policy.json", "-", "-o", "-", "--format", "csv")
    assert answer.code == 0
    assert answer.out.encode() == plain
    assert "2,000 decisions" in answer.err
    feed(monkeypatch, (folder / "new.csv").read_bytes())
    assert bylaw("decide", "policy.json", "-", "-o", "file.csv", "--format", "csv").code == 0
    assert (folder / "file.csv").read_bytes() == plain


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv.gz"])
def test_pipes_of_other_formats(kind, plain, folder, bylaw):
    """From a file to a pipe and on: what one command writes, the next one reads."""
    call = [sys.executable, "-c", "from bylaw.cli import main; main()", "decide", "policy.json"]
    options = {"check": True, "capture_output": True, "env": {**os.environ, "PYTHONPATH": HOME}}
    kept = ["--keep", "p_no", "--keep", "p_yes", "--keep", "sex"]
    first = subprocess.run([*call, "new.csv", "-o", "-", "--format", kind, *kept], **options)
    second = subprocess.run([*call, "-", "-o", f"o.{kind}", "--format", kind], input=first.stdout, **options)
    assert b"2,000 decisions" in second.stdout
    ids = ["--id-column", "id"]
    assert bylaw("decide", "policy.json", "new.csv", *ids, "-o", f"p.{kind}").code == 0
    assert (folder / f"o.{kind}").read_bytes() == (folder / f"p.{kind}").read_bytes()


def test_trouble_writes_nothing_to_standard_output(plain, bylaw, monkeypatch):
    feed(monkeypatch, b"id,p_no,p_yes,sex\n" + b"1,0.5,0.5,F\n" * 9 + b"1,0.5,7,F\n")
    answer = bylaw("decide", "policy.json", "-", "-o", "-", "--format", "csv")
    assert (answer.code, answer.out) == (2, "")
    assert "standard-input.csv" in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "-o", "out.csv"], "--format must be given for standard input: one of csv"),
        (["new.csv", "-o", "-"], "--format must be given for standard output"),
        (["new.csv", "-o", "-", "--format", "xls"], "--format must be one of csv, csv.gz, tsv, parquet"),
        (["new.csv", "-o", "out.csv", "--format", "csv"], "--format has no effect without -"),
        (["new.csv", "-o", "-", "--format", "csv", "--json"], "would both write to standard output"),
        (
            ["-", "-o", "o.csv", "--format", "csv", "--key-file", "-"],
            "only the table can be standard input (-)",
        ),
        (["new.csv", "-o", "o.csv", "--key-file", "-"], "only the table can be standard input"),
        (["new.csv", "-o", "out.csv", "--keep", "age"], "--keep must name a column of new.csv"),
        (["new.csv", "-o", "out.csv", "--keep", "id"], "a column that the output has anyway, got 'id'"),
        (
            ["new.csv", "-o", "out.csv", "--keep", "sex", "--keep", "sex"],
            "a column that the output has anyway, got 'sex'",
        ),
        (["new.csv", "-o", "out.csv", "--keep", "decision_p_no", "--probabilities"], "got 'decision_p_no'"),
        (["lists.parquet", "-o", "out.csv", "--keep", "tags"], "CSV files cannot store list"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, message, plain, folder, bylaw):
    rows = parquet.read_table("new.parquet")
    parquet.write_table(rows.append_column("tags", pyarrow.array([["a"]] * len(rows))), "lists.parquet")
    before = sorted(folder.iterdir())
    answer = bylaw("decide", "policy.json", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert sorted(folder.iterdir()) == before


def test_the_policy_is_no_stream(plain, bylaw):
    answer = bylaw("decide", "-", "-", "-o", "out.csv", "--format", "csv")
    assert answer.code == 2
    assert "only the table can be standard input (-); pass the policy as a file" in answer.err


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_kept_columns_come_along_as_they_are(kind, plain, folder, bylaw):
    """Codes keep their zeros, blanks stay blank, dates stay dates; decisions are those without them."""
    rows = pyarrow.csv.read_csv("new.csv")
    codes = pyarrow.array([None if i % 7 == 0 else f"{i:06d}" for i in range(len(rows))])
    days = pyarrow.array([f"2024-01-{i % 28 + 1:02d}" for i in range(len(rows))])
    if kind == "parquet":
        days = days.cast(pyarrow.date32())
    rows = rows.append_column("code", codes).append_column("day", days)
    if kind == "csv":
        pyarrow.csv.write_csv(rows, "more.csv")
    else:
        parquet.write_table(rows.set_column(5, "code", codes.dictionary_encode()), "more.parquet")
    source = "more.csv" if kind == "csv" else "more.parquet"
    command = ("decide", "policy.json", source, "--keep", "day", "--keep", "code", "--keep", "sex")
    assert bylaw(*command, "-o", f"out.{kind}").code == 0
    text = pyarrow.csv.ConvertOptions(
        column_types={"code": pyarrow.string(), "day": pyarrow.string()}, strings_can_be_null=True
    )
    read = {
        "csv": lambda: pyarrow.csv.read_csv("out.csv", convert_options=text),
        "parquet": lambda: parquet.read_table("out.parquet"),
        "jsonl": lambda: pyarrow.json.read_json("out.jsonl"),
    }[kind]()
    assert read.column_names == ["id", "decision", "day", "code", "sex"]
    assert read["code"].to_pylist() == codes.to_pylist()
    assert [str(day)[:10] for day in read["day"].to_pylist()] == [str(day) for day in days.to_pylist()]
    assert read["sex"].to_pylist() == rows["sex"].to_pylist()
    assert read["decision"].to_pylist() == pyarrow.csv.read_csv("plain.csv")["decision"].to_pylist()


@pytest.mark.slow
def test_nobody_reading_the_pipe_is_no_trouble(plain, folder):
    rows = pyarrow.concat_tables([parquet.read_table("new.parquet")] * 20)
    parquet.write_table(rows, "many.parquet")
    call = f'"{sys.executable}" -c "from bylaw.cli import main; main()"'
    command = (
        f"set -o pipefail; {call} decide policy.json many.parquet --repeated-ids -o - --format csv | head -1"
    )
    ended = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": HOME},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith('"id"')
    assert "Traceback" not in ended.stderr
