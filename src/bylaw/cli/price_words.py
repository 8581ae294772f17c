"""Shadow prices in words: what one more point of a rule's level saves."""

from __future__ import annotations

from bylaw.policy.policy import Policy
from bylaw.report.number_format import find_level_unit
from bylaw.report.sentences import name_step, write_saving


def word_price(policy: Policy, rule: str) -> str:
    """Return the shadow price of a rule, as stated; it means nothing where the rule holds as 0/0."""
    return "0/0" if rule in policy.vacuous_statements else f"{policy.prices[rule]:.4g}"


def word_saving(policy: Policy, rule: str) -> str:
    """What a point of the level of a rule, as stated, saves; of what is no share, a tenth of it."""
    statement = policy.problem.rules[policy.problem.find(rule)]
    if rule in policy.vacuous_statements:
        return "undefined (0/0)"
    if (price := policy.prices[rule]) <= 0:
        return "nothing"
    saved = write_saving(price, statement, policy.problem.minimize) or "next to nothing"
    return f"{saved}, by {name_step(statement)}" if find_level_unit(statement) == "plain" else saved
