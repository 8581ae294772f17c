"""Since then: the rules as they were watched in production."""

from __future__ import annotations

import itertools
import math

from bylaw.monitoring.formatting import sort_rules
from bylaw.monitoring.monitor import Monitor
from bylaw.monitoring.rule_watch import RuleWatch, Watch
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, make_section, make_table, tag
from bylaw.report.number_format import (
    Unit,
    find_unit,
    format_amount,
    format_beside,
    format_count,
    format_percent,
    pluralize,
    round_number,
)
from bylaw.report.sentences import describe_rate
from bylaw.report.svg_charts import Scale, draw_axis, fit_scale, make_svg

_SHOWN = 8  # rules that are drawn
_MOST_ROWS = 300
_RATE_HEIGHT, _EVIDENCE_HEIGHT = 150, 70
_TOP = 14
_LOOKS = {
    Watch.BROKEN: ("bad", "✕"),
    Watch.CHANGED: ("bad", "!"),
    Watch.QUIET: ("good", "✓"),
    Watch.UNSEEN: ("open", "–"),
}


def write_watch(context: ReportContext) -> Html | None:
    monitor = context.monitor
    if monitor is None:
        return None
    ordered = sort_rules(monitor)
    drawn = [one for one in _pick_parts(ordered, monitor) if len(one.history) > 1][:_SHOWN]
    cards = [_make_card(one, monitor) for one in drawn]
    return make_section(
        "watch",
        "Since then",
        tag("p", _write_lead(monitor)),
        tag("p", _write_legend(monitor), class_="note"),
        tag("ul", *cards, class_="cards")
        if cards
        else tag("p", "No rule has enough cases for a picture yet."),
        fold("All rules that are watched, as a table", _tabulate(ordered, monitor)),
        fold("When it was looked at", _tabulate_log(monitor)) if monitor.log else None,
    )


def _pick_parts(ordered: list[RuleWatch], monitor: Monitor) -> list[RuleWatch]:
    """Of each rule or family its worst part, and all parts with an alarm; rules that say the same, once."""
    said = {text: rule.copies for rule in monitor.watched for text in rule.copies}
    seen, drawn, picked = set[str](), set[tuple[str, ...]](), list[RuleWatch]()
    for one in ordered:
        if (one.since is not None or one.statement not in seen) and said[one.rule] not in drawn:
            picked.append(one)
            drawn.add(said[one.rule])
        seen.add(one.statement)
    return picked


def _write_lead(monitor: Monitor) -> str:
    alarms = [one for one in monitor.status if one.since is not None]
    state = (
        "No rule has raised an alarm" if not alarms else f"{pluralize(len(alarms), 'rule')} raised an alarm"
    )
    waiting = (
        f"; {format_count(monitor.waiting)} of them wait for what they turned out to be"
        if monitor.waiting
        else ""
    )
    return f"{state} on the {pluralize(monitor.rows, 'case')} that were watched since{waiting}."


def _write_legend(monitor: Monitor) -> str:
    return (
        "Line: the rate so far. Shaded: its confidence sequence, which contains the true average at all "
        "times. Dashed: the bound. Below: how much evidence there is that the rule was broken (full) or that "
        "it changed lately (dotted); at the dashed line there is an alarm. However often one looks, a rule "
        f"is ever called broken while all hold with probability {format_percent(monitor.ever)} at most, and "
        f"called changed once in {format_count(monitor.run_length)} cases on average at most."
    )


def _make_card(one: RuleWatch, monitor: Monitor) -> Html:
    rate, unit = _describe(one, monitor)
    numbers = _write_numbers(one, unit)
    across = Scale(0.0, float(max(one.history[-1].row, 1)))
    return tag(
        "li",
        tag("div", tag("p", rate, class_="rule"), make_watch_badge(one.status), class_="head"),
        _draw_rate(one, across, unit, f"{rate}: {numbers}"),
        _draw_evidence(one, across, monitor),
        draw_axis(across, "plain"),
        tag("p", f"{numbers} Across: cases.", class_="numbers"),
    )


def _describe(one: RuleWatch, monitor: Monitor) -> tuple[str, Unit]:
    found = next(found for found in monitor.expanded if str(found.rule) == one.rule)
    excess = found.rule.excess if found.rule.sense == "<=" else -1.0 * found.rule.excess
    rate = excess - excess.constant
    words = describe_rate(rate, monitor.policy.action_space.kind)
    return words[:1].upper() + words[1:], find_unit(rate)


def make_watch_badge(status: Watch) -> Html:
    """An icon and a word: never colour alone."""
    look, icon = _LOOKS[status]
    return tag("span", tag("span", icon, aria_hidden="true"), f" {status}", class_=f"badge {look}")


