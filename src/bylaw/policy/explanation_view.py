"""Explanations as HTML for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw._base.notebook import Cell, draw_bar, fold, make_card, make_code, make_table

if TYPE_CHECKING:
    from bylaw.policy.explanation import Explanation

_SHOWN_ROWS = 5


def format_html(found: Explanation) -> str:
    """How many rows are decided otherwise, and the rules that moved the first of them."""
    moved = np.flatnonzero(found.changed)
    title = f"{len(moved):,} of {len(found.baseline):,} rows are decided otherwise than by your model"
    if found.without_rules is not None:
        title += f"; the rules move {int(found.moved.sum()):,}"
    if found.before.ndim > 1 or not len(moved):  # sets of labels have no one decision before
        return make_card(title)
    names = [str(action) for action in found.actions]
    pairs, counts = np.unique(
        np.column_stack([found.before[moved], found.after[moved]]), axis=0, return_counts=True
    )
    order, most = np.argsort(-counts, kind="stable"), float(counts.max())
    changes: list[list[Cell]] = [
        [names[pairs[i][0]], names[pairs[i][1]], f"{counts[i]:,}", draw_bar(float(counts[i]), most)]
        for i in order.tolist()
    ]
    table = make_table(("your model", "this policy", "rows", ""), changes, numbers=(2,))
    first = make_table(
        ("row", "your model", "this policy", "pulled most by"),
        _list_moved(found, moved[:_SHOWN_ROWS], names),
        numbers=(0,),
    )
    return make_card(title, table, fold("the first of them", first))


def _list_moved(found: Explanation, rows: Any, names: list[str]) -> list[list[Cell]]:
    """Each with the rule that pulled most from the one decision to the other."""
    cells: list[list[Cell]] = []
    for row in rows.tolist():
        before, after = int(found.before[row]), int(found.after[row])
        pulls = found.pulls[row, :, after] - found.pulls[row, :, before]
        pulled = found.moved[row] and len(pulls) and pulls.max() > 0
        rule = make_code(found.rules[int(np.argmax(pulls))]) if pulled else "no rule: it costs less"
        cells.append([f"{row}", names[before], names[after], rule])
    return cells
