"""The function `sensitivity`, which computes the shadow price of each level and its range of validity."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bylaw._base import check_positive
from bylaw.calibration import Calibrate
from bylaw.engines import Scan, attach_observed
from bylaw.errors import RuleError
from bylaw.fitting._formatting import make_sensitivity_card
from bylaw.fitting._frontier import LevelPath, Lever, Point, find_lever, make_path
from bylaw.fitting._solve import check_problem
from bylaw.language import Problem
from bylaw.program import Status
from bylaw.rows import Evidence, make_frame
from bylaw.solvers import Solver

_DOUBLINGS = 40  # a range counts as unbounded after its width was doubled this many times


class Reach(NamedTuple):
    """The price of a rule, the range of levels in which the price is valid, and the cost of one step."""

    statement: str
    level: float  # the present level; nan if the statement does not have exactly one
    price: float  # the saving of cost per unit by which the level is loosened
    lower: float  # the lowest level at which the price is valid
    upper: float  # the highest level at which the price is valid
    cost_of_step: float  # the cost of the policy one step tighter, minus the present cost, or nan
    status: str  # "binds", "slack", "conflict" (one step tighter), "no tighter level" or "no level"


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """The price of each rule at its present level, and the range of levels in which the price is valid.

    Made by `sensitivity`; `to_frame()` returns a table.
    """

    minimize: str
    cost: float
    step: float
    within: float  # a price is valid as long as it changes by at most this share
    statements: tuple[Reach, ...]

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with one row per rule or family.

        Parameters
        ----------
        like : frame, optional
            The result is a frame of the same library; by default, of the first installed of pandas, polars
            and pyarrow.
        """
        columns = zip(*self.statements, strict=True) if self.statements else [()] * len(Reach._fields)
        return make_frame(dict(zip(Reach._fields, map(list, columns), strict=True)), like)

    def __repr__(self) -> str:
        lines = [f"{self.minimize} is {self.cost:.4g}; a step is {self.step:g}"]
        for reach in self.statements:
            lines += [f"  {reach.statement}", *(f"    {line}" for line in self._lines(reach))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return make_sensitivity_card(self).to_html()

    def _lines(self, reach: Reach) -> list[str]:
        cost = f"costs {reach.cost_of_step:.4g} (price x step: {reach.price * self.step:.4g})"
        one_step = {"conflict": "makes the rules conflict", "no tighter level": "is not possible"}
        if reach.status == "no level":
            return [f"price {reach.price:.4g}, for all its levels together"]
        interval = f"from {reach.lower:.4g} to {reach.upper:.4g}"
        right = f"to {self.within:.0%} {interval}" if reach.price else interval
        return [
            f"one step tighter {one_step.get(reach.status, cost)}",
            f"price {reach.price:.4g}, right {right}",
        ]


def sensitivity(
    problem: Problem,
    evidence: Evidence | Scan,
    *,
    step: float = 0.01,
    within: float = 0.1,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
    solver: str | Solver = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
) -> Sensitivity:
    """Compute the shadow price of each rule's level, its range of validity, and the cost of one step.

    Parameters
    ----------
    problem : Problem
    evidence : Evidence or Scan
        The rows. Scanned rows are read into memory, if they are not too many, with labels and groups if their
        columns name them.
    step : float
        The size of a step, in units of the level (the number that bounds a rule). The ends of ranges are
        accurate to a hundredth of it.
    within : float
        A price is valid as long as it changes by at most this share. The price of a rule that does not bind
        is valid as long as it is zero.
    labels, groups, propensity_weights, calibrate, margin : optional
        As in `solve`.
    solver, beta, tol
        As in `solve`.

    Returns
    -------
    Sensitivity

    Raises
    ------
    InfeasibleRulesError
        If the rules conflict at their present levels.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> result = sensitivity(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> result.statements[0].status
    'binds'
    """
    step, within = check_positive(step, "step"), check_positive(within, "within")
    check_problem(problem)
    levers = {}
    for i, rule in enumerate(problem.rules):
        with suppress(RuleError):  # a statement without a level
            levers[i] = find_lever(problem, rule)
    path = make_path(
        problem,
        attach_observed(evidence, labels=labels, groups=groups, propensity_weights=propensity_weights),
        list(levers.values()),
        solver=solver,
        beta=beta,
        tol=tol,
        calibrate=calibrate,
        margin=margin,
    )
    point = path.advance([lever.level for lever in path.levers])
    if path.conflict is not None:
        raise path.conflict
    reaches = []
    for i, rule in enumerate(problem.rules):
        if i in levers:
            reaches.append(_Search(path, point, levers[i], step, within).reach())
        else:
            price = path.price_statement(point, i)
            reaches.append(Reach(str(rule), math.nan, price, math.nan, math.nan, math.nan, "no level"))
    return Sensitivity(str(problem.minimize), point.cost, step, within, tuple(reaches))


@dataclass(frozen=True)
class _Search:
    """A search for the levels at which the price of one rule is valid."""

    path: LevelPath
    point: Point
    lever: Lever
    step: float
    within: float

    def reach(self) -> Reach:
        level, price = self.lever.level, self.path.price(self.point, self.lever)
        if price:
            ends = [self._end(-1.0, price), self._end(1.0, price)]
        else:
            ends = [self.path.find_binding_level(self.point, self.lever), self.lever.looser * math.inf]
        goal = level - self.lever.looser * self.step
        tighter = self._at(goal)
        status = "binds" if price else "slack"
        if tighter is None or tighter.status is Status.INFEASIBLE:
            status = "no tighter level" if tighter is None else "conflict"
        change = math.nan if tighter is None else tighter.cost - self.point.cost
        if not price and min(ends) <= goal <= max(ends):
            change = 0.0  # the same policy, but for rounding
        return Reach(str(self.lever.statement), level, price, min(ends), max(ends), change, status)

    def _at(self, level: float) -> Point | None:
        """Return the point at this level, or None if the rule cannot have this level."""
        levels = [level if lever == self.lever else lever.level for lever in self.path.levers]
        try:
            self.lever.statement.at(level)
        except RuleError:
            return None
        return self.path.advance(levels)

    def _is_right(self, level: float, price: float) -> bool:
        point = self._at(level)
        if point is None or point.status is Status.INFEASIBLE:
            return False
        return abs(self.path.price(point, self.lever) - price) <= self.within * price

    def _end(self, direction: float, price: float) -> float:
        """Return the last level in this direction at which the price is still valid.

        The step is doubled until the price is no longer valid, and then halved to a hundredth of `step`.
        """
        good, width = self.lever.level, self.step / 4
        for _ in range(_DOUBLINGS):
            if not self._is_right(good + direction * width, price):
                break
            good, width = good + direction * width, 2 * width
        else:
            return direction * math.inf
        while width > self.step / 100:
            width /= 2
            if self._is_right(good + direction * width, price):
                good += direction * width
        return good
