"""Bounds on means of bounded values that hold with high probability at any number of rows.

A `Sample` holds independent values within known limits. The question is always one-sided: with what
confidence is the sum of the samples' means below a target? The answer is a log e-value, -log(p); a bound
is the target at which it suffices. For bounds from below, the values are negated.

Betting (Waudby-Smith and Ramdas, 2024): a player who stakes against "the mean is at least b" has capital
prod_i(1 + stake_i (b - Z_i)), which under that hypothesis exceeds 1/delta with probability delta at most.
Of two independent samples, the capitals multiply, and the worst division of the target between the two
means counts: that is as narrow as one sample with the variance of the sum, where two separate bounds
would add their widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, rel_entr

from bylaw._base.typing import Floats
from bylaw.errors import OptionError, Remedy


class NotBinaryError(OptionError):
    """Clopper and Pearson's bound was asked for, of values that are not one of two."""


_MOST_BETS = 20_000  # of larger samples, means of several rows are bet on
_AT_STAKE = 0.9  # of the capital, where two samples are bet on; the rest is kept
_CUTS = 400  # divisions of a target between two means
_LOST = -7.0  # log-capital below which what was kept is all that counts
_CHECKS = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0)  # of the rows, where two samples' capital is looked at
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)  # standard deviations from the mean
_PRECISION = 1e-7  # of bounds, in units of the range
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sample:
    """Independent rows: their values within limits, and weights if some count more."""

    values: Floats  # (n,)
    lowest: float
    highest: float
    weights: Floats | None = None  # (n,), at most one

    @property
    def negated(self) -> Sample:
        return replace(self, values=-self.values, lowest=-self.highest, highest=-self.lowest)

    @property
    def mean(self) -> float:
        """nan if there is no row."""
        return float(np.average(self.values, weights=self.weights)) if len(self.values) else math.nan

    @property
    def range(self) -> float:
        return self.highest - self.lowest


class Bound(Protocol):
    """A concentration bound: with what confidence rows refute "the mean is at least `target`"."""

    def log_e_value(self, target: float) -> float:
        """-log p; it grows with the target."""
        ...

    def upper_bound(self, log_e_value: float) -> float:
        """The least target that is refuted with this log e-value."""
        ...


