"""Each rate that rules bound: its estimate, its interval, where it may be, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

from bylaw.language.expressions import LABEL, Rate, Ratio, Rule
from bylaw.program.row_rates import compute_sizes
from bylaw.report.number_format import Unit, find_unit
from bylaw.report.rows import ReportRows
from bylaw.rows.evidence import count_effective, name_cost
from bylaw.testing import (
    Audit,
    RuleAudit,
    Verdict,
    find_predicted_costs,
    find_worst,
    hide_numbers,
    judge_estimate,
    list_costs,
)


@dataclass(frozen=True)
class BoundedRate:
    """One rate with the rules on it: an upper bound, a lower one, or both."""

    place: int  # of its statement among the problem's rules
    rate: Rate | Ratio  # without its constant
    rules: tuple[str, ...]
    low: float = -math.inf  # the rate may be from here ...
    high: float = math.inf  # ... to here
    estimate: float = math.nan
    lower: float = math.nan  # bounds of the audit
    upper: float = math.nan
    verdict: Verdict = Verdict.UNJUDGED
    rows: float = math.nan
    rows_needed: float = math.nan
    reason: str = ""
    is_predicted: bool = False  # costs in it are those that were predicted
    hidden: bool = False  # it is about a group that is too small to be shown

    @property
    def unit(self) -> Unit:
        return find_unit(self.rate)

    @property
    def slack(self) -> float:
        """How far the estimate is inside its bounds; below zero, outside."""
        inside = min(self.high - self.estimate, self.estimate - self.low)
        return math.inf if math.isnan(inside) else inside


def bound_rates(rows: ReportRows, audit: Audit | None) -> tuple[BoundedRate, ...]:
    """The rates of all rules, worst first. Without an audit, they are estimates on these rows."""
    policy, seen = rows.policy, rows.seen
    stated = policy.problem.expand(seen.classes, seen.group_values, policy.action_space.options)
    judged = audit.rules if audit else [_estimate(found.rule, rows) for found in stated]
    judged = [
        replace(hide_numbers(found, rows.min_cell), reason=found.reason)
        if found.rule in rows.hidden
        else found
        for found in judged
    ]
    rates: dict[Hashable, BoundedRate] = {}
    for (rule, _, place, _), found in zip(stated, judged, strict=True):
        rate = rule.bounded
        predicted = bool(find_predicted_costs(rule.excess, rows.seen))
        bounded = _make_bounded_rate(place, rate, found, predicted)
        bounded = replace(bounded, hidden=found.rule in rows.hidden)
        key: Hashable = rate if isinstance(rate, Ratio) else frozenset(rate.terms)
        mirrored = frozenset((atom, -c) for atom, c in rate.terms)
        if isinstance(rate, Rate) and mirrored in rates:  # a - b and b - a are one
            key, bounded = mirrored, _mirror(bounded)
        rates[key] = _merge(rates[key], bounded) if key in rates else bounded
    return tuple(sorted(rates.values(), key=lambda one: (one.verdict.severity, one.slack)))


def _estimate(rule: Rule, rows: ReportRows) -> RuleAudit:
    """The effective sample size is that of the smallest event that the rule refers to, among the rows that
    show it."""
    space = rows.policy.action_space
    events = rule.excess.resolve(space.classes).by_event()
    names = {name for event in events for name, _ in event.conditions}
    names |= {LABEL for atom, _ in rule.excess.terms if atom.needs_label(space)}
    names |= {name_cost(name) for name in list_costs(rule.excess)}
    shown, places = rows.seen.restrict_with_places(names)
    chances = rows.probabilities[places]
    effective = min(
        count_effective(shown.row_weights, compute_sizes(event, shown, chances, space)) for event in events
    )
    excess = rows.measure(rule.excess)
    return judge_estimate(rule, excess, effective, rows.policy, rows.seen, rows.probabilities)


def _make_bounded_rate(place: int, rate: Rate | Ratio, judged: RuleAudit, predicted: bool) -> BoundedRate:
    high, low = (judged.target, -math.inf) if judged.sense == "<=" else (math.inf, judged.target)
    return BoundedRate(
        place,
        rate,
        (judged.rule,),
        estimate=judged.estimate,
        lower=judged.lower,
        upper=judged.upper,
        verdict=judged.verdict,
        rows=judged.rows,
        rows_needed=judged.rows_needed,
        reason=judged.reason,
        low=low,
        high=high,
        is_predicted=predicted,
    )


def _mirror(bounded: BoundedRate) -> BoundedRate:
    """The same of the negative rate."""
    return replace(
        bounded,
        rate=-1.0 * bounded.rate,
        low=-bounded.high,
        high=-bounded.low,
        estimate=-bounded.estimate + 0.0,
        lower=-bounded.upper,
        upper=-bounded.lower,
    )


def _merge(one: BoundedRate, other: BoundedRate) -> BoundedRate:
    """Two rules on the same rate."""
    needed = [n for n in (one.rows_needed, other.rows_needed) if not math.isnan(n)]
    return replace(
        one,
        rules=one.rules + other.rules,
        low=max(one.low, other.low),
        high=min(one.high, other.high),
        verdict=find_worst((one.verdict, other.verdict)),
        rows_needed=max(needed, default=math.nan),
        reason=one.reason or other.reason,
    )
