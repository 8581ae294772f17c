"""Each rate that rules bound: its estimate, its interval, where it may be, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bylaw.auditing.audit import Audit, RuleAudit, Verdict
from bylaw.formulation.row_rates import count_effective
from bylaw.language.expressions import Rate, Rule
from bylaw.report.number_format import Unit, unit_of
from bylaw.report.rows import Cases

WORST_FIRST = (
    Verdict.VIOLATED,
    Verdict.BROKEN,
    Verdict.UNDECIDED,
    Verdict.UNJUDGED,
    Verdict.CERTIFIED,
    Verdict.HOLDS,
)
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Bar:
    """One rate with the rules on it: an upper bound, a lower one, or both."""

    statement: str
    rate: Rate  # without its constant
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

    @property
    def unit(self) -> Unit:
        return unit_of(self.rate)

    @property
    def slack(self) -> float:
        """How far the estimate is inside; below zero, outside."""
        inside = min(self.high - self.estimate, self.estimate - self.low)
        return math.inf if math.isnan(inside) else inside


def bars_of(cases: Cases, audit: Audit | None) -> tuple[Bar, ...]:
    """Worst first. Without an audit, estimates on the rows at hand."""
    problem = cases.policy.problem
    stated = problem.expand(cases.seen.classes, cases.seen.group_values)
    found = audit.rules if audit else [_estimated(found.rule, cases) for found in stated]
    bars: dict[frozenset, Bar] = {}
    for (rule, statement, _), judged in zip(stated, found, strict=True):
        rate = rule.left - rule.right
        bar = _bar(str(statement), replace(rate, constant=0.0), judged)
        mirrored = frozenset((atom, -c) for atom, c in rate.terms)
        key = frozenset(rate.terms)
        if mirrored in bars:  # a - b and b - a are one
            key, bar = mirrored, _mirrored(bar)
        bars[key] = _merged(bars[key], bar) if key in bars else bar
    return tuple(sorted(bars.values(), key=lambda bar: (WORST_FIRST.index(bar.verdict), bar.slack)))


def overall(bars: Sequence[Bar], audit: Audit | None) -> Verdict:
    """Of all rules together."""
    if audit is not None:
        return audit.verdict
    return next((v for v in WORST_FIRST if any(bar.verdict is v for bar in bars)), Verdict.UNJUDGED)


def _estimated(rule: Rule, cases: Cases) -> RuleAudit:
    excess = cases.excess(rule)
    sign = 1.0 if rule.sense == "<=" else -1.0
    target = -sign * rule.excess.constant + 0.0
    holds = excess <= cases.policy.guarantee.violation + _ROUNDING
    return RuleAudit(
        str(rule),
        rule.sense,
        target,
        estimate=target + sign * excess,
        rows=_rows(rule, cases),
        verdict=Verdict.HOLDS if holds else Verdict.BROKEN,
    )


def _rows(rule: Rule, cases: Cases) -> float:
    """Of the smallest event that the rule speaks of; with weights, how many of equal weight say as much."""
    events = {atom.conditions for atom, _ in rule.excess.terms}
    return min(count_effective(cases.weights, cases.seen.event_probability(event)) for event in events)


def _bar(statement: str, rate: Rate, judged: RuleAudit) -> Bar:
    ends = {"high" if judged.sense == "<=" else "low": judged.target}
    return Bar(
        statement,
        rate,
        (judged.rule,),
        estimate=judged.estimate,
        lower=judged.lower,
        upper=judged.upper,
        verdict=judged.verdict,
        rows=judged.rows,
        rows_needed=judged.rows_needed,
        reason=judged.reason,
        **ends,
    )


def _mirrored(bar: Bar) -> Bar:
    return replace(
        bar,
        rate=-1.0 * bar.rate,
        low=-bar.high,
        high=-bar.low,
        estimate=-bar.estimate + 0.0,
        lower=-bar.upper,
        upper=-bar.lower,
    )


def _merged(one: Bar, other: Bar) -> Bar:
    needed = [n for n in (one.rows_needed, other.rows_needed) if not math.isnan(n)]
    return replace(
        one,
        rules=one.rules + other.rules,
        low=max(one.low, other.low),
        high=min(one.high, other.high),
        verdict=min(one.verdict, other.verdict, key=WORST_FIRST.index),
        rows_needed=max(needed, default=math.nan),
        reason=one.reason or other.reason,
    )
