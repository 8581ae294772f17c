"""The way from one level of a rule to the next: each solution starts from the last, on the rows that
are near a boundary between decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import takewhile
from operator import add
from typing import Literal

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw._base.validation import check_positive
from bylaw.data.evidence import Evidence
from bylaw.errors import InfeasibleRulesError
from bylaw.fitting.fitted_policy import find_shares, fingerprint_rows, make_guarantee
from bylaw.fitting.linearization import compares_quotients, linearize, needs_linearization
from bylaw.fitting.objectives import WarmSolver
from bylaw.fitting.shadow_prices import compute_prices
from bylaw.fitting.solve import as_solver, solve
from bylaw.fitting.worst_group import SHARPER, GroupSearch, GroupWeights
from bylaw.formulation.blocks import make_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.free_options import check_options_cost
from bylaw.formulation.linear_form import LinearForm, compile_problem, measure_wholes
from bylaw.formulation.passes import Tally
from bylaw.formulation.solution import GroupRate, Guarantee, Solution, Status
from bylaw.language.expressions import Rate, Rule
from bylaw.language.parser import Statement
from bylaw.language.problem import ExpandedRule, Problem
from bylaw.policy.recognition import Fingerprint
from bylaw.solvers.base import Solver, gradient_mapping, resolve_beta
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.modified_newton import ModifiedNewton
from bylaw.solvers.screening import Screen

_POINTS_AHEAD = (10, 2)  # that a screen of all rows should serve, and one of its near rows
_TRIALS = 3  # before all rows are asked
_PRECISELY = 0.9  # of the tolerance is spent on the near rows
_WORTHWHILE = 0.7  # of all rows: a screen that keeps more saves nothing
_ANY_LEVELS = (0.5, 0.75)
_FARTHEST = 3.0  # a secant is followed for so many of its own lengths


@dataclass(frozen=True)
class Lever:
    """A statement of a problem whose level can be moved."""

    place: int  # among the problem's rules
    statement: Statement

    @property
    def level(self) -> float:
        assert not isinstance(self.statement.level, tuple)  # levers have one level
        return self.statement.level

    @property
    def label(self) -> str:
        """The statement's text with `level` in place of the number."""
        return self.statement.template

    @property
    def looser(self) -> Literal[-1, 1]:
        """The direction in which the level loosens the rule."""
        return self.statement.loosening


def find_lever(problem: Problem, statement: Statement | str) -> Lever:
    """The statement of the problem that is meant, by itself or by its text."""
    place = problem.find(statement)
    found = problem.rules[place]
    found.at(_ANY_LEVELS[0])  # statements without a level are refused
    return Lever(place, found)


def at_levels(problem: Problem, levers: Sequence[Lever], levels: Sequence[float]) -> Problem:
    """The problem with some of its statements at other levels."""
    rules = list(problem.rules)
    for lever, level in zip(levers, levels, strict=True):
        rules[lever.place] = lever.statement.at(level)
    return problem.with_rules(rules)


def differentiate(lever: Lever, evidence: Evidence, options: Sequence[Value]) -> list[tuple[Rate, Rate]]:
    """Of each single rule of a statement the excess at level zero, and its slope: excesses are affine in the
    level. A slope is -1 for an upper bound, minus a rate for its coefficient."""
    low, high = _ANY_LEVELS
    one, two = (
        lever.statement.at(level).expand(evidence.classes, evidence.group_values, options)
        for level in _ANY_LEVELS
    )
    slopes = [(1 / (high - low)) * (b.excess - a.excess) for a, b in zip(one, two, strict=True)]
    return [(rule.excess - low * slope, slope) for rule, slope in zip(one, slopes, strict=True)]


def find_met_level(
    lever: Lever, measure: Callable[[Rate], float], evidence: Evidence, options: Sequence[Value]
) -> float:
    """The tightest level that decisions with these rates satisfy; nan if none tells."""
    lines = [(measure(start), measure(slope)) for start, slope in differentiate(lever, evidence, options)]
    needed = [-start / slope for start, slope in lines if slope]
    return max(needed, key=lambda level: lever.looser * level, default=math.nan)


