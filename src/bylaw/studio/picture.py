"""What a page draws of a policy: its cost, its rules, and what each group gets, before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats
from bylaw.errors import BylawError
from bylaw.language.action_space import Kind
from bylaw.language.expressions import LABEL, Band, Objective, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.program.row_rates import compute_row_rates, list_denominators, measure_rate, standard_error
from bylaw.program.solution import FittedRate, Status
from bylaw.report.number_format import find_objective_unit
from bylaw.report.rows import Cell, Partition, ReportRows
from bylaw.report.sentences import describe_rate, name_cost, write_price, write_sentence
from bylaw.rows.outcomes import ObservedRows
from bylaw.testing import NEVER, TOLERANCE, describe_rule, is_observed

_NORMAL = 1.959963984540054  # standard errors on each side of an interval that is right 95 times in 100
INTERVAL = "95 % intervals: 1.96 standard errors on each side"
_NO_PRICE = "It is missed, so that its price tells nothing: loosen it, or another rule."
_ROUNDING = 1e-6  # of a rate
_SETTLED, _LEANING = 0.99, 0.75  # probabilities of the likeliest decision


def describe_cost(minimize: Objective, kind: Kind) -> dict[str, Any]:
    """What is minimised, in words."""
    return {
        "name": name_cost(minimize),
        "words": describe_rate(minimize, kind).rstrip(","),
        "unit": find_objective_unit(minimize),
    }


def draw_cost(rows: ReportRows) -> dict[str, Any]:
    """What is minimised, with your model, without rules and with rules."""
    minimize, kind = rows.policy.problem.minimize, rows.policy.action_space.kind
    costs = rows.compare(minimize)
    return {
        **describe_cost(minimize, kind),
        "before": costs.model,
        "without_rules": costs.without_rules,
        "after": costs.policy,
        "observed": is_observed(minimize, rows.seen, rows.policy.action_space),
    }


def draw_rules(
    rows: ReportRows, intervals: bool, excesses: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Each rule of the problem: its price, and the single rule of it that is nearest to its bound. `excesses`
    are those of single rules that are known."""
    policy, problem, prices = rows.policy, rows.policy.problem, rows.policy.prices
    stated = policy.problem.expand(rows.seen.classes, rows.seen.group_values, policy.action_space.options)
    fitted = {} if policy.fitted_rates is None else {one.rule: one for one in policy.fitted_rates.rules}
    known = {**(excesses or {}), **policy.observed}
    missed = policy.solution.status is Status.MISSED  # as observed: what is off then is no rounding error
    allowed, drawn = (_ROUNDING if missed else policy.guarantee.violation), []
    for place, statement in enumerate(policy.problem.rules):
        rules = [found.rule for found in stated if found.place == place]
        shown = [rule for rule in rules if str(rule) not in rows.hidden]
        if not shown:  # it is about small groups alone: whether it holds is told, and no rate
            excess = _find_worst(rules, rows, known)[1]
            told = {"price": prices.get(str(statement), 0.0), "holds": excess <= TOLERANCE + allowed}
            words = f"Not shown: it is about groups of fewer than {rows.min_cell} rows, or one beside them."
            drawn.append(describe_statement(statement, problem) | told | {"price_words": words})
            continue
        worst, excess = _find_worst(shown, rows, known)
        undefined = is_undefined(worst, rows)
        beyond = _find_worst(rules, rows, known)[1] if len(shown) < len(rules) else excess
        price, holds = prices.get(str(statement), 0.0), undefined or beyond <= TOLERANCE + allowed
        drawn.append(
            describe_statement(statement, policy.problem)
            | {
                "price": price,
                "price_words": write_price(price, statement, problem.minimize) if holds else _NO_PRICE,
                "holds": holds,
                "undefined": undefined,
            }
            | _draw_rate(worst, excess, statement, rows, fitted if intervals else None)
        )
    return drawn


def describe_statement(statement: Statement, problem: Problem) -> dict[str, Any]:
    """What is known of a rule without any policy."""
    numbers = dict.fromkeys(
        ("price", "price_words", "rate", "bound", "sense", "holds", "signed", "lower", "upper", "worst")
    )
    words = {"text": str(statement), "sentence": write_sentence(statement, problem.kind)}
    return {**words, **numbers, "undefined": False}


