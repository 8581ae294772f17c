"""The commands that show the effects of rules: report, diagnose, frontier and studio."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import ExitCode, remark, show_progress, tell, write_result
from bylaw.cli.files import STREAM, check_outputs, name_output, open_output, open_tables
from bylaw.errors import BylawError, OptionError, install_extra

MAX_LEVELS = 1000  # largest number of levels of a frontier, each of which is a solve


@options.share(
    *("title", "owner", "model_version", *options.TESTS, "previous", "min_cell", "sample", "seed"),
    *(*options.LABELED, "propensity_weights", *options.READ),
)
def run_report(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write the report to.")],
    held_out: Annotated[Path | None, typer.Option(help="Held-out rows, for bounds and verdicts.")] = None,
    watch: Annotated[
        Path | None, typer.Option(help="The state of `bylaw watch`, for rates and alarms since the fit.")
    ] = None,
) -> None:
    """Write a report on a policy, from the table of its fit and, for verdicts, held-out rows.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html

      bylaw report policy.json scores.parquet --owner "Credit risk" --model-version 3.1 -o report.html
    """
    from bylaw._base import hash_file
    from bylaw.cli.tables import PolicyTables, check_propensity_weights
    from bylaw.report import report as make_report
    from bylaw.rows import name_table

    given = context.obj
    check_outputs(output, [policy, table, held_out, watch])
    if held_out is None:
        options.refuse_idle_tests(given, "--held-out")
    level, reading = options.check_confidence(given.confidence), options.make_reading(given)
    table, held_out = open_tables(context, table, held_out=held_out)
    tables = PolicyTables.open(policy, given, reading=reading)
    rows, _ = tables.read(table)
    tests = None if held_out is None else tables.read_held_out(held_out, given)[0]
    if tests is None or tests.propensity_weights is None:
        check_propensity_weights(rows, given)
    settings = options.keep_given(
        title=given.title,
        owner=given.owner,
        model_version=given.model_version,
        held_out=tests,
        held_out_source=None if held_out is None else name_table(held_out),
        monitor=None if watch is None else bylaw.Monitor.load(watch, tables.policy),
        min_cell=given.min_cell,
    )
    with open_output(output, ".html") as target:
        file_digest = hash_file(policy)
        made = make_report(tables.policy, rows, confidence=level, file_digest=file_digest, **settings)
        made.save(target)
        tell(f"report: {name_output(output)}")


@options.share(
    *("rules", "rule", "scanned", *options.LABELED, "classes", "weight", "propensity_weights"),
    *(*options.READ, "as_json"),
)
def run_diagnose(context: typer.Context, table: options.Table) -> None:
    """Check whether the rules are feasible together; if not, name the conflict and the least relaxation.

    Exit codes: 0 feasible, 1 in conflict, 2 an error.
    With a column of labels, observed rates are checked. A table that does not fit in memory is scanned
    several times, and its predicted rates are checked.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    from bylaw.cli import tables
    from bylaw.cli.rules_file import read_rules

    given = context.obj
    stated = options.state_columns(given)
    (table,) = open_tables(context, table)
    file = read_rules(given.rules, given.rule, None)
    columns, _ = tables.find_fitting_columns(table, file, stated, without=("id",))
    with show_progress("diagnosing") as progress:
        rows = tables.open_rows(table, columns, given.scanned, progress)
        if isinstance(rows, bylaw.Evidence):
            tables.check_propensity_weights(rows, given)
        elif columns.outcomes:
            remark("the rows are scanned, so rates are predicted, and labels and true groups are not read")
        diagnosis = bylaw.diagnose(file.problem, rows)
    names = ("feasible", "conflict", "least", "violations", "relaxation", "small_cells", "least_violation")
    code = ExitCode.SUCCESS if diagnosis.feasible else ExitCode.BROKEN
    write_result({name: getattr(diagnosis, name) for name in names}, [diagnosis], given.as_json, code)


