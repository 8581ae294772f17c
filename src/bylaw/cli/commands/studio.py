"""bylaw studio: rules tried out in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import remark, tell
from bylaw.cli.files import STREAM, open_tables
from bylaw.errors import OptionError, install_extra

if TYPE_CHECKING:
    from bylaw.language.problem import Problem


def run_studio(
    context: typer.Context,
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    port: Annotated[int, typer.Option(help="Of this machine; 0 for any that is free.", min=0, max=65535)] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, open nothing.")
    ] = False,
    min_cell: options.MinCell = None,
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
    id_column: options.IdColumn = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
) -> None:
    """Try out rules in a browser: sliders move levels, and costs, groups and decisions follow.

    The page is served to this machine alone, and nothing leaves it. Control-C ends it.

    [bold]Examples[/bold]

      bylaw studio scores.parquet --rules rules.toml

      bylaw studio scores.csv --rule "rejected() <= 0.1" --group sex --label outcome
    """
    from bylaw.cli.inputs import check_propensity_weights, read_rows
    from bylaw.cli.rules_file import RulesFile, read_rules
    from bylaw.cli.table_columns import find_fitting_columns, merge_columns
    from bylaw.language.problem import Problem
    from bylaw.rows.table_files import name_table

    try:
        from bylaw.studio.saved_files import Source
        from bylaw.studio.server import StudioServer
        from bylaw.studio.session import Session
    except ModuleNotFoundError as missing:
        raise OptionError(f"the studio needs {missing.name}: {install_extra('studio')}") from None
    if table == STREAM:
        raise OptionError("the studio reads a table from files, whose names it saves: write it to one first")
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    open_tables(context, table)
    file = read_rules(rules, rule, minimize) if rules or rule else RulesFile(Problem(minimize or "error()"))
    solving = {name: value for name, value in file.solve.items() if name not in ("solver", "calibrate")}
    if len(solving) < len(file.solve):
        remark("the studio solves by itself: solver and calibrate under [solve] are for `bylaw fit`")
    merged = merge_columns(file.columns, stated)
    columns, _ = find_fitting_columns(table, replace(file, problem=mention(file.problem, merged)), stated)
    rows = read_rows(table, columns, {}, reading)
    check_propensity_weights(rows, stated)
    name = name_table(table)
    session = Session(
        file.problem,
        rows,
        title=f"Rules for {name}",
        solving=solving,
        source=Source(str(table), name, columns, merged, sample, seed or 0),
        **options.keep_given(min_cell=min_cell),
    )
    server = StudioServer(session, port=port)
    tell(f"studio: {server.url}")
    remark("control-C ends it")
    if not no_browser:
        server.open_browser()
    server.serve_here()


def mention(problem: Problem, stated: Mapping[str, Any]) -> Problem:
    """Return the problem with rules on every earlier model and cost that is stated: any may be tried."""
    from bylaw.language.action_space import ACTION_SPACES
    from bylaw.language.parser import parse
    from bylaw.language.rates import custom

    differs = ACTION_SPACES[problem.kind].choose_phrase("disagreement", "omits")
    others = [name for name in stated.get("references", ()) if name not in problem.references]
    rules: list[Any] = [parse(f"{differs}({name!r}) <= 1") for name in others]
    rules += [custom(name) <= 1 for name in stated.get("costs", ()) if name not in problem.arrays]
    return problem.with_rules([*problem.rules, *rules])
