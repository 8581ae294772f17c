"""Tables in files: CSV, Parquet, Arrow and JSON lines, read and written in batches. Needs pyarrow.

A CSV file has no types, and guesses go wrong: what is read as a number loses its leading zeros, and a column
that begins with whole numbers may go on with others. So readers state what a column holds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from bylaw._base.atomic_files import write_atomically
from bylaw._base.typing import Value
from bylaw.data.evidence import REJECTED
from bylaw.data.json_nesting import check_nesting
from bylaw.data.text_values import match_value, parse_values
from bylaw.errors import EvidenceError, OptionError
from bylaw.language.expressions import shorten

BATCH_ROWS = 131_072  # a few megabytes of scores
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
}


def detect_format(path: Path) -> str:
    """By the ending of the name."""
    for suffix, kind in _SUFFIXES.items():
        if path.name.lower().endswith(suffix):
            return kind
    raise OptionError(f"{path}: a table's name ends in one of {', '.join(_SUFFIXES)}")


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _find_delimiter(path: Path) -> str:
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


@dataclass(frozen=True)
class TableFile:
    """A table that is read in batches, so that its size does not matter."""

    path: Path
    text: Sequence[str] = ()  # columns of text, whatever it looks like
    numbers: Sequence[str] = ()
    # Columns of labels or groups, with the values that are known, if any are.
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    encoded: Sequence[str] = ()  # columns of text with few values, which Parquet stores once: they stay so

    @cached_property
    def names(self) -> list[str]:
        """Of its columns."""
        with self._open() as table:
            names = list(table.schema.names)
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise EvidenceError(f"{self.path} has two columns named {twice[0]!r}; rename one of them")
        if len(names) == 1 and ";" in names[0]:
            raise EvidenceError(
                f"{self.path} seems to be separated by semicolons; bylaw reads commas, and tabs in .tsv"
            )
        return names

    @property
    def rows(self) -> int | None:
        """How many there are, where the file states it."""
        if detect_format(self.path) != "parquet":
            return None
        with name_file(self.path), pyarrow.parquet.ParquetFile(self.path) as file:
            return file.metadata.num_rows

    def batches(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Record batches of some columns, of at most some hundred thousand rows; of a Parquet file, also of
        some row groups."""
        self._check(columns or ())
        with self._open(columns, row_groups) as table:
            for batch in self._guard(table.batches):
                yield self._parse_values(batch)

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """All rows of some columns, as one Arrow table."""
        self._check(columns or ())
        with self._open(columns) as table:
            rows = pyarrow.Table.from_batches(list(self._guard(table.batches)), schema=table.schema)
        return self._parse_values(rows)

    def _parse_values(self, rows: Any) -> Any:
        """Columns of values in a CSV file, which came as text, as what they are."""
        if detect_format(self.path) != "csv":
            return rows
        for name in set(self.values) & set(rows.schema.names):
            try:
                column = parse_column(rows.column(name), self.values[name])
            except EvidenceError as problem:
                problem.add_place(f"{self.path}: {name}")
                raise
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows

    def _check(self, columns: Sequence[str]) -> None:
        names = self.names
        if missing := [name for name in columns if name not in names]:
            raise EvidenceError(f"{self.path} has no column {missing[0]!r}; it has {names}")

    def _guard(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches that name the file, should one of them turn out to be damaged."""
        with name_file(self.path):
            yield from batches

    @contextlib.contextmanager
    def _open(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Iterator[_Open]:
        opener = _OPENERS[detect_format(self.path)]
        with contextlib.ExitStack() as stack:
            with name_file(self.path):
                table = opener(self, columns, stack)
            yield table if row_groups is None else _Open(table.schema, table.read_groups(row_groups))


@dataclass(frozen=True)
class _Open:
    schema: Any
    batches: Iterator[Any]
    read_groups: Callable[[Sequence[int]], Iterator[Any]] = iter  # of a Parquet file


def _open_parquet(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Open:
    # Without pre_buffer=False, pyarrow holds the whole file in the end.
    file = stack.enter_context(pyarrow.parquet.ParquetFile(table.path, pre_buffer=False))
    if encoded := [name for name in table.encoded if name in file.schema_arrow.names]:
        options = {"metadata": file.metadata, "read_dictionary": encoded}
        file = stack.enter_context(pyarrow.parquet.ParquetFile(table.path, pre_buffer=False, **options))
    schema = file.schema_arrow
    if columns is not None:
        schema = pyarrow.schema([schema.field(name) for name in columns])
    read = functools.partial(file.iter_batches, BATCH_ROWS, columns=list(schema.names))
    return _Open(schema, read(), lambda groups: read(row_groups=list(groups)))


def _open_csv(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Open:
    converting = pyarrow.csv.ConvertOptions(
        include_columns=None if columns is None else list(columns),
        column_types={
            **dict.fromkeys(table.numbers, pyarrow.float64()),
            **dict.fromkeys([*table.text, *table.values], pyarrow.string()),
        },
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parsing = pyarrow.csv.ParseOptions(delimiter=_find_delimiter(table.path))
    source = table.path
    if _is_compressed(table.path):
        source = stack.enter_context(pyarrow.input_stream(table.path, compression="gzip"))
    reader = stack.enter_context(
        pyarrow.csv.open_csv(source, parse_options=parsing, convert_options=converting)
    )
    for column in reader.schema:
        if pyarrow.types.is_binary(column.type):
            raise EvidenceError(
                f"{table.path}: the column {column.name!r} is not text in UTF-8; save the file as UTF-8"
            )
    return _Open(reader.schema, iter(reader))


def _open_arrow(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Open:
    source = stack.enter_context(pyarrow.memory_map(str(table.path)))
    reader = stack.enter_context(pyarrow.ipc.open_file(source))
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    return _select(reader.schema, batches, columns)


def _open_json(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Open:
    check_nesting(table.path)
    first = _first_line(table.path)
    # Otherwise text that looks like a date becomes one, and what begins with whole numbers stays with them.
    texts = [name for name in (*table.text, *table.values) if isinstance(first.get(name), str)]
    numbers = [name for name in table.numbers if isinstance(first.get(name), int | float)]
    kinds = {**dict.fromkeys(texts, pyarrow.string()), **dict.fromkeys(numbers, pyarrow.float64())}
    options = pyarrow.json.ParseOptions(explicit_schema=pyarrow.schema(list(kinds.items())))
    reader = stack.enter_context(pyarrow.json.open_json(table.path, parse_options=options))
    return _select(reader.schema, iter(reader), columns)


def _first_line(path: Path) -> dict[str, Any]:
    """Empty if it is no object; pyarrow reports that then."""
    with path.open(encoding="utf-8") as file:
        try:
            found = json.loads(file.readline())
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}


def _select(schema: Any, batches: Iterator[Any], columns: Sequence[str] | None) -> _Open:
    if columns is None:
        return _Open(schema, batches)
    chosen = list(columns)
    return _Open(
        pyarrow.schema([schema.field(name) for name in chosen]), (batch.select(chosen) for batch in batches)
    )


_OPENERS: dict[str, Callable[[TableFile, Sequence[str] | None, contextlib.ExitStack], _Open]] = {
    "parquet": _open_parquet,
    "csv": _open_csv,
    "arrow": _open_arrow,
    "json": _open_json,
}


def parse_column(column: Any, known: Sequence[Value] = ()) -> Any:
    """A column of text as the values that it stands for: those known, if any are; or else whole numbers,
    truth values or numbers where all cells are such. Labels that may be "reject" stay text."""
    if known and all(isinstance(value, str) for value in known):
        return column
    whole = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    encoded = whole.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if known and REJECTED not in texts:
        matched = {text: match_value(text, known) for text in texts}
        if strange := [text for text, value in matched.items() if value is None]:
            raise EvidenceError(f"{strange[0]!r} is none of {shorten(known)}")
        values: list[Any] = list(matched.values())
    else:
        values = list(parse_values(texts))
    if values == texts and all(map(_DECIMAL.fullmatch, texts)):
        values = [float(text) for text in texts]
    try:
        return (pyarrow.array(values) if values else encoded.dictionary).take(encoded.indices)
    except OverflowError:  # of numbers with more than 64 bits
        return column


@contextlib.contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file, as an error that names it."""
    try:
        yield
    except FileNotFoundError:
        raise EvidenceError(f"there is no file {path}") from None
    except (pyarrow.ArrowException, OSError, UnicodeError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise EvidenceError(f"{path} cannot be read as {detect_format(path)}: {reason}") from None


@contextlib.contextmanager
def open_writer(path: Path, schema: Any) -> Iterator[Callable[[Any], None]]:
    """A function that appends a record batch; the file appears when all are written, and not before."""
    kind = detect_format(path)
    with write_atomically(path) as partial, contextlib.ExitStack() as stack:
        if kind == "json":
            file = stack.enter_context(partial.open("w", encoding="utf-8"))
            yield lambda batch: _write_lines(file, batch)
            return
        sink = stack.enter_context(pyarrow.OSFile(str(partial), "wb"))
        if _is_compressed(path):
            sink = stack.enter_context(pyarrow.CompressedOutputStream(sink, "gzip"))
        maker = {
            "parquet": pyarrow.parquet.ParquetWriter,
            "csv": pyarrow.csv.CSVWriter,
            "arrow": pyarrow.ipc.new_file,
        }[kind]
        options = {}
        if kind == "csv":
            options = {"write_options": pyarrow.csv.WriteOptions(delimiter=_find_delimiter(path))}
        writer = stack.enter_context(maker(sink, schema, **options))
        yield writer.write_batch


def write_table(path: Path, table: Any) -> None:
    """An Arrow table that is in memory."""
    with open_writer(path, table.schema) as write:
        for batch in table.to_batches():
            write(batch)


def _write_lines(file: Any, batch: Any) -> None:
    file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())