@options.share(
    *("rules", "rule", "minimize", "sample", "seed", *options.LABELED, "classes", "weight"),
    *("propensity_weights", *options.READ, "as_json"),
)
def run_frontier(
    context: typer.Context,
    table: options.Table,
    sweep: Annotated[
        str | None,
        typer.Option(help="The rule whose level varies, as it is written.", show_default="the first"),
    ] = None,
    levels: Annotated[str, typer.Option(help="first:last:count, or numbers with commas.")] = "0:0.2:21",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A table of the points; - for CSV on standard output."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A plot of the points, a PNG, SVG or PDF file.")] = None,
) -> None:
    """Compute the least cost at each level of a rule, a Pareto frontier.

    Each point is the policy that `bylaw fit` would find. With a column of labels, rules and costs are about
    observed rates.

    [bold]Examples[/bold]

      bylaw frontier scores.parquet --rules rules.toml --levels 0:0.1:11 --plot frontier.png

      bylaw frontier scores.csv --rule "rejected() <= 0.1" --levels 0,0.05,0.1
    """
    import pyarrow

    from bylaw._base import write_atomically
    from bylaw.cli import tables
    from bylaw.cli.rules_file import read_rules
    from bylaw.rows import detect_format, write_table

    given = context.obj
    check_outputs(output, [table, given.rules], plot, as_json=given.as_json)
    reading, stated = options.make_reading(given), options.state_columns(given)
    if output not in (None, STREAM):
        detect_format(output)
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise OptionError(f"--plot must be a file that ends in .png, .svg or .pdf, got {plot}")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise OptionError(f"--plot needs matplotlib; install it with: {install_extra('plot')}") from None
    file = read_rules(given.rules, given.rule, given.minimize)
    if not file.problem.rules:
        raise OptionError(
            "the problem must have at least one rule to vary, got none; add one with --rule or --rules"
        )
    try:
        statement = file.problem.rules[0 if sweep is None else file.problem.find(sweep)]
    except OptionError as unknown:
        unknown.add_place("--sweep")
        raise
    values = _parse_levels(levels)
    try:
        for level in values:
            statement.at(level)  # a level that the rule cannot have is refused before rows are read
    except BylawError as problem:
        if sweep is None and len(file.problem.rules) > 1:
            problem.message += (
                f". By default, the level of the first rule, {statement}, varies; choose another with --sweep"
            )
        raise
    (table,) = open_tables(context, table)
    columns, _ = tables.find_fitting_columns(table, file, stated, without=("id",))
    rows = tables.read_rows(table, columns, {}, reading)
    tables.check_propensity_weights(rows, given)
    solving = {name: value for name, value in file.solve.items() if name != "deterministic"}
    with show_progress("levels", len(values)) as advance:
        frontier = bylaw.frontier(
            file.problem, rows, {statement: values}, callback=advance and (lambda _: advance(1)), **solving
        )
    points = frontier.to_frame(pyarrow.table({}))
    if plot is not None:
        figure = frontier.plot().figure
        with write_atomically(plot) as partial:
            figure.savefig(partial, dpi=150, format=plot.suffix.lstrip(".").lower())
    with contextlib.ExitStack() as stack:
        if output is not None:
            write_table(stack.enter_context(open_output(output, ".csv")), points)
        lines = points.to_pylist()
        facts = [{name: None if v != v else v for name, v in line.items()} for line in lines]  # no nan
        write_result(facts, _describe_frontier(frontier, lines, statement), given.as_json)


def _parse_levels(text: str) -> list[float]:
    """Return the levels in a text, given as first:last:count or as numbers with commas."""
    import numpy as np

    from bylaw._base import check_number

    try:
        numbers = text.split(":" if ":" in text else ",")
        if ":" not in text:
            return [check_number(float(part), "a level") for part in numbers]
        first, last, count = numbers
        start, end = (check_number(float(level), "a level") for level in (first, last))
        number = int(count)
    except OptionError as problem:
        problem.add_place("--levels")
        raise
    except ValueError:
        raise OptionError(f"--levels must be first:last:count or numbers with commas, got {text!r}") from None
    if not 1 <= number <= MAX_LEVELS:
        raise OptionError(f"--levels must have between 1 and {MAX_LEVELS} levels, got {number}")
    return np.linspace(start, end, number).tolist()


