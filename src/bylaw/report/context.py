"""Everything that a report states, before it is put into words and charts."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

from bylaw.language.expressions import LABEL, Objective, Rate, Ratio, Rule
from bylaw.language.parser import Statement
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import compute_sizes
from bylaw.report.action_words import ActionWords
from bylaw.report.prices import Curves
from bylaw.report.rows import ReportRows
from bylaw.rows.evidence import count_effective, name_cost
from bylaw.testing import (
    VERDICT_TONES,
    Audit,
    Comparison,
    Monitor,
    RuleAudit,
    Verdict,
    find_predicted_costs,
    find_worst,
    hide_numbers,
    judge_estimate,
    list_costs,
)
from bylaw.view.charts import Track
from bylaw.view.html import Html, make_badge
from bylaw.view.numbers import Unit, format_count, join_words, pluralize
from bylaw.view.sentences import describe_rate, find_unit, write_sentence


@dataclass(frozen=True)
class BoundedRate:
    """A rate with the rules on it: an upper bound, a lower one, or both."""

    place: int  # of its statement among the problem's rules
    rate: Rate | Ratio  # without its constant
    rules: tuple[str, ...]
    judged: RuleAudit  # the worst verdict of these rules, with the estimate and the interval of the rate
    track: Track
    is_predicted: bool = False  # whether costs in it are predictions
    hidden: bool = False  # whether it is about a group that is too small to be shown

    @property
    def unit(self) -> Unit:
        """How the rate is read."""
        return find_unit(self.rate)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on its rules."""
        return self.judged.verdict

    @property
    def slack(self) -> float:
        """How far the estimate is inside its bounds; below zero if it is outside."""
        inside = min(self.track.high - self.track.estimate, self.track.estimate - self.track.low)
        return math.inf if math.isnan(inside) else inside


def bound_rates(rows: ReportRows, audit: Audit | None) -> tuple[BoundedRate, ...]:
    """Return the rates of all rules, worst first; without an audit, they are estimates on these rows."""
    policy, seen = rows.policy, rows.seen
    expanded = policy.problem.expand(seen.classes, seen.group_values, policy.action_space.options)
    audited = audit.rules if audit else [_estimate(one.rule, rows) for one in expanded]
    rates: dict[Hashable, BoundedRate] = {}
    for (rule, _, place, _), judged in zip(expanded, audited, strict=True):
        if hidden := judged.rule in rows.hidden:
            judged = replace(hide_numbers(judged, rows.min_cell), reason=judged.reason)
        low, high = (-math.inf, judged.target) if judged.sense == "<=" else (judged.target, math.inf)
        track = Track(low, high, judged.estimate, judged.lower, judged.upper)
        rate, predicted = rule.bounded, bool(find_predicted_costs(rule.excess, seen))
        key: Hashable = rate if isinstance(rate, Ratio) else frozenset(rate.terms)
        mirrored = frozenset((atom, -c) for atom, c in rate.terms)
        if isinstance(rate, Rate) and mirrored in rates:  # a - b and b - a are the same rate
            key, rate = mirrored, -1.0 * rate
            track = Track(-high, -low, 0.0 - track.estimate, -track.upper, -track.lower)
        bounded = BoundedRate(place, rate, (judged.rule,), judged, track, predicted, hidden)
        if key in rates:  # an upper and a lower bound on the same rate, with the worse verdict of the two
            first = rates[key]
            needed = [n for n in (first.judged.rows_needed, judged.rows_needed) if not math.isnan(n)]
            verdict, reason = (
                find_worst((first.verdict, judged.verdict)),
                first.judged.reason or judged.reason,
            )
            judged = replace(
                first.judged, verdict=verdict, rows_needed=max(needed, default=math.nan), reason=reason
            )
            low, high = max(first.track.low, track.low), min(first.track.high, track.high)
            track = first.track._replace(low=low, high=high)
            bounded = replace(first, rules=first.rules + bounded.rules, judged=judged, track=track)
        rates[key] = bounded
    return tuple(sorted(rates.values(), key=lambda one: (one.verdict.severity, one.slack)))


