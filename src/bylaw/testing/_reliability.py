"""Reliability of probabilities: predicted probabilities compared with observed shares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Value
from bylaw.calibration import CalibratedEvidence
from bylaw.language import LABEL, Conditions
from bylaw.rows import Evidence, ObservedRows
from bylaw.testing._verdicts import find_hidden_cells

_BINS = 10
NOTABLE = 3.0  # a difference of more standard errors is significant
_MEAN_DISTANCE = math.sqrt(2 / math.pi)  # mean absolute value of a standard normal number


class Reliability(NamedTuple):
    """The predicted and observed share of one class or group value, among all rows or in one group."""

    of: str  # "label", or the attribute
    value: Value
    among: str  # such as "sex='Female'"; empty for all rows
    predicted: float  # mean probability
    observed: float  # observed share of rows
    deviations: float  # observed minus predicted, in standard errors for calibrated probabilities
    unevenness: float  # mean distance of observed and predicted shares in ten bins of equal size
    rows: int  # number of rows
    raw_predicted: float = math.nan  # mean probability before the policy's calibration, if it has one
    raw_unevenness: float = math.nan
    expected_unevenness: float = 0.0  # expected unevenness of calibrated probabilities
    unevenness_error: float = 0.0  # standard error of the unevenness
    group: Conditions = ()  # the same as `among`, as attribute and value

    @property
    def uneven_deviations(self) -> float:
        """Unevenness minus its expectation for calibrated probabilities, in standard errors."""
        beyond = self.unevenness - self.expected_unevenness
        return beyond / self.unevenness_error if self.unevenness_error else 0.0

    @property
    def most_unevenness(self) -> float:
        """Upper bound of the mean distance over the same bins in the population.

        The observed distance is too large on average because of random errors, above all with few rows.
        """
        return self.unevenness + NOTABLE * self.unevenness_error

    @property
    def is_off(self) -> bool:
        """True if the mean probability differs significantly from the observed share."""
        return abs(self.deviations) > NOTABLE

    @property
    def is_uneven(self) -> bool:
        """True if probabilities are significantly too high on some rows and too low on others."""
        return self.uneven_deviations > NOTABLE

    @property
    def is_notable(self) -> bool:
        """True if observed and predicted shares differ significantly, on average or in bins."""
        return self.is_off or self.is_uneven

    @property
    def severity(self) -> float:
        """The largest difference of observed and predicted shares, in standard errors."""
        return max(abs(self.deviations), self.uneven_deviations)


class ReliabilityBin(NamedTuple):
    """Rows with similar predicted probabilities."""

    predicted: float  # mean probability
    observed: float  # observed share of these rows
    share: float  # these rows as a share of all rows
    deviations: float  # observed minus predicted, in standard errors for calibrated probabilities
    standard_error: float = 0.0  # of the observed share, for calibrated probabilities

    @property
    def is_notable(self) -> bool:
        """True if observed and predicted shares differ significantly."""
        return abs(self.deviations) > NOTABLE


def compute_reliability(evidence: Evidence, seen: ObservedRows, labelled: bool) -> tuple[Reliability, ...]:
    """Compare predicted and observed shares of all labels and groups with probabilities.

    Each is compared on the rows where it is observed. If the probabilities of the evidence are calibrated,
    those before calibration are compared, too. `seen` are the same rows with observed values, and `labelled`
    is true if these include labels.
    """
    lines = _list_lines(evidence, seen, labelled)
    if not isinstance(evidence, CalibratedEvidence):
        return tuple(lines)
    raw = _list_lines(evidence.raw, seen, labelled)
    return tuple(
        line._replace(raw_predicted=before.predicted, raw_unevenness=before.unevenness)
        for line, before in zip(lines, raw, strict=True)
    )


def choose_shown_lines(lines: Sequence[Reliability], min_cell: int) -> tuple[Reliability, ...]:
    """Return the lines without those of groups that are too small to be shown."""
    hidden = find_hidden_cells({line.group: float(line.rows) for line in lines}, min_cell)
    return tuple(line for line in lines if line.group not in hidden)


def _list_lines(evidence: Evidence, seen: ObservedRows, labelled: bool) -> list[Reliability]:
    names = list(dict.fromkeys([*seen.known_groups, *(name for name in seen.seen if name in seen.groups)]))
    lines: list[Reliability] = []
    for name in (None, *names) if labelled else ():
        # Compare labels among all rows, then in each group of an attribute.
        shown, places = seen.restrict_with_places([LABEL] if name is None else [LABEL, name])
        outcome, predicted = shown.probabilities.argmax(axis=1), evidence.probabilities[places]
        cells: list[tuple[Conditions, Any]] = [((), slice(None))]
        if name is not None:
            group = shown.known_groups[name]
            cells = [(((name, value),), group.codes == code) for code, value in enumerate(group.values)]
        for cell, rows in cells:
            columns = predicted[rows], outcome[rows], shown.row_weights[rows]
            lines += _compare(LABEL, evidence.classes, *columns, cell)
    for name in names:
        if (belief := evidence.hidden_groups.get(name)) is not None:
            shown, places = seen.restrict_with_places([name])
            codes, chances = shown.known_groups[name].codes, belief.probabilities[places]
            lines += _compare(name, belief.values, chances, codes, shown.row_weights, ())
    return lines


def bin_confidence(evidence: Evidence, seen: ObservedRows) -> list[ReliabilityBin]:
    """Return how often the model's most probable label is correct, in bins by its predicted probability.

    These are the points of a reliability diagram, from the rows with an observed label.
    """
    shown, places = seen.restrict_with_places([LABEL])
    predicted = evidence.probabilities[places]
    right = shown.probabilities.argmax(axis=1) == predicted.argmax(axis=1)
    return bin_probabilities(predicted.max(axis=1), right.astype(float), shown.row_weights)


def bin_probabilities(chance: Floats, hit: Floats, weights: Floats) -> list[ReliabilityBin]:
    """Return predicted and observed shares in ten bins of equal size, by increasing probability.

    `chance` (n_rows,) are predicted probabilities of an event, and `hit` (n_rows,) is 1 for rows where it
    occurred and 0 for others. Bins whose rows have no weight are left out.

    Examples
    --------
    >>> import numpy as np
    >>> bins = bin_probabilities(np.array([0.2, 0.9]), np.array([0.0, 1.0]), np.ones(2))
    >>> [(one.predicted, one.observed, one.share) for one in bins]
    [(0.2, 0.0, 0.5), (0.9, 1.0, 0.5)]
    """
    total = float(weights.sum())
    parts = np.array_split(np.argsort(chance, kind="stable"), min(_BINS, len(chance)))
    bins = []
    for part in parts:
        if (mass := float(weights[part].sum())) > 0:
            predicted, observed, *distance = _deviate(chance[part], hit[part], weights[part])
            bins.append(ReliabilityBin(predicted, observed, mass / total, *distance))
    return bins


def _deviate(chance: Floats, hit: Floats, weights: Floats) -> tuple[float, float, float, float]:
    """Return predicted and observed shares, their difference in standard errors, and the standard error."""
    total = float(weights.sum())
    predicted, observed = float(weights @ chance) / total, float(weights @ hit) / total
    error = math.sqrt(float(weights**2 @ (chance * (1 - chance)))) / total
    gap = observed - predicted
    deviations = gap / error if error else math.copysign(math.inf, gap) if gap else 0.0
    return predicted, observed, deviations, error


def _compare(
    of: str,
    values: tuple[Value, ...],
    probabilities: Floats,
    outcome: NDArray[np.int64],
    weights: Floats,
    group: Conditions,
) -> Iterator[Reliability]:
    """Compare the predicted probability of each value, (n_rows, n_values), with the observed value.

    `outcome` (n_rows,) has the index of the observed value.
    """
    if not weights.sum():
        return
    for code, value in enumerate(values):
        chance, hit = probabilities[:, code], (outcome == code).astype(float)
        predicted, observed, deviations, _ = _deviate(chance, hit, weights)
        # Find the mean distance over bins, with its mean and standard error for calibrated probabilities.
        # Shares are taken as normal, but no error is below what one row makes.
        bins = bin_probabilities(chance, hit, weights)
        shares = np.array([one.share for one in bins])
        errors = shares * [one.standard_error for one in bins]
        variance = (1 - _MEAN_DISTANCE**2) * float(errors @ errors) + (weights.max() / weights.sum()) ** 2
        yield Reliability(
            of,
            value,
            "".join(f"{name}={one!r}" for name, one in group),
            predicted,
            observed,
            deviations,
            float(shares @ [abs(one.observed - one.predicted) for one in bins]),
            len(outcome),
            expected_unevenness=_MEAN_DISTANCE * float(errors.sum()),
            unevenness_error=math.sqrt(variance),
            group=group,
        )
