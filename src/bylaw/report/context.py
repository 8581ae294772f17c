"""Everything that a report states, before it is put into words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bylaw.language.expressions import LABEL, Objective
from bylaw.language.parser import Statement
from bylaw.language.problem import ExpandedRule
from bylaw.policy.policy import Policy
from bylaw.report.action_words import ActionWords
from bylaw.report.bounded_rates import BoundedRate
from bylaw.report.cost_curves import Curve, Curves
from bylaw.report.markup import Html, tag
from bylaw.report.number_format import format_count, join_words, pluralize
from bylaw.report.rows import ReportRows
from bylaw.report.sentences import describe_rate, write_sentence
from bylaw.testing import Audit, Comparison, Monitor, Verdict, find_predicted_costs, find_worst

_LOOKS = {
    Verdict.CERTIFIED: ("good", "✓"),
    Verdict.HOLDS: ("good", "✓"),
    Verdict.VIOLATED: ("bad", "✕"),
    Verdict.BROKEN: ("bad", "✕"),
    Verdict.UNDECIDED: ("open", "?"),
    Verdict.UNJUDGED: ("open", "–"),
}


@dataclass(frozen=True)
class ReportContext:
    """A policy, the rows it is judged on, and what was found."""

    title: str
    created: str
    owner: str
    model_version: str
    held_out_source: str  # the name of their table
    file_digest: str  # of the whole file of the policy
    judged: ReportRows  # held-out rows, or else the same as `fitted`
    fitted: ReportRows  # the rows that prices and frontiers are about
    audit: Audit | None
    confidence: float
    bounded_rates: tuple[BoundedRate, ...]  # worst first
    traced: Curves
    comparison: Comparison | None = None  # with an earlier policy
    monitor: Monitor | None = None  # that watched it since

    @property
    def curves(self) -> Sequence[Curve]:
        return self.traced.curves

    @property
    def policy(self) -> Policy:
        return self.judged.policy

    @property
    def words(self) -> ActionWords:
        """Those of the policy's action space."""
        return self.judged.words

    @property
    def verdict(self) -> Verdict:
        """On all rules together."""
        if self.audit is not None:
            return self.audit.verdict
        return find_worst(bounded.verdict for bounded in self.bounded_rates)

    @property
    def judged_source(self) -> str:
        """The table that the numbers come from, as far as it is known."""
        if self.judged.held_out:
            return self.held_out_source
        return self.policy.card.source if self.judged.fitted else ""

    @property
    def alarms(self) -> str:
        """How many rules raised an alarm while the policy was watched."""
        found = [one for one in self.monitor.status if one.since is not None] if self.monitor else []
        return f"{pluralize(len(found), 'rule')} raised an alarm" if found else "no rule raised an alarm"

    @property
    def judged_name(self) -> str:
        """Which rows the numbers come from."""
        return _name_rows(self.judged)

    @property
    def fitted_name(self) -> str:
        """Which rows the frontiers come from."""
        return _name_rows(self.fitted)

    @property
    def measurement(self) -> str:
        """How errors were measured."""
        if not self.policy.action_space.classes:
            seen, minimize = self.judged.seen, self.policy.problem.minimize
            return "as predicted" if find_predicted_costs(minimize, seen) else "as observed"
        if not self.judged.labelled:
            return "as predicted by the model’s probabilities"
        return f"as observed{self._count_seen(LABEL)}"

    def _count_seen(self, name: str) -> str:
        """On how many cases something was observed, if not on all."""
        shown = self.judged.seen.seen.get(name)
        if shown is None:
            return ""
        return f" on {format_count(int(shown.sum()))} of {pluralize(len(self.judged), 'case')}"

    @property
    def curve_measurement(self) -> str:
        """How the costs of the curves were measured."""
        return {True: "as observed", False: "as predicted", None: "as given"}[self.traced.observed]

    @property
    def rate_measurement(self) -> str:
        """How the rates of the rules were measured."""
        seen = self.judged.seen
        options = self.policy.action_space.options
        expanded = self.policy.problem.expand(seen.classes, seen.group_values, options)
        costs = [name for found in expanded for name in find_predicted_costs(found.rule.excess, seen)]
        listed = join_words([f"“{name}”" for name in dict.fromkeys(costs)])
        return f"{self._rate_measurement(expanded)}{f', with {listed} as predicted' if costs else ''}"

    def _rate_measurement(self, expanded: Sequence[ExpandedRule]) -> str:
        """By labels and groups."""
        seen = self.judged.seen
        conditions = [atom.conditions for found in expanded for atom in found.rule.atoms()]
        named = {name for event in conditions for name, _ in event}
        if partly := sorted(seen.find_partly_seen(named - {LABEL})):
            known = join_words([f"{name} as observed{self._count_seen(name)}" for name in partly])
            return f"{self.measurement}, with {known}"
        predicted = self.judged.predicted_groups & named
        if not predicted:
            return self.measurement
        names = join_words(sorted(predicted))
        return (
            f"{self.measurement}, but with {names} as predicted: the true {names} of these cases is not "
            "known here"
        )

    @property
    def rule_count(self) -> str:
        """Of single rules."""
        return format_count(sum(len(bounded.rules) for bounded in self.bounded_rates))

    def write_sentence(self, statement: Statement) -> str:
        """What a rule or family demands."""
        return write_sentence(statement, self.policy.action_space.kind)

    def describe_rate(self, rate: Objective) -> str:
        """A noun for a rate."""
        return describe_rate(rate, self.policy.action_space.kind)


def _name_rows(rows: ReportRows) -> str:
    if rows.held_out:
        return pluralize(len(rows), "held-out case")
    cases = pluralize(len(rows), "case")
    return f"the {cases} {'on which the policy was chosen' if rows.fitted else 'given to this report'}"


def make_badge(verdict: Verdict) -> Html:
    """An icon and a word: never colour alone."""
    look, icon = _LOOKS[verdict]
    return tag("span", tag("span", icon, aria_hidden="true"), f" {verdict}", class_=f"badge {look}")
