"""Tests of a sum of means and confidence bounds on it that are valid for any number of rows.

The methods are betting (the default), Hoeffding and Bentkus, and Clopper and Pearson.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, rel_entr

from bylaw.errors import OptionError, Remedy
from bylaw.testing._betting import MOST_EVENTS, BettingTest, Sample

_ROUNDING = 1e-9
NOT_BINARY = Remedy("pass_decisions")  # for Clopper-Pearson bounds of values that are not binary


class FixedSizeTest:
    """A test of the mean of one sample whose rows all have weight 0 or 1, by a tail probability.

    The tail probability is the smaller of Hoeffding's and Bentkus' bounds ("hoeffding_bentkus"), or that of
    the binomial distribution if each value is the least or the largest ("clopper_pearson").
    """

    def __init__(self, sample: Sample, method: str) -> None:
        self.sample, self.binary = sample, method == "clopper_pearson"
        self.values = (sample.amounts[sample.sizes > 0] - sample.lowest) / (sample.range or 1.0)
        if not np.isin(sample.sizes, (0.0, 1.0)).all():
            raise OptionError(f"{method} does not support weights", Remedy("choose_method", "betting"))
        distances = np.minimum(np.abs(self.values), np.abs(1 - self.values))
        if self.binary and sample.range and (distances > _ROUNDING).any():
            raise OptionError(
                "clopper_pearson needs decisions that are not random and rates that are 0 or 1 on each row",
                NOT_BINARY,
            )

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
        n, place = len(values), max(place, 0.0)
        if not n:
            return 1.0
        if self.binary:
            return float(bdtr(round(float(values.sum())), n, place))
        if place <= (mean := float(values.mean())):
            return 1.0
        hoeffding = math.exp(-n * float(rel_entr(mean, place) + rel_entr(1 - mean, 1 - place)))
        bentkus = math.e * float(bdtr(math.ceil(n * mean - _ROUNDING), n, place))
        return min(hoeffding, bentkus, 1.0)

    def bounds(self, level: float) -> tuple[float, float]:
        least, most = self.sample.lowest, self.sample.highest
        return -self._search(level, -1, -most, -least), self._search(level, 1, least, most)

    def _search(self, level: float, sign: int, low: float, high: float) -> float:
        """Return the least target that the test refutes at `level`, up to the numerical precision."""
        if high == low or self.p_value(sign * low, level, sign) <= level:
            return low
        precision = 1e-7 * (high - low)

        def lack(target: float) -> float:
            p_value = self.p_value(sign * target, level, sign)
            return math.log(max(p_value, level / math.e) / level)

        if lack(high - precision) > 0:
            return high
        found = brentq(lack, low, high - precision, xtol=precision)
        return min(float(found) + precision, high)  # type: ignore[arg-type]


class SeparateTests:
    """A test of a sum of means by a union bound: one test for each sample, which may depend on each other."""

    def __init__(self, tests: Sequence[Test]) -> None:
        self.tests = tests

    @property
    def estimate(self) -> float:
        return sum(test.estimate for test in self.tests)

    def bounds(self, level: float) -> tuple[float, float]:
        pairs = [test.bounds(level / len(self.tests)) for test in self.tests]
        return sum(low for low, _ in pairs), sum(high for _, high in pairs)

    def p_value(self, target: float, level: float, sign: int = 1) -> float:
        """Return the smallest level at which the bounds refute the hypothesis, up to a precision of 0.1 %."""

        def holds(level: float) -> bool:
            low, high = self.bounds(level)
            return high <= target if sign > 0 else low >= target

        if not holds(1.0):
            return 1.0
        low, high = math.log(1e-300), 0.0
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (low, middle) if holds(math.exp(middle)) else (middle, high)
        return math.exp(high)


Test: TypeAlias = BettingTest | FixedSizeTest | SeparateTests

METHODS = ("betting", "hoeffding_bentkus", "clopper_pearson")


def make_test(samples: Sequence[Sample], method: str, disjoint: bool) -> Test:
    """Return a test of the sum of the samples' means, by one of `METHODS`.

    All samples have the same rows in the same random order, and at least one row in their event. If the
    events are `disjoint`, no row is in two.
    """
    if method == "betting" and len(samples) <= MOST_EVENTS:
        # If all values are binary, betting as in `CountedRows` is the same as the binomial test.
        if len(samples) == 1 and samples[0].is_binary:
            return FixedSizeTest(samples[0], "clopper_pearson")
        return BettingTest(samples, disjoint)
    tests = [
        BettingTest([sample], disjoint=True) if method == "betting" else FixedSizeTest(sample, method)
        for sample in samples
    ]
    return tests[0] if len(tests) == 1 else SeparateTests(tests)


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of tests (Holm, 1979); nan stays nan and is not counted.

    With probability 1 - delta, no true hypothesis has an adjusted p-value of delta or less.
    """
    judged = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(judged):
        least = max(least, min(1.0, (len(judged) - rank) * p))
        adjusted[i] = least
    return adjusted
