"""The rules as they were watched in production."""

from __future__ import annotations

import itertools
import math

from bylaw.report.context import ReportContext
from bylaw.testing import WATCH_TONES, Monitor, RuleWatch, sort_rules
from bylaw.view.charts import NARROW_PLOT, Field, Scale, draw_axis, draw_line, draw_shape, fit_scale, make_svg
from bylaw.view.html import Html, fold, join, make_badge, make_page_table, make_section, tag
from bylaw.view.numbers import (
    Unit,
    capitalize,
    format_amount,
    format_beside,
    format_count,
    format_percent,
    pluralize,
)
from bylaw.view.sentences import describe_rate, find_unit

_MOST_CARDS = 8


def write_watch(context: ReportContext) -> Html | None:
    """Return each rule as it was watched, if a monitor was given."""
    monitor = context.monitor
    if monitor is None:
        return None
    ordered = sort_rules(monitor, context.judged.min_cell)
    drawn = [one for one in _pick_parts(ordered, monitor) if len(one.history) > 1][:_MOST_CARDS]
    across = Scale(0.0, float(max([1, *(one.history[-1].row for one in drawn)])))
    # One scale for all parts of a statement, so that they can be compared: wide enough for the later half.
    scales = {}
    for statement in {one.statement for one in drawn}:
        own = [one for one in drawn if one.statement == statement]
        later = [at for one in own for at in one.history[len(one.history) // 2 :]]
        ends = [end for at in later for end in (at.lower, at.upper)]
        scales[statement] = fit_scale([*(one.target for one in own), *ends])
    cards = [_make_card(one, scales[one.statement], across, monitor) for one in drawn]
    waiting = (
        f"; {format_count(monitor.waiting)} of them still {'waits' if monitor.waiting == 1 else 'wait'} for "
        "an outcome"
    )
    cases = pluralize(monitor.rows, "case that was", "cases that were")
    lead = f"{capitalize(context.alarms)} on the {cases} watched since{waiting if monitor.waiting else ''}."
    return make_section(
        "watch",
        "Since then",
        tag("p", lead),
        tag("p", _write_legend(monitor), class_="note"),
        tag("ul", *cards, class_="cards")
        if cards
        else tag("p", "No rule has enough cases for a picture yet."),
        fold("All rules that are watched, as a table", _tabulate(ordered, monitor)),
        fold("When it was looked at", _tabulate_log(monitor)) if monitor.log else None,
    )


def _pick_parts(ordered: list[RuleWatch], monitor: Monitor) -> list[RuleWatch]:
    """Return the worst part of each rule or family and all parts with an alarm; equivalent rules once."""
    copies = {text: rule.copies for rule in monitor.watched for text in rule.copies}
    statements, drawn, picked = set[str](), set[tuple[str, ...]](), list[RuleWatch]()
    for one in ordered:
        is_worst = one.statement not in statements
        if (one.since is not None or is_worst) and copies[one.rule] not in drawn:
            picked.append(one)
            drawn.add(copies[one.rule])
        statements.add(one.statement)
    return picked


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
    field = Field(across, up, 150, top=14, bottom=0)
    labels = field.label_ticks(unit, 3)
    evidence = Field(across, Scale(0.0, 1.25), 70, top=2, bottom=2)  # higher evidence is cut off
    axis = draw_axis(across, "plain", width=NARROW_PLOT)
    wide = any(len(text) > 7 for _, text in labels)
    return tag(
        "li",
        tag("div", tag("p", rate, class_="rule"), _make_badge(one), class_="head"),
        field.frame(labels, _draw_rate(one, field, f"{rate}: {numbers}"), wide=wide),
        evidence.frame([(1.0, "alarm")], draw_evidence(one, evidence, monitor), axis, wide=wide),
        tag("p", f"{numbers} Across: cases.", class_="numbers"),
    )


def _describe(one: RuleWatch, monitor: Monitor) -> tuple[str, Unit]:
    """Return the rate of a rule in words, and how it is read."""
    rule = next(expanded.rule for expanded in monitor.expanded if str(expanded.rule) == one.rule)
    excess = rule.excess if rule.sense == "<=" else -1.0 * rule.excess
    rate = excess - excess.constant
    return capitalize(describe_rate(rate, monitor.policy.action_space.kind)), find_unit(rate)


def _make_badge(one: RuleWatch) -> Html:
    return make_badge(str(one.status), WATCH_TONES[one.status])


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


def _draw_rate(one: RuleWatch, field: Field, title: str) -> Html:
    """Return the rate so far with its confidence sequence, beside the bound."""
    band: list[Html] = []
    for first, second in itertools.pairwise(one.history):
        left, right = field.across.place(first.row), field.across.place(second.row)
        top, bottom = field.y((first.upper + second.upper) / 2), field.y((first.lower + second.lower) / 2)
        place = {"x": f"{left:.2f}%", "y": top, "height": max(bottom - top, 0.5)}
        band.append(draw_shape("rect", "allowed", **place, width=f"{right - left + 0.05:.2f}%"))
    rates = field.draw_path([(at.row, at.estimate) for at in one.history], "curve-line")
    bound = field.draw_level(one.target, "target")
    parts = [*band, *field.draw_grid(3), *rates, bound, *_mark_alarm(one, field)]
    return make_svg(title, *parts, height=field.height)


def draw_evidence(one: RuleWatch, field: Field, monitor: Monitor) -> Html:
    """Return the evidence that a rule was broken or changed, as shares of an alarm."""
    parts: list[Html] = []
    limits = monitor.alarm_limits
    for look, name, limit in (
        ("now-line", "change", limits.log_change),
        ("curve-line", "ever", limits.log_ever),
    ):
        shares = [(at.row, getattr(at, name) * math.log(10) / limit) for at in one.history]
        parts += field.draw_path(shares, look)
    title = f"Evidence against the rule: {format_percent(min(one.evidence, 9.99))} of an alarm"
    parts += [field.draw_level(1.0, "target"), *_mark_alarm(one, field)]
    return make_svg(title, *parts, height=field.height)


def _mark_alarm(one: RuleWatch, field: Field) -> list[Html]:
    if one.since is None:
        return []
    x = field.across.at(one.since)
    return [draw_line(x, x, 0, field.height, "alarm")]


def _tabulate(ordered: list[RuleWatch], monitor: Monitor) -> Html:
    lines = []
    for one in ordered:
        rate, unit = _describe(one, monitor)
        numbers = (one.target, one.estimate, one.lower, one.upper)
        lines.append(
            [
                join([rate, tag("code", one.rule)], " "),
                *(format_amount(value, unit) for value in numbers),
                "—" if one.hidden else format_count(one.rows),
                format_percent(min(one.evidence, 9.99)),
                _make_badge(one),
            ]
        )
    heads = ["Rule", "Bound", "So far", "Not below", "Not above", "Cases", "Of an alarm", "Status"]
    return make_page_table("Rules as they were watched", heads, lines)


def _tabulate_log(monitor: Monitor) -> Html:
    lines = [
        [
            at.time.replace("T", " ").replace("+00:00", " UTC"),
            format_count(at.rows),
            "alarm" if at.alarm else "quiet",
        ]
        for at in monitor.log[::-1]
    ]
    return make_page_table("Looks, the latest first", ["Time", "Cases so far", "State"], lines)
