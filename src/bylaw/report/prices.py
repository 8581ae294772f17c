"""What each rule costs: shadow prices, and the Pareto frontier with a slider for the level."""

from __future__ import annotations

import math

from bylaw.report.context import ReportContext
from bylaw.report.curves import Curve
from bylaw.view.charts import Point, Scale, draw_curve, fit_scale
from bylaw.view.html import MOST_ROWS, Html, fold, join, make_list, make_page_table, make_section, tag
from bylaw.view.numbers import capitalize, format_amount, format_points, pluralize, round_number
from bylaw.view.sentences import (
    is_factor,
    name_cost,
    name_step,
    write_amount_saved,
    write_price,
)

_SLIDER = 1000  # steps from the first level to the last


def write_prices(context: ReportContext) -> Html:
    """Return the shadow price of each rule: what loosening it by one step would save."""
    problem, agree = context.policy.problem, _agree(context)
    title = "What each rule costs"
    if not problem.rules:
        paragraph = tag("p", "There are no rules, so there is nothing to pay.")
        return make_section("prices", title, paragraph)
    vacuous, prices = context.policy.vacuous_statements, {}
    for rule in problem.rules:
        price = context.traced.find_price(rule) if agree else None
        prices[str(rule)] = context.policy.prices.get(str(rule), 0.0) if price is None else price
    ordered = sorted(problem.rules, key=lambda rule: -prices[str(rule)])[:MOST_ROWS]
    items = []
    for rule in ordered:
        text, without = str(rule), context.traced.without.get(str(rule))
        price = write_price(prices[text], rule, problem.minimize, without, text in vacuous)
        sentence = tag("span", context.write_sentence(rule), class_="rule")
        items.append(join([sentence, tag("span", price, class_="price")], " "))
    shift = ", with bounds shifted so that observed rates, or a margin, are respected"
    note = (
        "These are shadow prices: what a small step from the present level saves, as predicted by the "
        f"model’s probabilities on the cases on which the policy was chosen"
        f"{shift if any(context.policy.tightened.values()) else ''}. {_compare_curves(context, agree)}"
    )
    return make_section("prices", title, make_list(items, "prices"), tag("p", note, class_="note"))


def _agree(context: ReportContext) -> bool:
    """Return whether the curves have the policy's own prices and cost at its levels.

    They do not if the policy was chosen with labels, groups or a margin that the curves were computed
    without, or if its decisions are deterministic.
    """
    if not context.fitted.fitted:
        return False
    curves, stated = context.traced.curves, context.policy.prices
    prices = [
        (stated.get(str(curve.statement), 0.0), float(curve.prices[curve.now]))
        for curve in curves
        if not is_factor(curve.statement)  # whose prices are per point of the rate
    ]
    if not all(math.isclose(one, two, rel_tol=0.05, abs_tol=5e-3) for one, two in prices):
        return False
    if not context.traced.observed:
        return True
    cost = context.fitted.compare(context.policy.problem.minimize).policy
    return all(math.isclose(cost, curve.cost[curve.now], abs_tol=5e-4) for curve in curves)


def _compare_curves(context: ReportContext, agree: bool) -> str:
    if not context.traced.curves:
        return ""
    if agree:
        return "For larger steps, see the curves below."
    if not context.fitted.fitted:
        return "The curves below are about other cases, and their prices may differ."
    return (
        "The curves below were not computed as the policy was chosen: without its labels, groups or margin, "
        "or with random decisions that it does not make. So their prices differ."
    )


def write_frontier(context: ReportContext) -> Html:
    """Return a curve of costs for each rule, with a slider for its level."""
    title, curves = "What other levels would cost", context.traced.curves
    if not curves:
        return make_section("frontier", title, tag("p", *_explain_absence(context)))
    scale = "All curves have the same scale of cost. " if len(curves) > 1 else ""
    lead = (
        "Each curve is a trade-off (a Pareto frontier): the level of one rule varies, the others stay, and "
        f"the curve shows the least cost at every level, {context.traced.measurement} on "
        f"{context.fitted.name}. {scale}{context.words.cost_note}"
    )
    # One scale of costs for all curves, so that they can be compared.
    up = fit_scale(float(cost) for curve in curves for cost in curve.cost)
    missing = [tag("code", text) for text in context.traced.missing]
    note = "No curve, because there is no single level to vary, or there are too many rules:"
    return make_section(
        "frontier",
        title,
        tag("p", lead),
        _make_chooser(context),
        *(_make_panel(curve, up, i, context) for i, curve in enumerate(curves)),
        tag("p", note, class_="note") if missing else None,
        make_list(missing[:MOST_ROWS], "note") if missing else None,
    )


