"""bylaw explain: why a row is decided as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import Grid, get_width, write_result
from bylaw.cli.files import open_tables
from bylaw.errors import OptionError

if TYPE_CHECKING:
    from bylaw.cli.inputs import Previous
    from bylaw.policy.explanation import Explanation
    from bylaw.policy.policy import Policy
    from bylaw.rows.columns import Columns
    from bylaw.rows.evidence import Evidence

_SHOWN_CLASSES = 2  # of what the model says
_NAMES_WIDTH, _NUMBER_WIDTH, _GAP = 13, 7, 2  # characters of a table: of "without rules", of +0.1234, between


def run_explain(
    context: typer.Context,
    policy: options.PolicyPath,
    table: Annotated[Path | None, typer.Argument(help="A table with the row in it.")] = None,
    row: Annotated[
        str | None, typer.Option(help="Its number, from 0; or, without a table, the row itself as JSON.")
    ] = None,
    wanted: Annotated[str | None, typer.Option("--id", help="Its id, in the column of ids.")] = None,
    key: options.Key = None,
    key_file: options.KeyFile = None,
    previous: options.Previous = None,
    id_column: options.IdColumn = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    reference: options.Reference = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Explain why a row is decided as it is: what each rule adds to the score of each action.

    [bold]Examples[/bold]

      bylaw explain policy.json new.parquet --row 3

      bylaw explain policy.json --row '{"p_approve": 0.6, "p_deny": 0.4, "race": "black"}'
    """
    from bylaw.cli.decisions import DecisionColumn
    from bylaw.cli.inputs import load_previous
    from bylaw.policy.explanation import explain
    from bylaw.policy.policy import Policy

    if table is None and (row is None or wanted is not None):
        raise OptionError("which row? Give a table with --row NUMBER or --id ID, or --row '{...}' as JSON")
    if table is not None and (row is None) == (wanted is None):
        raise OptionError("give either --row NUMBER, from 0, or --id ID")
    if table is not None and row is not None and not row.isdecimal():
        raise OptionError(f"--row is a number, from 0, not {row!r}")
    secret, stated = options.read_key(key, key_file), options.state_columns(context)
    (table,) = open_tables(context, table)
    chosen = Policy.load(policy)
    earlier = load_previous(previous, chosen)
    evidence, row_id = _read_row(chosen, table, row, wanted, stated, earlier)
    has_id = isinstance(row_id, str | int)
    if earlier is not None:
        evidence = earlier.mark(evidence, [row_id] if has_id else None)
    if not has_id:
        options.refuse_idle("an id of the row, which keys the draw", key=key, key_file=key_file)
    why, column = explain(chosen, evidence), DecisionColumn(chosen)
    best = {"before": why.before, "without_rules": why.without_rules, "after": why.after}
    names = {what: None if one is None else column.name(one[0]) for what, one in best.items()}
    drawn = None
    if has_id:  # as `bylaw decide` draws it
        drawn = column.name(chosen.decide_positions(evidence, ids=[row_id], key=secret)[0])
    facts = {"id": row_id, "decision": drawn, **names, "actions": _list_actions(why)}
    draw = [f"The id {row_id} draws: {drawn}"] if has_id else []
    write_result(facts, [*_describe(why, chosen, evidence, names), *draw], as_json)


def _read_row(
    policy: Policy,
    table: Path | None,
    row: str | None,
    wanted: str | None,
    stated: Mapping[str, Any],
    earlier: Previous | None,
) -> tuple[Evidence, Any]:
    """Return the row, and its id if it has one."""
    from bylaw.cli.inputs import list_group_values
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.rows.table_files import open_columns

    if table is None:
        content = _parse_row(row or "")
        names = list(content)
        columns = find_policy_columns(
            policy, Path("--row"), stated, deciding=True, names=names, previous=earlier
        )
        return columns.evidence(_make_table(content, columns.needed)), content.get(columns.id or "")
    columns = find_policy_columns(policy, table, stated, deciding=True, previous=earlier)
    if wanted is not None and columns.id is None:
        raise OptionError("name the column of the ids with --id-column NAME")
    names = [*columns.needed, *([] if columns.id is None else [columns.id])]
    batches = open_columns(table, columns, list_group_values(policy)).batches(list(dict.fromkeys(names)))
    found = (
        _find_id(batches, table, columns, wanted) if row is None else _find_number(batches, table, int(row))
    )
    row_id = None if columns.id is None else found.column(columns.id)[0].as_py()
    return columns.evidence(found), row_id


