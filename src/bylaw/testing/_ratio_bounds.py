"""Bounds of ratios: rules such as a >= 0.8 * b are about a / b.

Whether a / b is below a level r is whether a - r b is below zero, a hypothesis like any other. The levels
that are not refuted are a confidence interval of the ratio (Fieller, 1954), as valid as the tests at each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from scipy.optimize import brentq

from bylaw.language.expressions import Rule

_FIRST = 1.1  # times the distance at which a bound would be if all were linear
_FARTHEST = 2.0**20  # times this: farther, there is no bound
_PRECISION = 0.005  # of this, likewise


def bound_ratio(
    rule: Rule, estimate: float, factor: float, bound_excess: Callable[[Rule], tuple[float, float]]
) -> tuple[float, float]:
    """A lower and an upper bound of the ratio that a rule bounds; infinite where the rows leave it open.

    Parameters
    ----------
    rule : Rule
        a <= level * b or a >= level * b, where b is at least zero.
    estimate, factor : float
        of a / b and of b.
    bound_excess : callable
        a lower and an upper bound of the excess of the rule at another level, each right with the probability
        that those of the ratio have.
    """
    if not math.isfinite(estimate):
        return -math.inf, math.inf

    @cache  # the search asks for its ends again
    def bound_difference(level: float) -> tuple[float, float]:
        """Of a - level * b."""
        least, most = bound_excess(rule.at(level))
        return (least, most) if rule.sense == "<=" else (-most, -least)

    lower = _search(lambda level: bound_difference(level)[0], estimate, -1 / factor)
    upper = _search(lambda level: -bound_difference(level)[1], estimate, 1 / factor)
    return lower, upper


def _search(overshoot: Callable[[float], float], start: float, unit: float) -> float:
    """The first level on the way from the estimate that is refuted, where `overshoot` is above zero; it rises
    by about one in each `unit`."""
    first = _FIRST * unit * max(-overshoot(start), 0.0)
    if not first:
        return start
    inside, step = start, first
    while overshoot(start + step) < 0:
        inside, step = start + step, 2 * step
        if abs(step) > _FARTHEST * abs(first):
            return math.copysign(math.inf, step)
    precision = _PRECISION * abs(first)
    found = float(brentq(overshoot, inside, start + step, xtol=precision))  # type: ignore[arg-type]
    return found + math.copysign(precision, step)
