"""Shadow prices in words: what one more point of a rule's level saves."""

from __future__ import annotations

from bylaw.policy.policy import Policy
from bylaw.report.number_format import find_level_unit
from bylaw.report.sentences import name_step, write_saving


def word_saving(policy: Policy, rule: str) -> str:
    """What one more point of a rule as stated saves at its price; of a level that is no share, a tenth."""
    statement, price = policy.problem.rules[policy.problem.find(rule)], policy.prices[rule]
    if price <= 0:
        return "nothing"
    saved = write_saving(price, statement, policy.problem.minimize) or "next to nothing"
    if find_level_unit(statement) != "plain":
        return saved
    return f"{saved}, by {name_step(statement).removeprefix('Loosening it by ')}"
