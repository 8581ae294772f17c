"""The cost of each rule at other levels: one frontier for each rule, at levels from tight to free."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import BylawError, ConvergenceWarning, InfeasibleRulesError, OptionError
from bylaw.fitting.frontier import Frontier, frontier
from bylaw.fitting.levels import Lever, find_lever, find_met_level
from bylaw.fitting.solve import solve
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.program.solution import Status
from bylaw.report.rows import ReportRows
from bylaw.rows.evidence import Evidence
from bylaw.view.numbers import Unit
from bylaw.view.sentences import find_level_unit, is_factor, write_amount_saved

_MOST_CURVES = 8


@dataclass(frozen=True)
class Curve:
    """Cost against the level of one statement, by rising level."""

    statement: Statement
    level: float  # the present one
    levels: Floats  # (n_points,)
    cost: Floats  # (n_points,): nan where the rules conflict
    prices: Floats  # (n_points,)
    missed: tuple[bool, ...]  # where the rules do not all hold as observed

    @property
    def unit(self) -> Unit:
        """How the level is read."""
        return find_level_unit(self.statement)

    @property
    def now(self) -> int:
        """The point of the present level."""
        return int(np.abs(self.levels - self.level).argmin())


@dataclass(frozen=True)
class Curves:
    """The curves of a report, and how they were made."""

    curves: Sequence[Curve] = ()
    missing: Sequence[str] = ()  # statements without a curve
    observed: bool | None = None  # whether costs are observed or predicted; None for given frontiers
    without: Mapping[str, float] = field(default_factory=dict)  # how much lower the cost is without a rule

    @property
    def measurement(self) -> str:
        """How the costs were measured."""
        return {True: "as observed", False: "as predicted", None: "as given"}[self.observed]

    def find_price(self, statement: Statement) -> float | None:
        """Return the price at the present level; None if there is no curve."""
        prices = [float(one.prices[one.now]) for one in self.curves if one.statement == statement]
        return prices[0] if prices else None


class _Point(NamedTuple):
    """A level that is solved."""

    level: float
    cost: float  # nan where the rules conflict
    price: float
    missed: bool = False  # whether some rules do not hold as observed


def trace_curves(
    rows: ReportRows,
    points: int,
    given: Sequence[Frontier] | None,
    margin: float | Literal["auto"] = 0.0,
) -> Curves:
    """Trace the curve of every statement with a single level.

    Each point is fitted as the policy was: with the labels and groups of these rows, and with its margin. The
    policy itself, and the policy without the rule, are points that need no further fit.
    """
    policy, problem = rows.policy, rows.policy.problem
    if given is not None:
        return Curves([_convert_frontier(problem, one) for one in given])
    evidence, options = _recall_fit(rows, margin)
    cost, prices, curves = rows.compare(problem.minimize).policy, policy.prices, list[Curve]()
    missing, without = list[str](), dict[str, float]()
    for place, statement in enumerate(problem.rules):
        idle = not write_amount_saved(prices.get(str(statement), 0.0), statement, problem.minimize)
        wanted = len(curves) < _MOST_CURVES
        free = _solve_without(rows, place, evidence, options) if wanted or (idle and rows.fitted) else None
        if idle and rows.fitted and free is not None and len(without) < _MOST_CURVES:
            # The next step of this rule saves nothing, but the rule may still cost something.
            chances = free.probabilities(rows.evidence)
            saved = cost - free.expected(problem.minimize, rows.seen, probabilities=chances)
            without[str(statement)] = saved if saved > 1e-4 * abs(cost) else 0.0
        curve = _trace_curve(rows, statement, points, evidence, options, free) if wanted else None
        if curve is None:
            missing.append(str(statement))
        else:
            curves.append(curve)
    return Curves(curves, missing, evidence.has_observed or bool(options), without)


def _recall_fit(rows: ReportRows, margin: float | Literal["auto"]) -> tuple[Evidence, dict[str, Any]]:
    """Return the rows and options of `solve` that chose the policy, as far as they are known.

    The rows have labels and true groups only if the policy was chosen by observed rates.
    """
    policy, evidence = rows.policy, rows.evidence
    if not policy.observed or not rows.fitted:
        return evidence.without_observed(), {}
    kept = margin if policy.certificate is None else policy.certificate.margin
    options: dict[str, Any] = {"margin": kept} if kept else {}
    stated = policy.card.options
    if stated and not (stated["labels"] or stated["groups"]):  # chosen with a margin alone
        return evidence.without_observed(), options
    if evidence.has_observed:
        options["calibrate"] = "none"  # the rows are calibrated as the policy calibrates them
    return evidence, options


def _solve_without(
    rows: ReportRows, place: int, evidence: Evidence, options: dict[str, Any]
) -> Policy | None:
    """Return the policy under all rules but one; None if those conflict."""
    policy, problem = rows.policy, rows.policy.problem
    others = problem.with_rules([rule for i, rule in enumerate(problem.rules) if i != place])
    with suppress(BylawError), warnings.catch_warnings():  # its decisions are not used
        warnings.simplefilter("ignore")
        return solve(others, evidence, beta=policy.beta, deterministic=policy.deterministic, **options)
    return None


def _trace_curve(
    rows: ReportRows,
    statement: Statement,
    points: int,
    evidence: Evidence,
    options: dict[str, Any],
    free: Policy | None,
) -> Curve | None:
    """Return a curve; None if the statement has no level, or the rules conflict at all levels."""
    policy, problem, minimize = rows.policy, rows.policy.problem, rows.policy.problem.minimize
    try:
        lever = find_lever(problem, statement)
    except BylawError:
        return None
    levels = _choose_levels(rows, lever, points, free)
    solved = list[_Point]()
    if not (options or policy.observed or policy.deterministic):
        measure = partial(policy.expected, minimize, evidence)
        if rows.fitted and not is_factor(statement):
            price = policy.prices.get(str(statement), 0.0)
            solved.append(_Point(lever.level, measure(probabilities=rows.probabilities), price))
        loosest = float(levels[-1] if lever.looser > 0 else levels[0])
        if free is not None and lever.looser * (loosest - _find_free_level(rows, lever, free)) >= 0:
            cost = measure(probabilities=free.probabilities(rows.evidence))
            solved.append(_Point(loosest, cost, 0.0))
    remaining = [level for level in levels.tolist() if level not in [point.level for point in solved]]
    sweep: dict[Statement | str, Any] = {statement: remaining}
    try:
        with warnings.catch_warnings():  # levels at which rules are missed are marked
            warnings.simplefilter("ignore", ConvergenceWarning)
            if remaining:
                path = frontier(problem, evidence, sweep, beta=policy.beta, **options)
                solved += _list_points(path)
    except InfeasibleRulesError:
        if not solved:
            return None
        solved += [_Point(level, math.nan, math.nan) for level in remaining]
    except BylawError:
        return None
    return _make_curve(lever, solved)


def _list_points(path: Frontier) -> list[_Point]:
    missed = [status is Status.MISSED for status in path.status]
    numbers = zip(path.levels[:, 0].tolist(), path.cost, path.prices[:, 0], missed, strict=True)
    return [_Point(*point) for point in numbers]


def _make_curve(lever: Lever, points: Sequence[_Point]) -> Curve:
    levels, cost, prices, missed = zip(*sorted(points, key=lambda point: point.level), strict=True)
    return Curve(lever.statement, lever.level, np.array(levels), np.array(cost), np.array(prices), missed)


def _convert_frontier(problem: Problem, path: Frontier) -> Curve:
    """Return a frontier of the caller as a curve; raise if it is not about a rule of the policy."""
    if not isinstance(path, Frontier) or len(path.swept) != 1:
        raise OptionError("frontiers= must be a list of frontiers over one rule each")
    lever = None
    for rule in problem.rules:
        with suppress(BylawError):  # rules without a level have no lever
            lever = one if (one := find_lever(problem, rule)).label == path.swept[0] else lever
    if lever is None:
        raise OptionError(f"the policy has no rule {path.swept[0]!r} that this frontier could be about")
    if not np.isclose(path.levels[:, 0], lever.level, rtol=0, atol=1e-12).any():
        raise OptionError(
            f"the frontier of {lever.label!r} lacks the rule's own level: add {lever.level:g} to its levels"
        )
    return _make_curve(lever, _list_points(path))


def _choose_levels(rows: ReportRows, lever: Lever, points: int, free: Policy | None) -> Floats:
    """Return levels from tight to where the rule no longer binds, with the present level among them."""
    level, sign = lever.level, lever.looser
    free_level = math.nan if free is None else _find_free_level(rows, lever, free)
    # A curve ends at five times the present level beyond it, or at 0.05 if that is zero.
    reach, span = 5.0 * abs(level), 0.05
    room = max(sign * (free_level - level), 0.0) if math.isfinite(free_level) else reach or span
    loose = level + sign * (min(room, reach) if reach else room)
    tight = level - sign * max(room, abs(level))
    if sign > 0:
        tight = max(tight, 0.0) if level >= 0 else tight
    elif find_level_unit(lever.statement) != "plain":
        tight = min(tight, 1.0)
    first, last = sorted((tight, loose))
    if first == last:
        last += span
    return np.unique([*np.linspace(first, last, points), level])


def _find_free_level(rows: ReportRows, lever: Lever, free: Policy) -> float:
    """Return the level that decisions without this rule satisfy; nan if it is not known."""
    chances = free.probabilities(rows.evidence)
    measure = partial(free.expected, evidence=rows.evidence, probabilities=chances)
    return find_met_level(lever, measure, rows.evidence, rows.policy.action_space.options)
