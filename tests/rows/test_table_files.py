"""Tables in files: every format both ways, in batches, whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bylaw._base import write_atomically
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import TableFile, parse_column
from bylaw.rows._table_files import open_writer

ENDINGS = ["csv.gz", "tsv.gz", "csv", "parquet", "arrow", "jsonl"]
ROWS = pyarrow.table({"id": [1, 2, 3], "p": [0.1, 0.2, 1 / 3], "who": ["a", 'b,"c', "ü"]})


class HalfwayError(Exception):
    pass


def half_written(write, content=ROWS.to_batches()[0]):  # noqa: B008
    write(content)
    raise HalfwayError


def names_in(folder):
    return [entry.name for entry in folder.iterdir()]


def written(path, table=ROWS, times=1):
    with open_writer(path, table.schema) as write:
        for batch in table.to_batches() * times:
            write(batch)
    return TableFile(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_is_read(ending, tmp_path):
    file = written(tmp_path / f"rows.{ending}")
    assert file.names == ["id", "p", "who"]
    assert file.read().to_pydict() == ROWS.to_pydict()
    assert file.read(["who", "id"]).to_pydict() == {"who": ["a", 'b,"c', "ü"], "id": [1, 2, 3]}
    assert sum(len(batch) for batch in file.batches(["p"])) == 3
    assert file.rows == (3 if ending == "parquet" else None)
    assert names_in(tmp_path) == [f"rows.{ending}"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_missing_column_is_named(ending, tmp_path):
    with pytest.raises(EvidenceError, match=r"no column 'age'; it has \['id', 'p', 'who'\]"):
        written(tmp_path / f"rows.{ending}").read(["id", "age"])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("content", [b"", b"\x00\x01garbage\xff\xfe"], ids=["empty", "garbage"])
def test_a_damaged_file_is_named(ending, content, tmp_path):
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=f"rows.{ending}"):
        TableFile(path).read(["id"])


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv.gz"])
def test_a_truncated_file_is_refused(ending, tmp_path):
    file = written(tmp_path / f"rows.{ending}", times=50)
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) - 40])
    with pytest.raises(EvidenceError, match="cannot be read"):
        file.read()


def test_text_must_be_utf8_and_columns_of_one_type(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("id,who\n1,Jürgen\n".encode("latin-1"))
    with pytest.raises(EvidenceError, match="'who' must be text in UTF-8"):
        TableFile(path).read()
    numbers = "".join(f"{i},0.5\n" for i in range(300_000))
    path.write_text(f"id,p\n{numbers}oops,0.5\n")
    with pytest.raises(EvidenceError, match=r"rows.csv cannot be read as csv: .*oops"):
        TableFile(path, numbers=("id",)).read()
    assert TableFile(path, text=("id",)).read()["id"][-1].as_py() == "oops"


@pytest.mark.slow
def test_a_column_is_what_its_reader_says_however_it_begins(tmp_path):
    """Types are not guessed by the first megabyte."""
    lines = "".join(f"{i % 3},1\n" for i in range(300_000))
    path = tmp_path / "rows.csv"
    path.write_text(f"group,weight\n{lines}X,1.5\n")
    file = TableFile(path, numbers=("weight",), values={"group": ()})
    assert file.read()["weight"][-1].as_py() == 1.5
    assert file.read()["group"].unique().to_pylist() == ["0", "1", "2", "X"]
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"w": 1}\n' * 300_000 + '{"w": 1.5}\n')
    assert TableFile(lines, numbers=("w",)).read()["w"][-1].as_py() == 1.5


@pytest.mark.parametrize(
    ("cells", "known", "values"),
    [
        (["1", "2", None], (), [1, 2, None]),
        (["01", "1", "2"], (), ["01", "1", "2"]),
        (["1", "2"], ("1", "2", "X"), ["1", "2"]),
        (["1", "2"], (1, 2, 3), [1, 2]),
        (["1.0", "2.5"], (), [1.0, 2.5]),
        (["True", "false"], (), [True, False]),
        (["1", "2.0", "reject"], (1, 2), ["1", "2.0", "reject"]),
        (["1", "2.0"], (1, 2), [1, 2]),
        (["1", "2"], (1.0, 2.5, 2.0), [1.0, 2.0]),
        (["-0", "1"], (), [-0.0, 1.0]),
        (["9" * 30, "1"], (), ["9" * 30, "1"]),
        ([None, None], (), [None, None]),
    ],
)
def test_cells_of_text_become_the_values_they_spell(cells, known, values):
    found = parse_column(pyarrow.array(cells, pyarrow.string()), known).to_pylist()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_text_stays_text_and_blank_cells_are_missing(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('id,who\n007,\n08,""\n')
    assert TableFile(path, text=("id",)).read().to_pydict() == {"id": ["007", "08"], "who": [None, ""]}
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"id": "2020-01-01"}\n{"id": "2020-01-02"}\n')
    assert TableFile(lines, text=("id",)).read().to_pydict() == {"id": ["2020-01-01", "2020-01-02"]}
    lines.write_text('{"id": 7}\n')
    assert TableFile(lines, text=("id",)).read().to_pydict() == {"id": [7]}


def test_tabs_and_columns_that_cannot_be_told_apart(tmp_path):
    file = written(tmp_path / "rows.tsv")
    assert file.path.read_text().splitlines()[0] == '"id"\t"p"\t"who"'
    assert file.read().to_pydict() == ROWS.to_pydict()
    (tmp_path / "semi.csv").write_text("id;p\n1;2\n")
    with pytest.raises(EvidenceError, match="semicolons"):
        TableFile(tmp_path / "semi.csv").read(["id"])
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(EvidenceError, match="two columns named 'a'"):
        TableFile(tmp_path / "twice.parquet").read(["a"])


def test_a_link_stays_and_a_pipe_is_refused(tmp_path):
    real, link, pipe = tmp_path / "real.txt", tmp_path / "link.txt", tmp_path / "pipe"
    real.write_text("old")
    link.symlink_to(real)
    with write_atomically(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    os.mkfifo(pipe)
    with pytest.raises(IsADirectoryError, match="not a regular file"), write_atomically(Path("/dev/stdout")):
        pass
    with pytest.raises(IsADirectoryError, match="not a regular file"), write_atomically(pipe):
        pass


def test_an_unknown_ending_or_no_file(tmp_path):
    with pytest.raises(OptionError, match=r"\.csv, \.tsv, \.csv\.gz, \.tsv\.gz, \.parquet"):
        TableFile(tmp_path / "rows.xls").read()
    with pytest.raises(EvidenceError, match="no such file"):
        TableFile(tmp_path / "rows.csv").read()


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.parquet"
    written(path)
    before = path.read_bytes()
    with pytest.raises(HalfwayError), open_writer(path, ROWS.schema) as write:
        half_written(write)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["rows.parquet"]


def test_where_files_need_a_name_the_partial_one_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("bylaw._base._files._unnamed_file", lambda folder: None)
    path = tmp_path / "x.txt"
    with pytest.raises(HalfwayError), write_atomically(path) as partial:
        half_written(partial.write_text, "half")
    assert names_in(tmp_path) == []
    with write_atomically(path) as partial:
        partial.write_text("whole")
    assert path.read_text() == "whole"
    assert names_in(tmp_path) == ["x.txt"]


def test_a_new_file_keeps_the_permissions_of_the_old_one(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    path.chmod(0o640)
    with write_atomically(path) as partial:
        partial.write_text("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    with pytest.raises(FileNotFoundError, match="does not exist"), write_atomically(tmp_path / "none" / "x"):
        pass
    with pytest.raises(IsADirectoryError), write_atomically(tmp_path):
        pass


@pytest.mark.slow
def test_reading_holds_a_batch_not_the_file(tmp_path):
    path = tmp_path / "many.parquet"
    schema = pyarrow.schema([("x", pyarrow.float64())])
    with open_writer(path, schema) as write:
        for i in range(40):
            column = pyarrow.array([float(i * 50_000 + j) for j in range(50_000)])
            write(pyarrow.record_batch([column], schema=schema))
    others = pyarrow.total_allocated_bytes()
    at_most = max(pyarrow.total_allocated_bytes() for _ in TableFile(path).batches()) - others
    assert path.stat().st_size > 10e6
    assert at_most < 6e6


def test_only_what_is_strange_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("group\n1\n2\nX\n")
    with pytest.raises(
        EvidenceError, match=r"rows\.csv: group: unknown value 'X'; it must be one of \[1, 2\]"
    ):
        TableFile(path, values={"group": (1, 2)}).read()
