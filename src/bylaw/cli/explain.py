"""bylaw explain: why a row is decided as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pyarrow
import typer

from bylaw.cli import options
from bylaw.cli.console import show_json, show_table, tell
from bylaw.cli.inputs import Flags, policy_roles
from bylaw.errors import OptionError
from bylaw.evidence import Evidence
from bylaw.explanation import Explanation, explain
from bylaw.policy import Policy
from bylaw.roles import Roles
from bylaw.table_files import TableFile


def explained(
    policy: options.PolicyPath,
    table: Annotated[Path | None, typer.Argument(help="A table with the row in it.")] = None,
    row: Annotated[
        str | None, typer.Option(help="Its number, from 0; or, without a table, the row itself as JSON.")
    ] = None,
    wanted: Annotated[str | None, typer.Option("--id", help="Its id, in the column of ids.")] = None,
    id_column: options.IdColumn = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    reference: options.Reference = None,
    as_json: options.AsJson = False,
) -> None:
    """Why a row is decided as it is: what each rule adds to the score of each action.

    [bold]Examples[/bold]

      bylaw explain policy.json new.parquet --row 3

      bylaw explain policy.json --row '{"p_approve": 0.6, "p_deny": 0.4, "race": "black"}'
    """
    chosen = Policy.load(policy)
    flags = Flags(
        group=group, group_probabilities=group_probabilities, reference=reference, id_column=id_column
    )
    why = explain(chosen, _one_row(chosen, table, row, wanted, flags))
    if as_json:
        show_json(_lines(why))
    else:
        _show_why(why)


def _one_row(
    policy: Policy, table: Path | None, row: str | None, wanted: str | None, flags: Flags
) -> Evidence:
    if table is None:
        if row is None or wanted is not None:
            raise OptionError(
                "which row? Give a table with --row NUMBER or --id ID, or --row '{...}' as JSON"
            )
        return _inline(policy, row)
    if (row is None) == (wanted is None):
        raise OptionError("give either --row NUMBER, from 0, or --id ID")
    roles = policy_roles(policy, table, flags)
    if row is not None:
        return roles.columns.evidence(_numbered(table, roles, row))
    if roles.id is None:
        raise OptionError("say which column holds the ids: --id-column NAME")
    file = TableFile(table, text=(roles.id,))
    for batch in file.batches(list(dict.fromkeys([roles.id, *roles.needed]))):
        matching = [str(value) == wanted for value in batch.column(roles.id).to_pylist()]
        if any(matching):
            return roles.columns.evidence(batch.slice(matching.index(True), 1))
    raise OptionError(f"{table} has no row with the id {wanted!r}")


def _inline(policy: Policy, text: str) -> Evidence:
    try:
        content = json.loads(text)
        table = pyarrow.Table.from_pylist([content])
    except (ValueError, AttributeError, RecursionError, pyarrow.ArrowException):
        raise OptionError(
            f"--row without a table is one row as JSON, {{column: value}}, not {text!r}"
        ) from None
    return Roles.from_dict(policy.card.columns).columns.evidence(table)


def _numbered(table: Path, roles: Roles, row: str) -> Any:
    if not row.isdecimal():
        raise OptionError(f"--row is a number, from 0, not {row!r}")
    place, seen = int(row), 0
    for batch in TableFile(table).batches(roles.needed):
        if place < seen + len(batch):
            return batch.slice(place - seen, 1)
        seen += len(batch)
    raise OptionError(f"{table} has {seen:,} rows, from 0 on, and no row {row}")


def _lines(why: Explanation) -> list[dict[str, Any]]:
    """One for each action; alone and the pulls of the rules add up to the score."""
    return [
        {
            "action": action,
            "probability": float(why.probabilities[0, a]),
            "alone": float(why.alone[0, a]) + 0.0,  # no minus before a zero
            **{rule: float(why.pulls[0, j, a]) + 0.0 for j, rule in enumerate(why.rules)},
            "score": float(why.scores[0, a]) + 0.0,
        }
        for a, action in enumerate(why.actions)
    ]


def _show_why(why: Explanation) -> None:
    numbers = [f"({i})" for i in range(1, len(why.rules) + 1)]
    cells = [
        [action, f"{chance:.4f}", *(f"{share:+.4f}" for share in shares)]
        for action, chance, *shares in (line.values() for line in _lines(why))
    ]
    show_table("", ("action", "probability", "alone", *numbers, "score"), cells)
    for number, rule in zip(numbers, why.rules, strict=True):
        tell(f"{number} {rule}")
    tell(f"The rules {'changed' if why.moved[0] else 'did not change'} the best decision.")
