"""Stochastic optimizers of the dual, one row per step: SGD, AC-SA and the SGD3 of the COPT paper."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Node, check_positive
from bylaw.errors import BylawError, OptionError, Remedy, install_extra
from bylaw.program import Block, Callback, Dual, Solution, Status, Step, gradient_mapping

CHUNK_ROWS = 65_536  # rows that are sampled at a time, between two calls of the callback


class SampledRows(NamedTuple):
    """Rows in the order of the steps, in the layout of the compiled loops."""

    features: Floats  # (n_rows, n_features)
    weights: Floats  # (n_rows,), of mean one
    problem: tuple[Any, ...]  # base, couplings (indptr, indices, data), bounds, beta, sets
    dual: Dual  # for its rules and beta; its rows are not used

    @classmethod
    def from_dual(cls, dual: Dual, features: Floats, weights: Floats) -> SampledRows:
        """Combine rows with the rules of a dual."""
        form, couplings = dual.form, dual.form.couplings
        indptr, indices = (np.asarray(a, dtype=np.int64) for a in (couplings.indptr, couplings.indices))
        sets = not form.action_space.exclusive
        problem = (form.base, indptr, indices, couplings.data, form.bounds, dual.beta, sets)
        return cls(features, weights, problem, dual)


class OptimizerState(ABC):
    """The state of an optimizer that takes one step per row and can be stopped after any row."""

    steps: int

    @property
    @abstractmethod
    def answer(self) -> Floats:
        """The current estimate of the optimal multipliers, (n_rules,)."""

    @abstractmethod
    def advance(self, rows: SampledRows) -> None:
        """Take one step per row, in order."""

    def state(self) -> dict[str, Any]:
        """Return the state as plain values, for JSON."""
        known = vars(self).items()
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in known}


class Optimizer(Protocol):
    """A callable that returns multipliers after T stochastic gradients: O(F, sigma^2, L, T) of the paper.

    Any callable with this signature can be used. It calls `oracle.gradient(multipliers)` at most `steps`
    times and returns non-negative multipliers of shape (n_rules,).
    """

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats: ...


@dataclass
class Oracle:
    """A source of stochastic gradients of a dual. Rows are drawn without replacement, pass after pass."""

    dual: Dual
    rng: np.random.Generator
    steps: int  # limit of the rows that may be drawn
    on_rows: Callable[[int, Floats], Any] | None = None  # called with the steps and the multipliers so far
    taken: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        weights = np.concatenate([block.row_weights for block in self.dual.blocks])
        self._weights = weights * (len(weights) / self.dual.mass)  # of mean one
        self._features = np.concatenate([block.features for block in self.dual.blocks], axis=1).T.copy()
        self._order = np.empty(0, dtype=np.intp)  # rows still to come in this pass

    @property
    def n_rules(self) -> int:
        """The number of multipliers."""
        return self.dual.n_rules

    def gradient(self, multipliers: Floats, rows: int = 1) -> Floats:
        """Return an unbiased estimate of the gradient of F, (n_rules,), on the next sampled rows."""
        if self.taken + rows > self.steps:
            raise OptionError(
                f"the optimizer must use at most {self.steps} rows, got a request for more; give more passes"
            )
        drawn = self._draw(rows)
        if self.on_rows is not None and self.taken // CHUNK_ROWS < (self.taken + rows) // CHUNK_ROWS:
            self.on_rows(self.taken + rows, multipliers)
        self.taken += rows
        block = Block(self._features[drawn].T, self._weights[drawn])
        return self.dual.stochastic_gradient(multipliers, block)

    def run(self, state: OptimizerState, steps: int) -> Floats:
        """Take this many steps of an optimizer, one row each, and return its multipliers."""
        for done in range(0, steps, CHUNK_ROWS):
            drawn = self._draw(min(CHUNK_ROWS, steps - done))
            state.advance(SampledRows.from_dual(self.dual, self._features[drawn], self._weights[drawn]))
            self.taken = state.steps
            if self.on_rows is not None:
                self.on_rows(self.taken, state.answer)
        return state.answer

    def _draw(self, count: int) -> NDArray[np.intp]:
        while len(self._order) < count:
            self._order = np.concatenate([self._order, self.rng.permutation(len(self._weights))])
        drawn, self._order = self._order[:count], self._order[count:]
        return drawn


def load_kernels() -> Any:
    """Return the module of compiled loops. Importing it only here makes numba optional."""
    try:
        return importlib.import_module("bylaw.solvers._kernels")
    except ImportError:
        raise BylawError(
            f"stochastic optimizers require numba: {install_extra('stochastic')}",
            Remedy("choose_solver", "full_batch"),
        ) from None


@dataclass
class DescentState(OptimizerState):
    """The state of SGD. Its answer is the mean of all points."""

    size: float
    point: Floats
    average: Floats
    steps: int = 0

    @property
    def answer(self) -> Floats:
        return self.average

    def advance(self, rows: SampledRows) -> None:
        load_kernels().descend(
            rows.features, rows.weights, rows.problem, self.steps, self.size, self.point, self.average
        )
        self.steps += len(rows.weights)


class RowOptimizer(ABC):
    """An optimizer that takes one step per row. Its state can be saved, and resumed on later rows."""

    @abstractmethod
    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> OptimizerState:
        """Return the state of the optimizer before the first step."""

    @abstractmethod
    def resume(self, state: Node, n_rules: int) -> OptimizerState:
        """Return the state of the optimizer that was saved as JSON."""

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats:
        return oracle.run(self.begin(sigma2, smoothness, steps, start), steps)


@dataclass(frozen=True)
class SGD(RowOptimizer):
    """Projected stochastic gradient descent with averaging, a simple baseline.

    Step t has the length size / sqrt(t), where size defaults to 1 / sigma. The result is the mean of all
    points.
    """

    size: float | None = None

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> DescentState:
        """Return the state of the optimizer before the first step."""
        if self.size is None and not sigma2 > 0:
            raise OptionError(
                "no rule depends on the decisions of these rows (sigma^2 is zero); use another solver"
            )
        size = 1 / math.sqrt(sigma2) if self.size is None else check_positive(self.size, "size")
        return DescentState(size, start.copy(), start.copy())

    def resume(self, state: Node, n_rules: int) -> DescentState:
        """Return the state of the optimizer that was saved as JSON."""
        point, average = (state[name].vector(n_rules) for name in ("point", "average"))
        return DescentState(state["size"].positive(), point, average, state["steps"].count())


@dataclass(frozen=True)
class Plan:
    """The stages of SGD3, each of which adds one quadratic regularization term to F.

    Stage j takes `length` steps with strong convexity mus[j]. Its regularization terms are
    mus[i]/2 |lambda - center_i|^2 for every i <= j, where center_i is the result of stage i - 1, or the
    start.
    """

    mus: tuple[float, ...]
    length: int
    smoothness: float

    @property
    def steps(self) -> int:
        """The number of steps in all stages."""
        return self.length * len(self.mus)


@dataclass
class AcceleratedState(OptimizerState):
    """The state of AC-SA, from which it continues bit for bit. Its answer is the averaged point."""

    plan: Plan
    point: Floats  # lambda_t of the paper
    average: Floats  # lambda_t^ag of the paper
    stage: int = 0
    taken: int = 0  # steps taken in this stage
    centers: list[Floats] = field(default_factory=list)

    @classmethod
    def begin(cls, plan: Plan, start: Floats) -> AcceleratedState:
        """Return the state of the optimizer before the first step."""
        return cls(plan, start.copy(), start.copy(), centers=[start.copy()])

    @property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stage * self.plan.length + self.taken

    @property
    def answer(self) -> Floats:
        return self.average

    def advance(self, rows: SampledRows) -> None:
        """Take one step per row, in order. Rows beyond the plan are not used."""
        first = 0
        while first < len(rows.weights) and self.steps < self.plan.steps:
            count = min(len(rows.weights) - first, self.plan.length - self.taken)
            # Take the remaining steps of this stage, or as many as there are rows.
            part, mus = slice(first, first + count), np.array(self.plan.mus[: self.stage + 1])
            load_kernels().accelerate(
                rows.features[part], rows.weights[part], rows.problem, self.taken, self.plan.smoothness,
                mus[-1], mus.sum(), mus @ np.array(self.centers), self.point, self.average,
            )  # fmt: skip
            self.taken += count
            first += count
            # Begin the next stage at the result of this one, which is also one more center.
            if self.taken == self.plan.length and self.stage + 1 < len(self.plan.mus):
                self.stage, self.taken = self.stage + 1, 0
                self.point = self.average.copy()
                self.centers.append(self.average.copy())

    def state(self) -> dict[str, Any]:
        state = super().state()
        plan, centers = state.pop("plan"), state.pop("centers")
        return {**vars(plan), **state, "centres": [center.tolist() for center in centers]}


@dataclass(frozen=True)
class SGD3(RowOptimizer):
    """The algorithm SGD3 of the paper: stages of AC-SA that make the gradient mapping small.

    AC-SA is accelerated stochastic approximation. There are J = floor(log2(L / mu)) stages with T / J steps
    each. From stage to stage mu doubles, and the last result becomes one more center of regularization. mu
    defaults to 2 sigma^2 / beta.
    """

    mu: float | None = None

    def plan(self, sigma2: float, smoothness: float, steps: int) -> Plan:
        """Return the stages of AC-SA for these constants and this number of steps."""
        mu = self._choose_mu(sigma2, smoothness)
        stages = math.floor(math.log2(smoothness / mu) + 1e-9)  # the logarithm of a power of two is inexact
        if stages < 1:
            raise OptionError(
                f"L must be at least 2 mu for sgd3, got L = {smoothness:.3g} and mu = {mu:.3g}: raise beta "
                "(the default grows with the number of rows) or lower mu",
                Remedy("choose_solver", "full_batch"),
            )
        needed = 4 * math.sqrt(smoothness / mu) * stages
        if steps <= needed:
            raise OptionError(
                f"the number of steps must be more than {math.floor(needed)} for sgd3 at beta = "
                f"{smoothness / (2 * sigma2):.4g}, got {steps}: pass {math.floor(needed / steps) + 1} times "
                "as many rows or passes, or a smaller beta"
            )
        return Plan(tuple(mu * 2.0**j for j in range(stages)), steps // stages, 2 * (smoothness + mu))

    def _choose_mu(self, sigma2: float, smoothness: float) -> float:
        """Return mu, by default 2 sigma^2 / beta, where L = 2 beta sigma^2."""
        if not smoothness > 0:
            raise OptionError(
                "no rule depends on the decisions of these rows (sigma^2 is zero); use another solver"
            )
        return 4 * sigma2**2 / smoothness if self.mu is None else check_positive(self.mu, "mu")

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> AcceleratedState:
        """Return the state of the optimizer before the first step."""
        return AcceleratedState.begin(self.plan(sigma2, smoothness, steps), start)

    def resume(self, state: Node, n_rules: int) -> AcceleratedState:
        """Return the state of the optimizer that was saved as JSON."""
        mus = tuple(node.positive() for node in state["mus"].list())
        resumed = AcceleratedState(
            plan=Plan(mus, state["length"].count(), state["smoothness"].positive()),
            point=state["point"].vector(n_rules),
            average=state["average"].vector(n_rules),
            stage=state["stage"].count(),
            taken=state["taken"].count(),
            centers=[node.vector(n_rules) for node in state["centres"].list()],
        )
        stages = len(resumed.centers)
        if resumed.stage >= len(mus) or stages != resumed.stage + 1 or resumed.taken > resumed.plan.length:
            state.fail("a plan of stages, and a stage and a step within this plan")
        if min(resumed.point.min(initial=0), resumed.average.min(initial=0)) < 0:
            state.fail("a state with multipliers >= 0")
        return resumed


@dataclass(frozen=True)
class ACSA(SGD3):
    """One run of AC-SA, the first stage of SGD3, regularized by ``mu / 2 |lambda - start|^2``."""

    def plan(self, sigma2: float, smoothness: float, steps: int) -> Plan:
        """Return one stage of AC-SA with all steps."""
        mu = self._choose_mu(sigma2, smoothness)
        return Plan((mu,), steps, 2 * (smoothness + mu))


def compute_theory_beta(rows: int) -> float:
    """Return beta = T / (8 log2 T) for T rows, for which the paper's rates of convergence apply."""
    if rows < 2:
        raise OptionError(
            f"a stochastic optimizer needs at least 2 rows, got {rows}",
            Remedy("choose_solver", "full_batch"),
        )
    return rows / (8 * math.log2(rows))


