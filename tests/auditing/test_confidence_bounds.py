"""Bounds on means: against formulas written out, closed forms, simulation and sorted rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from bylaw.auditing.confidence_bounds import Sample, adjust_holm, make_bound
from bylaw.errors import OptionError, Remedy

LEVEL = 0.05


def p_value(samples, target, method="betting", independent=True):
    return math.exp(-make_bound(samples, method, LEVEL, independent).log_e_value(target))


def upper(samples, method="betting", independent=True, level=LEVEL):
    return make_bound(samples, method, LEVEL, independent).upper_bound(-math.log(level))


def bernoulli(rng, n, rate):
    return (rng.random(n) < rate).astype(float)


def plain_betting(values, target, delta):
    """The capital, row by row in a loop, from the published formula."""
    n = len(values)
    order = np.random.default_rng(n).permutation(n)
    capital = most = 1.0
    total, squares = 0.5, 0.25
    for i, z in enumerate(values[order]):
        variance = squares / (i + 1)
        stake = min(1.0, math.sqrt(2 * math.log(1 / delta) / (n * variance)))
        capital *= 1 + stake * (target - z)
        most = max(most, capital)
        total += z
        squares += (z - total / (i + 2)) ** 2
    return 1 / most


@pytest.mark.parametrize("target", [0.2, 0.31, 0.5])
def test_betting_is_the_published_product(target):
    values = np.random.default_rng(3).beta(2, 6, size=150)
    assert p_value([Sample(values, 0.0, 1.0)], target) == pytest.approx(plain_betting(values, target, LEVEL))


def test_betting_on_zeros_alone_in_closed_form():
    # Nothing is ever lost: the capital is (1 + b)^n, but for the first few rows with smaller stakes.
    sample = Sample(np.zeros(100), 0.0, 1.0)
    assert 1.03**-100 < p_value([sample], 0.03) < 1.03**-96


@pytest.mark.parametrize("method", ["betting", "hoeffding_bentkus", "clopper_pearson"])
def test_a_bound_is_the_target_at_which_the_evidence_suffices(method):
    values = bernoulli(np.random.default_rng(0), 400, 0.2)
    sample = Sample(values, 0.0, 1.0)
    bound = upper([sample], method)
    assert p_value([sample], bound, method) == pytest.approx(LEVEL, rel=1e-2)
    assert p_value([sample], bound - 0.01, method) > LEVEL > p_value([sample], bound + 0.01, method)


def test_clopper_pearson_is_the_beta_quantile():
    values = np.repeat([1.0, 0.0], [7, 93])
    assert upper([Sample(values, 0.0, 1.0)], "clopper_pearson") == pytest.approx(
        beta.ppf(0.95, 8, 93), abs=1e-6
    )
    expected = binomtest(7, 100, 0.12, alternative="less").pvalue
    assert p_value([Sample(values, 0.0, 1.0)], 0.12, "clopper_pearson") == pytest.approx(expected)


def test_hoeffding_bentkus_by_hand():
    # n = 100, mean 0.1, target 0.2: relative entropy .1 log(1/2) + .9 log(.9/.8) = 0.03669.
    values = np.repeat([1.0, 0.0], [10, 90])
    hoeffding = math.exp(-100 * (0.1 * math.log(0.5) + 0.9 * math.log(0.9 / 0.8)))
    bentkus = math.e * binomtest(10, 100, 0.2, alternative="less").pvalue
    found = p_value([Sample(values, 0.0, 1.0)], 0.2, "hoeffding_bentkus")
    assert found == pytest.approx(min(hoeffding, bentkus))


@pytest.mark.parametrize("method", ["betting", "hoeffding_bentkus", "clopper_pearson"])
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_a_mean_at_the_target_is_rarely_certified(method, rate):
    rng = np.random.default_rng(5)
    wrong = sum(
        p_value([Sample(bernoulli(rng, 300, rate), 0.0, 1.0)], rate, method) <= LEVEL for _ in range(500)
    )
    assert wrong / 500 <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 500)


@pytest.mark.slow
def test_a_gap_at_the_target_is_rarely_certified_and_a_small_one_often():
    rng = np.random.default_rng(6)

    def certified(gap):
        first = Sample(bernoulli(rng, 500, 0.3 + gap), 0.0, 1.0)
        second = Sample(-bernoulli(rng, 900, 0.3), -1.0, 0.0)
        return p_value([first, second], 0.1) <= LEVEL

    assert np.mean([certified(0.1) for _ in range(300)]) <= LEVEL + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert np.mean([certified(0.0) for _ in range(100)]) > 0.7


def test_a_pair_is_narrower_than_two_bounds_and_wider_than_the_normal_law():
    rng = np.random.default_rng(7)
    first, second = Sample(rng.random(2000), 0.0, 1.0), Sample(-rng.random(1500), -1.0, 0.0)
    estimate = first.mean + second.mean
    together = upper([first, second]) - estimate
    apart = upper([first, second], independent=False) - estimate
    normal = 1.645 * math.sqrt(1 / 12 / 2000 + 1 / 12 / 1500)
    assert normal < together < 0.8 * apart


@pytest.mark.slow
def test_no_division_of_a_target_between_two_means_is_spared():
    """The evidence for a pair is at most the log-capital at every division, on a fine grid."""
    rng = np.random.default_rng(8)
    pair = make_bound(
        [Sample(rng.random(300), 0, 1), Sample(-rng.random(200), -1, 0)], "betting", LEVEL, True
    )
    target = 0.12
    cuts = np.linspace(0, 1, 5001)
    inside = (target - cuts >= -1) & (target - cuts <= 0)
    (points, logs), (other_points, other_logs) = pair.bound.capitals
    best = max(
        min(
            np.logaddexp(math.log(0.1), math.log(0.9) + np.interp(a, points, mine))
            + np.logaddexp(math.log(0.1), math.log(0.9) + np.interp(target - a, other_points, other))
            for a in cuts[inside]
        )
        for mine, other in zip(logs, other_logs, strict=True)
    )
    assert pair.log_e_value(target) <= best + 1e-12
    assert pair.log_e_value(target) == pytest.approx(max(best, 0.0), abs=0.1)


def test_sorted_rows_say_what_shuffled_rows_say():
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(300):
        values = np.sort(bernoulli(rng, 300, 0.3))  # all zeros first: a gambler's dream
        wrong += p_value([Sample(values, 0.0, 1.0)], 0.3) <= LEVEL
    assert wrong / 300 <= LEVEL + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_weights_move_the_mean_that_is_judged():
    """Half of the rows count four times: the weighted mean is at the target, the plain one far below."""
    rng = np.random.default_rng(10)

    def sample(rate_heavy):
        heavy = np.arange(1000) % 2 == 0
        values = np.where(heavy, bernoulli(rng, 1000, rate_heavy), 0.0)
        return Sample(values, 0.0, 1.0, np.where(heavy, 1.0, 0.25))

    at_target = [p_value([sample(0.5)], 0.4) <= LEVEL for _ in range(300)]  # weighted mean .5 * .8
    assert np.mean(at_target) <= LEVEL + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert np.mean([p_value([sample(0.35)], 0.4) <= LEVEL for _ in range(50)]) > 0.9
    with pytest.raises(OptionError, match="weights"):
        p_value([sample(0.5)], 0.4, "hoeffding_bentkus")


def test_equal_weights_change_nothing():
    values = np.random.default_rng(0).random(500)
    weighted = Sample(values, 0.0, 1.0, np.ones(500))
    assert p_value([weighted], 0.55) == pytest.approx(p_value([Sample(values, 0.0, 1.0)], 0.55))


def test_many_rows_are_bundled_without_loss():
    rng = np.random.default_rng(1)
    sample = Sample(bernoulli(rng, 400_000, 0.1), 0.0, 1.0)
    width = upper([sample]) - sample.mean
    assert width == pytest.approx(math.sqrt(2 * math.log(20) * 0.09 / 400_000), rel=0.35)


def test_samples_of_one_row_or_none_promise_nothing():
    empty = Sample(np.zeros(0), 0.0, 1.0)
    assert upper([empty]) == 1.0
    assert p_value([empty], 0.9) == 1.0
    one = Sample(np.zeros(1), 0.0, 1.0)
    assert upper([one, one]) == pytest.approx(2.0)
    for method in ("hoeffding_bentkus", "clopper_pearson"):
        assert upper([empty], method) == pytest.approx(1.0)


def test_constants_shift_the_target():
    values = np.random.default_rng(0).random(200)
    fixed = Sample(np.full(5, 0.25), 0.25, 0.25)
    assert upper([Sample(values, 0, 1), fixed]) == pytest.approx(upper([Sample(values, 0, 1)]) + 0.25)


def test_other_units_scale_the_bound():
    values = np.random.default_rng(2).random(300)
    bound = upper([Sample(values, 0.0, 1.0)])
    assert upper([Sample(-3 + 10 * values, -3.0, 7.0)]) == pytest.approx(-3 + 10 * bound, abs=1e-5)


def test_clopper_pearson_refuses_chances():
    with pytest.raises(OptionError, match=r"not random.*decisions=, or use method='betting'") as caught:
        make_bound([Sample(np.array([0.0, 0.5]), 0.0, 1.0)], "clopper_pearson", LEVEL, True)
    assert caught.value.remedy == Remedy("pass_decisions")


@pytest.mark.parametrize("method", ["hoeffding_bentkus", "clopper_pearson"])
def test_weights_are_for_betting(method):
    weighted = Sample(np.array([0.0, 1.0]), 0.0, 1.0, np.array([0.5, 1.0]))
    with pytest.raises(OptionError, match=f"{method} takes no weights; use method='betting'") as caught:
        make_bound([weighted], method, LEVEL, True)
    assert caught.value.remedy == Remedy("choose_method", "betting")


def test_holm_by_hand():
    # Sorted: .01 x 3, .02 x 2, .04 x 1, and never falling.
    assert adjust_holm([0.04, 0.01, math.nan, 0.02])[0:2] == pytest.approx([0.04, 0.03])
    assert adjust_holm([0.04, 0.01, math.nan, 0.02])[3] == pytest.approx(0.04)
    assert math.isnan(adjust_holm([0.04, 0.01, math.nan, 0.02])[2])
    assert adjust_holm([0.5, 0.9]) == [1.0, 1.0]
