"""Whether probabilities mean what they say: predicted shares beside those that were seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats, Value
from bylaw.data.evidence import Evidence, RowData
from bylaw.data.groups import KnownGroup
from bylaw.language.expressions import LABEL

_BINS = 10


class Reliability(NamedTuple):
    """One class or group value, among everybody or one group."""

    of: str  # "label", or the attribute
    value: Value
    among: str  # such as "sex='Female'"; empty for everybody
    predicted: float  # mean probability
    observed: float  # share of rows
    deviations: float  # observed less predicted, in standard errors of calibrated probabilities
    unevenness: float  # mean distance of observed and predicted in ten bins of equal size
    rows: int


def reliability(evidence: Evidence, seen: RowData, labelled: bool) -> tuple[Reliability, ...]:
    """Of everything that had probabilities and was then seen."""
    known = seen.known_groups
    lines: list[Reliability] = []
    if labelled:
        outcome = seen.probabilities.argmax(axis=1)
        for among, rows in _parts(known, len(seen)):
            lines += _lines(LABEL, evidence.classes, evidence.probabilities, outcome, evidence, among, rows)
    for name, group in known.items():
        if (belief := evidence.hidden_groups.get(name)) is not None:
            everybody = np.ones(len(seen), dtype=bool)
            lines += _lines(name, belief.values, belief.probabilities, group.codes, evidence, "", everybody)
    return tuple(lines)


def _parts(known: Mapping[str, KnownGroup], n_rows: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    yield "", np.ones(n_rows, dtype=bool)
    for name, group in known.items():
        for code, value in enumerate(group.values):
            rows = group.codes == code
            if rows.any():
                yield f"{name}={value!r}", rows


def _lines(
    of: str,
    values: tuple[Value, ...],
    probabilities: Floats,
    outcome: NDArray[np.int64],
    evidence: Evidence,
    among: str,
    rows: NDArray[np.bool_],
) -> Iterator[Reliability]:
    weights = evidence.row_weights[rows]
    total = float(weights.sum())
    for code, value in enumerate(values):
        chance, hit = probabilities[rows, code], (outcome[rows] == code).astype(float)
        if not total:
            continue
        predicted, observed = float(weights @ chance) / total, float(weights @ hit) / total
        error = math.sqrt(float(weights**2 @ (chance * (1 - chance)))) / total
        gap = observed - predicted
        deviations = gap / error if error else math.copysign(math.inf, gap) if gap else 0.0
        uneven = _unevenness(chance, hit, weights) / total
        yield Reliability(of, value, among, predicted, observed, deviations, uneven, int(rows.sum()))


def _unevenness(chance: Floats, hit: Floats, weights: Floats) -> float:
    bins = np.array_split(np.argsort(chance, kind="stable"), min(_BINS, len(chance)))
    return sum(abs(float(weights[b] @ (hit[b] - chance[b]))) for b in bins)
