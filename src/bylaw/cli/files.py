"""The files that a command reads and writes, including standard input and output (`-`).

Standard input and output are copied through files in a private folder, because most formats cannot be read
in one pass, and because nothing should be written to a pipe unless the command succeeds.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from bylaw.cli.console import print_file
from bylaw.cli.options import FORMATS
from bylaw.errors import BylawError, OptionError

STREAM = Path("-")


def open_tables(
    context: typer.Context,
    table: Path | None,
    output: Path | None = None,
    *,
    parts: bool = False,
    **others: Path | None,
) -> list[Any]:
    """Return the paths of the tables that a command reads, valid until the command ends.

    Standard input is copied to a file. The options --delimiter and --format of the command are checked, and
    CSV files are read with this delimiter. `output` is the table to write, `parts` is True if the command
    writes
    a folder of tables, and `others` are further tables to read, by the names of their options.
    """
    from bylaw.rows import read_with_delimiter

    given, tables = vars(context.obj), {"the table": table}
    format_ = given.get("format_")
    tables |= {f"--{name.replace('_', '-')}": path for name, path in others.items()}
    read = [name for name, path in tables.items() if path == STREAM]
    if len(read) > 1:
        raise OptionError(
            f"only one table can be standard input (-), got {read[0]} and {read[1]}; pass one as a file"
        )
    streams = [*(["input"] if read else []), *(["output"] if output == STREAM else [])]
    if format_ is not None and format_ not in FORMATS:
        raise OptionError(f"--format must be one of {', '.join(FORMATS)}, got {format_!r}")
    if format_ is not None and not (streams or parts):
        raise OptionError(
            "--format has no effect without -, because file names determine their formats; leave it out"
        )
    if streams and format_ is None:
        raise OptionError(f"--format must be given for standard {streams[0]}: one of {', '.join(FORMATS)}")
    if given["delimiter"] is not None:
        context.with_resource(read_with_delimiter(given["delimiter"]))
    if read:
        folder = Path(context.with_resource(tempfile.TemporaryDirectory(prefix="bylaw-")))
        tables[read[0]] = path = folder / f"standard-input.{format_}"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    return list(tables.values())


def check_outputs(
    output: Path | None, inputs: Sequence[Path | None], *others: Path | None, as_json: bool = False
) -> None:
    """Raise if an output cannot be written, or is an input or another output of the command.

    `output` is the file of -o, which alone can be standard output. `others` are further outputs, and
    `as_json` is True if the command prints JSON.
    """
    from bylaw.rows import is_many, would_read

    if as_json and output == STREAM:
        raise OptionError("--json and -o - would both write to standard output; choose one")
    if STREAM in others:
        raise OptionError("only -o can be standard output (-); write the other output to a file")
    given = [path for path in inputs if path is not None]
    used = [_resolve(path) for path in given]
    for path in [path for path in (output, *others) if path not in (None, STREAM)]:
        if not path.parent.is_dir():
            raise OptionError(
                f"cannot write {path}: the folder {path.parent} does not exist; create it first"
            )
        if _resolve(path) in used:
            raise OptionError(f"{path} is an input or another output of this command; choose another name")
        for table in given:
            if is_many(table) and would_read(table, path):
                raise OptionError(
                    f"{path} is among the files of {table}, so the next run would read it; write it to "
                    "another folder"
                )
        used.append(_resolve(path))


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise OptionError(f"{path} is a broken link; remove it, or choose another path") from None


@contextlib.contextmanager
def open_output(output: Path, suffix: str) -> Iterator[Path]:
    """Yield the file to write; for standard output, copy the file there if the block succeeds."""
    if output != STREAM:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="bylaw-") as folder:
        target = Path(folder) / f"standard-output{suffix}"
        with contextlib.redirect_stdout(sys.stderr):  # where results are printed meanwhile
            yield target
        print_file(target)


def name_output(output: Path) -> str:
    """Return the name of an output for messages."""
    return "standard output" if output == STREAM else str(output)


@contextlib.contextmanager
def name_saved(output: Path) -> Iterator[None]:
    """Add to errors of a report that the policy is saved already."""
    saved = "no policy is printed, because" if output == STREAM else f"the policy is saved as {output}, but"
    try:
        yield
    except (BylawError, OSError) as problem:
        raise BylawError(
            f"{saved} its report failed: {getattr(problem, 'message', problem)}",
            getattr(problem, "remedy", None),
        ) from problem
    except Exception as fault:
        raise BylawError(
            f"{saved} its report failed with an internal error of bylaw; please report it\n"
            f"{traceback.format_exc()}"
        ) from fault
