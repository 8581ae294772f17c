"""What commands say: tables for people, one JSON object for machines, errors and progress aside.

Whatever comes from files is shown as plain text, without markup and without control characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_NUMBER = re.compile(r"[-+]?[\d.]|nan$|$")


_IN_SHELL = {  # what the library advises, as the command line says it
    r"pass normalize=True to": "pass --normalize to",
    r"fitted_rows='estimate'": "`bylaw audit --fitted-rows estimate`",
    r"choose another with reject=": 'choose another: reject = "refer" at the top of the rules file',
    r"pass groups=\{'(\w+)'[^}]*\}": r"say which column holds it: --group \1=COLUMN",
    r"pass groups=": "say which column holds it: --true-group NAME=COLUMN",
    r"pass labels=": "say which column holds them: --label COLUMN",
    r"pass limits=\{'(\w+)'[^}]*\}": r"say --limit \1=LEAST:MOST",
    r"pass joint=\{'(\w+)'[^}]*\}": r'say joint = { \1 = "\1_*_label_*" } under [columns] in the rules file',
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        _hush()  # rich would end the program, with a code that means something else


_out = _Console(highlight=False, soft_wrap=True, emoji=False)
_aside = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def plain(text: Any, style: str = "") -> Text:
    """Text that cannot steer a terminal."""
    kept = (c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in str(text))
    return Text("".join(kept), style=style)


def tell(text: Any, style: str = "") -> None:
    """A line of the result."""
    _out.print(plain(text, style))
    _flush()


def show_json(content: Any) -> None:
    """For machines: nothing else goes to standard output."""
    pour(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str))


def pour(text: str) -> None:
    """The result itself, as it is."""
    with contextlib.suppress(BrokenPipeError):
        print(text)  # noqa: T201
    _flush()


def show_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Text to the left, numbers to the right; without heads, no line for them."""
    table = Table(
        title=plain(title, "bold") if title else None,
        title_justify="left",
        show_header=any(heads),
        box=None,
        pad_edge=False,
    )
    for i, head in enumerate(heads):
        numbers = all(_NUMBER.match(str(row[i])) for row in rows)
        table.add_column(plain(head), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    _out.print(table)
    _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()


def _hush() -> None:
    """Where nobody reads on, as with `| head`, the rest is said to nobody; the exit code stays."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_shell(text: str) -> str:
    """A message of the library for somebody who does not call it from Python."""
    for python, shell in _IN_SHELL.items():
        text = re.sub(python, shell, text)
    return text


def say(text: str) -> None:
    """A remark on the way."""
    _aside.print(plain(text, "dim"))


def warn(text: str) -> None:
    _aside.print(Text("warning: ", "yellow") + plain(in_shell(text)))


def fail(text: str) -> None:
    _aside.print(Text("error: ", "bold red") + plain(in_shell(text)))


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal; call what it gives with the work done since."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_aside, transient=True, disable=not _aside.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextlib.contextmanager
def steps(what: str) -> Iterator[Callable[[Any], None] | None]:
    """How far a solver is, on standard error, if that is a terminal."""
    if not _aside.is_terminal:
        yield None
        return
    with _aside.status(what) as status:
        yield lambda step: status.update(f"{what}: step {step.number}, off by {step.gradient_mapping:.1e}")


@contextlib.contextmanager
def warnings_aside() -> Iterator[None]:
    """Warnings of the library as sentences on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield
