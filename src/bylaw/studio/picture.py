"""What a page draws of a policy: its cost, its rules, and what each group gets, before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bylaw._base.typing import Floats
from bylaw.auditing.costs import is_observed
from bylaw.auditing.verdicts import TOLERANCE
from bylaw.errors import RuleError
from bylaw.formulation.solution import FittedRate
from bylaw.language.expressions import Band, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.language.worst import Objective
from bylaw.report.number_format import Unit, find_unit
from bylaw.report.rows import Cell, Partition, ReportRows
from bylaw.report.sentences import describe_rate, name_cost, write_price, write_sentence

_NORMAL = 1.959963984540054  # standard errors on each side of an interval that is right 95 times in 100
INTERVAL = "95 % intervals: 1.96 standard errors on each side"
_SETTLED, _LEANING = 0.99, 0.75  # probabilities of the likeliest decision


@dataclass(frozen=True)
class RatedRule:
    """A single rule on some rows, in the unit of its level."""

    rule: Rule
    excess: float
    rate: float  # what is compared with the level
    bound: float
    slope: float  # of the excess in the level


def find_objective_unit(rate: Objective) -> Unit:
    """How values of what is minimised are read."""
    if isinstance(rate, Rate):
        return find_unit(rate)
    return "share" if rate.is_probability else "plain"


def draw_cost(rows: ReportRows) -> dict[str, Any]:
    """What is minimised, before and after."""
    minimize, kind = rows.policy.problem.minimize, rows.policy.action_space.kind
    costs = rows.compare(minimize)
    return {
        "name": name_cost(minimize),
        "words": describe_rate(minimize, kind),
        "before": costs.baseline,
        "after": costs.policy,
        "unit": find_objective_unit(minimize),
        "observed": is_observed(minimize, rows.seen, rows.policy.action_space),
    }


def draw_rules(rows: ReportRows) -> list[dict[str, Any]]:
    """Each rule of the problem: its price, and the single rule of it that is nearest to its bound."""
    policy, prices = rows.policy, rows.policy.prices
    stated = policy.problem.expand(rows.seen.classes, rows.seen.group_values, policy.action_space.options)
    fitted = {} if policy.fitted_rates is None else {one.rule: one for one in policy.fitted_rates.rules}
    drawn = []
    for place, statement in enumerate(policy.problem.rules):
        rated = [_rate_rule(found.rule, rows) for found in stated if found.place == place]
        worst = max(rated, key=lambda one: -math.inf if math.isnan(one.excess) else one.excess)
        price = prices.get(str(statement), 0.0)
        drawn.append(
            describe_rule(statement, policy.problem)
            | {
                "price": price,
                "price_words": write_price(price, statement, policy.problem.minimize),
                "holds": worst.excess <= TOLERANCE + policy.guarantee.violation,
            }
            | _draw_rate(worst, statement, rows, fitted)
        )
    return drawn


def describe_rule(statement: Statement, problem: Problem) -> dict[str, Any]:
    """What is known of a rule without any policy."""
    numbers = dict.fromkeys(
        ("price", "price_words", "rate", "bound", "sense", "holds", "lower", "upper", "worst")
    )
    return {"text": str(statement), "sentence": write_sentence(statement, problem.kind), **numbers}


def _rate_rule(rule: Rule, rows: ReportRows) -> RatedRule:
    """The rate is the level at which the rule would just hold: an excess is affine in the level."""
    excess = rows.measure(rule.excess)
    try:
        level = rule.level
    except RuleError:  # several numbers: all of them go to the left
        return RatedRule(rule, excess, excess if rule.sense == "<=" else -excess, 0.0, -1.0)
    factor = 1.0 if not rule.right.terms else rows.measure(Rate(((rule.right.terms[0][0], 1.0),)))
    slope = -factor if rule.sense == "<=" else factor
    rate = level - excess / slope if slope else math.nan
    return RatedRule(rule, excess, rate, level, slope)


def _draw_rate(
    worst: RatedRule, statement: Statement, rows: ReportRows, fitted: Mapping[str, FittedRate]
) -> dict[str, Any]:
    rule = worst.rule
    known = fitted.get(str(rule))
    wide = math.nan if known is None or not worst.slope else known.standard_error / abs(worst.slope)
    rate, bound, sense = worst.rate, worst.bound, rule.sense
    if _is_difference(statement) and sense == ">=":  # the other side of a band
        rate, bound, sense = -rate, -bound, "<="
    several = isinstance(statement, Family | Band)
    named = replace(rule.left - rule.right, constant=0.0)
    return {
        "rate": rate,
        "bound": bound,
        "sense": sense,
        "lower": rate - _NORMAL * wide,
        "upper": rate + _NORMAL * wide,
        "worst": describe_rate(named, rows.policy.action_space.kind) if several else None,
    }


def _is_difference(statement: Statement) -> bool:
    if isinstance(statement, Family):
        return not statement.definition.ratio
    return isinstance(statement, Band)


def draw_partition(
    partition: Partition, rows: ReportRows, mistakes: Mapping[Cell, Any], intervals: bool
) -> dict[str, Any]:
    """How often each action is taken in each group."""
    total = rows.all_rows.rows
    return {
        "name": partition.name,
        "predicted": partition.is_predicted,
        "left_out": partition.left_out,
        "groups": [_draw_cell(cell, rows, total, intervals) for cell in partition.cells],
    }


def _draw_cell(cell: Cell, rows: ReportRows, total: float, intervals: bool) -> dict[str, Any]:
    before, after = rows.compute_shares(cell)
    wide = _NORMAL * _compute_errors(cell.weights, rows.probabilities, after) if intervals else None
    mistakes = rows.compare_mistakes(cell)
    return {
        "value": cell.name,
        "rows": cell.rows,
        "share": cell.rows / total,
        "before": before.tolist(),
        "after": after.tolist(),
        "lower": None if wide is None else np.maximum(after - wide, 0.0).tolist(),
        "upper": None if wide is None else np.minimum(after + wide, 1.0).tolist(),
        "mistakes_before": None if mistakes is None else mistakes.baseline,
        "mistakes_after": None if mistakes is None else mistakes.policy,
    }


def _compute_errors(weights: Floats, values: Floats, means: Floats) -> Floats:
    """(n_actions,): standard errors of weighted means of the values (n_rows, n_actions)."""
    squares = weights**2
    spread = squares @ values**2 - 2 * means * (squares @ values) + means**2 * squares.sum()
    return np.sqrt(np.maximum(spread, 0.0)) / weights.sum()


def draw_changes(rows: ReportRows, partitions: Sequence[Partition]) -> dict[str, Any]:
    """Which decisions are not the baseline's."""
    changed = [
        {"name": partition.name, "value": cell.name, "changed": rows.compute_changed_share(cell)}
        for partition in partitions
        for cell in partition.cells
    ]
    return {
        "changed": rows.compute_changed_share(rows.all_rows),
        "flows": rows.compute_flow(rows.all_rows).tolist(),
        "changed_by_group": changed,
    }


def draw_chance(rows: ReportRows) -> dict[str, float]:
    """The share of rows whose likeliest decision is all but certain, likely, or neither."""
    likeliest = rows.decision_confidence
    settled, leaning = (rows.compute_share(likeliest >= least) for least in (_SETTLED, _LEANING))
    return {"settled": settled, "leaning": leaning - settled, "open": 1.0 - leaning}