def is_undefined(rule: Rule, rows: ReportRows) -> bool:
    """Whether a rule on a ratio holds as 0/0 on these rows."""
    return any(rows.measure(one) * len(rows) <= NEVER for one in list_denominators(rule))


def _find_worst(rules: Sequence[Rule], rows: ReportRows, known: Mapping[str, float]) -> tuple[Rule, float]:
    """The rule that is exceeded most in the unit of its level, and its excess."""
    excesses = [known[str(rule)] if str(rule) in known else rows.measure(rule.excess) for rule in rules]
    factors = [1.0 if rule.factor is None else rows.measure(rule.factor) for rule in rules]
    ratios = [
        e / f if f and not (math.isnan(e) or is_undefined(rule, rows)) else -math.inf
        for rule, e, f in zip(rules, excesses, factors, strict=True)
    ]
    place = int(np.argmax(ratios))
    return rules[place], excesses[place]


def _find_error(rule: Rule, rows: ReportRows, fitted: Mapping[str, FittedRate]) -> float:
    """The standard error of a rule's excess."""
    if str(rule) in fitted:
        return fitted[str(rule)].standard_error
    return standard_error(rule.excess, rows.seen, rows.probabilities, rows.policy.action_space)


def _draw_rate(
    rule: Rule,
    excess: float,
    statement: Statement,
    rows: ReportRows,
    fitted: Mapping[str, FittedRate] | None,
) -> dict[str, Any]:
    """A single rule in the unit of its level; with an interval, if standard errors are given."""
    factor = 1.0 if rule.factor is None else rows.measure(rule.factor)
    excess, wide = (math.nan if is_undefined(rule, rows) else excess), math.nan
    if fitted is not None and factor and not math.isnan(excess):
        wide = _find_error(rule, rows, fitted) / factor
    found = describe_rule(rule, excess, factor=factor)
    rate, bound, sense = found.estimate, found.target, rule.sense
    band = statement.is_band
    if band and sense == ">=":  # the other side of it
        rate, bound, sense = -rate, -bound, "<="
    several = isinstance(statement, Family | Band)
    return {
        "rate": rate,
        "bound": bound,
        "sense": sense,
        "signed": found.estimate if band else None,  # a difference with its direction
        "lower": found.estimate - _NORMAL * wide,
        "upper": found.estimate + _NORMAL * wide,
        "worst": describe_rate(rule.bounded, rows.policy.action_space.kind) if several else None,
    }


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of some partitions, stacked, so that one product serves all; the first is all rows."""

    partitions: tuple[Partition, ...]
    weights: sparse.csr_array  # (n_groups, n_rows)
    total: Floats  # (n_groups,): of the weights
    shown: NDArray[np.bool_]  # (n_groups,): whether every row shows its group

    @classmethod
    def make(cls, partitions: Sequence[Partition], seen: ObservedRows) -> GroupTable:
        """Of partitions of these rows."""
        whole = Partition("all rows", (Cell("all rows", (), seen.predicted.row_weights),), 0, False)
        every = (whole, *partitions)
        weights = sparse.vstack(
            [sparse.csr_array(cell.weights[None]) for part in every for cell in part.cells]
        )
        shown = [not _is_estimated(cell, seen) for part in every for cell in part.cells]
        return cls(every, sparse.csr_array(weights), np.asarray(weights.sum(axis=1)), np.array(shown))

    @property
    def cells(self) -> list[Cell]:
        return [cell for part in self.partitions for cell in part.cells]

    def split(self, values: Sequence[Any]) -> Iterator[tuple[Partition, Sequence[Any]]]:
        """Each partition with its part of values (n_groups,)."""
        first = 0
        for part in self.partitions:
            yield part, values[first : first + len(part.cells)]
            first += len(part.cells)

    def average(self, values: Floats) -> Floats:
        """(n_groups, ...): the mean of values (n_rows, ...) in each group."""
        sums = self.weights @ values
        return sums / (self.total if sums.ndim == 1 else self.total[:, None])

    def find_errors(self, values: Floats, means: Floats) -> Floats:
        """(n_groups, n_columns): standard errors of the means of values (n_rows, n_columns)."""
        squares = self._squares
        spread = squares @ values**2 - 2 * means * (squares @ values)
        spread += means**2 * np.asarray(squares.sum(axis=1))[:, None]
        return np.sqrt(np.maximum(spread, 0.0)) / self.total[:, None]

    @cached_property
    def _squares(self) -> sparse.csr_array:
        return self.weights.power(2)


def _is_estimated(cell: Cell, seen: ObservedRows) -> bool:
    """Whether rows belong to a group by a probability alone, or only some of them show it."""
    names = {name for name, _ in cell.event}
    return bool(seen.unseen & names or seen.find_partly_seen(names))


@dataclass(frozen=True, eq=False)
class ModelRates:
    """Rates of your model's decisions in the groups."""

    shares: Floats  # (n_groups, n_actions)
    mistakes: list[float | None]

    @classmethod
    def measure(cls, table: GroupTable, rows: ReportRows) -> ModelRates:
        """Return the rates of the decisions on these rows."""
        return cls(table.average(rows.model), find_mistakes(rows.model, table, rows))


