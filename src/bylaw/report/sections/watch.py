"""Since then: the rules as they were watched in production."""

from __future__ import annotations

import itertools
import math

from bylaw._base.scales import Scale, fit_scale
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, join, make_section, make_table, tag
from bylaw.report.number_format import (
    Unit,
    capitalize,
    find_unit,
    format_amount,
    format_beside,
    format_count,
    format_percent,
    pluralize,
)
from bylaw.report.sentences import describe_rate
from bylaw.report.svg_charts import draw_axis, is_wide, make_framed, make_svg
from bylaw.testing import Monitor, RuleWatch, Watch, sort_rules

_SHOWN = 8  # rules that are drawn
_MOST_ROWS = 300
_RATE_HEIGHT, _EVIDENCE_HEIGHT = 150, 70
_TOP = 14
_MOST_EVIDENCE = 1.25  # alarms: as high as the plot reaches
_NARROW = 240.0  # pixels: the least width of a plot, on a phone
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
    ordered = sort_rules(monitor, context.judged.min_cell)
    drawn = [one for one in _pick_parts(ordered, monitor) if len(one.history) > 1][:_SHOWN]
    across = Scale(0.0, float(max([1, *(one.history[-1].row for one in drawn)])))
    scales = _fit_scales(drawn)
    cards = [_make_card(one, scales[one.statement], across, monitor) for one in drawn]
    return make_section(
        "watch",
        "Since then",
        tag("p", _write_lead(context, monitor)),
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


def _fit_scales(drawn: list[RuleWatch]) -> dict[str, Scale]:
    """One for all parts of a statement, so that they compare: wide enough for the later half of each."""
    scales = {}
    for statement in {one.statement for one in drawn}:
        own = [one for one in drawn if one.statement == statement]
        later = [at for one in own for at in one.history[len(one.history) // 2 :]]
        scales[statement] = fit_scale(
            [*(one.target for one in own), *(end for at in later for end in (at.lower, at.upper))]
        )
    return scales


def _write_lead(context: ReportContext, monitor: Monitor) -> str:
    verb = "waits" if monitor.waiting == 1 else "wait"
    waiting = (
        f"; {format_count(monitor.waiting)} of them still {verb} for an outcome" if monitor.waiting else ""
    )
    cases = pluralize(monitor.rows, "case that was", "cases that were")
    return f"{capitalize(context.alarms)} on the {cases} watched since{waiting}."


def _write_legend(monitor: Monitor) -> str:
    return (
        "Line: the rate so far. Shaded: its confidence sequence, which contains the true average at all "
        "times. Dashed: the bound. Below: how much evidence there is that the rule was broken (full) or that "
        "it changed lately (dotted); at the dashed line there is an alarm. However often one looks, a rule "
        f"is ever called broken while all hold with probability {format_percent(monitor.ever)} at most, and "
        f"called changed once in {format_count(monitor.run_length)} "
        f"{'cases' if monitor.unit == 'rows' else 'batches'} on average at most. "
        "All parts of a rule share their scale."
    )


def _make_card(one: RuleWatch, up: Scale, across: Scale, monitor: Monitor) -> Html:
    rate, unit = _describe(one, monitor)
    numbers = _write_numbers(one, unit)
    labels = [(_place_rate(tick, up), format_amount(tick, unit)) for tick in up.ticks(3)]
    wide = is_wide(text for _, text in labels)
    alarm = [(_place_evidence(1.0), "alarm")]
    drawn, axis = _draw_evidence(one, across, monitor), draw_axis(across, "plain", width=_NARROW)
    return tag(
        "li",
        tag("div", tag("p", rate, class_="rule"), make_watch_badge(one.status), class_="head"),
        make_framed(labels, _RATE_HEIGHT, _draw_rate(one, across, up, f"{rate}: {numbers}"), wide=wide),
        make_framed(alarm, _EVIDENCE_HEIGHT, drawn, axis, wide=wide),
        tag("p", f"{numbers} Across: cases.", class_="numbers"),
    )


def _place_rate(value: float, up: Scale) -> float:
    """From the top, in pixels."""
    share = (min(max(value, up.low), up.high) - up.low) / (up.high - up.low)
    return _RATE_HEIGHT - (_RATE_HEIGHT - _TOP) * share


def _place_evidence(share: float) -> float:
    """Of an alarm, from the top, in pixels."""
    return (
        _EVIDENCE_HEIGHT - 2 - (_EVIDENCE_HEIGHT - 4) * min(max(share, 0.0), _MOST_EVIDENCE) / _MOST_EVIDENCE
    )


def _describe(one: RuleWatch, monitor: Monitor) -> tuple[str, Unit]:
    found = next(found for found in monitor.expanded if str(found.rule) == one.rule)
    excess = found.rule.excess if found.rule.sense == "<=" else -1.0 * found.rule.excess
    rate = excess - excess.constant
    words = describe_rate(rate, monitor.policy.action_space.kind)
    return capitalize(words), find_unit(rate)


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


def _draw_rate(one: RuleWatch, across: Scale, up: Scale, title: str) -> Html:
    parts: list[Html] = []
    for first, second in itertools.pairwise(one.history):
        width = across.place(second.row) - across.place(first.row)
        top, bottom = (
            _place_rate(sum(ends) / 2, up)
            for ends in ((first.upper, second.upper), (first.lower, second.lower))
        )
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
        y = f"{_place_rate(tick, up):.1f}"
        parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
    for first, second in itertools.pairwise(one.history):
        y1, y2 = (f"{_place_rate(at.estimate, up):.1f}" for at in (first, second))
        parts.append(
            tag("line", x1=across.at(first.row), x2=across.at(second.row), y1=y1, y2=y2, class_="curve-line")
        )
    y = f"{_place_rate(one.target, up):.1f}"
    parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="target"))
    return make_svg(title, *parts, *_mark(one, across, _RATE_HEIGHT), height=_RATE_HEIGHT)


def _draw_evidence(one: RuleWatch, across: Scale, monitor: Monitor) -> Html:
    limits = monitor.alarm_limits
    lines = (("now-line", "change", limits.log_change), ("curve-line", "ever", limits.log_ever))
    parts: list[Html] = []
    for look, name, limit in lines:
        for first, second in itertools.pairwise(one.history):
            shares = (getattr(at, name) * math.log(10) / limit for at in (first, second))
            y1, y2 = (f"{_place_evidence(share):.1f}" for share in shares)
            parts.append(
                tag("line", x1=across.at(first.row), x2=across.at(second.row), y1=y1, y2=y2, class_=look)
            )
    y = f"{_place_evidence(1.0):.1f}"
    parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="target"))
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
    lines = []
    for one in ordered[:_MOST_ROWS]:
        rate, unit = _describe(one, monitor)
        numbers = (one.target, one.estimate, one.lower, one.upper)
        lines.append(
            [
                join([rate, tag("code", one.rule)], " "),
                *(format_amount(value, unit) for value in numbers),
                "—" if one.hidden else format_count(one.rows),
                format_percent(min(one.evidence, 9.99)),
                make_watch_badge(one.status),
            ]
        )
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
