"""bylaw diagnose: whether rules can hold together."""

from __future__ import annotations

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import remark, show_json, show_passes, tell
from bylaw.cli.exit_codes import ExitCode

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
    "true_group",
    "reference",
    "label",
    "weight",
    "seen_weights",
    "normalize",
)
def run_diagnose(
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    scanned: options.Scanned = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Find out whether the rules can hold together, and if not, which conflict and what would help.

    Exit codes: 0 they can, 1 they conflict, 2 an error.
    With a column of labels, they are held as observed. A table that does not fit in memory is scanned,
    several times, and predicted rates count.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    from bylaw.cli.inputs import find_fitting_roles, read_rows, read_rules
    from bylaw.cli.reading import Reading
    from bylaw.cli.scanned_rows import ScannedRows, choose_scan
    from bylaw.fitting.diagnosis import diagnose

    file = read_rules(rules, rule, None)
    roles = find_fitting_roles(table, file, flags, without=("id",))
    if choose_scan(scanned, table, roles):
        if roles.columns.outcomes:
            remark("of rows that are scanned, predicted rates count: labels and true groups are not read")
        with show_passes("diagnosing") as progress:
            found = diagnose(file.problem, ScannedRows.open(table, roles, progress).source)
    else:
        rows = read_rows(table, roles, {}, Reading("scan them: --scan", unlimited=scanned is False))
        rows.check_seen_weights(flags)
        found = diagnose(file.problem, rows.evidence, **rows.outcomes)
    code = ExitCode.SUCCESS if found.feasible else ExitCode.BROKEN
    if as_json:
        show_json({**{name: getattr(found, name) for name in _FIGURES}, "exit_code": int(code)})
    else:
        tell(str(found))
    raise typer.Exit(code)
