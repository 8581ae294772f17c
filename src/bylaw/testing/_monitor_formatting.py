"""Monitors as text for a terminal, as cards for a notebook, and as matplotlib plots."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw._base.validation import MIN_CELL, check_min_cell
from bylaw.errors import OptionError, install_extra
from bylaw.language.expressions import Conditions
from bylaw.testing._verdicts import find_hidden_cells
from bylaw.testing._watched_rule import RuleWatch, Watch
from bylaw.view.cards import Card, Table, bar, code, list_remarks, status
from bylaw.view.colors import Tone

if TYPE_CHECKING:
    from bylaw.testing._monitor import Monitor

_MOST_RULES, _MOST_PLOTTED = 20, 4
_ASSUMPTIONS = {
    "rows": "Assumed: rows are independent, and rules hold at all times. Rates, intervals and evidence "
    "compare groups among rows of the same time: shuffled rows of a named batch, else rows next to each "
    "other.",
    "batches": "Assumed: rules hold on average over batches, whose rates may differ by chance. Rates, "
    "intervals and evidence are about the mean of batches, within each of which groups are compared.",
}
WATCH_TONES: dict[Watch, Tone] = {
    Watch.BROKEN: "bad",
    Watch.CHANGED: "bad",
    Watch.QUIET: "good",
    Watch.UNSEEN: "open",
}


def make_monitor_card(monitor: Monitor, min_cell: int = MIN_CELL) -> Card:
    """Return alarms first, and then the rules with the most evidence on its way to an alarm."""
    rows = [
        [
            status(str(one.status), WATCH_TONES[one.status]),
            code(one.rule),
            bar(min(one.evidence, 1.0), 1.0, WATCH_TONES[one.status]),
            _describe_finding(one),
        ]
        for one in sort_rules(monitor, min_cell)[:_MOST_RULES]
    ]
    table = Table(("status", "rule", "evidence of an alarm", "so far"), rows)
    remarks = list_remarks(len(monitor.status) - len(rows), [format_terms(monitor)])
    return Card(format_headline(monitor), [table], remarks)


def sort_rules(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Return all single rules, worst first, without numbers about small groups."""
    order = list(Watch)
    return sorted(list_shown(monitor, min_cell), key=lambda one: (order.index(one.status), -one.evidence))


def list_shown(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Return all single rules in the order of the problem, without numbers about small groups.

    Rules about a group that was seen on fewer than `min_cell` rows so far, or beside one, have a status only.
    """
    # Count the rows of each group so far, at least once: those of whole rounds, and those that wait for one.
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
    """Return whether there is an alarm, and after how many rows."""
    waiting = f", of which {monitor.waiting:,} wait for labels or groups" if monitor.waiting else ""
    return f"{'alarm' if monitor.alarm else 'quiet'} after {monitor.rows:,} rows{waiting}"


def format_terms(monitor: Monitor) -> str:
    """Return the error rates of alarms, and the assumptions they depend on."""
    unit = monitor.unit
    return (
        f"While all rules hold, one is ever called broken with probability {monitor.ever:g} at most, and the "
        f"mean number of {unit} until one is called changed is {monitor.run_length:,.0f} at least. "
        f"{_ASSUMPTIONS[unit]} Intervals contain their rates at all times, all of them together with "
        f"probability {100 * (1 - monitor.ever):.10g} %."
    )


def _describe_finding(one: RuleWatch) -> str:
    """Return the rate so far, its confidence sequence and the evidence, in a line."""
    if one.reason:
        return one.reason
    if math.isnan(one.estimate):
        return f"{one.rows:,} rows, too few to compare"
    since = "" if one.since is None else f", alarm at row {one.since:,}"
    evidence = f"{min(one.evidence, 9.99):.0%} of an alarm"
    return f"{one.estimate:.4f}, {format_interval(one)}; {one.rows:,} rows; {evidence}{since}"


def format_interval(one: RuleWatch) -> str:
    """Return the confidence sequence of a rule."""
    return f"{100 * one.confidence:.10g} % interval at all times {one.lower:.4f} to {one.upper:.4f}"


def plot_monitor(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> Any:
    """Plot a column for each rule: its rate with the confidence sequence, and the evidence below it."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter
    except ImportError:
        raise OptionError(f"plots need matplotlib: {install_extra('plot')}") from None
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
        _plot_rate(rate, one)
        _plot_evidence(evidence, one, monitor)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for ax in axes[:, 0]:
        ax.legend(frameon=False, fontsize=9)
    return figure


def _choose_rules(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> list[RuleWatch]:
    """Return the named rules, or those closest to an alarm; raise if they are hidden or have no rows."""
    ordered = {one.rule: one for one in sort_rules(monitor, min_cell)}
    available = [text for text, one in ordered.items() if one.history]
    if rules is None:
        rules = available[:_MOST_PLOTTED]
    texts = [rules] if isinstance(rules, str) else [str(rule) for rule in rules]
    for text in texts:
        if text in ordered and ordered[text].hidden:
            raise OptionError(f"{text!r} is not shown: it is about a group of fewer than {min_cell} rows")
        if text not in available:
            raise OptionError(f"there is no rule {text!r} with rows; there are {available}")
    if not texts:
        raise OptionError("no rule has enough rows for a plot yet; update the monitor with more rows")
    return [ordered[text] for text in texts]


def _plot_rate(ax: Any, one: RuleWatch) -> None:
    rows, estimate, lower, upper = np.array(one.history)[:, :4].T
    ax.fill_between(rows, lower, upper, color="#1f4e79", alpha=0.15, label="within, at all times")
    ax.plot(rows, estimate, color="#1f4e79", linewidth=2, label="so far")
    ax.axhline(one.target, color="#c0504d", linestyle="--", linewidth=1.2, label="bound")
    ax.set_title("\n".join(textwrap.wrap(one.rule, 46)), fontsize=9, loc="left")
    low, high = np.quantile(lower, 0.2), np.quantile(upper, 0.8)  # without the first, widest intervals
    margin = 0.1 * max(high - low, 1e-6)
    ax.set_ylim(min(low, one.target) - margin, max(high, one.target) + margin)
    ax.set_ylabel("rate", fontsize=10)
    if one.since is not None:
        ax.axvline(one.since, color="#b42318", linewidth=1.0)


def _plot_evidence(ax: Any, one: RuleWatch, monitor: Monitor) -> None:
    history, limits = np.array(one.history), monitor.alarm_limits
    lines = (4, limits.log_ever, "#1f4e79", "broken"), (5, limits.log_change, "#9aa5b1", "changed")
    for column, limit, color, name in lines:
        share = np.maximum(history[:, column] * np.log(10) / limit, 0.0)
        ax.plot(history[:, 0], share, color=color, linewidth=1.8, label=name)
    ax.axhline(1.0, color="#b42318", linestyle=":", linewidth=1.2, label="alarm")
    ax.set_ylim(bottom=0.0)
    ax.set_ylabel("evidence", fontsize=10)
    ax.set_xlabel("rows", fontsize=10)
    if one.since is not None:
        ax.axvline(one.since, color="#b42318", linewidth=1.0)
