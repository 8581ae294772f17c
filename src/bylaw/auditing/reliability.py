"""Calibration: predicted probabilities beside the shares that were observed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats, Value
from bylaw.calibration.calibration import CalibratedEvidence
from bylaw.data.evidence import Evidence, RowData
from bylaw.data.groups import KnownGroup
from bylaw.language.expressions import LABEL

_BINS = 10
NOTABLE = 3.0  # standard errors, which chance hardly explains


class Reliability(NamedTuple):
    """One class or group value, among all rows or those of one group."""

    of: str  # "label", or the attribute
    value: Value
    among: str  # such as "sex='Female'"; empty for all rows
    predicted: float  # mean probability
    observed: float  # share of rows
    deviations: float  # observed less predicted, in standard errors of calibrated probabilities
    unevenness: float  # mean distance of observed and predicted in ten bins of equal size
    rows: int
    raw_predicted: float = math.nan  # mean probability before the policy's calibration, if it has one
    raw_unevenness: float = math.nan

    @property
    def is_notable(self) -> bool:
        """Whether observed and predicted differ by more than chance explains."""
        return abs(self.deviations) > NOTABLE


class ReliabilityBin(NamedTuple):
    """Rows of about the same probability."""

    predicted: float  # mean probability
    observed: float  # share of these rows
    share: float  # of all rows
    deviations: float  # observed less predicted, in standard errors of calibrated probabilities

    @property
    def is_notable(self) -> bool:
        """Whether observed and predicted differ by more than chance explains."""
        return abs(self.deviations) > NOTABLE


def compute_reliability(evidence: Evidence, seen: RowData, labelled: bool) -> tuple[Reliability, ...]:
    """Of everything that had probabilities and was then observed.

    Parameters
    ----------
    evidence : Evidence
        with the predicted probabilities; where they are calibrated, those before are compared, too.
    seen : ObservedRows
        the same rows as observed.
    labelled : bool
        whether the labels of `seen` were observed.
    """
    lines = _list_lines(evidence, seen, labelled)
    if not isinstance(evidence, CalibratedEvidence):
        return tuple(lines)
    raw = _list_lines(evidence.raw, seen, labelled)
    return tuple(
        line._replace(raw_predicted=before.predicted, raw_unevenness=before.unevenness)
        for line, before in zip(lines, raw, strict=True)
    )


def _list_lines(evidence: Evidence, seen: RowData, labelled: bool) -> list[Reliability]:
    known = seen.known_groups
    lines: list[Reliability] = []
    if labelled:
        outcome = seen.probabilities.argmax(axis=1)
        for among, rows in _list_parts(known, len(seen)):
            lines += _compare(LABEL, evidence.classes, evidence.probabilities, outcome, evidence, among, rows)
    for name, group in known.items():
        if (belief := evidence.hidden_groups.get(name)) is not None:
            rows = np.ones(len(seen), dtype=bool)
            lines += _compare(name, belief.values, belief.probabilities, group.codes, evidence, "", rows)
    return lines


def bin_confidence(evidence: Evidence, seen: RowData) -> list[ReliabilityBin]:
    """How often the model's best label is right, by the probability that the model gives it: the points of
    a reliability diagram."""
    confidence = evidence.probabilities.max(axis=1)
    right = seen.probabilities.argmax(axis=1) == evidence.probabilities.argmax(axis=1)
    return bin_probabilities(confidence, right.astype(float), evidence.row_weights)


def bin_probabilities(chance: Floats, hit: Floats, weights: Floats) -> list[ReliabilityBin]:
    """Predicted and observed shares in ten bins of as many rows each, by rising probability.

    Parameters
    ----------
    chance : array of shape (n_rows,)
        predicted probabilities.
    hit : array of shape (n_rows,)
        1 where it came true, 0 elsewhere.
    weights : array of shape (n_rows,)

    Returns
    -------
    list of ReliabilityBin
        without those whose rows have no weight.

    Examples
    --------
    >>> import numpy as np
    >>> bins = bin_probabilities(np.array([0.2, 0.9]), np.array([0.0, 1.0]), np.ones(2))
    >>> [(one.predicted, one.observed, one.share) for one in bins]
    [(0.2, 0.0, 0.5), (0.9, 1.0, 0.5)]
    """
    total = float(weights.sum())
    parts = np.array_split(np.argsort(chance, kind="stable"), min(_BINS, len(chance)))
    return [
        ReliabilityBin(predicted, observed, float(weights[part].sum()) / total, deviations)
        for part in parts
        if weights[part].sum() > 0
        for predicted, observed, deviations in [_deviate(chance[part], hit[part], weights[part])]
    ]


def _deviate(chance: Floats, hit: Floats, weights: Floats) -> tuple[float, float, float]:
    """The predicted and the observed share, and their difference in standard errors."""
    total = float(weights.sum())
    predicted, observed = float(weights @ chance) / total, float(weights @ hit) / total
    error = math.sqrt(float(weights**2 @ (chance * (1 - chance)))) / total
    gap = observed - predicted
    deviations = gap / error if error else math.copysign(math.inf, gap) if gap else 0.0
    return predicted, observed, deviations


def _list_parts(known: Mapping[str, KnownGroup], n_rows: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    yield "", np.ones(n_rows, dtype=bool)
    for name, group in known.items():
        for code, value in enumerate(group.values):
            rows = group.codes == code
            if rows.any():
                yield f"{name}={value!r}", rows


def _compare(
    of: str,
    values: tuple[Value, ...],
    probabilities: Floats,
    outcome: NDArray[np.int64],
    evidence: Evidence,
    among: str,
    rows: NDArray[np.bool_],
) -> Iterator[Reliability]:
    weights = evidence.row_weights[rows]
    if not weights.sum():
        return
    for code, value in enumerate(values):
        chance, hit = probabilities[rows, code], (outcome[rows] == code).astype(float)
        uneven = sum(b.share * abs(b.observed - b.predicted) for b in bin_probabilities(chance, hit, weights))
        yield Reliability(of, value, among, *_deviate(chance, hit, weights), uneven, int(rows.sum()))
