"""Monitors as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from bylaw._base.visible_text import make_visible

if TYPE_CHECKING:
    from bylaw.monitoring.monitor import Monitor
    from bylaw.monitoring.rule_watch import RuleWatch

_SHOWN = 20
_COLOURS = {"broken": "#b42318", "changed": "#b42318", "quiet": "#1a7f37"}


def format_text(monitor: Monitor) -> str:
    """The monitor as plain text: alarms first, then the rules with the most evidence."""
    shown = sort_rules(monitor)
    width = max(len(one.status) for one in shown[:_SHOWN])
    names = max(len(one.rule) for one in shown[:_SHOWN])
    lines = [
        f"  {one.status!s:<{width}}  {one.rule:<{names}}  {format_finding(one)}" for one in shown[:_SHOWN]
    ]
    if more := len(shown) - _SHOWN if len(shown) > _SHOWN else 0:
        lines.append(f"  ... and {more} more rules, see to_frame()")
    return "\n".join(
        make_visible(line) for line in [format_headline(monitor), "", *lines, "", format_terms(monitor)]
    )


def format_html(monitor: Monitor) -> str:
    """The monitor as a table in HTML."""
    rows = "".join(
        f"<tr><td style='color:{_COLOURS.get(one.status, '#9a6700')}'>{one.status}</td>"
        f"<td style='text-align:left'>{html.escape(one.rule)}</td>"
        f"<td style='text-align:left'>{html.escape(format_finding(one))}</td></tr>"
        for one in sort_rules(monitor)[:_SHOWN]
    )
    return make_visible(
        f"<table><caption style='text-align:left'>{html.escape(format_headline(monitor))}</caption>"
        "<thead><tr><th>status</th><th style='text-align:left'>rule</th>"
        f"<th style='text-align:left'>so far</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def sort_rules(monitor: Monitor) -> list[RuleWatch]:
    """Worst first."""
    order = list(type(monitor.status[0].status))
    return sorted(monitor.status, key=lambda one: (order.index(one.status), -one.evidence))


def format_headline(monitor: Monitor) -> str:
    waiting = f", of which {monitor.waiting:,} wait for labels or groups" if monitor.waiting else ""
    return f"{'alarm' if monitor.alarm else 'quiet'} after {monitor.rows:,} rows{waiting}"


def format_terms(monitor: Monitor) -> str:
    """What is promised."""
    return (
        f"While all rules hold, one is ever called broken with probability {monitor.ever:g} at most, and the "
        f"mean number of rows until one is called changed is {monitor.run_length:,.0f} at least."
    )


def format_finding(one: RuleWatch) -> str:
    """The rate so far, its confidence sequence and the evidence, in a line."""
    if one.reason:
        return one.reason
    since = "" if one.since is None else f", alarm at row {one.since:,}"
    if math.isnan(one.estimate):
        return f"{one.rows:,} rows, too few to compare"
    evidence = f"{min(one.evidence, 9.99):.0%} of an alarm"
    return (
        f"{one.estimate:.4f}, always within {one.lower:.4f} to {one.upper:.4f}; {one.rows:,} rows; "
        f"{evidence}{since}"
    )
