"""What each rule costs at other levels: frontiers of one rule at a time, at levels worth seeing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import BylawError, OptionError
from bylaw.fitting.frontier import Frontier, frontier
from bylaw.fitting.solution_path import Lever, find_lever
from bylaw.fitting.solve import solve
from bylaw.language.expressions import Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.report.number_format import Unit
from bylaw.report.rows import Cases
from bylaw.report.sentences import is_share

MOST_CURVES = 8
_FARTHEST = 5.0  # times the present level, beyond it
_SPAN = 0.05  # where the present level is zero and nothing tells how far to go


@dataclass(frozen=True)
class Curve:
    """Cost against the level of one statement, by rising level."""

    statement: Statement
    level: float  # the present one
    looser: int  # the sign of a looser level
    unit: Unit  # of the level
    levels: Floats  # (n_points,)
    cost: Floats  # (n_points,): nan where the rules conflict
    prices: Floats  # (n_points,)
    minimize: Rate

    @property
    def now(self) -> int:
        """The point of the present level."""
        return int(np.abs(self.levels - self.level).argmin())


def curves_of(cases: Cases, points: int, given: Sequence[Frontier] | None) -> tuple[list[Curve], list[str]]:
    """Of every statement with a single level; and the statements without a curve."""
    problem = cases.policy.problem
    if given is not None:
        return [_from_frontier(problem, one) for one in given], []
    curves: list[Curve] = []
    missing: list[str] = []
    for statement in problem.rules:
        curve = _curve(cases, statement, points) if len(curves) < MOST_CURVES else None
        curves += [curve] if curve else []
        missing += [] if curve else [str(statement)]
    return curves, missing


def _curve(cases: Cases, statement: Statement, points: int) -> Curve | None:
    """None where it has no level, or the rules conflict at all of them on these rows."""
    policy = cases.policy
    try:
        lever = find_lever(policy.problem, statement)
        levels = _levels(cases, lever, points)
        found = frontier(policy.problem, cases.evidence, {statement: levels}, beta=policy.beta)
    except BylawError:
        return None
    return _from_frontier(policy.problem, found)


def _from_frontier(problem: Problem, found: Frontier) -> Curve:
    if not isinstance(found, Frontier) or len(found.swept) != 1:
        raise OptionError("frontiers= takes a list of frontiers over one rule each")
    levers = [lever for rule in problem.rules if (lever := _lever(problem, rule))]
    lever = next((one for one in levers if one.label == found.swept[0]), None)
    if lever is None:
        raise OptionError(f"the policy has no rule {found.swept[0]!r} that this frontier could be about")
    if not np.isclose(found.levels[:, 0], lever.level, rtol=0, atol=1e-12).any():
        raise OptionError(
            f"the frontier of {lever.label!r} lacks the rule's own level: add {lever.level:g} to its levels"
        )
    order = np.argsort(found.levels[:, 0], kind="stable")
    return Curve(
        statement=lever.statement,
        level=lever.level,
        looser=lever.looser,
        unit=level_unit(lever.statement),
        levels=found.levels[order, 0],
        cost=found.cost[order],
        prices=found.prices[order, 0],
        minimize=found.problem.minimize,
    )


def _lever(problem: Problem, statement: Statement) -> Lever | None:
    try:
        return find_lever(problem, statement)
    except BylawError:
        return None


def level_unit(statement: Statement) -> Unit:
    """A factor of a rate is read as a share of it."""
    if isinstance(statement, Family):
        return "share" if statement.name == "disparate_impact" else "points"
    side = statement.right if isinstance(statement, Rule) else statement.limit
    rate = statement.left if isinstance(statement, Rule) else statement.rate
    if side.terms:
        return "share" if is_share(side) and is_share(rate) else "plain"
    if not is_share(rate):
        return "plain"
    return "share" if len(rate.terms) == 1 else "points"


def _levels(cases: Cases, lever: Lever, points: int) -> Floats:
    """From tight to where the rule no longer binds, with the present level among them."""
    level, sign = lever.level, lever.looser
    free = _free_level(cases, lever)
    reach = _FARTHEST * abs(level)
    room = max(sign * (free - level), 0.0) if math.isfinite(free) else reach or _SPAN
    loose = level + sign * (min(room, reach) if reach else room)
    tight = level - sign * max(room, abs(level))
    if sign > 0:
        tight = max(tight, 0.0) if level >= 0 else tight
    elif level_unit(lever.statement) != "plain":
        tight = min(tight, 1.0)
    first, last = sorted((tight, loose))
    if first == last:
        last += _SPAN
    return np.unique([*np.linspace(first, last, points), level])


def _free_level(cases: Cases, lever: Lever) -> float:
    """The level that the policy without this rule would keep; nan if that is not known."""
    policy, problem = cases.policy, cases.policy.problem
    others = [rule for i, rule in enumerate(problem.rules) if i != lever.place]
    kept = Problem(problem.minimize, others, problem.classes, problem.kind, problem.reject)
    try:
        free = solve(kept, cases.evidence, beta=policy.beta)
    except BylawError:
        return math.nan
    groups = cases.evidence.group_values
    one, two = (lever.statement.at(level).expand(cases.evidence.classes, groups) for level in (0.5, 0.75))
    probabilities = free.probabilities(cases.evidence)
    freed = replace(cases, seen=cases.evidence, probabilities=probabilities)
    needed = []
    for before, after in zip(one, two, strict=True):  # an excess is affine in the level
        start = freed.excess(before)
        slope = (freed.excess(after) - start) / 0.25
        needed += [0.5 - start / slope] if slope else []
    return max(needed, key=lambda level: lever.looser * level, default=math.nan)
