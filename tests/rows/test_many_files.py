"""Folders and patterns as one table."""

from __future__ import annotations

import gzip

import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import TableFile, find_files, find_root, is_many, would_read
from bylaw.rows._table_files import open_writer

ENDINGS = ["csv", "csv.gz", "parquet", "arrow", "jsonl"]
HALVES = ({"id": [1, 2], "p": [0.5, 0.25]}, {"id": [3], "p": [1.0]})


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table(columns)
    with open_writer(path, table.schema) as append:
        for batch in table.to_batches():
            append(batch)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pattern", [None, "t/*.{}", "t/**/*.{}", "*/?.{}"])
def test_files_are_one_table(ending, pattern, here):
    for name, half in zip("ab", HALVES, strict=True):
        write(here / "t" / f"{name}.{ending}", half)
    (here / "t" / "_SUCCESS").touch()
    (here / "t" / ".a.crc").touch()
    table = TableFile(here / ("t" if pattern is None else pattern.format(ending)))
    assert table.names == ["id", "p"]
    assert table.read(["p", "id"]).to_pydict() == {"p": [0.5, 0.25, 1.0], "id": [1, 2, 3]}
    assert [row for batch in table.batches(["id"]) for row in batch.column(0).to_pylist()] == [1, 2, 3]
    assert table.rows == (3 if ending == "parquet" else None)
    assert table.estimate_rows() > 0


def test_markers_are_no_tables_and_folders_that_match_are_read(here):
    write(here / "t" / "2024" / "a.parquet", HALVES[0])
    write(here / "t" / "2025" / "a.parquet", HALVES[1])
    (here / "t" / "_temporary").mkdir()
    write(here / "t" / "_temporary" / "a.parquet", HALVES[1])
    (here / "t" / "_SUCCESS").touch()
    assert [path.as_posix() for path in find_files("t/*")] == ["t/2024/a.parquet", "t/2025/a.parquet"]
    assert [path.as_posix() for path in find_files("t")] == ["t/2024/a.parquet", "t/2025/a.parquet"]
    assert [path.as_posix() for path in find_files("t/202[5]/*")] == ["t/2025/a.parquet"]


def test_a_name_with_a_bracket_is_a_name(here):
    write(here / "a[1].parquet", HALVES[0])
    assert not is_many(here / "a[1].parquet")
    assert len(TableFile(here / "a[1].parquet").read()) == 2


def test_there_are_no_files(here):
    (here / "t").mkdir()
    (here / "t" / "_SUCCESS").touch()
    for source in ("t", "t/*.parquet"):
        with pytest.raises(EvidenceError, match="no files were found in t"):
            find_files(source)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"id": [3]}, r"b\.parquet has no column 'p', which a?.*a\.parquet has"),
        ({"id": [3], "p": [1.0], "q": [1]}, r"a\.parquet has no column 'q', which .*b\.parquet has"),
        (
            {"id": ["x"], "p": [1.0]},
            r"'id' is string in .*b\.parquet and int64 in t/a\.parquet",
        ),
    ],
)
def test_the_file_that_differs_is_named(second, message, here):
    write(here / "t" / "a.parquet", HALVES[0])
    write(here / "t" / "b.parquet", second)
    with pytest.raises(EvidenceError, match=message):
        TableFile(here.relative_to(here) / "t").read(["id"])


def test_formats_do_not_mix(here):
    write(here / "t" / "a.parquet", HALVES[0])
    write(here / "t" / "b.csv", HALVES[0])
    with pytest.raises(EvidenceError, match=r"got parquet for .*a\.parquet and csv for .*b\.csv"):
        _ = TableFile(here / "t").names


def test_columns_in_another_order_and_of_another_width(here):
    write(here / "t" / "a.parquet", {"id": pyarrow.array([1], pyarrow.int32()), "who": ["x"]})
    write(here / "t" / "b.parquet", {"who": pyarrow.array(["y"]).dictionary_encode(), "id": [2**40]})
    table = TableFile(here / "t", values={"who": ()})
    assert table.read().to_pydict() == {"id": [1, 2**40], "who": ["x", "y"]}
    assert {batch.schema.field("id").type for batch in table.batches()} == {pyarrow.int64()}


def test_text_in_one_file_is_text_in_all(here):
    (here / "t").mkdir()
    (here / "t" / "a.csv").write_text("g,p\n1,0.5\n")
    (here / "t" / "b.csv.gz").write_bytes(gzip.compress(b"g,p\nx,0.5\n"))
    assert TableFile(here / "t", values={"g": ()}).read()["g"].to_pylist() == ["1", "x"]
    (here / "t" / "b.csv.gz").write_bytes(gzip.compress(b"g,p\n2,0.5\n"))
    assert TableFile(here / "t", values={"g": ()}).read()["g"].to_pylist() == [1, 2]


def test_a_value_that_is_not_known_is_named_with_its_file(here):
    (here / "t").mkdir()
    (here / "t" / "a.csv").write_text("g\n1\n")
    (here / "t" / "b.csv").write_text("g\n7\n")
    with pytest.raises(EvidenceError, match=r"t/b.csv: g: unknown value '7'"):
        TableFile(here / "t", values={"g": (1, 2)}).read()


def test_a_damaged_file_is_named(here):
    write(here / "t" / "a.parquet", HALVES[0])
    (here / "t" / "b.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(EvidenceError, match=r"t/b.parquet cannot be read as parquet"):
        TableFile(here / "t").read()


def test_the_number_of_rows_is_estimated_by_size(here):
    parquet.write_table(pyarrow.table({"p": [0.5] * 50_000}), "a.parquet")
    assert TableFile(here / "a.parquet").estimate_rows() == 50_000
    rows = pyarrow.table({name: [0.123456] * 50_000 for name in "abcd"})
    for ending in ("csv", "arrow"):
        with open_writer(here / f"b.{ending}", rows.schema) as append:
            append(rows.to_batches()[0])
        assert 25_000 <= TableFile(here / f"b.{ending}").estimate_rows() <= 100_000


@pytest.mark.parametrize(
    ("source", "path", "found"),
    [
        ("t", "t/x.parquet", True),
        ("t", "t/sub/x.parquet", True),
        ("t", "x.parquet", False),
        ("t/*.parquet", "t/x.parquet", True),
        ("t/*.parquet", "t/x.json", False),
        ("t/*.parquet", "t/sub/x.parquet", False),
        ("t/*", "t/sub/x.parquet", True),  # the folder matches
        ("**/*.parquet", "t/sub/x.parquet", True),
        ("t/../t/*", "t/x.parquet", True),
        ("a.parquet", "t/../a.parquet", True),
    ],
)
def test_what_the_next_run_would_read(source, path, found, here):
    (here / "t" / "sub").mkdir(parents=True)
    assert would_read(here.relative_to(here) / source, here / path) is found


def test_no_way_back_after_a_star(here):
    assert find_root(here.relative_to(here) / "t" / "*.csv").as_posix() == "t"
    with pytest.raises(OptionError, match=r"must not have \.\. after a star"):
        find_root(here / "*" / ".." / "x.csv")
