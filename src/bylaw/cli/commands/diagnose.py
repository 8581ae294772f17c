"""bylaw diagnose: whether rules can hold together."""

from __future__ import annotations

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import show_json, tell

_FIGURES = (
    "feasible",
    "conflict",
    "least",
    "violations",
    "relaxation",
    "small_cells",
    "least_violation",
)


@takes_columns(
    "scores",
    "classes",
    "group",
    "group_probabilities",
    "reference",
    "weight",
    "normalize",
    also=("--probabilities",),
)
def run_diagnose(
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Find out whether the rules can hold together, and if not, which conflict and what would help.

    Exit codes: 0 they can, 1 they conflict, 2 an error.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    from bylaw.cli.inputs import read_predicted_rows, read_rules
    from bylaw.fitting.diagnosis import diagnose

    file = read_rules(rules, rule, None)
    found = diagnose(file.problem, read_predicted_rows(table, file, flags).evidence)
    if as_json:
        show_json({name: getattr(found, name) for name in _FIGURES})
    else:
        tell(str(found))
    raise typer.Exit(0 if found.feasible else 1)
