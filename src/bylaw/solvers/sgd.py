"""Projected stochastic gradient descent with averaging: the plain baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bylaw._base.files import Node
from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.errors import OptionError
from bylaw.solvers.oracle import Oracle, SampledRows, kernels


@dataclass
class DescentState:
    """Where SGD is."""

    size: float
    point: Floats
    average: Floats
    steps: int = 0

    @property
    def answer(self) -> Floats:
        return self.average

    def advance(self, rows: SampledRows) -> None:
        """One step per row, in order."""
        kernels().descend(
            rows.features, rows.weights, rows.problem, self.steps, self.size, self.point, self.average
        )
        self.steps += len(rows.weights)

    def state(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "steps": self.steps,
            "point": self.point.tolist(),
            "average": self.average.tolist(),
        }


@dataclass(frozen=True)
class SGD:
    """Steps of size / sqrt(t), the mean of all points as answer. size defaults to 1 / sigma."""

    size: float | None = None

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> DescentState:
        if self.size is None and not sigma2 > 0:
            raise OptionError("no rule depends on the decisions of these rows: sigma^2 is zero")
        size = 1 / math.sqrt(sigma2) if self.size is None else check_positive(self.size, "size")
        return DescentState(size, start.copy(), start.copy())

    def resume(self, state: Node, n_rules: int) -> DescentState:
        point, average = (state[name].vector(n_rules) for name in ("point", "average"))
        return DescentState(state["size"].positive(), point, average, state["steps"].count())

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats:
        return oracle.run(self.begin(sigma2, smoothness, steps, start), steps)
