"""Labels and groups as text, in names of columns and in the cells of tables without types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bylaw.errors import EvidenceError

if TYPE_CHECKING:
    from bylaw._base import Value

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_TRUTH = {"true": True, "false": False}
MOST_CHARACTERS = 10_000  # in a label or group: they are copied, sorted and shown in messages


def check_length(longest: int, what: str) -> None:
    """Raise an `EvidenceError` if the longest text in a column of labels or groups is too long."""
    if longest > MOST_CHARACTERS:
        raise EvidenceError(
            f"{what} must hold texts of at most {MOST_CHARACTERS:,} characters, got one of {longest:,}; "
            "shorten the texts, or name another column of labels or groups"
        )


def parse_values(texts: Sequence[str]) -> list[Value]:
    """Return texts as integers or booleans if all of them are such; "01" is text.

    >>> parse_values(["1", "2"]), parse_values(["1", "02"])
    ([1, 2], ['1', '02'])
    """
    if all(map(_WHOLE.fullmatch, texts)) and "-0" not in texts:
        return [int(text) for text in texts]
    if all(text.lower() in _TRUTH for text in texts):
        return [_TRUTH[text.lower()] for text in texts]
    return list(texts)


def format_value(value: Value) -> str:
    """Return the text of a value as in names of columns: `true` for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def has_truth(values: Sequence[Value]) -> bool:
    """Return whether a boolean or its text is among the values."""
    return any(isinstance(value, bool) or str(value).lower() in _TRUTH for value in values)


def match_value(text: str, values: Sequence[Value]) -> Value | None:
    """Return the value in `values` that a text stands for, or None.

    "true" matches True or 'True', and "2" matches 2.0. If the values are 0 and 1, booleans match these.
    """
    for value in values:
        if text == str(value):
            return value
    if text.lower() in _TRUTH:
        alike = [value for value in values if str(value).lower() == text.lower()]
        if not alike and set(values) == {0, 1}:
            alike = [value for value in values if value == _TRUTH[text.lower()]]
        return alike[0] if len(alike) == 1 else None
    try:
        number = float(text)
    except ValueError:
        return None
    return next((value for value in values if not isinstance(value, str | bool) and value == number), None)
