"""The default in memory: damped Newton steps on growing samples with growing beta.

Each step minimises the local quadratic over lambda >= 0, with damping in the manner of
Levenberg and Marquardt, and is shortened where it went too far. Early stages see a few blocks
of rows and a soft policy, so that only the last few steps pay for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.optimize import Bounds, minimize, nnls

from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual, Hessian, Simplex, Tally, UnseenRows
from bylaw.program.solution import Solution, Status, Step
from bylaw.solvers.base import Callback, gradient_mapping
from bylaw.solvers.separable import solve_separable

_ENTROPY_SHARE = 1e-3  # of the spread of the loss, that an automatic beta may cost
_FIRST_SHARPNESS = 3.0  # beta of the first stage, times the spread of the loss
_BETA_GROWTH = 6.0
_FIRST_ROWS = 2000
_RARE_ROWS = 100  # of the rarest condition of a rule, in the first sample: fewer ask the impossible
_ROWS_GROWTH = 8
_CAP = 1e7  # multipliers beyond this many spreads of the loss lead nowhere
_WARM_STEPS = 50  # from a given start, before it is given up
_MANY_RULES = 500  # where quasi-Newton steps come first
_MANY_CELLS = 16  # of which these steps would have to learn the curvature: then a finer path is shorter
_FINE_GROWTH = 1.7  # of beta, on that path
_TRUSTED = 0.25  # of the decrease that the quadratic predicts: less, and the step was too long
_SHORTENINGS = 6  # passes, of a step that went too far
_FLATTER = 0.3  # of the slope at its beginning, where a shortened step may end
_SHARP = 100.0  # beta in units of the loss, at which few rows are undecided
_OUTLINED = 1e-3  # precision of the last of these
_OUTLINE_STEPS = 300
_MEMORY = 20  # steps that tell them of the curvature
_FIRST_DAMPING = 1e-3  # of the mean curvature
_NEARLY_NONE = 1e-8  # of the mean curvature: damping of a step that begins near the optimum
_NO_CURVATURE = 1e-9  # in units of the loss: less is rounding errors
_NO_DAMPING = 1e-12  # in units of the loss
_ROUNDING = 1e-13  # relative precision of the dual's value
_TINIEST = 1e-290  # what a matrix of zeros is lifted by; its root is far from underflow
_factor, _solve_factored = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


@dataclass(frozen=True)
class FullBatch:
    """Projected Newton steps with continuation in beta and in the number of rows.

    Parameters
    ----------
    max_steps : int
        in each stage.

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
        """The randomisation may cost 0.1 % of the unit of the loss."""
        return dual.form.action_space.entropy / (_ENTROPY_SHARE * dual.loss_unit)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        if dual.simplex is None:
            apart = solve_separable(dual, tol=tol, max_steps=self.max_steps, callback=callback)
            if apart is not None:
                return apart
        trace: list[Step] = []
        if start is not None:
            near = self.refine(dual, start, tol=tol, callback=callback)
            if near.status in (Status.CONVERGED, Status.INFEASIBLE):
                return near
            trace += near.trace
        multipliers = np.zeros(dual.n_rules) if dual.simplex is None else dual.simplex.start(dual.n_rules)
        path = _Path(_follows_finely(dual))
        if dual.n_rules:
            with closing(_stages(dual, rng)) as stages:
                for stage, stage_tol in stages:
                    start = path.extrapolate(stage.beta, multipliers)
                    multipliers = self._approach(stage, start, stage_tol, trace, callback)
                    path.append(stage.beta, multipliers)
            multipliers = path.extrapolate(dual.beta, multipliers)
            if _is_outlined(dual):
                multipliers = self._outline(dual, multipliers, _OUTLINED, trace, callback)
        state, status = self._descend(dual, multipliers, tol, trace, callback)
        return state.solution(status, trace)

    def refine(
        self,
        dual: Dual,
        start: Floats,
        *,
        tol: float = 1e-6,
        callback: Callback | None = None,
    ) -> Solution:
        """Solve the dual from a start near the optimum, and from nowhere else if that fails."""
        trace: list[Step] = []
        nearby = replace(self, max_steps=min(self.max_steps, _WARM_STEPS))
        state, status = nearby._descend(dual, start, tol, trace, callback)
        return state.solution(status, trace)

    def _approach(
        self, dual: Dual, multipliers: Floats, tol: float, trace: list[Step], callback: Callback | None
    ) -> Floats:
        """About the optimum of a stage."""
        if _is_outlined(dual):
            return self._outline(dual, multipliers, tol, trace, callback)
        return self._descend(dual, multipliers, tol, trace, callback)[0].multipliers

    def _outline(
        self, dual: Dual, multipliers: Floats, tol: float, trace: list[Step], callback: Callback | None
    ) -> Floats:
        """By quasi-Newton steps, which cost a pass each. As long as any of many rules may bind, the quadratic
        of a Newton step is dearer than many passes; once it is known which do, it is cheap."""
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

        limits = {"maxiter": min(self.max_steps, _OUTLINE_STEPS), "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0}
        found = minimize(
            evaluate,
            multipliers / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, _CAP),
            callback=report,
            options=limits,
        )
        return unit * found.x

    def _descend(
        self, dual: Dual, multipliers: Floats, tol: float, trace: list[Step], callback: Callback | None
    ) -> tuple[_State, Status]:
        state = _State.at(dual, multipliers, curvature=True)
        least = _NO_DAMPING / dual.loss_unit
        damping = math.nan
        for _ in range(self.max_steps):
            if state.norm <= tol:
                return state, Status.CONVERGED
            # Weak duality: -F bounds from below the cost of every policy that satisfies the rules.
            if -state.value > dual.highest_cost and _proves_conflict(dual, state.multipliers):
                return state, Status.INFEASIBLE
            if state.multipliers.max() > _CAP * max(dual.loss_unit, 1 / dual.beta):
                conflict = dual.conflict(state.multipliers) > 0
                return state, Status.INFEASIBLE if conflict else Status.STALLED
            state = state.with_curvature(dual)
            if not math.isfinite(state.norm + state.hessian.trace):
                raise EvidenceError(
                    "the rates and their squares must be finite numbers, but they overflow on these rows: "
                    "divide the costs, or the coefficients of the objective and the rules, by a large number"
                )
            if math.isnan(damping):
                damping = first_damping(state.hessian, dual.loss_unit)
            trial = state.step(dual, damping)
            trace.append(Step(len(trace), dual.mass, dual.beta, trial.value, trial.norm))
            if callback is not None:
                callback(trace[-1])
            ratio = state.gain_ratio(trial)
            if ratio < _TRUSTED:
                damping *= 8
            elif ratio > 0.6:
                damping = max(damping / 10, least, 1e-13 * state.hessian.trace)
            if ratio < _TRUSTED:
                trial = state.shorten(dual, trial)
                ratio = state.gain_ratio(trial)
            if ratio > 1e-3:
                state = trial
            elif (
                trial.predicted_decrease <= _ROUNDING * (1 + abs(state.value))
                and damping > 1e12 / dual.loss_unit
            ):
                return state, Status.STALLED
        return state, Status.MAX_STEPS


