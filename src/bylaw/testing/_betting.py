"""Tests of a sum of conditional means and confidence bounds on it by betting, valid for any number of rows.

A hypothesis is about events e with conditional means m_e = E[a_e z_e] / E[a_e], where a_e is the weight of a
row in the event (zero outside it) and z_e its value. To test "the sum of the m_e is at least b", split b into
means mu_e, and let a bet win on each row

    x = sum_e kappa_e a_e (mu_e - z_e),    kappa_e = 1 / (mean of a_e so far),

which has a mean of at most zero for some split if the hypothesis is true. The wealth prod_i(1 + s_i x_i) is
then a supermartingale, and exceeds 1/delta with probability delta at most, if the stakes s_i are set before
their rows are seen (Waudby-Smith and Ramdas, 2024). x is the influence function of the estimate: the same
test serves means, gaps between groups, a group against all rows, overlapping events, and weights, and is as
narrow as the variance of the estimate allows.

- All means but one are nuisances. Each is confined to an interval that fails with a small probability, which
  is added to the error (Berger and Boos, 1994). For given stakes the log-wealth is concave in the mu_e, so
  that its minimum over the intervals is at a corner.
- Stakes are those that are most likely to reach 1/delta by the last row (Browne, 1999): with a share w of it
  reached and n rows of variance v left, s = phi(Phi^-1(w)) / (w sqrt(n v)). They follow the wealth at the
  worst corner.
- Of many rows, a few together are one bet. If stakes are too bold for that, as for rare events,
  log(1 + s x) is bounded from below by its second-order expansion (Fan, Grama and Liu, 2015), which needs
  only sums of products. The cost of a test hardly grows with the number of rows.
- Predictions sharpen hypotheses about labels and hidden groups: from each column, eta times a difference of
  mean zero is subtracted, that of what was predicted for the row and for companions without labels
  (prediction-powered inference). eta is the regression coefficient on the rows so far.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, ndtri, rel_entr

from bylaw._base import Floats

MOST_EVENTS = 6  # the most events of one test: the mean of each but the first has two ends
_SPENT = 0.02  # share of the error probability that is spent on the intervals of nuisances
_BLOCKS = 200  # number of times that the stakes change
_MOST_BETS = 8000  # with more rows than this, each bet is on several rows
_MAX_SHARED_STAKE = 0.5  # share of the wealth that is staked on several rows at once, at most
_MAX_STAKE = 0.95  # share of the wealth that is staked on one row, at most
_STEPS = np.array([0, 0.5, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4.2, 5, 6, 8, 12, 18, 30])
_MOST_VALUES = 2**21  # array entries that are computed at once, at most
_TINY = 1e-300


@dataclass(frozen=True)
class Sample:
    """Independent rows with their weights and values in one event."""

    sizes: Floats  # (n_rows,): weights, at most one; zero outside the event
    amounts: Floats  # (n_rows,): weight times value
    lowest: float  # least possible value
    highest: float  # largest possible value
    # Predicted sizes and amounts of the rows minus those of their companions; their mean is zero.
    differences: tuple[Floats, Floats] | None = None

    @property
    def mean(self) -> float:
        """Weighted mean of the values of the rows in the event; nan without such rows."""
        total = float(self.sizes.sum())
        return float(self.amounts.sum()) / total if total else math.nan

    def take(self, order: NDArray[np.intp]) -> Sample:
        """Return the sample with its rows in the order of these positions."""
        differences = self.differences and (self.differences[0][order], self.differences[1][order])
        return Sample(self.sizes[order], self.amounts[order], self.lowest, self.highest, differences)

    @property
    def is_binary(self) -> bool:
        """True if all weights are 0 or 1, and all values are the least or the largest possible one."""
        values = self.amounts[self.sizes > 0]
        alike = self.differences is None and bool(np.isin(self.sizes, (0.0, 1.0)).all())
        return alike and bool(np.isin(values, (self.lowest, self.highest)).all())

    @property
    def range(self) -> float:
        return self.highest - self.lowest


@dataclass(frozen=True)
class CountedRows:
    """The first rows of one event; all but the last of them have the least or the largest possible value.

    Bets on such rows can be as good as an exact test. With the distribution function F_n of the binomial
    distribution with n trials and probability b, the martingale that refutes "the mean is at least b" at
    level F_n(k) is F_(n - t)(k - S) / F_n(k) after t rows with S high values. If the last row has a value z
    in between, scaled to [0, 1], it interpolates: (1 - z) F_(n - t)(k - S) + z F_(n - t)(k - S - 1). Other
    levels are mixtures of two k, by linear interpolation of F. The remaining m = n - t rows are tested at
    the level that remains.
    """

    total: int  # number of all rows
    rows: int  # number of counted rows
    low: float  # least possible value
    high: float  # largest possible value
    heights: float  # number of high values among the counted rows but the last
    last: float  # last value, scaled to [0, 1]

    @classmethod
    def find(cls, table: Floats, low: float, high: float) -> CountedRows | None:
        """Return the counted rows of a table of sizes and amounts, (n_rows, 2), or None.

        It is None if no row can be counted. The last row of the table is never counted.
        """
        sizes, amounts = table.T
        clear = (sizes == 1) & ((amounts == low) | (amounts == high))
        n_clear = len(clear) if clear.all() else int(clear.argmin())
        rows = min(n_clear + 1, len(clear) - 1)
        if rows < 1 or sizes[rows - 1] != 1 or high == low:
            return None
        places = (amounts[:rows] - low) / (high - low)
        return cls(len(clear), rows, low, high, float(places[:-1].sum()), float(places[-1]))

    def _orient(self, sign: Floats, target: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the bound on the mean, the number of high values and the last value, scaled to [0, 1].

        For a sign of -1, low and high values change roles.
        """
        b = np.where(sign > 0, target - self.low, target + self.high) / (self.high - self.low)
        heights = np.where(sign > 0, self.heights, self.rows - 1 - self.heights)
        return np.clip(b, 0.0, 1.0), heights, np.where(sign > 0, self.last, 1 - self.last)

    def _leave(self, k: Floats, b: Floats, heights: Floats, last: Floats) -> Floats:
        """Compute the level at which the other rows must refute, if the level for all rows is F_n(k)."""
        left = self.total - self.rows
        return (1 - last) * _tail(k - heights, left, b) + last * _tail(k - heights - 1, left, b)

    def find_levels(self, sign: Floats, target: Floats, level: Floats) -> Floats:
        """Return the levels for the tests of the remaining rows, after the counted ones, (n_hypotheses,)."""
        b, heights, last = self._orient(sign, target)
        k = _invert_tail(level, lambda k: _tail(k, self.total, b), self.total)
        share = _place(level, _tail(k, self.total, b), _tail(k + 1, self.total, b))
        left = [self._leave(k + step, b, heights, last) for step in (0, 1)]
        return (1 - share) * left[0] + share * left[1]

    def find_p_values(self, sign: Floats, target: Floats, left: Floats) -> Floats:
        """Return p-values of all rows, given the p-values `left` of the remaining rows, (n_hypotheses,)."""
        b, heights, last = self._orient(sign, target)
        below = np.nextafter(left, 0)  # so that of several k that leave as much, the first counts
        k = _invert_tail(below, lambda k: self._leave(k, b, heights, last), self.total)
        share = _place(left, *(self._leave(k + step, b, heights, last) for step in (0, 1)))
        return (1 - share) * _tail(k, self.total, b) + share * _tail(k + 1, self.total, b)


