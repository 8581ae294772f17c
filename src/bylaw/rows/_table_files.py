"""Tables in files: CSV, Parquet, Arrow and JSON, read and written in batches. Needs pyarrow.

A table is one file, or all files of a folder or a pattern, which must have the same columns.
A CSV file has no types, and guesses may be wrong: text that is read as a number loses its leading zeros, and
a column that begins with integers may have other numbers below. So callers pass the types of columns.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from bylaw._base import Value, write_atomically
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import shorten
from bylaw.rows._columns import Columns
from bylaw.rows._evidence import REJECTED
from bylaw.rows._json_lines import open_lines, read_first
from bylaw.rows._text_values import check_length, has_truth, match_value, parse_values

BATCH_ROWS = 131_072  # a few megabytes
_HIDDEN = (".", "_")  # first characters of the names of marker files, such as _SUCCESS
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
    ".json": "json",
}
_Opened = tuple[Any, Iterator[Any]]  # a schema, and the batches
# The delimiter of CSV files, if it does not follow from their names; see `read_with_delimiter`.
_delimiter: ContextVar[str | None] = ContextVar("delimiter", default=None)


def detect_format(path: Path) -> str:
    """Return the format of a file (csv, parquet, arrow or json) from the ending of its name."""
    suffix = find_suffix(path)
    if suffix is None:
        raise OptionError(f"the name of a table must end in one of {', '.join(_SUFFIXES)}, got {path}")
    return _SUFFIXES[suffix]


def find_suffix(path: Path) -> str | None:
    """Return the ending of a file name that determines its format, such as `.csv.gz`, or None."""
    return next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), None)


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _find_delimiter(path: Path) -> str:
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


@contextlib.contextmanager
def read_with_delimiter(delimiter: str | None) -> Iterator[None]:
    """Return a context in which CSV files are read with a delimiter; by default a comma, or a tab in .tsv."""
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise OptionError(f"the delimiter must be one character, such as ';', got {delimiter!r}")
    token = _delimiter.set(delimiter)
    try:
        yield
    finally:
        _delimiter.reset(token)


def find_files(source: str) -> list[Path]:
    """Return the files of a table, sorted by name; `source` is a file, a folder or a pattern with stars."""
    path = Path(source)
    if path.is_dir():
        found = _list_folder(path)
    elif is_many(path):
        names = glob.iglob(source, recursive=True)  # noqa: PTH207
        root, own = find_root(path), path.name.startswith(_HIDDEN)
        matching = [Path(name) for name in names]
        matching = [match for match in matching if own or not _is_hidden(match, root)]
        inside = [_list_folder(match) if match.is_dir() else [match] for match in matching]
        found = sorted({file for files in inside for file in files if file.is_file()})
    else:
        found = [path]
    if not found:
        raise EvidenceError(f"no files were found in {source}; check the path")
    for other in found[1:]:
        if detect_format(other) != detect_format(found[0]):
            raise EvidenceError(
                f"the files of one table must have the same format, got {detect_format(found[0])} for "
                f"{found[0]} and {detect_format(other)} for {other}"
            )
    return found


def _list_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))


def _is_hidden(path: Path, folder: Path) -> bool:
    """Return whether a file is a marker of another tool, such as _SUCCESS and .crc files."""
    return any(part.startswith(_HIDDEN) for part in path.relative_to(folder).parts)


def is_many(path: Path) -> bool:
    """Return whether the path of a table is a folder or a pattern, which may have many files."""
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def name_table(path: Path) -> str:
    """Return the name of a table for messages."""
    return path.name or str(path.resolve())


def find_root(path: Path) -> Path:
    """Return the folder that contains the files of a table.

    For a pattern, this is the part of the path before the first star.
    """
    if path.is_dir() or not is_many(path):
        return path if path.is_dir() else path.parent
    fixed = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
    if ".." in path.parts[fixed:]:
        raise OptionError(f"{path} must not have .. after a star; write the path without ..")
    return Path(*path.parts[:fixed])


def would_read(source: Path, path: Path) -> bool:
    """Return whether a table includes the file at `path`, or would include it if the file existed."""
    if not is_many(source):
        return source.resolve() == path.resolve()
    root = find_root(source)
    if not path.resolve().is_relative_to(root.resolve()):
        return False

    def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
        """Return whether a pattern matches a file, or a folder that contains it."""
        if not pattern:
            return True
        if pattern[0] == "**":
            return any(matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
        return bool(parts) and fnmatch(parts[0], pattern[0]) and matches(parts[1:], pattern[1:])

    pattern = () if source.is_dir() else source.parts[len(root.parts) :]
    return matches(path.resolve().relative_to(root.resolve()).parts, pattern)


class FileState(NamedTuple):
    """The size of a file and the time of its last change, to detect later changes."""

    size: int
    modified: int  # nanoseconds


def look_at(path: Path) -> FileState:
    """Return the current size and modification time of a file."""
    with name_file(path):
        found = path.stat()
    return FileState(found.st_size, found.st_mtime_ns)


def check_unchanged(path: Path, state: FileState) -> None:
    """Raise an `EvidenceError` if a file was changed or removed since its `state` was recorded."""
    if not path.exists():
        raise EvidenceError(f"{path} was removed while its rows were read; start again")
    if look_at(path) != state:
        raise EvidenceError(f"{path} was changed while its rows were read; start again")


@dataclass(frozen=True)
class TableFile:
    """A table of any size that is read in batches; its path may be a folder or a pattern of many files."""

    path: Path
    text: Sequence[str] = ()  # columns to read as text, even if it looks like numbers
    numbers: Sequence[str] = ()  # columns to read as numbers
    # Columns of labels or groups, with their values if these are known.
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    types: Mapping[str, Any] = field(
        default_factory=dict
    )  # Arrow types of columns, if this is one of several files
    delimiter: str | None = field(default_factory=_delimiter.get)  # of a CSV file; None to use its name
    row_groups: tuple[int, ...] | None = None  # to read from a Parquet file; None for all of them

    @cached_property
    def files(self) -> list[Path]:
        """The files of the table; a single one unless its path is a folder or a pattern."""
        return find_files(str(self.path))

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns."""
        (first, schema), *others = self._schemas.items()
        names = list(schema.names)
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise EvidenceError(f"{first} has two columns named {twice[0]!r}; rename one of them")
        if len(names) == 1 and ";" in names[0]:
            raise EvidenceError(
                f"{first} must be separated by commas, got what seem to be semicolons",
                Remedy("state_delimiter"),
            )
        for path, other in others:
            for has, lacks, missing in (
                (first, path, sorted({*names} - {*other.names})),
                (path, first, sorted({*other.names} - {*names})),
            ):
                if missing:
                    raise EvidenceError(
                        f"the files of one table must have the same columns, but {lacks} has no column "
                        f"{missing[0]!r}, which {has} has"
                    )
        return names

    @cached_property
    def _schemas(self) -> dict[Path, Any]:
        """The Arrow schema of each file."""
        found = {}
        for path in self.files:
            with replace(self, path=path)._open() as (schema, _):
                found[path] = schema
        return found

    @property
    def rows(self) -> int | None:
        """The number of rows for Parquet files; None for other files, which do not record it."""
        if detect_format(self.files[0]) != "parquet":
            return None
        total = 0
        for path in self.files:
            with name_file(path), pyarrow.parquet.ParquetFile(path) as file:
                total += file.metadata.num_rows
        return total

    def estimate_rows(self) -> int:
        """Return the number of rows; if the files do not record it, estimate it from their size."""
        if (rows := self.rows) is not None:
            return rows
        # A value takes about eight bytes, and compression saves about three quarters.
        sizes = [look_at(path).size * (4 if _is_compressed(path) else 1) for path in self.files]
        return sum(sizes) // (8 * max(len(self.names), 1))

    def split(self, columns: Sequence[str] | None = None) -> list[TableFile]:
        """Return one table per file, in which the given columns have the same types in all files."""
        names = self.names
        columns = names if columns is None else columns
        if missing := [name for name in columns if name not in names]:
            raise EvidenceError(f"{self.path} has no column {missing[0]!r}; it has {names}")
        if self.files == [self.path]:
            return [self]
        types = {name: self._find_type(name) for name in columns}
        return [replace(self, path=path, types=types) for path in self.files]

    def _find_type(self, name: str) -> Any:
        """Return an Arrow type to which the column can be converted in all files."""
        first = self.files[0]
        found = self._schemas[first].field(name).type
        for path, schema in self._schemas.items():
            other = schema.field(name).type
            if other == found:
                continue
            try:
                kinds = [
                    one.value_type if pyarrow.types.is_dictionary(one) else one for one in (found, other)
                ]
                pair = [pyarrow.schema([(name, kind)]) for kind in kinds]
                found = pyarrow.unify_schemas(pair, promote_options="permissive").field(0).type
            except pyarrow.ArrowException:
                raise EvidenceError(
                    f"the files of one table must have columns of the same types, but {name!r} is {other} in "
                    f"{path} and {found} in {first}; convert it to one type"
                ) from None
        return found

    def batches(self, columns: Sequence[str] | None = None) -> Generator[Any, None, None]:
        """Yield record batches of the given columns, with at most some hundred thousand rows each."""
        for file in self.split(columns):
            with file._open(columns) as (_, batches):
                for batch in file._guard(batches):
                    yield file.parse_values(batch)

    def read(self, columns: Sequence[str] | None = None, most_bytes: float = math.inf) -> Any:
        """Return all rows of some columns as an Arrow table, or raise a `MemoryError` if it is too large."""
        tables, n_bytes = [], 0
        for file in self.split(columns):
            with file._open(columns) as (schema, batches):
                parts = []
                for batch in file._guard(batches):
                    parts.append(batch)
                    n_bytes += batch.nbytes
                    if n_bytes > most_bytes:
                        raise MemoryError(
                            f"the columns of {self.path} take more than {most_bytes:,.0f} bytes"
                        )
                tables.append(pyarrow.Table.from_batches(parts, schema=schema))
        return self.parse_values(pyarrow.concat_tables(tables))

    def parse_values(self, rows: Any) -> Any:
        """Return rows of a CSV file with the texts of labels and groups converted to values.

        In other files, only booleans are converted, which may be stored as text.
        """
        typed = detect_format(self.files[0]) != "csv"
        for name in set(self.values) & set(rows.schema.names):
            kind, known = rows.schema.field(name).type, self.values[name]
            truth, text = pyarrow.types.is_boolean(kind), _is_text(kind)
            mixed = text or (truth and any(isinstance(value, str) for value in known))
            if typed and not (mixed and has_truth(known)):
                continue
            column = rows.column(name).cast(pyarrow.string()) if truth else rows.column(name)
            try:
                column = parse_column(column, known)
            except EvidenceError as problem:
                for file in self.split([name]) if len(self.files) > 1 else ():
                    file.read([name])  # raises an error that names the file
                problem.add_place(f"{self.path}: {name}")
                raise
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows

    def _guard(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches; raise an error that names the file if it is damaged or a label is too long."""
        with name_file(self.path):
            for batch in batches:
                for name in {*self.values}.intersection(batch.schema.names):
                    column = batch.column(name)
                    texts = column.dictionary if isinstance(column, pyarrow.DictionaryArray) else column
                    if _is_text(texts.type):
                        lengths = pyarrow.compute.call_function("binary_length", [texts])
                        longest = pyarrow.compute.call_function("max", [lengths]).as_py() or 0
                        check_length(longest, f"{self.path}: the column {name!r}")
                yield batch

    @contextlib.contextmanager
    def _open(self, columns: Sequence[str] | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Return a context with the schema and the batches of a single file."""
        if columns is None and self.types:
            columns = list(self.types)
        with contextlib.ExitStack() as stack:
            with name_file(self.path):
                found, batches = _OPENERS[detect_format(self.path)](self, columns, stack)
            schema = pyarrow.schema([one.with_type(self.types.get(one.name, one.type)) for one in found])
            yield schema, batches if schema == found else (batch.cast(schema) for batch in batches)


def _is_text(kind: Any) -> bool:
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def open_columns(
    path: Path,
    columns: Columns,
    groups: Mapping[str, Sequence[Value]] | None = None,
    text: Sequence[str] = (),
) -> TableFile:
    """Return a table whose columns are read according to their roles.

    `groups` has known values of attributes, and columns in `text` are read as text.
    """
    numbers, values = columns.numbers, columns.list_values(groups)
    ids = () if columns.id is None else (columns.id,)
    return TableFile(
        path, [*ids, *(n for n in text if n not in numbers and n not in values)], numbers, values
    )


def _open_parquet(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Opened:
    # Without pre_buffer=False, pyarrow holds the whole file in memory in the end.
    file = stack.enter_context(pyarrow.parquet.ParquetFile(table.path, pre_buffer=False))
    schema = file.schema_arrow
    if columns is not None:
        schema = pyarrow.schema([schema.field(name) for name in columns])
    return schema, file.iter_batches(BATCH_ROWS, row_groups=table.row_groups, columns=list(schema.names))


def _open_csv(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Opened:
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
    parsing = pyarrow.csv.ParseOptions(delimiter=table.delimiter or _find_delimiter(table.path))
    source = table.path
    if _is_compressed(table.path):
        source = stack.enter_context(pyarrow.input_stream(table.path, compression="gzip"))
    reader = stack.enter_context(
        pyarrow.csv.open_csv(source, parse_options=parsing, convert_options=converting)
    )
    for column in reader.schema:
        if pyarrow.types.is_binary(column.type):
            raise EvidenceError(
                f"{table.path}: the column {column.name!r} must be text in UTF-8; save the file as UTF-8"
            )
    return reader.schema, iter(reader)


def _open_arrow(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Opened:
    source = stack.enter_context(pyarrow.memory_map(str(table.path)))
    reader = stack.enter_context(pyarrow.ipc.open_file(source))
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    schema, batches = _select(reader.schema, batches, columns)

    def validate(batch: Any) -> Any:
        # Readers of Parquet and CSV check what they decode; Arrow maps the bytes of the file, and offsets out
        # of bounds would show this process's memory.
        batch.validate(full=True)
        return batch

    return schema, map(validate, batches)


def _open_json(table: TableFile, columns: Sequence[str] | None, stack: contextlib.ExitStack) -> _Opened:
    lines = stack.enter_context(open_lines(table.path))
    first = read_first(lines)
    # Otherwise text that looks like a date becomes one, and columns that begin with integers become integers.
    texts = [name for name in (*table.text, *table.values) if isinstance(first.get(name), str)]
    numbers = [name for name in table.numbers if isinstance(first.get(name), int | float)]
    kinds = {**dict.fromkeys(texts, pyarrow.string()), **dict.fromkeys(numbers, pyarrow.float64())}
    options = pyarrow.json.ParseOptions(explicit_schema=pyarrow.schema(list(kinds.items())))
    reader = stack.enter_context(pyarrow.json.open_json(lines, parse_options=options))
    return _select(reader.schema, iter(reader), columns)


def _select(schema: Any, batches: Iterator[Any], columns: Sequence[str] | None) -> _Opened:
    if columns is None:
        return schema, batches
    chosen = list(columns)
    return pyarrow.schema([schema.field(name) for name in chosen]), (
        batch.select(chosen) for batch in batches
    )


_OPENERS: dict[str, Callable[[TableFile, Sequence[str] | None, contextlib.ExitStack], _Opened]] = {
    "parquet": _open_parquet,
    "csv": _open_csv,
    "arrow": _open_arrow,
    "json": _open_json,
}


def parse_column(column: Any, known: Sequence[Value] = ()) -> Any:
    """Return a column of text converted to the values in `known`.

    Without them, convert it to integers, booleans or numbers if all cells are such. A column of labels with
    "reject" remains text.
    """
    if known and all(isinstance(value, str) for value in known) and not has_truth(known):
        return column
    whole = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    encoded = whole.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if known and REJECTED not in texts:
        matched = {text: match_value(text, known) for text in texts}
        if strange := [text for text, value in matched.items() if value is None]:
            raise EvidenceError(f"unknown value {strange[0]!r}; it must be one of {shorten(known)}")
        values: list[Any] = list(matched.values())
    else:
        values = list(parse_values(texts))
    if values == texts and all(map(_DECIMAL.fullmatch, texts)):
        values = [float(text) for text in texts]
    try:
        return (pyarrow.array(values) if values else encoded.dictionary).take(encoded.indices)
    except OverflowError:  # integers with more than 64 bits
        return column


@contextlib.contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Return a context that raises errors of pyarrow and the system as an error that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise EvidenceError(f"no such file: {path}") from None
    except (pyarrow.ArrowException, OSError, UnicodeError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise EvidenceError(f"{path} cannot be read as {detect_format(path)}: {reason}") from None


@contextlib.contextmanager
def open_writer(path: Path, schema: Any) -> Iterator[Callable[[Any], None]]:
    """Return a context with a function that appends a record batch to a new file.

    The file appears only after all batches are written.
    """
    format_name = detect_format(path)
    with write_atomically(path) as partial, contextlib.ExitStack() as stack:
        if format_name == "json":
            # One list of objects in .json, one object per line otherwise.
            begin, between, end = (
                ("[\n", ",\n", "\n]\n") if path.suffix.lower() == ".json" else ("", "\n", "\n")
            )
            file, rows = stack.enter_context(partial.open("w", encoding="utf-8")), 0

            def write(batch: Any) -> None:
                nonlocal rows
                for row in batch.to_pylist():
                    text = json.dumps(row, ensure_ascii=False, default=str)
                    file.write(f"{between if rows else begin}{text}")
                    rows += 1

            yield write
            file.write(end if rows else "[]\n" if begin else "")
            return
        sink = stack.enter_context(pyarrow.OSFile(str(partial), "wb"))
        if _is_compressed(path):
            sink = stack.enter_context(pyarrow.CompressedOutputStream(sink, "gzip"))
        if format_name == "csv":
            options = pyarrow.csv.WriteOptions(delimiter=_find_delimiter(path))
            writer = pyarrow.csv.CSVWriter(sink, schema, write_options=options)
        else:
            make = pyarrow.parquet.ParquetWriter if format_name == "parquet" else pyarrow.ipc.new_file
            writer = make(sink, schema)
        yield stack.enter_context(writer).write_batch


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table in memory to a file."""
    with open_writer(path, table.schema) as write:
        for batch in table.to_batches():
            write(batch)