def _follows_finely(dual: Dual) -> bool:
    """Whether the path to the optimum is followed by small steps of beta: where many cells have rules."""
    many = dual.n_rules >= _MANY_RULES and dual.simplex is None
    return many and dual.layout is not None and len(dual.layout.cells) >= _MANY_CELLS


def _is_outlined(dual: Dual) -> bool:
    """Whether quasi-Newton steps come before those with the curvature: of many rules, unless groups are known
    and most rows decided, so that few add to the curvature."""
    sharp = dual.layout is not None and dual.beta * dual.loss_unit > _SHARP
    many = dual.n_rules >= _MANY_RULES and dual.simplex is None
    return many and not (sharp or _follows_finely(dual))


class _Path:
    """The optima of the stages, which are about linear in 1 / beta: where decisions must be drawn by lot,
    scores are of the order of 1 / beta."""

    def __init__(self, fine: bool) -> None:
        self.fine = fine
        self.points: list[tuple[float, Floats]] = []  # 1 / beta, multipliers

    def append(self, beta: float, multipliers: Floats) -> None:
        self.points = [*self.points[-1:], (1 / beta, multipliers)]

    def extrapolate(self, beta: float, last: Floats) -> Floats:
        """(M,): where a fine path leads at another beta, by its last two points; of any other, the last."""
        if not self.fine or len(self.points) < 2:
            return last
        (before, first), (here, second) = self.points
        return np.maximum(second + (second - first) * (1 / beta - here) / (here - before), 0.0)


