"""Solvers that minimize a `Dual` and return a `Solution`."""

from bylaw.program.solution import Callback
from bylaw.solvers.full_batch import FullBatch, Solver, resolve_beta
from bylaw.solvers.linear_program import LinearProgram
from bylaw.solvers.stochastic import ACSA, SGD, SGD3, Optimizer, Oracle, Stochastic, compute_theory_beta
from bylaw.solvers.stochastic_newton import OPTIMIZERS, StochasticNewton

__all__ = [
    "ACSA",
    "OPTIMIZERS",
    "SGD",
    "SGD3",
    "Callback",
    "FullBatch",
    "LinearProgram",
    "Optimizer",
    "Oracle",
    "Solver",
    "Stochastic",
    "StochasticNewton",
    "compute_theory_beta",
    "resolve_beta",
]