def _find_target(log_e_value: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The least target of [low, high] with the log e-value that is wanted, or a hair above it."""
    if log_e_value(high) < wanted:
        return high
    if log_e_value(low) >= wanted:
        return low
    precision = _PRECISION * (high - low)
    found = brentq(lambda t: min(log_e_value(t), wanted + 1.0) - wanted, low, high, xtol=precision)
    return min(float(found) + precision, high)  # type: ignore[arg-type]


# Betting.


@lru_cache(maxsize=8)
def _number_bets(n_rows: int, bundle: int) -> NDArray[np.int64]:
    """(n_rows,): the number of each row's bet, in an order that does not depend on the rows."""
    place = np.empty(n_rows, dtype=np.int64)
    place[np.random.default_rng(n_rows).permutation(n_rows)] = np.arange(n_rows)
    return place // bundle


@dataclass(frozen=True)
class _Bets:
    """The rows of a sample in the order of betting: target * size - amount is won per unit staked."""

    amounts: Floats  # (n,): weight times value
    sizes: Floats  # (n,): weights
    sample: Sample

    @classmethod
    def on(cls, sample: Sample) -> _Bets:
        """In random order, since rows may come sorted; many rows in bundles of the same size."""
        n = len(sample.values)
        bundle = max(n // _MOST_BETS, 1)
        bet, n_bets = _number_bets(n, bundle), n // bundle

        def average(values: Floats) -> Floats:
            return np.bincount(bet, values, n_bets)[:n_bets] / bundle

        if sample.weights is None:
            return cls(average(sample.values), np.ones(n_bets), sample)
        return cls(average(sample.weights * sample.values), average(sample.weights), sample)

    def __len__(self) -> int:
        return len(self.amounts)

    @cached_property
    def typical_sizes(self) -> Floats:
        """(n,): mean size, from the rows before each."""
        return (1.0 + np.cumsum(self.sizes) - self.sizes) / np.arange(1, len(self) + 1)

    @cached_property
    def variances(self) -> Floats:
        """(n,): of (amount - mean * size) / typical size, from the rows before each."""
        start = self.sample.lowest + self.sample.range / 2
        means = (start + np.cumsum(self.amounts)) / (1.0 + np.cumsum(self.sizes))
        squares = (self.amounts - means * self.sizes) ** 2
        prior = self.sample.range**2 / 4
        before = prior + np.cumsum(squares) - squares
        return before / np.arange(1, len(self) + 1) / self.typical_sizes**2

    def stakes(self, variance_of_mean: Floats, delta: float) -> Floats:
        """(n,): the best against a mean that is just far enough to show, sqrt(2 log(1/delta) / variance) / n,
        and never so much that all could be lost."""
        best = np.sqrt(2 * math.log(1 / delta) / variance_of_mean) / max(len(self), 1) / self.typical_sizes
        return np.minimum(best, 1 / self.sample.range)

    def log_gains(self, target: float, stakes: Floats) -> Floats:
        return np.log1p(np.maximum(stakes * (target * self.sizes - self.amounts), _ROUNDING - 1))


class Betting:
    """One sample, bet on row by row: -log p = max over t of the log-capital after t rows."""

    def __init__(self, sample: Sample, delta: float) -> None:
        self.bets = _Bets.on(sample)
        self.stakes = self.bets.stakes(self.bets.variances / max(len(self.bets), 1), delta)

    def log_e_value(self, target: float) -> float:
        if target >= self.bets.sample.highest:
            return math.inf
        return float(np.cumsum(self.bets.log_gains(target, self.stakes)).max(initial=0.0))

    def upper_bound(self, log_e_value: float) -> float:
        sample = self.bets.sample
        return _find_target(self.log_e_value, log_e_value, sample.lowest, sample.highest)


class PairBetting:
    """Two independent samples, in step: -log p of "the sum of their means is at least `target`".

    Stakes are those of one sample with the variance of the sum. Of each capital a part is kept, so
    that it never falls far: then no division of the target between the two means is spared.
    """

    def __init__(self, samples: Sequence[Sample], delta: float) -> None:
        first, second = (_Bets.on(sample) for sample in samples)
        self.limits = [(s.lowest, s.highest) for s in samples]
        totals = [
            mine.variances / len(mine) + other.variances[_in_step(mine, other)] / len(other)
            for mine, other in ((first, second), (second, first))
        ]
        self.capitals = [
            _capitals(bets, bets.stakes(total, delta))
            for bets, total in zip((first, second), totals, strict=True)
        ]

    def log_e_value(self, target: float) -> float:
        (low, high), (other_low, other_high) = self.limits
        if target >= high + other_high:
            return math.inf
        left, right = max(low, target - other_high), min(high, target - other_low)
        return max(0.0, *(self._worst(check, target, left, right) for check in range(len(_CHECKS))))

    def upper_bound(self, log_e_value: float) -> float:
        (low, high), (other_low, other_high) = self.limits
        return _find_target(self.log_e_value, log_e_value, low + other_low, high + other_high)

    def _worst(self, check: int, target: float, left: float, right: float) -> float:
        """The log-capital at one time, for the worst division of the target. It grows in one mean and
        falls in the other, so that between two cuts it is at least the former's value at the left cut plus
        the latter's at the right one."""
        (points, logs), (other_points, other_logs) = self.capitals
        mine, other = logs[check], other_logs[check]
        begin = np.clip(np.interp(_LOST, mine, points), left, right)
        end = np.clip(target - np.interp(_LOST, other, other_points), begin, right)
        cuts = np.concatenate([[left], np.linspace(begin, end, _CUTS), [right]])
        grows = _with_kept(np.interp(cuts[:-1], points, mine))
        falls = _with_kept(np.interp(target - cuts[1:], other_points, other))
        return float((grows + falls).min())


def _in_step(mine: _Bets, other: _Bets) -> np.ndarray:
    """(n,): the other sample's row at the time of each of mine."""
    return np.arange(len(mine)) * len(other) // len(mine)


def _capitals(bets: _Bets, stakes: Floats) -> tuple[Floats, Floats]:
    """Log-capital at a few targets (points,) and times (checks, points). It is concave in the target, so
    that between two points it lies above the straight line."""
    sample = bets.sample
    deviation = math.sqrt(bets.variances[-1])
    steps = deviation * np.array([-s for s in _STEPS[::-1]] + [0.0, *_STEPS])
    inside = np.clip(sample.mean + steps, sample.lowest, sample.highest)
    points = np.unique(np.concatenate([[sample.lowest], inside, [sample.highest]]))
    ends = [max(int(share * len(bets)), 1) - 1 for share in _CHECKS]
    logs = [np.cumsum(bets.log_gains(point, stakes))[ends] for point in points]
    return points, np.array(logs).T


def _with_kept(logs: Floats) -> Floats:
    return np.logaddexp(math.log(1 - _AT_STAKE), math.log(_AT_STAKE) + logs)


# Fixed-size bounds.


class HoeffdingBentkus:
    """min(Hoeffding's bound with relative entropy, Bentkus' with the binomial's tail)."""

    def __init__(self, sample: Sample, delta: float) -> None:
        _refuse_weights(sample, "hoeffding_bentkus")
        self.sample = sample
        self.mean = (sample.mean - sample.lowest) / sample.range

    def log_e_value(self, target: float) -> float:
        n, level = len(self.sample.values), (target - self.sample.lowest) / self.sample.range
        if level >= 1:
            return math.inf
        if n == 0 or level <= self.mean:
            return 0.0
        hoeffding = n * float(rel_entr(self.mean, level) + rel_entr(1 - self.mean, 1 - level))
        bentkus = _tail(math.ceil(n * self.mean - _ROUNDING), n, level) - 1.0
        return max(hoeffding, bentkus, 0.0)

    def upper_bound(self, log_e_value: float) -> float:
        return _find_target(self.log_e_value, log_e_value, self.sample.lowest, self.sample.highest)


class ClopperPearson:
    """The binomial's tail, for values that are one of two."""

    def __init__(self, sample: Sample, delta: float) -> None:
        _refuse_weights(sample, "clopper_pearson")
        self.sample = sample
        scaled = (sample.values - sample.lowest) / sample.range
        if (np.minimum(np.abs(scaled), np.abs(1 - scaled)) > _ROUNDING).any():
            raise NotBinaryError(
                "clopper_pearson is for decisions that are not random, and rates that are 0 or 1 on each row",
                Remedy("pass_decisions"),
            )
        self.successes = round(float(scaled.sum()))

    def log_e_value(self, target: float) -> float:
        n, level = len(self.sample.values), (target - self.sample.lowest) / self.sample.range
        if level >= 1:
            return math.inf
        return _tail(self.successes, n, max(level, 0.0)) if n else 0.0

    def upper_bound(self, log_e_value: float) -> float:
        return _find_target(self.log_e_value, log_e_value, self.sample.lowest, self.sample.highest)


def _tail(successes: int, n: int, level: float) -> float:
    """-log P(Binomial(n, level) <= successes)."""
    chance = float(bdtr(successes, n, level))
    return -math.log(chance) if chance > 0 else math.inf


def _refuse_weights(sample: Sample, method: str) -> None:
    if sample.weights is not None:
        raise OptionError(f"{method} takes no weights", Remedy("choose_method", "betting"))


METHODS: Mapping[str, Callable[[Sample, float], Bound]] = {
    "betting": Betting,
    "hoeffding_bentkus": HoeffdingBentkus,
    "clopper_pearson": ClopperPearson,
}


# Several samples.


class SeparateBounds:
    """Samples that may depend on each other: a bound for each, all of which hold together."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self.bounds = bounds

    def log_e_value(self, target: float) -> float:
        """Each bound may fail with probability p / m."""
        if not self.bounds:
            return math.inf if target >= 0 else 0.0
        share = math.log(len(self.bounds))
        if self._total(share) > target:
            return 0.0
        most = 1.0
        while self._total(share + most) <= target:
            if most > 1000:
                return math.inf
            most *= 2
        # From below: a hair less than the log e-value.
        low = 0.0
        while most - low > _PRECISION * most:
            middle = (low + most) / 2
            low, most = (middle, most) if self._total(share + middle) <= target else (low, middle)
        return low

    def upper_bound(self, log_e_value: float) -> float:
        return self._total(math.log(max(len(self.bounds), 1)) + log_e_value)

    def _total(self, log_e_value: float) -> float:
        return sum(bound.upper_bound(log_e_value) for bound in self.bounds)


def make_bound(samples: Sequence[Sample], method: str, delta: float, independent: bool) -> Bound:
    """A bound on the sum of the samples' means, sharpest at the error probability `delta`."""
    varying = [s for s in samples if s.range > 0]
    constant = sum(s.lowest for s in samples if s.range == 0)
    return _ShiftedBound(_make_bound(varying, method, delta, independent), constant)


def _make_bound(samples: Sequence[Sample], method: str, delta: float, independent: bool) -> Bound:
    if len(samples) == 1:
        return METHODS[method](samples[0], delta)
    full = all(len(sample.values) for sample in samples)
    if method == "betting" and independent and len(samples) == 2 and full:
        return PairBetting(samples, delta)
    return SeparateBounds([METHODS[method](sample, delta / max(len(samples), 1)) for sample in samples])


@dataclass(frozen=True)
class _ShiftedBound:
    """A bound of a sum with a constant in it."""

    bound: Bound
    constant: float

    def log_e_value(self, target: float) -> float:
        return self.bound.log_e_value(target - self.constant)

    def upper_bound(self, log_e_value: float) -> float:
        return self.bound.upper_bound(log_e_value) + self.constant


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm, 1979): all rejections at level delta are right together with
    probability 1 - delta. nan is left out."""
    judged = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(judged):
        least = max(least, min(1.0, (len(judged) - rank) * p))
        adjusted[i] = least
    return adjusted
