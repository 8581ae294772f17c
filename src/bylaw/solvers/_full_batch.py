"""The default solver: damped Newton steps on growing samples with growing beta (inverse temperature).

Each step minimizes the local quadratic over lambda >= 0, with the damping of Levenberg and Marquardt, and is
shortened if the quadratic was a bad approximation. Early stages use few blocks of rows and a more random
policy, so that only the last few steps read all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.optimize import Bounds, minimize, nnls

from bylaw._base import Floats, check_positive
from bylaw.errors import EvidenceError, OptionError, RuleError
from bylaw.program import (
    Block,
    Callback,
    Dual,
    Hessian,
    Simplex,
    Solution,
    Status,
    Step,
    Tally,
    UnseenRows,
    gradient_mapping,
)
from bylaw.solvers._separable import LARGEST, solve_separable

BETA_GROWTH = 6.0  # factor by which beta grows from one stage to the next
MANY_RULES = 500  # least number of rules for which quasi-Newton steps come before Newton steps
OUTLINED = 1e-3  # tolerance of the quasi-Newton steps on all rows, before Newton steps
ROUNDING = 1e-13  # relative rounding error of the dual's value, a sum over many rows
_factor, _solve_factored = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


class Solver(Protocol):
    """A callable that minimizes the dual over non-negative multipliers.

    It stops at ||G_alpha(lambda)|| <= tol, the norm of the gradient mapping with the unit of the loss as
    alpha, so that the tolerance does not depend on the currency of costs.
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


def resolve_beta(beta: float | str, rows: int, auto: Callable[[], float]) -> float:
    """Return the inverse temperature as a number.

    If it is "auto", return `auto()`; if it is "paper", return 0.5 sqrt(T) log sqrt(T) for T rows, as in the
    paper's experiments.
    """
    if beta == "auto":
        return auto()
    if isinstance(beta, str):
        if beta != "paper":
            raise OptionError(f"beta must be a positive number, 'auto' or 'paper', got {beta!r}")
        if rows < 2:
            raise OptionError(
                f"the number of rows must be at least 2 for beta='paper', got {rows}; pass beta as a number"
            )
        return 0.5 * math.sqrt(rows) * math.log(math.sqrt(rows))
    return check_positive(beta, "beta")