def _estimate(rule: Rule, rows: ReportRows) -> RuleAudit:
    """Judge a rule without a test.

    The effective sample size is that of the rule's smallest event, among the rows that show it.
    """
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


@dataclass(frozen=True)
class ReportContext:
    """A policy, the rows it is judged on, and all results about it."""

    title: str
    created: str
    owner: str
    model_version: str
    held_out_source: str  # the name of their table
    file_digest: str  # of the complete file of the policy
    judged: ReportRows  # held-out rows, or else the same as `fitted`
    fitted: ReportRows  # the rows that prices and frontiers are about
    audit: Audit | None
    confidence: float
    bounded_rates: tuple[BoundedRate, ...]  # worst first
    traced: Curves
    comparison: Comparison | None = None  # with an earlier policy
    monitor: Monitor | None = None  # that watched it since

    @property
    def policy(self) -> Policy:
        """The policy that the report is about."""
        return self.judged.policy

    @property
    def words(self) -> ActionWords:
        """The words of the policy's action space."""
        return self.judged.words

    @property
    def verdict(self) -> Verdict:
        """The verdict on all rules together."""
        if self.audit is not None:
            return self.audit.verdict
        return find_worst(bounded.verdict for bounded in self.bounded_rates)

    @property
    def badge(self) -> Html:
        """The verdict on all rules together, with its sign."""
        return make_badge(str(self.verdict), VERDICT_TONES[self.verdict])

    @property
    def alarms(self) -> str:
        """How many rules raised an alarm while the policy was watched."""
        count = sum(one.since is not None for one in self.monitor.status) if self.monitor else 0
        return f"{pluralize(count, 'rule')} raised an alarm" if count else "no rule raised an alarm"

    @property
    def measurement(self) -> str:
        """How errors were measured."""
        if not self.policy.action_space.classes:
            minimize = self.policy.problem.minimize
            return "as predicted" if find_predicted_costs(minimize, self.judged.seen) else "as observed"
        if not self.judged.labeled:
            return "as predicted by the model’s probabilities"
        return f"as observed{self._count_observed(LABEL)}"

    def _count_observed(self, name: str) -> str:
        """Return on how many cases something was observed, if not on all."""
        rows = self.judged.seen.seen.get(name)
        if rows is None:
            return ""
        return f" on {format_count(int(rows.sum()))} of {pluralize(len(self.judged), 'case')}"

    @property
    def rate_measurement(self) -> str:
        """How the rates of the rules were measured."""
        seen, options = self.judged.seen, self.policy.action_space.options
        expanded = self.policy.problem.expand(seen.classes, seen.group_values, options)
        costs = [name for one in expanded for name in find_predicted_costs(one.rule.excess, seen)]
        names = join_words([f"“{name}”" for name in dict.fromkeys(costs)])
        predicted = f", with {names} as predicted" if costs else ""
        # Groups that are observed on some cases only, or predicted.
        named = {name for one in expanded for atom in one.rule.atoms() for name, _ in atom.conditions}
        named -= {LABEL}
        groups = ""
        if partly := sorted(seen.find_partly_seen(named)):
            names = join_words([f"{name} as observed{self._count_observed(name)}" for name in partly])
            groups = f", with {names}"
        elif unseen := sorted(seen.unseen & named):
            names = join_words(unseen)
            groups = f", but with {names} as predicted: the true {names} of these cases is not known here"
        return f"{self.measurement}{groups}{predicted}"

    @property
    def cost_unit(self) -> Unit:
        """How values of the objective are read on charts."""
        return "share" if self.policy.problem.minimize.is_probability else "plain"

    def write_sentence(self, statement: Statement) -> str:
        """Return what a rule or family demands."""
        return write_sentence(statement, self.policy.action_space.kind)

    def describe_rate(self, rate: Objective) -> str:
        """Return a noun for a rate."""
        return describe_rate(rate, self.policy.action_space.kind)
