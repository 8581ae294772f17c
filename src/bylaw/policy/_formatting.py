"""Policies and explanations as text and as HTML cards for notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bylaw.language import CHANGED, format_conditions, shorten
from bylaw.view import Card, Cell, Table, bar, code

if TYPE_CHECKING:
    from bylaw.policy._explanation import Explanation
    from bylaw.policy._policy import Policy

_MOST_RULES, _MOST_ROWS = 20, 5  # shown in a card
_NOTABLE = 1e-3  # the least total violation, or weight of a group, that is reported


def format_policy(policy: Policy) -> str:
    """Return a policy as plain text."""
    status = policy.solution.status.name.lower()
    prices = [f"  {rule}   {_format_price(policy, rule, 'price ')}" for rule in policy.prices]
    worst = _describe_worst_group(policy)
    lines = [
        f"Policy over {shorten(policy.actions)}, beta={policy.beta:.4g}, {status}: {_describe_fit(policy)}",
        f"minimize {policy.problem.minimize}",
        *([f"  {worst}"] if worst else []),
        *(["subject to", *prices] if prices else []),
        *_list_remarks(policy),
    ]
    return "\n".join(lines)


def make_policy_card(policy: Policy) -> Card:
    """Return a card of a policy: its objective, its rules with their prices, and remarks on the fit."""
    most = max(policy.prices.values(), default=0.0)
    rows = [
        [code(rule), _format_price(policy, rule), bar(price, most)] for rule, price in policy.prices.items()
    ]
    title = f"Policy over {shorten(policy.actions)}: minimize {policy.problem.minimize}"
    tables = [Table(("subject to", "price", ""), rows, numbers=(1,)) if rows else None]
    prices = policy.rule_prices
    if any(price.statement != price.rule for price in prices):  # the single rules, highest price first
        priced = sorted((price for price in prices if price.multiplier), key=lambda price: -price.multiplier)
        most = max((price.multiplier for price in priced), default=0.0)
        rows = [
            [code(one.rule), f"{one.multiplier:.4g}", bar(one.multiplier, most), f"{one.tightened:+.4g}"]
            for one in priced[:_MOST_RULES]
        ]
        more = f", {len(priced) - len(rows)} not shown" if len(priced) > len(rows) else ""
        summary = f"{len(priced)} of {len(prices)} single rules cost something{more}"
        tables.append(Table(("single rule", "price", "", "tightened by"), rows, (1, 3), summary))
    remarks = [_describe_fit(policy), _describe_worst_group(policy), *_list_remarks(policy)]
    return Card(title, tables, list(filter(None, remarks)))


def _format_price(policy: Policy, rule: str, name: str = "") -> str:
    return "holds as 0/0" if rule in policy.vacuous_statements else f"{name}{policy.prices[rule]:.4g}"


def _list_remarks(policy: Policy) -> list[str]:
    others = (policy.hard, policy.calibration, policy.certificate)
    return [str(one) for one in others if one is not None]


def _describe_fit(policy: Policy) -> str:
    """Return a sentence on the violation of rules on the fitted rows, by observed or predicted rates."""
    rates = policy.fitted_rates
    how = "as predicted by the model's probabilities, " if _is_predicted(policy) else ""
    if rates is not None:
        return how + (str(rates) if policy.certificate is None else rates.describe_fitted_rows())
    if not policy.problem.rules:
        return "there are no rules"
    violation = policy.guarantee.violation
    if violation > _NOTABLE:
        return f"{how}the rules are violated by {violation:.2g} in all on the fitted rows"
    return f"{how}the rules hold to {violation:.2g} on the fitted rows"


def _is_predicted(policy: Policy) -> bool:
    """Return True if rules refer to labels, groups or costs, and none of these was observed."""
    if policy.fitted_rates is not None and policy.fitted_rates.observed:
        return False
    attributes = policy.feature_map.attributes
    hidden = {name for name, attribute in attributes.items() if not attribute.known}
    return any(
        atom.needs_label(policy.action_space)
        or atom.reads("cost") not in (None, CHANGED)
        or not hidden.isdisjoint(name for name, _ in atom.conditions)
        for one in policy.expanded_rules
        for atom in one.rule.atoms()
    )


def _describe_worst_group(policy: Policy) -> str:
    """Return the worst group and the weights of groups as text, if the objective is a worst rate."""
    if not policy.group_rates:
        return ""
    worst = max(policy.group_rates, key=lambda one: -math.inf if math.isnan(one.rate) else one.rate)
    ordered = sorted(policy.group_rates, key=lambda one: -one.weight)
    weights = [f"{format_conditions(one.group)} {one.weight:.3g}" for one in ordered if one.weight > _NOTABLE]
    return f"worst group {format_conditions(worst.group)}, {worst.rate:.4g}; weights {', '.join(weights)}"


def make_explanation_card(explanation: Explanation) -> Card:
    """Return a card of an explanation: the number of decisions that change, and why the first few do."""
    moved = np.flatnonzero(explanation.changed)
    rows = f"{len(moved):,} of {len(explanation.baseline):,} rows"
    title = f"{rows} are decided otherwise than by your model"
    if explanation.without_rules is not None:
        title += f"; the rules move {int(explanation.moved.sum()):,}"
    if explanation.before.ndim > 1 or not len(moved):  # sets of labels have no single decision before
        return Card(title)
    names = [str(action) for action in explanation.actions]
    pairs = np.column_stack([explanation.before[moved], explanation.after[moved]])
    changes, counts = np.unique(pairs, axis=0, return_counts=True)
    ordered = sorted(zip(counts.tolist(), changes.tolist(), strict=True), key=lambda line: -line[0])
    lines = [
        [names[before], names[after], f"{count:,}", bar(count, max(counts.tolist()))]
        for count, (before, after) in ordered
    ]
    first: list[list[Cell | str]] = []
    for row, (before, after) in zip(moved[:_MOST_ROWS].tolist(), pairs.tolist(), strict=False):
        pulls = explanation.pulls[row, :, after] - explanation.pulls[row, :, before]
        pulled = explanation.moved[row] and len(pulls) and pulls.max() > 0
        rule = code(explanation.rules[int(np.argmax(pulls))]) if pulled else "no rule: it costs less"
        first.append([f"{row}", names[before], names[after], rule])
    heads = ("your model", "this policy")
    return Card(
        title,
        [
            Table((*heads, "rows", ""), lines, numbers=(2,)),
            Table(("row", *heads, "pulled most by"), first, numbers=(0,), summary="the first of them"),
        ],
    )