@dataclass(frozen=True)
class FullBatch:
    """The default solver: projected Newton steps on growing samples of rows with growing beta.

    Parameters
    ----------
    max_steps : int
        the largest number of steps in each stage.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), rows, solver=FullBatch(max_steps=100))
    >>> policy.solution.status.name
    'CONVERGED'
    """

    max_steps: int = 1000

    def auto_beta(self, dual: Dual) -> float:
        """Return the beta at which randomization costs at most 0.1 % of the unit of the loss."""
        return dual.form.action_space.entropy / (1e-3 * dual.loss_unit)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        if dual.simplex is None and not dual.form.action_space.exclusive:
            separable = solve_separable(dual, tol=tol, max_steps=self.max_steps, callback=callback)
            if separable is not None:
                return separable
        trace: list[Step] = []
        # Try Newton steps from the given start.
        if start is not None:
            warm = self.refine(dual, start, tol=tol, callback=callback)
            if warm.status in (Status.CONVERGED, Status.INFEASIBLE):
                return warm
            trace += warm.trace
        # Solve stages with growing samples and growing beta, then all rows at the final beta.
        multipliers = np.zeros(dual.n_rules) if dual.simplex is None else dual.simplex.start(dual.n_rules)
        if dual.n_rules:
            with closing(_list_stages(dual, rng)) as stages:
                for stage, stage_tol in stages:
                    if _is_outlined(stage):
                        multipliers = self._outline(stage, multipliers, stage_tol, trace, callback)
                        continue
                    state, _ = self._descend(stage, multipliers, stage_tol, trace, callback)
                    multipliers = state.multipliers
            if _is_outlined(dual):
                multipliers = self._outline(dual, multipliers, OUTLINED, trace, callback)
        state, status = self._descend(dual, multipliers, tol, trace, callback)
        return state.make_solution(status, trace)

    def refine(
        self,
        dual: Dual,
        start: Floats,
        *,
        tol: float = 1e-6,
        callback: Callback | None = None,
    ) -> Solution:
        """Solve the dual from a start near the optimum only, in at most 50 steps."""
        trace: list[Step] = []
        nearby = replace(self, max_steps=min(self.max_steps, 50))
        state, status = nearby._descend(dual, start, tol, trace, callback)
        return state.make_solution(status, trace)

    def _outline(
        self, dual: Dual, multipliers: Floats, tol: float, trace: list[Step], callback: Callback | None
    ) -> Floats:
        """Approach the optimum of many rules by quasi-Newton steps of one pass each.

        While any of many rules may bind, minimizing the quadratic of a Newton step takes longer than many
        passes.
        """
        unit, last = dual.loss_unit, list[Step]()

        def evaluate(point: Floats) -> tuple[float, Floats]:
            value, gradient = dual.value_and_gradient(unit * point)
            norm = float(np.linalg.norm(gradient_mapping(unit * point, gradient, unit)))
            last[:] = [Step(len(trace), dual.mass, dual.beta, value, norm)]
            return value / unit, gradient

        def report(_: Floats) -> None:
            trace.append(step := last[0])
            if callback is not None:
                callback(step)
            if step.gradient_mapping <= tol or -step.value > dual.highest_cost:
                raise StopIteration

        limits = {"maxiter": min(self.max_steps, 300), "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
        answer = minimize(
            evaluate,
            multipliers / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, LARGEST),
            callback=report,
            options=limits,
        )
        return unit * answer.x

    def _descend(
        self, dual: Dual, multipliers: Floats, tol: float, trace: list[Step], callback: Callback | None
    ) -> tuple[_State, Status]:
        """Take damped Newton steps until the gradient mapping is within the tolerance."""
        state = _State.at(dual, multipliers)
        damping = math.nan
        for _ in range(self.max_steps):
            if state.norm <= tol:
                return state, Status.CONVERGED
            # By weak duality, -F is a lower bound on the cost of every policy that satisfies the rules.
            if -state.value > dual.highest_cost and _proves_conflict(dual, state.multipliers):
                return state, Status.INFEASIBLE
            # Multipliers that grow without bound are another sign of a conflict.
            if state.multipliers.max() > LARGEST * max(dual.loss_unit, 1 / dual.beta):
                conflict = dual.conflict(state.multipliers) > 0
                return state, Status.INFEASIBLE if conflict else Status.STALLED
            if not math.isfinite(state.norm + state.hessian.trace):
                raise EvidenceError(
                    "the rates and their squares must be finite numbers, but they overflow on these rows: "
                    "divide the costs, or the coefficients of the objective and the rules, by a large number"
                )
            if math.isnan(damping):
                # Begin with a small share of the mean curvature. If every decision is certain, the curvature
                # is zero up to rounding errors; then the damping makes a step as long as the gradient.
                mean = state.hessian.trace / max(dual.n_rules, 1)
                damping = 1e-3 * mean if mean > 1e-9 / dual.loss_unit else 1 / dual.loss_unit
            # Minimize the damped quadratic over lambda >= 0.
            trial = state.step(dual, damping)
            trace.append(Step(len(trace), dual.mass, dual.beta, trial.value, trial.norm))
            if callback is not None:
                callback(trace[-1])
            # If the quadratic predicted too large a decrease, increase the damping and shorten the step.
            ratio = state.compare_decrease(trial)
            if ratio < 0.25:
                damping *= 8
                trial = state.shorten(dual, trial)
                ratio = state.compare_decrease(trial)
            elif ratio > 0.6:
                damping = max(damping / 10, 1e-12 / dual.loss_unit, 1e-13 * state.hessian.trace)
            # Accept the step if it decreased the dual, and stop if it cannot because of rounding errors.
            if ratio > 1e-3:
                state = trial
            elif state.is_rounding(trial) and damping > 1e12 / dual.loss_unit:
                return state, Status.STALLED
        return state, Status.MAX_STEPS


def _is_outlined(dual: Dual) -> bool:
    """Return whether quasi-Newton steps come before Newton steps.

    This is so if there are many rules, unless the rows are sorted by cell and most decisions are certain, so
    that few rows contribute to the curvature.
    """
    sharp = dual.layout is not None and dual.beta * dual.loss_unit > 100
    return dual.n_rules >= MANY_RULES and dual.simplex is None and not sharp


