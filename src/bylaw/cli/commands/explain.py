"""bylaw explain: why a row is decided as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow
import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import show_json, show_table, tell
from bylaw.cli.inputs import groups_of, policy_roles, table_of
from bylaw.data.column_roles import Roles
from bylaw.data.evidence import Evidence
from bylaw.errors import OptionError
from bylaw.policy.explanation import Explanation, explain
from bylaw.policy.policy import Policy


@takes_columns("id_column", "scores", "group", "group_probabilities", "reference", "normalize")
def explained(
    policy: options.PolicyPath,
    table: Annotated[Path | None, typer.Argument(help="A table with the row in it.")] = None,
    row: Annotated[
        str | None, typer.Option(help="Its number, from 0; or, without a table, the row itself as JSON.")
    ] = None,
    wanted: Annotated[str | None, typer.Option("--id", help="Its id, in the column of ids.")] = None,
    key: Annotated[str | None, typer.Option(help="Of the draw; by default the policy's hash.")] = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Why a row is decided as it is: what each rule adds to the score of each action.

    [bold]Examples[/bold]

      bylaw explain policy.json new.parquet --row 3

      bylaw explain policy.json --row '{"p_approve": 0.6, "p_deny": 0.4, "race": "black"}'
    """
    chosen = Policy.load(policy)
    evidence, found = _one_row(chosen, table, row, wanted, flags)
    why = explain(chosen, evidence)
    drawn = _decision(chosen, evidence, found, key) if isinstance(found, str | int) else None
    if as_json:
        show_json({"id": found, "decision": drawn, "actions": _lines(why)})
    else:
        _show_why(why, found, drawn)


def _one_row(
    policy: Policy, table: Path | None, row: str | None, wanted: str | None, flags: Flags
) -> tuple[Evidence, Any]:
    """The row, and its id if it has one."""
    if table is None:
        if row is None or wanted is not None:
            raise OptionError(
                "which row? Give a table with --row NUMBER or --id ID, or --row '{...}' as JSON"
            )
        content = _inline(row)
        roles = policy_roles(policy, Path("--row"), flags, deciding=True, names=list(content))
        return roles.columns.evidence(_as_table(content, roles.needed)), content.get(roles.id or "")
    if (row is None) == (wanted is None):
        raise OptionError("give either --row NUMBER, from 0, or --id ID")
    roles = policy_roles(policy, table, flags, deciding=True)
    if wanted is not None and roles.id is None:
        raise OptionError("say which column holds the ids: --id-column NAME")
    names = [*roles.needed, *([] if roles.id is None else [roles.id])]
    batches = table_of(table, roles, groups_of(policy)).batches(list(dict.fromkeys(names)))
    return _read(
        _numbered(batches, table, row) if row is not None else _named(batches, table, roles, wanted), roles
    )


def _read(row: Any, roles: Roles) -> tuple[Evidence, Any]:
    known = roles.id is not None and roles.id in row.schema.names
    return roles.columns.evidence(row), row.column(roles.id)[0].as_py() if known else None


def _inline(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise OptionError(f"--row without a table is one row as JSON, {{column: value}}, not {text!r}")
    return content


def _as_table(content: dict[str, Any], names: Sequence[str]) -> Any:
    try:
        return pyarrow.Table.from_pylist([{name: content[name] for name in names}])
    except (OverflowError, pyarrow.ArrowException) as problem:
        raise OptionError(f"--row has a value that no column can hold: {problem}") from None


def _numbered(batches: Iterable[Any], table: Path, row: str) -> Any:
    if not row.isdecimal():
        raise OptionError(f"--row is a number, from 0, not {row!r}")
    place, seen = int(row), 0
    for batch in batches:
        if place < seen + len(batch):
            return batch.slice(place - seen, 1)
        seen += len(batch)
    raise OptionError(f"{table} has {seen:,} rows, from 0 on, and no row {row}")


def _named(batches: Iterable[Any], table: Path, roles: Roles, wanted: str | None) -> Any:
    for batch in batches:
        matching = [str(value) == wanted for value in batch.column(roles.id).to_pylist()]
        if any(matching):
            return batch.slice(matching.index(True), 1)
    raise OptionError(f"{table} has no row with the id {wanted!r}")


def _decision(policy: Policy, evidence: Evidence, row_id: Any, key: str | None) -> Any:
    """As `bylaw decide` draws it; for sets, the labels."""
    drawn = policy.decide(evidence, ids=[row_id], key=key)[0]
    if policy.action_space.kind == "sets":
        return [label for label, inside in zip(policy.actions, drawn, strict=True) if inside]
    return drawn.item() if hasattr(drawn, "item") else drawn


def _lines(why: Explanation) -> list[dict[str, Any]]:
    """One for each action; alone and the pulls of the rules add up to the score."""
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


def _show_why(why: Explanation, row_id: Any, drawn: Any) -> None:
    numbers = [f"({i})" for i in range(1, len(why.rules) + 1)]
    cells = [
        [action, f"{chance:.4f}", *(f"{share:+.4f}" for share in shares)]
        for action, chance, *shares in (line.values() for line in _lines(why))
    ]
    show_table("", ("action", "probability", "baseline", *numbers, "score"), cells)
    for number, rule in zip(numbers, why.rules, strict=True):
        tell(f"{number} {rule}")
    best, alone = (why.actions[int(scores[0].argmax())] for scores in (why.scores, why.baseline))
    if not why.moved[0]:
        tell("The rules did not change the best decision.")
    elif alone == best:  # of a set, other labels
        tell("The rules changed the best decision.")
    else:
        tell(f"The rules changed the best decision from {alone} to {best}.")
    if drawn is not None:
        tell(f"The id {row_id} draws: {drawn}")
