"""Confidence sequences: bounds on a rate that hold at all times at once.

With the true rate m, the sums of a round about it, X = U - m W, have mean zero, and their total is within
u(V) at all times, where V is the total of their squares: an empirical Bernstein bound (Howard, Ramdas,
McAuliffe and Sekhon, 2021, theorems 1 and 4). All m for which that is so are the confidence sequence. It is
exact for a rate that is constant; where the rate drifts, read it as one about the average so far.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import zeta

from bylaw._base.typing import Floats, Mask
from bylaw.monitoring.rounds import Events

_ETA = 2.0  # times as much is V from one epoch to the next
_POWER = 1.4  # with which their error probabilities shrink
_FIRST = 0.25  # V at which the first of them begins, in units of the squared scale
_K1 = (_ETA**0.25 + _ETA**-0.25) / math.sqrt(2)
_K2 = (math.sqrt(_ETA) + 1) / 2
_HALVINGS = 45


def find_interval(sums: Floats, events: Events, level: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the sum of conditional means, each wrong ever with probability `level`, from
    sums (5, n_times) over the rounds so far."""
    n_times, estimate = sums.shape[1], estimate_rates(sums)
    inside = np.clip(np.nan_to_num(estimate, nan=events.lowest), events.lowest, events.highest)
    lower = _search(sums, events, level, np.full(n_times, events.lowest), inside, 1.0)
    upper = _search(sums, events, level, np.full(n_times, events.highest), inside, -1.0)
    unseen = np.isnan(estimate)
    return np.where(unseen, events.lowest, lower), np.where(unseen, events.highest, upper)


def estimate_rates(sums: Floats) -> Floats:
    """(n_times,): of the sum of conditional means; nan before there are rows of every event."""
    weights, amounts = sums[:2]
    return np.divide(amounts, weights, out=np.full(len(weights), np.nan), where=weights > 0)


def _search(sums: Floats, events: Events, level: float, out: Floats, inside: Floats, sign: float) -> Floats:
    """Between a value that may be out of the sequence and one that is in it."""
    kept = ~_is_refuted(out, sums, events, level, sign)
    refuted, held = out.copy(), inside.copy()
    for _ in range(_HALVINGS):
        middle = (refuted + held) / 2
        gone = _is_refuted(middle, sums, events, level, sign)
        refuted, held = np.where(gone, middle, refuted), np.where(gone, held, middle)
    return np.where(kept, out, held)


def _is_refuted(rate: Floats, sums: Floats, events: Events, level: float, sign: float) -> Mask:
    """Whether the rate is too small (sign 1) or too large (-1) for what was seen."""
    weights, amounts, squares, products, squared_weights = sums
    total = sign * (amounts - rate * weights)
    variance = np.maximum(squares - 2 * rate * products + rate**2 * squared_weights, 0.0)
    # The more a round can fall behind, the farther ahead of zero their total can be by chance.
    behind = events.find_largest_loss(-rate) if sign > 0 else events.find_largest_gain(-rate)
    return total > bound_total(variance, behind / events.most_tuples, level)


def bound_total(variance: Floats, scale: Floats, level: float) -> Floats:
    """u(V): what a sum with differences of at least -scale is never above, but with probability `level`."""
    first = _FIRST * scale**2
    grown = np.maximum(variance, first)
    epochs = np.log(grown / first) / math.log(_ETA)
    effort = _POWER * np.log1p(epochs) + math.log(float(zeta(_POWER)) / level)
    return np.sqrt(_K1**2 * grown * effort + (_K2 * scale * effort) ** 2) + _K2 * scale * effort