@dataclass(frozen=True)
class _State:
    """The dual at one point, with the derivatives for the next step."""

    multipliers: Floats
    value: float
    gradient: Floats
    hessian: Hessian
    norm: float
    predicted_decrease: float = 0.0  # of the dual, by the quadratic, in the step to this point

    @classmethod
    def at(cls, dual: Dual, multipliers: Floats, predicted_decrease: float = 0.0) -> _State:
        """Evaluate the dual and its derivatives in one pass."""
        total = dual.tally(multipliers, curvature=True)
        value, gradient = dual.first_order(total, multipliers)
        norm = float(np.linalg.norm(gradient_mapping(multipliers, gradient, dual.loss_unit, dual.simplex)))
        return cls(multipliers, value, gradient, dual.second_order(total), norm, predicted_decrease)

    def step(self, dual: Dual, damping: float) -> _State:
        """Evaluate the dual at the minimum of the damped quadratic."""
        model = replace(self.hessian, ridge=self.hessian.ridge + damping)
        guess = (self.multipliers > 0) | (self.gradient < 0)
        if dual.simplex is not None:
            guess[-dual.simplex.size :] = True
        point = minimize_quadratic(model, model @ self.multipliers - self.gradient, guess, dual.simplex)
        move = point - self.multipliers
        predicted_decrease = -float(self.gradient @ move + move @ (self.hessian @ move) / 2)
        return _State.at(dual, point, predicted_decrease)

    def shorten(self, dual: Dual, trial: _State) -> _State:
        """Return the best point found between this one and the trial, by at most six secant steps."""
        way = trial.multipliers - self.multipliers
        slope, bend = float(self.gradient @ way), float(way @ (self.hessian @ way))
        low, high, best = (0.0, slope), (1.0, float(trial.gradient @ way)), trial
        for _ in range(6):
            if not low[1] < 0 < high[1]:  # no minimum on the way, except for rounding errors
                break
            # Evaluate the dual near the zero of the secant of the slope.
            share = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
            share = min(max(share, 0.9 * low[0] + 0.1 * high[0]), (low[0] + high[0]) / 2)
            predicted = -share * (slope + share * bend / 2)
            there = _State.at(dual, self.multipliers + share * way, predicted)
            # Keep the part of the bracket in which the slope changes its sign, and the best point.
            end = share, float(there.gradient @ way)
            low, high = (end, high) if end[1] < 0 else (low, end)
            best = min(best, there, key=lambda state: state.value)
            if abs(end[1]) <= 0.3 * abs(slope):
                break
        return best

    def make_solution(self, status: Status, trace: list[Step]) -> Solution:
        return Solution(self.multipliers, status, self.norm, self.value, len(trace), tuple(trace))

    def is_rounding(self, trial: _State) -> bool:
        """Return whether the predicted decrease is less than the rounding error of the value."""
        return trial.predicted_decrease <= ROUNDING * (1 + abs(self.value))

    def compare_decrease(self, trial: _State) -> float:
        """Return the ratio of the actual to the predicted decrease.

        Near the optimum, where differences of values are rounding errors, the result is 1 if the gradient
        mapping became smaller, else 0. It is -inf if the value of the trial overflows.
        """
        if not math.isfinite(trial.value):
            return -math.inf
        if self.is_rounding(trial):
            return float(trial.norm < self.norm)
        return (self.value - trial.value) / trial.predicted_decrease


def take_newton_step(dual: Dual, multipliers: Floats, total: Tally) -> Floats:
    """Return the multipliers after one Newton step from multipliers near the optimum and their tally."""
    _, gradient = dual.first_order(total, multipliers)
    hessian = dual.second_order(total)
    # Without any curvature, because every decision is certain, a step is as long as the gradient.
    damping = 1e-8 * hessian.trace / dual.n_rules or 1 / dual.loss_unit
    model = replace(hessian, ridge=hessian.ridge + damping)
    guess = (multipliers > 0) | (gradient < 0)
    return minimize_quadratic(model, model @ multipliers - gradient, guess)


def _proves_conflict(dual: Dual, multipliers: Floats) -> bool:
    """Return whether a dual value above the highest cost proves that no policy satisfies all rules.

    If some multipliers are weights of groups, the highest cost is that for equal weights. Then the
    multipliers of the rules alone must prove the conflict.
    """
    if dual.simplex is None:
        return True
    of_rules = np.arange(dual.n_rules) < dual.n_rules - dual.simplex.size
    return dual.conflict(np.where(of_rules, multipliers, 0.0)) > 0


def minimize_quadratic(
    model: Hessian, target: Floats, guess: NDArray[np.bool_], simplex: Simplex | None = None
) -> Floats:
    """Return the x >= 0 that minimizes x' model x / 2 - target' x, by an active-set method.

    `guess` is the initial set of entries with x > 0, usually few; it must contain those on a simplex. Other
    entries are added while the slope in their direction is negative.
    """
    point = np.zeros(len(target))
    # Minimize over the active set, and add entries with a negative slope, until there are no such entries.
    while guess.any():
        point[guess] = _minimize_free(model.restrict(guess), target[guess], simplex)
        falling = ~guess & (model @ point < target)
        if not falling.any():
            break
        guess = guess | falling
    return point if simplex is None else simplex.rescale(point)


