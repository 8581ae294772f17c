"""Betting: every sequence of small samples counted exactly, simulation with known truth, other methods."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from bylaw.testing import _betting as betting
from bylaw.testing._betting import BettingTest, Sample, find_bounds, find_p_values
from bylaw.testing._confidence_bounds import make_test

LEVEL = 0.05


def make_sample(values, low, high):
    """Rows that are all in the event and count alike."""
    return Sample(np.ones(len(values)), values, low, high)


def mean(values, low=0.0, high=1.0):
    return BettingTest([make_sample(np.asarray(values, float), low, high)], disjoint=True)


def gap(inside, values, nested=False):
    """Mean inside less the mean outside, or of all rows."""
    sizes = np.asarray(inside, float)
    others = np.ones(len(sizes)) if nested else 1 - sizes
    samples = [Sample(sizes, sizes * values, 0.0, 1.0), Sample(others, -others * values, -1.0, 0.0)]
    return BettingTest(samples, disjoint=not nested)


def limit(repetitions, level=LEVEL):
    return level + 3 * math.sqrt(level * (1 - level) / repetitions)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "sign"), [(0.3, 1), (0.5, -1), (0.8, 1)])
def test_of_all_sequences_those_that_refute_a_true_hypothesis_are_rare(rate, sign):
    """All 256 sequences of eight rows, with their probabilities: no simulation."""
    level, wrong = 0.3, 0.0
    for rows in itertools.product((0.0, 1.0), repeat=8):
        chance = rate ** sum(rows) * (1 - rate) ** (8 - sum(rows))
        wrong += chance * (mean(rows).p_value(rate, level, sign) <= level)
    assert 0 < wrong <= level + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_of_all_sequences_of_two_groups_likewise(nested):
    """All 1,024 sequences of five rows in or out of a group, of which half are, with rates of .6 and .2."""
    level, wrong = 0.5, 0.0
    target = 0.4 if not nested else 0.2
    for rows in itertools.product(((1, 1), (1, 0), (0, 1), (0, 0)), repeat=5):
        inside, values = np.array(rows, float).T
        if inside.min() == inside.max():
            continue
        rates = np.where(inside == 1, 0.6, 0.2)
        chance = 0.5**5 * np.prod(np.where(values == 1, rates, 1 - rates))
        wrong += chance * (gap(inside, values, nested).p_value(target, level) <= level)
    assert 0 < wrong <= level


def test_a_row_in_two_events_can_lose_in_both():
    """All 64 sequences of six rows in two events that overlap on every row: their sum is twice the mean."""
    level, rate, wrong = 0.3, 0.4, 0.0
    for rows in itertools.product((0.0, 1.0), repeat=6):
        sample = make_sample(np.array(rows), 0.0, 1.0)
        chance = rate ** sum(rows) * (1 - rate) ** (6 - sum(rows))
        p_value = BettingTest([sample, sample], disjoint=False).p_value(2 * rate, level)
        assert 0 <= p_value <= 1
        wrong += chance * (p_value <= level)
    assert wrong <= level


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rate"), [(100, 0.1), (500, 0.5), (10_000, 0.001)])
def test_a_mean_at_the_target_is_rarely_certified(n, rate):
    rng = np.random.default_rng(5)
    wrong = np.mean([mean(rng.random(n) < rate).p_value(rate, LEVEL) <= LEVEL for _ in range(120)])
    assert wrong <= limit(120)


def test_where_each_row_has_one_of_two_values_betting_is_the_exact_test():
    """Up to the last row, which is bet on by itself: for both sides, and in any order."""
    rng = np.random.default_rng(0)
    for rate, n in ((0.08, 1000), (0.5, 60), (0.02, 100)):
        values = (rng.random(n) < rate).astype(float)
        for target, sign in ((1.3 * rate, 1), (0.7 * rate, -1)):
            k = values[:-1].sum()
            tails = [
                binom.cdf(k + z, n, target) if sign > 0 else binom.sf(k + z - 1, n, target) for z in (0, 1)
            ]
            found = mean(values).p_value(target, LEVEL, sign)
            assert min(tails) - 1e-12 <= found <= max(tails) + 1e-12
            assert make_test([make_sample(values, 0.0, 1.0)], "betting", True).p_value(
                target, LEVEL, sign
            ) == pytest.approx(tails[int(values[-1])])


def test_of_all_sequences_with_a_third_value_those_that_refute_are_rare():
    """All 6,561 sequences of eight rows that are zero, a half or one: the first half ends the counting. The
    p-value is valid at its level and at any other."""
    chances, level = {0.0: 0.5, 0.5: 0.2, 1.0: 0.3}, 0.3
    target = sum(value * chance for value, chance in chances.items())
    for sign in (1, -1):
        found = []
        for rows in itertools.product(chances, repeat=8):
            test = make_test([make_sample(np.array(rows), 0.0, 1.0)], "betting", True)
            found.append((test.p_value(target, level, sign), math.prod(chances[value] for value in rows)))
        p_values, weights = np.array(found).T
        for threshold in (0.1, level, 0.6):
            assert weights[p_values <= threshold].sum() <= threshold + 1e-9


def test_stakes_do_not_depend_on_rows_to_come():
    """Two samples that differ in the values of their last hundred rows alone."""
    rng = np.random.default_rng(0)
    inside, values = rng.random(200) < 0.3, rng.random(200)
    other = np.where(np.arange(200) < 100, values, values**4)
    for nested in (False, True):
        martingales = []
        for column in (values, other):
            test = gap(inside, column, nested)
            sign = np.array([1.0, -1.0])
            martingales.append(test.set_up(betting.Targets(test, sign, 0.3 * sign, np.full(2, LEVEL))))
        before = 100  # one row is one block
        guessed = martingales[0].direction.shape[2] // 2
        first, second = ((one.reach[:before], one.direction[:before, :, :guessed]) for one in martingales)
        assert all((a == b).all() for a, b in zip(first, second, strict=True))
        assert (martingales[0].direction[:, :, guessed:] != martingales[1].direction[:, :, guessed:]).any()


@pytest.mark.slow
def test_power_is_close_to_that_of_an_exact_test():
    """At a true rate of .08, a target of .1 and 1,000 rows."""
    rng = np.random.default_rng(0)
    samples = rng.random((150, 1000)) < 0.08
    exact = np.mean(binom.cdf(samples.sum(axis=1), 1000, 0.1) <= LEVEL)
    tests = [make_test([make_sample(sample * 1.0, 0.0, 1.0)], "betting", True) for sample in samples]
    found = np.mean([test.p_value(0.1, LEVEL) <= LEVEL for test in tests])
    assert found == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_a_gap_of_a_small_group_is_nearly_as_narrow_as_the_normal_distribution(nested):
    rng = np.random.default_rng(1)
    ratios, wrong = [], 0
    for _ in range(20):
        inside = rng.random(3000) < 0.05
        values = (rng.random(3000) < 0.3).astype(float)
        test = gap(inside, values, nested)
        _, upper = test.bounds(LEVEL)
        spread = np.var(values) * (1 / inside.sum() + 1 / (~inside).sum())
        scale = (1 - inside.mean()) if nested else 1.0
        ratios.append((upper - test.estimate) / (1.645 * math.sqrt(spread) * scale))
        wrong += upper < 0
    assert np.mean(ratios) <= 1.3
    assert wrong <= 20 * limit(20)


def test_a_bound_is_the_target_at_which_the_evidence_suffices():
    rng = np.random.default_rng(0)
    for test in (mean(rng.random(400) < 0.2), gap(rng.random(900) < 0.3, rng.random(900))):
        lower, upper = test.bounds(LEVEL)
        assert lower < test.estimate < upper
        assert test.p_value(upper, LEVEL) <= LEVEL < test.p_value(upper - 0.004, LEVEL)
        assert test.p_value(lower, LEVEL, -1) <= LEVEL < test.p_value(lower + 0.004, LEVEL, -1)


def test_rare_events_among_many_rows():
    """Rows that are bet on in bundles: not a single one of a million rows has the event."""
    _, upper = mean(np.zeros(1_000_000)).bounds(LEVEL)
    assert 3.0e-6 < upper < 6e-6  # the exact bound is -log(.05) / n
    rng = np.random.default_rng(0)
    rare = (rng.random(400_000) < 5e-4).astype(float)
    _, upper = mean(rare).bounds(LEVEL)
    exact = 1.645 * math.sqrt(rare.mean() / 400_000)
    assert upper - rare.mean() < 1.3 * exact


def test_constant_values_and_single_rows():
    assert mean(np.zeros(1)).bounds(LEVEL) == (0.0, 1.0)
    fixed = BettingTest([make_sample(np.full(5, 0.25), 0.25, 0.25)], disjoint=True)
    assert fixed.bounds(LEVEL) == (0.25, 0.25)
    assert fixed.p_value(0.25, LEVEL) == 0.0
    assert fixed.p_value(0.24, LEVEL) == 1.0
    assert fixed.p_value(0.25, LEVEL, -1) == 1.0  # a rule that holds exactly is not broken
    assert mean(np.zeros(100)).p_value(0.0, LEVEL, -1) == 1.0


def test_other_units_scale_the_bound():
    values = np.random.default_rng(2).random(300)
    low, high = mean(values).bounds(LEVEL)
    scaled = mean(-3 + 10 * values, -3.0, 7.0).bounds(LEVEL)
    assert scaled == pytest.approx((-3 + 10 * low, -3 + 10 * high), abs=1e-9)


@pytest.mark.slow
def test_weights_move_the_mean_that_is_judged():
    """Half of the rows count four times: the weighted mean is at the target, the plain one far below."""
    rng = np.random.default_rng(10)

    def certified(rate_heavy):
        heavy = rng.random(1000) < 0.5
        sizes = np.where(heavy, 1.0, 0.25)
        values = np.where(heavy, rng.random(1000) < rate_heavy, 0.0)
        return BettingTest([Sample(sizes, sizes * values, 0.0, 1.0)], True).p_value(0.4, LEVEL) <= LEVEL

    assert np.mean([certified(0.5) for _ in range(80)]) <= limit(80)  # weighted mean .5 * .8
    assert np.mean([certified(0.4) for _ in range(20)]) > 0.9


@pytest.mark.slow
def test_predictions_sharpen_and_never_mislead():
    """Good predictions, and predictions that are wrong: the difference has a mean of zero in both."""
    rng = np.random.default_rng(3)
    for good in (True, False):
        wrong, widths, plain = 0, 0.0, 0.0
        for _ in range(30):
            chance = rng.beta(0.3, 0.3, 400)
            values = (rng.random(400) < chance).astype(float)
            predicted, others = chance, rng.beta(0.3, 0.3, (400, 10)).mean(axis=1)
            if not good:
                predicted, others = 1 - predicted, 1 - others
            zero = np.zeros(400)
            sample = Sample(np.ones(400), values, 0.0, 1.0, (zero, predicted - others))
            low, high = BettingTest([sample], True).bounds(LEVEL)
            wrong += high < 0.5
            widths += high - low
            low, high = mean(values).bounds(LEVEL)
            plain += high - low
        assert wrong <= 30 * limit(30)
        assert widths < (0.75 if good else 1.04) * plain  # rows of two values are counted only without them


@pytest.mark.parametrize("seed", range(4))
def test_the_nuisance_counts_where_it_is_worst(seed, monkeypatch):
    """As much is proved as for the worse end of the other mean's interval, and not more."""
    rng = np.random.default_rng(seed)
    inside, values = rng.random(150) < 0.2, (rng.random(150) < 0.4).astype(float)
    test = gap(inside, values)
    target = test.estimate + 0.25
    at_ends = []
    for end in betting._confine(test.samples[1], 0.02 * LEVEL):
        monkeypatch.setattr(betting, "_confine", lambda *_, end=end: (end, end))
        at_ends.append(gap(inside, values).p_value(target, LEVEL))
    monkeypatch.undo()
    assert test.p_value(target, LEVEL) >= 0.99 * max(at_ends) > 1.01 * min(at_ends)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2**14, 2**21])
