"""The rules: in words, and whether they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bylaw._base.scales import Scale, fit_scale
from bylaw.language.expressions import Worst, format_conditions
from bylaw.program.row_rates import compute_group_rates
from bylaw.report.bounded_rates import BoundedRate
from bylaw.report.context import ReportContext, make_badge
from bylaw.report.markup import Html, fold, join, make_paragraphs, make_section, make_table, tag
from bylaw.report.number_format import (
    capitalize,
    format_amount,
    format_beside,
    format_count,
    format_percent,
    format_range,
    pluralize,
    round_number,
)
from bylaw.report.sentences import describe_group
from bylaw.report.svg_charts import draw_track, draw_track_axis
from bylaw.testing import Verdict, describe_bounds, is_out_of_reach

_SHOWN = 12  # rates that are drawn
_MOST_ROWS = 300  # lines of the table of all rules
_MOST_RULES = 100  # in words


def _write_groups(context: ReportContext) -> list[Html]:
    """Each group's rate, where the worst is minimised."""
    objective, rows = context.policy.problem.minimize, context.judged
    if not isinstance(objective, Worst):
        return []
    rates = compute_group_rates(objective, rows.seen, rows.probabilities, context.policy.action_space)
    rates = {group: rate for group, rate in rates.items() if format_conditions(group) not in rows.hidden}
    if not rates:
        return [tag("p", f"No group is shown: each has fewer than {rows.min_cell} cases, or is beside one.")]
    weights = {found.group: found.weight for found in context.policy.group_rates}
    unit = "share" if objective.is_probability else "plain"
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    lines = [
        [describe_group(group), format_amount(rate, unit), round_number(weights.get(group, 0.0))]
        for group, rate in ordered[:_MOST_ROWS]
    ]
    said = (
        f"On {context.judged_name}, {context.measurement}, the worst group is {lines[0][0]}, with "
        f"{lines[0][1]}. Groups with a weight were the worst together when the policy was chosen: to help "
        "one of them, another must lose. In groups without, the rate of all cases decided."
    )
    title = f"{capitalize(context.describe_rate(objective.rate))}, group by group"
    return [tag("p", said), make_table(title, ["Group", "Rate", "Weight"], lines)]


def write_rules(context: ReportContext) -> Html:
    problem = context.policy.problem
    goal = (
        f"The objective is to make {context.describe_rate(problem.minimize)} as small as these rules allow."
    )
    items = [
        tag(
            "li",
            tag("p", context.write_sentence(rule), class_="rule"),
            tag("p", tag("code", str(rule)), class_="formal"),
        )
        for rule in problem.rules[:_MOST_RULES]
    ]
    more = len(problem.rules) - len(items)
    return make_section(
        "rules",
        "The rules in words",
        tag("p", goal),
        *_write_groups(context),
        tag("ol", *items, class_="rules") if items else tag("p", "There are no rules."),
        tag("p", f"Not shown here: {pluralize(more, 'more rule')}.") if more > 0 else None,
        tag(
            "p",
            "A case is one row of data. "
            + context.words.glossary
            + ("Cases count by their weights. " if context.judged.evidence.weights is not None else "")
            + "A “point” is a percentage point: from 40 % to 42 % is 2 points. The line below each rule is "
            "the exact statement that the program reads.",
            class_="note",
        ),
    )


def write_verdicts(context: ReportContext) -> Html:
    rates = context.bounded_rates
    if not rates:
        return make_section("kept", "Do the rules hold?", tag("p", "There are no rules to judge."))
    scales = _fit_scales(rates)
    shown, rest = rates[:_SHOWN], rates[_SHOWN:]
    cards = [_make_card(bounded, scales[bounded.place], context) for bounded in shown]
    worst = f"The {len(shown)} most critical of {pluralize(len(rates), 'rate')} are drawn. " if rest else ""
    every = "The rate" if len(rates) == 1 else f"All {len(rates)} rates"
    return make_section(
        "kept",
        "Do the rules hold?",
        make_paragraphs(_write_origin(context)),
        tag("p", f"{worst}{_write_legend(context)}", class_="note"),
        tag("ul", *cards, class_="cards"),
        fold(f"{every} as a table", *_tabulate_rates(context)),
    )