def _describe_frontier(
    frontier: bylaw.Frontier, lines: list[dict[str, Any]], statement: Any
) -> Iterator[Any]:
    """Yield a table with a line for each level, and an explanation of prices."""
    from bylaw.view import Table, find_level_unit

    minimize, name = frontier.problem.minimize, frontier.swept[0]
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()] for line in lines]
    yield Table((name, str(minimize), "shadow price", "status"), cells, numbers=range(3))
    points = minimize.is_probability and find_level_unit(statement) != "plain"
    unit, saved = ("point", "0.1 points") if points else ("unit", "0.1")
    yield f"A price of 0.1 means that one more {unit} of level in {name} saves {saved} of {minimize}."


@options.share(
    *("rules", "rule", "minimize", "min_cell", "sample", "seed", *options.LABELED, "classes", "weight"),
    *("propensity_weights", "id_column", "normalize", "delimiter"),
)
def run_studio(
    context: typer.Context,
    table: options.Table,
    port: Annotated[
        int, typer.Option(help="A port of this machine; 0 for any that is free.", min=0, max=65535)
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and do not open a browser.")
    ] = False,
) -> None:
    """Try out rules in a browser: move sliders, and see costs, groups and decisions.

    The page is served to this machine only, and nothing leaves it. Control-C ends it.

    [bold]Examples[/bold]

      bylaw studio scores.parquet --rules rules.toml

      bylaw studio scores.csv --rule "rejected() <= 0.1" --group sex --label outcome
    """
    from bylaw.cli import tables
    from bylaw.cli.rules_file import RulesFile, read_rules
    from bylaw.rows import name_table

    try:
        from bylaw.studio import Session, Source, StudioServer
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"the studio needs {missing.name}; install it with: {install_extra('studio')}"
        ) from None
    if table == STREAM:
        raise OptionError(
            "the table of the studio must be a file, because its name is saved, got standard input (-)"
        )
    given = context.obj
    reading, stated = options.make_reading(given), options.state_columns(given)
    open_tables(context, table)
    if given.rules or given.rule:
        file = read_rules(given.rules, given.rule, given.minimize)
    else:
        file = RulesFile(bylaw.Problem(given.minimize or "error()"))
    solving = {name: value for name, value in file.solve.items() if name not in ("solver", "calibrate")}
    if len(solving) < len(file.solve):
        remark("the studio does not use solver and calibrate under [solve] in the rules file")
    merged = tables.merge_columns(file.columns, stated)
    mentioned = replace(file, problem=_mention(file.problem, merged))
    columns, _ = tables.find_fitting_columns(table, mentioned, stated)
    rows = tables.read_rows(table, columns, {}, reading)
    tables.check_propensity_weights(rows, given)
    name = name_table(table)
    session = Session(
        file.problem,
        rows,
        title=f"Rules for {name}",
        solving=solving,
        source=Source(str(table), name, columns, merged, given.sample, given.seed or 0),
        **options.keep_given(min_cell=given.min_cell),
    )
    server = StudioServer(session, port=port)
    tell(f"studio: {server.door.url}")
    remark("control-C ends it")
    if not no_browser:
        server.open_browser()
    server.serve_here()


def _mention(problem: bylaw.Problem, stated: Mapping[str, Any]) -> bylaw.Problem:
    """Return the problem with a rule on each earlier model and cost, so that their columns are read."""
    from bylaw.language import ACTION_SPACES

    differs = ACTION_SPACES[problem.kind].choose_phrase("disagreement", "omits")
    others = [name for name in stated.get("references", ()) if name not in problem.references]
    rules: list[Any] = [bylaw.parse(f"{differs}({name!r}) <= 1") for name in others]
    rules += [bylaw.custom(name) <= 1 for name in stated.get("costs", ()) if name not in problem.arrays]
    return problem.with_rules([*problem.rules, *rules])
