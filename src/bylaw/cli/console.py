"""Output of commands: one writer of results; errors, remarks and progress go to standard error.

Whatever comes from files is shown as plain text, without markup; invisible characters, as escapes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bylaw._base.visible_text import escape_json, make_visible
from bylaw.cli.remedies import describe_problem
from bylaw.errors import InfeasibleRulesError, UncertifiedError


class ExitCode(IntEnum):
    """Exit codes of all commands, for scripts, jobs and gates of continuous delivery."""

    SUCCESS = 0
    BROKEN = 1
    TROUBLE = 2
    FAULT = 3
    UNDECIDED = 4


MEANINGS: dict[int, str] = {
    ExitCode.SUCCESS: "success; of audit, all rules are certified; of watch, quiet",
    ExitCode.BROKEN: "rules do not hold, conflict, or cannot be certified; of watch, an alarm",
    ExitCode.TROUBLE: "trouble: something is wrong with a file or an option, and the message says what",
    ExitCode.FAULT: "a fault in bylaw itself",
    ExitCode.UNDECIDED: "of audit, undecided: the rows are too few to tell, or were fitted on",
    130: "interrupted",
}


class Grid(NamedTuple):
    """A table in the text of a result: text to the left, numbers to the right."""

    heads: Sequence[str]  # empty texts, where there is no line of heads
    rows: Sequence[Sequence[Any]]
    title: str = ""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        _discard_output()  # rich would end the program, with a code that means something else


_out = _Console(highlight=False, soft_wrap=True, emoji=False)
_aside = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def write_result(facts: Any, text: Iterable[Any], as_json: bool, code: ExitCode | None = None) -> None:
    """Write the result of a command, and end it with an exit code if one is given.

    Parameters
    ----------
    facts : dict or list
        the result for machines, written as JSON; with an exit code, this is added to it.
    text : iterable of str, rich text or Grid
        the same for people. It is not computed if JSON is asked for.
    as_json : bool
        whether JSON is asked for.
    code : ExitCode, optional
        what the command ends with; by default, the caller goes on.
    """
    if as_json:
        show_json(facts if code is None else {**facts, "exit_code": int(code)})
    else:
        for part in text:
            show_table(part) if isinstance(part, Grid) else tell(part)
    if code is not None:
        raise typer.Exit(code)


def write_failure(problem: Exception, text: str, code: ExitCode, as_json: bool) -> ExitCode:
    """Write an error on standard error, and JSON on standard output if it is asked for; return the code."""
    if (show := getattr(problem, "show", None)) is not None:  # wrong arguments
        show()
    else:
        _print(_aside, Text("error: ", "bold red") + make_plain(text))
    if as_json:
        details: dict[str, Any] = {}
        if isinstance(problem, InfeasibleRulesError):
            names = ("conflict", "least", "violations", "relaxation", "small_cells", "least_violation")
            details = {name: getattr(problem, name) for name in names}
        elif isinstance(problem, UncertifiedError):
            names = ("rule", "conflict", "p_value", "rows", "confidence")
            needed = problem.rows_needed if math.isfinite(problem.rows_needed) else None
            details = {**{name: getattr(problem, name) for name in names}, "rows_needed": needed}
        show_json({"error": text, "kind": type(problem).__name__, "exit_code": int(code), **details})
    return code


def show_json(content: Any) -> None:
    """Print for machines: nothing else goes to standard output."""
    print_raw(escape_json(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)))


def tell(text: Any) -> None:
    """Print a line of the result."""
    _print(_out, text if isinstance(text, Text) else make_plain(text))
    _flush()


def make_plain(text: Any, style: str = "") -> Text:
    """Return text that cannot steer a terminal."""
    return Text(make_visible(str(text), keep="\n\t"), style=style)


def show_table(grid: Grid) -> None:
    """Print a table."""
    table = Table(
        title=make_plain(grid.title, "bold") if grid.title else None,
        title_justify="left",
        show_header=any(grid.heads),
        box=None,
        pad_edge=False,
    )
    for i, head in enumerate(grid.heads):
        numbers = all(re.match(r"[-+]?[\d.]|nan$|$", str(row[i])) for row in grid.rows)
        table.add_column(make_plain(head), justify="right" if numbers else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(make_visible(str(cell))) for cell in row))
    _out.print(table)
    _flush()


def print_raw(text: str) -> None:
    """Print the result itself, as it is."""
    with contextlib.suppress(BrokenPipeError):
        print(text)  # noqa: T201
    _flush()


@contextlib.contextmanager
def print_at_end(path: Path) -> Iterator[None]:
    """Print a file, byte by byte, if the block succeeds; what is told meanwhile goes to standard error."""
    global _out
    told, _out = _out, _aside
    try:
        yield
    finally:
        _out = told
    sys.stdout.flush()
    with path.open("rb") as file, contextlib.suppress(BrokenPipeError):
        shutil.copyfileobj(file, sys.stdout.buffer)
    _flush()


def get_width() -> int:
    """Return the number of characters in a line of the terminal."""
    return _out.width


def _print(console: Console, text: Text) -> None:
    """Print text: on a terminal, lines end between words; in a file, they are as long as they are."""
    console.print(text, soft_wrap=not console.is_terminal)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Discard what follows, if the reader of a pipe has ended, as with `| head`; the exit code stays."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def remark(text: str) -> None:
    """Print what was assumed on the way."""
    _print(_aside, make_plain(text, "dim"))


def warn(text: str) -> None:
    """Print a warning."""
    _print(_aside, Text("warning: ", "yellow") + make_plain(text))


@contextlib.contextmanager
def redirect_warnings() -> Iterator[None]:
    """Print warnings of the library as sentences on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: warn(
            describe_problem(message) if isinstance(message, Warning) else message
        )
        yield


@contextlib.contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal; call what it gives with the work done since."""
    if not _aside.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_aside, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextlib.contextmanager
def show_steps(what: str, quiet: bool = False) -> Iterator[Callable[[Any], None] | None]:
    """Show how far a solver is, on standard error, if that is a terminal and shows no passes over rows."""
    if quiet or not _aside.is_terminal:
        yield None
        return
    with _aside.status(what) as status:
        yield lambda step: status.update(f"{what}: step {step.number}, off by {step.gradient_mapping:.1e}")


@contextlib.contextmanager
def show_passes(what: str) -> Iterator[Callable[[Any], None] | None]:
    """Show a bar for each pass over rows that are not in memory, on standard error, if that is a terminal."""
    if not _aside.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"))
    bar = Progress(*columns, console=_aside, transient=True)
    task = bar.add_task(what, total=None, speed="")

    def watch(seen: Any) -> None:
        bar.start()  # not before: nothing else can be shown beside it
        speed = f"{seen.rows:,} rows, {seen.rows / max(seen.seconds, 1e-9):,.0f} rows/s"
        name = f"{what}, pass {seen.number}"
        bar.update(task, description=name, total=seen.n_rows, completed=seen.rows, speed=speed)

    try:
        yield watch
    finally:
        bar.stop()
