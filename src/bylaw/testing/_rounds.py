"""Rounds: the few rows, or the batches, on which one bet about a rule is made.

A rule is about a sum of conditional means m_e = E[a_e z_e] / E[a_e], where a_e is the weight of a row in an
event (zero outside it) and z_e its value: it is satisfied if sum_e m_e + c <= 0. Different rows are
independent, so

    E[a_e(i) a_f(j) (z_e(i) + z_f(j) + c)] = E[a_e] E[a_f] (m_e + m_f + c)    for rows i != j.

The mean of this over all pairs of different rows of a round is a U-statistic. Its expectation is at most zero
while the rule is satisfied, whatever the frequencies of the events and their rates: nothing has to be
estimated, and these may drift from round to round. Rounds are short, so that rows are compared with others of
their time, and so that the largest loss in a round is small.

There are three ways to bet on a round. Each returns factors of expectation at most one while the rule is
satisfied.

- A rule about one mean bets on each row: 1 + s a (z + c).
- If no row is in two events and weights are 0 or 1, the numbers n_e of rows in each event are known before
  the values. Each row of event e has the factor 1 + s h_e (z_e - t_e), with h_e proportional to 1 / n_e and
  any numbers t_e that were guessed before the round with sum_e t_e = -c. The logarithm of the expected
  product is at most s sum_e n_e h_e (m_e - t_e), which is proportional to sum_e m_e + c.
- Otherwise, and for batches, the factor is 1 + s x, where x is the U-statistic divided by its largest
  possible loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bylaw._base import Floats
from bylaw.testing._hypotheses import Hypothesis
from bylaw.testing._wealth import N_ALTERNATIVES

_ROWS = 8  # rows of a round on two events: fewer compare groups badly, more delay alarms
_ROWS_PER_EVENT = 4  # rows for each event of a round on three events or more
_LEAST = 1e-6  # smallest violation of a bound at the end of the range, as a share of the range
_BOLDEST = 0.95  # the largest share of the money that is staked
_HALVES = np.power(0.5, np.arange(N_ALTERNATIVES))  # stakes, each half of the one before
_STEEPEST = 6.0  # the boldest stake on a row, per unit of the range of its values
_RECENT = 16  # rows of an event whose mean is the guess for the next rows


@dataclass(frozen=True)
class Events:
    """The events that a rule compares, the limits of the values in each, and how they form rounds."""

    limits: tuple[tuple[float, float], ...]  # least and largest value in each event
    disjoint: bool = True  # no row is in two events
    binary: bool = True  # a row is in an event or not: weights are 0 or 1
    cancels: bool = False  # one of two events contains the other, and values of rows in both add up to 0
    batched: bool = False  # a round is a batch

    @classmethod
    def of(cls, hypothesis: Hypothesis, batched: bool) -> Events:
        """Return the events of a hypothesis; rounds are batches if `batched`."""
        limits = tuple((mean.lowest, mean.highest) for mean in hypothesis.means)
        binary = all(mean.size is None for mean in hypothesis.means)
        return cls(limits, hypothesis.disjoint, binary, hypothesis.cancels and not batched, batched)

    @property
    def number(self) -> int:
        return len(self.limits)

    @property
    def lowest(self) -> float:
        """The least possible sum of values, one for each event."""
        return sum(low for low, _ in self.limits)

    @property
    def highest(self) -> float:
        return sum(high for _, high in self.limits)

    @property
    def _least(self) -> float:
        """Lower limit of the largest loss in a round, which avoids division by zero."""
        return _LEAST * max(self.highest - self.lowest, _LEAST)

    @property
    def rows(self) -> int:
        """The number of rows of a round, unless rounds are batches."""
        if self.number == 1:
            return 1
        return _ROWS if self.number == 2 else _ROWS_PER_EVENT * self.number

    @property
    def blocks_per_deposit(self) -> int:
        """The number of blocks of rounds between two deposits of the e-process, about 256 rows."""
        return 1 if self.batched else max(_ROWS // self.rows, 1)

    @property
    def fills_tuples(self) -> bool:
        """True if the number of tuples of rows in a round is known before their values."""
        return self.binary and (self.number == 1 or self.disjoint)

    @property
    def guesses(self) -> bool:
        """True if bets are on single rows, with a guessed mean for each event."""
        return not self.batched and self.number > 1 and self.fills_tuples

    def sum_rounds(self, columns: Floats) -> Floats:
        """Compute the numerator and denominator of the U-statistic of each round, (2, n_rounds).

        The first line is the sum of the products of weights, the second is the sum of these products times
        the sum of the rows' values; both are divided by the largest number of tuples. `columns` (2 * number,
        n_rounds * rows) are the weights of rows in each event, then the weights times the values. If rounds
        are batches, all columns are one round.
        """
        rows = columns.shape[1] if self.batched else self.rows
        n = self.number
        if n > 2 and not self.disjoint:  # use each row for one event only, in turn
            columns = columns * np.tile(np.eye(n)[:, np.arange(columns.shape[1]) % rows % n], (2, 1))
        weights, amounts = np.split(self.sum_columns(columns), 2)
        if n == 1:
            sums = np.stack([weights[0], amounts[0]])
        else:
            others = np.stack([np.delete(weights, e, axis=0).prod(axis=0) for e in range(n)])
            # Add one event after the other: a reduction may depend on the number of rounds.
            sums = np.stack([weights.prod(axis=0), np.add.accumulate(amounts * others)[-1]])
        if n == 2 and not self.disjoint:
            a, b, y, z = columns  # a row must not be paired with itself
            sums = sums - self.sum_columns(np.stack([a * b, y * b + z * a]))
        most = sums[0].copy() if self.batched and self.fills_tuples else self._count_tuples(rows)
        return np.divide(sums, most, out=np.zeros_like(sums), where=np.asarray(most) > 0)

    def sum_columns(self, columns: Floats) -> Floats:
        """Return the sums of the columns over the rows of each round, (n_columns, n_rounds)."""
        if self.batched:
            return columns.sum(axis=1, keepdims=True)
        total = columns[:, :: self.rows].copy()
        for place in range(1, self.rows):
            total += columns[:, place :: self.rows]
        return total

    def _count_tuples(self, rows: int) -> float:
        """Return the largest possible sum of the products of weights in a round of `rows` rows."""
        if self.number == 1:
            return float(rows)
        if self.number > 2 or self.disjoint:
            return float(rows / self.number) ** self.number
        return float(rows * (rows - 1))

    def find_largest_loss(self, constant: Floats | float, sign: float = 1.0) -> Floats:
        """Return how far below zero the U-statistic of a round can be (sign 1), or above zero (sign -1).

        The `constant` is added to the values of each tuple of rows.
        """
        worst = self.lowest if sign > 0 else self.highest
        apart = np.maximum(-sign * (worst + np.asarray(constant)), self._least)
        if not self.cancels:
            return apart
        within = -sign * np.asarray(constant)  # remains if both rows are in both events
        inside = np.arange(self.rows + 1)
        pairs = np.multiply.outer(apart, inside * (self.rows - inside))
        sums = pairs + np.multiply.outer(np.maximum(within, 0.0), inside * (inside - 1))
        return sums.max(axis=-1) / self._count_tuples(self.rows)

    def find_factors(self, columns: Floats, sums: Floats, constant: float, guess: Floats) -> Floats:
        """Compute the factors that multiply the money on each alternative, (n_alternatives, n_rounds).

        `sums` are the results of `sum_rounds` for the columns (2 * number, n_rounds * rows), and `constant`
        is c of the rule. `guess` (number, n_rounds) is a mean for each event from earlier rounds, used only
        if `guesses`.
        """
        if self.batched or not (self.number == 1 or self.guesses):
            payments = (sums[1] + constant * sums[0]) / self.find_largest_loss(constant)
            return 1 + np.multiply.outer(_BOLDEST * _HALVES, payments)
        if self.number == 1:
            loss = self.find_largest_loss(constant)
            payments = (columns[1] + constant * columns[0])[None] / loss
        else:
            weights, amounts = np.split(columns.reshape(2 * self.number, -1, self.rows), 2)
            counts = weights.sum(axis=2)
            # A row has more weight if its event has fewer rows in the round.
            shares = np.divide(1.0, counts, out=np.zeros_like(counts), where=(counts > 0).all(axis=0))
            total = shares.sum(axis=0)
            shares = np.divide(shares, total, out=shares, where=total > 0)
            # Move the guesses to where the rule is just satisfied.
            guess = guess - shares * (guess.sum(axis=0) + constant)
            low = np.array([low for low, _ in self.limits])[:, None]
            loss = np.maximum((shares * (guess - low)).max(axis=0), self._least)
            scale = (shares / loss)[:, :, None]
            # (rows, n_rounds): the gain on each row, in units of the largest possible loss on a row.
            payments = np.ascontiguousarray((scale * (amounts - guess[:, :, None] * weights)).sum(axis=0).T)
        steepest = _STEEPEST / max(high - low for low, high in self.limits)
        stakes = np.minimum(np.multiply.outer(steepest * _HALVES, np.atleast_1d(loss)), _BOLDEST)
        factors = 1 + stakes * payments[0]
        for row in payments[1:]:
            factors *= 1 + stakes * row
        return factors


def follow_sums(before: Floats, sums: Floats) -> Floats:
    """Return sums over all earlier rounds, before these rounds and after each of them, (5, 1 + n_rounds).

    They are sums of weights, of amounts, of squared amounts, of products of amounts and weights, and of
    squared weights. The rate and its confidence sequence follow from them. `sums` (2, n_rounds) are those of
    each round.
    """
    w, u = sums
    return np.add.accumulate(np.column_stack([before, np.stack([w, u, u * u, u * w, w * w])]), axis=1)


def follow_means(guess: Floats, marks: Floats, totals: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the guessed means before each round, (n_events, n_rounds), the next guess and its marks.

    A guess (n_events,) is the mean of the last rows of each event. It is renewed each time an event has had
    `_RECENT` more rows. Marks (2 * n_events,) are the totals of weights and amounts at that time, and
    `totals` (2 * n_events, 1 + n_rounds) are those before the rounds and after each.
    """
    n, n_rounds = len(guess), totals.shape[1] - 1
    guesses, guess, marks = np.empty((n, n_rounds)), guess.copy(), marks.copy()
    for e in range(n):
        blocks = totals[e] // _RECENT
        ends = np.flatnonzero(blocks[1:] > blocks[:-1]) + 1
        weights = np.concatenate([[marks[e]], totals[e, ends]])
        amounts = np.concatenate([[marks[n + e]], totals[n + e, ends]])
        values = np.concatenate([[guess[e]], np.diff(amounts) / np.diff(weights)])
        guesses[e] = values[np.searchsorted(ends, np.arange(n_rounds), side="right")]
        guess[e], marks[e], marks[n + e] = values[-1], weights[-1], amounts[-1]
    return guesses, guess, marks
