"""The decisions of an exported policy.

`to_python` copies the part below the line into its files, under the tables of one policy; it needs only the
standard library, of Python 3.10 or later.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

DIGEST = ""  # of the policy
ACTIONS: tuple[Any, ...] = ()
SETS = False  # decisions are sets of labels
COMPLEMENTS: dict[str, str] = {}  # what is one less a column
KNOWN: dict[str, tuple[Any, ...]] = {}  # columns of values, and the values that the policy was fitted on
TEXT_VALUES: dict[str, dict[str, Any]] = {}  # of columns of numbers that may be text, as beside "reject"
DISTRIBUTIONS: list[list[str]] = []  # columns that together are probabilities and sum to one
NUMBERS: list[str] = []  # columns of other numbers


def _compute(cells: dict[str, Any]) -> list[Any]:
    """Return the probability of each of ACTIONS, of the cells of a row that may be decided."""
    raise NotImplementedError


# ----------------------------------------------------------------------------------------------------


def probabilities(row: dict[str, Any]) -> list[float]:
    """Return the probability of each of ACTIONS on a row, a dict from columns to values.

    For sets, it is the probability that each label is in. A `ValueError` names what is missing, or what the
    policy was not fitted on.
    """
    distribution = _compute(_check_row(row))
    if None in distribution:
        raise ValueError("the scores overflow: check the costs")
    return distribution


def decide(row: dict[str, Any], row_id: str | int, key: str = DIGEST) -> Any:
    """Return the action of this id, always the same one; for sets, the list of labels that are in.

    The key is public unless you pass a secret of your own, as you must if people can choose their ids.
    """
    if not key:
        raise ValueError("the key is empty: was the secret never set?")
    if isinstance(row_id, bool) or not isinstance(row_id, str | int):
        raise ValueError(f"an id is text or a whole number, not {row_id!r}")
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
            raise ValueError(f"{column!r} is {cells[column]!r}; the policy was fitted on {list(values)}")
    for column in NUMBERS:
        cells[column] = _get_number(row, column)
    for columns in DISTRIBUTIONS:
        for column in columns:
            number = _get_number(row, column)
            if not -1e-9 <= number <= 1.0001:
                raise ValueError(f"{column!r} is {number!r}, which is not a probability")
            cells[column] = number
        total = sum(cells[column] for column in columns)
        if abs(total - 1) > 1e-4:
            raise ValueError(f"the probabilities {columns} sum to {total!r}, not to one")
    return cells


def _get_cell(row: dict[str, Any], column: str) -> Any:
    if row.get(column) is None:
        raise ValueError(f"the row has no {column!r}")
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
        raise ValueError(f"{column!r} is {value!r}, which is not a finite number")
    return number


def _hash_to_uniform(message: str, place: int) -> float:
    """Return a reproducible number between 0 and 1: 13 hex digits of a hash, as a fraction."""
    digits = hashlib.sha256(message.encode()).hexdigest()[13 * place : 13 * place + 13]
    return int(digits, 16) / 16.0**13
