"""Sections on rules: the rules in words, whether they are satisfied, and their monitoring in use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from bylaw.language import Worst, format_conditions
from bylaw.program import compute_group_rates
from bylaw.report._context import BoundedRate, ReportContext
from bylaw.testing import VERDICT_TONES, WATCH_TONES, Monitor, RuleWatch, Verdict, is_out_of_reach, sort_rules
from bylaw.view import (
    MOST_ROWS,
    NARROW_PLOT,
    Content,
    Field,
    Html,
    Scale,
    Unit,
    capitalize,
    describe_group,
    describe_rate,
    draw_axis,
    draw_line,
    draw_shape,
    draw_track,
    draw_track_axis,
    find_unit,
    fit_scale,
    fold,
    format_amount,
    format_beside,
    format_bounds,
    format_count,
    format_percent,
    format_range,
    join,
    make_badge,
    make_page_table,
    make_svg,
    pluralize,
    round_number,
    tag,
)

_MOST_CARDS, _MOST_WATCHED = 12, 8  # charts of rates, and of rules that were watched


def write_rules(context: ReportContext) -> Sequence[Content]:
    """Write the section with the objective and each rule in words and as exact text."""
    problem, weighted = context.policy.problem, context.judged.evidence.weights is not None
    goal = (
        f"The objective is to make {context.describe_rate(problem.minimize)} as small as these rules allow."
    )
    items = [
        tag(
            "li",
            tag("p", context.write_sentence(rule), class_="rule"),
            tag("p", tag("code", str(rule)), class_="formal"),
        )
        for rule in problem.rules[:MOST_ROWS]
    ]
    more = len(problem.rules) - len(items)
    note = (
        f"A case is one row of data. {context.words.glossary}"
        f"{'Cases count by their weights. ' if weighted else ''}A “point” is a percentage point: from 40 % "
        "to 42 % is 2 points. The line below each rule is the exact statement that the program reads."
    )
    return [
        tag("p", goal),
        *_write_groups(context),
        tag("ol", *items, class_="rules") if items else tag("p", "There are no rules."),
        tag("p", f"Not shown here: {pluralize(more, 'more rule')}.") if more > 0 else None,
        tag("p", note, class_="note"),
    ]


def _write_groups(context: ReportContext) -> list[Html]:
    """Return a table of the rate of each group if the objective is the worst group's rate."""
    objective, rows = context.policy.problem.minimize, context.judged
    if not isinstance(objective, Worst):
        return []
    rates = compute_group_rates(objective, rows.seen, rows.probabilities, context.policy.action_space)
    shown = [(group, rate) for group, rate in rates.items() if format_conditions(group) not in rows.hidden]
    if not shown:
        return [
            tag(
                "p", f"No group is shown: each has fewer than {rows.min_cell} cases, or is the next smallest."
            )
        ]
    weights, unit = {one.group: one.weight for one in context.policy.group_rates}, find_unit(objective)
    lines = [
        [describe_group(group), format_amount(rate, unit), round_number(weights.get(group, 0.0))]
        for group, rate in sorted(shown, key=lambda item: -item[1])
    ]
    text = (
        f"On {rows.name}, {context.measurement}, the worst group is {lines[0][0]}, with {lines[0][1]}. "
        "Groups with a positive weight shared the worst rate when the policy was chosen: a lower rate in "
        "one of them requires a higher rate in another. For groups with weight 0, only the rate of all "
        "cases mattered."
    )
    title = f"{capitalize(context.describe_rate(objective.rate))}, group by group"
    return [tag("p", text), make_page_table(title, ["Group", "Rate", "Weight"], lines, rest=("group", ""))]


