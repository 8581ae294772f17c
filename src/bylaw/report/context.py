"""Everything a report says, before it is put into words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bylaw.auditing.audit import Audit, Verdict
from bylaw.language.action_space import Kind
from bylaw.policy.policy import Policy
from bylaw.report.bounded_rates import Bar, overall
from bylaw.report.cost_curves import Curve
from bylaw.report.markup import Html, tag
from bylaw.report.number_format import count, listed, plural
from bylaw.report.rows import Cases

_LOOKS = {
    Verdict.CERTIFIED: ("good", "✓"),
    Verdict.HOLDS: ("good", "✓"),
    Verdict.VIOLATED: ("bad", "✕"),
    Verdict.BROKEN: ("bad", "✕"),
    Verdict.UNDECIDED: ("open", "?"),
    Verdict.UNJUDGED: ("open", "–"),
}


@dataclass(frozen=True)
class Facts:
    """A policy, the rows it is judged on, and what was found."""

    title: str
    created: str
    judged: Cases  # rows that were held out, or else the same as `fitted`
    fitted: Cases  # the rows that prices and frontiers are about
    audit: Audit | None
    confidence: float
    bars: tuple[Bar, ...]  # worst first
    curves: Sequence[Curve]
    without_curve: Sequence[str]

    @property
    def policy(self) -> Policy:
        return self.judged.policy

    @property
    def kind(self) -> Kind:
        return self.policy.action_space.kind

    @property
    def verdict(self) -> Verdict:
        return overall(self.bars, self.audit)

    @property
    def rows(self) -> str:
        """Which rows the numbers come from."""
        return _which(self.judged)

    @property
    def basis(self) -> str:
        """Which rows the frontiers come from."""
        return _which(self.fitted)

    @property
    def measured(self) -> str:
        """How errors were told."""
        return "as observed" if self.judged.labelled else "by the model’s own probabilities"

    @property
    def rates_measured(self) -> str:
        """How the rates of the rules were told."""
        rules = [
            found.rule
            for found in self.policy.problem.expand(self.judged.seen.classes, self.judged.seen.group_values)
        ]
        guessed = self.judged.guessed & {
            name for rule in rules for a in rule.atoms() for name, _ in a.conditions
        }
        if not guessed:
            return self.measured
        names = listed(sorted(guessed))
        return (
            f"{self.measured}, but with {names} as guessed: the true {names} of these cases is not known here"
        )

    @property
    def single_rules(self) -> str:
        return count(sum(len(bar.rules) for bar in self.bars))


def _which(cases: Cases) -> str:
    rows = plural(len(cases), "case")
    if cases.held_out:
        return f"{rows} that had no part in choosing the policy"
    return f"the {rows} {'on which the policy was chosen' if cases.fitted else 'given to this report'}"


def badge(verdict: Verdict) -> Html:
    """An icon and a word: never colour alone."""
    look, icon = _LOOKS[verdict]
    return tag("span", tag("span", icon, aria_hidden="true"), f" {verdict}", class_=f"badge {look}")
