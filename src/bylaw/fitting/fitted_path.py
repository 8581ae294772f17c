"""The way from one level of a rule to the next with labels, groups, a calibration or a margin: each point is
the policy that `solve` returns there."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from bylaw._base.callers import find_stack_level
from bylaw.backends.scan import Scan, read_rows
from bylaw.calibration.calibration import Calibrate
from bylaw.data.evidence import Evidence
from bylaw.errors import ConvergenceWarning, GuaranteeWarning, InfeasibleRulesError, OptionError
from bylaw.fitting.fitter import Fitter
from bylaw.fitting.solution_path import Lever, SolutionPath, at_levels, differentiate, find_met_level
from bylaw.fitting.solve import make_fitter, refuse_columns
from bylaw.formulation.solution import Status
from bylaw.language.problem import Problem
from bylaw.language.worst import Objective
from bylaw.policy.policy import Policy
from bylaw.solvers.base import Solver
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.warm_full_batch import WarmFullBatch


@dataclass(frozen=True, eq=False)
class FittedPoint:
    """A problem on the path, and its policy; there is none where the rules conflict."""

    problem: Problem
    levels: tuple[float, ...]
    policy: Policy | None
    cost: float

    @property
    def status(self) -> Status:
        return Status.INFEASIBLE if self.policy is None else self.policy.solution.status


class FittedPath:
    """Fits one problem after another that differ in levels alone."""

    def __init__(self, problem: Problem, fitter: Fitter, levers: Sequence[Lever]) -> None:
        warm = replace(fitter, solver=WarmFullBatch()) if isinstance(fitter.solver, FullBatch) else fitter
        self.problem, self.fitter, self.levers = problem, warm, tuple(levers)
        self.evidence = fitter.evidence
        self.options = problem.action_space(self.evidence.classes, self.evidence.options).options
        self.conflict: InfeasibleRulesError | None = None  # the first
        self.missed = 0  # points whose rules do not hold as observed

    def advance(self, levels: Sequence[float]) -> FittedPoint:
        """The next point: the problem with its levers at these levels."""
        problem, levels = at_levels(self.problem, self.levers, levels), tuple(levels)
        with warnings.catch_warnings():  # of all points together, see `warn`
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", GuaranteeWarning)
            try:
                policy = self.fitter.fit(problem)
            except InfeasibleRulesError as conflict:
                self.conflict = self.conflict or conflict
                return FittedPoint(problem, levels, None, math.nan)
        self.missed += policy.solution.status is Status.MISSED
        return FittedPoint(problem, levels, policy, self._measure(policy)(problem.minimize))

    def start_from(self, point: FittedPoint) -> None:
        """The next point is near this one: the solver remembers it."""

    def price(self, point: FittedPoint, lever: Lever) -> float:
        """Points of cost that a point of slack in the level saves: the derivative of the least cost."""
        if point.policy is None:
            return math.nan
        slopes = [slope for _, slope in differentiate(lever, self.evidence, self.options)]
        if not any(slope.terms for slope in slopes):  # bounds
            return self.price_statement(point, lever.place)
        text, measure = str(point.problem.rules[lever.place]), self._measure(point.policy)
        prices = [one.multiplier for one in point.policy.rule_prices if one.statement == text]
        pairs = zip(prices, slopes, strict=True)
        return -lever.looser * sum(price * measure(slope) for price, slope in pairs if price) + 0.0

    def price_statement(self, point: FittedPoint, place: int) -> float:
        """The same for all levels of a statement together."""
        if point.policy is None:
            return math.nan
        return point.policy.prices.get(str(point.problem.rules[place]), 0.0)

    def find_binding_level(self, point: FittedPoint, lever: Lever) -> float:
        """The tightest level that the point's policy satisfies."""
        if point.policy is None:
            return math.nan
        return find_met_level(lever, self._measure(point.policy), self.evidence, self.options)

    def _measure(self, policy: Policy) -> Callable[[Objective], float]:
        """Rates of a policy as observed."""
        chances = policy.probabilities(self.evidence)
        return partial(policy.expected, evidence=self.fitter.outcome, probabilities=chances)

    def make_conflict(self, problem: Problem) -> Exception:
        """The error that `solve` raises for its loosest levels."""
        if self.conflict is not None:
            return self.conflict
        return ArithmeticError(f"{problem} does not conflict")

    def warn(self, points: int) -> None:
        """Of points whose rules do not hold as observed."""
        if self.missed:
            message = (
                f"at {self.missed} of {points} levels the observed rates of these rows do not satisfy every "
                "rule: the scores tell too little about it. Their status is 'missed'"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=find_stack_level())


def make_path(
    problem: Problem,
    evidence: Evidence | Scan,
    levers: Sequence[Lever],
    *,
    solver: str | Solver = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
    labels: Any = None,
    groups: Any = None,
    seen_weights: Any = None,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
) -> SolutionPath | FittedPath:
    """As predicted, or as `solve` does with labels, groups, a calibration or a margin. Scanned rows are read,
    with what their columns tell."""
    if not isinstance(problem, Problem):
        raise OptionError(f"a Problem comes first and then Evidence, not {type(problem).__name__}")
    rows = read_rows(evidence)
    if isinstance(evidence, Scan):
        refuse_columns(labels=labels, groups=groups, seen_weights=seen_weights, calibrate=calibrate)
        labels, groups, seen_weights = rows.labels, rows.groups, rows.seen_weights
    stated = {"labels": labels, "groups": groups, "seen_weights": seen_weights, "calibrate": calibrate}
    given = {name: value for name, value in stated.items() if value is not None}
    if not given and not margin:
        return SolutionPath(problem, rows.evidence, levers, solver=solver, beta=beta, tol=tol)
    options = {"solver": solver, "beta": beta, "tol": tol, "margin": margin, **given}
    return FittedPath(problem, make_fitter(problem, rows.evidence, **options), levers)
