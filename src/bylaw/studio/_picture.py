"""The numbers that the page shows of a policy: its cost, its rules, and the decisions in each group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats
from bylaw.errors import BylawError
from bylaw.language import LABEL, Band, Family, Kind, Objective, Problem, Rule, Statement
from bylaw.program import FittedRate, Status, compute_row_rates, measure_rate, standard_error
from bylaw.report import Cell, Partition, ReportRows
from bylaw.testing import NEVER, TOLERANCE, describe_rule, is_observed
from bylaw.view import describe_rate, find_unit, name_cost, write_price, write_sentence

_NORMAL = 1.959963984540054  # standard errors on each side of a 95 % interval
INTERVAL = "95 % intervals: 1.96 standard errors on each side"


def describe_cost(minimize: Objective, kind: Kind) -> dict[str, Any]:
    """Return the name, the words and the unit of the objective."""
    words = describe_rate(minimize, kind).rstrip(",")
    return {"name": name_cost(minimize), "words": words, "unit": find_unit(minimize)}


def draw_cost(rows: ReportRows) -> dict[str, Any]:
    """Return the costs of the model's decisions, of a policy without rules, and of the policy."""
    minimize, space = rows.policy.problem.minimize, rows.policy.action_space
    costs = rows.compare(minimize)
    return {
        **describe_cost(minimize, space.kind),
        "before": costs.model,
        "without_rules": costs.without_rules,
        "after": costs.policy,
        "observed": is_observed(minimize, rows.seen, space),
    }


def draw_rules(rows: ReportRows, intervals: bool) -> list[dict[str, Any]]:
    """Return, for each rule of the problem, its price and the rate that is nearest to its bound.

    With `intervals`, confidence intervals of the rates are added.
    """
    policy, problem = rows.policy, rows.policy.problem
    expanded = problem.expand(rows.seen.classes, rows.seen.group_values, policy.action_space.options)
    fitted = {} if policy.fitted_rates is None else {one.rule: one for one in policy.fitted_rates.rules}
    known = policy.observed
    # If observed rates violate rules, their excesses are not rounding errors of the solver.
    missed = policy.solution.status is Status.MISSED
    allowed, drawn = TOLERANCE + (1e-6 if missed else policy.guarantee.violation), []
    for place, statement in enumerate(problem.rules):
        rules = [one.rule for one in expanded if one.place == place]
        shown = [rule for rule in rules if str(rule) not in rows.hidden]
        price = policy.prices.get(str(statement), 0.0)
        holds = _find_worst(rules, rows, known)[1] <= allowed
        drawn.append(describe_statement(statement, problem) | {"price": price, "holds": holds})
        if not shown:
            words = f"Not shown: it is about groups of fewer than {rows.min_cell} rows, or could reveal them."
            drawn[-1]["price_words"] = words
            continue
        worst, excess = _find_worst(shown, rows, known)
        undefined = is_undefined(worst, rows)
        words = "The rule is violated, so its price has no meaning; loosen this or another rule."
        if holds or undefined:
            words = write_price(price, statement, problem.minimize)
        drawn[-1] |= {"holds": holds or undefined, "undefined": undefined, "price_words": words}
        drawn[-1] |= _draw_rate(worst, excess, statement, rows, fitted if intervals else None)
    return drawn


def describe_statement(statement: Statement, problem: Problem) -> dict[str, Any]:
    """Return the texts of a rule, and empty fields for the numbers that need a policy."""
    numbers = dict.fromkeys(
        ("price", "price_words", "rate", "bound", "sense", "holds", "signed", "lower", "upper", "worst")
    )
    words = {"text": str(statement), "sentence": write_sentence(statement, problem.kind)}
    return {**words, **numbers, "undefined": False}


def is_undefined(rule: Rule, rows: ReportRows) -> bool:
    """Return whether a rule is on a ratio that is 0/0 on these rows."""
    return any(rows.measure(one) * len(rows) <= NEVER for one in rule.denominators)


def _find_worst(rules: Sequence[Rule], rows: ReportRows, known: Mapping[str, float]) -> tuple[Rule, float]:
    """Return the rule with the largest excess in the unit of its level, and its excess (rate minus bound)."""
    excesses = [known[str(rule)] if str(rule) in known else rows.measure(rule.excess) for rule in rules]
    ratios = []
    for rule, excess in zip(rules, excesses, strict=True):
        factor = 1.0 if rule.factor is None else rows.measure(rule.factor)
        defined = factor and not (math.isnan(excess) or is_undefined(rule, rows))
        ratios.append(excess / factor if defined else -math.inf)
    place = int(np.argmax(ratios))
    return rules[place], excesses[place]


