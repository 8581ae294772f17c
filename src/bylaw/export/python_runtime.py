"""How an exported policy decides. `to_python` copies what is below the line into its files, under the
tables of one policy; it needs only the standard library, of Python 3.10 or later."""

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
# Columns, results, floor, the column that chooses a map, the maps of its values, and the map of other rows:
# for each cell its bias, its weights by position, and its (knot, bend) pairs.
MAPS: list[tuple[list[str], list[str], float, str | None, dict[Any, Any], list[Any]]] = []
# Columns by value and label, results, and the columns of the labels that they add up to.
JOINTS: list[tuple[list[list[str]], list[list[str]], list[str]]] = []
# Products of (column, value), one if they agree, and of [sums of columns]; the weight for each action.
FEATURES: list[tuple[list[Any], dict[Any, float]]] = []

# ----------------------------------------------------------------------------------------------------


def probabilities(row: dict[str, Any]) -> list[float]:
    """The probability of each of ACTIONS on a row, a dict from columns to values; for sets, the probability
    that each label is in. A `ValueError` names what is missing, or what the policy was not fitted on."""
    cells = _calibrate(_check_row(row))
    totals = dict.fromkeys(ACTIONS, 0.0)
    for product, weights in FEATURES:
        feature = math.prod(_compute_factor(cells, factor) for factor in product)
        for action, weight in weights.items():
            totals[action] += feature * weight
    scores = list(totals.values())
    if SETS:
        small = [_exp(-abs(score)) for score in scores]
        distribution = [(1.0 if s > 0 else e) / (1.0 + e) for s, e in zip(scores, small, strict=True)]
    else:
        peak = max(scores)
        weights = [_exp(score - peak) for score in scores]
        total = sum(weights)
        distribution = [weight / total for weight in weights]
    if not all(map(math.isfinite, distribution)):
        raise ValueError("the scores overflow: check the costs")
    return distribution


def decide(row: dict[str, Any], row_id: str | int, key: str = DIGEST) -> Any:
    """The action of this id, always the same one; for sets, the list of labels that are in. The key is
    public unless you pass a secret of your own, as you must where people can choose their ids."""
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
            cells[column] = max(number, 0.0)
        total = sum(cells[column] for column in columns)
        if abs(total - 1) > 1e-4:
            raise ValueError(f"the probabilities {columns} sum to {total!r}, not to one")
    return cells


def _calibrate(cells: dict[str, Any]) -> dict[str, Any]:
    for columns, results, floor, by, maps, otherwise in MAPS:
        logs = [math.log(max(cells[column], floor)) for column in columns]
        chosen = otherwise if by is None else maps.get(cells[by], otherwise)
        scores = [
            bias
            + sum(weight * logs[j] for j, weight in weights.items())
            + sum(bend * max(logs[k] - knot, 0.0) for knot, bend in bends)
            for k, (bias, weights, bends) in enumerate(chosen)
        ]
        peak = max(scores)
        powers = [math.exp(max(score - peak, -30.0)) for score in scores]
        total = sum(powers)
        cells.update((result, power / total) for result, power in zip(results, powers, strict=True))
    for columns, results, labels in JOINTS:
        for k, label in enumerate(labels):
            total = sum(cells[row[k]] for row in columns)
            for row, named in zip(columns, results, strict=True):
                share = cells[row[k]] / total if total > 0 else 1 / len(columns)
                cells[named[k]] = share * cells[label]
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


def _compute_factor(cells: dict[str, Any], factor: Any) -> float:
    if isinstance(factor, tuple):
        column, value = factor
        return 1.0 if cells[column] == value else 0.0
    return sum(cells[column] for column in factor)


def _exp(score: float) -> float:
    return 0.0 if score <= -40 else math.exp(score)


def _hash_to_uniform(message: str, place: int) -> float:
    """A number between 0 and 1 that anyone can compute: 13 hex digits of a hash, as a fraction."""
    digits = hashlib.sha256(message.encode()).hexdigest()[13 * place : 13 * place + 13]
    return int(digits, 16) / 16.0**13
