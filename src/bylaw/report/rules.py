"""The rules in words, and whether they hold."""

from __future__ import annotations

import math

from bylaw.language.expressions import Worst, format_conditions
from bylaw.program.row_rates import compute_group_rates
from bylaw.report.context import BoundedRate, ReportContext
from bylaw.testing import VERDICT_TONES, Verdict, is_out_of_reach
from bylaw.view.charts import Scale, draw_track, draw_track_axis, fit_scale
from bylaw.view.html import MOST_ROWS, Html, fold, join, make_badge, make_page_table, make_section, tag
from bylaw.view.numbers import (
    capitalize,
    format_amount,
    format_beside,
    format_bounds,
    format_count,
    format_percent,
    format_range,
    pluralize,
    round_number,
)
from bylaw.view.sentences import describe_group, find_unit

_MOST_CARDS = 12


def write_rules(context: ReportContext) -> Html:
    """Return the objective and each rule in words, with its exact statement."""
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
    return make_section(
        "rules",
        "The rules in words",
        tag("p", goal),
        *_write_groups(context),
        tag("ol", *items, class_="rules") if items else tag("p", "There are no rules."),
        tag("p", f"Not shown here: {pluralize(more, 'more rule')}.") if more > 0 else None,
        tag("p", note, class_="note"),
    )


def _write_groups(context: ReportContext) -> list[Html]:
    """Return the rate of each group, if the rate of the worst group is minimized."""
    objective, rows = context.policy.problem.minimize, context.judged
    if not isinstance(objective, Worst):
        return []
    rates = compute_group_rates(objective, rows.seen, rows.probabilities, context.policy.action_space)
    rates = {group: rate for group, rate in rates.items() if format_conditions(group) not in rows.hidden}
    if not rates:
        return [tag("p", f"No group is shown: each has fewer than {rows.min_cell} cases, or is beside one.")]
    weights = {one.group: one.weight for one in context.policy.group_rates}
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    lines = [
        [
            describe_group(group),
            format_amount(rate, find_unit(objective)),
            round_number(weights.get(group, 0.0)),
        ]
        for group, rate in ordered
    ]
    text = (
        f"On {rows.name}, {context.measurement}, the worst group is {lines[0][0]}, with {lines[0][1]}. "
        "Groups with a weight were the worst together when the policy was chosen: to help one of them, "
        "another must lose. In groups without, the rate of all cases decided."
    )
    title = f"{capitalize(context.describe_rate(objective.rate))}, group by group"
    return [tag("p", text), make_page_table(title, ["Group", "Rate", "Weight"], lines, rest=("group", ""))]


def write_verdicts(context: ReportContext) -> Html:
    """Return every rate that rules bound: a chart of the most critical, and a table of all."""
    title, rates = "Do the rules hold?", context.bounded_rates
    if not rates:
        return make_section("kept", title, tag("p", "There are no rules to judge."))
    # One scale for all rates of a statement, so that they can be compared.
    scales = {
        place: fit_scale((v for one in rates if one.place == place for v in one.track), around_zero=True)
        for place in {one.place for one in rates}
    }
    cards = [_make_card(one, scales[one.place], context) for one in rates[:_MOST_CARDS]]
    worst = f"The {len(cards)} most critical of {pluralize(len(rates), 'rate')} are drawn. "
    interval = ", with its confidence interval as a line" if context.audit is not None else ""
    legend = f"Shaded: where the rule allows the rate to be. Dot: the estimate{interval}."
    every = "The rate" if len(rates) == 1 else f"All {len(rates)} rates"
    return make_section(
        "kept",
        title,
        tag("p", _write_origin(context)),
        tag("p", f"{worst if len(cards) < len(rates) else ''}{legend}", class_="note"),
        tag("ul", *cards, class_="cards"),
        fold(f"{every} as a table", _tabulate_rates(context)),
    )