def test_what_is_tested_together_is_as_if_tested_alone(most, monkeypatch):
    """To the last bit: of few rows and many, of means and gaps, however many fit together."""
    rng = np.random.default_rng(5)
    rows = [rng.random(n) for n in (3, 40, 41, 950, 1000, 9000, 9050)]
    tests = [mean(values) for values in rows]
    tests += [gap(rng.random(len(values)) < 0.3, values, nested) for values in rows[2:4] for nested in (0, 1)]
    asked = [[(0.05, 1), (0.001, -1)], [(0.2, 1)]]
    alone = [test.bounds(LEVEL) for test in tests]
    p_alone = [[find_p_values([(test, 0.45, pairs)])[0] for pairs in asked] for test in tests]
    monkeypatch.setattr(betting, "_MOST_VALUES", most)
    assert find_bounds(tests, LEVEL) == alone
    assert find_bounds(tests[::-1], LEVEL) == alone[::-1]
    found = find_p_values([(test, 0.45, pairs) for test in tests for pairs in asked])
    assert found == [p_values for both in p_alone for p_values in both]
    assert find_bounds([], LEVEL) == []
    assert find_p_values([]) == []


def test_levels_and_signs_asked_together_are_those_asked_one_by_one():
    test = gap(np.arange(300) % 3 == 0, np.random.default_rng(6).random(300))
    questions = [(0.05, 1), (0.05, -1), (0.01, 1)]
    assert find_p_values([(test, 0.2, questions)])[0] == pytest.approx(
        [test.p_value(0.2, *one) for one in questions], rel=1e-12
    )
