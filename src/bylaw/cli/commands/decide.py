"""The commands about single decisions: decide, for a table of any size, and explain, for one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import remark, show_progress, write_result
from bylaw.cli.files import STREAM, check_outputs, name_output, open_output, open_tables
from bylaw.errors import OptionError

if TYPE_CHECKING:
    from bylaw.cli.tables import PolicyTables

_SHOWN_CLASSES = 2  # number of likeliest classes to print
_SHOWN_ACTIONS = 8  # number of actions to print


@options.share(*("key", "key_file", "previous", "id_column", *options.SCORED, *options.READ, "as_json"))
def run_decide(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file or folder to write the decisions to.")
    ],
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Also write the probability of each action, decision_p_ACTION."),
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Also copy this column of the table; may be repeated.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the decisions of another run from the folder.")
    ] = False,
    unseen: Annotated[
        str,
        typer.Option(help="Rows of groups that are new since the fit: 'fail', or 'refer' to reject them."),
    ] = "fail",
    repeated_ids: Annotated[
        bool, typer.Option("--repeated-ids", help="Admit an id in several rows, which share their draw.")
    ] = False,
) -> None:
    """Decide every row: write the ids, and a column `decision`.

    Draws are keyed by id: the same id gets the same decision, in any batch and on any machine. The table is
    read and written in batches, and the output appears when it is complete. The table and the output may be
    -, standard input and standard output.

    The decisions of a folder are written to one file, or to a folder with one part for each file. If such a
    run was stopped, give the command again: parts that are complete are skipped.

    [bold]Examples[/bold]

      bylaw decide policy.json new.parquet --id-column id -o decisions.parquet

      bylaw decide policy.json new.csv.gz -o decisions.csv.gz --probabilities --keep region

      bylaw decide policy.json - -o - --format csv < new.csv > decisions.csv

      bylaw decide policy.json new/ -o decisions/
    """
    from bylaw._base import check_choice
    from bylaw.cli.decision_folder import DecisionFolder, name_parts
    from bylaw.cli.decisions import Decider, DecisionColumn, write_decisions
    from bylaw.cli.tables import PolicyTables
    from bylaw.rows import detect_format, find_suffix, is_many

    given = context.obj
    format_, key_file = given.format_, given.key_file
    # Each file of a folder gets a part of its own, unless the output is a file.
    parts = STREAM not in (table, output) and is_many(table)
    parts = parts and (output.is_dir() or find_suffix(output) is None)
    for name, path in {"the policy": policy, "--key-file": key_file}.items():
        if path == STREAM:
            raise OptionError(f"only the table can be standard input (-); pass {name} as a file")
    check_outputs(output, [policy, table, key_file], as_json=given.as_json)
    if not parts:
        options.refuse_idle("a folder of parts", overwrite=overwrite)
        if output != STREAM:
            detect_format(output)  # before anything is read
    refers = check_choice(unseen, "--unseen", ("fail", "refer")) == "refer"
    secret = options.read_key(given)
    (source,) = open_tables(context, table, output, parts=parts)
    tables = PolicyTables.open(policy, given, deciding=True)
    targets = name_parts(source, format_) if parts else {}
    with open_output(output, f".{format_}") as target:
        written = Path(next(iter(targets))) if parts else target
        column = DecisionColumn(tables.policy, as_text=detect_format(written) == "csv")
        columns = tables.find_columns(source)
        decider = Decider(tables, columns, column, secret, probabilities, tuple(keep or ()), refers)
        file, counts = decider.open(source), {}
        files = file.split(decider.names)
        with show_progress("rows", file.rows) as advance:
            if parts:
                settings = {
                    "policy": tables.policy.digest,
                    "columns": decider.columns.to_dict(),
                    "probabilities": probabilities,
                    "keep": decider.keep,
                    "format": format_,
                    "key": secret,
                    "unseen": "refer" if refers else None,
                }
                folder = DecisionFolder.open(output, source, list(targets), settings, overwrite)
                skipped = folder.fill(decider, files, targets, advance, repeated=repeated_ids)
                total, counts = (
                    sum(folder.parts[name].rows for name in targets),
                    {"parts": len(targets), "skipped": skipped},
                )
            else:
                total = write_decisions(decider, files, target, advance, repeated=repeated_ids)
        if decider.unseen:
            remark(
                f"{decider.unseen:,} rows have group values that the policy does not know, and are rejected"
            )
        if counts.get("skipped"):
            remark(f"{counts['skipped']:,} of {len(targets):,} parts are complete already and were skipped")
        among = f" in {len(targets):,} parts" if parts else ""
        facts = {"decisions": str(output), "rows": total, **counts, "policy": tables.policy.digest}
        write_result(
            {**facts, "unseen": decider.unseen} if refers else facts,
            [f"{total:,} decisions{among}: {name_output(output)}"],
            given.as_json,
        )


@options.share(*("key", "key_file", "previous", "id_column", *options.SCORED, *options.READ, "as_json"))
def run_explain(
    context: typer.Context,
    policy: options.PolicyPath,
    table: Annotated[Path | None, typer.Argument(help="A table with the row.")] = None,
    row: Annotated[
        str | None, typer.Option(help="The number of the row, from 0; without a table, the row as JSON.")
    ] = None,
    wanted: Annotated[str | None, typer.Option("--id", help="The id of the row.")] = None,
) -> None:
    """Explain the decision of one row: what each rule adds to the score of each action.

    [bold]Examples[/bold]

      bylaw explain policy.json new.parquet --row 3

      bylaw explain policy.json --row '{"p_approve": 0.6, "p_deny": 0.4, "race": "black"}'
    """
    from bylaw.cli.decisions import DecisionColumn
    from bylaw.cli.tables import PolicyTables

    given = context.obj
    if table is None and (row is None or wanted is not None):
        raise OptionError(
            "a row must be given; add a table with --row NUMBER or --id ID, or --row '{...}' as JSON"
        )
    if table is not None and (row is None) == (wanted is None):
        raise OptionError("one of --row NUMBER (counted from 0) and --id ID must be given")
    if table is not None and row is not None and not row.isdecimal():
        raise OptionError(f"--row must be the number of a row, counted from 0, got {row!r}")
    secret = options.read_key(given)
    (table,) = open_tables(context, table)
    tables = PolicyTables.open(policy, given, deciding=True)
    loaded, (evidence, row_id) = tables.policy, _read_row(tables, table, row, wanted)
    has_id = isinstance(row_id, str | int)
    evidence = tables.mark(evidence, [row_id] if has_id else None)
    if not has_id:
        options.refuse_idle("an id of the row, which keys the draw", key=given.key, key_file=given.key_file)
    why, column = bylaw.explain(loaded, evidence), DecisionColumn(loaded)
    best = {"before": why.before, "without_rules": why.without_rules, "after": why.after}
    names = {name: None if one is None else column.name(one[0]) for name, one in best.items()}
    drawn = None
    if has_id:  # the draw of `bylaw decide`
        drawn = column.name(loaded.decide_positions(evidence, ids=[row_id], key=secret)[0])
    # The baseline and the pulls of the rules add up to the score; no minus is before a zero.
    actions = [
        {
            "action": action,
            "probability": float(why.probabilities[0, a]),
            "baseline": float(why.baseline[0, a]) + 0.0,
            **{rule: float(why.pulls[0, j, a]) + 0.0 for j, rule in enumerate(why.rules)},
            "score": float(why.scores[0, a]) + 0.0,
        }
        for a, action in enumerate(why.actions)
    ]
    facts = {"id": row_id, "decision": drawn, **names, "actions": actions}
    draw = [f"The id {row_id} draws: {drawn}"] if has_id else []
    write_result(facts, [*_describe(why, loaded, evidence, names), *draw], given.as_json)


def _read_row(
    tables: PolicyTables, table: Path | None, row: str | None, wanted: str | None
) -> tuple[bylaw.Evidence, Any]:
    """Return the row to explain, and its id if it has one."""
    import pyarrow

    from bylaw.rows import open_columns

    if table is None:
        try:
            content = json.loads(row or "")
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise OptionError(
                f"--row without a table must be one row as JSON, {{column: value}}, got {row!r}"
            )
        columns = tables.find_columns(Path("--row"), list(content))
        try:
            rows = pyarrow.Table.from_pylist([{name: content[name] for name in columns.needed}])
        except (OverflowError, pyarrow.ArrowException) as problem:
            raise OptionError(f"--row must have values that fit into columns: {problem}") from None
        return columns.evidence(rows), content.get(columns.id or "")
    columns = tables.find_columns(table)
    if wanted is not None and columns.id is None:
        raise OptionError("--id needs a column of ids; name it with --id-column NAME")
    names = [*columns.needed, *([] if columns.id in (None, *columns.needed) else [columns.id])]
    matches, first = [], 0  # rows that match, and the number of the first row of a batch
    for batch in open_columns(table, columns, tables.values).batches(names):
        if row is None:
            ids = batch.column(columns.id).to_pylist()
            places = [i for i, value in enumerate(ids) if str(value) == wanted]
        else:
            places = [int(row) - first] if first <= int(row) < first + len(batch) else []
        matches += [batch.slice(i, 1) for i in places]
        first += len(batch)
        if row is not None and matches:
            break
    if not matches and row is not None:
        raise OptionError(f"--row must be below the number of rows of {table}, {first:,}, got {int(row)}")
    if not matches:
        raise OptionError(f"--id must be an id in {table}, got {wanted!r}")
    if len(matches) > 1:
        raise OptionError(f"{table} has several rows with the id {wanted!r}; choose one with --row NUMBER")
    row_id = None if columns.id is None else matches[0].column(columns.id)[0].as_py()
    return columns.evidence(matches[0]), row_id


def _describe(
    why: bylaw.Explanation, policy: bylaw.Policy, evidence: bylaw.Evidence, best: Mapping[str, Any]
) -> Iterator[Any]:
    """Yield the score of each action, the contribution of each rule, and the decisions."""
    from bylaw.view import Table

    groups = [f"{name} is {group.values[group.codes[0]]}" for name, group in evidence.known_groups.items()]
    pairs = zip(evidence.classes, evidence.probabilities[0], strict=True)
    likeliest = sorted(pairs, key=lambda pair: -pair[1])[:_SHOWN_CLASSES]
    classes = ", ".join(f"{chance:.1%} {label}" for label, chance in likeliest)
    if facts := [*groups, *([f"the model says {classes}"] if classes else [])]:
        yield "; ".join(facts)

    statements = {price.rule: price.statement for price in policy.rule_prices}
    pulls: dict[str, Any] = {}  # (n_actions,) by rule or family as stated
    for rule, pull in zip(why.rules, why.pulls[0], strict=True):
        statement = statements.get(rule, rule)
        pulls[statement] = pulls.get(statement, 0.0) + pull
    base = "before pulls" if why.without_rules is None else "without rules"
    # Show the best decisions before and after, then the likeliest.
    first = [
        action
        for one in (best["after"], best["before"])
        for action in (one if isinstance(one, list) else [one])
    ]
    chances, scores, lines = why.probabilities[0], why.scores[0], []
    ranked = sorted(
        range(len(why.actions)), key=lambda a: (why.actions[a] not in first, -chances[a], -scores[a])
    )
    for a in sorted(ranked[:_SHOWN_ACTIONS]):
        shares = [why.baseline[0, a], *(pull[a] for pull in pulls.values()), scores[a]]
        numbers = (f"{share + 0.0:+.4f}" for share in shares)  # no minus before a zero
        lines.append((str(why.actions[a]), f"{chances[a]:.4f}", *numbers))
    heads = ("action", "probability", base, *(f"({i + 1})" for i in range(len(pulls))), "score")
    yield Table(heads, lines, numbers=range(1, len(heads)))
    if left_out := len(why.actions) - len(lines):
        yield f"Less likely, and only in --json: {left_out} other action{'s' if left_out > 1 else ''}."
    if pulls:
        minus = "minus its" if why.without_rules is not None else "minus its effect, at this policy, on"
        meaning = f"{minus} {policy.problem.minimize}. Pulls add to it:"
        yield f"{base.capitalize()}, the score of an action is {meaning}"
    for i, rule in enumerate(pulls, 1):
        yield f"({i}) {rule}"

    yield f"Your model decides {best['before']}."
    if why.without_rules is None:
        yield f"The best decision of this policy is {best['after']}."
    elif not why.moved[0]:
        yield f"The rules did not change the best decision, {best['after']}."
    else:
        yield f"The rules changed the best decision from {best['without_rules']} to {best['after']}."
        if why.before.ndim == 1:  # a decision is one action, so that one rule pulled most to it
            before, after = int(why.without_rules[0]), int(why.after[0])
            gains = [float(pull[after] - pull[before]) for pull in pulls.values()]
            if (most := max(gains, default=0.0)) > 0:
                yield f"Most of that is ({gains.index(most) + 1})."
