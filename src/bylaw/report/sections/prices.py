"""What each rule costs: shadow prices, the same as on the curves."""

from __future__ import annotations

import math

from bylaw.language.parser import Statement
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, join, make_list, make_section, tag
from bylaw.report.number_format import is_factor
from bylaw.report.sentences import write_price

_MOST_RULES = 100
_NEARLY, _SAME_PRICE, _SAME_COST = 0.05, 5e-3, 5e-4  # what differs by no more is the same


def write_prices(context: ReportContext) -> Html:
    """The shadow price of each rule: what loosening it by one step would save."""
    problem = context.policy.problem
    agree = _agree(context)
    prices = {str(rule): _find_price(rule, context, agree) for rule in problem.rules}
    if not problem.rules:
        return make_section(
            "prices", "What each rule costs", tag("p", "There are no rules, so there is nothing to pay.")
        )
    items = [
        join(
            [
                tag("span", context.write_sentence(rule), class_="rule"),
                tag("span", _write_price(prices[str(rule)], rule, context), class_="price"),
            ],
            " ",
        )
        for rule in sorted(problem.rules, key=lambda rule: -prices[str(rule)])[:_MOST_RULES]
    ]
    return make_section(
        "prices",
        "What each rule costs",
        make_list(items, "prices"),
        tag(
            "p",
            "These are shadow prices: what a small step from the present level saves, as predicted by the "
            f"model’s probabilities on the cases on which the policy was chosen{_write_shift(context)}. "
            f"{_write_other_steps(context, agree)}",
            class_="note",
        ),
    )


def _write_price(price: float, rule: Statement, context: ReportContext) -> str:
    without, vacuous = context.traced.without.get(str(rule)), context.policy.vacuous_statements
    return write_price(price, rule, context.policy.problem.minimize, without, str(rule) in vacuous)


def _agree(context: ReportContext) -> bool:
    """Whether the curves have the policy's own prices and cost at its levels: not if it was chosen with
    labels, groups or a margin that they were computed without, or decides without chance."""
    if not context.fitted.fitted:
        return False
    stated = context.policy.prices
    prices = [
        (stated.get(str(curve.statement), 0.0), float(curve.prices[curve.now]))
        for curve in context.curves
        if not is_factor(curve.statement)  # whose prices are per point of the rate
    ]
    if not all(math.isclose(one, two, rel_tol=_NEARLY, abs_tol=_SAME_PRICE) for one, two in prices):
        return False
    if not context.traced.observed:
        return True
    cost = context.fitted.compare(context.policy.problem.minimize).policy
    return all(math.isclose(cost, curve.cost[curve.now], abs_tol=_SAME_COST) for curve in context.curves)


def _find_price(rule: Statement, context: ReportContext, agree: bool) -> float:
    """That of the curve, in steps of the level, or else the policy's own."""
    price = context.traced.find_price(rule) if agree else None
    return context.policy.prices.get(str(rule), 0.0) if price is None or math.isnan(price) else price


def _write_shift(context: ReportContext) -> str:
    if not any(context.policy.tightened.values()):
        return ""
    return ", with bounds shifted so that observed rates, or a margin, are respected"


def _write_other_steps(context: ReportContext, agree: bool) -> str:
    if not context.curves:
        return ""
    if agree:
        return "For larger steps, see the curves below."
    if not context.fitted.fitted:
        return "The curves below are about other cases, and their prices may differ."
    return (
        "The curves below were not computed as the policy was chosen: without its labels, groups or margin, "
        "or with random decisions that it does not make. So their prices differ."
    )
