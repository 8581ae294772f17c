"""bylaw frontier and diagnose: what rules cost, and whether they conflict."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow
import typer

from bylaw._base.atomic_files import write_atomically
from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import progress, say, show_json, show_table, tell
from bylaw.cli.inputs import Rows, check_outputs, fitting_rows, rules_of
from bylaw.cli.rules_file import RulesFile
from bylaw.data.table_files import write_table
from bylaw.errors import OptionError, RuleError
from bylaw.fitting.diagnosis import diagnose
from bylaw.fitting.frontier import Frontier, frontier
from bylaw.language.parser import Statement, parse
from bylaw.language.problem import Problem

_MOST_LEVELS = 1000
_reads_scores = takes_columns(
    "scores",
    "classes",
    "group",
    "group_probabilities",
    "reference",
    "weight",
    "normalize",
    also=("--probabilities",),
)


@_reads_scores
def frontier_of(
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    sweep: Annotated[
        str | None, typer.Option(help="The rule whose level varies, as it is written; default the first.")
    ] = None,
    levels: Annotated[str, typer.Option(help="first:last:count, or numbers with commas.")] = "0:0.2:21",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A table of the points.")] = None,
    plot: Annotated[Path | None, typer.Option(help="A picture of it, PNG, SVG or PDF.")] = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """What each level of a rule costs.

    [bold]Examples[/bold]

      bylaw frontier scores.parquet --rules rules.toml --levels 0:0.1:11 --plot frontier.png

      bylaw frontier scores.csv --rule "rejected() <= 0.1" --levels 0,0.05,0.1
    """
    check_outputs([output, plot], [table, rules])
    file = rules_of(rules, rule, minimize)
    statement, chosen = _swept(file.problem, sweep), _levels(levels)
    rows = _predicted(table, file, flags)
    solving = {name: value for name, value in file.solve.items() if name != "margin"}
    with progress("levels", len(chosen)) as advance:
        found = frontier(
            file.problem, rows.evidence, {statement: chosen}, callback=lambda _: advance(1), **solving
        )
    columns = found.to_frame(pyarrow.table({}))
    if output is not None:
        write_table(output, columns)
    if plot is not None:
        _save_plot(found, plot)
    _show_frontier(found, columns, as_json)


def _predicted(table: Path, file: RulesFile, flags: Flags) -> Rows:
    """These commands go by the model's probabilities, which somebody who gave more should know."""
    if "label" in file.columns or "margin" in file.solve:
        say("by the model's probabilities: labels and margins are for `bylaw fit`")
    return fitting_rows(table, file, flags, without=("label", "id"))


def _save_plot(found: Frontier, path: Path) -> None:
    figure = found.plot().figure
    if path.suffix.lstrip(".").lower() not in figure.canvas.get_supported_filetypes():
        raise OptionError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    with write_atomically(path) as partial:
        figure.savefig(partial, dpi=150, format=path.suffix.lstrip(".").lower())


def _swept(problem: Problem, sweep: str | None) -> Statement:
    if not problem.rules:
        raise OptionError("there is no rule to vary")
    if sweep is None:
        return problem.rules[0]
    with contextlib.suppress(RuleError):
        sweep = str(parse(sweep))  # however it is spaced
    found = [rule for rule in problem.rules if str(rule) == sweep]
    if not found:
        raise OptionError(f"no rule reads {sweep!r}; there are {[str(rule) for rule in problem.rules]}")
    return found[0]


def _levels(text: str) -> list[float]:
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        first, last, count = text.split(":")
        ends, number = (float(first), float(last)), int(count)
    except ValueError:
        raise OptionError(f"--levels is first:last:count or numbers with commas, not {text!r}") from None
    if not 1 <= number <= _MOST_LEVELS:
        raise OptionError(f"--levels: between 1 and {_MOST_LEVELS} of them, not {number}")
    return np.linspace(*ends, number).tolist()


def _show_frontier(found: Frontier, columns: Any, as_json: bool) -> None:
    lines = columns.to_pylist()
    if as_json:
        show_json([{k: None if v != v else v for k, v in line.items()} for line in lines])
        return
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()] for line in lines]
    heads = [found.swept[0], str(found.problem.minimize), "price", "status"]
    show_table("", heads, cells)


@_reads_scores
def diagnosed(
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Whether the rules can hold together, and if not, which conflict and what would help.

    Exit codes: 0 they can, 1 they conflict.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    file = rules_of(rules, rule, None)
    rows = _predicted(table, file, flags)
    found = diagnose(file.problem, rows.evidence)
    if as_json:
        names = (
            "feasible",
            "conflict",
            "least",
            "violations",
            "relaxation",
            "small_cells",
            "least_violation",
        )
        show_json({name: getattr(found, name) for name in names})
    else:
        tell(str(found))
    raise typer.Exit(0 if found.feasible else 1)
