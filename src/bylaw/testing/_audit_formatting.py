"""Audits as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bylaw._base.markup import Html
from bylaw._base.notebook import (
    Cell,
    Tone,
    draw_interval,
    list_remarks,
    make_card,
    make_code,
    make_long_table,
    make_status,
)
from bylaw._base.visible_text import make_visible
from bylaw.errors import join_remedy
from bylaw.language.expressions import LABEL
from bylaw.testing._reliability import CLOSE, Reliability
from bylaw.testing._verdicts import RuleAudit, Verdict, is_out_of_reach

if TYPE_CHECKING:
    from bylaw.testing._audit import Audit

_SHOWN_RULES = 40
_SHOWN_LINES = 3  # of calibration, the worst
_TONES: dict[Verdict, Tone] = {
    Verdict.CERTIFIED: "good",
    Verdict.HOLDS: "good",
    Verdict.VIOLATED: "bad",
    Verdict.BROKEN: "bad",
    Verdict.UNDECIDED: "open",
    Verdict.UNJUDGED: "open",
}


def format_text(audit: Audit) -> str:
    """The audit as plain text."""
    lines = [_format_headline(audit), "", *_format_subtitle(audit)]
    shown = _sort_rules(audit)
    width = max((len(str(rule.verdict)) for rule in shown), default=0)
    names = max((len(rule.rule) for rule in shown), default=0)
    for rule in shown:
        lines.append(
            f"  {rule.verdict!s:<{width}}  {rule.rule:<{names}}  {_format_finding(rule, audit)}".rstrip()
        )
    if more := len(audit.rules) - len(shown):
        lines.append(f"  ... and {more} more rules, see to_frame()")
    return "\n".join(make_visible(line) for line in [*lines, "", *_list_remarks(audit)])


def format_html(audit: Audit) -> str:
    """The audit as a table in HTML: each rule with its interval beside its bound."""
    shown = _sort_rules(audit)
    rows: list[list[Cell]] = [
        [
            make_status(str(rule.verdict), _TONES[rule.verdict]),
            make_code(rule.rule),
            _draw(rule),
            _format_finding(rule, audit),
        ]
        for rule in shown
    ]
    more = len(audit.rules) - len(shown)
    remarks = [*([f"and {more} more rules, see to_frame()"] if more else []), *_list_remarks(audit)]
    title = list_remarks([_format_headline(audit), *_format_subtitle(audit)])
    table = make_long_table(("verdict", "rule", "observed, and bound", ""), rows) if rows else None
    return make_card(title, table, remarks=remarks)


def _draw(rule: RuleAudit) -> Html | None:
    """The rate with its interval; the axis has room for both and for the bound."""
    ends = [value for value in (rule.lower, rule.estimate, rule.upper, rule.target) if math.isfinite(value)]
    if math.isnan(rule.estimate) or rule.reason:
        return None
    room = 0.1 * (max(ends) - min(ends)) or 0.05
    left, right = min(ends) - room, max(ends) + room
    lower, upper = max(rule.lower, left), min(rule.upper, right)  # nan stays
    return draw_interval(lower, rule.estimate, upper, rule.target, left, right, _TONES[rule.verdict])


def _format_headline(audit: Audit) -> str:
    rows = f"{audit.rows:,} rows"
    if not audit.certificate:
        return f"An estimate and no certificate, on {rows} on which the policy was chosen: {audit.verdict}"
    sure = f"{100 * audit.confidence:g} % confidence, by {audit.method}"
    return f"Audit of {rows} at {sure}. All rules together: {audit.verdict}"


def _format_subtitle(audit: Audit) -> list[str]:
    judged = sum(not rule.reason for rule in audit.rules)
    if not audit.certificate or judged < 2:
        return []
    return [
        f"Each rule: verdict and p-value are adjusted for {judged} rules (Holm), as the verdict on all "
        "together need not be; intervals are for one rule by itself."
    ]


def _sort_rules(audit: Audit) -> list[RuleAudit]:
    return sorted(audit.shown.rules, key=lambda rule: rule.verdict.severity)[:_SHOWN_RULES]


def _format_finding(rule: RuleAudit, audit: Audit) -> str:
    if rule.reason:
        shown = (
            f"{rule.estimate:.4g} as predicted; "
            if rule.is_predicted and rule.estimate == rule.estimate
            else ""
        )
        return shown + join_remedy(rule.reason, rule.remedy)
    text = "0/0: what it divides by is zero"
    if not math.isnan(rule.estimate):
        bounds = describe_bounds(rule.lower, rule.upper, "{:.4g}".format, ", ")
        text = f"{rule.estimate:.4g}{bounds and f' [{bounds}]'}"
    if not math.isnan(rule.p_holm):
        text += f"  p {rule.p_holm:.2g}"
    needed = describe_need(rule.rows_needed, audit.rows)
    return f"{text}  ({needed})" if needed else text


def describe_bounds(lower: float, upper: float, write: Callable[[float], str], between: str = " to ") -> str:
    """An interval, of which an end may be open; empty if both are, or there is none."""
    if math.isfinite(lower) and math.isfinite(upper):
        return f"{write(lower)}{between}{write(upper)}"
    if math.isfinite(lower):
        return f"at least {write(lower)}"
    return f"at most {write(upper)}" if math.isfinite(upper) else ""


def describe_need(rows_needed: float, rows: int, what: str = "it") -> str:
    """How many rows would decide an undecided rule; empty for others."""
    if is_out_of_reach(rows_needed, rows):
        return "at its limit"
    return "" if math.isnan(rows_needed) else f"about {rows_needed:,.0f} rows would decide {what}"


def _format_raw(line: Reliability) -> str:
    """The model's own probability, where it was calibrated."""
    if math.isnan(line.raw_predicted):
        return ""
    return f" ({100 * line.raw_predicted:.3g} % before calibration)"