def write_verdicts(context: ReportContext) -> Sequence[Content]:
    """Write the section on all rates that rules bound: charts of the most critical, and a table."""
    rates, rows = context.bounded_rates, context.judged
    if not rates:
        return [tag("p", "There are no rules to judge.")]
    origin = (
        f"These are estimates on {rows.name}, {context.rate_measurement}. They prove nothing about new "
        "cases. For intervals and verdicts, hold out cases that have no part in choosing the policy, and "
        "pass them to the report (held_out= in Python, --held-out on the command line)."
    )
    if context.audit is not None:
        single = format_count(sum(len(bounded.rules) for bounded in rates))
        origin = (
            f"Measured on {rows.name}, which had no part in choosing the policy, and averaged over its "
            "random decisions. Each interval consists of two confidence bounds, each correct in "
            f"{format_percent(context.confidence)} of such audits. “Certified”: these cases prove that the "
            "rule holds. “Violated”: they prove that it does not. “Undecided”: they are too few to decide. "
            "An upper and a lower limit are two rules; verdicts are adjusted for the number of all rules, "
            f"{single}."
        )
    # One scale for all rates of a statement, so that they can be compared.
    scales = {
        place: fit_scale((v for one in rates if one.place == place for v in one.track), around_zero=True)
        for place in {one.place for one in rates}
    }
    cards, lines = list[Html](), list[list[Html | str]]()
    for one in rates:
        name, scale = capitalize(context.describe_rate(one.rate)), scales[one.place]
        badge = make_badge(str(one.verdict), VERDICT_TONES[one.verdict])
        allowed = format_range(one.track.bounds, one.unit)
        if len(one.track.bounds) == 1:
            allowed = f"at {'most' if math.isfinite(one.track.high) else 'least'} {allowed}"
        estimate = _write_estimate(one)
        interval = format_bounds(*one.track[3:], lambda end, unit=one.unit: format_amount(end, unit))
        if len(cards) < _MOST_CARDS:
            numbers = _write_numbers(one, allowed, estimate, interval, context)
            chart = draw_track(f"{name}: {numbers}", one.track, scale)
            axis = draw_track_axis(one.track, scale, one.unit)
            cards.append(_make_card(name, badge, chart, axis, tag("p", numbers, class_="numbers")))
        rate = join([name, tag("code", str(one.rate))], " ")
        lines.append([rate, allowed, estimate, interval or "—", badge])
    worst = f"The {len(cards)} most critical of {pluralize(len(rates), 'rate')} are drawn. "
    with_line = ", with its confidence interval as a line" if context.audit is not None else ""
    legend = f"Shaded: where the rule allows the rate to be. Dot: the estimate{with_line}."
    every = "The rate" if len(rates) == 1 else f"All {len(rates)} rates"
    heads = ["Rate", "Allowed", "Estimate", "Interval", "Verdict"]
    caption, rest = "Every rate that the rules bound, worst first", ("rate", " with the most slack")
    return [
        tag("p", origin),
        tag("p", f"{worst if len(cards) < len(rates) else ''}{legend}", class_="note"),
        tag("ul", *cards, class_="cards"),
        fold(f"{every} as a table", make_page_table(caption, heads, lines, rest=rest)),
    ]


def _make_card(name: str, badge: Html, *content: Html) -> Html:
    """Return a list item with a rate in words, a badge and a chart."""
    return tag("li", tag("div", tag("p", name, class_="rule"), badge, class_="head"), *content)


def _write_estimate(bounded: BoundedRate) -> str:
    if bounded.hidden:
        return "not shown"
    estimate, reason = bounded.track.estimate, bounded.judged.reason
    if math.isnan(estimate) and (not reason or "0/0" in reason):
        return "0/0"
    text = format_beside(estimate, bounded.track[:2], bounded.unit)
    return f"{text} as predicted" if bounded.is_predicted and math.isfinite(estimate) else text


def _write_numbers(
    bounded: BoundedRate, allowed: str, estimate: str, interval: str, context: ReportContext
) -> str:
    """Describe the allowed range of a rate, its estimate, and the cases needed for a verdict."""
    judged, lead = bounded.judged, f"Allowed: {allowed}."
    if judged.reason:
        shown = f" {lead} Estimate: {estimate}." if bounded.is_predicted else ""
        return f"Not judged: {judged.reason}.{shown}"
    if bounded.hidden:
        few = f"a group of fewer than {context.judged.min_cell} cases, or the next smallest"
        return f"{lead} Not shown: the estimate is about {few}."
    sample = "from" if context.judged.evidence.weights is None else "with an effective sample size of"
    cases = f"{sample} {pluralize(round(judged.rows), 'case')}"
    text = f"{lead} Estimate: {', '.join(filter(None, [estimate, interval, cases]))}."
    if bounded.verdict is not Verdict.UNDECIDED or math.isnan(judged.rows_needed):
        return text
    if is_out_of_reach(judged.rows_needed, len(context.judged)):
        return f"{text} It is so close to its bound that more cases would hardly decide it."
    return f"{text} About {format_count(float(f'{judged.rows_needed:.1e}'))} cases in all would decide it."