@dataclass(frozen=True)
class _State:
    """The dual at one point, with what the next step needs."""

    multipliers: Floats
    value: float
    gradient: Floats
    curvature: Hessian | None
    norm: float
    predicted_decrease: float = 0.0  # by the quadratic model, for the step to here

    @classmethod
    def at(
        cls, dual: Dual, multipliers: Floats, predicted_decrease: float = 0.0, *, curvature: bool
    ) -> _State:
        total = dual.tally(multipliers, curvature=curvature, rules_alone=True)
        value, gradient = dual.first_order(total, multipliers)
        norm = float(np.linalg.norm(gradient_mapping(multipliers, gradient, dual.loss_unit, dual.simplex)))
        hessian = dual.second_order(total) if curvature else None
        return cls(multipliers, value, gradient, hessian, norm, predicted_decrease)

    @property
    def hessian(self) -> Hessian:
        assert self.curvature is not None
        return self.curvature

    def with_curvature(self, dual: Dual) -> _State:
        """The same with curvature."""
        if self.curvature is not None:
            return self
        return replace(
            self, curvature=dual.second_order(dual.tally(self.multipliers, curvature=True, rules_alone=True))
        )

    def step(self, dual: Dual, damping: float) -> _State:
        model = replace(self.hessian, ridge=self.hessian.ridge + damping)
        guess = (self.multipliers > 0) | (self.gradient < 0)
        if dual.simplex is not None:
            guess[-dual.simplex.size :] = True
        point = minimize_quadratic(model, model @ self.multipliers - self.gradient, guess, dual.simplex)
        move = point - self.multipliers
        predicted_decrease = -float(self.gradient @ move + move @ (self.hessian @ move) / 2)
        return _State.at(dual, point, predicted_decrease, curvature=True)

    def shorten(self, dual: Dual, trial: _State) -> _State:
        """A point on the way to a trial that went too far, by secants of the slope on the way: that takes a
        few passes, but no curvature and no quadratic."""
        way = trial.multipliers - self.multipliers
        slope, bend = float(self.gradient @ way), float(way @ (self.hessian @ way))
        low, high, best = (0.0, slope), (1.0, float(trial.gradient @ way)), trial
        for _ in range(_SHORTENINGS):
            if not low[1] < 0 < high[1]:  # there is nothing to gain on the way, but for rounding errors
                break
            share = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
            share = min(max(share, 0.9 * low[0] + 0.1 * high[0]), (low[0] + high[0]) / 2)
            predicted = -share * (slope + share * bend / 2)
            there = _State.at(dual, self.multipliers + share * way, predicted, curvature=False)
            end = share, float(there.gradient @ way)
            low, high = (end, high) if end[1] < 0 else (low, end)
            best = min(best, there, key=lambda state: state.value)
            if abs(end[1]) <= _FLATTER * abs(slope):
                break
        return best

    def solution(self, status: Status, trace: list[Step]) -> Solution:
        return Solution(self.multipliers, status, self.norm, self.value, len(trace), tuple(trace))

    def gain_ratio(self, trial: _State) -> float:
        """The actual decrease over the predicted one. Near the optimum, where values
        drown in rounding, the gradient mapping decides. A trial whose value overflows gains nothing."""
        if not math.isfinite(trial.value):
            return -math.inf
        if trial.predicted_decrease <= _ROUNDING * (1 + abs(self.value)):
            return float(trial.norm < self.norm)
        return (self.value - trial.value) / trial.predicted_decrease


def take_newton_step(dual: Dual, multipliers: Floats, total: Tally) -> Floats:
    """Where a step leads from multipliers near the optimum, whose tally is known."""
    _, gradient = dual.first_order(total, multipliers)
    hessian = dual.second_order(total)
    # Without any curvature, as every row is decided, a step is as long as the gradient.
    damping = _NEARLY_NONE * hessian.trace / hessian.n_rules or 1 / dual.loss_unit
    model = replace(hessian, ridge=hessian.ridge + damping)
    guess = (multipliers > 0) | (gradient < 0)
    return minimize_quadratic(model, model @ multipliers - gradient, guess)


def first_damping(hessian: Hessian, loss_unit: float) -> float:
    """Return a small share of the mean curvature, or one of the right size if the curvature is zero but for
    rounding errors because every row is decided: then a step is as long as the gradient."""
    curvature = hessian.trace / max(hessian.n_rules, 1)
    return _FIRST_DAMPING * curvature if curvature > _NO_CURVATURE / loss_unit else 1 / loss_unit


