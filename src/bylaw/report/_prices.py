"""Sections on costs: the shadow price of each rule, and Pareto frontiers with a slider for the level."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from bylaw._base import Floats
from bylaw.errors import BylawError, ConvergenceWarning, InfeasibleRulesError, OptionError
from bylaw.fitting import Frontier, Lever, find_lever, find_met_level, frontier, solve
from bylaw.language import Problem, Statement
from bylaw.policy import Policy
from bylaw.program import Status
from bylaw.report._context import ReportContext, ReportRows
from bylaw.rows import Evidence
from bylaw.view import (
    MOST_ROWS,
    Content,
    Html,
    Point,
    Scale,
    capitalize,
    draw_curve,
    find_level_unit,
    fit_scale,
    fold,
    format_amount,
    is_factor,
    join,
    make_list,
    make_page_table,
    name_cost,
    name_step,
    pluralize,
    tag,
    write_amount_saved,
    write_cost,
    write_price,
)

_MOST_CURVES = 8
_SLIDER = 1000  # the number of steps from the first level to the last


@dataclass(frozen=True)
class Curve:
    """The least cost for different levels of one rule or family, by increasing level."""

    statement: Statement
    level: float  # the present one
    levels: Floats  # (n_points,)
    cost: Floats  # (n_points,); nan if the rules conflict at this level
    prices: Floats  # (n_points,)
    missed: tuple[bool, ...]  # whether observed rates violate a rule at each level

    @property
    def now(self) -> int:
        """The index of the point at the present level."""
        return int(np.abs(self.levels - self.level).argmin())


@dataclass(frozen=True)
class Curves:
    """The curves of a report, and how their costs were measured."""

    curves: Sequence[Curve] = ()
    missing: Sequence[str] = ()  # statements without a curve
    observed: bool | None = None  # whether costs are observed or predicted; None for given frontiers
    without: Mapping[str, float] = field(
        default_factory=dict
    )  # by rule, how much lower the cost is without it

    @property
    def measurement(self) -> str:
        """How the costs were measured, as text such as "as observed"."""
        return {True: "as observed", False: "as predicted", None: "as given"}[self.observed]


def trace_curves(
    rows: ReportRows,
    points: int,
    given: Sequence[Frontier] | None,
    margin: float | Literal["auto"] = 0.0,
) -> Curves:
    """Compute the curve of every rule or family with a single level.

    The policies on a curve are fitted with the same labels, groups and margin as the policy. The policy
    itself, and the policy without the rule, are points that need no additional fit.
    """
    policy, problem = rows.policy, rows.policy.problem
    if given is not None:
        return Curves([_convert_frontier(problem, one) for one in given])
    evidence, options = _recall_fit(rows, margin)
    cost, curves = rows.compare(problem.minimize).policy, list[Curve]()
    missing, without = list[str](), dict[str, float]()
    for place, statement in enumerate(problem.rules):
        text, free = str(statement), None
        idle = not write_amount_saved(policy.prices.get(text, 0.0), statement, problem.minimize)
        wanted = len(curves) < _MOST_CURVES
        if wanted or (idle and rows.fitted):
            # The policy under all other rules, if they do not conflict. It is not used for decisions, so its
            # warnings are ignored.
            others = problem.with_rules([rule for i, rule in enumerate(problem.rules) if i != place])
            with suppress(BylawError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = {"beta": policy.beta, "deterministic": policy.deterministic, **options}
                free = solve(others, evidence, **fit)
        if idle and rows.fitted and free is not None and len(without) < _MOST_CURVES:
            # The next step of this rule saves nothing, but the rule may still cost something.
            chances = free.probabilities(rows.evidence)
            saved = cost - free.expected(problem.minimize, rows.seen, probabilities=chances)
            without[text] = saved if saved > 1e-4 * abs(cost) else 0.0
        curve = _trace_curve(rows, statement, points, evidence, options, free) if wanted else None
        if curve is None:
            missing.append(text)
        else:
            curves.append(curve)
    return Curves(curves, missing, evidence.has_observed or bool(options), without)


def _recall_fit(rows: ReportRows, margin: float | Literal["auto"]) -> tuple[Evidence, dict[str, Any]]:
    """Return the rows and the options of `solve` with which the policy was fitted, as far as they are known.

    The rows include labels and true groups only if the policy was fitted with observed rates.
    """
    policy, evidence = rows.policy, rows.evidence
    if not policy.observed or not rows.fitted:
        return evidence.without_observed(), {}
    kept = margin if policy.certificate is None else policy.certificate.margin
    options: dict[str, Any] = {"margin": kept} if kept else {}
    stated = policy.card.options
    if stated and not (stated["labels"] or stated["groups"]):  # chosen with a margin alone
        return evidence.without_observed(), options
    if evidence.has_observed:
        options["calibrate"] = "none"  # the rows are calibrated as the policy calibrates them
    return evidence, options


def _trace_curve(
    rows: ReportRows,
    statement: Statement,
    points: int,
    evidence: Evidence,
    options: dict[str, Any],
    free: Policy | None,
) -> Curve | None:
    """Return the curve of a rule; None if the rule has no level, or the rules conflict at all levels."""
    policy, problem = rows.policy, rows.policy.problem
    try:
        lever = find_lever(problem, statement)
    except BylawError:
        return None
    measure = partial(policy.expected, problem.minimize, evidence)
    # The level that decisions without this rule satisfy: from there on, loosening it saves nothing.
    free_level, free_chances = math.nan, None
    if free is not None:
        free_chances = free.probabilities(rows.evidence)
        rate = partial(free.expected, evidence=rows.evidence, probabilities=free_chances)
        free_level = find_met_level(lever, rate, rows.evidence, policy.action_space.options)
    levels = _choose_levels(lever, points, free_level)
    solved = list[tuple[float, float, float, bool]]()  # level, cost, price, and whether rules are violated
    if not (options or policy.observed or policy.deterministic):
        if rows.fitted and not is_factor(statement):
            price = policy.prices.get(str(statement), 0.0)
            solved.append((lever.level, measure(probabilities=rows.probabilities), price, False))
        loosest = float(levels[-1] if lever.looser > 0 else levels[0])
        if lever.looser * (loosest - free_level) >= 0:
            solved.append((loosest, measure(probabilities=free_chances), 0.0, False))
    remaining = [level for level in levels.tolist() if level not in [point[0] for point in solved]]
    sweep: dict[Statement | str, Any] = {statement: remaining}
    try:
        with warnings.catch_warnings():  # levels at which rules are violated are marked
            warnings.simplefilter("ignore", ConvergenceWarning)
            if remaining:
                solved += _list_points(frontier(problem, evidence, sweep, beta=policy.beta, **options))
    except InfeasibleRulesError:
        if not solved:
            return None
        solved += [(level, math.nan, math.nan, False) for level in remaining]
    except BylawError:
        return None
    return _make_curve(lever, solved)


def _list_points(path: Frontier) -> list[tuple[float, float, float, bool]]:
    missed = [status is Status.MISSED for status in path.status]
    return list(zip(path.levels[:, 0].tolist(), path.cost, path.prices[:, 0], missed, strict=True))


def _make_curve(lever: Lever, points: Sequence[tuple[float, float, float, bool]]) -> Curve:
    levels, cost, prices, missed = zip(*sorted(points, key=lambda point: point[0]), strict=True)
    return Curve(lever.statement, lever.level, np.array(levels), np.array(cost), np.array(prices), missed)


def _convert_frontier(problem: Problem, path: Frontier) -> Curve:
    """Convert a frontier of the caller to a curve; raise if it is not for a rule of the policy."""
    if not isinstance(path, Frontier) or len(path.swept) != 1:
        raise OptionError("frontiers must be a list of Frontier objects, each over one rule of the policy")
    lever = None
    for rule in problem.rules:
        with suppress(BylawError):  # rules without a level have no lever
            lever = one if (one := find_lever(problem, rule)).label == path.swept[0] else lever
    if lever is None:
        raise OptionError(f"a frontier must be over a rule of the policy, got one over {path.swept[0]!r}")
    if not np.isclose(path.levels[:, 0], lever.level, rtol=0, atol=1e-12).any():
        raise OptionError(
            f"the frontier of {lever.label!r} must include the present level {lever.level:g}; add it to "
            "its levels"
        )
    return _make_curve(lever, _list_points(path))


def _choose_levels(lever: Lever, points: int, free_level: float) -> Floats:
    """Return levels from strict to where the rule stops binding, including the present level."""
    level, sign = lever.level, lever.looser
    # A curve ends at five times the present level beyond it, or at 0.05 if that is zero.
    reach, span = 5.0 * abs(level), 0.05
    room = max(sign * (free_level - level), 0.0) if math.isfinite(free_level) else reach or span
    loose = level + sign * (min(room, reach) if reach else room)
    tight = level - sign * max(room, abs(level))
    if sign > 0:
        tight = max(tight, 0.0) if level >= 0 else tight
    elif find_level_unit(lever.statement) != "plain":
        tight = min(tight, 1.0)
    first, last = sorted((tight, loose))
    if first == last:
        last += span
    return np.unique([*np.linspace(first, last, points), level])


def write_prices(context: ReportContext) -> Sequence[Content]:
    """Write the section on shadow prices: the cost that a small loosening of each rule saves."""
    policy, traced = context.policy, context.traced
    rules, agree = policy.problem.rules, _agree(context)
    if not rules:
        return [tag("p", "There are no rules, so they cost nothing.")]
    prices = {str(rule): policy.prices.get(str(rule), 0.0) for rule in rules}
    if agree:  # the curves are more precise
        prices |= {str(one.statement): float(one.prices[one.now]) for one in traced.curves}
    items = []
    for rule in sorted(rules, key=lambda rule: -prices[str(rule)])[:MOST_ROWS]:
        text = str(rule)
        vacuous = text in policy.vacuous_statements
        price = write_price(prices[text], rule, policy.problem.minimize, traced.without.get(text), vacuous)
        sentence = tag("span", context.write_sentence(rule), class_="rule")
        items.append(join([sentence, tag("span", price, class_="price")], " "))
    shift = ", with bounds shifted so that observed rates, or a margin, are respected"
    if not traced.curves:
        comparison = ""
    elif agree:
        comparison = "For larger steps, see the curves below."
    elif not context.fitted.fitted:
        comparison = "The curves below are about other cases, and their prices may differ."
    else:
        comparison = (
            "The curves below were computed without the labels, groups or margin with which the policy was "
            "chosen, or with random instead of deterministic decisions. So their prices differ."
        )
    note = (
        "These are shadow prices: what a small step from the present level saves, as predicted by the "
        f"model’s probabilities on the cases on which the policy was chosen"
        f"{shift if any(policy.tightened.values()) else ''}. {comparison}"
    )
    return [make_list(items, "prices"), tag("p", note, class_="note")]


def _agree(context: ReportContext) -> bool:
    """Return whether the curves agree with the policy's prices and cost at the present levels.

    They differ if the policy was fitted with labels, groups or a margin that the curves lack, or if its
    decisions are deterministic.
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


