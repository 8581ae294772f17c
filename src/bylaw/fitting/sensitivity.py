"""What a level costs: the price of each rule, how far it reaches, and the cost of one more step."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bylaw._base.validation import check_positive
from bylaw.calibration.calibration import Calibrate
from bylaw.engines.scan import Scan
from bylaw.errors import RuleError
from bylaw.fitting.formatting import make_sensitivity_card
from bylaw.fitting.levels import LevelPath, Lever, Point, find_lever, make_path
from bylaw.language.problem import Problem
from bylaw.program.solution import Status
from bylaw.rows.arrays import make_frame
from bylaw.rows.evidence import Evidence
from bylaw.solvers import Solver

_DOUBLINGS = 40  # of a width, before a range is taken to have no end


class Reach(NamedTuple):
    """One statement: its price, where that price is right, and what one step costs."""

    statement: str
    level: float  # nan where a statement has no single level
    price: float  # points of cost that a point of slack in the level saves
    lower: float  # the price is right from here ...
    upper: float  # ... to here
    cost_of_step: float  # of the policy one step tighter, less the present cost; nan where there is none
    status: str  # "binds", "slack", "conflict" (one step tighter), "no tighter level" or "no level"


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """The price of each statement at the present levels, and the range in which it is right. Made by
    `sensitivity`; `to_frame()` gives a table."""

    minimize: str
    cost: float
    step: float
    within: float  # the share by which a price may change and still be called right
    statements: tuple[Reach, ...]

    def to_frame(self, like: Any = None) -> Any:
        """One line per statement. A frame of the library of `like`, or else of the first installed of
        pandas, polars, pyarrow."""
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
    """The shadow price of each rule's level, the range in which it is right, and the cost of one step.

    Parameters
    ----------
    problem : Problem
    evidence : Evidence or Scan
        rows that live elsewhere are read into memory, if they are not too many, with labels and groups if
        their columns name them.
    step : float
        how much tighter, in units of the level. The ends of ranges are found to a hundredth of it.
    within : float
        a price is right as long as it stays within this share of its present value; the price of a
        rule that does not bind, as long as it is zero.
    labels, groups, propensity_weights, calibrate, margin : optional
        as in `solve`, and then what it would return.
    solver, beta, tol
        as in `solve`.

    Raises
    ------
    InfeasibleRulesError
        when the rules conflict as they are.

    Returns
    -------
    Sensitivity

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> found = sensitivity(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> found.statements[0].status
    'binds'
    """
    step, within = check_positive(step, "step"), check_positive(within, "within")
    levers = _levers(problem)
    path = make_path(
        problem,
        evidence,
        list(levers.values()),
        solver=solver,
        beta=beta,
        tol=tol,
        labels=labels,
        groups=groups,
        propensity_weights=propensity_weights,
        calibrate=calibrate,
        margin=margin,
    )
    here = path.advance([lever.level for lever in path.levers])
    if path.conflict is not None:
        raise path.conflict
    reaches = [
        _Search(path, here, levers[i], step, within).reach() if i in levers else _without_level(path, here, i)
        for i in range(len(problem.rules))
    ]
    return Sensitivity(str(problem.minimize), here.cost, step, within, tuple(reaches))


def _levers(problem: Any) -> dict[int, Lever]:
    """Those statements that have a level, by position."""
    found = {}
    for i, rule in enumerate(problem.rules if isinstance(problem, Problem) else ()):
        with suppress(RuleError):
            found[i] = find_lever(problem, rule)
    return found


def _without_level(path: LevelPath, here: Point, place: int) -> Reach:
    price = path.price_statement(here, place)
    return Reach(str(here.problem.rules[place]), math.nan, price, math.nan, math.nan, math.nan, "no level")


@dataclass(frozen=True)
class _Search:
    """Re-solves around one point along one lever."""

    path: LevelPath
    here: Point
    lever: Lever
    step: float
    within: float

    def reach(self) -> Reach:
        level, price = self.lever.level, self.path.price(self.here, self.lever)
        if price:
            ends = [self._end(-1.0, price), self._end(1.0, price)]
        else:
            ends = [self.path.find_binding_level(self.here, self.lever), self.lever.looser * math.inf]
        goal = level - self.lever.looser * self.step
        tighter = self._at(goal)
        status = "binds" if price else "slack"
        if tighter is None or tighter.status is Status.INFEASIBLE:
            status = "no tighter level" if tighter is None else "conflict"
        change = math.nan if tighter is None else tighter.cost - self.here.cost
        if not price and min(ends) <= goal <= max(ends):
            change = 0.0  # the same policy, but for rounding
        return Reach(str(self.lever.statement), level, price, min(ends), max(ends), change, status)

    def _at(self, level: float) -> Point | None:
        """The point at this level; None if there is no such level."""
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
        """The last level in this direction at which the price is right: doubled until it is not, halved
        to a hundredth of a step."""
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
