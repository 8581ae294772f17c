"""bylaw decide: decisions for a table of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bylaw.cli import options
from bylaw.cli.console import remark, show_progress, write_result
from bylaw.cli.files import STREAM, check_outputs, name_output, open_output, open_tables
from bylaw.errors import OptionError


def run_decide(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the decisions.")],
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities", help="Also one column per action, decision_p_ACTION: its probability."
        ),
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Also this column of the table, as it is; may be repeated."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Of the table that is -, or of the parts of a folder: {', '.join(options.FORMATS)}.",
        ),
    ] = None,
    key: options.Key = None,
    key_file: options.KeyFile = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew in a folder with decisions of another run.")
    ] = False,
    unseen: Annotated[
        str,
        typer.Option(
            help="Groups that the fit never saw: 'fail' refuses the table, 'refer' rejects such rows.",
        ),
    ] = "fail",
    repeated_ids: Annotated[
        bool, typer.Option("--repeated-ids", help="An id may be in several rows, which share their draw.")
    ] = False,
    previous: options.Previous = None,
    id_column: options.IdColumn = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    reference: options.Reference = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide every row: the ids, and a column `decision`.

    Draws are keyed by id: the same id gets the same decision, in any batch and on any machine. The table is
    read and written in batches, and the output appears when it is whole. The table and the output may be -,
    standard input and standard output.

    The decisions of a folder go to one file, or to a folder with one part for each of its files. A run that
    was stopped there goes on when the command is given again: parts that are complete are skipped.

    [bold]Examples[/bold]

      bylaw decide policy.json new.parquet --id-column id -o decisions.parquet

      bylaw decide policy.json new.csv.gz -o decisions.csv.gz --probabilities --keep region

      bylaw decide policy.json - -o - --format csv < new.csv > decisions.csv

      bylaw decide policy.json new/ -o decisions/
    """
    from bylaw._base.validation import check_choice
    from bylaw.cli.decision_folder import DecisionFolder, name_parts
    from bylaw.cli.decisions import Decider, DecisionColumn, write_decisions
    from bylaw.cli.inputs import load_previous
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.policy.policy import Policy
    from bylaw.rows.table_files import detect_format, find_suffix, is_many

    # Each file of a folder gets a part of its own, unless the output is a file.
    parts = STREAM not in (table, output) and is_many(table)
    parts = parts and (output.is_dir() or find_suffix(output) is None)
    for what, path in {"the policy": policy, "--key-file": key_file}.items():
        if path == STREAM:
            raise OptionError(
                f"{what} is -, but standard input can be read once, and only the table can be -: give {what} "
                "as a file"
            )
    check_outputs(output, [policy, table, key_file], as_json=as_json)
    if not parts:
        options.refuse_idle("a folder of parts", overwrite=overwrite)
        if output != STREAM:
            detect_format(output)  # before anything is read
    refers = check_choice(unseen, "--unseen", ("fail", "refer")) == "refer"
    stated, secret = options.state_columns(context), options.read_key(key, key_file)
    (source,) = open_tables(context, table, output, parts=parts)
    chosen = Policy.load(policy)
    earlier = load_previous(previous, chosen)
    targets = name_parts(source, format_) if parts else {}
    with open_output(output, f".{format_}") as target:
        written = Path(next(iter(targets))) if parts else target
        decider = Decider(
            chosen,
            find_policy_columns(chosen, source, stated, deciding=True, previous=earlier),
            DecisionColumn(chosen, as_text=detect_format(written) == "csv"),
            secret,
            probabilities,
            tuple(keep or ()),
            earlier,
            refers,
        )
        file, counts = decider.open(source), {}
        files = file.split(decider.names)
        with show_progress("rows", file.rows) as advance:
            if parts:
                settings = {
                    "policy": chosen.digest,
                    "columns": decider.columns.to_dict(),
                    "probabilities": probabilities,
                    "keep": decider.keep,
                    "format": format_,
                    "key": secret,
                    "unseen": "refer" if refers else None,
                }
                folder = DecisionFolder.open(output, source, list(targets), settings, overwrite)
                skipped = folder.fill(decider, files, targets, advance, repeated=repeated_ids)
                total, counts = folder.count_rows(targets), {"parts": len(targets), "skipped": skipped}
            else:
                total = write_decisions(decider, files, target, advance, repeated=repeated_ids)
        if decider.unseen:
            remark(f"{decider.unseen:,} rows of groups that the policy never saw are referred")
        if counts.get("skipped"):
            remark(f"{counts['skipped']:,} of {len(targets):,} parts were complete already and are skipped")
        among = f" in {len(targets):,} parts" if parts else ""
        facts = {"decisions": str(output), "rows": total, **counts, "policy": chosen.digest}
        write_result(
            {**facts, "unseen": decider.unseen} if refers else facts,
            [f"{total:,} decisions{among}: {name_output(output)}"],
            as_json,
        )