def _explain_absence(context: ReportContext) -> list[Html | str]:
    if not context.policy.problem.rules:
        return ["There are no rules to vary."]
    rules = pluralize(len(context.policy.rule_prices), "single rule")
    request = f"No curve was computed, for {rules}. In Python, curves are asked for by "
    return [
        request,
        tag("code", "report(..., levels=11)"),
        " or given as ",
        tag("code", "frontiers=[...]"),
        ".",
    ]


def _make_chooser(context: ReportContext) -> Html | None:
    """Return a list of rules to choose from, which is visible only if a script can act on it."""
    if len(context.traced.curves) < 2:
        return None
    options = [
        tag("option", context.write_sentence(curve.statement), value=i)
        for i, curve in enumerate(context.traced.curves)
    ]
    choice = tag("select", *options, id="curve-choice")
    return tag("p", tag("label", "Rule to vary", for_="curve-choice"), choice, class_="control", hidden=True)


def _make_panel(curve: Curve, up: Scale, number: int, context: ReportContext) -> Html:
    """Return a curve with its slider, the present point in words, and a table of all points."""
    sentence, minimize = context.write_sentence(curve.statement), context.policy.problem.minimize
    levels = [format_amount(level, curve.unit) for level in curve.levels.tolist()]
    along = Scale(float(curve.levels[0]), float(curve.levels[-1]))
    points = [
        Point(
            level,
            float(curve.cost[i]),
            _describe_point(curve, i, context),
            {"data_level": levels[i], "data_place": place_on_slider(along, level)},
        )
        for i, level in enumerate(curve.levels.tolist())
    ]
    slider = tag(
        "input",
        type="range",
        id=f"level-{number}",
        min=0,
        max=_SLIDER,
        step=1,
        value=points[curve.now].attributes["data_place"],
        aria_describedby=f"said-{number}",
        aria_valuetext=levels[curve.now],
    )
    label = tag("label", "Level of the rule", for_=f"level-{number}")
    chart = draw_curve(
        f"Least cost against the level of the rule: {sentence}",
        points,
        (curve.unit, "share" if minimize.is_probability else "plain"),
        up=up,
        now=curve.now,
        description=f"From left to right. {points[0].words} {points[-1].words}",
        control=tag("p", label, slider, class_="control", hidden=True),
    )
    axis = capitalize(f"{name_cost(minimize)}, {context.traced.measurement}")
    return tag(
        "div",
        tag("h3", sentence),
        tag("p", axis, class_="axis-name"),
        chart,
        tag("p", points[curve.now].words, class_="said", id=f"said-{number}", aria_live="polite"),
        fold("The curve as a table", _tabulate(curve, levels, sentence, context)),
        class_="curve",
    )


def place_on_slider(along: Scale, level: float) -> int:
    """Return how far along the slider a level is."""
    return round(_SLIDER * along.share(level)) if along.high > along.low else 0


def _write_cost(cost: float, context: ReportContext) -> str:
    return format_amount(cost, "share" if context.policy.problem.minimize.is_probability else "plain")


def _describe_point(curve: Curve, i: int, context: ReportContext) -> str:
    """Return one point in words: level, cost, the change from now, and the price."""
    level, minimize = format_amount(float(curve.levels[i]), curve.unit), context.policy.problem.minimize
    place = "As the rule stands" if i == curve.now else "At this level"
    cost, now = float(curve.cost[i]), float(curve.cost[curve.now])
    if not math.isfinite(cost):
        return f"{level}. {place}, the rules conflict: no policy satisfies them all."
    amount = f"{name_cost(minimize)} {_write_cost(cost, context)}"
    change = ""
    if i != curve.now and math.isfinite(now):
        write = format_points if minimize.is_probability else round_number
        size = write(abs(cost - now))
        change = f", {size} {'more' if cost > now else 'less'} than now"
        change = ", the same as now" if size.split()[0] == "0" else change
    missed = " The observed rates do not satisfy every rule there." if curve.missed[i] else ""
    price = write_price(float(curve.prices[i]), curve.statement, minimize)
    return f"{level}. {place}, {context.traced.measurement}: {amount}{change}.{missed} {price}"


def _tabulate(curve: Curve, levels: list[str], sentence: str, context: ReportContext) -> Html:
    minimize, rows = context.policy.problem.minimize, []
    for i, (cost, price) in enumerate(zip(curve.cost.tolist(), curve.prices.tolist(), strict=True)):
        level = f"{levels[i]} (now)" if i == curve.now else levels[i]
        saved = write_amount_saved(price, curve.statement, minimize) or "nothing"
        conflict = [level, "the rules conflict", ""]
        rows.append([level, _write_cost(cost, context), saved] if math.isfinite(cost) else conflict)
    heads = ["Level", capitalize(name_cost(minimize)), f"Loosening it by {name_step(curve.statement)} saves"]
    return make_page_table(sentence, heads, rows)
