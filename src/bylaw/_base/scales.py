"""Where values lie along an axis, and round numbers on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_EDGE = 3.0  # percent left free on both sides
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Values along a row."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """In percent of the width; what lies outside is put on the edge."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return _EDGE + (100 - 2 * _EDGE) * min(max(share, 0.0), 1.0)

    def at(self, value: float) -> str:
        return f"{self.place(value):.2f}%"

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers within."""
        width = self.high - self.low
        if not (0 < width < math.inf):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(width / most))
        step = next(s * power for s in _STEPS if width / (s * power) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def fit_scale(values: Iterable[float], around_zero: bool = False) -> Scale:
    """Wide enough for all of them, and a little more."""
    finite = [value for value in values if math.isfinite(value)]
    finite += [0.0] if around_zero or not finite else []
    low, high = min(finite), max(finite)
    margin = 0.06 * (high - low) or 0.05 * (abs(high) or 1.0)
    low_end = 0.0 if low == 0 and around_zero else low - margin
    return Scale(low_end, high + margin if high or not around_zero else 0.0 if low < 0 else margin)