def write_frontier(context: ReportContext) -> Sequence[Content]:
    """Write the section with a curve of costs for each rule and a slider for its level."""
    traced, curves = context.traced, context.traced.curves
    if not context.policy.problem.rules:
        return [tag("p", "There are no rules to vary.")]
    if not curves:
        rules = pluralize(len(context.policy.rule_prices), "single rule")
        request = f"No curve was computed, for {rules}. In Python, request curves by "
        how = tag("code", "report(..., levels=11)"), " or given as ", tag("code", "frontiers=[...]"), "."
        return [tag("p", request, *how)]
    lead = (
        "Each curve is a trade-off (a Pareto frontier): the level of one rule varies, the others stay, and "
        f"the curve shows the least cost at every level, {traced.measurement} on {context.fitted.name}. "
        f"{'All curves have the same scale of cost. ' if len(curves) > 1 else ''}{context.words.cost_note}"
    )
    chooser = None
    if len(curves) > 1:  # a list of rules to choose from, which is visible only if a script can act on it
        sentences = [context.write_sentence(curve.statement) for curve in curves]
        options = [tag("option", sentence, value=i) for i, sentence in enumerate(sentences)]
        label = tag("label", "Rule to vary", for_="curve-choice")
        choice = tag("select", *options, id="curve-choice")
        chooser = tag("p", label, choice, class_="control", hidden=True)
    # One scale of costs for all curves, so that they can be compared.
    up = fit_scale(float(cost) for curve in curves for cost in curve.cost)
    missing = [tag("code", text) for text in traced.missing]
    note = "Rules without a curve, because they have no single level to vary or there are too many rules:"
    return [
        tag("p", lead),
        chooser,
        *(_make_panel(curve, up, i, context) for i, curve in enumerate(curves)),
        tag("p", note, class_="note") if missing else None,
        make_list(missing[:MOST_ROWS], "note") if missing else None,
    ]


