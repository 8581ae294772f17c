"""Fixed-size bounds: against formulas written out, closed forms and simulation; and Holm's correction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from bylaw.errors import OptionError, Remedy
from bylaw.testing import METHODS
from bylaw.testing._betting import BettingTest, Sample
from bylaw.testing._confidence_bounds import FixedSizeTest, SeparateTests, adjust_holm, make_test

LEVEL = 0.05


def make(values, method, low=0.0, high=1.0):
    return make_test([Sample(np.ones(len(values)), np.asarray(values, float), low, high)], method, True)


@pytest.mark.parametrize("method", list(METHODS))
def test_a_bound_is_the_target_at_which_the_evidence_suffices(method):
    test = make(np.random.default_rng(0).random(400) < 0.2, method)
    lower, upper = test.bounds(LEVEL)
    assert test.p_value(upper, LEVEL) <= LEVEL < test.p_value(upper - 0.005, LEVEL)
    assert test.p_value(lower, LEVEL, -1) <= LEVEL < test.p_value(lower + 0.005, LEVEL, -1)


def test_clopper_pearson_is_the_beta_quantile():
    test = make(np.repeat([1.0, 0.0], [7, 93]), "clopper_pearson")
    lower, upper = test.bounds(LEVEL)
    assert upper == pytest.approx(beta.ppf(0.95, 8, 93), abs=1e-6)
    assert lower == pytest.approx(beta.ppf(0.05, 7, 94), abs=1e-6)
    expected = binomtest(7, 100, 0.12, alternative="less").pvalue
    assert test.p_value(0.12, LEVEL) == pytest.approx(expected)


def test_hoeffding_bentkus_by_hand():
    # n = 100, mean 0.1, target 0.2: relative entropy .1 log(1/2) + .9 log(.9/.8) = 0.03669.
    hoeffding = math.exp(-100 * (0.1 * math.log(0.5) + 0.9 * math.log(0.9 / 0.8)))
    bentkus = math.e * binomtest(10, 100, 0.2, alternative="less").pvalue
    found = make(np.repeat([1.0, 0.0], [10, 90]), "hoeffding_bentkus").p_value(0.2, LEVEL)
    assert found == pytest.approx(min(hoeffding, bentkus))


@pytest.mark.parametrize("method", ["hoeffding_bentkus", "clopper_pearson"])
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_a_mean_at_the_target_is_rarely_certified(method, rate):
    rng = np.random.default_rng(5)
    wrong = sum(make(rng.random(300) < rate, method).p_value(rate, LEVEL) <= LEVEL for _ in range(500))
    assert wrong / 500 <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 500)


@pytest.mark.parametrize("method", list(METHODS))
def test_no_rows_promise_nothing_and_constants_everything(method):
    assert make(np.zeros(1), method).bounds(LEVEL)[1] > 0.9
    fixed = make(np.full(5, 0.25), method, 0.25, 0.25)
    assert fixed.bounds(LEVEL) == (0.25, 0.25)
    assert fixed.p_value(0.3, LEVEL) == 0.0
    assert fixed.p_value(0.2, LEVEL) == 1.0


@pytest.mark.parametrize("method", ["hoeffding_bentkus", "clopper_pearson"])
def test_other_units_scale_the_bound(method):
    values = np.random.default_rng(2).random(300) < 0.4
    low, high = make(values, method).bounds(LEVEL)
    scaled = make(-3 + 10.0 * values, method, -3.0, 7.0).bounds(LEVEL)
    assert scaled == pytest.approx((-3 + 10 * low, -3 + 10 * high), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_separate_bounds_of_several_samples_add_up(method):
    """Each may fail with its part of the error, and they may depend on each other."""
    values = np.random.default_rng(2).random(600) < 0.3
    inside = np.arange(600) % 3 == 0
    samples = [
        Sample(inside * 1.0, inside * values * 1.0, 0.0, 1.0),
        Sample(np.ones(600), -1.0 * values, -1.0, 0.0),
    ]
    tests = [
        BettingTest([sample], True) if method == "betting" else FixedSizeTest(sample, method)
        for sample in samples
    ]
    test = SeparateTests(tests)
    apart = [one.bounds(LEVEL / 2) for one in tests]
    assert test.bounds(LEVEL) == pytest.approx((apart[0][0] + apart[1][0], apart[0][1] + apart[1][1]))
    _, upper = test.bounds(LEVEL)
    assert test.p_value(upper, LEVEL) == pytest.approx(LEVEL, rel=0.05)
    assert test.p_value(test.estimate - 0.1, LEVEL) == 1.0


def test_a_sum_over_many_events_is_bounded_event_by_event():
    rng = np.random.default_rng(3)
    group, values = rng.integers(0, 8, 4000), (rng.random(4000) < 0.2).astype(float)
    samples = [Sample((group == g) * 1.0, (group == g) * values, 0.0, 1.0) for g in range(8)]
    test = make_test(samples, "betting", disjoint=True)
    assert isinstance(test, SeparateTests)
    lower, upper = test.bounds(LEVEL)
    assert lower < 8 * 0.2 < upper


def test_clopper_pearson_refuses_chances():
    with pytest.raises(OptionError, match=r"not random.*decisions=, or use method='betting'") as caught:
        make([0.0, 0.5], "clopper_pearson")
    assert caught.value.remedy == Remedy("pass_decisions")


@pytest.mark.parametrize("method", ["hoeffding_bentkus", "clopper_pearson"])
def test_weights_are_for_betting(method):
    weighted = Sample(np.array([0.5, 1.0]), np.array([0.0, 1.0]), 0.0, 1.0)
    with pytest.raises(
        OptionError, match=f"{method} does not support weights; use method='betting'"
    ) as caught:
        make_test([weighted], method, disjoint=True)
    assert caught.value.remedy == Remedy("choose_method", "betting")


def test_holm_by_hand():
    # Sorted: .01 x 3, .02 x 2, .04 x 1, and never falling.
    assert adjust_holm([0.04, 0.01, math.nan, 0.02])[0:2] == pytest.approx([0.04, 0.03])
    assert adjust_holm([0.04, 0.01, math.nan, 0.02])[3] == pytest.approx(0.04)
    assert math.isnan(adjust_holm([0.04, 0.01, math.nan, 0.02])[2])
    assert adjust_holm([0.5, 0.9]) == [1.0, 1.0]
