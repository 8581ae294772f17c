"""bylaw report: one HTML file about a policy, for whoever must sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import tell
from bylaw.cli.files import check_outputs, name_output, open_output, open_tables

if TYPE_CHECKING:
    from bylaw.cli.inputs import InputRows
    from bylaw.policy.policy import Policy
    from bylaw.rows.outcomes import HeldOut


def run_report(
    context: typer.Context,
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
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    propensity_weights: options.SeenWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
) -> None:
    """Report on a policy: the table it was fitted on and, for proof, rows that were held out.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html

      bylaw report policy.json scores.parquet --owner "Credit risk" --model-version 3.1 -o report.html
    """
    from bylaw._base.files import hash_file
    from bylaw.cli.inputs import list_group_values, load_previous, parse_limits, read_held_out, read_rows
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.policy.policy import Policy
    from bylaw.rows.table_files import name_table
    from bylaw.testing import Monitor

    check_outputs(output, [policy, table, held_out, watch])
    if held_out is None:
        options.refuse_idle(
            "--held-out", confidence=confidence, limit=limit, outcomes=outcomes, largest_weight=largest_weight
        )
    sure, reading = options.check_confidence(confidence), options.make_reading(sample, seed)
    stated = options.state_columns(context)
    table, held_out = open_tables(context, table, held_out=held_out)
    chosen = Policy.load(policy)
    values, earlier = list_group_values(chosen), load_previous(previous, chosen)
    limits = parse_limits(limit, chosen.problem)
    rows = read_rows(
        table, find_policy_columns(chosen, table, stated, previous=earlier), values, reading, earlier
    )
    judges, names = None, {"title": title, "owner": owner, "model_version": model_version}
    if held_out is not None:
        names["held_out_source"] = name_table(held_out)
        judges = read_held_out(
            held_out,
            find_policy_columns(chosen, held_out, stated, previous=earlier),
            chosen.problem,
            chosen.action_space.classes,
            values,
            outcomes=outcomes,
            limits=limits,
            largest_weight=largest_weight,
            reading=reading,
            previous=earlier,
        )
    if judges is None or judges.propensity_weights is None:
        rows.check_propensity_weights(stated)
    with open_output(output, ".html") as target:
        write_report(
            chosen,
            rows,
            target,
            judges,
            confidence=sure,
            **names,
            monitor=None if watch is None else Monitor.load(watch, chosen),
            min_cell=min_cell,
            file_digest=hash_file(policy),
        )
        tell(f"report: {name_output(output)}")


def write_report(
    policy: Policy, rows: InputRows, path: Path, held_out: HeldOut | None, **settings: Any
) -> None:
    """Write the page about a policy; settings that are None are not given."""
    from bylaw.report import report

    given = options.keep_given(**settings)
    report(policy, rows.evidence, **rows.outcomes, held_out=held_out, **given).save(path)
