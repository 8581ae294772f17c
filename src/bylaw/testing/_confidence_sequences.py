"""Confidence sequences: bounds on a rate that hold at all times at once.

With the true rate m, the sums of a round about it, X = U - m W, have mean zero and are never below -b. With
their total S and the total V of their squares, exp(s S / b + (log(1 - s) + s) V / b^2) is a supermartingale
for each stake s between 0 and 1 (Fan, Grama and Liu, 2015), and so is the mean of many. By Ville's inequality
it ever reaches 1 / level with probability `level` at most. All m for which it has not are the confidence
sequence. It is exact for a rate that is constant; where the rate drifts, read it as one about the average so
far.
"""

from __future__ import annotations

import math

import numpy as np

from bylaw._base.typing import Floats, Mask
from bylaw.testing._rounds import Events

_STAKES = np.geomspace(3e-4, 0.98, 36)  # the smallest are for some ten million rows
_COSTS = np.log1p(-_STAKES) + _STAKES
_LEAST_SCALE = 0.02  # of the range of a rate
_HALVINGS = 40


def find_interval(sums: Floats, events: Events, level: float) -> tuple[Floats, Floats]:
    """Compute lower and upper bounds on the sum of conditional means, each wrong ever with probability
    `level`, from sums (5, n_times) over the rounds so far."""
    n_times, estimate = sums.shape[1], estimate_rates(sums)
    inside = np.clip(np.nan_to_num(estimate, nan=events.lowest), events.lowest, events.highest)
    lower = _search(sums, events, level, np.full(n_times, events.lowest), inside, 1.0)
    upper = _search(sums, events, level, np.full(n_times, events.highest), inside, -1.0)
    unseen = np.isnan(estimate)
    return np.where(unseen, events.lowest, lower), np.where(unseen, events.highest, upper)


def estimate_rates(sums: Floats) -> Floats:
    """(n_times,): the sum of conditional means; nan before there are rows of every event."""
    weights, amounts = sums[:2]
    return np.divide(amounts, weights, out=np.full(len(weights), np.nan), where=weights > 0)


def _search(sums: Floats, events: Events, level: float, out: Floats, inside: Floats, sign: float) -> Floats:
    """Return the end of the sequence, between a value that may be out of it and one that is in it."""
    kept = ~_is_refuted(out, sums, events, level, sign)
    refuted, held = out.copy(), inside.copy()
    for _ in range(_HALVINGS):
        middle = (refuted + held) / 2
        gone = _is_refuted(middle, sums, events, level, sign)
        refuted, held = np.where(gone, middle, refuted), np.where(gone, held, middle)
    return np.where(kept, out, held)


def _is_refuted(rate: Floats, sums: Floats, events: Events, level: float, sign: float) -> Mask:
    """Check where the rate is too small (sign 1) or too large (-1) for the rounds so far."""
    weights, amounts, squares, products, squared_weights = sums
    total = sign * (amounts - rate * weights)
    variance = np.maximum(squares - 2 * rate * products + rate**2 * squared_weights, 0.0)
    # The more a round can fall behind, the farther ahead of zero their total can be by chance.
    behind = events.find_largest_loss(-rate) if sign > 0 else events.find_largest_gain(-rate)
    # Stakes are relative to the scale; with a scale near zero, all of them would be too bold.
    scale = np.maximum(behind, _LEAST_SCALE * (events.highest - events.lowest))
    return find_log_wealth(total, variance, scale) > math.log(1 / level)


def find_log_wealth(total: Floats, variance: Floats, scale: Floats) -> Floats:
    """Compute the logarithm of the mean supermartingale over all stakes, (n_times,)."""
    logs = np.multiply.outer(_STAKES, total / scale) + np.multiply.outer(_COSTS, variance / scale**2)
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))