def _write_origin(context: ReportContext) -> str:
    rows = context.judged
    if context.audit is None:
        return (
            f"These are estimates on {rows.name}, {context.rate_measurement}. They prove nothing about new "
            "cases. For intervals and verdicts, hold out cases that have no part in choosing the policy, and "
            "pass them to the report (held_out= in Python, --held-out on the command line)."
        )
    single = format_count(sum(len(bounded.rules) for bounded in context.bounded_rates))
    return (
        f"Measured on {rows.name}, which had no part in choosing the policy, and averaged over its random "
        "decisions. Each interval consists of two confidence bounds, each correct in "
        f"{format_percent(context.confidence)} of such audits. “Certified”: these cases prove that the rule "
        "holds. “Violated”: they prove that it does not. “Undecided”: they are too few to decide. An upper "
        f"and a lower limit are two rules; verdicts are adjusted for the number of all rules, {single}."
    )


def _make_card(bounded: BoundedRate, scale: Scale, context: ReportContext) -> Html:
    name, numbers = capitalize(context.describe_rate(bounded.rate)), _write_numbers(bounded, context)
    return tag(
        "li",
        tag("div", tag("p", name, class_="rule"), _make_badge(bounded), class_="head"),
        draw_track(f"{name}: {numbers}", bounded.track, scale),
        draw_track_axis(bounded.track, scale, bounded.unit),
        tag("p", numbers, class_="numbers"),
    )


def _make_badge(bounded: BoundedRate) -> Html:
    return make_badge(str(bounded.verdict), VERDICT_TONES[bounded.verdict])


def _write_numbers(bounded: BoundedRate, context: ReportContext) -> str:
    """Return where a rate may be, its estimate, and what would decide an undecided rule."""
    judged, allowed = bounded.judged, f"Allowed: {_write_allowed(bounded)}."
    estimate = f"Estimate: {_write_estimate(bounded)}"
    if judged.reason:
        shown = f" {allowed} {estimate}." if bounded.is_predicted else ""
        return f"Not judged: {judged.reason}.{shown}"
    if bounded.hidden:
        few = f"a group of fewer than {context.judged.min_cell} cases, or beside one"
        return f"{allowed} Not shown: the estimate is about {few}."
    interval = _write_interval(bounded)
    weighted = context.judged.evidence.weights is not None
    sample = "with an effective sample size of {}" if weighted else "from {}"
    rows = sample.format(pluralize(round(judged.rows), "case"))
    text = f"{allowed} {estimate}{f', {interval}' if interval else ''}, {rows}."
    if bounded.verdict is Verdict.UNDECIDED and not math.isnan(judged.rows_needed):
        needed = format_count(float(f"{judged.rows_needed:.1e}"))
        if is_out_of_reach(judged.rows_needed, len(context.judged)):
            return f"{text} It is at its limit."
        return f"{text} About {needed} cases in all would decide it."
    return text


def _write_allowed(bounded: BoundedRate) -> str:
    """Return where the rules allow the rate to be."""
    amount = format_range(bounded.track.bounds, bounded.unit)
    if len(bounded.track.bounds) == 2:
        return amount
    return f"at most {amount}" if math.isfinite(bounded.track.high) else f"at least {amount}"


def _write_estimate(bounded: BoundedRate) -> str:
    if bounded.hidden:
        return "not shown"
    estimate, reason = bounded.track.estimate, bounded.judged.reason
    if math.isnan(estimate) and (not reason or "0/0" in reason):
        return "0/0"
    text = format_beside(estimate, bounded.track[:2], bounded.unit)
    return f"{text} as predicted" if bounded.is_predicted and math.isfinite(estimate) else text


def _write_interval(bounded: BoundedRate) -> str:
    return format_bounds(*bounded.track[3:], lambda end: format_amount(end, bounded.unit))


def _tabulate_rates(context: ReportContext) -> Html:
    rows = [
        [
            join([capitalize(context.describe_rate(one.rate)), tag("code", str(one.rate))], " "),
            _write_allowed(one),
            _write_estimate(one),
            _write_interval(one) or "—",
            _make_badge(one),
        ]
        for one in context.bounded_rates
    ]
    heads = ["Rate", "Allowed", "Estimate", "Interval", "Verdict"]
    title = "Every rate that the rules bound, worst first"
    return make_page_table(title, heads, rows, rest=("rate", " with the most slack"))
