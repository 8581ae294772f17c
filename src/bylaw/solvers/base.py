"""What every solver shares: its contract, its measure of success, and the choice of beta."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.errors import OptionError
from bylaw.program.dual import Dual, Simplex
from bylaw.program.solution import Solution, Step

Callback = Callable[[Step], Any]


class Solver(Protocol):
    """A callable that minimizes the dual over non-negative multipliers.

    It stops at ||G_alpha(lambda)|| <= tol, where alpha is the unit of the loss, so that cents and dollars are
    solved alike.
    """

    def auto_beta(self, dual: Dual) -> float:
        """Return the inverse temperature that suits this solver on these rows."""
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


def gradient_mapping(
    multipliers: Floats, gradient: Floats, alpha: float, simplex: Simplex | None = None
) -> Floats:
    """Return G_alpha(lambda) = (lambda - P(lambda - alpha grad)) / alpha, (M,).

    P projects on lambda >= 0 and, for weights of groups, on their simplex.
    """
    if simplex is not None:
        return (multipliers - simplex.project(multipliers - alpha * gradient)) / alpha
    return np.minimum(multipliers / alpha, gradient)


def paper_beta(rows: int) -> float:
    """Return beta = 0.5 sqrt(T) log sqrt(T), as in the paper's experiments."""
    if rows < 2:
        raise OptionError(f"beta='paper' needs at least 2 rows, not {rows}")
    return 0.5 * math.sqrt(rows) * math.log(math.sqrt(rows))


def resolve_beta(beta: float | str, rows: int, auto: Callable[[], float]) -> float:
    """Return beta as a number; "auto" is computed by a function, and "paper" from the number of rows."""
    if beta == "auto":
        return auto()
    if beta == "paper":
        return paper_beta(rows)
    if isinstance(beta, str):
        raise OptionError(f"beta must be a positive number, 'auto' or 'paper', not {beta!r}")
    return check_positive(beta, "beta")