@dataclass(frozen=True)
class Stochastic:
    """A solver that runs an optimizer on gradients of sampled rows, in random order without replacement.

    Parameters
    ----------
    optimizer : Optimizer
        `StochasticNewton()`, `SGD3()`, `ACSA()`, `SGD()`, or any other.
    passes : float
        steps per row. If it is more than one, rows are sampled again.

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
        """Return the beta that suits the optimizer, by default that of the paper's theory."""
        choose = getattr(self.optimizer, "choose_beta", None)
        return compute_theory_beta(dual.n_rows) if choose is None else choose(dual)

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
            raise OptionError(f"passes must allow at least one step, got {self.passes}")
        trace: list[Step] = []
        first_block = Dual(dual.form, dual.blocks[:1], dual.beta)

        def evaluate(rows: Dual, multipliers: Floats) -> tuple[float, float]:
            value, gradient = rows.value_and_gradient(multipliers)
            return value, float(np.linalg.norm(gradient_mapping(multipliers, gradient, dual.loss_unit)))

        def report(taken: int, multipliers: Floats) -> None:
            trace.append(Step(taken, taken, dual.beta, *evaluate(first_block, multipliers)))
            if callback is not None:
                callback(trace[-1])

        multipliers = np.zeros(dual.n_rules) if start is None else start
        if dual.n_rules:
            oracle = Oracle(dual, rng or np.random.default_rng(0), steps, report)
            answer = self.optimizer(
                oracle, sigma2=dual.sigma2, smoothness=dual.smoothness, steps=steps, start=multipliers
            )
            multipliers, steps = np.asarray(answer, dtype=np.float64), oracle.taken
            # Check the result, because an optimizer may be any callable.
            right_shape, shape = multipliers.shape == (dual.n_rules,), multipliers.shape
            if not right_shape or not np.isfinite(multipliers).all() or (multipliers < 0).any():
                raise OptionError(
                    f"the optimizer must return {dual.n_rules} finite multipliers >= 0, one per rule; "
                    f"got an array of shape {shape}"
                    + (" with negative or non-finite entries" if right_shape else "")
                )
        value, norm = evaluate(dual, multipliers)
        status = Status.CONVERGED if norm <= tol else Status.SAMPLED
        if dual.n_rules and dual.conflict(multipliers) > 0:
            status = Status.INFEASIBLE
        return Solution(multipliers, status, norm, value, steps, tuple(trace))
