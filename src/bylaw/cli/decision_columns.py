"""Decisions as they stand in a table, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Value
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy.policy import Policy

_BETWEEN = ";"  # labels of a set, where a table has no lists


def check_sets(policy: Policy) -> None:
    """Whether sets can be told apart once they are text."""
    if mixed := [label for label in policy.actions if _BETWEEN in str(label)]:
        raise OptionError(
            f"the label {mixed[0]!r} has a semicolon, which stands between the labels of a set in a CSV "
            "file: write .parquet, .arrow or .jsonl"
        )


def set_as_text(labels: Sequence[Value]) -> str:
    return _BETWEEN.join(map(str, labels))


def read_decisions(values: Sequence[Any], policy: Policy) -> NDArray[Any]:
    """Actions (n_rows,), or for sets membership (n_rows, n_classes), from what `bylaw decide` wrote: actions,
    or their text; sets as lists, or as text."""
    if None in values:
        raise EvidenceError(f"there is no decision in row {values.index(None)}")
    spelled = {str(action): action for action in policy.actions}
    spelled |= {text: a for a in policy.actions for text in _other_spellings(a) if text not in spelled}
    if policy.action_space.kind != "sets":
        return np.array([spelled.get(str(value), value) for value in values], dtype=object)
    rows = [value.split(_BETWEEN) if isinstance(value, str) else value for value in values]
    texts = [[str(label) for label in row if label != ""] for row in rows]
    if unknown := {text for row in texts for text in row} - set(spelled):
        raise EvidenceError(f"{min(unknown)!r} is no label of the policy")
    chosen = [{spelled[text] for text in row} for row in texts]
    return np.array([[label in row for label in policy.actions] for row in chosen])


def _other_spellings(action: Value) -> Iterator[str]:
    """Of a CSV file: true for True, 1 for 1.0."""
    if isinstance(action, bool):
        yield str(action).lower()
    elif isinstance(action, float) and action.is_integer():
        yield str(int(action))
