"""bylaw frontier: the Pareto frontier of a rule's level and the cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import show_json, show_progress, show_table, tell
from bylaw.cli.standard_streams import STREAM, check_output, find_file, open_output
from bylaw.errors import BylawError, OptionError, install_extra

if TYPE_CHECKING:
    from bylaw.fitting.frontier import Frontier
    from bylaw.language.parser import Statement
    from bylaw.language.problem import Problem

_MOST_LEVELS = 1000
_PICTURES = (".png", ".svg", ".pdf")


@takes_columns(
    "scores",
    "classes",
    "group",
    "group_probabilities",
    "true_group",
    "reference",
    "label",
    "weight",
    "seen_weights",
    "normalize",
)
def run_frontier(
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="The rule whose level varies, as it is written.", show_default="the first"),
    ] = None,
    levels: Annotated[str, typer.Option(help="first:last:count, or numbers with commas.")] = "0:0.2:21",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A table of the points; - for CSV on standard output."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A picture of it, PNG, SVG or PDF.")] = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Compute what each level of a rule costs: the trade-off as a Pareto frontier.

    Each point is the policy that `bylaw fit` would find: with a column of labels, rules and costs are as
    observed.

    [bold]Examples[/bold]

      bylaw frontier scores.parquet --rules rules.toml --levels 0:0.1:11 --plot frontier.png

      bylaw frontier scores.csv --rule "rejected() <= 0.1" --levels 0,0.05,0.1
    """
    import pyarrow

    from bylaw.cli.inputs import check_outputs, find_fitting_roles, read_rows, read_rules
    from bylaw.data.table_files import detect_format, write_table
    from bylaw.fitting.frontier import frontier

    check_output(output, as_json)
    check_outputs([None if output is None else find_file(output), plot], [table, rules])
    reading = options.make_reading(sample, seed)
    if output not in (None, STREAM):
        detect_format(output)
    if plot is not None:
        _check_picture(plot)
    file = read_rules(rules, rule, minimize)
    statement, chosen = _find_swept(file.problem, sweep), _parse_levels(levels)
    try:
        for level in chosen:
            statement.at(level)  # what a level cannot be is refused now
    except BylawError as problem:
        if sweep is None and len(file.problem.rules) > 1:
            problem.message += f". The level of the first rule, {statement}, varies: choose it with --sweep"
        raise
    rows = read_rows(table, find_fitting_roles(table, file, flags, without=("id",)), {}, reading)
    rows.check_seen_weights(flags)
    solving = {**{name: value for name, value in file.solve.items() if name != "lottery"}, **rows.outcomes}
    with show_progress("levels", len(chosen)) as advance:
        found = frontier(
            file.problem, rows.evidence, {statement: chosen}, callback=lambda _: advance(1), **solving
        )
    columns = found.to_frame(pyarrow.table({}))
    if plot is not None:
        _save_plot(found, plot)
    if output is None:
        _show_frontier(found, columns, statement, as_json)
        return
    with open_output(output, ".csv") as target:
        write_table(target, columns)
        _show_frontier(found, columns, statement, as_json)


def _check_picture(path: Path) -> None:
    """Whether a picture of this name can be drawn."""
    if path.suffix.lower() not in _PICTURES:
        raise OptionError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OptionError(f"--plot needs matplotlib: {install_extra('plot')}") from None


def _save_plot(found: Frontier, path: Path) -> None:
    from bylaw._base.atomic_files import write_atomically

    figure = found.plot().figure
    with write_atomically(path) as partial:
        figure.savefig(partial, dpi=150, format=path.suffix.lstrip(".").lower())


def _find_swept(problem: Problem, sweep: str | None) -> Statement:
    if not problem.rules:
        raise OptionError("there is no rule to vary")
    try:
        return problem.rules[0 if sweep is None else problem.find(sweep)]
    except OptionError as unknown:
        unknown.add_place("--sweep")
        raise


def _parse_levels(text: str) -> list[float]:
    from bylaw._base.validation import check_number

    try:
        if ":" not in text:
            return [check_number(float(part), "a level") for part in text.split(",")]
        first, last, count = text.split(":")
        ends, number = (float(first), float(last)), int(count)
    except OptionError as problem:
        problem.add_place("--levels")
        raise
    except ValueError:
        raise OptionError(f"--levels is first:last:count or numbers with commas, not {text!r}") from None
    if not 1 <= number <= _MOST_LEVELS:
        raise OptionError(f"--levels: between 1 and {_MOST_LEVELS} of them, not {number}")
    start, end = (check_number(level, "--levels: a level") for level in ends)
    import numpy as np

    return np.linspace(start, end, number).tolist()


def _show_frontier(found: Frontier, columns: Any, statement: Statement, as_json: bool) -> None:
    lines = columns.to_pylist()
    if as_json:
        show_json([{k: None if v != v else v for k, v in line.items()} for line in lines])
        return
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()] for line in lines]
    heads = [found.swept[0], str(found.problem.minimize), "shadow price", "status"]
    show_table("", heads, cells)
    tell(_word_price(found, statement))


def _word_price(found: Frontier, statement: Statement) -> str:
    """What a price means."""
    from bylaw.report.number_format import find_level_unit

    minimize, name = found.problem.minimize, found.swept[0]
    points = minimize.is_probability and find_level_unit(statement) != "plain"
    if not points:
        return f"A price of 0.1: one more unit of level in {name} saves 0.1 of {minimize}."
    return f"A price of 0.1: one more point of level in {name} saves 0.1 points of {minimize}."
