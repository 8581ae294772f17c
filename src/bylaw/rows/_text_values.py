"""Labels and groups as text: in names of columns and in cells of a table that has no types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bylaw.errors import EvidenceError

if TYPE_CHECKING:
    from bylaw._base import Value

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_TRUTH = {"true": True, "false": False}
MOST_CHARACTERS = 10_000  # of a label or a value of a group: they are copied, sorted and shown in messages


def check_length(longest: int, what: str) -> None:
    """Raise if the longest text of a column of labels or groups is too long for one."""
    if longest > MOST_CHARACTERS:
        raise EvidenceError(
            f"{what} must hold texts of at most {MOST_CHARACTERS:,} characters, got one of {longest:,}; is "
            "it a column of labels or groups? Shorten its texts, or name another column"
        )


def parse_values(texts: Sequence[str]) -> list[Value]:
    """Return whole numbers or truth values if all texts are such, and otherwise the texts: "01" stays text.

    >>> parse_values(["1", "2"]), parse_values(["1", "02"])
    ([1, 2], ['1', '02'])
    """
    if all(map(_WHOLE.fullmatch, texts)) and "-0" not in texts:
        return [int(text) for text in texts]
    if all(text.lower() in _TRUTH for text in texts):
        return [_TRUTH[text.lower()] for text in texts]
    return list(texts)


def format_value(value: Value) -> str:
    """Return the text of a value, as in the name of a column: True is true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def has_truth(values: Sequence[Value]) -> bool:
    """Return whether True or False, or its text, is among the values."""
    return any(isinstance(value, bool) or str(value).lower() in _TRUTH for value in values)


def match_value(text: str, values: Sequence[Value]) -> Value | None:
    """Return the value that a cell of text stands for, or None: true is True or 'True', and 2 is 2.0.

    If the values are 0 and 1, truth values stand for these.
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
