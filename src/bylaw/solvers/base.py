"""What every solver shares: its contract and its measure of success."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from bylaw._base.typing import Floats
from bylaw.formulation.dual import Dual
from bylaw.formulation.solution import Solution, Step

Callback = Callable[[Step], Any]


class Solver(Protocol):
    """Minimise the dual over non-negative multipliers, to ||G_alpha(lambda)|| <= tol, where alpha
    is the unit of the loss, so that cents and dollars are solved alike."""

    def auto_beta(self, dual: Dual) -> float:
        """The inverse temperature that suits this solver on these rows."""
        ...

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution: ...


def gradient_mapping(multipliers: Floats, gradient: Floats, alpha: float) -> Floats:
    """G_alpha(lambda) = (lambda - (lambda - alpha grad)_+) / alpha, (M,)."""
    return np.minimum(multipliers / alpha, gradient)
