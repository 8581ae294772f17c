"""The Pareto frontier: what looser or tighter rules would cost, with a slider for the level."""

from __future__ import annotations

import itertools
import math

from bylaw._base.scales import Scale, fit_scale
from bylaw.report.context import ReportContext
from bylaw.report.cost_curves import Curve
from bylaw.report.markup import Html, fold, make_list, make_section, make_table, tag
from bylaw.report.number_format import (
    Unit,
    capitalize,
    format_amount,
    format_points,
    pluralize,
    round_number,
)
from bylaw.report.sentences import name_cost, name_step, write_amount_saved, write_saving
from bylaw.report.svg_charts import draw_axis, is_wide, make_framed, make_svg

_HEIGHT = 240  # of a plot, in pixels
_TOP, _BOTTOM = 10, 228
_NARROW = 260.0  # pixels: the least width of a plot, on a phone
_SLIDER = 1000  # steps from the first level to the last


def write_frontier(context: ReportContext) -> Html:
    if not context.curves:
        return make_section("frontier", "What other levels would cost", tag("p", *_explain_absence(context)))
    panels = [_make_panel(curve, i, context) for i, curve in enumerate(context.curves)]
    left = [tag("code", text) for text in context.traced.missing]
    return make_section(
        "frontier",
        "What other levels would cost",
        tag(
            "p",
            "Each curve is a trade-off (a Pareto frontier): the level of one rule varies, the others stay, "
            f"and the curve shows the least cost at every level, {context.curve_measurement} on "
            f"{context.fitted_name}. {_write_scales(context)}{context.words.cost_note}",
        ),
        _make_chooser(context),
        *panels,
        tag(
            "p",
            "No curve, because there is no single level to vary, or there are too many rules:",
            class_="note",
        )
        if left
        else None,
        make_list(left[:20], "note") if left else None,
    )


def _write_scales(context: ReportContext) -> str:
    return "All curves have the same scale of cost. " if len(context.curves) > 1 else ""


def _explain_absence(context: ReportContext) -> list[Html | str]:
    if not context.policy.problem.rules:
        return ["There are no rules to vary."]
    rules = pluralize(len(context.policy.rule_prices), "single rule")
    said = f"No curve was computed, for {rules}. In Python, curves are asked for by "
    return [said, tag("code", "report(..., levels=11)"), " or given as ", tag("code", "frontiers=[...]"), "."]


def _make_chooser(context: ReportContext) -> Html | None:
    """Shown only where a script can act on it."""
    if len(context.curves) < 2:
        return None
    options = [
        tag("option", context.write_sentence(curve.statement), value=i)
        for i, curve in enumerate(context.curves)
    ]
    choice = tag("select", *options, id="curve-choice")
    return tag("p", tag("label", "Rule to vary", for_="curve-choice"), choice, class_="control", hidden=True)


def _make_panel(curve: Curve, number: int, context: ReportContext) -> Html:
    name = context.write_sentence(curve.statement)
    slider = tag(
        "input",
        type="range",
        id=f"level-{number}",
        min=0,
        max=_SLIDER,
        step=1,
        value=_place_on_slider(curve, curve.now),
        aria_describedby=f"said-{number}",
        aria_valuetext=_write_level(curve, curve.now),
    )
    control = tag(
        "p", tag("label", "Level of the rule", for_=f"level-{number}"), slider, class_="control", hidden=True
    )
    said = _describe_point(curve, curve.now, context)
    return tag(
        "div",
        tag("h3", name),
        tag("p", _name_axis(context), class_="axis-name"),
        _draw_framed(curve, name, context, control),
        tag("p", said, class_="said", id=f"said-{number}", aria_live="polite"),
        fold("The curve as a table", _tabulate(curve, name, context)),
        class_="curve",
    )


def _name_axis(context: ReportContext) -> str:
    return capitalize(f"{name_cost(context.policy.problem.minimize)}, {context.curve_measurement}")


def _draw_framed(curve: Curve, name: str, context: ReportContext, control: Html) -> Html:
    """The plot with its axes, and the slider right under it."""
    up, unit = _fit_costs(context), _find_cost_unit(context)
    labels = [(_compute_height(tick, up), format_amount(tick, unit)) for tick in up.ticks(6)]
    return make_framed(
        labels,
        _HEIGHT,
        _draw_plot(curve, name, context),
        draw_axis(_fit_levels(curve), curve.unit, width=_NARROW),
        control,
        wide=is_wide(text for _, text in labels),
    )


def _fit_costs(context: ReportContext) -> Scale:
    """One for all curves, so that they compare."""
    return fit_scale([float(cost) for curve in context.curves for cost in curve.cost])


def _fit_levels(curve: Curve) -> Scale:
    return Scale(float(curve.levels[0]), float(curve.levels[-1]))