def _list_remarks(audit: Audit) -> list[str]:
    by, shown = describe_cost(audit), audit.shown
    rejected = "" if math.isnan(audit.rejected) else f" with {100 * audit.rejected:.3g} % rejected"
    remarks = [
        f"{audit.objective}: {audit.costs.describe(bool(audit.rules))}{rejected}, {by}",
        f"random decisions: {100 * audit.random:.3g} % of the rows",
    ]
    remarks += [f"  {group}: {rate:.4g}" for group, rate in shown.group_rates.items()][:_SHOWN_RULES]
    if audit.looks:
        again = "" if audit.looks == 1 else ": the confidence is that of a single look"
        remarks.append(f"look {audit.looks:,} at this policy on held-out rows{again}")
    remarks += _list_seen(audit)
    if hidden := len(audit.hidden):
        remarks.append(
            f"{hidden} rules and groups are without numbers: they are about a group of fewer than "
            f"{audit.min_cell} rows, or beside one (min_cell=0 shows all)"
        )
    return remarks + _list_calibration(shown.reliability, audit.calibrated)


def describe_cost(audit: Audit) -> str:
    """How the costs were measured."""
    if not audit.cost_observed:
        return "as predicted"
    return "prediction-powered, since not all rows show it" if LABEL in audit.seen_rows else "observed"


def _list_calibration(lines: Sequence[Reliability], calibrated: bool) -> list[str]:
    """The probabilities beside what was observed: where they differ, or how closely they agree."""
    notable = sorted((line for line in lines if line.is_notable), key=lambda line: -line.severity)
    if notable:
        listed = [_format_disagreement(line) for line in notable[:_SHOWN_LINES]]
        advice = (
            "calibrate='auto' of solve(), or calibrator='auto' of a ConstrainedClassifier, may improve them"
        )
        if calibrated:
            advice = "the fit has tried to calibrate them: fit again with more rows, or with newer ones"
        return [f"probabilities that are not calibrated ({advice}):", *listed]
    if not lines:
        return []
    most = max(line.most_unevenness for line in lines if not line.among)
    if most > CLOSE:
        return [
            "too few rows to tell whether the probabilities agree with what was observed: "
            f"mean errors in ten bins of up to {min(100 * most, 100):.2g} points may go unnoticed"
        ]
    return [
        f"the probabilities agree with what was observed, within {100 * most:.2g} points on average over "
        "ten bins"
    ]


def _format_disagreement(line: Reliability) -> str:
    among = f" among {line.among}" if line.among else ""
    shares = (
        f"  {line.of}={line.value!r}{among}: {100 * line.predicted:.3g} % predicted{_format_raw(line)}, "
        f"{100 * line.observed:.3g} % observed ({line.deviations:+.1f} standard errors)"
    )
    if not line.is_uneven:
        return shares
    return (
        f"{shares}, and off by {100 * line.unevenness:.3g} points on average over ten bins "
        f"({100 * line.expected_unevenness:.2g} by chance)"
    )


def _list_seen(audit: Audit) -> list[str]:
    """How many rows show what others lack."""
    how = "a random sample of all rows" if audit.seen_at_random else "weighted by propensity_weights"
    remarks = [
        f"{name} was seen on {count:,} of {audit.rows:,} rows" for name, count in audit.seen_rows.items()
    ]
    if remarks and audit.certificate:
        remarks.append(f"  rules that refer to it are judged on such rows alone, as {how}")
    elif remarks:
        remarks.append(f"  rates that refer to it are prediction-powered, with such rows as {how}")
    return remarks
