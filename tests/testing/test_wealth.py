"""Wealth against a player who keeps every deposit apart, and its first rounds by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bylaw.testing import _wealth as wealth
from bylaw.testing._wealth import BLOCK, N_ALTERNATIVES, Wealth, weigh_rest

STAKES = 0.9 * 0.5 ** np.arange(N_ALTERNATIVES)
KEPT = 1e-3  # of the money, which is not staked


def make_factors(payments):
    return 1 + np.outer(STAKES, payments)


def play(factors, every):
    """The e-process and the detector after each round, in logarithms: each deposit is a purse of its own."""
    ever, change = [], []
    purses: list[tuple[float, np.ndarray]] = []  # the deposit of the e-process, and what was made of one
    for number, factor in enumerate(factors.T):
        deposit = 0.0
        if number % (every * BLOCK) == 0:
            k = number // (every * BLOCK) + 1
            deposit = math.log(2) / math.log(k + 1) - math.log(2) / math.log(k + 2)
        purses.append((deposit, np.ones(N_ALTERNATIVES)))
        purses = [(d, made * ((1 - KEPT) * factor + KEPT)) for d, made in purses]
        rest = 1 - sum(d for d, _ in purses)
        ever.append(math.log(rest + sum(d * made.mean() for d, made in purses)))
        change.append(math.log(sum(made.mean() for _, made in purses)))
    return np.array(ever), np.array(change)


FACTORS = make_factors(np.random.default_rng(0).uniform(-1, 1.2, 400))


@pytest.mark.parametrize("every", [1, 3])
def test_wealth_against_a_player_with_many_purses(every):
    found, course = Wealth().bet(FACTORS, every)
    ever, change = play(FACTORS, every)
    np.testing.assert_allclose(course[0], ever, rtol=0, atol=1e-10)
    np.testing.assert_allclose(course[1], change, rtol=0, atol=1e-10)
    assert found.rounds == 400


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 100])
def test_any_cut_gives_the_same_bits(size):
    whole, course = Wealth().bet(FACTORS, 3)
    parts, state = [], Wealth()
    for begin in range(0, FACTORS.shape[1], size):
        state, part = state.bet(FACTORS[:, begin : begin + size], 3)
        parts.append(part)
    for name in ("ever", "change", "product", "inverses"):
        assert getattr(state, name).tobytes() == getattr(whole, name).tobytes()
    assert np.concatenate(parts, axis=1).tobytes() == course.tobytes()


def test_where_rounds_pay_nothing():
    """The e-process stays where it began, and the detector counts its deposits."""
    _, course = Wealth(log_start=math.log(3)).bet(np.ones((N_ALTERNATIVES, 3 * BLOCK + 1)))
    assert course[0] == pytest.approx(math.log(3), abs=1e-12)
    assert np.exp(course[1]) == pytest.approx(1 + np.arange(3 * BLOCK + 1))


def test_deposits_add_up_to_one_at_most():
    numbers = np.arange(1.0, 10_001)
    paid = weigh_rest(numbers - 1) - weigh_rest(numbers)
    assert (paid > 0).all()
    assert weigh_rest(np.zeros(1))[0] == 1.0
    np.testing.assert_allclose(paid.cumsum() + weigh_rest(numbers), 1.0, rtol=0, atol=1e-12)


def test_wealth_of_fair_rounds_has_mean_one(monkeypatch):
    """Over all courses of seven fair rounds with three payments each: the e-process has mean one, and
    the detector the number of its deposits."""
    monkeypatch.setattr(wealth, "BLOCK", 3)
    ends, chances = np.array([-1.0, 0.25, 1.5]), np.array([0.4, 0.4, 0.2])
    assert chances @ ends == pytest.approx(0.0)
    total = np.zeros((2, 7))
    for drawn in itertools.product(range(3), repeat=7):
        _, course = Wealth().bet(make_factors(ends[list(drawn)]))
        total += chances[list(drawn)].prod() * np.exp(course)
    assert total[0] == pytest.approx(1.0)
    assert total[1] == pytest.approx(1 + np.arange(7))


@pytest.mark.parametrize("factor", [0.0, 1e-9, 1e9])
def test_the_worst_and_the_best_rounds_leave_numbers_that_can_be_saved(factor):
    """Also in the middle of a block."""
    for n_rounds in (5000, 5017):
        found, course = Wealth().bet(np.full((N_ALTERNATIVES, n_rounds), factor))
        for name in ("ever", "change", "product", "inverses"):
            assert (np.abs(getattr(found, name)) <= 1e100).all()
        assert np.isfinite(course).all()


def test_a_violation_that_comes_late_is_found_soon():
    """After 20,000 rounds that lost, new deposits win as soon as those of a player who begins there."""
    rng = np.random.default_rng(1)
    quiet, broken = rng.choice([-0.3, 0.1], 20_000), rng.choice([-0.3, 0.5], 1000)
    _, course = Wealth().bet(make_factors(np.concatenate([quiet, broken])))
    reached = int(np.flatnonzero(course[1, 20_000:] > math.log(1000))[0])
    _, fresh = Wealth().bet(make_factors(broken))
    alone = int(np.flatnonzero(fresh[1] > math.log(1000))[0])
    assert reached <= alone
    assert course[0, -1] > math.log(1e3)


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated():
    """Fair coins, 400 players: at most one in ten ever has ten times the money, and the mean number of
    rounds until the detector is at 200 is 200 at least (here it is above even if censored ones stop)."""
    rng = np.random.default_rng(2)
    reached, rounds = 0, []
    for _ in range(400):
        _, course = Wealth().bet(make_factors(rng.choice([-0.8, 0.8], 64 * BLOCK)))
        reached += (course[0] >= math.log(10)).any()
        over = np.flatnonzero(course[1] >= math.log(200))
        rounds.append(1 + over[0] if len(over) else 64 * BLOCK)
    assert reached <= 40 + 3 * math.sqrt(400 * 0.1 * 0.9)
    assert np.mean(rounds) >= 200