def find_mistakes(decisions: Floats, table: GroupTable, rows: ReportRows) -> list[float | None]:
    """The share of wrong decisions in each group; None where there is no model of a predicted group and its
    labels together, or no label at all."""
    rate, space = rows.words.mistake, rows.policy.action_space
    if rate is None:
        return [None] * len(table.cells)
    means = table.average(compute_row_rates(rate, rows.seen, decisions, space))
    partly = bool(rows.seen.find_partly_seen([LABEL]))
    found: list[float | None] = []
    for cell, mean, shown in zip(table.cells, means.tolist(), table.shown.tolist(), strict=True):
        exact = not cell.event or (shown and not partly)
        found.append(mean if exact else _measure_mistakes(rate.given(**dict(cell.event)), decisions, rows))
    return found


def _measure_mistakes(rate: Rate, decisions: Floats, rows: ReportRows) -> float | None:
    try:
        return measure_rate(rate, rows.seen, decisions, rows.policy.action_space)
    except BylawError:
        return None


def draw_groups(
    table: GroupTable, model: ModelRates, rows: ReportRows, intervals: bool
) -> list[dict[str, Any]]:
    """How often each action is taken in each group, and how often wrongly."""
    after = table.average(rows.probabilities)
    low = high = [None] * len(after)
    if intervals:
        wide = _NORMAL * table.find_errors(rows.probabilities, after)
        low, high = np.maximum(after - wide, 0.0).tolist(), np.minimum(after + wide, 1.0).tolist()
    columns = {
        "value": [cell.name for cell in table.cells],
        "rows": table.total.tolist(),
        "share": (table.total / table.total[0]).tolist(),
        "before": model.shares.tolist(),
        "after": after.tolist(),
        "lower": low,
        "upper": high,
        "mistakes_before": model.mistakes,
        "mistakes_after": find_mistakes(rows.probabilities, table, rows),
    }
    groups = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [
        {"name": part.name, "predicted": part.is_predicted, "left_out": part.left_out, "groups": own}
        for part, own in table.split(groups)
        if own
    ]


def draw_changes(table: GroupTable, rows: ReportRows) -> dict[str, Any]:
    """Which decisions are not those of your model."""
    changed = table.average(rows.change_probability).tolist()
    by_group = [
        {"name": part.name, "value": cell.name, "changed": share}
        for part, shares in table.split(changed)
        for cell, share in zip(part.cells, shares, strict=True)
    ]
    flows = rows.compute_flow(rows.all_rows).tolist()
    return {"changed": changed[0], "flows": flows, "changed_by_group": by_group[1:]}


def draw_chance(rows: ReportRows) -> dict[str, float]:
    """The share of rows whose likeliest decision is all but certain, likely, or neither."""
    likeliest = rows.decision_confidence
    settled, leaning = (rows.compute_share(likeliest >= least) for least in (_SETTLED, _LEANING))
    return {"settled": settled, "leaning": leaning - settled, "open": 1.0 - leaning}
