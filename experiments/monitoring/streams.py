"""Simulated decisions of two groups, day by day, with a known gap between their rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ROWS, APPROVED, BOUND = 500, 0.3, 0.05  # rows a day, the share of all that is approved, the rule
REFERENCE_DAYS, REFERENCE_GAP = 60, 0.02
SPREAD = 5.0  # scores are Beta distributed, these many prior rows


@dataclass(frozen=True)
class Days:
    """Rows by day; every array is (n_days, ROWS).

    Attributes
    ----------
    group
        0 for group a, 1 for group b.
    decision
        1 for approve.
    score
        The chance of approval with which the decision was drawn.
    """

    group: np.ndarray
    decision: np.ndarray
    score: np.ndarray

    def __len__(self) -> int:
        return len(self.group)

    @cached_property
    def counts(self) -> np.ndarray:
        """Rows of each group, (n_days, 2)."""
        return np.stack([(self.group == 0).sum(axis=1), (self.group == 1).sum(axis=1)], axis=1)

    @cached_property
    def approved(self) -> np.ndarray:
        """Approved rows of each group, (n_days, 2)."""
        return np.stack([(self.decision * (self.group == g)).sum(axis=1) for g in (0, 1)], axis=1)

    @cached_property
    def gaps(self) -> np.ndarray:
        """P(approve | a) - P(approve | b) as observed each day, (n_days,)."""
        rates = self.approved / self.counts
        return rates[:, 0] - rates[:, 1]

    def of(self, day: int, group: int) -> np.ndarray:
        """The decisions about one group on one day, in the order of the rows."""
        return self.decision[day, self.group[day] == group]


@dataclass(frozen=True)
class Stream(Days):
    """Days to watch, after a reference period in which the rule was kept."""

    reference: Days


def rates_of(gap: float, share: float) -> tuple[float, float]:
    """The rates of a and b: `gap` apart, and `APPROVED` on average."""
    return APPROVED + share * gap, APPROVED - (1 - share) * gap


def draw(gaps: Sequence[float], share: float, rng: np.random.Generator) -> Days:
    """One day of rows for every gap; a row is of group b with chance `share`."""
    group = (rng.random((len(gaps), ROWS)) < share).astype(int)
    rates = np.array([rates_of(gap, share) for gap in gaps])
    mean = np.take_along_axis(rates, group, axis=1)
    score = rng.beta(SPREAD * mean, SPREAD * (1 - mean))
    return Days(group, (rng.random(score.shape) < score).astype(int), score)


def make_stream(gaps: Sequence[float], share: float, seed: int) -> Stream:
    """The same rows for whoever watches: they depend on the seed, the gaps and the share alone."""
    rng = np.random.default_rng(seed)
    reference = draw([REFERENCE_GAP] * REFERENCE_DAYS, share, rng)
    days = draw(gaps, share, rng)
    return Stream(days.group, days.decision, days.score, reference)
