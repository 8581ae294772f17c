"""Values as they are spelled, in names of columns and in cells of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bylaw._base.typing import Value

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_TRUTH = {"true": True, "false": False}


def values_of(texts: Sequence[str]) -> list[Value]:
    """Whole numbers or truth values where all texts are such, and otherwise the texts: "01" is no number."""
    if all(map(_WHOLE.fullmatch, texts)) and "-0" not in texts:
        return [int(text) for text in texts]
    if all(text.lower() in _TRUTH for text in texts):
        return [_TRUTH[text.lower()] for text in texts]
    return list(texts)


def spelled(value: Value) -> str:
    """As in the name of a column."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spelled_by(text: str, values: Sequence[Value]) -> Value | None:
    """The value that a cell of text spells: true is True, and 2 may be 2.0."""
    for value in values:
        if text == str(value) or (isinstance(value, bool) and text.lower() == spelled(value)):
            return value
    try:
        number = float(text)
    except ValueError:
        return None
    return next((value for value in values if not isinstance(value, str | bool) and value == number), None)
