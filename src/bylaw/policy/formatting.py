"""Policies as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bylaw._base.markup import Content, Html
from bylaw._base.notebook import Cell, draw_bar, fold, make_card, make_code, make_table
from bylaw.language.expressions import CHANGED, format_conditions, shorten
from bylaw.program.solution import RulePrice

if TYPE_CHECKING:
    from bylaw.policy.policy import Policy

_SHOWN_RULES = 20
_NOTABLE = 1e-3  # of violations in all, from which rules are called missed


def format_text(policy: Policy) -> str:
    """The policy as plain text."""
    vacuous = policy.vacuous_statements
    prices = "".join(
        f"\n  {rule}   {'holds as 0/0' if rule in vacuous else f'price {price:.4g}'}"
        for rule, price in policy.prices.items()
    )
    status, worst = policy.solution.status.name.lower(), _describe_worst(policy)
    others = (policy.hard, policy.calibration, policy.certificate)
    return (
        f"Policy over {shorten(policy.actions)}, beta={policy.beta:.4g}, {status}: {_describe_fit(policy)}"
        f"\nminimize {policy.problem.minimize}{worst and chr(10) + '  ' + worst}"
        f"{prices and chr(10) + 'subject to' + prices}"
        f"{''.join(f'{chr(10)}{one}' for one in others if one is not None)}"
    )


def _describe_fit(policy: Policy) -> str:
    """Return whether the rules hold on the fitted rows, as observed or as predicted, and, where that is
    estimated, on others."""
    rates = policy.fitted_rates
    how = "as predicted by the model's probabilities, " if _is_predicted(policy) else ""
    if rates is not None:
        return how + (str(rates) if policy.certificate is None else rates.describe_fitted_rows())
    if not policy.problem.rules:
        return "there are no rules"
    missed = policy.guarantee.violation
    if missed > _NOTABLE:
        return f"{how}the rules are violated by {missed:.2g} in all on the fitted rows"
    return f"{how}the rules hold to {missed:.2g} on the fitted rows"


def _is_predicted(policy: Policy) -> bool:
    """Return whether some rule is about labels or groups that are not known at decision time, or about costs,
    and nothing of that was observed: its rate is then the one that the model predicts."""
    if policy.fitted_rates is not None and policy.fitted_rates.observed:
        return False
    space, attributes = policy.action_space, policy.feature_map.attributes
    groups = {name: attribute.values for name, attribute in attributes.items()}
    rules = policy.problem.expand(space.classes, groups, space.options)
    hidden = {name for name, attribute in attributes.items() if not attribute.known}
    return any(
        atom.needs_label(space)
        or atom.reads("cost") not in (None, CHANGED)
        or not hidden.isdisjoint(name for name, _ in atom.conditions)
        for found in rules
        for atom in found.rule.atoms()
    )


def _describe_worst(policy: Policy) -> str:
    """The worst group, where its rate is minimised, and the weights of the groups that have one."""
    if not policy.group_rates:
        return ""
    worst = max(policy.group_rates, key=lambda found: -math.inf if math.isnan(found.rate) else found.rate)
    weighed = sorted(policy.group_rates, key=lambda found: -found.weight)
    shown = [f"{format_conditions(one.group)} {one.weight:.3g}" for one in weighed if one.weight > _NOTABLE]
    return f"worst group {format_conditions(worst.group)}, {worst.rate:.4g}; weights {', '.join(shown)}"


def format_html(policy: Policy) -> str:
    """What a policy minimises, its rules with their prices, and whether they hold."""
    prices = policy.prices
    most, vacuous = max(prices.values(), default=0.0), policy.vacuous_statements
    rows: list[list[Cell]] = [
        [make_code(rule), "0/0" if rule in vacuous else f"{price:.4g}", draw_bar(price, most)]
        for rule, price in prices.items()
    ]
    title = f"Policy over {shorten(policy.actions)}: minimize {policy.problem.minimize}"
    table = make_table(("subject to", "price", ""), rows, numbers=(1,)) if rows else None
    others = [one for one in (policy.hard, policy.calibration, policy.certificate) if one is not None]
    remarks: list[Content] = [_describe_fit(policy), _describe_worst(policy), *map(str, others)]
    return make_card(title, table, _list_single_rules(policy.rule_prices), remarks=filter(None, remarks))


def _list_single_rules(prices: tuple[RulePrice, ...]) -> Html | None:
    """Those that cost something, dearest first, where they are not the rules as stated."""
    if not prices or all(price.statement == price.rule for price in prices):
        return None
    priced = sorted((price for price in prices if price.multiplier), key=lambda price: -price.multiplier)
    most = max((price.multiplier for price in priced), default=0.0)
    rows: list[list[Cell]] = [
        [
            make_code(one.rule),
            f"{one.multiplier:.4g}",
            draw_bar(one.multiplier, most),
            f"{one.tightened:+.4g}",
        ]
        for one in priced[:_SHOWN_RULES]
    ]
    table = make_table(("single rule", "price", "", "tightened by"), rows, numbers=(1, 3))
    more = len(priced) - len(rows)
    summary = f"{len(priced)} of {len(prices)} single rules cost something" + (
        f", {more} not shown" if more else ""
    )
    return fold(summary, table)