def _proves_conflict(dual: Dual, multipliers: Floats) -> bool:
    """Whether a value beyond every cost proves the rules to conflict. The costs are those of the objective
    with equal weights of the groups, if they have weights: then the rules alone must prove it."""
    if dual.simplex is None:
        return True
    of_rules = np.arange(dual.n_rules) < dual.n_rules - dual.simplex.size
    return dual.conflict(np.where(of_rules, multipliers, 0.0)) > 0


def minimize_quadratic(
    model: Hessian, target: Floats, guess: NDArray[np.bool_], simplex: Simplex | None = None
) -> Floats:
    """argmin over x >= 0 of x' model x / 2 - target' x, where `guess` tells which x are free; all those
    on a simplex are.

    Few rules bind: the others are left out until their slope asks for them.
    """
    point = np.zeros(len(target))
    while guess.any():
        point[guess] = _minimize_free(model.restrict(guess), target[guess], simplex)
        missed = ~guess & (model @ point < target)
        if not missed.any():
            break
        guess = guess | missed
    return point if simplex is None else simplex.rescale(point)


def _minimize_free(matrix: Floats, target: Floats, simplex: Simplex | None) -> Floats:
    """argmin over x >= 0 of x' matrix x / 2 - target' x, about on a simplex if there is one. Otherwise mostly
    no bound is in the way."""
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
    """Return R with R'R = matrix plus a multiple of one, of the size of rounding errors, that makes an
    indefinite matrix definite.

    The loop ends: a multiple beyond the sum of all entries makes any finite matrix definite."""
    if not np.isfinite(matrix).all():
        raise ValueError("the curvature must be finite, got NaN or infinity")
    lift, indefinite, root = max(1e-14 * float(np.abs(matrix).max()), _TINIEST), 1, matrix
    while indefinite:
        matrix, lift = matrix + lift * np.eye(len(matrix)), 10 * lift
        root, indefinite = _factor(matrix, clean=1)
    return root


def _stages(dual: Dual, rng: np.random.Generator | None) -> Generator[tuple[Dual, float], None, None]:
    """Softer duals on fewer rows, each with the precision that its sample deserves."""
    n_rows = dual.n_rows
    fine = _follows_finely(dual)
    growth = _FINE_GROWTH if fine else _BETA_GROWTH
    rows_growth = _ROWS_GROWTH ** math.log(growth, _BETA_GROWTH)
    beta, rows = _FIRST_SHARPNESS / dual.loss_unit, count_first_rows(dual)
    if dual.simplex is not None:  # softer than this, all groups are as bad as the worst
        beta = max(beta, dual.beta / _BETA_GROWTH**2)
    with _sampling(dual, rng) as take:
        while beta < dual.beta or rows < n_rows:
            sample = take(rows, min(beta, dual.beta))
            noise = 0.1 * min(rows, n_rows) ** -0.5
            ridge = noise / dual.loss_unit if rows < n_rows else 0.0
            yield sample.with_ridge(ridge), _OUTLINED if fine else min(noise, _OUTLINED)
            beta, rows = beta * growth, math.ceil(rows * rows_growth)


@contextmanager
def _sampling(dual: Dual, rng: np.random.Generator | None) -> Iterator[Callable[[int, float], Dual]]:
    """Takes samples of so many rows, or of all that there are to sample from, with a beta."""
    if isinstance(dual.source, UnseenRows):
        with dual.source.sampling() as take:
            yield lambda rows, beta: dual.with_sample(take(rows)).with_beta(beta)
        return
    blocks = list(dual.blocks)
    if rng is not None:
        blocks = [blocks[i] for i in rng.permutation(len(blocks))]
    yield lambda rows, beta: dual.sample(sample_blocks(blocks, rows), beta)


def count_first_rows(dual: Dual) -> int:
    """In the first sample: enough to show the rarest condition of a rule."""
    rarest = min(dual.form.frequencies.values(), default=1.0)
    return max(_FIRST_ROWS, math.ceil(_RARE_ROWS / rarest))


def sample_blocks(blocks: list[Block], rows: int) -> list[Block]:
    """The first blocks, thinned out evenly if one is too many."""
    width = blocks[0].n_rows
    if rows >= width:
        return blocks[: -(-rows // width)]
    return [blocks[0].rows(slice(None, None, -(-width // rows)))]
