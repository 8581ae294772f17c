"""Monitors as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bylaw._base.notebook import (
    COLOURS,
    Cell,
    Tone,
    draw_bar,
    make_card,
    make_code,
    make_long_table,
    make_status,
)
from bylaw._base.validation import MIN_CELL, check_min_cell
from bylaw._base.visible_text import make_visible
from bylaw.testing._verdicts import find_hidden_cells

if TYPE_CHECKING:
    from bylaw.testing._monitor import Monitor
    from bylaw.testing._rule_watch import RuleWatch

_SHOWN = 20
_ASSUMPTIONS = {
    "rows": "Assumed: rows are independent, and rules hold at all times. Rates, intervals and evidence "
    "compare groups among rows of the same time: shuffled rows of a named batch, else rows next to each "
    "other.",
    "batches": "Assumed: rules hold on average over batches, whose rates may differ by chance. Rates, "
    "intervals and evidence are about the mean of batches, within each of which groups are compared.",
}
_TONES: dict[str, Tone] = {"broken": "bad", "changed": "bad", "quiet": "good", "no rows yet": "open"}


def format_text(monitor: Monitor, min_cell: int = MIN_CELL) -> str:
    """The monitor as plain text: alarms first, then the rules with the most evidence."""
    shown = sort_rules(monitor, min_cell)
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


def format_html(monitor: Monitor, min_cell: int = MIN_CELL) -> str:
    """The monitor as a table in HTML: each rule with the evidence on its way to an alarm."""
    rows: list[list[Cell]] = [
        [
            make_status(str(one.status), _TONES[one.status]),
            make_code(one.rule),
            draw_bar(min(one.evidence, 1.0), 1.0, COLOURS[_TONES[one.status]]),
            format_finding(one),
        ]
        for one in sort_rules(monitor, min_cell)[:_SHOWN]
    ]
    more = len(monitor.status) - len(rows)
    remarks = [*([f"and {more} more rules, see to_frame()"] if more else []), format_terms(monitor)]
    table = make_long_table(("status", "rule", "evidence of an alarm", "so far"), rows)
    return make_card(format_headline(monitor), table, remarks=remarks)


def sort_rules(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Worst first, without numbers about small groups."""
    status = list_shown(monitor, min_cell)
    order = list(type(status[0].status))
    return sorted(status, key=lambda one: (order.index(one.status), -one.evidence))


def list_shown(monitor: Monitor, min_cell: int = MIN_CELL) -> list[RuleWatch]:
    """Return every single rule in the order of the problem; those about a group that was seen on fewer than
    `min_cell` rows so far, or beside one, have a status and no other numbers."""
    hidden = find_hidden_cells(monitor.count_cells(), check_min_cell(min_cell))
    cells = [{atom.conditions for atom in found.rule.atoms()} for found in monitor.expanded]
    pairs = zip(monitor.status, cells, strict=True)
    return [one.hide(min_cell) if own & hidden else one for one, own in pairs]


def format_headline(monitor: Monitor) -> str:
    waiting = f", of which {monitor.waiting:,} wait for labels or groups" if monitor.waiting else ""
    return f"{'alarm' if monitor.alarm else 'quiet'} after {monitor.rows:,} rows{waiting}"


def format_terms(monitor: Monitor) -> str:
    """State what is promised, about which rates, and on which assumption."""
    unit = monitor.unit
    return (
        f"While all rules hold, one is ever called broken with probability {monitor.ever:g} at most, and the "
        f"mean number of {unit} until one is called changed is {monitor.run_length:,.0f} at least. "
        f"{_ASSUMPTIONS[unit]} Intervals contain their rates at all times, all of them together with "
        f"probability {_format_share(1 - monitor.ever)}."
    )


def _format_share(share: float) -> str:
    """Format a probability in percent, such as "95 %"."""
    return f"{100 * share:.10g} %"


def format_finding(one: RuleWatch) -> str:
    """The rate so far, its confidence sequence and the evidence, in a line."""
    if one.reason:
        return one.reason
    since = "" if one.since is None else f", alarm at row {one.since:,}"
    if math.isnan(one.estimate):
        return f"{one.rows:,} rows, too few to compare"
    evidence = f"{min(one.evidence, 9.99):.0%} of an alarm"
    return f"{one.estimate:.4f}, {format_interval(one)}; {one.rows:,} rows; {evidence}{since}"


def format_interval(one: RuleWatch) -> str:
    """Format the confidence sequence of a rule."""
    return f"{_format_share(one.confidence)} interval at all times {one.lower:.4f} to {one.upper:.4f}"