def _write_numbers(one: RuleWatch, unit: Unit) -> str:
    if one.reason or math.isnan(one.estimate):
        return f"{one.reason or 'too few cases to compare'}."
    limit = "at most" if one.sense == "<=" else "at least"
    since = "" if one.since is None else f" Alarm at case {format_count(one.since)}."
    return (
        f"{format_beside(one.estimate, [one.target], unit)} so far, within {format_amount(one.lower, unit)} "
        f"to {format_amount(one.upper, unit)}; the rule says {limit} "
        f"{format_amount(one.target, unit, exactly=True)}. {pluralize(one.rows, 'case')}.{since}"
    )


def _draw_rate(one: RuleWatch, across: Scale, unit: Unit, title: str) -> Html:
    later = one.history[len(one.history) // 4 :]
    up = fit_scale([one.target, *(v for at in later for v in (at.lower, at.upper))])

    def place(value: float) -> float:
        share = (min(max(value, up.low), up.high) - up.low) / (up.high - up.low)
        return _RATE_HEIGHT - (_RATE_HEIGHT - _TOP) * share

    parts: list[Html] = []
    for first, second in itertools.pairwise(one.history):
        width = across.place(second.row) - across.place(first.row)
        top, bottom = place((first.upper + second.upper) / 2), place((first.lower + second.lower) / 2)
        parts.append(
            tag(
                "rect",
                x=across.at(first.row),
                y=f"{top:.1f}",
                width=f"{width + 0.05:.2f}%",
                height=f"{max(bottom - top, 0.5):.1f}",
                class_="allowed",
            )
        )
    for tick in up.ticks(3):
        y = f"{place(tick):.1f}"
        parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(tag("text", format_amount(tick, unit), x="0%", y=f"{float(y) - 4:.1f}", class_="tick"))
    for first, second in itertools.pairwise(one.history):
        y1, y2 = (f"{place(at.estimate):.1f}" for at in (first, second))
        parts.append(
            tag("line", x1=across.at(first.row), x2=across.at(second.row), y1=y1, y2=y2, class_="curve-line")
        )
    y = f"{place(one.target):.1f}"
    parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="target"))
    return make_svg(title, *parts, *_mark(one, across, _RATE_HEIGHT), height=_RATE_HEIGHT)


def _draw_evidence(one: RuleWatch, across: Scale, monitor: Monitor) -> Html:
    def place(log: float, limit: float) -> float:
        share = min(max(log * math.log(10) / limit, 0.0), 1.25) / 1.25
        return _EVIDENCE_HEIGHT - 2 - (_EVIDENCE_HEIGHT - 4) * share

    limits = monitor.alarm_limits
    lines = (("now-line", "change", limits.log_change), ("curve-line", "ever", limits.log_ever))
    parts: list[Html] = []
    for look, name, limit in lines:
        for first, second in itertools.pairwise(one.history):
            y1, y2 = (f"{place(getattr(at, name), limit):.1f}" for at in (first, second))
            parts.append(
                tag("line", x1=across.at(first.row), x2=across.at(second.row), y1=y1, y2=y2, class_=look)
            )
    y = f"{place(limits.log_ever / math.log(10), limits.log_ever):.1f}"
    parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="target"))
    parts.append(tag("text", "alarm", x="0%", y=f"{float(y) - 3:.1f}", class_="tick"))
    said = format_percent(min(one.evidence, 9.99))
    title = f"Evidence against the rule: {said} of an alarm"
    return make_svg(title, *parts, *_mark(one, across, _EVIDENCE_HEIGHT), height=_EVIDENCE_HEIGHT)


def _mark(one: RuleWatch, across: Scale, height: float) -> list[Html]:
    """Where the alarm was."""
    if one.since is None:
        return []
    x = across.at(one.since)
    return [tag("line", x1=x, x2=x, y1=0, y2=f"{height:g}", class_="alarm")]


def _tabulate(ordered: list[RuleWatch], monitor: Monitor) -> Html:
    lines = [
        [
            tag("code", one.rule),
            *(round_number(value, 4) for value in (one.target, one.estimate, one.lower, one.upper)),
            format_count(one.rows),
            format_percent(min(one.evidence, 9.99)),
            make_watch_badge(one.status),
        ]
        for one in ordered[:_MOST_ROWS]
    ]
    heads = ["Rule", "Bound", "So far", "Not below", "Not above", "Cases", "Of an alarm", "Status"]
    return make_table("Rules as they were watched", heads, lines)


def _tabulate_log(monitor: Monitor) -> Html:
    lines = [
        [
            at.time.replace("T", " ").replace("+00:00", " UTC"),
            format_count(at.rows),
            "alarm" if at.alarm else "quiet",
        ]
        for at in monitor.log[::-1]
    ]
    return make_table("Looks, the latest first", ["Time", "Cases so far", "State"], lines)
