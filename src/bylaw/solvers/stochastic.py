"""COPT: run any stochastic optimiser on the dual, and report what it reached."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.errors import OptionError, Remedy
from bylaw.program.dual import Dual
from bylaw.program.solution import Solution, Status, Step
from bylaw.solvers.acsa import ACSA
from bylaw.solvers.base import Callback, gradient_mapping
from bylaw.solvers.oracle import Optimizer, Oracle
from bylaw.solvers.sgd import SGD
from bylaw.solvers.sgd3 import SGD3
from bylaw.solvers.stochastic_newton import StochasticNewton

OPTIMIZERS: dict[str, Any] = {"stochastic": StochasticNewton, "sgd3": SGD3, "acsa": ACSA, "sgd": SGD}


def theory_beta(rows: int) -> float:
    """beta = T / (8 log2 T), for which the paper's rates hold."""
    if rows < 2:
        raise OptionError(
            f"a stochastic optimiser needs at least 2 rows, not {rows}", Remedy("choose_solver", "full_batch")
        )
    return rows / (8 * math.log2(rows))


@dataclass(frozen=True)
class Stochastic:
    """An optimiser with gradients of sampled rows, in random order without replacement.

    Parameters
    ----------
    optimizer : Optimizer
        `StochasticNewton()`, `SGD3()`, `ACSA()`, `SGD()`, or any other.
    passes : float
        steps per row; more than one samples rows again.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> scores = np.random.default_rng(0).random(2000)
    >>> rows = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), rows, solver=Stochastic(SGD(), passes=5))
    >>> policy.solution.status.name
    'SAMPLED'
    """

    optimizer: Optimizer = field(default_factory=SGD3)
    passes: float = 1.0

    def auto_beta(self, dual: Dual) -> float:
        choose = getattr(self.optimizer, "choose_beta", None)
        return theory_beta(dual.n_rows) if choose is None else choose(dual)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        steps = int(check_positive(self.passes, "passes") * dual.n_rows)
        if steps < 1:
            raise OptionError(f"passes={self.passes} leaves no step to take")
        trace: list[Step] = []

        def report(taken: int, multipliers: Floats) -> None:
            value, norm = _reached(dual, multipliers, sample=True)
            trace.append(Step(taken, taken, dual.beta, value, norm))
            if callback is not None:
                callback(trace[-1])

        multipliers = np.zeros(dual.n_rules) if start is None else start
        if dual.n_rules:
            oracle = Oracle(dual, rng or np.random.default_rng(0), steps, report)
            multipliers = self.optimizer(
                oracle, sigma2=dual.sigma2, smoothness=dual.smoothness, steps=steps, start=multipliers
            )
            multipliers, steps = _checked(multipliers, dual.n_rules), oracle.taken
        value, norm = _reached(dual, multipliers)
        status = Status.CONVERGED if norm <= tol else Status.SAMPLED
        if dual.n_rules and dual.conflict(multipliers) > 0:
            status = Status.INFEASIBLE
        return Solution(multipliers, status, norm, value, steps, tuple(trace))


def _reached(dual: Dual, multipliers: Floats, sample: bool = False) -> tuple[float, float]:
    """F and the norm of the gradient mapping, on all rows or on the first block."""
    seen = Dual(dual.form, dual.blocks[:1], dual.beta) if sample else dual
    value, gradient = seen.value_and_gradient(multipliers)
    return value, float(np.linalg.norm(gradient_mapping(multipliers, gradient, dual.loss_unit)))


def _checked(multipliers: Floats, n_rules: int) -> Floats:
    """What an optimiser returned, which may be anyone's."""
    multipliers = np.asarray(multipliers, dtype=np.float64)
    if multipliers.shape != (n_rules,) or not np.isfinite(multipliers).all() or (multipliers < 0).any():
        raise OptionError(
            f"the optimiser must return {n_rules} finite multipliers >= 0, one per rule; "
            f"it returned an array of shape {multipliers.shape}"
            + ("" if multipliers.shape != (n_rules,) else " with negative or non-finite entries")
        )
    return multipliers