@dataclass(frozen=True, eq=False)
class Point:
    """A problem on the path, and its solution."""

    problem: Problem
    form: LinearForm
    levels: tuple[float, ...]
    solution: Solution
    moments: Floats  # (F, A): E[phi pi']
    group_rates: tuple[GroupRate, ...] = ()  # where the worst group's rate is minimised

    @property
    def status(self) -> Status:
        return self.solution.status

    @property
    def cost(self) -> float:
        if self.status is Status.INFEASIBLE:
            return math.nan
        if self.group_rates:
            return max(found.rate for found in self.group_rates)
        return float((self.form.base * self.moments).sum()) + self.form.base_constant


class SolutionPath:
    """Solves one problem after another that differ in levels alone, each from the last."""

    def __init__(
        self,
        problem: Problem,
        evidence: Evidence,
        levers: Sequence[Lever],
        *,
        solver: str | Solver = "auto",
        beta: float | Literal["auto", "paper"] = "auto",
        tol: float = 1e-6,
    ) -> None:
        self.problem, self.levers, self.evidence = problem, tuple(levers), evidence
        self.tol = check_positive(tol, "tol")
        self.solver = as_solver(solver)
        self.warm = WarmSolver(evidence, self.solver, beta, tol) if needs_linearization(problem) else None
        dual, sharpness = self._make_dual(beta), SHARPER if problem.of_worst_group else 1.0
        self.whole = replace(
            dual,
            beta=resolve_beta(beta, dual.n_rows, lambda: sharpness * self.solver.auto_beta(dual)),
        )
        self.last: list[Point] = []  # the last two points without a conflict
        self.proof: Point | None = None  # the last conflict
        self.screens: list[Screen] = []  # each of the near rows of the one before
        self.chords = ModifiedNewton()
        self.slopes = {lever: self._compile_slopes(lever) for lever in levers}

    def _make_dual(self, beta: float | str) -> Dual:
        """Of the problem itself, or of a linear one around its solution, whose beta serves all points; of the
        worst group, with equal weights of all groups."""
        if self.warm is None:
            of_groups = self.problem.of_worst_group
            problem = GroupSearch(self.problem, self.evidence).weigh() if of_groups else self.problem
            form = compile_problem(problem, self.evidence)
            check_options_cost(problem.minimize, form, self.evidence)
            dual = Dual(form, make_blocks(form, self.evidence), beta=1.0)
        else:
            dual = linearize(self.problem, self.warm).dual
            self.warm.beta = dual.beta
        return replace(dual, all_moments=True)  # slopes may need any

    def dual(self, form: LinearForm) -> Dual:
        """All rows; features do not depend on levels, unless a coefficient of zero drops one."""
        same = form.feature_map.features == self.whole.form.feature_map.features
        blocks = self.whole.blocks if same else make_blocks(form, self.evidence)
        return replace(self.whole, form=form, blocks=blocks)

    def advance(self, levels: Sequence[float]) -> Point:
        """The next point: the problem with its levers at these levels."""
        problem = at_levels(self.problem, self.levers, levels)
        if self.warm is not None:
            found = linearize(problem, self.warm)
            return Point(problem, found.dual.form, tuple(levels), found.solution, found.moments)
        if problem.of_worst_group:
            point = self._weigh_groups(problem, levels)
        else:
            form = self._form(problem, levels)
            found = self._solve(self.dual(form), self._guess(form, levels))
            point = Point(problem, form, tuple(levels), *found)
        if point.status is Status.INFEASIBLE:
            self.proof = point
        else:
            self.last = [*self.last[-1:], point]
        return point

    def _weigh_groups(self, problem: Problem, levels: Sequence[float]) -> Point:
        """A point whose objective is the worst group's rate, with weights found from those of the last."""
        search, known = GroupSearch(problem, self.evidence), self.whole.form
        features = known.feature_map.features
        form = compile_problem(search.weigh(), self.evidence, known.frequencies, features=features)
        equal, start = self.dual(form), None
        if self.last:
            weights = {one.group: one.weight for one in self.last[-1].group_rates}
            start = GroupWeights(weights, self.last[-1].solution.multipliers)
        found = search.find(equal, self.tol, start)
        if found is None:
            return Point(problem, form, tuple(levels), *self._solve(equal, None))
        dual = search.apply(equal, found.weights)[1]
        solution = self.solver(dual, tol=self.tol, start=found.multipliers if dual.n_rules else None)
        total = dual.tally(solution.multipliers)
        moments = total.moments / total.mass
        rates = search.measure(equal, moments, found.weights)
        return Point(problem, dual.form, tuple(levels), solution, moments, rates)

    def start_from(self, point: Point) -> None:
        """The next point is near this one."""
        self.last, self.screens = [point], []

    def _form(self, problem: Problem, levels: Sequence[float]) -> LinearForm:
        """Where levels are bounds, only bounds and names change, and nothing is compiled again."""
        form = self.whole.form
        if any(isinstance(slopes, LinearForm) for slopes in self.slopes.values()):
            return compile_problem(problem, self.evidence, form.frequencies)
        bounds, rules = form.bounds.copy(), list(form.rules)
        for lever, level in zip(self.levers, levels, strict=True):
            statement = problem.rules[lever.place]
            here = np.flatnonzero(form.places == lever.place)
            slopes = self.slopes[lever]
            assert isinstance(slopes, np.ndarray)
            bounds[here] -= slopes * (level - lever.level) / form.scales[here]
            moved = self._expand(statement)
            for j, rule in zip(here, moved, strict=True):
                rules[j] = ExpandedRule(rule, statement, lever.place, self.evidence.classes)
        return replace(form, bounds=bounds, rules=tuple(rules))

    def _solve(self, dual: Dual, guess: Floats | None) -> tuple[Solution, Floats]:
        if self.proof is not None and dual.conflict(self.proof.solution.multipliers) > 0:
            return self.proof.solution, self.proof.moments
        if guess is not None and isinstance(self.solver, FullBatch):
            found = self._solve_screened(dual, guess)
            if found is not None:
                return found
        solution = self.solver(dual, tol=self.tol, start=guess)
        total = dual.tally(solution.multipliers)
        return solution, total.moments / total.mass

    def _solve_screened(self, dual: Dual, guess: Floats) -> tuple[Solution, Floats] | None:
        """On the rows near a boundary; None where that gives no answer for all rows."""
        if dual.blocks is not self.whole.blocks:  # other features than the screens'
            return None
        for _ in range(_TRIALS):
            screens = self._screens(dual, guess)
            near = reduce(lambda dual, screen: screen.reduced(dual), screens, dual)
            if near is dual:
                return None
            found, total = self._settle(near, guess, near.mass / dual.mass)
            if found.status is not Status.CONVERGED:
                return None
            weights = dual.form.score_matrix(found.multipliers)
            if all(screen.covers(weights) for screen in screens):
                total = reduce(add, (screen.far_tally(weights) for screen in screens), total)
                return self._on_all_rows(dual, found, total)
            guess = found.multipliers
        return None

    def _screens(self, dual: Dual, guess: Floats) -> list[Screen]:
        """Of all rows for many points ahead, and of its near rows for few; those that cover this guess are
        kept."""
        here, last = dual.form.score_matrix(guess), self.last[-1]
        step = here - last.form.score_matrix(last.solution.multipliers)
        self.screens = list(takewhile(lambda screen: screen.covers(here), self.screens))
        used: list[Screen] = []
        for level, ahead in enumerate(_POINTS_AHEAD):
            if level == len(self.screens):
                self.screens.append(Screen.ahead(dual, here, step, ahead))
            screen = self.screens[level]
            if 0 < screen.near_mass < _WORTHWHILE * screen.mass:
                dual = screen.reduced(dual)
                used.append(screen)
        return used

    def _settle(self, near: Dual, guess: Floats, share: float) -> tuple[Solution, Tally]:
        """On a share of the rows; gradients are larger there, as they are those of all rows."""
        assert isinstance(self.solver, FullBatch)
        found = self.chords.refine(
            near, guess, tol=_PRECISELY * self.tol / share, alpha=self.whole.loss_unit * share
        )
        if found is not None:
            return found
        solution = self.solver.refine(near, guess, tol=0.5 * self.tol / share, look_first=True)
        return solution, near.tally(solution.multipliers)

    def _on_all_rows(self, dual: Dual, found: Solution, total: Tally) -> tuple[Solution, Floats] | None:
        value, gradient = dual.first_order(total, found.multipliers)
        norm = float(np.linalg.norm(gradient_mapping(found.multipliers, gradient, self.whole.loss_unit)))
        found = replace(found, value=value, gradient_mapping=norm)
        return (found, total.moments / total.mass) if norm <= self.tol else None

    def _guess(self, form: LinearForm, levels: Sequence[float]) -> Floats | None:
        """On the secant of the last two points, if they and this one are in line."""
        if not self.last:
            return None
        prices = [point.form.prices(point.solution.multipliers) for point in self.last]
        guess = prices[-1]
        if len(self.last) == 2:
            step, next_step = np.diff([*(point.levels for point in self.last), levels], axis=0)
            moved = np.flatnonzero(step)
            if len(moved) == 1 and (np.flatnonzero(next_step) == moved).all():
                ratio = float(next_step[moved[0]] / step[moved[0]])
                guess = guess + np.clip(ratio, -_FARTHEST, _FARTHEST) * (prices[1] - prices[0])
        return np.maximum(guess, 0.0) * form.scales

    def price(self, point: Point, lever: Lever) -> float:
        """Points of cost that a point of slack in the level saves: the derivative of the least cost."""
        if point.status is Status.INFEASIBLE:
            return math.nan
        prices = compute_prices(point.form, point.solution.multipliers)[point.form.places == lever.place]
        return -lever.looser * float(prices @ self.slopes_at(point, lever)) + 0.0 if prices.any() else 0.0

    def price_statement(self, point: Point, place: int) -> float:
        """The same for all levels of a statement together."""
        prices = compute_prices(point.form, point.solution.multipliers)
        return float(prices[point.form.places == place].sum())

    def find_binding_level(self, point: Point, lever: Lever) -> float:
        """The tightest level that the point's policy satisfies: excesses are affine in the level."""
        form = point.form
        excess = (form.couplings @ point.moments.ravel() - form.bounds) * form.scales
        slopes, here = np.abs(self.slopes_at(point, lever)), form.places == lever.place
        return point.levels[self.levers.index(lever)] + lever.looser * float((excess[here] / slopes).max())

    def slopes_at(self, point: Point, lever: Lever) -> Floats:
        """d E[excess] / d level of the statement's single rules, (n_rules,): -1 for an upper bound, minus a
        rate for its coefficient."""
        form = self.slopes[lever]
        if isinstance(form, np.ndarray):
            return form
        if form is None:
            here = point.form.places == lever.place
            return -(measure_wholes(point.form, point.moments) * find_shares(point.form))[here]
        places = [point.form.feature_map.features.index(feature) for feature in form.feature_map.features]
        return (form.couplings @ point.moments[places].ravel() - form.bounds) * form.scales

    def _compile_slopes(self, lever: Lever) -> Floats | LinearForm | None:
        """Numbers, or a form whose rules say that each slope is <= 0; None for differences of quotients,
        whose rules depend on the point."""
        if compares_quotients(lever.statement):
            return None
        # Every excess is affine in the level: a difference is the derivative.
        one, two = (
            [
                rule.excess.resolve(self.evidence.classes).multiply_out()
                for rule in self._expand(lever.statement.at(level))
            ]
            for level in (1.0, 2.0)
        )
        slopes = [after - before for before, after in zip(one, two, strict=True)]
        if not any(slope.terms for slope in slopes):
            return np.array([slope.constant for slope in slopes])
        form = compile_problem(
            self.problem.with_rules([slope <= 0 for slope in dict.fromkeys(slopes)]).with_objective(
                slopes[0]
            ),
            self.evidence,
            self.whole.form.frequencies,
        )
        places = [list(dict.fromkeys(slopes)).index(slope) for slope in slopes]
        return replace(
            form, couplings=form.couplings[places], bounds=form.bounds[places], scales=form.scales[places]
        )

    def _expand(self, statement: Statement) -> tuple[Rule, ...]:
        return statement.expand(self.evidence.classes, self.evidence.group_values, self.options)

    @property
    def options(self) -> tuple[Value, ...]:
        """Actions beside the labels."""
        return self.whole.form.action_space.options

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint_rows(self.whole)

    def norms(self, point: Point) -> Floats:
        """E||C(x)|| and E||C(x)||^2, (2,)."""
        dual = self.dual(point.form)
        return np.array([dual.mean_norm, dual.sigma2])

    def guarantee(self, point: Point, norms: Floats) -> Guarantee:
        mean_norm, sigma2 = norms.tolist()
        return make_guarantee(self.whole, point.solution, (mean_norm, sigma2))

    def make_conflict(self, problem: Problem) -> Exception:
        """The error that `solve` raises for it."""
        try:
            solve(problem, self.evidence, tol=self.tol)
        except InfeasibleRulesError as conflict:
            return conflict
        return ArithmeticError("a conflict was found that solve() does not confirm; try a smaller tol")
