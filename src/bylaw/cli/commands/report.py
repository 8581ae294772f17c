"""bylaw report: one HTML file about a policy, for whoever must sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import tell
from bylaw.cli.inputs import Rows, check_outputs, groups_of, limits_of, policy_roles, rows_of
from bylaw.data.outcomes import HeldOut
from bylaw.policy.policy import Policy


@takes_columns("scores", "group", "group_probabilities", "true_group", "reference", "label", "normalize")
def reported(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the report, an HTML file.")],
    held_out: Annotated[
        Path | None, typer.Option(help="Rows that had no say in the policy: they give bounds and verdicts.")
    ] = None,
    title: Annotated[str, typer.Option(help="What the page is called.")] = "Policy report",
    confidence: options.Confidence = 0.95,
    limit: options.Limit = None,
    *,
    flags: Flags,
) -> None:
    """A report on a policy: the table it was fitted on and, for proof, rows that were held out.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html
    """
    check_outputs([output], [policy, table, held_out])
    chosen = Policy.load(policy)
    rows, *others = (
        rows_of(path, policy_roles(chosen, path, flags), groups_of(chosen))
        for path in (table, held_out)
        if path is not None
    )
    judges = others[0].held_out(limits_of(limit, chosen.problem)) if others else None
    page_of(chosen, rows, judges, confidence, title=title).save(output)
    tell(f"report: {output}")


def page_of(policy: Policy, rows: Rows, judges: HeldOut | None, confidence: float, **options: Any) -> Any:
    """The `Report`."""
    from bylaw.report import report

    return report(policy, rows.evidence, **rows.seen, held_out=judges, confidence=confidence, **options)