def write_watch(context: ReportContext) -> Sequence[Content]:
    """Write the section on the monitoring of each rule; empty without a monitor."""
    monitor = context.monitor
    if monitor is None:
        return []
    ordered = sort_rules(monitor, context.judged.min_cell)
    # The worst part of each rule or family and all parts with an alarm; equivalent rules once.
    copies = {text: rule.copies for rule in monitor.watched for text in rule.copies}
    statements, picked = set[str](), dict[tuple[str, ...], RuleWatch]()
    for one in ordered:
        if one.since is not None or one.statement not in statements:
            picked.setdefault(copies[one.rule], one)
        statements.add(one.statement)
    drawn = [one for one in picked.values() if len(one.history) > 1][:_MOST_WATCHED]
    across = Scale(0.0, float(max([1, *(one.history[-1].row for one in drawn)])))
    # One scale for all parts of a statement, so that they can be compared: wide enough for the later half.
    scales = {}
    for statement in {one.statement for one in drawn}:
        own = [one for one in drawn if one.statement == statement]
        later = [at for one in own for at in one.history[len(one.history) // 2 :]]
        ends = [end for at in later for end in (at.lower, at.upper)]
        scales[statement] = fit_scale([*(one.target for one in own), *ends])
    cards = [_draw_watched(one, scales[one.statement], across, monitor) for one in drawn]
    verb = "waits" if monitor.waiting == 1 else "wait"
    waiting = f"; {format_count(monitor.waiting)} of them still {verb} for an outcome"
    cases = pluralize(monitor.rows, "case that was", "cases that were")
    lead = f"{capitalize(context.alarms)} on the {cases} watched since{waiting if monitor.waiting else ''}."
    legend = (
        "Line: the rate so far. Shaded: its confidence sequence, which contains the true average at all "
        "times. Dashed: the bound. Below: the evidence that the rule was violated at some time "
        "(solid) or that "
        "its rate changed recently (dotted); the dashed line raises an alarm. However often the rules are "
        "checked, if all rules hold, the probability that any is ever called broken is at most "
        f"{format_percent(monitor.ever)}, and one is called changed at most once in "
        f"{format_count(monitor.run_length)} "
        f"{'cases' if monitor.unit == 'rows' else 'batches'} on average. "
        "All parts of a rule share their scale."
    )
    looks = [
        [
            at.time.replace("T", " ").replace("+00:00", " UTC"),
            format_count(at.rows),
            "alarm" if at.alarm else "quiet",
        ]
        for at in monitor.log[::-1]
    ]
    log = make_page_table("Checks, the latest first", ["Time", "Cases so far", "State"], looks)
    return [
        tag("p", lead),
        tag("p", legend, class_="note"),
        tag("ul", *cards, class_="cards") if cards else tag("p", "No rule has enough cases for a chart yet."),
        fold("All monitored rules as a table", _tabulate_watched(ordered, monitor)),
        fold("Times of the checks", log) if looks else None,
    ]


def _describe(one: RuleWatch, monitor: Monitor) -> tuple[str, Unit]:
    """Return the rate of a monitored rule in words, and its unit."""
    rule = next(expanded.rule for expanded in monitor.expanded if str(expanded.rule) == one.rule)
    excess = rule.excess if rule.sense == "<=" else -1.0 * rule.excess
    rate = excess - excess.constant
    return capitalize(describe_rate(rate, monitor.policy.action_space.kind)), find_unit(rate)


def _draw_watched(one: RuleWatch, up: Scale, across: Scale, monitor: Monitor) -> Html:
    """Draw a monitored rate over time with its confidence sequence and bound, above the evidence."""
    name, unit = _describe(one, monitor)
    numbers = f"{one.reason or 'too few cases to compare'}."
    if not one.reason and not math.isnan(one.estimate):
        limit = "at most" if one.sense == "<=" else "at least"
        since = "" if one.since is None else f" Alarm at case {format_count(one.since)}."
        numbers = (
            f"{format_beside(one.estimate, [one.target], unit)} so far, interval "
            f"{format_amount(one.lower, unit)} to {format_amount(one.upper, unit)}; allowed: {limit} "
            f"{format_amount(one.target, unit, exactly=True)}. {pluralize(one.rows, 'case')}.{since}"
        )
    field = Field(across, up, 150, top=14, bottom=0)
    parts: list[Html] = []
    for first, second in itertools.pairwise(one.history):
        left, right = field.across.place(first.row), field.across.place(second.row)
        top, bottom = field.y((first.upper + second.upper) / 2), field.y((first.lower + second.lower) / 2)
        place = {"x": f"{left:.2f}%", "y": top, "height": max(bottom - top, 0.5)}
        parts.append(draw_shape("rect", "allowed", **place, width=f"{right - left + 0.05:.2f}%"))
    parts += field.draw_grid(3)
    parts += field.draw_path([(at.row, at.estimate) for at in one.history], "curve-line")
    parts += [field.draw_level(one.target, "target"), *_mark_alarm(one, field)]
    rate = make_svg(f"{name}: {numbers}", *parts, height=field.height)
    evidence = Field(across, Scale(0.0, 1.25), 70, top=2, bottom=2)  # higher evidence is cut off
    axis, labels = draw_axis(across, "plain", width=NARROW_PLOT), field.label_ticks(unit, 3)
    wide = any(len(text) > 7 for _, text in labels)
    return _make_card(
        name,
        make_badge(str(one.status), WATCH_TONES[one.status]),
        field.frame(labels, rate, wide=wide),
        evidence.frame([(1.0, "alarm")], draw_evidence(one, evidence, monitor), axis, wide=wide),
        tag("p", f"{numbers} Horizontal axis: cases.", class_="numbers"),
    )


def draw_evidence(one: RuleWatch, field: Field, monitor: Monitor) -> Html:
    """Draw the evidence over time that a rule is violated or has changed, as a share of an alarm."""
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


def _tabulate_watched(ordered: list[RuleWatch], monitor: Monitor) -> Html:
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
                make_badge(str(one.status), WATCH_TONES[one.status]),
            ]
        )
    heads = [
        "Rule",
        "Bound",
        "So far",
        "Lower end",
        "Upper end",
        "Cases",
        "Evidence (alarm at 100 %)",
        "Status",
    ]
    return make_page_table("Monitored rules", heads, lines)
