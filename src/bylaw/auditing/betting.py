"""Betting: tests and bounds of a sum of conditional means, valid at any number of rows.

A claim is about events e with conditional means m_e = E[a_e z_e] / E[a_e], where a_e is the weight of a row
in the event (zero outside it) and z_e its value. A player who doubts the hypothesis "the sum of the m_e is at
least b" splits b into means mu_e and stakes on each row

    x = sum_e kappa_e a_e (mu_e - z_e),    kappa_e = 1 / (mean of a_e so far),

which has a mean of at most zero for some split if the hypothesis is true. So the capital prod_i(1 + s_i x_i)
exceeds 1/delta with probability delta at most, if the stakes s_i are set before their rows are seen
(Waudby-Smith and Ramdas, 2024). x is the influence function of the estimate: one game serves means, gaps
between groups, a group against all rows, events that overlap, and weights, and is as narrow as the estimate's
own variance allows.

- All means but one are nuisances. Each is confined to an interval that fails with a small probability, which
  is added to the error (Berger and Boos, 1994). For given stakes the log-capital is concave in the mu_e, so
  that its minimum over the intervals is at a corner.
- Stakes are those that are likeliest to reach 1/delta by the last row (Browne, 1999): with a share w of it
  reached and n rows of variance v left, s = phi(Phi^-1(w)) / (w sqrt(n v)). They follow the capital at the
  worst corner.
- Of many rows, a few together are one bet. Where stakes are so bold that this would cost something, as for
  rare events, log(1 + s x) is bounded from below by its second-order expansion (Fan, Grama and Liu, 2015),
  which needs only sums of products. So the cost of a test hardly grows with the number of rows.
- Predictions sharpen a claim about labels and hidden groups: from each column, eta times a difference of mean
  zero is subtracted, that of what was predicted for the row and for companions without labels
  (prediction-powered inference). eta is the regression coefficient on the rows so far.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri, rel_entr

from bylaw._base.typing import Floats
from bylaw.auditing.samples import Sample

MOST_EVENTS = 6  # of one game: two corners for each but the first
_SPENT = 0.02  # share of the error probability for the intervals of nuisances
_BLOCKS = 200  # times that stakes change
_MOST_BETS = 8000
_CAREFUL = 0.5  # staked on several rows together at most
_FAR, _NEAR = math.log(1e-6), math.log(0.9)  # of the goal: beyond, stakes no longer depend on it
_BEYOND = 0.03  # the goal is a little more than what is needed: the last steps to it are the slowest
_BOLDEST = 0.95  # of the capital is staked at most
_NEXT = math.log(10)  # once 1/delta is reached, ten times as much is the goal
_EXPLAINED = 0.2  # of the variance, at least, by predictions that are used
_STEPS = np.array([0, 0.5, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4.2, 5, 6, 8, 12, 18, 30])
_ROUNDS = 3  # of a search for a bound, each twenty times as fine
_TINY = 1e-300
_LEAST = 1e-75  # loss: its square is a number, too
_EDGE = 1e-12  # of the interval from 0 to 1


class _Blocks:
    """Rows in blocks of constant stakes. Columns are [a_1 .. a_E, y_1 .. y_E] with y_e = a_e z_e and, with
    predictions, the differences of the same columns."""

    def __init__(self, columns: Floats) -> None:
        n, width = columns.shape
        self.n_rows = n
        self.bundle = math.ceil(n / _MOST_BETS)  # rows that are one bet
        size = self.bundle * math.ceil(math.ceil(n / self.bundle) / _BLOCKS)
        n_blocks = math.ceil(n / size)
        padded = np.zeros((n_blocks * size, width))
        padded[:n] = columns
        blocks = padded.reshape(n_blocks, size, width)
        self.products = blocks.transpose(0, 2, 1) @ blocks  # (n_blocks, n_columns, n_columns)
        self.bets = blocks.reshape(n_blocks, -1, self.bundle, width).sum(
            axis=2
        )  # (n_blocks, n_bets, n_columns)
        self.sums = self.bets.sum(axis=1)  # (n_blocks, n_columns)
        self.rows_before = np.arange(n_blocks)[:, None] * size
        self.sums_before = np.cumsum(self.sums, axis=0) - self.sums
        self.products_before = np.cumsum(self.products, axis=0) - self.products


class _Game(NamedTuple):
    """Of many hypotheses; in units of the most that a row can lose."""

    direction: Floats  # (n_blocks, n_hypotheses, n_corners, n_columns): what a unit of stake wins by column
    squares: Floats  # (n_blocks, n_hypotheses, n_corners): sums of squares of what rows win
    reach: Floats  # (n_blocks, n_hypotheses): 1 / standard deviation of all that is left


class BettingTest:
    """Tests and bounds of the sum of the samples' means. The rows must come in random order.

    Parameters
    ----------
    samples : sequence of Sample
        of the same rows, one for each event.
    disjoint : bool
        no row is in two of the events.
    """

    def __init__(self, samples: Sequence[Sample], disjoint: bool) -> None:
        # The rarest event has the free mean. That depends on who is in the events, not on their values.
        self.samples = sorted(samples, key=lambda sample: sample.sizes.sum())
        self.disjoint = disjoint
        self.low = np.array([s.lowest for s in self.samples])
        self.high = np.array([s.highest for s in self.samples])
        columns = [s.sizes for s in self.samples] + [s.amounts for s in self.samples]
        self.predicted = all(s.differences is not None for s in self.samples)
        if self.predicted:
            differences = [s.differences for s in self.samples if s.differences is not None]
            columns += [d.sizes for d in differences] + [d.amounts for d in differences]
        table = np.column_stack(columns)
        self.blocks = _Blocks(table[table.any(axis=1)])

    def p_value(self, target: float, level: float, sign: int = 1) -> float:
        """Of the hypothesis that sign * (sum of means) is at least sign * target; likeliest to be at most
        `level` where it is wrong."""
        found = self._log_e_values(np.array([sign]), np.array([sign * target]), level)[0]
        return min(1.0, math.exp(-found) + self._spend(level))

    def bounds(self, level: float) -> tuple[float, float]:
        """A lower and an upper bound of the sum of means, each wrong with probability `level` at most."""
        sign = np.array([1.0, -1.0])
        estimate, top = sign * self.estimate, self._tops(sign)
        most = top
        unit = self._standard_error + (top - estimate) / self.blocks.n_rows
        targets = np.minimum(estimate[:, None] + unit[:, None] * _STEPS, top[:, None])
        for _ in range(_ROUNDS):
            least, most = self._bracket(sign, targets, most, level)
            targets = np.linspace(least, most, len(_STEPS) + 1, axis=1)[:, :-1]
        return -float(most[1]), float(most[0])

    @property
    def estimate(self) -> float:
        """The sum of the observed means; with predictions, prediction-powered."""
        return self._estimate

    @cached_property
    def _estimate(self) -> float:
        total = self.blocks.sums.sum(axis=0)
        n = len(self.samples)
        if not self.predicted:
            return float((total[n : 2 * n] / total[:n]).sum())
        plain = total[n : 2 * n] / total[:n]
        direction = np.concatenate([plain / total[:n], -1 / total[:n]])
        products = self.blocks.products.sum(axis=0)
        both, own = direction @ products[: 2 * n, 2 * n :] @ direction, products[2 * n :, 2 * n :]
        eta = np.clip(both / max(direction @ own @ direction, _TINY), 0.0, 1.0)
        sizes, amounts = (total[: 2 * n] - eta * total[2 * n :]).reshape(2, n)
        return float((amounts / sizes).sum())

    @cached_property
    def _standard_error(self) -> float:
        n = len(self.samples)
        total = self.blocks.sums.sum(axis=0)
        direction = np.concatenate([total[n : 2 * n] / total[:n] ** 2, -1 / total[:n]])
        return math.sqrt(max(direction @ self.blocks.products.sum(axis=0)[: 2 * n, : 2 * n] @ direction, 0))

    def _spend(self, level: float) -> float:
        return _SPENT * level if len(self.samples) > 1 else 0.0

    def _tops(self, sign: Floats) -> Floats:
        return np.where(sign > 0, self.high.sum(), -self.low.sum())

    def _bracket(self, sign: Floats, targets: Floats, end: Floats, level: float) -> tuple[Floats, Floats]:
        """For each sign the last target that is not refuted, and the next."""
        n = targets.shape[1]
        goal = -math.log(level - self._spend(level))
        found = self._log_e_values(np.repeat(sign, n), targets.ravel(), level).reshape(targets.shape) >= goal
        kept = n - np.argmin(found[:, ::-1], axis=1)  # the number of targets up to the last one kept
        kept = np.where(found.all(axis=1), 0, kept)
        ends = np.column_stack([targets, end])
        line = np.arange(len(sign))
        return ends[line, np.maximum(kept - 1, 0)], ends[line, kept]

    # The game, for many hypotheses at once: `sign` and `target` are of shape (n_hypotheses,).

    def _log_e_values(self, sign: Floats, target: Floats, level: float) -> Floats:
        """The largest log-capital over time, at the worst corner of the nuisances."""
        means, certain = self._split(sign, target, level)
        certain |= target >= self._tops(sign)
        game = self._set_up(sign, means)
        capital = np.zeros(means.shape[:2])
        worst = best = np.zeros(len(target))
        goal = np.full(len(target), -math.log(level - self._spend(level)))
        for block in range(len(game.reach)):
            share = np.exp(np.clip(worst - goal - _BEYOND, _FAR, _NEAR))
            stake = np.minimum(_aim(share) * game.reach[block], _BOLDEST)[:, None]
            capital += self._win(game, block, stake)
            worst = capital.min(axis=1)
            best = np.maximum(best, worst)
            goal = np.where(worst >= goal, goal + _NEXT, goal)
        return np.where(certain, math.inf, best)

    def _win(self, game: _Game, block: int, stake: Floats) -> Floats:
        """What a block adds to the log-capital, (n_hypotheses, n_corners)."""
        won = game.direction[block] @ self.blocks.bets[block].T  # (n_hypotheses, n_corners, n_bets)
        together = self.blocks.bundle * stake <= (_BOLDEST if self.blocks.bundle == 1 else _CAREFUL)
        careful = np.where(together, stake, 0.0)
        exact = np.log1p(careful[:, :, None] * won).sum(axis=2)
        if together.all():
            return exact
        bounded = stake * won.sum(axis=2) + (np.log1p(-stake) + stake) * game.squares[block]
        return np.where(together, exact, bounded)

    def _split(self, sign: Floats, target: Floats, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Means (n_hypotheses, n_corners, n_events) that add up to the target, and where there are none."""
        certain = np.zeros(len(target), dtype=bool)
        if len(self.samples) == 1:
            return target[:, None, None], certain
        free_top = np.where(sign > 0, self.high[0], -self.low[0])
        ends = np.array([_confine(s, self._spend(level) / (len(self.samples) - 1)) for s in self.samples[1:]])
        low, high = np.where(sign[:, None, None] > 0, ends, -ends[:, ::-1]).transpose(2, 0, 1)
        if len(self.samples) == 2:  # the first mean is at most its limit
            low = np.maximum(low, (target - free_top)[:, None])
            certain = (low > high)[:, 0]
        corners = np.array(list(itertools.product((0, 1), repeat=len(self.samples) - 1)), dtype=bool)
        others = np.where(corners, high[:, None], low[:, None])
        first = target[:, None] - others.sum(axis=2)
        return np.concatenate([first[:, :, None], others], axis=2), certain

    def _set_up(self, sign: Floats, means: Floats) -> _Game:
        blocks, kappa = self.blocks, self._kappa[:, None, None]
        signs = np.broadcast_to(-sign[:, None, None], means.shape)
        direction = np.concatenate([means * kappa, signs * kappa], axis=3)
        loss, most = self._limits(sign, means, kappa)
        prior = (loss + most) ** 2 / 4  # the most that the variance can be
        if self.predicted:
            eta = self._regress(direction)
            direction = np.concatenate([direction, -eta * direction], axis=3)
            loss = loss + eta[:, :, 0, 0] * (loss + most)
        past = np.maximum(_square(direction, blocks.products_before), 0).max(axis=2)
        variance = (past + prior) / (blocks.rows_before + 1)
        left = np.sqrt((blocks.n_rows - blocks.rows_before) * variance)
        direction = direction / loss[:, :, None, None]
        return _Game(direction, _square(direction, blocks.products), loss / left)

    @cached_property
    def _kappa(self) -> Floats:
        """(n_blocks, n_events). Where no row is in two events and all count alike, who is in which event can
        be taken as given, and the mean of a_e is known beforehand."""
        n, blocks = len(self.samples), self.blocks
        alike = all(np.isin(sample.sizes, (0.0, 1.0)).all() for sample in self.samples)
        if self.disjoint and alike and not self.predicted:
            known = blocks.n_rows / blocks.sums[:, :n].sum(axis=0)
            return np.broadcast_to(known, (len(blocks.sums), n))
        return (blocks.rows_before + 1) / (blocks.sums_before[:, :n] + 0.5)

    def _regress(self, direction: Floats) -> Floats:
        """eta on the rows before each block, the same for all corners; zero where predictions explain little
        of the variance, since with them a row can lose more."""
        half = direction.shape[3]
        products = self.blocks.products_before
        plain = _square(direction, products[:, :half, :half]).mean(axis=2)
        both = _square(direction, products[:, :half, half:]).mean(axis=2)
        own = np.maximum(_square(direction, products[:, half:, half:]).mean(axis=2), _TINY)
        eta = np.where(both**2 > _EXPLAINED * own * plain, np.clip(both / own, 0.0, 1.0), 0.0)
        return eta[:, :, None, None]

    def _limits(self, sign: Floats, means: Floats, kappa: Floats) -> tuple[Floats, Floats]:
        """The most that a row can lose and win, (n_blocks, n_hypotheses), whatever the corner."""
        up = np.where(sign[:, None] > 0, self.high, -self.low)[:, None]
        down = np.where(sign[:, None] > 0, self.low, -self.high)[:, None]
        loss, most = kappa * np.maximum(up - means, 0), kappa * np.maximum(means - down, 0)
        together = np.max if self.disjoint else np.sum
        loss, most = (together(part, axis=3).max(axis=2) for part in (loss, most))
        return np.maximum(loss, _LEAST), most


