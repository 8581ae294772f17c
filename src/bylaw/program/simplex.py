"""Multipliers on a simplex: the weights of groups, of which the worst is what counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bylaw._base.typing import Floats

_STIFFNESS = 1e3  # of the equation for the sum, relative to the curvature: what it leaves is divided away


@dataclass(frozen=True)
class Simplex:
    """The last `size` multipliers of a dual, which are not negative and have the sum `total`."""

    size: int
    total: float

    def start(self, n_rules: int) -> Floats:
        """(M,): no price, and equal weights."""
        point = np.zeros(n_rules)
        point[-self.size :] = self.total / self.size
        return point

    def project(self, point: Floats) -> Floats:
        """(M,): the nearest point with non-negative entries, the last of which are on the simplex."""
        nearest, last = np.maximum(point, 0.0), point[-self.size :]
        ordered = np.sort(last)[::-1]
        excess = (np.cumsum(ordered) - self.total) / np.arange(1, self.size + 1)
        nearest[-self.size :] = np.maximum(last - excess[np.flatnonzero(ordered > excess)[-1]], 0.0)
        return nearest

    def add_equation(self, root: Floats, target: Floats) -> tuple[Floats, Floats]:
        """A least-squares problem, (n, n) and (n,), whose last unknowns are on the simplex, with its equation
        as one more line."""
        line = np.zeros(root.shape[1])
        line[-self.size :] = _STIFFNESS * max(float(abs(root).max()), 1e-300)
        return np.vstack([root, line]), np.append(target, line[-1] * self.total)

    def rescale(self, point: Floats) -> Floats:
        """(M,): a non-negative point nearly on the simplex, moved there."""
        moved = point.copy()
        moved[-self.size :] *= self.total / float(moved[-self.size :].sum())
        return moved
