"""Output of commands: tables for people, one JSON object for machines; errors and progress on standard error.

Whatever comes from files is shown as plain text, without markup; invisible characters, as escapes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bylaw._base.visible_text import escape_json, make_visible
from bylaw.cli.remedies import describe_problem

_NUMBER = re.compile(r"[-+]?[\d.]|nan$|$")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        _discard_output()  # rich would end the program, with a code that means something else


_out = _Console(highlight=False, soft_wrap=True, emoji=False)
_aside = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def _print(console: Console, text: Text) -> None:
    """On a terminal, lines end between words; in a file, they are as long as they are."""
    console.print(text, soft_wrap=not console.is_terminal)


@contextlib.contextmanager
def keep_output_free() -> Iterator[None]:
    """What is told meanwhile goes to standard error: standard output is for the result itself."""
    global _out
    told, _out = _out, _aside
    try:
        yield
    finally:
        _out = told


def make_plain(text: Any, style: str = "") -> Text:
    """Text that cannot steer a terminal."""
    return Text(make_visible(str(text), keep="\n\t"), style=style)


def tell(text: Any, style: str = "") -> None:
    """Print a line of the result."""
    _print(_out, make_plain(text, style))
    _flush()


def show_json(content: Any) -> None:
    """Print for machines: nothing else goes to standard output."""
    print_raw(escape_json(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)))


def print_raw(text: str) -> None:
    """Print the result itself, as it is."""
    with contextlib.suppress(BrokenPipeError):
        print(text)  # noqa: T201
    _flush()


def print_file(path: Path) -> None:
    """Print a file, byte by byte."""
    sys.stdout.flush()
    with path.open("rb") as file, contextlib.suppress(BrokenPipeError):
        shutil.copyfileobj(file, sys.stdout.buffer)
    _flush()


def show_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print text to the left, numbers to the right; without heads, no line for them."""
    table = Table(
        title=make_plain(title, "bold") if title else None,
        title_justify="left",
        show_header=any(heads),
        box=None,
        pad_edge=False,
    )
    for i, head in enumerate(heads):
        numbers = all(_NUMBER.match(str(row[i])) for row in rows)
        table.add_column(make_plain(head), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(make_visible(str(cell))) for cell in row))
    _out.print(table)
    _flush()


def get_width() -> int:
    """Characters in a line of the terminal."""
    return _out.width


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Where no one reads on, as with `| head`, the rest is discarded; the exit code stays."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def remark(text: str) -> None:
    """Print what was assumed on the way."""
    _print(_aside, make_plain(text, "dim"))


def warn(text: str) -> None:
    """Print a warning."""
    _print(_aside, Text("warning: ", "yellow") + make_plain(text))


def fail(text: str) -> None:
    """Print an error; the caller ends the program."""
    _print(_aside, Text("error: ", "bold red") + make_plain(text))


@contextlib.contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal; call what it gives with the work done since."""
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
    """How far a solver is, on standard error, if that is a terminal and shows no passes over rows."""
    if quiet or not _aside.is_terminal:
        yield None
        return
    with _aside.status(what) as status:
        yield lambda step: status.update(f"{what}: step {step.number}, off by {step.gradient_mapping:.1e}")


@contextlib.contextmanager
def show_passes(what: str) -> Iterator[Callable[[Any], None] | None]:
    """A bar for each pass over rows that are not in memory, on standard error, if that is a terminal."""
    if not _aside.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"))
    bar, bars = Progress(*columns, console=_aside, transient=True), dict[int, Any]()

    def watch(seen: Any) -> None:
        bar.start()  # not before: nothing else can be shown beside it
        for number in [number for number in bars if number != seen.number]:
            bar.remove_task(bars.pop(number))
        if seen.number not in bars:
            bars[seen.number] = bar.add_task(f"{what}, pass {seen.number}", total=seen.n_rows, speed="")
        speed = f"{seen.rows:,} rows, {seen.rows / max(seen.seconds, 1e-9):,.0f} rows/s"
        bar.update(bars[seen.number], completed=seen.rows, speed=speed)

    try:
        yield watch
    finally:
        bar.stop()


@contextlib.contextmanager
def redirect_warnings() -> Iterator[None]:
    """Warnings of the library as sentences on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: warn(
            describe_problem(message) if isinstance(message, Warning) else message
        )
        yield
