"""Moments E[phi_k(x) pi(a | x)] at the places (feature, action) that rates refer to.

With many classes these are few: a label's own probability matters to its own inclusion alone. A product of
matrices would compute all the others, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats

_WIDE = 8  # actions of a feature, from which on a product with all actions is cheaper
_PLACE = 16  # multiplications of a matrix product that take as long as one at a single place
_TILE = 2**18  # bytes of a matrix at a time: what one step writes, the next one finds in the cache


@dataclass(frozen=True)
class Places:
    """Where moments are wanted: all actions of some features, and single places of others."""

    shape: tuple[int, int]  # of the moments: features, actions
    wide: NDArray[np.int64]  # (W,)
    features: NDArray[np.int64]  # (Q,)
    actions: NDArray[np.int64]  # (Q,)

    @classmethod
    def choose(cls, wanted: NDArray[np.integer], shape: tuple[int, int]) -> Places | None:
        """Of places in the flattened matrix; None where one product of matrices is cheaper."""
        features, actions = np.divmod(np.unique(wanted).astype(np.int64), shape[1])
        wide = np.flatnonzero(np.bincount(features, minlength=shape[0]) > _WIDE)
        single = ~np.isin(features, wide)
        places = cls(shape, wide, features[single], actions[single])
        work = len(wide) * shape[1] + _PLACE * len(places.features)
        return places if work < shape[0] * shape[1] else None

    def compute(self, features: Floats, probabilities: Floats) -> Floats:
        """(F, A): sums of phi pi' over the rows of features (F, n_rows) and probabilities (A, n_rows); zero
        elsewhere."""
        moments = np.zeros(self.shape)
        if len(self.wide):
            moments[self.wide] = features[self.wide] @ probabilities.T
        chosen, options = as_slice(self.features), as_slice(self.actions)
        if isinstance(chosen, slice) and isinstance(options, slice):
            moments[self.features, self.actions] = np.einsum(
                "qn,qn->q", features[chosen], probabilities[options]
            )
            return moments
        step = max(_TILE // (8 * features.shape[1]), 1)
        for first in range(0, len(self.features), step):
            here = slice(first, first + step)
            pair = features[self.features[here]], probabilities[self.actions[here]]
            moments[self.features[here], self.actions[here]] = np.einsum("qn,qn->q", *pair)
        return moments


def as_slice(places: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same places without a copy, if they follow each other."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def compute_moments(places: Places | None, features: Floats, probabilities: Floats) -> Floats:
    """(F, A): where they are wanted, or all of them."""
    return features @ probabilities.T if places is None else places.compute(features, probabilities)
