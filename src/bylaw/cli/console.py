"""Output of commands: results go to standard output; errors, remarks and progress go to standard error.

Text that comes from files is printed without markup, and invisible characters are escaped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from bylaw._base import escape_json, make_visible
from bylaw.errors import (
    BylawError,
    ConvergenceWarning,
    GuaranteeWarning,
    InfeasibleRulesError,
    Remedy,
    UncertifiedError,
)


class ExitCode(IntEnum):
    """The exit codes of all commands, for scripts, scheduled jobs and continuous delivery."""

    SUCCESS = 0
    BROKEN = 1
    TROUBLE = 2
    FAULT = 3
    UNDECIDED = 4


MEANINGS: dict[int, str] = {
    ExitCode.SUCCESS: "success; for audit, all rules are certified; for watch, no alarm",
    ExitCode.BROKEN: "rules are violated, conflict, or cannot be certified; for watch, an alarm",
    ExitCode.TROUBLE: "a file or an option is wrong; the message names the cause",
    ExitCode.FAULT: "a bug in bylaw itself",
    ExitCode.UNDECIDED: "for audit, undecided: there are too few rows, or the policy was fitted on them",
    130: "interrupted",
}

_REMEDIES: dict[str, str] = {  # the text of each action, with flags and keys of the rules file
    "pass_labels": "name their column with --label COLUMN",
    "pass_groups": "name its column with --group {subject}=COLUMN",
    "pass_group_probabilities": "name the columns of its probabilities with "
    "--group-probabilities '{subject}=PATTERN', such as '{subject}_*'",
    "pass_true_groups": "name the column of its observed values with --true-group {subject}=COLUMN",
    "pass_combinations": "name the column of one of them with --group NAME=COLUMN; only the Python library "
    "takes probabilities of combinations",
    "pass_joint": "name its columns in the rules file of the fit with joint = {{ {subject} = "
    '"{subject}_*_label_*" }} under [columns], or give its values with --group {subject}=COLUMN',
    "drop_copies": "give each row once",
    "pass_largest_weight": "state it with --largest-weight NUMBER",
    "pass_limits": "state its range with --limit {subject}=LEAST:MOST",
    "pass_outcomes": "name the columns of its observed values with --outcomes '{subject}=PATTERN', or "
    "pass --outcomes {subject}=known if it does not depend on the outcome",
    "pass_reference": "name the column of its labels with --reference {subject}=COLUMN",
    "pass_costs": 'name its columns in the rules file with costs = {{ {subject} = "{subject}_*" }} '
    "under [columns]",
    "pass_changes": "give the policy that decided before with --previous POLICY",
    "pass_decisions": "name the column of the decisions that were taken with --decisions COLUMN, or use "
    "--method betting",
    "choose_method": "use --method {subject}",
    "choose_solver": 'otherwise set solver = "{subject}" under [solve] in the rules file',
    "choose_decisions": 'for other decisions set decisions = "{subject}" at the top of the rules file',
    "choose_reject": 'choose another name with reject = "refer" at the top of the rules file',
    "choose_probabilities": "name them with --scores 'p_*' or --scores COLUMN,COLUMN; or one, with --scores "
    "COLUMN --positive CLASS",
    "choose_scores": "name it with --scores COLUMN",
    "choose_positive": "name it with --positive CLASS",
    "name_classes": "name both with --classes OTHER,{subject}, or the column of true labels with --label",
    "choose_group": "pass --group {subject} or --group-probabilities '{subject}={subject}_*'",
    "choose_column": "pass {flag} {choices[0]}, for instance",
    "list_columns": "name the columns one by one, in the order of the classes, with --scores COLUMN,COLUMN",
    "state_delimiter": "pass --delimiter ';'",
    "normalize": "correct it, or pass --normalize to divide each row by its sum",
    "align_rows": "give both as columns of one table",
    "read_all_rows": "pass --in-memory, with a part of the rows if they are too many",
    "estimate_fitted_rows": "give rows that were held out; `bylaw audit --fitted-rows estimate` gives an "
    "estimate without a certificate",
    "plan_looks": "audit once, on all rows together; for looks that are planned beforehand, divide the error "
    "by their number: --confidence {subject} for {choices[0]}",
    "add_steps": "raise tol or lower beta under [solve] in the rules file",
    "loosen_tolerance": "raise tol or lower beta under [solve] in the rules file",
    "refit": "fit it again with `bylaw fit`",
}
_FLAGS = {"label": "--label", "weight": "--weight", "id": "--id-column"}


def word_for_shell(remedy: Remedy) -> str:
    """Return the text of a remedy for users of the command line."""
    flag = _FLAGS.get(remedy.subject, "")
    return _REMEDIES[remedy.action].format(subject=remedy.subject, choices=remedy.choices, flag=flag)


def describe_problem(problem: BaseException) -> str:
    """Return the message of an error or a warning, with its remedy and its notes."""
    advised = isinstance(problem, BylawError | ConvergenceWarning | GuaranteeWarning)
    text = problem.describe(word_for_shell) if advised else str(problem)
    return "\n".join([text, *getattr(problem, "__notes__", ())])


class _Console(Console):
    def on_broken_pipe(self) -> None:
        _discard_output()  # rich would end the program with another exit code


_out = _Console(highlight=False, soft_wrap=True, emoji=False)
_aside = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def write_result(
    facts: Any, text: Iterable[Any], as_json: bool = False, code: ExitCode | None = None
) -> None:
    """Write the result of a command, as text or as JSON; end the command if an exit code is given.

    `facts` contains the result as plain values for JSON, and gets the exit code. `text` yields lines, and
    tables of `bylaw.view.cards`; it is not computed for JSON.
    """
    if as_json:
        _print_json(facts if code is None else {**facts, "exit_code": int(code)})
    else:
        for part in text:
            if not hasattr(part, "to_lines"):
                tell(part)
                continue
            for line in part.to_lines(heads=any(part.heads)):
                tell(make_visible(line))
    if code is not None:
        raise typer.Exit(code)


def write_failure(problem: Exception, text: str, code: ExitCode, as_json: bool) -> ExitCode:
    """Write an error to standard error and, if `as_json`, to standard output; return its exit code."""
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
        _print_json({"error": text, "kind": type(problem).__name__, "exit_code": int(code), **details})
    return code


def _print_json(content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    with contextlib.suppress(BrokenPipeError):
        print(escape_json(text))  # noqa: T201
    _flush()


def tell(text: Any) -> None:
    """Print a line of the result."""
    _print(_out, text if isinstance(text, Text) else make_plain(text))
    _flush()


def make_plain(text: Any, style: str = "") -> Text:
    """Return text in which no character sequence can control the terminal."""
    return Text(make_visible(str(text), keep="\n\t"), style=style)


def print_file(path: Path) -> None:
    """Copy a file to standard output."""
    sys.stdout.flush()
    with path.open("rb") as file, contextlib.suppress(BrokenPipeError):
        shutil.copyfileobj(file, sys.stdout.buffer)
    _flush()


def _print(console: Console, text: Text) -> None:
    """Print text; on a terminal, lines break between words."""
    console.print(text, soft_wrap=not console.is_terminal)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Discard all further output, because the reader of a pipe has ended, as with `| head`.

    The exit code of the command stays the same.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def remark(text: str) -> None:
    """Print a remark to standard error, such as an assumption about columns."""
    _print(_aside, make_plain(text, "dim"))


def warn(text: str) -> None:
    """Print a warning to standard error."""
    _print(_aside, Text("warning: ", "yellow") + make_plain(text))


@contextlib.contextmanager
def redirect_warnings() -> Iterator[None]:
    """Print the warnings of the library as sentences on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: warn(
            describe_problem(message) if isinstance(message, Warning) else message
        )
        yield


@contextlib.contextmanager
def show_progress(name: str, total: int | None = None) -> Iterator[Callable[[Any], None] | None]:
    """Show a progress bar on a terminal; yield a function that advances it, or None without a terminal.

    The function accepts a number of further units, a step of a solver, or the state of a pass over rows. The
    bar appears at the first call, because a terminal can show only one bar at a time.
    """
    if not _aside.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=_aside, transient=True)
    task = bar.add_task(name, total=total)

    def advance(state: Any) -> None:
        bar.start()
        if isinstance(state, int):
            bar.update(task, advance=state)
        elif hasattr(state, "n_rows"):  # a pass over rows
            speed = f"{state.rows:,} rows, {state.rows / max(state.seconds, 1e-9):,.0f} rows/s"
            text = f"{name}, pass {state.number}: {speed}"
            bar.update(task, description=text, total=state.n_rows, completed=state.rows)
        else:
            text = f"{name}, off by {state.gradient_mapping:.1e}"
            bar.update(task, description=text, completed=state.number)

    try:
        yield advance
    finally:
        bar.stop()
