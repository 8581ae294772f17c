"""bylaw report: one HTML file about a policy, for whoever must sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import tell
from bylaw.cli.inputs import Flags, Rows, check_outputs, policy_roles, rows_of
from bylaw.policy import Policy


def reported(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the report, an HTML file.")],
    held_out: Annotated[
        Path | None, typer.Option(help="Rows that had no say in the policy: they give bounds and verdicts.")
    ] = None,
    title: Annotated[str, typer.Option(help="What the page is called.")] = "Policy report",
    confidence: options.Confidence = 0.95,
    label: options.Label = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    reference: options.Reference = None,
) -> None:
    """A report on a policy: the table it was fitted on and, for proof, rows that were held out.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html
    """
    check_outputs([output], [policy, table, held_out])
    chosen = Policy.load(policy)
    flags = Flags(group=group, group_probabilities=group_probabilities, reference=reference, label=label)
    rows = rows_of(table, policy_roles(chosen, table, flags))
    judges = None if held_out is None else rows_of(held_out, policy_roles(chosen, held_out, flags))
    page_of(chosen, rows, judges, confidence, title=title).save(output)
    tell(f"report: {output}")


def page_of(policy: Policy, rows: Rows, judges: Rows | None, confidence: float, **options: Any) -> Any:
    """The `Report`."""
    from bylaw.report import report

    held_out = None if judges is None else judges.held_out
    return report(policy, rows.evidence, **rows.seen, held_out=held_out, confidence=confidence, **options)
