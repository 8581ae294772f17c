"""Solvers of the dual: each turns a `Dual` into a `Solution`."""

from bylaw.solvers.acsa import ACSA
from bylaw.solvers.base import Solver
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.linear_program import LinearProgram
from bylaw.solvers.oracle import Optimizer, Oracle
from bylaw.solvers.sgd import SGD
from bylaw.solvers.sgd3 import SGD3
from bylaw.solvers.stochastic import Stochastic
from bylaw.solvers.stochastic_newton import StochasticNewton

__all__ = [
    "ACSA",
    "SGD",
    "SGD3",
    "FullBatch",
    "LinearProgram",
    "Optimizer",
    "Oracle",
    "Solver",
    "Stochastic",
    "StochasticNewton",
]
