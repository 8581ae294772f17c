"""Functions of an exported policy: its probabilities and decisions.

`to_python` copies the part below the line into the file of a policy, after the constants of that policy. This
module needs only the standard library, of Python 3.10 or later.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

DIGEST = ""  # the digest of the policy
ACTIONS: tuple[Any, ...] = ()  # the possible decisions
SETS = False  # True if decisions are sets of labels
COMPLEMENTS: dict[str, str] = {}  # probabilities that are one minus a column
KNOWN: dict[str, tuple[Any, ...]] = {}  # columns of values, and the values that the policy was fitted on
TEXT_VALUES: dict[str, dict[str, Any]] = {}  # numbers that a column may hold as text, if it also has "reject"
DISTRIBUTIONS: list[list[str]] = []  # columns of probabilities that sum to one
NUMBERS: list[str] = []  # columns of other numbers


def _compute(cells: dict[str, Any]) -> list[Any]:
    """Return the probability of each of ACTIONS, given the checked cells of a row."""
    raise NotImplementedError


# ----------------------------------------------------------------------------------------------------


def probabilities(row: dict[str, Any]) -> list[float]:
    """Return the probability of each of ACTIONS on a row, a dict {column: value}.

    If decisions are sets, it is the probability that each label is included. Raise a `ValueError` if a value
    is missing or is not one that the policy was fitted on.
    """
    distribution = _compute(_check_row(row))
    if None in distribution:
        raise ValueError("the scores of the row overflow: check its costs")
    return distribution


def decide(row: dict[str, Any], row_id: str | int, key: str = DIGEST) -> Any:
    """Return the action for a row and its id: the same id always gives the same action.

    If decisions are sets, return the list of included labels. The default key is public: pass a secret key if
    people can choose their ids.
    """
    if not key:
        raise ValueError("key must not be empty: check that the secret is set")
    if isinstance(row_id, bool) or not isinstance(row_id, str | int):
        raise ValueError(f"row_id must be text or a whole number, got {row_id!r}")
    distribution = probabilities(row)
    if SETS:
        uniforms = [_hash_to_uniform(f"{key}/{row_id}/{i // 4}", i % 4) for i in range(len(distribution))]
        labels = zip(ACTIONS, distribution, uniforms, strict=True)
        return [label for label, p, uniform in labels if p > uniform * (p + (1 - p))]
    heights = list(itertools.accumulate(distribution))
    threshold = _hash_to_uniform(f"{key}/{row_id}", 0) * heights[-1]
    return ACTIONS[sum(height <= threshold for height in heights)]


def _check_row(row: dict[str, Any]) -> dict[str, Any]:
    cells = {}
    for column, values in KNOWN.items():
        value = _get_cell(row, column)
        cells[column] = TEXT_VALUES.get(column, {}).get(value, value) if isinstance(value, str) else value
        if cells[column] not in values:
            raise ValueError(f"{column!r} must be one of {list(values)}, got {cells[column]!r}")
    for column in NUMBERS:
        cells[column] = _get_number(row, column)
    for columns in DISTRIBUTIONS:
        for column in columns:
            number = _get_number(row, column)
            if not -1e-9 <= number <= 1.0001:
                raise ValueError(f"{column!r} must be a probability, got {number!r}")
            cells[column] = number
        total = sum(cells[column] for column in columns)
        if abs(total - 1) > 1e-4:
            raise ValueError(f"the probabilities {columns} must sum to one, got {total!r}")
    return cells


def _get_cell(row: dict[str, Any], column: str) -> Any:
    if row.get(column) is None:
        raise ValueError(f"the row must have a value for {column!r}, got none")
    return row[column]


def _get_number(row: dict[str, Any], column: str) -> float:
    if column in COMPLEMENTS:
        return 1.0 - _get_number(row, COMPLEMENTS[column])
    value = _get_cell(row, column)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{column!r} must be a finite number, got {value!r}")
    return number


def _hash_to_uniform(message: str, place: int) -> float:
    """Return a reproducible uniform number between 0 and 1, from 13 hex digits of a hash of the message."""
    digits = hashlib.sha256(message.encode()).hexdigest()[13 * place : 13 * place + 13]
    return int(digits, 16) / 16.0**13
