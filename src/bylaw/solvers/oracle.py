"""What a stochastic optimiser sees of the dual: gradients on sampled rows, and nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.errors import BylawError, OptionError, Remedy, install_extra
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual

_CHUNK = 65_536  # rows sampled at a time


class SampledRows(NamedTuple):
    """Rows in the order of their steps, as the compiled loops want them."""

    features: Floats  # (n_rows, n_features)
    weights: Floats  # (n_rows,), of mean one
    problem: tuple[Any, ...]  # base, couplings (indptr, indices, data), bounds, beta, sets
    dual: Dual  # of the rules and beta, whatever its rows

    @classmethod
    def from_dual(cls, dual: Dual, features: Floats, weights: Floats) -> SampledRows:
        form, couplings = dual.form, dual.form.couplings
        indptr, indices = (np.asarray(a, dtype=np.int64) for a in (couplings.indptr, couplings.indices))
        sets = not form.action_space.exclusive
        problem = (form.base, indptr, indices, couplings.data, form.bounds, dual.beta, sets)
        return cls(features, weights, problem, dual)


class OptimizerState(Protocol):
    """The state of an optimiser that takes one step per row and can be stopped anywhere."""

    @property
    def answer(self) -> Floats: ...
    @property
    def steps(self) -> int: ...
    def advance(self, rows: SampledRows) -> None: ...
    def state(self) -> dict[str, Any]: ...


class Optimizer(Protocol):
    """O(F, sigma^2, L, T) of the paper: multipliers from T stochastic gradients of F.

    Any callable with this signature serves: it asks the oracle for `oracle.gradient(lambda)`,
    at most `steps` times, and returns non-negative multipliers, (M,).
    """

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats: ...


@dataclass
class Oracle:
    """Rows of a dual, drawn without replacement, pass after pass."""

    dual: Dual
    rng: np.random.Generator
    steps: int  # rows that may be asked for
    on_rows: Callable[[int, Floats], Any] | None = None  # told the steps so far and the answer so far
    taken: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        weights = np.concatenate([block.row_weights for block in self.dual.blocks])
        self._weights = weights * (len(weights) / self.dual.mass)  # of mean one
        self._features = np.concatenate([block.features for block in self.dual.blocks], axis=1).T.copy()
        self._order = np.empty(0, dtype=np.intp)  # rows still to come in this pass

    @property
    def n_rules(self) -> int:
        return self.dual.n_rules

    def gradient(self, multipliers: Floats, rows: int = 1) -> Floats:
        """An unbiased gradient of F at these multipliers, (M,), on the next sampled rows."""
        if self.taken + rows > self.steps:
            raise OptionError(
                f"the optimiser asks for more than the {self.steps} rows it may have; give more passes"
            )
        drawn = self._next(rows)
        if self.on_rows is not None and self.taken // _CHUNK < (self.taken + rows) // _CHUNK:
            self.on_rows(self.taken + rows, multipliers)
        self.taken += rows
        block = Block(self._features[drawn].T, self._weights[drawn])
        return self.dual.stochastic_gradient(multipliers, block)

    def run(self, state: OptimizerState, steps: int) -> Floats:
        """Let an optimiser that steps row by row take this many steps."""
        for done in range(0, steps, _CHUNK):
            drawn = self._next(min(_CHUNK, steps - done))
            state.advance(SampledRows.from_dual(self.dual, self._features[drawn], self._weights[drawn]))
            self.taken = state.steps
            if self.on_rows is not None:
                self.on_rows(self.taken, state.answer)
        return state.answer

    def _next(self, count: int) -> NDArray[np.intp]:
        while len(self._order) < count:
            self._order = np.concatenate([self._order, self.rng.permutation(len(self._weights))])
        drawn, self._order = self._order[:count], self._order[count:]
        return drawn


def kernels() -> Any:
    """The compiled loops; numba is paid for by those who use it."""
    try:
        return importlib.import_module("bylaw.solvers.kernels")
    except ImportError:
        raise BylawError(
            f"stochastic optimisers need numba: {install_extra('stochastic')}",
            Remedy("choose_solver", "full_batch"),
        ) from None
