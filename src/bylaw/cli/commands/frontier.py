"""bylaw frontier: the Pareto frontier of a rule's level and the cost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import Grid, show_progress, write_result
from bylaw.cli.files import STREAM, check_outputs, open_output, open_tables
from bylaw.errors import BylawError, OptionError, install_extra

if TYPE_CHECKING:
    from bylaw.fitting.frontier import Frontier
    from bylaw.language.parser import Statement

MAX_LEVELS = 1000  # each is a fit, so that more are a mistake


def run_frontier(
    context: typer.Context,
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
    scores: options.Scores = None,
    positive: options.Positive = None,
    classes: options.Classes = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.SeenWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute what each level of a rule costs: the trade-off as a Pareto frontier.

    Each point is the policy that `bylaw fit` would find: with a column of labels, rules and costs are as
    observed.

    [bold]Examples[/bold]

      bylaw frontier scores.parquet --rules rules.toml --levels 0:0.1:11 --plot frontier.png

      bylaw frontier scores.csv --rule "rejected() <= 0.1" --levels 0,0.05,0.1
    """
    import pyarrow

    from bylaw._base.files import write_atomically
    from bylaw.cli.inputs import read_rows
    from bylaw.cli.rules_file import read_rules
    from bylaw.cli.table_columns import find_fitting_columns
    from bylaw.fitting.frontier import frontier
    from bylaw.rows.table_files import detect_format, write_table

    check_outputs(output, [table, rules], plot, as_json=as_json)
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    if output not in (None, STREAM):
        detect_format(output)
    if plot is not None:
        _check_picture(plot)
    file = read_rules(rules, rule, minimize)
    if not file.problem.rules:
        raise OptionError("there is no rule to vary")
    try:
        statement = file.problem.rules[0 if sweep is None else file.problem.find(sweep)]
    except OptionError as unknown:
        unknown.add_place("--sweep")
        raise
    chosen = _parse_levels(levels)
    try:
        for level in chosen:
            statement.at(level)  # what a level cannot be is refused now
    except BylawError as problem:
        if sweep is None and len(file.problem.rules) > 1:
            problem.message += f". The level of the first rule, {statement}, varies: choose it with --sweep"
        raise
    (table,) = open_tables(context, table)
    names, _ = find_fitting_columns(table, file, stated, without=("id",))
    rows = read_rows(table, names, {}, reading)
    rows.check_propensity_weights(stated)
    stated = {name: value for name, value in file.solve.items() if name != "deterministic"}
    solving = {**stated, **rows.outcomes}
    with show_progress("levels", len(chosen)) as advance:
        found = frontier(
            file.problem, rows.evidence, {statement: chosen}, callback=lambda _: advance(1), **solving
        )
    columns = found.to_frame(pyarrow.table({}))
    if plot is not None:
        figure = found.plot().figure
        with write_atomically(plot) as partial:
            figure.savefig(partial, dpi=150, format=plot.suffix.lstrip(".").lower())
    with contextlib.ExitStack() as stack:
        if output is not None:
            write_table(stack.enter_context(open_output(output, ".csv")), columns)
        lines = columns.to_pylist()
        facts = [{name: None if v != v else v for name, v in line.items()} for line in lines]  # no nan
        write_result(facts, _describe(found, lines, statement), as_json)


def _check_picture(path: Path) -> None:
    """Raise an error if no picture of this name can be drawn."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise OptionError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OptionError(f"--plot needs matplotlib: {install_extra('plot')}") from None


def _parse_levels(text: str) -> list[float]:
    """Return the levels of first:last:count, or of numbers with commas."""
    from bylaw._base.validation import check_number

    try:
        if ":" not in text:
            return [check_number(float(part), "a level") for part in text.split(",")]
        first, last, count = text.split(":")
        start, end = (check_number(float(level), "a level") for level in (first, last))
        number = int(count)
    except OptionError as problem:
        problem.add_place("--levels")
        raise
    except ValueError:
        raise OptionError(f"--levels is first:last:count or numbers with commas, not {text!r}") from None
    if not 1 <= number <= MAX_LEVELS:
        raise OptionError(f"--levels: between 1 and {MAX_LEVELS} of them, not {number}")
    import numpy as np

    return np.linspace(start, end, number).tolist()


def _describe(found: Frontier, lines: list[dict[str, Any]], statement: Statement) -> Iterator[str | Grid]:
    """Yield a line for each level, and what a price means."""
    from bylaw.view.sentences import find_level_unit

    minimize, name = found.problem.minimize, found.swept[0]
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()] for line in lines]
    yield Grid((name, str(minimize), "shadow price", "status"), cells)
    points = minimize.is_probability and find_level_unit(statement) != "plain"
    unit, saved = ("point", "0.1 points") if points else ("unit", "0.1")
    yield f"A price of 0.1: one more {unit} of level in {name} saves {saved} of {minimize}."
