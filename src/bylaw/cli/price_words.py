"""Shadow prices in words: what one more point of a rule's level saves."""

from __future__ import annotations

from bylaw.language.worst import Objective
from bylaw.policy.policy import Policy
from bylaw.report.number_format import find_level_unit
from bylaw.report.sentences import write_saving


def word_saving(policy: Policy, rule: str) -> str:
    """What a point, or a unit where a rule is on no share, of a rule as stated saves at its price."""
    statement = policy.problem.rules[policy.problem.find(rule)]
    return _word(policy.prices[rule], find_level_unit(statement), policy.problem.minimize)


def _word(price: float, unit: str, minimize: Objective) -> str:
    if price <= 0:
        return "nothing"
    saved = write_saving(price, unit, minimize) or "next to nothing"  # type: ignore[arg-type]
    return f"{saved}, by one unit" if unit == "plain" else saved
