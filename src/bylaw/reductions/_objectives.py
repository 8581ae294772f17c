"""Objectives that are not linear, minimized by sequences of linear problems with warm starts.

- A ratio N / D is minimized by Dinkelbach's method. If q and D0 are the values of the ratio and of D under
  the last policy, the next policy minimizes q + (N - q D) / D0. The ratios fall faster than geometrically.
  At the end, this objective equals the ratio to first order, so prices are those of the ratio.
- A geometric mean of K rates is the minimum of sum_k w_k R_k / K over weights w with product one. So its
  maximum over policies is the minimum over w, which is a convex problem in log w, of the maximum of a
  weighted mean. That is a linear problem, and its rates are the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from bylaw._base import Floats
from bylaw.errors import RuleError
from bylaw.language import Atom, Problem, Rate, Ratio, Worst
from bylaw.program import (
    Dual,
    Solution,
    Status,
    check_options_of_ratio,
    compile_problem,
    make_blocks,
    measure_moments,
    measure_rate,
)
from bylaw.rows import Evidence
from bylaw.solvers import Solver, resolve_beta

_ROUNDS = 40  # largest number of rounds of Dinkelbach's method; five or six are usual
SETTLED = 1e-7  # the search ends when the objective changes by less, relative to one plus its size
ROUGHLY = 1e-4  # tolerance of intermediate solutions
VANISHES = 1e-6  # a smaller denominator counts as zero
_MEAN_STEPS = 60  # iterations of the search for the weights of a geometric mean


class Solved(NamedTuple):
    """A linear problem, its dual, its solution and the moments of the policy."""

    problem: Problem
    dual: Dual
    solution: Solution
    moments: Floats  # (F, A): E[phi pi']

    @property
    def infeasible(self) -> bool:
        return self.solution.status is Status.INFEASIBLE

    def measure(self, rate: Rate) -> float:
        """Return a linear rate of the policy of the solution."""
        return measure_moments(self.dual.form, rate, self.moments)


@dataclass
class WarmSolver:
    """A solver of linear problems on the same rows, which starts from the last solution."""

    evidence: Evidence
    solver: Solver
    beta: float | str
    tol: float
    last: Solved | None = None
    levels: dict[Any, float] = field(default_factory=dict)  # levels of the last predictive parity, by key

    def solve(self, problem: Problem, tol: float | None = None) -> Solved:
        """Solve a problem, starting from the multipliers, frequencies and blocks of the last one."""
        last = None if self.last is None else self.last.dual
        form = compile_problem(problem, self.evidence, None if last is None else dict(last.form.frequencies))
        same = last is not None and last.form.feature_map.features == form.feature_map.features
        dual = Dual(form, last.blocks if last and same else make_blocks(form, self.evidence), beta=1.0)
        dual = dual.with_beta(resolve_beta(self.beta, dual.n_rows, lambda: self.solver.auto_beta(dual)))
        alike = self.last is not None and self.last.dual.n_rules == dual.n_rules
        start = self.last.solution.multipliers if self.last is not None and alike else None
        solution = self.solver(dual, tol=self.tol if tol is None else tol, start=start)
        total = dual.tally(solution.multipliers, whole=True)
        found = Solved(problem, dual, solution, total.moments / total.mass)
        if not found.infeasible:
            self.last = found
        return found


def find_ratio_or_rate(problem: Problem) -> Rate | Ratio:
    """Return the objective; raise if it is the rate of the worst group."""
    if isinstance(problem.minimize, Worst):
        raise RuleError(
            f"minimize={problem.minimize} cannot be combined with rules on differences of ratios, such as "
            "predictive_parity(); bound the rate of each group instead: "
            "precision('yes').given(sex='F') >= 0.8"
        )
    return problem.minimize


def minimize_objective(problem: Problem, warm: WarmSolver, tol: float | None = None) -> Solved:
    """Return the solution of a linear problem whose objective has the same optimum as the problem's own."""
    objective = find_ratio_or_rate(problem).resolve(warm.evidence.classes)
    if objective.is_linear:
        return warm.solve(problem, tol)
    if (ratio := objective.split()) is not None:
        return _minimize_ratio(problem, ratio, warm, tol)
    assert isinstance(objective, Rate)
    return _maximize_mean(problem, objective, warm, tol)


