"""What each rule costs at other levels: frontiers of one rule at a time, at levels worth seeing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import BylawError, ConvergenceWarning, OptionError
from bylaw.fitting.frontier import Frontier, frontier
from bylaw.fitting.levels import Lever, find_lever, find_met_level, make_path
from bylaw.fitting.solve import solve
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.program.solution import Status
from bylaw.report.number_format import Unit, find_level_unit
from bylaw.report.rows import ReportRows
from bylaw.report.sentences import write_amount_saved
from bylaw.rows.evidence import Evidence

MOST_CURVES = 8
_FARTHEST = 5.0  # times the present level, beyond it
_NEARLY = 1e-4  # of a cost: one that is lower by less is the same
_SPAN = 0.05  # where the present level is zero and nothing tells how far to go


@dataclass(frozen=True)
class Curve:
    """Cost against the level of one statement, by rising level."""

    statement: Statement
    level: float  # the present one
    unit: Unit  # of the level
    levels: Floats  # (n_points,)
    cost: Floats  # (n_points,): nan where the rules conflict
    prices: Floats  # (n_points,)
    missed: tuple[bool, ...]  # where the rules do not all hold as observed

    @property
    def now(self) -> int:
        """The point of the present level."""
        return int(np.abs(self.levels - self.level).argmin())


@dataclass(frozen=True)
class Curves:
    """The curves of a report, and how they were made."""

    curves: Sequence[Curve] = ()
    missing: Sequence[str] = ()  # statements without a curve
    observed: bool | None = None  # their costs are observed, or predicted; unknown where they were given
    without: Mapping[str, float] = field(default_factory=dict)  # how much lower the cost is without a rule

    def find_price(self, statement: Statement) -> float | None:
        """The price at the present level; None where there is no curve."""
        found = [curve for curve in self.curves if curve.statement == statement]
        return float(found[0].prices[found[0].now]) if found else None


def trace_curves(
    rows: ReportRows,
    points: int,
    given: Sequence[Frontier] | None,
    margin: float | Literal["auto"] = 0.0,
) -> Curves:
    """The curve of every statement with a single level, each point as the policy was chosen: with the labels
    and groups of these rows if it was, and with its margin."""
    problem = rows.policy.problem
    if given is not None:
        return Curves([_convert_frontier(problem, one) for one in given])
    evidence, options = _recall_fit(rows, margin)
    curves: list[Curve] = []
    missing: list[str] = []
    for statement in problem.rules:
        curve = (
            _trace_curve(rows, evidence, statement, points, options) if len(curves) < MOST_CURVES else None
        )
        curves += [curve] if curve else []
        missing += [] if curve else [str(statement)]
    as_chosen = evidence.has_observed or bool(options)
    without = _measure_without(rows, evidence, options) if rows.fitted else {}
    return Curves(curves, missing, as_chosen, without)


def _measure_without(rows: ReportRows, evidence: Evidence, options: dict[str, Any]) -> dict[str, float]:
    """By how much the cost falls without each rule whose next step saves nothing: its shadow price does not
    tell. Rules without which there is no policy are left out."""
    policy, problem = rows.policy, rows.policy.problem
    prices, minimize, found = policy.prices, problem.minimize, dict[str, float]()
    idle = [
        i
        for i, rule in enumerate(problem.rules)
        if not write_amount_saved(prices.get(str(rule), 0.0), rule, minimize)
    ]
    cost = rows.compare(minimize).policy
    for place in idle[:MOST_CURVES]:
        others = problem.with_rules([rule for i, rule in enumerate(problem.rules) if i != place])
        try:
            with warnings.catch_warnings():  # these decisions are not used
                warnings.simplefilter("ignore")
                free = solve(
                    others, evidence, beta=policy.beta, deterministic=policy.deterministic, **options
                )
        except BylawError:
            continue
        chances = free.probabilities(rows.evidence)
        saved = cost - free.expected(minimize, rows.seen, probabilities=chances)
        found[str(problem.rules[place])] = saved if saved > _NEARLY * abs(cost) else 0.0
    return found


def _recall_fit(rows: ReportRows, margin: float | Literal["auto"]) -> tuple[Evidence, dict[str, Any]]:
    """Return the rows and options of `solve` that chose the policy; the rows have labels and true groups only
    if it was chosen by observed rates."""
    policy, evidence = rows.policy, rows.evidence
    if not policy.observed or not rows.fitted:
        return evidence.without_observed(), {}
    kept = margin if policy.certificate is None else policy.certificate.margin
    options: dict[str, Any] = {"margin": kept} if kept else {}
    stated = policy.card.options
    if stated and not (stated["labels"] or stated["groups"]):  # chosen with a margin alone
        return evidence.without_observed(), options
    if evidence.has_observed:
        options["calibrate"] = "none"  # the rows are calibrated as the policy has it
    return evidence, options


def _trace_curve(
    rows: ReportRows, evidence: Evidence, statement: Statement, points: int, options: dict[str, Any]
) -> Curve | None:
    """None where it has no level, or the rules conflict at all of them on these rows."""
    policy = rows.policy
    try:
        lever = find_lever(policy.problem, statement)
        levels = _choose_levels(rows, lever, points)
        with warnings.catch_warnings():  # levels at which rules are missed are marked
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = frontier(policy.problem, evidence, {statement: levels}, beta=policy.beta, **options)
    except BylawError:
        return None
    return _convert_frontier(policy.problem, found)


def _convert_frontier(problem: Problem, found: Frontier) -> Curve:
    if not isinstance(found, Frontier) or len(found.swept) != 1:
        raise OptionError("frontiers= takes a list of frontiers over one rule each")
    levers = [lever for rule in problem.rules if (lever := _find_lever(problem, rule))]
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
        unit=find_level_unit(lever.statement),
        levels=found.levels[order, 0],
        cost=found.cost[order],
        prices=found.prices[order, 0],
        missed=tuple(found.status[i] is Status.MISSED for i in order.tolist()),
    )


def _find_lever(problem: Problem, statement: Statement) -> Lever | None:
    try:
        return find_lever(problem, statement)
    except BylawError:
        return None


def _choose_levels(rows: ReportRows, lever: Lever, points: int) -> Floats:
    """From tight to where the rule no longer binds, with the present level among them."""
    level, sign = lever.level, lever.looser
    free = _find_free_level(rows, lever)
    reach = _FARTHEST * abs(level)
    room = max(sign * (free - level), 0.0) if math.isfinite(free) else reach or _SPAN
    loose = level + sign * (min(room, reach) if reach else room)
    tight = level - sign * max(room, abs(level))
    if sign > 0:
        tight = max(tight, 0.0) if level >= 0 else tight
    elif find_level_unit(lever.statement) != "plain":
        tight = min(tight, 1.0)
    first, last = sorted((tight, loose))
    if first == last:
        last += _SPAN
    return np.unique([*np.linspace(first, last, points), level])


def _find_free_level(rows: ReportRows, lever: Lever) -> float:
    """The level that decisions without this rule would satisfy; nan if that is not known."""
    policy, evidence = rows.policy, rows.evidence
    try:
        probabilities = _decide_without(rows, lever)
    except BylawError:
        return math.nan
    if probabilities is None:
        return math.nan

    measure = partial(policy.expected, evidence=evidence, probabilities=probabilities)
    return find_met_level(lever, measure, evidence, policy.action_space.options)


def _decide_without(rows: ReportRows, lever: Lever) -> Floats | None:
    """(n_rows, n_actions): the optimal probabilities under the other rules; None where those conflict."""
    policy, problem = rows.policy, rows.policy.problem
    others = problem.with_rules([rule for i, rule in enumerate(problem.rules) if i != lever.place])
    found = make_path(others, rows.evidence, [], beta=policy.beta).advance([]).policy
    return None if found is None else found.probabilities(rows.evidence)