def _make_panel(curve: Curve, up: Scale, number: int, context: ReportContext) -> Html:
    """Return a curve with its slider, the present point in words, and a table of all points."""
    sentence, minimize = context.write_sentence(curve.statement), context.policy.problem.minimize
    along, points, lines = Scale(float(curve.levels[0]), float(curve.levels[-1])), list[Point](), []
    units = find_level_unit(curve.statement), context.cost_unit
    for i, (level, cost, price) in enumerate(zip(curve.levels, curve.cost, curve.prices, strict=True)):
        written = format_amount(level, units[0])
        place = {"data_level": written, "data_place": place_on_slider(along, level)}
        points.append(Point(float(level), float(cost), _describe_point(curve, i, context), place))
        name = f"{written} (now)" if i == curve.now else written
        saved = write_amount_saved(price, curve.statement, minimize) or "nothing"
        is_solved = math.isfinite(cost)
        lines.append(
            [name, format_amount(cost, units[1]), saved] if is_solved else [name, "the rules conflict", ""]
        )
    now = points[curve.now]
    slider = tag(
        "input",
        type="range",
        id=f"level-{number}",
        min=0,
        max=_SLIDER,
        step=1,
        value=now.attributes["data_place"],
        aria_describedby=f"said-{number}",
        aria_valuetext=now.attributes["data_level"],
    )
    label = tag("label", "Level of the rule", for_=f"level-{number}")
    chart = draw_curve(
        f"Least cost against the level of the rule: {sentence}",
        points,
        units,
        up=up,
        now=curve.now,
        description=f"From left to right. {points[0].words} {points[-1].words}",
        control=tag("p", label, slider, class_="control", hidden=True),
    )
    axis = capitalize(f"{name_cost(minimize)}, {context.traced.measurement}")
    heads = ["Level", capitalize(name_cost(minimize)), f"Loosening it by {name_step(curve.statement)} saves"]
    return tag(
        "div",
        tag("h3", sentence),
        tag("p", axis, class_="axis-name"),
        chart,
        tag("p", now.words, class_="said", id=f"said-{number}", aria_live="polite"),
        fold("The curve as a table", make_page_table(sentence, heads, lines)),
        class_="curve",
    )


