"""Rounds: what a few rows in a row tell about a rule.

A rule is about a sum of conditional means m_e = E[a_e z_e] / E[a_e], where a_e is the weight of a row in an
event (zero outside it) and z_e its value: it holds if sum_e m_e + c <= 0. Different rows are independent, so

    E[a_e(i) a_f(j) (z_e(i) + z_f(j) + c)] = E[a_e] E[a_f] (m_e + m_f + c)    for rows i != j.

The sum of this over all pairs of different rows of a round, a U-statistic, has a mean of at most zero while
the rule holds, whatever the frequencies of the events and their rates: nothing has to be estimated, and
these may drift from round to round. Rounds are short, so that rows are compared with others of their time,
and so that the most that a round can lose is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.auditing.samples import Sample

_ROWS = 8  # of a round: fewer compare groups badly, more can lose so much that stakes must be timid
_ROWS_PER_EVENT = 4  # of a round about three events or more
_LEAST = 1e-6  # of the range of a rate: a bound at its end is broken by no less than this


class RoundSums(NamedTuple):
    """Over the tuples of different rows of each round, one row for each event; (n_rounds,) each."""

    weights: Floats  # of products of weights
    amounts: Floats  # of these products times the sum of the rows' values


@dataclass(frozen=True)
class Events:
    """What a rule compares, and within which limits."""

    number: int
    disjoint: bool  # no row is in two of them
    cancels: bool  # one of two is a part of the other, and its values have the opposite sign there
    lowest: float  # of the sum of values, one for each event
    highest: float

    @classmethod
    def of(cls, samples: Sequence[Sample], disjoint: bool, cancels: bool) -> Events:
        low, high = sum(s.lowest for s in samples), sum(s.highest for s in samples)
        return cls(len(samples), disjoint, cancels, low, high)

    @property
    def rows(self) -> int:
        """Of a round."""
        return _ROWS if self.number <= 2 else _ROWS_PER_EVENT * self.number

    def sum_rounds(self, columns: Floats) -> RoundSums:
        """Of columns (2 * number, n_rounds * rows): weights in each event, then these times the values."""
        n, rows = self.number, self.rows
        if n > 2 and not self.disjoint:
            dealt = np.tile(_deal(rows, n), (2, columns.shape[1] // rows))
            columns = columns * dealt
        weights, amounts = np.split(_sum_each(columns, rows), 2)
        if n == 1:
            return RoundSums(weights[0], amounts[0])
        others = np.stack([np.delete(weights, e, axis=0).prod(axis=0) for e in range(n)])
        # One event after the other: a reduction over many adds up one round in another order than several.
        found = RoundSums(weights.prod(axis=0), np.add.accumulate(amounts * others)[-1])
        if n > 2 or self.disjoint:
            return found
        a, b, y, z = columns  # a row is no pair with itself
        own = _sum_each(np.stack([a * b, y * b + z * a]), rows)
        return RoundSums(found.weights - own[0], found.amounts - own[1])

    @property
    def most_tuples(self) -> float:
        """The most that the products of weights in a round can add up to."""
        if self.number == 1:
            return float(self.rows)
        if self.number > 2 or self.disjoint:
            return float(self.rows / self.number) ** self.number
        return float(self.rows * (self.rows - 1))

    def find_largest_loss(self, constant: Floats | float) -> Floats:
        """The most by which the sum over a round, with this constant added to each tuple, can be negative."""
        return self._find_largest(-(self.lowest + np.asarray(constant)), -np.asarray(constant))

    def find_largest_gain(self, constant: Floats | float) -> Floats:
        """The most that it can be."""
        return self._find_largest(self.highest + np.asarray(constant), np.asarray(constant))

    def _find_largest(self, apart: Floats, within: Floats) -> Floats:
        """With at most `apart` for a tuple; where both rows are in the part, values cancel, and `within` is
        left."""
        apart = np.maximum(apart, _LEAST * max(self.highest - self.lowest, _LEAST))
        if not self.cancels:
            return self.most_tuples * apart
        inside = np.arange(self.rows + 1)
        pairs = np.multiply.outer(apart, inside * (self.rows - inside))
        return (pairs + np.multiply.outer(np.maximum(within, 0.0), inside * (inside - 1))).max(axis=-1)


def _sum_each(columns: Floats, rows: int) -> Floats:
    """(n_columns, n_rounds): sums over so many rows each, one after the other."""
    total = columns[:, ::rows].copy()
    for place in range(1, rows):
        total += columns[:, place::rows]
    return total


def _deal(rows: int, events: int) -> Floats:
    """(events, rows): each row of a round for one event, in turn, so that no row is in two."""
    return np.eye(events)[:, np.arange(rows) % events]


@dataclass(frozen=True)
class RateSums:
    """Sums over all rounds so far, from which the rate and its confidence sequence follow."""

    weights: float = 0.0
    amounts: float = 0.0
    squared_amounts: float = 0.0
    products: float = 0.0  # of amounts and weights
    squared_weights: float = 0.0

    def follow(self, sums: RoundSums, unit: float) -> Floats:
        """(5, 1 + n_rounds): these sums before the rounds and after each, in units of tuples."""
        w, u = sums.weights / unit, sums.amounts / unit
        steps = np.stack([w, u, u * u, u * w, w * w])
        return np.add.accumulate(np.column_stack([list(vars(self).values()), steps]), axis=1)
