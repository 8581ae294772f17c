"""Tables on standard input and output, `-`. They go through files of a private folder: most formats cannot be
read in one go, and so nothing is written to a pipe unless the command succeeds."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from bylaw.cli.console import print_file
from bylaw.errors import OptionError

STREAM = Path("-")
FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "jsonl")
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Of the table that is -, or of the parts of a folder: {', '.join(FORMATS)}.",
        show_default=False,
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
    if format_ is not None and format_ not in FORMATS:
        raise OptionError(f"--format is one of {', '.join(FORMATS)}, not {format_!r}")
    if format_ is not None and not (streams or parts):
        raise OptionError("--format has no effect without -: names of files tell their format")
    if streams and format_ is None:
        raise OptionError(
            f"the format of standard {streams[0]} cannot be told: add --format {', '.join(FORMATS)}"
        )
    if as_json and output == STREAM:
        raise OptionError("--json and -o - would both write to standard output; choose one")


@contextlib.contextmanager
def open_streams(table: Path, output: Path, format_: str | None) -> Iterator[tuple[Path, Path]]:
    """The files to read and to write; what was written for standard output goes there in the end."""
    if STREAM not in (table, output):
        yield table, output
        return
    with tempfile.TemporaryDirectory(prefix="bylaw-") as folder:
        source, target = table, output
        if table == STREAM:
            source = Path(folder) / f"standard-input.{format_}"
            with source.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        if output == STREAM:
            target = Path(folder) / f"standard-output.{format_}"
        yield source, target
        if output == STREAM:
            print_file(target)
