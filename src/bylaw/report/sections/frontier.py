"""The frontier: what looser or tighter rules would cost, to be tried out."""

from __future__ import annotations

import itertools
import math

from bylaw.report.context import Facts
from bylaw.report.cost_curves import Curve
from bylaw.report.markup import Html, bullets, folded, section, table, tag
from bylaw.report.number_format import Unit, amount, plural, points, rounded
from bylaw.report.sentences import is_share, saving, sentence
from bylaw.report.svg_charts import Scale, axis, scale_of, svg

_HEIGHT = 240  # of a plot, in pixels
_TOP, _BOTTOM = 34, 228
_STEP = 0.01
_NOTHING = 1e-6
_ROOM = 0.06  # of the width


def frontier_section(facts: Facts) -> Html:
    if not facts.curves:
        return section("frontier", "What other levels would cost", tag("p", _nothing(facts)))
    panels = [_panel(curve, i, facts) for i, curve in enumerate(facts.curves)]
    left = [tag("code", text) for text in facts.without_curve]
    return section(
        "frontier",
        "What other levels would cost",
        tag(
            "p",
            "Each curve moves one rule and keeps the others. It shows the least cost at every level, by the "
            f"model’s own probabilities on {facts.basis}.",
        ),
        _chooser(facts),
        *panels,
        tag("p", "No curve, as there is no single level to move, or too many rules:", class_="note")
        if left
        else None,
        bullets(left[:20], "note") if left else None,
    )


def _nothing(facts: Facts) -> str:
    if not facts.policy.problem.rules:
        return "There are no rules to move."
    rules = plural(len(facts.policy.rule_prices), "single rule")
    return f"No curve was computed, for {rules}. Ask for report(..., levels=11), or pass frontiers=[...]."


def _chooser(facts: Facts) -> Html | None:
    """Shown only where a script can act on it."""
    if len(facts.curves) < 2:
        return None
    options = [
        tag("option", sentence(curve.statement, facts.kind), value=i) for i, curve in enumerate(facts.curves)
    ]
    choice = tag("select", *options, id="curve-choice")
    return tag("p", tag("label", "Rule to move", for_="curve-choice"), choice, class_="control", hidden=True)


def _panel(curve: Curve, number: int, facts: Facts) -> Html:
    name = sentence(curve.statement, facts.kind)
    slider = tag(
        "input",
        type="range",
        id=f"level-{number}",
        min=0,
        max=len(curve.levels) - 1,
        step=1,
        value=curve.now,
        aria_describedby=f"said-{number}",
        aria_valuetext=_level(curve, curve.now),
    )
    control = tag(
        "p", tag("label", "Level of the rule", for_=f"level-{number}"), slider, class_="control", hidden=True
    )
    return tag(
        "div",
        tag("h3", name),
        _plot(curve, name, facts),
        axis(_across(curve), curve.unit),
        control,
        tag("p", say(curve, curve.now, facts), class_="said", id=f"said-{number}", aria_live="polite"),
        folded("The curve as a table", _table(curve, name, facts)),
        class_="curve",
    )


def _across(curve: Curve) -> Scale:
    """With room for the numbers on the left."""
    first, last = float(curve.levels[0]), float(curve.levels[-1])
    return Scale(first - _ROOM * (last - first), last)


def _up(curve: Curve) -> Scale:
    return scale_of([float(cost) for cost in curve.cost])


def _height(value: float, scale: Scale) -> float:
    share = (value - scale.low) / (scale.high - scale.low)
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _plot(curve: Curve, name: str, facts: Facts) -> Html:
    across, up = _across(curve), _up(curve)
    unit: Unit = _cost_unit(facts)
    places = [
        (across.at(float(level)), _height(float(cost), up))
        for level, cost in zip(curve.levels, curve.cost, strict=True)
    ]
    parts: list[Html] = []
    parts.append(tag("text", f"{_cost_name(facts).capitalize()}, predicted", x="0%", y=10, class_="name"))
    for tick in up.ticks(6):
        y = f"{_height(tick, up):.1f}"
        parts.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(tag("text", amount(tick, unit), x="0%", y=f"{float(y) - 4:.1f}", class_="tick"))
    for (x1, y1), (x2, y2) in itertools.pairwise(places):
        if math.isfinite(y1 + y2):
            parts.append(tag("line", x1=x1, x2=x2, y1=f"{y1:.1f}", y2=f"{y2:.1f}", class_="curve-line"))
    parts += [_point(curve, i, *place, facts) for i, place in enumerate(places)]
    x, y = places[curve.now]
    if math.isfinite(y):
        parts.append(tag("line", x1=x, x2=x, y1=f"{y:.1f}", y2=_BOTTOM, class_="now-line"))
        parts.append(tag("circle", cx=x, cy=f"{y:.1f}", r=8, class_="marker"))
    title = f"Least cost against the level of the rule: {name}"
    return svg(title, tag("desc", _describe(curve, facts)), *parts, height=_HEIGHT, class_="plot")