def _draw_rate(
    rule: Rule, excess: float, statement: Statement, rows: ReportRows, fitted: Mapping[str, FittedRate] | None
) -> dict[str, Any]:
    """Return the rate and bound of a single rule, with an interval if standard errors are given."""
    space, factor = rows.policy.action_space, 1.0 if rule.factor is None else rows.measure(rule.factor)
    excess, width = (math.nan if is_undefined(rule, rows) else excess), math.nan
    if fitted is not None and factor and not math.isnan(excess):
        error = (
            fitted[str(rule)].standard_error
            if str(rule) in fitted
            else standard_error(rule.excess, rows.seen, rows.probabilities, space)
        )
        width = _NORMAL * error / factor
    judged = describe_rule(rule, excess, factor=factor)
    sign = -1.0 if statement.is_band and rule.sense == ">=" else 1.0  # the other side of a band
    several = isinstance(statement, Family | Band)
    return {
        "rate": sign * judged.estimate,
        "bound": sign * judged.target,
        "sense": "<=" if sign < 0 else rule.sense,
        "signed": judged.estimate if statement.is_band else None,  # a difference with its direction
        "lower": judged.estimate - width,
        "upper": judged.estimate + width,
        "worst": describe_rate(rule.bounded, space.kind) if several else None,
    }


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of some attributes, with the rows in each group; the first group contains all rows."""

    partitions: tuple[Partition, ...]
    cells: tuple[Cell, ...]
    weights: Floats  # (n_groups, n_rows)
    total: Floats  # (n_groups,): sum of the weights of each group
    exact: NDArray[np.bool_]  # (n_groups,): whether the group (and the label, if used) is known on all rows

    @classmethod
    def make(cls, partitions: Sequence[Partition], rows: ReportRows) -> GroupTable:
        """Return the table of the groups in these partitions."""
        seen, everyone = rows.seen, Cell("all rows", (), rows.evidence.row_weights)
        parts = (Partition("all rows", (everyone,), 0, False), *partitions)
        cells = tuple(cell for part in parts for cell in part.cells)
        partly = bool(seen.find_partly_seen([LABEL]))
        names = [{name for name, _ in cell.event} for cell in cells]
        exact = [not (one and (partly or seen.unseen & one or seen.find_partly_seen(one))) for one in names]
        weights = np.stack([cell.weights for cell in cells])
        return cls(parts, cells, weights, weights.sum(axis=1), np.array(exact))

    def average(self, values: Floats) -> Floats:
        """Return the mean of values, (n_rows, ...), in each group, (n_groups, ...)."""
        sums = self.weights @ values
        return sums / (self.total if sums.ndim == 1 else self.total[:, None])


def measure_mistakes(decisions: Floats, table: GroupTable, rows: ReportRows) -> list[float | None]:
    """Return the share of wrong decisions in each group.

    A share is None without labels, or if the joint probabilities of a predicted group and the label are
    unknown.
    """
    rate, space = rows.words.mistake, rows.policy.action_space
    if rate is None:
        return [None] * len(table.cells)
    shares: list[float | None] = list(
        table.average(compute_row_rates(rate, rows.seen, decisions, space)).tolist()
    )
    for place in np.flatnonzero(~table.exact).tolist():
        event = dict(table.cells[place].event)
        try:
            shares[place] = measure_rate(rate.given(**event), rows.seen, decisions, space)
        except BylawError:
            shares[place] = None
    return shares


def draw_groups(
    table: GroupTable, model: tuple[Floats, list[float | None]], rows: ReportRows, intervals: bool
) -> dict[str, Any]:
    """Return, by group, the rate of each action, the error rates, and the shares of changed decisions."""
    after = table.average(rows.probabilities)
    low = high = [None] * len(after)
    if intervals:
        # Standard errors of weighted means: the root of the sum of (weight * deviation)**2.
        squares, values = table.weights**2, rows.probabilities
        spread = squares @ values**2 - 2 * after * (squares @ values)
        spread += after**2 * squares.sum(axis=1, keepdims=True)
        width = _NORMAL * np.sqrt(np.maximum(spread, 0.0)) / table.total[:, None]
        low, high = np.maximum(after - width, 0.0).tolist(), np.minimum(after + width, 1.0).tolist()
    changed = table.average(rows.change_probability).tolist()
    columns = {
        "value": [cell.name for cell in table.cells],
        "rows": table.total.tolist(),
        "share": (table.total / table.total[0]).tolist(),
        "before": model[0].tolist(),
        "after": after.tolist(),
        "lower": low,
        "upper": high,
        "mistakes_before": model[1],
        "mistakes_after": measure_mistakes(rows.probabilities, table, rows),
    }
    groups = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    partitions, by_group, place = list[dict[str, Any]](), list[dict[str, Any]](), 0
    for part in table.partitions:
        own = groups[place : place + len(part.cells)]
        by_group += [
            {"name": part.name, "value": group["value"], "changed": changed[place + i]}
            for i, group in enumerate(own)
        ]
        place += len(own)
        if own:
            fields = {"name": part.name, "predicted": part.is_predicted, "left_out": part.left_out}
            partitions.append({**fields, "groups": own})
    return {
        "partitions": partitions,
        "changed": changed[0],
        "flows": rows.compute_flow(rows.all_rows).tolist(),
        "changed_by_group": by_group[1:],
    }