def _minimize_ratio(problem: Problem, ratio: Ratio, warm: WarmSolver, tol: float | None) -> Solved:
    last = warm.last
    if last is None:
        check_denominator(problem, ratio, warm)
        parts = (ratio.numerator, ratio.denominator)
        forms = [compile_problem(problem.with_objective(part), warm.evidence) for part in parts]
        check_options_of_ratio(problem.minimize, forms, warm.evidence)
        # Begin with the denominator and the ratio if all decisions are equally likely.
        space = problem.action_space(warm.evidence.classes, warm.evidence.options)
        even = np.full((len(warm.evidence), len(space.actions)), 1 / len(space.actions))
        whole = measure_rate(ratio.denominator, warm.evidence, even, space)
        value = measure_rate(ratio.numerator, warm.evidence, even, space) / whole
    else:
        whole = last.measure(ratio.denominator)
        value = last.measure(ratio.numerator) / whole
    target = warm.tol if tol is None else tol
    precision, moved, round_ = max(ROUGHLY, target), math.inf, 0
    while True:
        found = warm.solve(problem.with_objective(expand_ratio(ratio, value, whole)), precision)
        if found.infeasible:
            return found
        whole, before, round_ = found.measure(ratio.denominator), value, round_ + 1
        value = found.measure(ratio.numerator) / whole
        moved = abs(value - before) / (1 + abs(value))
        if precision <= target and (moved <= SETTLED or round_ >= _ROUNDS):
            return found
        precision = target if moved <= math.sqrt(SETTLED) or round_ >= _ROUNDS else precision


def expand_ratio(ratio: Ratio, value: float, whole: float) -> Rate:
    """Return the first-order expansion of a ratio around a policy with this value and denominator."""
    return (ratio.numerator - value * ratio.denominator) / whole + value


def check_denominator(problem: Problem, ratio: Ratio, warm: WarmSolver) -> None:
    """Raise if a policy that satisfies the rules can make the denominator of the objective zero."""
    least = replace(warm, last=None).solve(problem.with_objective(ratio.denominator), ROUGHLY)
    if least.infeasible:
        return  # the conflict of the rules is reported later
    if least.measure(ratio.denominator) <= VANISHES:
        raise RuleError(
            f"the denominator of minimize={problem.minimize} must be positive, but "
            f"{_describe(ratio.denominator)} can be zero or less; add a rule such as "
            f"{_describe(ratio.denominator)} >= 0.01"
        )


def _describe(rate: Rate) -> str:
    """Return the text of a rate as it is written in rules."""
    match rate.terms:
        case ((Atom(share="whole", decision=decision), 1.0),) if decision is not None:
            return f"selected({decision!r})"
    return str(rate)


def _maximize_mean(problem: Problem, objective: Rate, warm: WarmSolver, tol: float | None) -> Solved:
    """Minimize an objective with one geometric mean of negative sign, and linear rates."""
    means = [(atom, c) for atom, c in objective.terms if atom.definition.factors is not None]
    (atom, factor), rest = means[0], objective - sum((Rate((term,)) for term in means), Rate(()))
    if len(means) > 1 or factor > 0:
        raise RuleError(
            f"minimize={problem.minimize} must contain one geometric mean with a negative sign, as in "
            f"1 - {atom}; split the objective, or turn the others into rules"
        )
    rates = atom.list_factors(warm.evidence.classes)

    def solve_at(logs: Floats, precision: float | None) -> tuple[Solved, Floats]:
        weights = np.exp(logs - logs.mean()) / len(rates)
        mean = sum((float(w) * rate for w, rate in zip(weights, rates, strict=True)), Rate(()))
        found = warm.solve(problem.with_objective(rest + factor * mean), precision)
        return found, weights * np.array([found.measure(rate) for rate in rates])

    def evaluate(logs: Floats) -> tuple[float, Floats]:
        found, parts = solve_at(logs, tol)
        return found.solution.value, -factor * (parts - parts.mean())

    begin = np.zeros(len(rates))
    first, _ = solve_at(begin, ROUGHLY)
    if first.infeasible:
        return first
    options = {"maxiter": _MEAN_STEPS, "ftol": 1e-13, "gtol": 1e-8}
    found = minimize(evaluate, begin, jac=True, method="L-BFGS-B", options=options)
    return solve_at(found.x, tol)[0]
