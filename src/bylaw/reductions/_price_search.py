"""Prices of decisions without chance, searched for by looks at them.

Where many rows have the same scores, their decisions change together, and the rates jump: no derivative leads
to the prices of the cheapest policy that satisfies the rules. So each price is scaled, and lowered to the
least at which the rules hold; then all are moved at random, by smaller and smaller steps from the best ones
and from those of the randomised policy. The same problem is always searched in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from bylaw._base.typing import Floats

_ROWS = 2**24  # looked at in all
_FEWEST, _MOST = 50, 1000  # looks
_FACTORS = (0.0, 0.5, 0.8, 0.95, 1.05, 1.25, 1.6, 2.0, 3.0)  # of a price
_HALVINGS = 8  # on the way to the least price at which the rules hold
_STEPS = (1.0, 1e-3)  # the widest and the smallest, relative to the highest price
_SHARES = (0.15, 0.4, 0.8)  # of the prices that are moved at once
_IDLE = 2.0  # of those of zero, about as many at most


class Look(Protocol):
    """What a policy at some prices attains."""

    @property
    def multipliers(self) -> Floats: ...

    @property
    def holds(self) -> bool: ...

    @property
    def rank(self) -> tuple[float, float]:
        """The lower, the better."""
        ...


Seen = TypeVar("Seen", bound=Look)


def count_looks(n_rows: int) -> int:
    """As many as a search takes on so many rows."""
    return min(max(_ROWS // n_rows, _FEWEST), _MOST)


@dataclass
class PriceSearch(Generic[Seen]):
    """The best policy met, from one that is known."""

    look: Callable[[Floats], Seen]
    best: Seen
    least: float  # a price below this is zero
    left: int  # looks

    def run(self, around: Floats) -> Seen:
        """Near the best prices and near others, (M,)."""
        self._scale_prices(self.left // 2)
        rng, n_looks = np.random.default_rng(0), self.left
        sizes = np.geomspace(*_STEPS, max(n_looks // 2, 1))
        for k in range(n_looks):
            centre = around if k % 2 else self.best.multipliers
            self._try(self._move(centre, sizes[min(k // 2, len(sizes) - 1)], rng))
        return self.best

    def _try(self, multipliers: Floats) -> Seen:
        self.left -= 1
        here = self.look(multipliers)
        if here.rank < self.best.rank:
            self.best = here
        return here

    def _scale_prices(self, n_looks: int) -> None:
        """One after the other, the highest first, with no more looks than these."""
        enough = self.left - n_looks
        for rule in np.argsort(-self.best.multipliers, kind="stable").tolist():
            if self.best.multipliers[rule] <= self.least or self.left - len(_FACTORS) - _HALVINGS < enough:
                return
            self._scale_price(rule, self.best.multipliers)

    def _scale_price(self, rule: int, multipliers: Floats) -> None:
        """By some factors, then by halves between the least at which the rules hold and the one below."""

        def holds(factor: float) -> bool:
            scaled = multipliers.copy()
            scaled[rule] *= factor
            return self._try(scaled).holds

        low, held = 0.0, [factor for factor in _FACTORS if holds(factor)]
        if not held or held[0] == low:
            return
        low, high = max(factor for factor in _FACTORS if factor < held[0]), held[0]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)

    def _move(self, centre: Floats, size: float, rng: np.random.Generator) -> Floats:
        """Some of the prices, few or many; those of zero rarely."""
        highest, share, n_rules = max(float(centre.max()), self.least), rng.choice(_SHARES), len(centre)
        moved = rng.random(n_rules) < np.where(centre > self.least, share, min(share, _IDLE / n_rules))
        moved[rng.integers(n_rules)] |= not moved.any()
        return np.maximum(centre + size * highest * moved * rng.standard_normal(n_rules), 0.0)