def _point(curve: Curve, i: int, x: str, y: float, facts: Facts) -> Html:
    """What is said of the point goes with it: the script only picks one."""
    conflict = not math.isfinite(y)
    look = "conflict" if conflict else "point now" if i == curve.now else "point"
    return tag(
        "circle",
        cx=x,
        cy=_BOTTOM if conflict else f"{y:.1f}",
        r=5 if i == curve.now else 3,
        class_=look,
        data_level=_level(curve, i),
        data_say=say(curve, i, facts),
    )


def _describe(curve: Curve, facts: Facts) -> str:
    ends = [say(curve, i, facts) for i in (0, len(curve.levels) - 1)]
    return " ".join(["From left to right.", *ends])


def _level(curve: Curve, i: int) -> str:
    return amount(float(curve.levels[i]), curve.unit)


def _cost_unit(facts: Facts) -> Unit:
    return "share" if is_share(facts.policy.problem.minimize) else "plain"


def _cost_name(facts: Facts) -> str:
    word, _ = saving(facts.policy.problem.minimize)
    names = {"of error": "wrong answers", "of referrals": "referrals", "of missed labels": "missed labels"}
    return {**names, "labels per set": "labels per set"}.get(word, "cost")


def say(curve: Curve, i: int, facts: Facts) -> str:
    """One point in words: level, cost, the change from now, and the price."""
    here = "As the rule stands" if i == curve.now else "At this level"
    cost, now = float(curve.cost[i]), float(curve.cost[curve.now])
    if not math.isfinite(cost):
        return f"{_level(curve, i)}. {here}, the rules conflict: no policy keeps them all."
    said = f"{_level(curve, i)}. {here}, predicted: {_cost_name(facts)} {amount(cost, _cost_unit(facts))}"
    if i != curve.now and math.isfinite(now):
        said += f", {_change(cost - now, facts)}"
    return f"{said}. {_price(curve, i, facts)}"


def _change(change: float, facts: Facts) -> str:
    size = points(abs(change)) if is_share(facts.policy.problem.minimize) else rounded(abs(change))
    if size.split()[0] == "0":
        return "the same as now"
    return f"{size} {'more' if change > 0 else 'less'} than now"


def _price(curve: Curve, i: int, facts: Facts) -> str:
    if _saved(curve, i, facts) == "nothing":
        return "More room would save nothing."
    return f"{_step(curve)} would save {_saved(curve, i, facts)} {saving(facts.policy.problem.minimize)[0]}."


def _step(curve: Curve) -> str:
    return "One more unit of room" if curve.unit == "plain" else "One more point of room"


def _saved(curve: Curve, i: int, facts: Facts) -> str:
    """By one more unit or point of room."""
    saved = float(curve.prices[i]) * (1.0 if curve.unit == "plain" else _STEP)
    if saved < _NOTHING:
        return "nothing"
    return points(saved) if saving(facts.policy.problem.minimize)[1] else rounded(saved)


def _table(curve: Curve, name: str, facts: Facts) -> Html:
    rows = []
    for i, cost in enumerate(curve.cost.tolist()):
        known = math.isfinite(cost)
        shown = amount(cost, _cost_unit(facts)) if known else "the rules conflict"
        rows.append(
            [
                _level(curve, i) + (" (now)" if i == curve.now else ""),
                shown,
                _saved(curve, i, facts) if known else "",
            ]
        )
    return table(name, ["Level", _cost_name(facts).capitalize(), f"{_step(curve)} saves"], rows)
