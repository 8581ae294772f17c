"""bylaw diagnose: whether rules can hold together."""

from __future__ import annotations

import typer

from bylaw.cli import options
from bylaw.cli.console import ExitCode, remark, show_passes, write_result
from bylaw.cli.files import open_tables


def run_diagnose(
    context: typer.Context,
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    scanned: options.Scanned = None,
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
    """Find out whether the rules can hold together, and if not, which conflict and what would help.

    Exit codes: 0 they can, 1 they conflict, 2 an error.
    With a column of labels, they are held as observed. A table that does not fit in memory is scanned,
    several times, and predicted rates count.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    from bylaw.cli.inputs import check_propensity_weights, open_rows
    from bylaw.cli.rules_file import read_rules
    from bylaw.cli.table_columns import find_fitting_columns
    from bylaw.fitting.diagnosis import diagnose
    from bylaw.rows.evidence import Evidence

    stated = options.state_columns(context)
    (table,) = open_tables(context, table)
    file = read_rules(rules, rule, None)
    columns, _ = find_fitting_columns(table, file, stated, without=("id",))
    with show_passes("diagnosing") as progress:
        rows = open_rows(table, columns, scanned, progress)
        if isinstance(rows, Evidence):
            check_propensity_weights(rows, stated)
        elif columns.outcomes:
            remark("of rows that are scanned, predicted rates count: labels and true groups are not read")
        found = diagnose(file.problem, rows)
    names = ("feasible", "conflict", "least", "violations", "relaxation", "small_cells", "least_violation")
    code = ExitCode.SUCCESS if found.feasible else ExitCode.BROKEN
    write_result({name: getattr(found, name) for name in names}, [found], as_json, code)
