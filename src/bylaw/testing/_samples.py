"""Samples: the rows of an event, with how much each counts and what it has of a rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats


class Differences(NamedTuple):
    """Predictions for rows less those for their companions, which have mean zero."""

    sizes: Floats  # (n_rows,)
    amounts: Floats  # (n_rows,)


@dataclass(frozen=True)
class Sample:
    """Independent rows, some of which are in an event; the mean is sum(amounts) / sum(sizes)."""

    sizes: Floats  # (n_rows,): weights of at most one; zero outside the event
    amounts: Floats  # (n_rows,): size times value
    lowest: float  # of values
    highest: float
    differences: Differences | None = None

    @classmethod
    def of_values(cls, values: Floats, lowest: float, highest: float) -> Sample:
        """Return rows that are all in the event and count alike."""
        return cls(np.ones(len(values)), values, lowest, highest)

    @property
    def mean(self) -> float:
        """Mean of the values; nan if there is no row."""
        total = float(self.sizes.sum())
        return float(self.amounts.sum()) / total if total else math.nan

    def take(self, order: NDArray[np.intp]) -> Sample:
        """Return the rows in another order."""
        differences = self.differences and Differences(*(column[order] for column in self.differences))
        return Sample(self.sizes[order], self.amounts[order], self.lowest, self.highest, differences)

    @property
    def is_binary(self) -> bool:
        """True if rows count alike and have the least value or the most, so that counts are sufficient."""
        values = self.amounts[self.sizes > 0]
        alike = self.differences is None and bool(np.isin(self.sizes, (0.0, 1.0)).all())
        return alike and bool(np.isin(values, (self.lowest, self.highest)).all())

    @property
    def range(self) -> float:
        return self.highest - self.lowest
