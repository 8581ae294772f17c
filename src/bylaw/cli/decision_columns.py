"""How decisions are written to columns of a table and read from them: actions, or sets of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from bylaw._base.typing import Value
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy.policy import Policy
from bylaw.policy.row_maps import as_one_type

_BETWEEN = ";"  # labels of a set, where a table has no lists


class ActionColumn:
    """One action per row; as text where actions have several types, as numbers beside "reject" have."""

    def __init__(self, actions: Sequence[Value]) -> None:
        self.actions = actions

    @property
    def arrow_type(self) -> Any:
        return pyarrow.array(as_one_type(self.actions)).type

    def write(self, positions: NDArray[Any]) -> Any:
        """An Arrow array of the actions at positions (n_rows,)."""
        return pyarrow.array(as_one_type(self.actions)).take(pyarrow.array(positions))

    def read(self, values: Sequence[Any]) -> NDArray[Any]:
        """Actions (n_rows,), from actions or their text; others stay as they are."""
        _check_missing(values)
        texts = _list_texts(self.actions)
        return np.array([texts.get(str(value), value) for value in values], dtype=object)

    def to_plain(self, decision: Any) -> Any:
        """One decision as a plain value."""
        return decision.item() if hasattr(decision, "item") else decision

    def name_best(self, position: Any) -> Value:
        """The action that is best on a row, by its position."""
        return self.actions[position]


class SetColumn:
    """A set of labels per row: a list, or as text, labels with semicolons between them."""

    def __init__(self, labels: Sequence[Value], as_text: bool) -> None:
        if as_text and (mixed := [label for label in labels if _BETWEEN in str(label)]):
            raise OptionError(
                f"the label {mixed[0]!r} has a semicolon, which stands between the labels of a set in a CSV "
                "file: write .parquet, .arrow or .jsonl"
            )
        self.labels, self.as_text = labels, as_text

    @property
    def arrow_type(self) -> Any:
        if self.as_text:
            return pyarrow.string()
        return pyarrow.list_(pyarrow.array(as_one_type(self.labels)).type)

    def write(self, decisions: NDArray[Any]) -> Any:
        """An Arrow array of membership (n_rows, n_labels)."""
        labels = np.array(as_one_type(self.labels), dtype=object)
        sets = [labels[row].tolist() for row in decisions]
        if self.as_text:
            return pyarrow.array([_BETWEEN.join(map(str, row)) for row in sets], self.arrow_type)
        return pyarrow.array(sets, self.arrow_type)

    def read(self, values: Sequence[Any]) -> NDArray[Any]:
        """Membership (n_rows, n_labels), from lists or text."""
        _check_missing(values)
        labels = _list_texts(self.labels)
        rows = [value.split(_BETWEEN) if isinstance(value, str) else value for value in values]
        texts = [[str(label) for label in row if label != ""] for row in rows]
        if unknown := {text for row in texts for text in row} - set(labels):
            raise EvidenceError(f"{min(unknown)!r} is no label of the policy")
        sets = [{labels[text] for text in row} for row in texts]
        return np.array([[label in row for label in self.labels] for row in sets])

    def to_plain(self, decision: Any) -> Any:
        """The labels of one set."""
        return [label for label, inside in zip(self.labels, decision, strict=True) if inside]

    def name_best(self, membership: Any) -> list[Value]:
        """The labels of the set that is best on a row."""
        return self.to_plain(membership)


def make_decision_column(policy: Policy, *, as_text: bool = False) -> ActionColumn | SetColumn:
    """What the policy decides, as a column; `as_text` is for tables that have no lists."""
    if policy.action_space.exclusive:
        return ActionColumn(policy.actions)
    return SetColumn(policy.actions, as_text)


def _check_missing(values: Sequence[Any]) -> None:
    if None in values:
        raise EvidenceError(f"there is no decision in row {values.index(None)}")


def _list_texts(actions: Sequence[Value]) -> dict[str, Value]:
    """Actions by each text that may stand for them; an action's own goes first."""
    texts = {str(action): action for action in actions}
    return {text: a for a in actions for text in _list_other_texts(a)} | texts


def _list_other_texts(action: Value) -> Iterator[str]:
    """In a CSV file: true for True, 1 for 1.0."""
    if isinstance(action, bool):
        yield str(action).lower()
    elif isinstance(action, float) and action.is_integer():
        yield str(int(action))
