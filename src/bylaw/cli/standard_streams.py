"""Tables and files on standard input and output, `-`. They go through files of a private folder: most formats
cannot be read in one go, and so nothing is written to a pipe unless the command succeeds."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw.cli.console import keep_output_free, print_file
from bylaw.errors import OptionError

STREAM = Path("-")
FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "json", "jsonl")
InputFormat = Annotated[
    str | None,
    typer.Option("--format", help=f"Of a table that is -: {', '.join(FORMATS)}.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Of the table that is -, or of the parts of a folder: {', '.join(FORMATS)}.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="Between the columns of CSV files that are read, such as ';'.",
        show_default="a comma",
    ),
]


def check_streams(
    table: Path,
    output: Path,
    format_: str | None,
    others: Mapping[str, Path | None],
    as_json: bool,
    *,
    parts: bool,
) -> None:
    """Before anything is read: standard input is one table, and its format is stated. The output may be a
    folder of parts, whose format can be stated, too."""
    for what, path in others.items():
        if path == STREAM:
            twice = "standard input can be read once" if table == STREAM else "only the table can be -"
            raise OptionError(f"{what} is -, but {twice}: give {what} as a file")
    streams = [name for name, path in (("input", table), ("output", output)) if path == STREAM]
    _check_format(format_, streams, parts)
    check_output(output, as_json)


def _check_format(format_: str | None, streams: Sequence[str], parts: bool = False) -> None:
    if format_ is not None and format_ not in FORMATS:
        raise OptionError(f"--format is one of {', '.join(FORMATS)}, not {format_!r}")
    if format_ is not None and not (streams or parts):
        raise OptionError("--format has no effect without -: names of files tell their format")
    if streams and format_ is None:
        raise OptionError(
            f"the format of standard {streams[0]} cannot be told: add --format {', '.join(FORMATS)}"
        )


def check_output(output: Path | None, as_json: bool) -> None:
    """Standard output has room for one thing."""
    if as_json and output == STREAM:
        raise OptionError("--json and -o - would both write to standard output; choose one")


@contextlib.contextmanager
def open_streams(table: Path, output: Path, format_: str | None) -> Iterator[tuple[Path, Path]]:
    """The files to read and to write; what was written for standard output goes there in the end."""
    with open_inputs({"the table": table}, format_) as found, open_output(output, f".{format_}") as target:
        yield found["the table"], target


@contextlib.contextmanager
def open_inputs(tables: Mapping[str, Any], format_: str | None) -> Iterator[dict[str, Any]]:
    """The files to read, by what they are; one of them may be standard input."""
    streams = [name for name, path in tables.items() if path == STREAM]
    if not streams:
        yield dict(tables)
        return
    if len(streams) > 1:
        raise OptionError(
            f"{streams[0]} and {streams[1]} are both -, and standard input can be read once: give one as a "
            "file"
        )
    with tempfile.TemporaryDirectory(prefix="bylaw-") as folder:
        source = Path(folder) / f"standard-input.{format_}"
        with source.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield {**tables, streams[0]: source}


@contextlib.contextmanager
def open_output(output: Path, suffix: str) -> Iterator[Path]:
    """The file to write. For standard output it is printed in the end; all else goes to standard error."""
    if output != STREAM:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="bylaw-") as folder:
        target = Path(folder) / f"standard-output{suffix}"
        with keep_output_free():
            yield target
        print_file(target)


def find_file(output: Path) -> Path | None:
    """None for standard output."""
    return None if output == STREAM else output


def name_output(output: Path) -> str:
    """For people."""
    return "standard output" if output == STREAM else str(output)


def check_inputs(tables: Mapping[str, Any], format_: str | None) -> None:
    """Before anything is read: the format of standard input is stated, and no other."""
    _check_format(format_, ["input"] if STREAM in tables.values() else [])
