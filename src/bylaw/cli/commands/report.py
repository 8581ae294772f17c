"""bylaw report: one HTML file about a policy, for whoever must sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import tell
from bylaw.cli.standard_streams import find_file, name_output, open_output

if TYPE_CHECKING:
    from bylaw.cli.inputs import InputRows
    from bylaw.data.outcomes import HeldOut
    from bylaw.policy.policy import Policy
    from bylaw.report import Report


@takes_columns(
    "scores", "group", "group_probabilities", "true_group", "reference", "label", "seen_weights", "normalize"
)
def run_report(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the report, an HTML file.")],
    held_out: Annotated[
        Path | None, typer.Option(help="Held-out rows: they give bounds and verdicts.")
    ] = None,
    title: options.Title = None,
    owner: options.Owner = None,
    model_version: options.ModelVersion = None,
    confidence: options.Confidence = None,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    watch: Annotated[
        Path | None, typer.Option(help="The state of `bylaw watch`: rates and alarms since then.")
    ] = None,
    min_cell: options.MinCell = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    *,
    flags: Flags,
) -> None:
    """Report on a policy: the table it was fitted on and, for proof, rows that were held out.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html

      bylaw report policy.json scores.parquet --owner "Credit risk" --model-version 3.1 -o report.html
    """
    from bylaw._base.json_reader import hash_file
    from bylaw.cli.inputs import (
        check_outputs,
        find_policy_roles,
        list_group_values,
        load_previous,
        parse_limits,
        read_outcomes,
        read_rows,
    )
    from bylaw.policy.policy import Policy
    from bylaw.testing import Monitor

    check_outputs([find_file(output)], [policy, table, held_out, watch])
    if held_out is None:
        idle = {"--confidence": confidence, "--limit": limit, "--outcomes": outcomes}
        options.refuse_idle({**idle, "--largest-weight": largest_weight}, "--held-out")
    sure, reading = options.check_confidence(confidence), options.make_reading(sample, seed)
    chosen = Policy.load(policy)
    limits = parse_limits(limit, chosen.problem)
    earlier = load_previous(previous, chosen)
    rows, *others = (
        read_rows(
            path,
            find_policy_roles(chosen, path, flags, previous=earlier),
            list_group_values(chosen),
            reading,
            earlier,
        )
        for path in (table, held_out)
        if path is not None
    )
    if not any(other.seen_rows for other in others):
        rows.check_seen_weights(flags)
    judges = None
    if held_out is not None:
        found = read_outcomes(held_out, outcomes, chosen.problem, chosen.action_space.classes, reading)
        judges = others[0].hold_out(found, limits=limits, largest_weight=largest_weight)
    monitor = None if watch is None else Monitor.load(watch, chosen)
    names = name_report(title, owner, model_version, held_out) | {"file_digest": hash_file(policy)}
    with open_output(output, ".html") as target:
        make_report(
            chosen, rows, judges, sure, **names, monitor=monitor, min_cell=options.check_min_cell(min_cell)
        ).save(target)
        tell(f"report: {name_output(output)}")


def name_report(
    title: str | None, owner: str | None, model_version: str | None, held_out: Path | None
) -> dict[str, str]:
    """What a report calls itself, its owner, the model and the held-out table, as far as that is known."""
    from bylaw.data.table_files import name_table

    source = None if held_out is None else name_table(held_out)
    named = {"title": title, "owner": owner, "model_version": model_version, "held_out_source": source}
    return {name: text for name, text in named.items() if text is not None}


def make_report(
    policy: Policy, rows: InputRows, judges: HeldOut | None, confidence: float, **settings: Any
) -> Report:
    """The page; `judges` are held-out rows, if there are any."""
    from bylaw.report import report

    return report(policy, rows.evidence, **rows.outcomes, held_out=judges, confidence=confidence, **settings)
