"""The function `frontier`, and the path of policies at different levels that `sensitivity` uses, too."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bylaw._base import Floats, Value, find_stack_level
from bylaw.calibration import Calibrate
from bylaw.engines import Scan, attach_observed
from bylaw.errors import ConvergenceWarning, GuaranteeWarning, InfeasibleRulesError, OptionError
from bylaw.fitting._formatting import make_frontier_card, plot_frontier
from bylaw.fitting._solve import check_problem, make_fitter, refuse_calibration
from bylaw.language import Objective, Problem, Rate, Statement
from bylaw.policy import Policy
from bylaw.program import Status
from bylaw.reductions import Fitter
from bylaw.rows import Evidence, as_numbers, make_frame
from bylaw.solvers import FullBatch, Solver, WarmFullBatch
from bylaw.view import Table

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


_SHOWN = 5  # points that are printed at each end of a frontier


class Progress(NamedTuple):
    """A finished point of a frontier, which is passed to callbacks."""

    number: int  # number of points finished so far
    total: int
    levels: tuple[float, ...]
    cost: float
    status: Status


@dataclass(frozen=True, repr=False, eq=False)
class Frontier:
    """The result of `frontier`: the least cost at each level of one or two rules, in the order of the sweep.

    With two rules, the level of the second varies faster. If the rules conflict at some levels, the cost and
    the prices of that point are nan, and its policy is None.

    Parameters
    ----------
    problem : Problem
    swept : tuple of str
        The rules whose levels (the numbers that bound them) vary, with the word `level` for the number.
    levels : array of shape (n_points, n_swept)
    cost : array of shape (n_points,)
        The cost of the policy: the expected cost by the probabilities of the evidence or, if labels or groups
        were given, the observed cost.
    prices : array of shape (n_points, n_swept)
        The shadow price of each rule: the saving for one more unit of its level.
    status : tuple of Status
        The status with which the solver ended at each point.
    policies : tuple of Policy or None
        The policy of each point.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, frontier, rejected
    >>> evidence = Evidence([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    >>> curve = frontier(Problem(error(), [rejected() <= 0.1]), evidence, {"rejected() <= 0.1": [0.0, 0.25]})
    >>> curve.swept
    ('rejected() <= level',)
    >>> curve.cost.round(2).tolist()  # rejecting the last row saves its error of 0.4, on one row of four
    [0.25, 0.15]
    >>> round(curve.policies[1].expected(rejected(), evidence), 2)
    0.25
    """

    problem: Problem
    swept: tuple[str, ...]
    levels: Floats
    cost: Floats
    prices: Floats
    status: tuple[Status, ...]
    policies: tuple[Policy | None, ...]

    def __len__(self) -> int:
        return len(self.cost)

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with the levels, the cost, a price per swept rule and the status of each point.

        Parameters
        ----------
        like : frame, optional
            The result is a frame of the same library; by default, of the first installed of pandas, polars
            and pyarrow.
        """
        return make_frame(
            {
                **{name: self.levels[:, i] for i, name in enumerate(self.swept)},
                "cost": self.cost,
                **{f"price of {name}": self.prices[:, i] for i, name in enumerate(self.swept)},
                "status": [status.name.lower() for status in self.status],
            },
            like,
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the frontier with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        matplotlib axes
            The axes of the cost. With one rule, cost against level, with tangents whose slopes are the prices
            and, in a new figure, the price below. With two rules, lines of equal cost.
        """
        return plot_frontier(self, ax)

    def __repr__(self) -> str:
        title = f"Frontier of {self.problem.minimize} over {' and '.join(self.swept)}, {len(self)} points"
        heads = [f"level {i + 1}" if len(self.swept) > 1 else "level" for i in range(len(self.swept))]
        heads += ["cost", *(head.replace("level", "price") for head in heads), "status"]
        numbers = np.column_stack([self.levels, self.cost, self.prices]).tolist()
        rows = [
            [*(f"{value:.4g}" for value in line), status.name.lower()]
            for line, status in zip(numbers, self.status, strict=True)
        ]
        if len(rows) > 2 * _SHOWN:
            rows[_SHOWN:-_SHOWN] = [["..."] * len(heads)]
        return "\n  ".join([title, *Table(heads, rows, range(len(heads))).to_lines(heads=True)])

    def _repr_html_(self) -> str:
        return make_frontier_card(self).to_html()


def frontier(
    problem: Problem,
    evidence: Evidence | Scan,
    sweep: Mapping[Statement | str, Any],
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
    solver: str | Solver = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-5,
    callback: Callable[[Progress], Any] | None = None,
) -> Frontier:
    """Compute the trade-off between rules and cost: the least cost at each of many levels of a rule.

    Parameters
    ----------
    problem : Problem
    evidence : Evidence or Scan
        The rows. Scanned rows are read into memory, if they are not too many, with labels and groups if their
        columns name them.
    sweep : dict
        {rule: levels} for one or two rules or families of the problem, given as the objects or their texts.
        Two give the grid of both. The level is the number that bounds a rule: 0.1 in `rejected() <= 0.1`,
        0.02 in `abs(rate) <= 0.02`, the tol or ratio of a family, and 0.05 in `error() <= 0.05 * accepted()`.
    labels, groups, propensity_weights, calibrate, margin : optional
        As in `solve`. Each point is the policy that `solve` returns with these arguments; with labels or
        groups, its cost is the observed one.
    solver : str or Solver
        As in `solve`. The full batch solver starts from the last point.
    beta : float, "auto" or "paper"
        One inverse temperature for all points, as in `solve`.
    tol : float
        As in `solve`. The default, 1e-5, is also about the precision of the costs.
    callback : callable, optional
        Called with the `Progress` after each point; points come from loose to tight.

    Returns
    -------
    Frontier

    Raises
    ------
    InfeasibleRulesError
        If the rules conflict at every level. Conflicts at some levels are marked in `Frontier.status`.

    Warns
    -----
    ConvergenceWarning
        If the observed rates violate rules at some levels; their status is "missed".

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, frontier, rejected
    >>> evidence = Evidence([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    >>> budget = rejected() <= 0.1
    >>> curve = frontier(Problem(error(), [budget]), evidence, {budget: [0.0, 0.25]})
    >>> curve.cost.round(2).tolist()
    [0.25, 0.15]
    """
    levers, values = _read_sweep(problem, sweep)
    path = make_path(
        problem,
        attach_observed(evidence, labels=labels, groups=groups, propensity_weights=propensity_weights),
        levers,
        solver=solver,
        beta=beta,
        tol=tol,
        calibrate=calibrate,
        margin=margin,
    )
    for corner in itertools.product(*((min(levels), max(levels)) for levels in values)):
        # Raise now if a combination of levels is not possible.
        at_levels(problem, levers, corner).expand(
            path.evidence.classes, path.evidence.group_values, path.options
        )
    grid = list(itertools.product(*values))
    points: dict[int, Point] = {}
    for i in _order_points(levers, values):
        points[i] = path.advance(grid[i])
        if callback is not None:
            callback(Progress(len(points), len(grid), grid[i], points[i].cost, points[i].status))
    ordered = [points[i] for i in range(len(grid))]
    if all(point.status is Status.INFEASIBLE for point in ordered):
        conflict = path.conflict
        assert conflict is not None
        conflict.add_note("The rules conflict even at the loosest levels of the sweep.")
        raise conflict
    path.warn(len(points))
    return Frontier(
        problem=problem,
        swept=tuple(lever.label for lever in levers),
        levels=np.array(grid),
        cost=np.array([point.cost for point in ordered]),
        prices=np.array([[path.price(point, lever) for lever in levers] for point in ordered]),
        status=tuple(point.status for point in ordered),
        policies=tuple(point.policy for point in ordered),
    )


def _read_sweep(problem: Problem, sweep: Any) -> tuple[list[Lever], list[tuple[float, ...]]]:
    """Check a sweep, and return its rules with their levels."""
    check_problem(problem)
    if not isinstance(sweep, Mapping) or not 1 <= len(sweep) <= 2:
        raise OptionError(
            "sweep must be a dict with one or two rules and their levels, such as {rule: [0.01, 0.02]}, "
            f"got {sweep!r}"
        )
    levers = [find_lever(problem, statement) for statement in sweep]
    values = []
    for lever, given in zip(levers, sweep.values(), strict=True):
        levels = as_numbers(given, f"the levels of {lever.statement}")
        if not len(levels) or not np.isfinite(levels).all():
            raise OptionError(
                f"the levels of {lever.statement} must be one or more finite numbers, got {given!r}"
            )
        for level in levels.tolist():
            lever.statement.at(level)  # raises if the rule cannot have this level
        values.append(tuple(levels.tolist()))
    if len(levers) == 2 and levers[0] == levers[1]:
        raise OptionError(f"sweep must name two different rules, got {levers[0].statement} twice")
    return levers, values


def _order_points(levers: Sequence[Lever], values: Sequence[tuple[float, ...]]) -> Iterator[int]:
    """Yield the indices of the points of a grid, from loose to tight levels.

    Loose rules have a price of zero and rarely conflict, so the path starts with them. With two rules, every
    second line of the grid is traversed backwards, so that successive points are neighbors.
    """
    tightness = [-lever.looser * np.array(v) for lever, v in zip(levers, values, strict=True)]
    orders = [np.argsort(values, kind="stable") for values in tightness]
    if len(orders) == 1:
        yield from orders[0].tolist()
        return
    for turn, row in enumerate(orders[0].tolist()):
        columns = orders[1][:: -1 if turn % 2 else 1]
        yield from (row * len(values[1]) + column for column in columns.tolist())
