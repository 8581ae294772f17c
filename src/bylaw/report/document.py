"""`report`: a policy and rows in, one page out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bylaw._base.atomic_files import write_text
from bylaw._base.validation import check_fraction
from bylaw.auditing.audit import Audit, audit
from bylaw.data.evidence import Evidence, as_evidence
from bylaw.data.outcomes import HeldOut
from bylaw.errors import OptionError
from bylaw.fitting.frontier import Frontier
from bylaw.policy.policy import Policy
from bylaw.report.bounded_rates import bars_of
from bylaw.report.context import Facts
from bylaw.report.cost_curves import curves_of
from bylaw.report.page import framed, page
from bylaw.report.rows import cases_of
from bylaw.report.sections.frontier import frontier_section
from bylaw.report.sections.groups import affected, before_and_after
from bylaw.report.sections.guarantees import calibration, fingerprint, guarantees, randomness
from bylaw.report.sections.rules import prices, rules_in_words, rules_kept
from bylaw.report.sections.summary import summary

_LEVELS = 21
_MOST_LEVELS = 200
_LARGE = 20_000  # single rules times actions: beyond, frontiers take minutes and are only made if asked for
_SECTIONS = (
    ("summary", "Summary", summary),
    ("rules", "Rules", rules_in_words),
    ("groups", "Before and after", before_and_after),
    ("kept", "Do they hold?", rules_kept),
    ("prices", "Prices", prices),
    ("affected", "Who is affected", affected),
    ("frontier", "Other levels", frontier_section),
    ("chance", "Chance", randomness),
    ("calibration", "Calibration", calibration),
    ("guarantees", "Guarantees", guarantees),
    ("fingerprint", "Fingerprint", fingerprint),
)


@dataclass(frozen=True)
class Report:
    """One self-contained page, for those who must judge a policy and are no engineers."""

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; an older file stays until the new one is whole."""
        write_text(Path(path), self.html)

    def __repr__(self) -> str:
        return f"Report of {len(self.html) / 1024:,.0f} KB; keep it with save('report.html')"

    def _repr_html_(self) -> str:
        return framed(self.html)


def report(
    policy: Policy,
    evidence: Evidence,
    *,
    labels: Any = None,
    groups: Any = None,
    held_out: HeldOut | None = None,
    confidence: float = 0.95,
    levels: int | None = None,
    frontiers: Sequence[Frontier] | None = None,
    title: str = "Policy report",
    created: str | datetime | None = None,
) -> Report:
    """A page that says what a policy decides, whether its rules hold, whom they affect and what they cost.

    Parameters
    ----------
    evidence
        the rows on which the policy was chosen: prices and frontiers are about them.
    labels, groups
        what was seen of these rows: true labels, and true groups of attributes that the evidence knows only
        as probabilities.
    held_out
        rows that had no part in choosing the policy. If given, the rules are judged by an audit of them,
        with intervals and verdicts, and the other rates are theirs, too.
    confidence
        of the audit.
    levels
        how many points each frontier gets; 0 for no frontiers. By default 21, or none where there are so many
        rules and labels that frontiers take minutes.
    frontiers
        frontiers that are at hand, each over one rule of the policy; they are shown instead.
    created
        what to print as the date; now, if it is left out.
    """
    if not isinstance(policy, Policy):
        raise OptionError(f"report() takes a Policy and then Evidence, not {type(policy).__name__} first")
    as_evidence(evidence)
    check_fraction(confidence, "confidence")
    points = _points(levels, len(policy.rule_prices) * len(policy.actions))
    fitted = cases_of(policy, HeldOut(evidence, labels, groups), held_out=False)
    found = None if held_out is None else _audit(policy, held_out, confidence)
    judged = fitted if held_out is None else cases_of(policy, held_out, held_out=True)
    curves, without = curves_of(fitted, points, frontiers) if points or frontiers is not None else ([], [])
    facts = Facts(
        title=str(title),
        created=_date(created),
        judged=judged,
        fitted=fitted,
        audit=found,
        confidence=confidence,
        bars=bars_of(judged, found),
        curves=curves,
        without_curve=without,
    )
    sections = [(anchor, name, write(facts)) for anchor, name, write in _SECTIONS]
    return Report(page(facts.title, f"{facts.created} · policy {policy.digest[:12]}", sections))


def _audit(policy: Policy, held_out: Any, confidence: float) -> Audit:
    if not isinstance(held_out, HeldOut):
        raise OptionError(
            f"held_out takes HeldOut(evidence, labels, groups) from bylaw, not {type(held_out).__name__}"
        )
    return audit(
        policy,
        held_out.evidence,
        labels=held_out.labels,
        groups=held_out.groups,
        limits=held_out.limits,
        largest_weight=held_out.largest_weight,
        confidence=confidence,
    )


def _points(levels: Any, size: int) -> int:
    if levels is None:
        return _LEVELS if size <= _LARGE else 0
    if type(levels) is not int or not (levels == 0 or 2 <= levels <= _MOST_LEVELS):
        raise OptionError(f"levels must be 0 or a whole number from 2 to {_MOST_LEVELS}, not {levels!r}")
    return levels


def _date(created: str | datetime | None) -> str:
    if isinstance(created, str):
        return created
    moment = datetime.now(UTC) if created is None else created
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip()
