"""Matrices of probabilities, validated: classes, values, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw._base.validation import as_scalar
from bylaw.errors import EvidenceError, Remedy

SUM_TOLERANCE = 1e-4  # how far a row of probabilities may be from summing to one
ROUNDING = 1e-9  # negative probabilities this small are rounding errors


def check_classes(
    classes: Sequence[Any] | None, names: list[str] | None, matrix: Floats
) -> tuple[tuple[Value, ...], Floats]:
    if matrix.ndim != 2:
        hint = (
            "; for scores p of a positive class pass np.column_stack([1 - p, p])" if matrix.ndim == 1 else ""
        )
        raise EvidenceError(f"probabilities must have shape (rows, classes), not {matrix.shape}{hint}")
    if classes is None:
        classes = names if names is not None else range(matrix.shape[1])
    labels = tuple(as_scalar(label, "a class", EvidenceError) for label in classes)
    if len(labels) != matrix.shape[1]:
        raise EvidenceError(
            f"{len(labels)} classes are named, but probabilities has {matrix.shape[1]} columns"
        )
    if len(set(map(str, labels))) != len(labels) or len(set(labels)) != len(labels):
        raise EvidenceError(f"the classes {list(labels)} are not all different, or are written alike")
    if len(labels) < 2:
        raise EvidenceError(
            "there is a single class, so there is nothing to decide; pass one column per class"
        )
    return labels, columns_by_name(matrix, names, labels)


def columns_by_name(matrix: Floats, names: list[str] | None, labels: tuple[Value, ...]) -> Floats:
    """Columns named after the classes are matched by name, others by position."""
    wanted = [str(label) for label in labels]
    if names is None or names == wanted or set(map(str, names)) != set(wanted):
        return matrix
    return matrix[:, [list(map(str, names)).index(name) for name in wanted]]


def check_probabilities(matrix: Floats, what: str, normalize: bool) -> Floats:
    """Checked without a copy the size of the input."""
    if not matrix.size:
        raise EvidenceError(f"{what} is empty; pass at least one row")
    low, high = matrix.min(), matrix.max()
    if -ROUNDING <= low < 0:
        matrix, low = np.maximum(matrix, 0.0), 0.0
    if not np.isfinite(low + high):
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise EvidenceError(f"{what} has a value that is not finite in row {row}; fill it in or drop the row")
    if low < 0 or (high > 1 + SUM_TOLERANCE and not normalize):
        row = int(np.argmax((matrix.min(axis=1) < 0) | (matrix.max(axis=1) > 1 + SUM_TOLERANCE)))
        raise EvidenceError(
            f"{what} has values outside [0, 1], such as row {row}: {matrix[row].round(4).tolist()}; "
            "if these are logits, apply softmax first"
        )
    if normalize:
        sums = matrix.sum(axis=1)  # row by row, the same in any batch
        if not sums.all():
            raise EvidenceError(f"{what}: row {int(np.argmin(sums))} is all zeros and cannot be normalised")
        return matrix / sums[:, None]
    sums = matrix @ np.ones(matrix.shape[1])
    off = np.abs(sums - 1)
    if off.max() > SUM_TOLERANCE:
        row = int(off.argmax())
        raise EvidenceError(
            f"{what}: row {row} sums to {sums[row]:.6g}, not to one (tolerance {SUM_TOLERANCE:g})",
            Remedy("normalize"),
        )
    return matrix
