"""The paper's algorithm as its experiments run it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bylaw import Evidence, Policy, Problem, solve
from bylaw.solvers import SGD3, Stochastic

# Gradients, on T rows that are seen again and again: with T alone, too few for its stages, SGD3 refuses. And
# mu = L / N pulls the multipliers towards 0, so that a rule is missed by about mu times its multiplier.
STEPS = 100_000


def sgd3(oracle: Any, *, sigma2: float, smoothness: float, steps: int, start: np.ndarray) -> np.ndarray:
    """SGD3 with mu = L / N, as in the paper's public code."""
    optimizer = SGD3(mu=smoothness / steps)
    return optimizer(oracle, sigma2=sigma2, smoothness=smoothness, steps=steps, start=start)


def copt(problem: Problem, evidence: Evidence, rows: int, seed: int, steps: int = STEPS) -> Policy:
    """On the first T `rows`, with beta = 0.5 sqrt(T) log sqrt(T)."""
    few = evidence.rows(slice(0, rows))
    return solve(problem, few, solver=Stochastic(sgd3, passes=steps / len(few)), beta="paper", rng=seed)
