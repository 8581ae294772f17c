"""A path of policies that differ in the levels of rules, used by `frontier` and `sensitivity`.

The level of a rule is the number that bounds it. Each point is the policy that `solve` returns for the rules
at some levels; the solver starts from the prices of the last point.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from bylaw._base import Value, find_stack_level
from bylaw.engines import Scan
from bylaw.errors import ConvergenceWarning, GuaranteeWarning, InfeasibleRulesError
from bylaw.fitting._solve import make_fitter, refuse_calibration
from bylaw.language import Objective, Problem, Rate, Statement
from bylaw.policy import Policy
from bylaw.program import Status
from bylaw.reductions import Fitter
from bylaw.rows import Evidence
from bylaw.solvers import FullBatch, WarmFullBatch

_ANY_LEVELS = (0.5, 0.75)  # two levels that any rule can have, to find lines through rates minus bounds


@dataclass(frozen=True)
class Lever:
    """A rule or family of a problem whose level (the number that bounds it) can be changed."""

    place: int  # index among the rules of the problem
    statement: Statement

    @property
    def level(self) -> float:
        """The level of the rule in the problem."""
        assert not isinstance(self.statement.level, tuple)  # levers have one level
        return self.statement.level

    @property
    def label(self) -> str:
        """The text of the rule with the word `level` in place of the number."""
        return self.statement.template

    @property
    def looser(self) -> Literal[-1, 1]:
        """One if a higher level loosens the rule, minus one if a lower level does."""
        return self.statement.loosening


def find_lever(problem: Problem, statement: Statement | str) -> Lever:
    """Find a rule, given as the object or its text, and return its lever; raise if it has no level."""
    place = problem.find(statement)
    rule = problem.rules[place]
    rule.at(_ANY_LEVELS[0])  # raises if the statement has no level
    return Lever(place, rule)


def at_levels(problem: Problem, levers: Sequence[Lever], levels: Sequence[float]) -> Problem:
    """Return the problem with the rules of these levers at other levels."""
    rules = list(problem.rules)
    for lever, level in zip(levers, levels, strict=True):
        rules[lever.place] = lever.statement.at(level)
    return problem.with_rules(rules)


def differentiate(lever: Lever, evidence: Evidence, options: Sequence[Value]) -> list[tuple[Rate, Rate]]:
    """Return the excess (rate minus bound) of each single rule at level zero, and its slope in the level.

    The slope is -1 for an upper bound. If the level multiplies a rate, the slope is minus that rate.
    """
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
    """Return the tightest level at which decisions with these rates satisfy the rule, or nan."""
    lines = [(measure(start), measure(slope)) for start, slope in differentiate(lever, evidence, options)]
    needed = [-start / slope for start, slope in lines if slope]
    return max(needed, key=lambda level: lever.looser * level, default=math.nan)


@dataclass(frozen=True, eq=False)
class Point:
    """A problem on a path with its policy, which is None if the rules conflict."""

    problem: Problem
    levels: tuple[float, ...]
    policy: Policy | None
    cost: float

    @property
    def status(self) -> Status:
        """The status with which the solver ended."""
        return Status.INFEASIBLE if self.policy is None else self.policy.solution.status


class LevelPath:
    """A sequence of policies of one problem at different levels of its rules."""

    def __init__(self, problem: Problem, fitter: Fitter, levers: Sequence[Lever]) -> None:
        warm = replace(fitter, solver=WarmFullBatch()) if isinstance(fitter.solver, FullBatch) else fitter
        self.problem, self.fitter, self.levers = problem, warm, tuple(levers)
        self.evidence = fitter.evidence
        self.options = problem.action_space(self.evidence.classes, self.evidence.options).options
        self.conflict: InfeasibleRulesError | None = None  # the first error
        self.conflicts: list[tuple[float, ...]] = []  # levels at which the rules conflict
        self.missed = 0  # number of points at which observed rates violate rules

    def advance(self, levels: Sequence[float]) -> Point:
        """Fit the problem with its levers at these levels, and return the point."""
        problem, levels = at_levels(self.problem, self.levers, levels), tuple(levels)
        if any(self._is_tighter(levels, conflict) for conflict in self.conflicts):
            return Point(problem, levels, None, math.nan)
        with warnings.catch_warnings():  # `warn` gives one warning for all points
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", GuaranteeWarning)
            try:
                policy = self.fitter.fit(problem)
            except InfeasibleRulesError as conflict:
                self.conflict = self.conflict or conflict
                self.conflicts.append(levels)
                return Point(problem, levels, None, math.nan)
        self.missed += policy.solution.status is Status.MISSED
        return Point(problem, levels, policy, self._measure(policy)(problem.minimize))

    def _is_tighter(self, levels: tuple[float, ...], others: tuple[float, ...]) -> bool:
        """Return whether each level is at least as tight as the one of the same rule in `others`."""
        pairs = zip(self.levers, levels, others, strict=True)
        return all(lever.looser * level <= lever.looser * other for lever, level, other in pairs)

    def price(self, point: Point, lever: Lever) -> float:
        """Return the price of a level: the saving of cost per unit by which the level is loosened."""
        if point.policy is None:
            return math.nan
        slopes = [slope for _, slope in differentiate(lever, self.evidence, self.options)]
        if not any(slope.terms for slope in slopes):  # bounds
            return self.price_statement(point, lever.place)
        text, measure = str(point.problem.rules[lever.place]), self._measure(point.policy)
        prices = [one.multiplier for one in point.policy.rule_prices if one.statement == text]
        pairs = zip(prices, slopes, strict=True)
        return -lever.looser * sum(price * measure(slope) for price, slope in pairs if price) + 0.0

    def price_statement(self, point: Point, place: int) -> float:
        """Return the price of a rule or family, for all of its levels together."""
        if point.policy is None:
            return math.nan
        return point.policy.prices.get(str(point.problem.rules[place]), 0.0)

    def find_binding_level(self, point: Point, lever: Lever) -> float:
        """Return the tightest level of a rule that the policy of a point satisfies, or nan."""
        if point.policy is None:
            return math.nan
        return find_met_level(lever, self._measure(point.policy), self.evidence, self.options)

    def _measure(self, policy: Policy) -> Callable[[Objective], float]:
        """Return a function that computes rates of a policy on the observed rows."""
        chances = policy.probabilities(self.evidence)
        return partial(policy.expected, evidence=self.fitter.outcome, probabilities=chances)

    def warn(self, points: int) -> None:
        """Warn if observed rates violate the rules at some points."""
        if self.missed:
            message = (
                f"the observed rates violate rules at {self.missed} of {points} levels, because the scores "
                "predict these rates too poorly; the status of these levels is 'missed'"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=find_stack_level())


def make_path(
    problem: Problem,
    evidence: Evidence | Scan,
    levers: Sequence[Lever],
    **options: Any,
) -> LevelPath:
    """Return a path whose points are fitted with these options of `solve`.

    Scanned rows are read into memory, with the labels, groups and weights that their columns name.
    """
    if isinstance(evidence, Scan):
        refuse_calibration(options.get("calibrate"))
        evidence = evidence.read()
    return LevelPath(problem, make_fitter(problem, evidence, **options), levers)
