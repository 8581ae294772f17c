"""Audits and monitors as text for a terminal, as HTML cards for a notebook, and as matplotlib plots."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw._base import MIN_CELL, check_min_cell
from bylaw.errors import OptionError, install_extra, join_remedy
from bylaw.language import LABEL, Conditions
from bylaw.testing._verdicts import RuleAudit, Verdict, find_hidden_cells, is_out_of_reach
from bylaw.testing._watched_rule import RuleWatch, Watch
from bylaw.view import (
    Card,
    Cell,
    Table,
    Tone,
    Track,
    bar,
    code,
    draw_track,
    fit_scale,
    format_bounds,
    list_remarks,
    status,
)

if TYPE_CHECKING:
    from bylaw.testing._audit import Audit
    from bylaw.testing._monitor import Monitor
    from bylaw.testing._reliability import Reliability

CLOSE = 0.05  # mean distance over bins up to which probabilities agree with observed shares

_MOST_JUDGED, _MOST_WATCHED, _MOST_PLOTTED = 40, 20, 4  # the most rules in a card or plot
_ASSUMPTIONS = {
    "rows": "Assumed: rows are independent, and rules hold at all times. Rates, intervals and evidence "
    "compare groups within a named batch, or else among adjacent rows.",
    "batches": "Assumed: rules hold on average over batches, whose rates may vary at random. Rates, "
    "intervals and evidence are about the mean of batches, and groups are compared within each batch.",
}
VERDICT_TONES: dict[Verdict, Tone] = {
    Verdict.CERTIFIED: "good",
    Verdict.HOLDS: "good",
    Verdict.VIOLATED: "bad",
    Verdict.BROKEN: "bad",
    Verdict.UNDECIDED: "open",
    Verdict.UNJUDGED: "open",
}
WATCH_TONES: dict[Watch, Tone] = {
    Watch.BROKEN: "bad",
    Watch.CHANGED: "bad",
    Watch.QUIET: "good",
    Watch.UNSEEN: "open",
}


def make_audit_card(audit: Audit) -> Card:
    """Return a card with the verdicts of an audit, worst first, each with its interval and bound."""
    rules = sorted(audit.shown.rules, key=lambda rule: rule.verdict.severity)[:_MOST_JUDGED]
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
        rows.append([status(str(rule.verdict), tone), code(rule.rule), chart, _describe_judged(rule, audit)])
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


def _describe_judged(rule: RuleAudit, audit: Audit) -> str:
    """Return a text with a rule's rate, interval, p-value and the number of rows needed for a verdict."""
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
    """Return a text with the number of rows that would decide an undecided rule; empty for other rules."""
    if is_out_of_reach(rows_needed, rows):
        return "at its limit"
    return "" if math.isnan(rows_needed) else f"about {rows_needed:,.0f} rows would decide {what}"


def describe_cost(audit: Audit) -> str:
    """Return how the costs of an audit were measured, such as "observed" or "as predicted"."""
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
        *[f"  {group}: {rate:.4g}" for group, rate in shown.group_rates.items()][:_MOST_JUDGED],
    ]
    if audit.looks:
        again = "" if audit.looks == 1 else ": the confidence is that of a single look"
        remarks.append(f"look {audit.looks:,} at this policy on held-out rows{again}")
    # State how many rows show the labels and groups that are missing on others.
    for name, count in audit.seen_rows.items():
        remarks.append(f"{name} was observed on {count:,} of {audit.rows:,} rows")
    how = "a random sample of all rows" if audit.seen_at_random else "weighted by propensity_weights"
    if audit.seen_rows and audit.certificate:
        remarks.append(f"  rules that refer to it are judged on such rows alone, as {how}")
    elif audit.seen_rows:
        remarks.append(f"  rates that refer to it are prediction-powered, with such rows as {how}")
    if hidden := len(audit.hidden):
        remarks.append(
            f"the numbers of {hidden} rules and groups are not shown: they are about a group of fewer than "
            f"{audit.min_cell} rows, or could reveal one (min_cell=0 shows all)"
        )
    return remarks + _list_calibration(shown.reliability, audit.calibrated)


def _list_calibration(lines: Sequence[Reliability], calibrated: bool) -> list[str]:
    """Return remarks on the least calibrated probabilities, or on how closely all match observations."""
    notable = sorted((line for line in lines if line.is_notable), key=lambda line: -line.severity)
    if notable:
        advice = (
            "calibrate='auto' of solve(), or calibrator='auto' of a ConstrainedClassifier, may improve them"
        )
        if calibrated:
            advice = "the fit has tried to calibrate them: fit again with more rows, or with newer ones"
        remarks = [f"probabilities that are not calibrated ({advice}):"]
        for line in notable[:3]:
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


def make_monitor_card(monitor: Monitor, min_cell: int = MIN_CELL) -> Card:
    """Return a card with the monitored rules: alarms first, then those closest to an alarm."""
    rows = [
        [
            status(str(one.status), WATCH_TONES[one.status]),
            code(one.rule),
            bar(min(one.evidence, 1.0), 1.0, WATCH_TONES[one.status]),
            _describe_watched(one),
        ]
        for one in sort_rules(monitor, min_cell)[:_MOST_WATCHED]
    ]
    table = Table(("status", "rule", "evidence of an alarm", "so far"), rows)
    remarks = list_remarks(len(monitor.status) - len(rows), [format_terms(monitor)])
    return Card(format_headline(monitor), [table], remarks)