def _square(direction: Floats, products: Floats) -> Floats:
    n_blocks, n_hypotheses, n_corners, width = direction.shape
    flat = direction.reshape(n_blocks, -1, width)
    return ((flat @ products) * flat).sum(axis=2).reshape(n_blocks, n_hypotheses, n_corners)


def _aim(share: Floats) -> Floats:
    """phi(Phi^-1(w)) / w: the stake, over the standard deviation of what is left, likeliest to reach one."""
    return np.exp(-0.5 * ndtri(share) ** 2) / (math.sqrt(2 * math.pi) * share)


def _confine(sample: Sample, level: float) -> tuple[float, float]:
    """An interval of the sample's mean by relative entropy (Hoeffding, 1963), wrong with probability `level`:
    a (z - mu) has a mean of zero, and lies within limits of the width of the range."""
    sizes = sample.sizes[sample.sizes > 0]
    width = sample.range
    if width == 0:
        return sample.lowest, sample.highest
    place = (sample.mean - sample.lowest) / width
    effort, share = math.log(2 / level) / len(sizes), float(sizes.mean())

    def lack(mean: float) -> float:
        seen = mean + share * (place - mean)
        return float(rel_entr(seen, mean) + rel_entr(1 - seen, 1 - mean)) - effort

    low = 0.0 if lack(_EDGE) < 0 or place <= _EDGE else brentq(lack, _EDGE, place)
    high = 1.0 if lack(1 - _EDGE) < 0 or place >= 1 - _EDGE else brentq(lack, place, 1 - _EDGE)
    return sample.lowest + float(low) * width, sample.lowest + float(high) * width  # type: ignore[arg-type]