def _place_on_slider(curve: Curve, i: int) -> int:
    """As far along as the point is."""
    first, last = curve.levels[0], curve.levels[-1]
    return round(_SLIDER * float((curve.levels[i] - first) / (last - first))) if last > first else 0


def _compute_height(value: float, scale: Scale) -> float:
    share = (value - scale.low) / (scale.high - scale.low)
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _draw_plot(curve: Curve, name: str, context: ReportContext) -> Html:
    across, up = _fit_levels(curve), _fit_costs(context)
    places = [
        (across.at(float(level)), _compute_height(float(cost), up))
        for level, cost in zip(curve.levels, curve.cost, strict=True)
    ]
    parts: list[Html] = []
    for tick in up.ticks(6):
        y = f"{_compute_height(tick, up):.1f}"
        parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
    for (x1, y1), (x2, y2) in itertools.pairwise(places):
        if math.isfinite(y1 + y2):
            parts.append(tag("line", x1=x1, x2=x2, y1=f"{y1:.1f}", y2=f"{y2:.1f}", class_="curve-line"))
    parts += [_draw_point(curve, i, *place, context) for i, place in enumerate(places)]
    x, y = places[curve.now]
    if math.isfinite(y):
        parts.append(tag("line", x1=x, x2=x, y1=f"{y:.1f}", y2=_BOTTOM, class_="now-line"))
        parts.append(tag("circle", cx=x, cy=f"{y:.1f}", r=8, class_="marker"))
    title = f"Least cost against the level of the rule: {name}"
    return make_svg(title, tag("desc", _describe_ends(curve, context)), *parts, height=_HEIGHT, class_="plot")


def _draw_point(curve: Curve, i: int, x: str, y: float, context: ReportContext) -> Html:
    """The description of a point goes with it: the script only picks one."""
    conflict = not math.isfinite(y)
    look = "conflict" if conflict else "point now" if i == curve.now else "point"
    return tag(
        "circle",
        cx=x,
        cy=_BOTTOM if conflict else f"{y:.1f}",
        r=5 if i == curve.now else 3,
        class_=look,
        data_level=_write_level(curve, i),
        data_place=_place_on_slider(curve, i),
        data_say=_describe_point(curve, i, context),
    )


def _describe_ends(curve: Curve, context: ReportContext) -> str:
    ends = [_describe_point(curve, i, context) for i in (0, len(curve.levels) - 1)]
    return " ".join(["From left to right.", *ends])


def _write_level(curve: Curve, i: int) -> str:
    return format_amount(float(curve.levels[i]), curve.unit)


def _find_cost_unit(context: ReportContext) -> Unit:
    return "share" if context.policy.problem.minimize.is_probability else "plain"


def _describe_point(curve: Curve, i: int, context: ReportContext) -> str:
    """One point in words: level, cost, the change from now, and the price."""
    here = "As the rule stands" if i == curve.now else "At this level"
    cost, now = float(curve.cost[i]), float(curve.cost[curve.now])
    if not math.isfinite(cost):
        return f"{_write_level(curve, i)}. {here}, the rules conflict: no policy satisfies them all."
    amount = format_amount(cost, _find_cost_unit(context))
    said = (
        f"{_write_level(curve, i)}. {here}, {context.curve_measurement}: "
        f"{name_cost(context.policy.problem.minimize)} {amount}"
    )
    if i != curve.now and math.isfinite(now):
        said += f", {_write_change(cost - now, context)}"
    missed = " The observed rates do not satisfy every rule there." if curve.missed[i] else ""
    return f"{said}.{missed} {_write_price(curve, i, context)}"


def _write_change(change: float, context: ReportContext) -> str:
    shares = context.policy.problem.minimize.is_probability
    size = format_points(abs(change)) if shares else round_number(abs(change))
    if size.split()[0] == "0":
        return "the same as now"
    return f"{size} {'more' if change > 0 else 'less'} than now"


def _write_price(curve: Curve, i: int, context: ReportContext) -> str:
    saved = write_saving(float(curve.prices[i]), curve.statement, context.policy.problem.minimize)
    return f"Loosening it by {name_step(curve.statement)} would save {saved or 'nothing'}."


def _tabulate(curve: Curve, name: str, context: ReportContext) -> Html:
    minimize, rows = context.policy.problem.minimize, []
    for i, (cost, price) in enumerate(zip(curve.cost.tolist(), curve.prices.tolist(), strict=True)):
        level = _write_level(curve, i) + (" (now)" if i == curve.now else "")
        if math.isfinite(cost):
            saved = write_amount_saved(price, curve.statement, minimize) or "nothing"
            rows.append([level, format_amount(cost, _find_cost_unit(context)), saved])
        else:
            rows.append([level, "the rules conflict", ""])
    heads = [
        "Level",
        capitalize(name_cost(context.policy.problem.minimize)),
        f"Loosening it by {name_step(curve.statement)} saves",
    ]
    return make_table(name, heads, rows)
