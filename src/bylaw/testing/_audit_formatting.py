"""Audits as text for a terminal, and as cards for a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bylaw.errors import join_remedy
from bylaw.language.expressions import LABEL
from bylaw.testing._reliability import CLOSE, Reliability
from bylaw.testing._verdicts import RuleAudit, Verdict, is_out_of_reach
from bylaw.view.cards import Card, Cell, Table, code, list_remarks, status
from bylaw.view.charts import Track, draw_track, fit_scale
from bylaw.view.colors import Tone
from bylaw.view.numbers import format_bounds

if TYPE_CHECKING:
    from bylaw.testing._audit import Audit

_MOST_RULES = 40
_MOST_COMPARISONS = 3  # of probabilities with what was observed
VERDICT_TONES: dict[Verdict, Tone] = {
    Verdict.CERTIFIED: "good",
    Verdict.HOLDS: "good",
    Verdict.VIOLATED: "bad",
    Verdict.BROKEN: "bad",
    Verdict.UNDECIDED: "open",
    Verdict.UNJUDGED: "open",
}


def make_audit_card(audit: Audit) -> Card:
    """Return the verdicts of an audit, worst first, each with its interval beside its bound."""
    rules = sorted(audit.shown.rules, key=lambda rule: rule.verdict.severity)[:_MOST_RULES]
    rows = []
    for rule in rules:
        tone, chart = VERDICT_TONES[rule.verdict], None
        if not (math.isnan(rule.estimate) or rule.reason):
            # Draw the rate with its interval, on an axis with room for both and for the bound.
            low, high = (-math.inf, rule.target) if rule.sense == "<=" else (rule.target, math.inf)
            track = Track(low, high, rule.estimate, rule.lower, rule.upper)
            scale = fit_scale((rule.lower, rule.estimate, rule.upper, rule.target))
            title = f"{rule.estimate:.4g} beside {rule.target:.4g}"
            chart = Cell(draw_track(title, track, scale, height=20, tone=tone, width="120"))
        rows.append([status(str(rule.verdict), tone), code(rule.rule), chart, _describe_finding(rule, audit)])
    table = Table(("verdict", "rule", "observed, and bound", ""), rows) if rows else None
    remarks = list_remarks(len(audit.rules) - len(rows), _list_remarks(audit))
    headline = (
        f"An estimate and no certificate, on {audit.rows:,} rows on which the policy was chosen: "
        f"{audit.verdict}"
    )
    if audit.certificate:
        confidence = f"{100 * audit.confidence:g} % confidence, by {audit.method}"
        headline = f"Audit of {audit.rows:,} rows at {confidence}. All rules together: {audit.verdict}"
    judged, subtitle = sum(not rule.reason for rule in audit.rules), []
    if audit.certificate and judged > 1:
        subtitle.append(
            f"Verdicts and p-values of single rules are adjusted for {judged} rules (Holm); the verdict on "
            "all rules together needs no adjustment. Intervals are for one rule at a time."
        )
    return Card(headline, [table], remarks, subtitle)


def _describe_finding(rule: RuleAudit, audit: Audit) -> str:
    """Return the rate of a rule with its interval, p-value and the rows that would decide it."""
    if rule.reason:
        is_estimated = rule.is_predicted and not math.isnan(rule.estimate)
        estimate = f"{rule.estimate:.4g} as predicted; " if is_estimated else ""
        return estimate + join_remedy(rule.reason, rule.remedy)
    text = "0/0: the denominator is zero"
    if not math.isnan(rule.estimate):
        bounds = format_bounds(rule.lower, rule.upper, "{:.4g}".format, ", ")
        text = f"{rule.estimate:.4g}{bounds and f' [{bounds}]'}"
    if not math.isnan(rule.p_holm):
        text += f"  p {rule.p_holm:.2g}"
    needed = describe_need(rule.rows_needed, audit.rows)
    return f"{text}  ({needed})" if needed else text


def describe_need(rows_needed: float, rows: int, what: str = "it") -> str:
    """Return how many rows would decide an undecided rule; empty for other rules."""
    if is_out_of_reach(rows_needed, rows):
        return "at its limit"
    return "" if math.isnan(rows_needed) else f"about {rows_needed:,.0f} rows would decide {what}"


def describe_cost(audit: Audit) -> str:
    """Return how the costs of an audit were measured."""
    if not audit.cost_observed:
        return "as predicted"
    return "prediction-powered, since not all rows show it" if LABEL in audit.seen_rows else "observed"


def _list_remarks(audit: Audit) -> list[str]:
    shown = audit.shown
    rejected = "" if math.isnan(audit.rejected) else f" with {100 * audit.rejected:.3g} % rejected"
    costs = audit.costs.describe(bool(audit.rules))
    remarks = [
        f"{audit.objective}: {costs}{rejected}, {describe_cost(audit)}",
        f"random decisions: {100 * audit.random:.3g} % of the rows",
        *[f"  {group}: {rate:.4g}" for group, rate in shown.group_rates.items()][:_MOST_RULES],
    ]
    if audit.looks:
        again = "" if audit.looks == 1 else ": the confidence is that of a single look"
        remarks.append(f"look {audit.looks:,} at this policy on held-out rows{again}")
    # State how many rows show the labels and groups that are missing on others.
    for name, count in audit.seen_rows.items():
        remarks.append(f"{name} was seen on {count:,} of {audit.rows:,} rows")
    how = "a random sample of all rows" if audit.seen_at_random else "weighted by propensity_weights"
    if audit.seen_rows and audit.certificate:
        remarks.append(f"  rules that refer to it are judged on such rows alone, as {how}")
    elif audit.seen_rows:
        remarks.append(f"  rates that refer to it are prediction-powered, with such rows as {how}")
    if hidden := len(audit.hidden):
        remarks.append(
            f"{hidden} rules and groups are without numbers: they are about a group of fewer than "
            f"{audit.min_cell} rows, or beside one (min_cell=0 shows all)"
        )
    return remarks + _list_calibration(shown.reliability, audit.calibrated)


def _list_calibration(lines: Sequence[Reliability], calibrated: bool) -> list[str]:
    """Return the probabilities that differ most from what was observed, or how closely all agree."""
    notable = sorted((line for line in lines if line.is_notable), key=lambda line: -line.severity)
    if notable:
        advice = (
            "calibrate='auto' of solve(), or calibrator='auto' of a ConstrainedClassifier, may improve them"
        )
        if calibrated:
            advice = "the fit has tried to calibrate them: fit again with more rows, or with newer ones"
        remarks = [f"probabilities that are not calibrated ({advice}):"]
        for line in notable[:_MOST_COMPARISONS]:
            among = f" among {line.among}" if line.among else ""
            raw = f" ({100 * line.raw_predicted:.3g} % before calibration)"
            text = (
                f"  {line.of}={line.value!r}{among}: {100 * line.predicted:.3g} % predicted"
                f"{'' if math.isnan(line.raw_predicted) else raw}, {100 * line.observed:.3g} % observed "
                f"({line.deviations:+.1f} standard errors)"
            )
            if line.is_uneven:
                text += (
                    f", and off by {100 * line.unevenness:.3g} points on average over ten bins "
                    f"({100 * line.expected_unevenness:.2g} by chance)"
                )
            remarks.append(text)
        return remarks
    if not lines:
        return []
    most = 100 * max(line.most_unevenness for line in lines if not line.among)
    if most > 100 * CLOSE:
        return [
            "too few rows to decide whether the probabilities agree with what was observed: "
            f"mean errors in ten bins of up to {min(most, 100):.2g} points may go unnoticed"
        ]
    return [
        f"the probabilities agree with what was observed, within {most:.2g} points on average over ten bins"
    ]
