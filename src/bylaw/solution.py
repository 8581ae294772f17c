"""What a solver returns: multipliers, and how good they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bylaw.decisions import Floats


class Status(Enum):
    """How a solver ended, with advice."""

    CONVERGED = "the gradient mapping is within the tolerance"
    MAX_STEPS = "the steps ran out; raise max_steps, raise tol, or lower beta"
    STALLED = "no step improves the dual at this precision; raise tol or lower beta"
    INFEASIBLE = "the rules conflict; loosen or remove one"


class Step(NamedTuple):
    """One step of a solver, for callbacks and traces."""

    number: int
    rows: float  # weight of the rows this step looked at
    beta: float
    value: float  # of the dual
    gradient_mapping: float


@dataclass(frozen=True)
class Solution:
    """Multipliers, and how good they are on the fitted rows."""

    multipliers: Floats  # (M,), lambda in the paper
    status: Status
    gradient_mapping: float  # ||G_alpha(lambda)||, which bounds every violation
    alpha: float  # the step of the gradient mapping: the unit of the loss
    value: float  # F(lambda)
    steps: int
    trace: tuple[Step, ...] = field(default=(), repr=False)