def _tail(k: Floats, n: int, b: Floats) -> Floats:
    """Compute P(Binomial(n, b) <= k) for integers k, which may be negative or exceed n."""
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, bdtr(np.clip(k, 0, n), n, b)))


def _invert_tail(level: Floats, tail: Callable[[Floats], Floats], n: int) -> Floats:
    """Return the largest k from -1 to n for which `tail(k)` is at most `level`."""
    low, high = np.full(np.shape(level), -1.0), np.full(np.shape(level), n + 1.0)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        inside = tail(middle) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def _place(level: Floats, low: Floats, high: Floats) -> Floats:
    """Return the relative position of `level` between `low` and `high`, from 0 to 1."""
    return np.clip((level - low) / np.maximum(high - low, _TINY), 0.0, 1.0)


class _Martingales(NamedTuple):
    """The wealth processes of many hypotheses, in units of the largest loss on a row."""

    direction: Floats  # (n_blocks, n_hypotheses, n_corners, n_columns): gain of a unit of stake
    squares: Floats  # (n_blocks, n_hypotheses, n_corners): sums of the squared gains on rows
    reach: Floats  # (n_blocks, n_hypotheses): 1 / standard deviation of the sum over remaining rows
    bets: Floats  # (n_blocks, n_bets, n_columns): sums of the rows of each bet
    bundle: int  # number of rows of one bet
    goal: Floats  # (n_hypotheses,): log-wealth at which a hypothesis is refuted
    start: Floats  # (n_hypotheses,): log-wealth after the counted rows
    certain: NDArray[np.bool_]  # (n_hypotheses,): whether the hypothesis is refuted without bets


