"""Files that a command reads and writes, and `-`, standard input and output.

Tables on standard input and output are copied through files in a private folder: most formats cannot be read
in one pass, and nothing is written to a pipe unless the command succeeds.
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
    """Return the files of the tables that a command reads, until the command ends.

    Standard input is copied to a file. The options --delimiter and --format of the command are checked, and
    CSV files are read with that delimiter. `output` is a table in the format of --format, and `parts` states
    that the command writes a folder of these; `others` are more tables, by the names of their options.
    """
    from bylaw.rows.table_files import read_with_delimiter

    given, tables = vars(context.obj), {"the table": table}
    format_ = given.get("format_")
    tables |= {f"--{name.replace('_', '-')}": path for name, path in others.items()}
    read = [name for name, path in tables.items() if path == STREAM]
    if len(read) > 1:
        raise OptionError(
            f"{read[0]} and {read[1]} are both -, and standard input can be read once: give one as a file"
        )
    streams = [*(["input"] if read else []), *(["output"] if output == STREAM else [])]
    if format_ is not None and format_ not in FORMATS:
        raise OptionError(f"--format must be one of {', '.join(FORMATS)}, got {format_!r}")
    if format_ is not None and not (streams or parts):
        raise OptionError("--format has no effect without -: the name of a file determines its format")
    if streams and format_ is None:
        raise OptionError(
            f"the format of standard {streams[0]} is unknown: add --format {', '.join(FORMATS)}"
        )
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
    """Raise an error if an output cannot be written, or is an input or another output of the command.

    `output` is the file of -o, which alone can be standard output; `others` are more outputs. `as_json`
    states that JSON is printed.
    """
    from bylaw.rows.table_files import is_many, would_read

    if as_json and output == STREAM:
        raise OptionError("--json and -o - would both write to standard output; choose one")
    if STREAM in others:
        raise OptionError("only -o can be -, standard output; write the other to a file")
    given = [path for path in inputs if path is not None]
    used = [_resolve(path) for path in given]
    for path in [path for path in (output, *others) if path not in (None, STREAM)]:
        if not path.parent.is_dir():
            raise OptionError(f"cannot write {path}: the folder {path.parent} does not exist")
        if _resolve(path) in used:
            raise OptionError(f"{path} is an input or another output of this command; choose another name")
        for table in given:
            if is_many(table) and would_read(table, path):
                raise OptionError(
                    f"{path} is among the files of {table}: the next run would read it; write it to another "
                    "folder"
                )
        used.append(_resolve(path))


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise OptionError(f"{path} is a broken link") from None


@contextlib.contextmanager
def open_output(output: Path, suffix: str) -> Iterator[Path]:
    """Yield the file to write; copy it to standard output if that is the output and the block succeeds."""
    if output != STREAM:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="bylaw-") as folder:
        target = Path(folder) / f"standard-output{suffix}"
        with contextlib.redirect_stdout(sys.stderr):  # where results are printed meanwhile
            yield target
        print_file(target)


def name_output(output: Path) -> str:
    """Return the name of an output in text."""
    return "standard output" if output == STREAM else str(output)


@contextlib.contextmanager
def name_saved(output: Path) -> Iterator[None]:
    """Add to errors of a report that the policy is saved, so that the solve is not lost."""
    saved = "no policy is printed, since" if output == STREAM else f"the policy is saved as {output}, but"
    try:
        yield
    except (BylawError, OSError) as problem:
        raise BylawError(
            f"{saved} its report failed: {getattr(problem, 'message', problem)}",
            getattr(problem, "remedy", None),
        ) from problem
    except Exception as fault:
        raise BylawError(
            f"{saved} its report failed by a fault in bylaw; please report it\n{traceback.format_exc()}"
        ) from fault