def _parse_row(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise OptionError(f"--row without a table is one row as JSON, {{column: value}}, not {text!r}")
    return content


def _make_table(content: dict[str, Any], names: Sequence[str]) -> Any:
    import pyarrow

    try:
        return pyarrow.Table.from_pylist([{name: content[name] for name in names}])
    except (OverflowError, pyarrow.ArrowException) as problem:
        raise OptionError(f"--row has a value that no column can hold: {problem}") from None


def _find_number(batches: Iterable[Any], table: Path, place: int) -> Any:
    seen = 0
    for batch in batches:
        if place < seen + len(batch):
            return batch.slice(place - seen, 1)
        seen += len(batch)
    raise OptionError(f"{table} has {seen:,} rows, from 0 on, and no row {place}")


def _find_id(batches: Iterable[Any], table: Path, columns: Columns, wanted: str | None) -> Any:
    found = []
    for batch in batches:
        ids = batch.column(columns.id).to_pylist()
        found += [batch.slice(i, 1) for i, value in enumerate(ids) if str(value) == wanted]
    if len(found) > 1:
        raise OptionError(f"{table} has several rows with the id {wanted!r}: choose one by its --row NUMBER")
    if not found:
        raise OptionError(f"{table} has no row with the id {wanted!r}")
    return found[0]


def _list_actions(why: Explanation) -> list[dict[str, Any]]:
    """Return a line for each action; the baseline and the pulls of the rules add up to the score."""
    return [
        {
            "action": action,
            "probability": float(why.probabilities[0, a]),
            "baseline": float(why.baseline[0, a]) + 0.0,  # no minus before a zero
            **{rule: float(why.pulls[0, j, a]) + 0.0 for j, rule in enumerate(why.rules)},
            "score": float(why.scores[0, a]) + 0.0,
        }
        for a, action in enumerate(why.actions)
    ]


def _describe(
    why: Explanation, policy: Policy, evidence: Evidence, best: Mapping[str, Any]
) -> Iterator[str | Grid]:
    """Yield what is known of the row, what each rule adds to the scores, and what follows from it.

    The table has a line for each rule or family as stated, and a column for each action, as many as the
    terminal has room for.
    """
    groups = [f"{name} is {group.values[group.codes[0]]}" for name, group in evidence.known_groups.items()]
    pairs = zip(evidence.classes, evidence.probabilities[0], strict=True)
    likeliest = sorted(pairs, key=lambda pair: -pair[1])[:_SHOWN_CLASSES]
    scores = [f"{chance:.1%} {label}" for label, chance in likeliest]
    if known := [*groups, *([f"the model says {', '.join(scores)}"] if scores else [])]:
        yield "; ".join(known)

    statements = {price.rule: price.statement for price in policy.rule_prices}
    pulls: dict[str, Any] = {}  # (n_actions,) by rule or family as stated
    for rule, pull in zip(why.rules, why.pulls[0], strict=True):
        statement = statements.get(rule, rule)
        pulls[statement] = pulls.get(statement, 0.0) + pull
    base = "before pulls" if why.without_rules is None else "without rules"
    lines = [
        ("probability", [f"{chance:.4f}" for chance in why.probabilities[0]]),
        (base, _format_shares(why.baseline[0])),
        *((f"({i})", _format_shares(pull)) for i, pull in enumerate(pulls.values(), 1)),
        ("score", _format_shares(why.scores[0])),
    ]
    shown = _choose_actions(why)
    heads = ("", *(str(why.actions[a]) for a in shown))
    yield Grid(heads, [[name, *(values[a] for a in shown)] for name, values in lines])
    if left_out := len(why.actions) - len(shown):
        yield f"Less likely, and only in --json: {left_out} other action{'s' if left_out > 1 else ''}."
    if pulls:
        minus = "minus its" if why.without_rules is not None else "minus its effect, at this policy, on"
        what = f"{minus} {policy.problem.minimize}"
        yield f"{base.capitalize()}, the score of an action is {what}. Pulls add to it:"
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


def _format_shares(shares: Any) -> list[str]:
    return [f"{share + 0.0:+.4f}" for share in shares]  # no minus before a zero


def _choose_actions(why: Explanation) -> list[int]:
    """Return the places of the actions that are shown, in order: the best before and after, the likeliest."""
    import numpy as np

    widths = [max(len(str(action)), _NUMBER_WIDTH) + _GAP for action in why.actions]
    ends = (why.after[0], why.before[0])
    best = [np.flatnonzero(one).tolist() if why.before.ndim > 1 else [int(one)] for one in ends]
    ranked = sorted(range(len(widths)), key=lambda a: (-why.probabilities[0, a], -why.scores[0, a]))
    room, chosen = get_width() - _NAMES_WIDTH, list[int]()
    for a in dict.fromkeys([*(a for one in best for a in one), *ranked]):
        room -= widths[a]
        if room < 0 and len(chosen) > 1:
            break
        chosen.append(a)
    return sorted(chosen)