class Targets(NamedTuple):
    """Hypotheses "sign * (sum of means) >= sign * target" of one test, with their significance levels.

    Arrays have the shape (n_hypotheses,); `target` is multiplied by the sign already.
    """

    test: BettingTest
    sign: Floats
    target: Floats
    level: Floats

    @property
    def size(self) -> int:
        """Number of array entries that the martingales of these hypotheses need."""
        n_blocks, _, width = self.test.bets.shape
        return n_blocks * len(self.target) * 2 ** (len(self.test.samples) - 1) * width


class BettingTest:
    """A test of the sum of the means of several samples, and confidence bounds on it, by betting.

    There is one sample for each event, with the same rows in the same random order; if the events are
    disjoint, no row is in two.
    """

    def __init__(self, samples: Sequence[Sample], disjoint: bool) -> None:
        # The rarest event comes first: its mean is free, the other means are nuisances. This is valid if the
        # events of the rows are taken as given, or if each event contains the one before. Otherwise the order
        # must not depend on the rows.
        self.samples = sorted(samples, key=lambda sample: sample.sizes.sum())
        given = disjoint and all(np.isin(sample.sizes, (0.0, 1.0)).all() for sample in samples)
        if not given and any((a.sizes > b.sizes).any() for a, b in itertools.pairwise(self.samples)):
            self.samples = list(samples)
        self.disjoint = disjoint
        self.low = np.array([s.lowest for s in self.samples])
        self.high = np.array([s.highest for s in self.samples])
        columns = [s.sizes for s in self.samples] + [s.amounts for s in self.samples]
        self.predicted = all(s.differences is not None for s in self.samples)
        if self.predicted:
            differences = [s.differences for s in self.samples if s.differences is not None]
            columns += [sizes for sizes, _ in differences] + [amounts for _, amounts in differences]
        inside = reduce(np.logical_or, [column != 0 for column in columns])
        table = np.column_stack([column[inside] for column in columns])
        self.counted = None
        if len(self.samples) == 1 and not self.predicted:
            self.counted = CountedRows.find(table, self.low[0], self.high[0])
        # Cut the rows, except for those that are counted, into blocks of constant stakes. Columns are
        # [a_1 .. a_E, y_1 .. y_E] with y_e = a_e z_e and, with predictions, the differences of the same.
        self.n_rows, n_counted = len(table), self.counted.rows if self.counted else 0
        counted, table = table[:n_counted], table[n_counted:]
        n, width = table.shape
        self.bundle = math.ceil(n / _MOST_BETS)  # number of rows of one bet
        size = self.bundle * math.ceil(math.ceil(n / self.bundle) / _BLOCKS)
        n_blocks = math.ceil(n / size)
        padded = np.zeros((n_blocks * size, width))
        padded[:n] = table
        rows = padded.reshape(n_blocks, size, width)
        self.products = rows.transpose(0, 2, 1) @ rows  # (n_blocks, n_columns, n_columns)
        self.bets = rows.reshape(n_blocks, -1, self.bundle, width).sum(
            axis=2
        )  # (n_blocks, n_bets, n_columns)
        sums = self.bets.sum(axis=1)  # (n_blocks, n_columns)
        self.rows_before = n_counted + np.arange(n_blocks)[:, None] * size
        self.sums_before = counted.sum(axis=0) + np.cumsum(sums, axis=0) - sums
        self.products_before = counted.T @ counted + np.cumsum(self.products, axis=0) - self.products
        self.total_sums = self.sums_before[-1] + sums[-1]
        self.total_products = self.products_before[-1] + self.products[-1]

    def p_value(self, target: float, level: float, sign: int = 1) -> float:
        """Return the p-value of the hypothesis that sign * (sum of means) is at least sign * target.

        The stakes are chosen so that, if the hypothesis is wrong, the p-value is most likely to fall below
        `level`.
        """
        return find_p_values([(self, target, [(level, sign)])])[0][0]

    def bounds(self, level: float) -> tuple[float, float]:
        """Return a lower and an upper bound on the sum, each wrong with probability at most `level`."""
        return find_bounds([self], level)[0]

    @cached_property
    def estimate(self) -> float:
        """Estimate of the sum of means; with predictions, the prediction-powered estimate."""
        total, n = self.total_sums, len(self.samples)
        if not self.predicted:
            return float((total[n : 2 * n] / total[:n]).sum())
        plain = total[n : 2 * n] / total[:n]
        direction = np.concatenate([plain / total[:n], -1 / total[:n]])
        products = self.total_products
        both, own = direction @ products[: 2 * n, 2 * n :] @ direction, products[2 * n :, 2 * n :]
        eta = np.clip(both / max(direction @ own @ direction, _TINY), 0.0, 1.0)
        sizes, amounts = (total[: 2 * n] - eta * total[2 * n :]).reshape(2, n)
        return float((amounts / sizes).sum())

    def convert(self, targets: Targets, log_e_values: Floats) -> Floats:
        """Convert log e-values of these hypotheses to p-values, (n_hypotheses,)."""
        p_values = np.minimum(np.exp(-log_e_values) + self.spend(targets.level), 1.0)
        if self.counted is None:
            return p_values
        # The p-value of the rows that are not counted; one where the counted ones leave no chance to refute.
        levels = self.counted.find_levels(targets.sign, targets.target, targets.level)
        possible = np.where(levels > 0, log_e_values, 0.0)
        left = np.where(levels > 0, levels / targets.level * np.exp(-possible), 1.0)
        exact = self.counted.find_p_values(targets.sign, targets.target, left.clip(0.0, 1.0))
        return np.where(log_e_values == math.inf, 0.0, exact)

    def spend(self, level: Floats) -> Floats:
        """Return the part of the error probability that the nuisances' intervals use."""
        return _SPENT * level if len(self.samples) > 1 else 0.0 * level

    def find_tops(self, sign: Floats) -> Floats:
        """Return the largest possible value of sign * (sum of means), (n_hypotheses,)."""
        return np.where(sign > 0, self.high.sum(), -self.low.sum())

    def set_up(self, targets: Targets) -> _Martingales:
        """Return the martingales that test these hypotheses."""
        _, sign, target, level = targets
        kappa = self._kappa[:, None, None]
        means, certain = self._split(sign, target, level)
        # A rate that equals its bound satisfies the rule: there, only "the rule is violated" is refuted.
        top = self.find_tops(sign)
        certain |= np.where(sign > 0, target >= top, target > top)
        # Stakes must not depend on rows to come: they follow the wealth at nuisances guessed from the rows
        # before each block. The means at the corners only determine what these stakes have won.
        n_guessed = means.shape[1]
        means = np.broadcast_to(means, (len(self.bets), *means.shape))
        if len(self.samples) > 1:
            means = np.concatenate([self._guess(sign, target, level), means], axis=2)
        signs = np.broadcast_to(-sign[:, None, None], means.shape)
        direction = np.concatenate([means * kappa, signs * kappa], axis=3)
        loss, most = self._limits(sign, target, kappa[:, :, 0])
        prior = (loss + most) ** 2 / 4  # the largest possible variance
        if self.predicted:
            eta = self._regress(direction[:, :, :n_guessed])
            direction = np.concatenate([direction, -eta * direction], axis=3)
            loss = loss + eta[:, :, 0, 0] * (loss + most)
        past = np.maximum(_square(direction[:, :, :n_guessed], self.products_before), 0).max(axis=2)
        variance = (past + prior) / (self.rows_before + 1)
        left = np.sqrt((self.n_rows - self.rows_before) * variance)
        direction = direction / loss[:, :, None, None]
        squares = _square(direction, self.products)
        goal, start = -np.log(level - self.spend(level)), np.zeros(len(level))
        if self.counted is not None:
            with np.errstate(divide="ignore"):  # what was counted may refute it, or leave no chance to
                log_left = np.log(self.counted.find_levels(sign, target, level))
            goal, start = -log_left, goal + log_left
        return _Martingales(direction, squares, loss / left, self.bets, self.bundle, goal, start, certain)

    def _split(self, sign: Floats, target: Floats, level: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Split each target into means at the corners of the nuisances' intervals.

        Return these means, (n_hypotheses, n_corners, n_events), and which targets cannot be split,
        (n_hypotheses,).
        """
        certain = np.zeros(len(target), dtype=bool)
        if len(self.samples) == 1:
            return target[:, None, None], certain
        intervals = {}
        for one in set(level.tolist()):
            each = _SPENT * one / (len(self.samples) - 1)
            intervals[one] = [_confine(sample, each) for sample in self.samples[1:]]
        ends = np.array([intervals[one] for one in level.tolist()])  # (n_hypotheses, n_nuisances, 2)
        low, high = np.where(sign[:, None, None] > 0, ends, -ends[:, :, ::-1]).transpose(2, 0, 1)
        if len(self.samples) == 2:
            bottom, top = self._limit_nuisance(sign, target)
            low = np.maximum(low, bottom[:, None])
            certain = (low > high)[:, 0]
            low, high = (np.minimum(end, top[:, None]) for end in (low, high))
        others = np.where(self._corners, high[:, None], low[:, None])
        first = target[:, None] - others.sum(axis=2)
        return np.concatenate([first[:, :, None], others], axis=2), certain

    def _limit_nuisance(self, sign: Floats, target: Floats) -> tuple[Floats, Floats]:
        """Return the least and the largest value of the second of two means, given the first's range."""
        low, high = self.low[0], self.high[0]
        return target - np.where(sign > 0, high, -low), target - np.where(sign > 0, low, -high)

    @cached_property
    def _corners(self) -> NDArray[np.bool_]:
        """True where a nuisance mean is at the upper end of its interval, (n_corners, n_nuisances)."""
        return np.array(list(itertools.product((0, 1), repeat=len(self.samples) - 1)), dtype=bool)

    @cached_property
    def _kappa(self) -> Floats:
        """Inverse mean weight kappa of each event, estimated before each block, (n_blocks, n_events).

        If no row is in two events and all weights are 0 or 1, the events of the rows can be taken as given,
        and the mean of a_e over all rows is used.
        """
        n = len(self.samples)
        alike = all(np.isin(sample.sizes, (0.0, 1.0)).all() for sample in self.samples)
        if self.disjoint and alike and not self.predicted:
            return np.broadcast_to(self.n_rows / self.total_sums[:n], (len(self.bets), n))
        return (self.rows_before + 1) / (self.sums_before[:, :n] + 0.5)

    def _regress(self, direction: Floats) -> Floats:
        """Return the regression coefficient eta on the rows before each block, the same for all corners.

        It is zero where predictions explain less than a fifth of the variance, because bets with predictions
        can lose more on a row.
        """
        half = direction.shape[3]
        products = self.products_before
        plain = _square(direction, products[:, :half, :half]).mean(axis=2)
        both = _square(direction, products[:, :half, half:]).mean(axis=2)
        own = np.maximum(_square(direction, products[:, half:, half:]).mean(axis=2), _TINY)
        eta = np.where(both**2 > 0.2 * own * plain, np.clip(both / own, 0.0, 1.0), 0.0)
        return eta[:, :, None, None]

    def _guess(self, sign: Floats, target: Floats, level: Floats) -> Floats:
        """Guess, from the rows before each block, means that add up to the target.

        The nuisance means are at the corners of intervals around their estimates. The shape is
        (n_blocks, n_hypotheses, n_corners, n_events).
        """
        n = len(self.samples)
        low, width = self.low[1:], np.maximum((self.high - self.low)[1:], _TINY)
        sizes, amounts = self.sums_before[:, 1:n], self.sums_before[:, n + 1 : 2 * n]
        places = ((amounts - low * sizes) / width + 0.25) / (sizes + 0.5)  # of the means in their ranges
        places = places.clip(0.0, 1.0)[:, None]
        rows = self.n_rows / self._kappa[:, None, 1:]  # of each event in the end
        effort = np.log(2 * (n - 1) / self.spend(level))[:, None] / rows
        reach, skew = np.sqrt(2 * effort * places * (1 - places)), effort * (1 - 2 * places) * 2 / 3
        ends = low + width * np.stack([places - reach + skew, places + reach + skew]).clip(0.0, 1.0)
        ends = np.where(sign[:, None] > 0, ends, -ends[::-1])[:, :, :, None]
        if n == 2:
            bottom, top = self._limit_nuisance(sign, target)
            ends = np.clip(ends, bottom[:, None, None], top[:, None, None])
        others = np.where(self._corners, ends[1], ends[0])
        first = target[:, None, None] - others.sum(axis=3, keepdims=True)
        return np.concatenate([first, others], axis=3)

    def _limits(self, sign: Floats, target: Floats, kappa: Floats) -> tuple[Floats, Floats]:
        """Bound the loss and gain of a bet on a row for all nuisance means, each (n_blocks, n_hypotheses)."""
        up = np.where(sign[:, None] > 0, self.high, -self.low)
        down = np.where(sign[:, None] > 0, self.low, -self.high)
        least, most = down.copy(), up.copy()  # of the means
        least[:, 0], most[:, 0] = target - up[:, 1:].sum(axis=1), target - down[:, 1:].sum(axis=1)
        if len(self.samples) == 2:
            least, most = np.maximum(least, down), np.minimum(most, up)
        loss, win = kappa * np.maximum(up - least, 0), kappa * np.maximum(most - down, 0)
        together = np.max if self.disjoint else np.sum
        loss, win = together(loss, axis=2), together(win, axis=2)
        return np.maximum(loss, 1e-75), win  # the square of this is a number, too


def find_bounds(tests: Sequence[BettingTest], level: float) -> list[tuple[float, float]]:
    """Return the lower and upper bound of each test, computed for all tests at once to save time."""
    sign, lines = np.array([1.0, -1.0]), np.arange(2)
    tops = [test.find_tops(sign) for test in tests]
    grids = []  # of each test: targets for both signs, from the estimate to the end of the range
    for test, top in zip(tests, tops, strict=True):
        n, total = len(test.samples), test.total_sums
        influence = np.concatenate([total[n : 2 * n] / total[:n] ** 2, -1 / total[:n]])
        variance = influence @ test.total_products[: 2 * n, : 2 * n] @ influence
        unit = math.sqrt(max(variance, 0)) + (top - sign * test.estimate) / test.n_rows
        grids.append(np.minimum((sign * test.estimate)[:, None] + unit[:, None] * _STEPS, top[:, None]))
    for _ in range(3):  # grids, each twenty times as fine
        asked = [
            Targets(test, np.repeat(sign, grid.shape[1]), grid.ravel(), np.full(grid.size, level))
            for test, grid in zip(tests, grids, strict=True)
        ]
        for k, log_e_values in enumerate(compute_log_e_values(asked)):
            spent = float(tests[k].spend(asked[k].level)[0])
            refuted = log_e_values.reshape(grids[k].shape) >= -math.log(level - spent)
            # The bound is between the last target that is not refuted and the next.
            kept = grids[k].shape[1] - np.argmin(refuted[:, ::-1], axis=1)
            kept = np.where(refuted.all(axis=1), 0, kept)  # the number of targets up to that one
            ends = np.column_stack([grids[k], tops[k]])
            least, tops[k] = ends[lines, np.maximum(kept - 1, 0)], ends[lines, kept]
            grids[k] = np.linspace(least, tops[k], len(_STEPS) + 1, axis=1)[:, :-1]
    return [(-float(most[1]), float(most[0])) for most in tops]


def find_p_values(
    asked: Sequence[tuple[BettingTest, float, Sequence[tuple[float, int]]]],
) -> list[list[float]]:
    """Return the p-values of each test, given as (test, target, pairs of a level and a sign)."""
    listed = []
    for test, target, pairs in asked:
        level, sign = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
        listed.append(Targets(test, sign, sign * target, level))
    answers = zip(listed, compute_log_e_values(listed), strict=True)
    return [one.test.convert(one, log_e_values).tolist() for one, log_e_values in answers]


def compute_log_e_values(asked: Sequence[Targets]) -> list[Floats]:
    """Compute the largest log-wealth over time of each hypothesis, at the worst corner."""
    answers = [np.zeros(0)] * len(asked)
    parts, size = list[list[int]](), math.inf  # tests that fit in memory together
    for place, targets in enumerate(asked):
        if size + targets.size > _MOST_VALUES:
            parts, size = [*parts, []], 0
        parts[-1].append(place)
        size += targets.size
    for part in parts:
        # Martingales of equal shapes are played in one array; no result depends on their lengths.
        alike: dict[tuple[int, ...], dict[int, _Martingales]] = {}
        for place in part:
            one = asked[place].test.set_up(asked[place])
            shape = (*one.direction.shape[1:], one.bets.shape[1])
            alike.setdefault(shape, {})[place] = one
        for group in alike.values():
            for (place, one), best in zip(group.items(), _bet([*group.values()]), strict=True):
                answers[place] = np.where(one.certain, math.inf, best + one.start)
    return answers


def _bet(parts: Sequence[_Martingales]) -> Floats:
    """Compute the largest log-wealth over time, (n_tests, n_hypotheses), of martingales of equal shapes.

    Martingales with fewer blocks are padded with bets that change nothing.
    """
    direction = _stack([one.direction for one in parts])  # (n_blocks, n_tests, ...), like the others
    squares, reach = _stack([one.squares for one in parts]), _stack([one.reach for one in parts])
    bets, goal = _stack([one.bets for one in parts]), np.array([one.goal for one in parts])
    bundle = np.array([one.bundle for one in parts])[:, None, None]
    boldest = np.where(bundle == 1, _MAX_STAKE, _MAX_SHARED_STAKE) / bundle
    wealth = np.zeros(squares.shape[1:])
    ahead = best = np.zeros(goal.shape)
    n_guessed = squares.shape[-1] // 2  # the first half of the corners is guessed, and sets the stakes
    for block in range(len(reach)):
        # Set the stakes by the share of the goal that is reached. The goal is a little more than needed,
        # since the last steps to it are the slowest; far from it and near it, stakes are constant.
        share = np.exp(np.clip(ahead - goal - 0.03, math.log(1e-6), math.log(0.9)))
        aim = np.exp(-0.5 * ndtri(share) ** 2) / (math.sqrt(2 * math.pi) * share)
        stake = np.minimum(aim * reach[block], _MAX_STAKE)[:, :, None]
        # Bet on the rows of the block, at all corners; bound the logarithms where stakes are too bold.
        won = direction[block].reshape(len(parts), -1, direction.shape[-1]) @ bets[block].transpose(0, 2, 1)
        won = won.reshape(*wealth.shape, -1)
        together = stake <= boldest
        factors = np.where(together, stake, 0.0)[..., None] * won
        factors += 1.0
        gained = np.log(factors, out=factors).sum(axis=3)
        if not together.all():
            bounded = stake * won.sum(axis=3) + (np.log1p(-stake) + stake) * squares[block]
            gained = np.where(together, gained, bounded)
        wealth += gained
        best = np.maximum(best, wealth[:, :, n_guessed:].min(axis=2))
        ahead = wealth[:, :, : max(n_guessed, 1)].min(axis=2)
        # Once 1/delta is reached, ten times as much is the goal.
        if (reached := ahead >= goal).any():
            goal = goal + math.log(10) * reached
    return best


def _stack(parts: Sequence[Floats]) -> Floats:
    """Stack arrays (n_blocks, ...) to (n_blocks, n_parts, ...); shorter ones are padded with zeros."""
    stacked = np.zeros((max(map(len, parts)), len(parts), *parts[0].shape[1:]))
    for k, part in enumerate(parts):
        stacked[: len(part), k] = part
    return stacked


def _square(direction: Floats, products: Floats) -> Floats:
    n_blocks, n_hypotheses, n_corners, width = direction.shape
    flat = direction.reshape(n_blocks, -1, width)
    return ((flat @ products) * flat).sum(axis=2).reshape(n_blocks, n_hypotheses, n_corners)


def _confine(sample: Sample, level: float) -> tuple[float, float]:
    """Return a confidence interval of the sample's mean by relative entropy, wrong with probability `level`.

    a (z - mu) has a mean of zero and a range no wider than that of the values (Hoeffding, 1963).
    """
    sizes, edge = sample.sizes[sample.sizes > 0], 1e-12
    width = sample.range
    if width == 0:
        return sample.lowest, sample.highest
    place = (sample.mean - sample.lowest) / width
    effort, share = math.log(2 / level) / len(sizes), float(sizes.mean())

    def lack(mean: float) -> float:
        observed = mean + share * (place - mean)
        return float(rel_entr(observed, mean) + rel_entr(1 - observed, 1 - mean)) - effort

    low = 0.0 if lack(edge) < 0 or place <= edge else brentq(lack, edge, place)
    high = 1.0 if lack(1 - edge) < 0 or place >= 1 - edge else brentq(lack, place, 1 - edge)
    return sample.lowest + float(low) * width, sample.lowest + float(high) * width  # type: ignore[arg-type]
