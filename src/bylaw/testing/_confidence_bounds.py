"""Tests and bounds of a sum of means that hold with high probability at any number of rows.

The methods to choose from: by betting (the default), Hoeffding and Bentkus, Clopper and Pearson.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, rel_entr

from bylaw._base.typing import Floats
from bylaw.errors import OptionError, Remedy
from bylaw.testing._betting import MOST_EVENTS, BettingTest
from bylaw.testing._samples import Sample

_PRECISION = 1e-7  # of bounds, in units of the range
_ROUNDING = 1e-9
_FEWEST = 1e-300  # a p-value


class NotBinaryError(OptionError):
    """The Clopper-Pearson bound was chosen for values that are not binary."""


class FixedSizeTest:
    """One sample of rows that count alike, by the tail of a distribution.

    Parameters
    ----------
    sample : Sample
    tail : callable
        a p-value for values in [0, 1] and the mean that they are said to have at least.
    """

    def __init__(self, sample: Sample, tail: Callable[[Floats, float], float]) -> None:
        self.sample, self.tail = sample, tail
        self.values = (sample.amounts[sample.sizes > 0] - sample.lowest) / (sample.range or 1.0)

    @property
    def estimate(self) -> float:
        return self.sample.mean

    def p_value(self, target: float, level: float, sign: int = 1) -> float:
        place = (target - self.sample.lowest) / (self.sample.range or 1.0)
        values, place = (self.values, place) if sign > 0 else (1 - self.values, 1 - place)
        if self.sample.range == 0:
            return 0.0 if place > 0 else 1.0
        if place >= 1:
            return 0.0
        return self.tail(values, max(place, 0.0)) if len(values) else 1.0

    def bounds(self, level: float) -> tuple[float, float]:
        least, most = self.sample.lowest, self.sample.highest
        return -self._search(level, -1, -most, -least), self._search(level, 1, least, most)

    def _search(self, level: float, sign: int, low: float, high: float) -> float:
        """Return the least target that is refuted, up to the precision."""
        if high == low or self.p_value(sign * low, level, sign) <= level:
            return low
        precision = _PRECISION * (high - low)

        def lack(target: float) -> float:
            p_value = self.p_value(sign * target, level, sign)
            return math.log(max(p_value, level / math.e) / level)

        if lack(high - precision) > 0:
            return high
        found = brentq(lack, low, high - precision, xtol=precision)
        return min(float(found) + precision, high)  # type: ignore[arg-type]


def use_hoeffding_bentkus(sample: Sample) -> FixedSizeTest:
    """Return the test by the smaller of Hoeffding's and Bentkus' bounds."""
    _refuse_weights(sample, "hoeffding_bentkus")
    return FixedSizeTest(sample, _tail_of_hoeffding_bentkus)


def _tail_of_hoeffding_bentkus(values: Floats, target: float) -> float:
    n, mean = len(values), float(values.mean())
    if target <= mean:
        return 1.0
    hoeffding = math.exp(-n * float(rel_entr(mean, target) + rel_entr(1 - mean, 1 - target)))
    bentkus = math.e * float(bdtr(math.ceil(n * mean - _ROUNDING), n, target))
    return min(hoeffding, bentkus, 1.0)


def use_clopper_pearson(sample: Sample) -> FixedSizeTest:
    """Return the test by the binomial tail, for values that are one of two."""
    _refuse_weights(sample, "clopper_pearson")
    test = FixedSizeTest(sample, _tail_of_binomial)
    if sample.range and (np.minimum(np.abs(test.values), np.abs(1 - test.values)) > _ROUNDING).any():
        raise NotBinaryError(
            "clopper_pearson is for decisions that are not random, and rates that are 0 or 1 on each row",
            Remedy("pass_decisions"),
        )
    return test


def _tail_of_binomial(values: Floats, target: float) -> float:
    return float(bdtr(round(float(values.sum())), len(values), target))


def _refuse_weights(sample: Sample, method: str) -> None:
    if not np.isin(sample.sizes, (0.0, 1.0)).all():
        raise OptionError(f"{method} takes no weights", Remedy("choose_method", "betting"))


class SeparateTests:
    """The union bound for samples that may depend on each other: bounds that all hold together."""

    def __init__(self, tests: Sequence[Test]) -> None:
        self.tests = tests

    @property
    def estimate(self) -> float:
        return sum(test.estimate for test in self.tests)

    def bounds(self, level: float) -> tuple[float, float]:
        pairs = [test.bounds(level / len(self.tests)) for test in self.tests]
        return sum(low for low, _ in pairs), sum(high for _, high in pairs)

    def p_value(self, target: float, level: float, sign: int = 1) -> float:
        """Return the least level at which the bound is within the target, up to a precision of 0.1 %."""

        def holds(level: float) -> bool:
            low, high = self.bounds(level)
            return high <= target if sign > 0 else low >= target

        if not holds(1.0):
            return 1.0
        low, high = math.log(_FEWEST), 0.0
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (low, middle) if holds(math.exp(middle)) else (middle, high)
        return math.exp(high)


Test: TypeAlias = BettingTest | FixedSizeTest | SeparateTests

METHODS: Mapping[str, Callable[[Sample], Test]] = {
    "betting": lambda sample: BettingTest([sample], disjoint=True),
    "hoeffding_bentkus": use_hoeffding_bentkus,
    "clopper_pearson": use_clopper_pearson,
}


def make_test(samples: Sequence[Sample], method: str, disjoint: bool) -> Test:
    """Return a test of the sum of the samples' means.

    Parameters
    ----------
    samples : sequence of Sample
        of the same rows in random order, each with a row of its event.
    method : str
        one of `METHODS`.
    disjoint : bool
        no row is in two of the events.
    """
    if method == "betting" and len(samples) <= MOST_EVENTS:
        # Where all rows are counted, the player of `CountedRows` is the binomial test.
        if len(samples) == 1 and samples[0].is_binary:
            return use_clopper_pearson(samples[0])
        return BettingTest(samples, disjoint)
    tests = [METHODS[method](sample) for sample in samples]
    return tests[0] if len(tests) == 1 else SeparateTests(tests)


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm, 1979); nan is left out.

    All rejections at level delta are right together with probability 1 - delta.
    """
    judged = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(judged):
        least = max(least, min(1.0, (len(judged) - rank) * p))
        adjusted[i] = least
    return adjusted