def sort_rules(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Return the state of all single rules, worst first, without numbers about small groups."""
    order = list(Watch)
    return sorted(list_shown(monitor, min_cell), key=lambda one: (order.index(one.status), -one.evidence))


def list_shown(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Return the state of all single rules in the order of the problem, without numbers about small groups.

    A rule about a group with fewer than `min_cell` rows so far has a status only. So has the next smallest
    group, if the hidden numbers could otherwise be computed from it.
    """
    # Count the rows of each group so far, from complete rounds and from the incomplete one.
    counts: dict[Conditions, float] = {}
    for watched, state in zip(monitor.watched, monitor.states, strict=True):
        sizes = state.totals + (state.waiting.sum(axis=1) if state.waiting.size else 0.0)
        for mean, size in zip(watched.hypothesis.means, sizes, strict=False):  # amounts follow the sizes
            event = mean.event.conditions
            counts[event] = min(float(size), counts.get(event, math.inf))
    hidden = find_hidden_cells(counts, check_min_cell(min_cell))
    cells = [{atom.conditions for atom in expanded.rule.atoms()} for expanded in monitor.expanded]
    pairs = zip(monitor.status, cells, strict=True)
    return [one.hide(min_cell) if own & hidden else one for one, own in pairs]


def format_headline(monitor: Monitor) -> str:
    """Return a text that states whether there is an alarm, and after how many rows."""
    waiting = f", of which {monitor.waiting:,} wait for labels or groups" if monitor.waiting else ""
    return f"{'alarm' if monitor.alarm else 'quiet'} after {monitor.rows:,} rows{waiting}"


def format_terms(monitor: Monitor) -> str:
    """Return a text with the error rates of alarms, and the assumptions that they depend on."""
    unit = monitor.unit
    return (
        f"While all rules hold, one is ever called broken with probability {monitor.ever:g} at most, and the "
        f"mean number of {unit} until one is called changed is {monitor.run_length:,.0f} at least. "
        f"{_ASSUMPTIONS[unit]} Intervals contain their rates at all times, all of them together with "
        f"probability {100 * (1 - monitor.ever):.10g} %."
    )


def _describe_watched(one: RuleWatch) -> str:
    """Return a line with a rule's rate so far, its confidence sequence and the evidence against it."""
    if one.reason:
        return one.reason
    if math.isnan(one.estimate):
        return f"{one.rows:,} rows, too few to compare"
    since = "" if one.since is None else f", alarm at row {one.since:,}"
    evidence = f"{min(one.evidence, 9.99):.0%} of an alarm"
    return f"{one.estimate:.4f}, {format_interval(one)}; {one.rows:,} rows; {evidence}{since}"


def format_interval(one: RuleWatch) -> str:
    """Return a text with the current interval of a rule's confidence sequence."""
    return f"{100 * one.confidence:.10g} % interval at all times {one.lower:.4f} to {one.upper:.4f}"


def plot_monitor(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> Any:
    """Plot each rule's rate with its confidence sequence, and below it the evidence against the rule."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter
    except ImportError:
        raise OptionError(f"matplotlib must be installed for plots: {install_extra('plot')}") from None
    plotted = _choose_rules(monitor, rules, min_cell)
    figure, axes = plt.subplots(
        2,
        len(plotted),
        figsize=(max(4.2 * len(plotted), 5.6), 5.6),
        sharex="col",
        squeeze=False,
        height_ratios=(3, 2),
        layout="constrained",
    )
    for one, (rate, evidence) in zip(plotted, axes.T, strict=True):
        history = np.array(one.history)
        rows, estimate, lower, upper = history[:, :4].T
        rate.fill_between(rows, lower, upper, color="#1f4e79", alpha=0.15, label="within, at all times")
        rate.plot(rows, estimate, color="#1f4e79", linewidth=2, label="so far")
        rate.axhline(one.target, color="#c0504d", linestyle="--", linewidth=1.2, label="bound")
        rate.set_title("\n".join(textwrap.wrap(one.rule, 46)), fontsize=9, loc="left")
        low, high = np.quantile(lower, 0.2), np.quantile(upper, 0.8)  # without the first, widest intervals
        margin = 0.1 * max(high - low, 1e-6)
        rate.set_ylim(min(low, one.target) - margin, max(high, one.target) + margin)
        rate.set_ylabel("rate", fontsize=10)
        limits = monitor.alarm_limits
        lines = (4, limits.log_ever, "#1f4e79", "broken"), (5, limits.log_change, "#9aa5b1", "changed")
        for column, limit, color, name in lines:
            share = np.maximum(history[:, column] * np.log(10) / limit, 0.0)
            evidence.plot(rows, share, color=color, linewidth=1.8, label=name)
        evidence.axhline(1.0, color="#b42318", linestyle=":", linewidth=1.2, label="alarm")
        evidence.set_ylim(bottom=0.0)
        evidence.set_ylabel("evidence", fontsize=10)
        evidence.set_xlabel("rows", fontsize=10)
        for ax in (rate, evidence) if one.since is not None else ():
            ax.axvline(one.since, color="#b42318", linewidth=1.0)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for ax in axes[:, 0]:
        ax.legend(frameon=False, fontsize=9)
    return figure


def _choose_rules(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> list[RuleWatch]:
    """Return the named rules, or those closest to an alarm; raise if they cannot be plotted."""
    ordered = {one.rule: one for one in sort_rules(monitor, min_cell)}
    available = [text for text, one in ordered.items() if one.history]
    if rules is None:
        rules = available[:_MOST_PLOTTED]
    texts = [rules] if isinstance(rules, str) else [str(rule) for rule in rules]
    for text in texts:
        if text in ordered and ordered[text].hidden:
            raise OptionError(f"rules must be about groups of at least {min_cell} rows, got {text!r}")
        if text not in available:
            raise OptionError(f"rules must be among those with rows, {available}, got {text!r}")
    if not texts:
        raise OptionError("no rule has enough rows for a plot yet: update the monitor with more rows")
    return [ordered[text] for text in texts]