def place_on_slider(along: Scale, level: float) -> int:
    """Return the position of a level on the slider, an integer from 0 to 1000."""
    return round(_SLIDER * along.share(level)) if along.high > along.low else 0


def _describe_point(curve: Curve, i: int, context: ReportContext) -> str:
    """Describe one point of a curve: level, cost, change of the cost, and price."""
    level, minimize = float(curve.levels[i]), context.policy.problem.minimize
    place = "At the present level" if i == curve.now else "At this level"
    written = f"{format_amount(level, find_level_unit(curve.statement))}. {place},"
    cost, now = float(curve.cost[i]), float(curve.cost[curve.now])
    if not math.isfinite(cost):
        return f"{written} the rules conflict: no policy satisfies them all."
    amount, change = f"{name_cost(minimize)} {format_amount(cost, context.cost_unit)}", ""
    if i != curve.now and math.isfinite(now):
        size = write_cost(abs(cost - now), minimize)
        change = f", {size} {'more' if cost > now else 'less'} than now"
        change = ", the same as now" if size.split()[0] == "0" else change
    missed = " The observed rates do not satisfy every rule there." if curve.missed[i] else ""
    price = write_price(float(curve.prices[i]), curve.statement, minimize)
    return f"{written} {context.traced.measurement}: {amount}{change}.{missed} {price}"