def _minimize_free(matrix: Floats, target: Floats, simplex: Simplex | None) -> Floats:
    """Return the x >= 0 that minimizes x' matrix x / 2 - target' x, nearly on the simplex if one is given."""
    root, indefinite = _factor(matrix, clean=1)
    if indefinite:
        root = _factor_lifted(matrix)
    elif simplex is None:
        point, _ = _solve_factored(root, target)
        if point.min() >= 0:
            return point
    system = root, solve_triangular(root, target, trans=1)
    return nnls(*(system if simplex is None else simplex.add_equation(*system)))[0]


def _factor_lifted(matrix: Floats) -> Floats:
    """Return R with R'R = matrix + e I, with a small e that makes the sum positive definite.

    The first e is near the size of rounding errors. The loop ends, because any finite matrix is positive
    definite with an e above the sum of its entries.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("the curvature must be finite, got NaN or infinity")
    # Multiply e by ten until the factorization succeeds; the root of the smallest e is far from underflow.
    lift, indefinite, root = max(1e-14 * float(np.abs(matrix).max()), 1e-290), 1, matrix
    while indefinite:
        matrix, lift = matrix + lift * np.eye(len(matrix)), 10 * lift
        root, indefinite = _factor(matrix, clean=1)
    return root


def _list_stages(dual: Dual, rng: np.random.Generator | None) -> Generator[tuple[Dual, float], None, None]:
    """Yield duals with smaller beta on fewer rows, each with the precision that its sample allows."""
    n_rows, rarest = dual.n_rows, min(dual.form.frequencies.values(), default=1.0)
    # The first sample has 100 rows of the rarest condition: with fewer rows, its rules may conflict.
    beta, rows = 3.0 / dual.loss_unit, max(2000, math.ceil(100 / rarest))
    if dual.simplex is not None:  # with a more random policy, all groups are as bad as the worst
        beta = max(beta, dual.beta / BETA_GROWTH**2)
    with _open_samples(dual, rng) as take:
        while beta < dual.beta or rows < n_rows:
            sample = take(rows, min(beta, dual.beta))
            noise = 0.1 * min(rows, n_rows) ** -0.5
            ridge = noise / dual.loss_unit if rows < n_rows else 0.0
            yield sample.with_beta(sample.beta, ridge), min(noise, OUTLINED)
            beta, rows = beta * BETA_GROWTH, rows * 8


@contextmanager
def _open_samples(dual: Dual, rng: np.random.Generator | None) -> Iterator[Callable[[int, float], Dual]]:
    """Lend a function that returns a dual on a sample of about so many rows, with a given beta."""
    if isinstance(dual.source, UnseenRows):
        with dual.source.sampling() as take:
            yield lambda rows, beta: dual.with_rows((), take(rows)).with_beta(beta)
        return
    blocks = list(dual.blocks)
    if rng is not None:
        blocks = [blocks[i] for i in rng.permutation(len(blocks))]
    width = blocks[0].n_rows

    def choose(rows: int) -> list[Block]:
        """Return the first blocks, or rows spread evenly over the first if that is enough."""
        if rows < width:
            return [blocks[0].rows(slice(None, None, -(-width // rows)))]
        return blocks[: -(-rows // width)]

    yield lambda rows, beta: dual.sample(choose(rows), beta)


@dataclass(frozen=True)
class WarmFullBatch(FullBatch):
    """A full batch solver that starts from the last shadow prices of the same rules.

    Parameters
    ----------
    max_steps : int
        the largest number of steps in each stage.
    prices : dict
        the last price of each single rule; keys are texts of rules with `level` in place of the number.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> solver = WarmFullBatch()
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), rows, solver=solver)
    >>> list(solver.prices)
    ['rejected() <= level']
    """

    prices: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        names = list[str]()  # texts of the rules without their numbers
        for expanded in dual.form.rules if dual.simplex is None else ():
            try:
                names.append(expanded.rule.template)
            except RuleError:  # it has several numbers
                names.append(str(expanded.rule))
        if start is None and any(name in self.prices for name in names):
            start = np.array([self.prices.get(name, 0.0) for name in names]) * dual.form.scales
        solution = super().__call__(dual, tol=tol, start=start, rng=rng, callback=callback)
        if names and solution.status is Status.CONVERGED:
            prices = dual.form.prices(solution.multipliers)
            self.prices.update(zip(names, prices.tolist(), strict=True))
        return solution