def _write_origin(context: ReportContext) -> str:
    if context.audit is not None:
        return (
            f"Measured on {context.judged_name}, which had no part in choosing the policy, and averaged "
            "over its random decisions. Each interval consists of two confidence bounds, each correct in "
            f"{format_percent(context.confidence)} of such audits. “Certified”: these cases prove that the "
            "rule holds. “Violated”: they prove that it does not. “Undecided”: they are too few to decide. "
            "An upper and a lower limit are two rules; verdicts are adjusted for the number of all rules, "
            f"{context.rule_count}."
        )
    return (
        f"These are estimates on {context.judged_name}, {context.rate_measurement}. They prove nothing about "
        "new cases. For intervals and verdicts, hold out cases that have no part in choosing the policy, and "
        "pass them to the report (held_out= in Python, --held-out on the command line)."
    )


def _write_legend(context: ReportContext) -> str:
    interval = ", with its confidence interval as a line" if context.audit is not None else ""
    return f"Shaded: where the rule allows the rate to be. Dot: the estimate{interval}."


def _fit_scales(rates: Sequence[BoundedRate]) -> dict[int, Scale]:
    """One for all rates of a statement, so that they compare."""
    scales = {}
    for place in {bounded.place for bounded in rates}:
        own = [one for one in rates if one.place == place]
        ends = [v for one in own for v in (one.low, one.high, one.estimate, one.lower, one.upper)]
        scales[place] = fit_scale(ends, around_zero=True)
    return scales


def _make_card(bounded: BoundedRate, scale: Scale, context: ReportContext) -> Html:
    name = capitalize(context.describe_rate(bounded.rate))
    numbers = _write_numbers(bounded, context)
    return tag(
        "li",
        tag("div", tag("p", name, class_="rule"), make_badge(bounded.verdict), class_="head"),
        draw_track(bounded, scale, f"{name}: {numbers}"),
        draw_track_axis(bounded, scale),
        tag("p", numbers, class_="numbers"),
    )


def _write_numbers(bounded: BoundedRate, context: ReportContext) -> str:
    if bounded.reason:
        shown = f" Allowed: {_write_range(bounded)}. Estimate: {_write_estimate(bounded)}."
        return f"Not judged: {bounded.reason}.{shown if bounded.is_predicted else ''}"
    if bounded.hidden:
        few = context.judged.min_cell
        return (
            f"Allowed: {_write_range(bounded)}. Not shown: the estimate is about a group of fewer than {few} "
            "cases, or beside one."
        )
    said = f"Allowed: {_write_range(bounded)}. Estimate: {_write_estimate(bounded)}"
    if interval := _write_interval(bounded):
        said += f", {interval}"
    weighted = context.judged.evidence.weights is not None
    rows = pluralize(round(bounded.rows), "case")
    said += f", with an effective sample size of {rows}." if weighted else f", from {rows}."
    if bounded.verdict is Verdict.UNDECIDED and not math.isnan(bounded.rows_needed):
        needed = format_count(float(f"{bounded.rows_needed:.1e}"))
        far = is_out_of_reach(bounded.rows_needed, len(context.judged))
        said += " It is at its limit." if far else f" About {needed} cases in all would decide it."
    return said


def _write_range(bounded: BoundedRate) -> str:
    """Where the rules allow the rate to be."""
    said = format_range([end for end in (bounded.low, bounded.high) if math.isfinite(end)], bounded.unit)
    if math.isfinite(bounded.low) and math.isfinite(bounded.high):
        return said
    return f"at most {said}" if math.isfinite(bounded.high) else f"at least {said}"


def _write_estimate(bounded: BoundedRate) -> str:
    if bounded.hidden:
        return "not shown"
    if math.isnan(bounded.estimate) and (not bounded.reason or "0/0" in bounded.reason):
        return "0/0"
    estimate = format_beside(bounded.estimate, (bounded.low, bounded.high), bounded.unit)
    return (
        f"{estimate} as predicted" if bounded.is_predicted and math.isfinite(bounded.estimate) else estimate
    )


def _write_interval(bounded: BoundedRate) -> str:
    return describe_bounds(bounded.lower, bounded.upper, lambda end: format_amount(end, bounded.unit))


def _tabulate_rates(context: ReportContext) -> list[Html]:
    rows = [
        [
            join([capitalize(context.describe_rate(bounded.rate)), tag("code", str(bounded.rate))], " "),
            _write_range(bounded),
            _write_estimate(bounded),
            _write_interval(bounded) or "—",
            make_badge(bounded.verdict),
        ]
        for bounded in context.bounded_rates[:_MOST_ROWS]
    ]
    more = len(context.bounded_rates) - len(rows)
    left = tag("p", f"Not shown: {pluralize(more, 'rate')} with the most slack.", class_="note")
    heads = ["Rate", "Allowed", "Estimate", "Interval", "Verdict"]
    whole = make_table("Every rate that the rules bound, worst first", heads, rows)
    return [whole, *([left] if more > 0 else [])]
