"""Wealth against a player who keeps every deposit apart, and its first rounds by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from bylaw.monitoring import wealth
from bylaw.monitoring.wealth import EPOCH, STAKES, Wealth, weigh_deposit, weigh_rest


def play(payments):
    """The e-process and the detector after each round, in logarithms: each deposit is a purse of its own."""
    ever, change = [], []
    purses: list[tuple[float, list[float]]] = []  # the deposit, and what each stake has made of one
    for number, paid in enumerate(payments):
        if number % EPOCH == 0:
            k = number // EPOCH + 1
            deposit = math.log(2) / math.log(k + 1) - math.log(2) / math.log(k + 2)
            purses.append((deposit, [1.0] * len(STAKES)))
        purses = [(d, [m * (1 + s * paid) for m, s in zip(made, STAKES, strict=True)]) for d, made in purses]
        rest = 1 - sum(d for d, _ in purses)
        ever.append(math.log(rest + sum(d * sum(made) / len(made) for d, made in purses)))
        change.append(math.log(sum(sum(made) / len(made) for _, made in purses)))
    return np.array(ever), np.array(change)


PAYMENTS = np.random.default_rng(0).uniform(-1, 1.4, 400)


def test_wealth_against_a_player_with_many_purses():
    found, course = Wealth().bet(PAYMENTS)
    ever, change = play(PAYMENTS)
    np.testing.assert_allclose(course.ever, ever, rtol=0, atol=1e-10)
    np.testing.assert_allclose(course.change, change, rtol=0, atol=1e-10)
    assert found.rounds == 400


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 100])
def test_any_cut_gives_the_same_bits(size):
    whole, course = Wealth().bet(PAYMENTS)
    parts, state = [], Wealth()
    for begin in range(0, len(PAYMENTS), size):
        state, part = state.bet(PAYMENTS[begin : begin + size])
        parts.append(part)
    for name in ("factors", "ever", "change"):
        assert getattr(state, name).tobytes() == getattr(whole, name).tobytes()
    assert np.concatenate([p.ever for p in parts]).tobytes() == course.ever.tobytes()
    assert np.concatenate([p.change for p in parts]).tobytes() == course.change.tobytes()


def test_the_first_rounds_by_hand():
    """Deposits of 1 - log 2 / log 3, then less; four stakes of equal money each."""
    x, stakes = [Fraction(1), Fraction(-1, 2)], [Fraction(str(s)) for s in STAKES]
    made = [math.prod(1 + s * y for y in x) for s in stakes]
    assert made[0] == Fraction("1.95") * Fraction("0.525")
    mean = float(sum(made) / 4)
    first = 1 - math.log(2) / math.log(3)
    _, course = Wealth().bet(np.array([1.0, -0.5]))
    assert course.change[0] == pytest.approx(math.log(1 + float(sum(stakes)) / 4))
    assert course.change[1] == pytest.approx(math.log(mean))
    assert course.ever[1] == pytest.approx(math.log(first * mean + 1 - first))


def test_deposits_come_every_epoch():
    """Where rounds pay nothing the e-process stays at one, and the detector counts its deposits."""
    _, course = Wealth().bet(np.zeros(3 * EPOCH + 1))
    assert course.ever == pytest.approx(0.0, abs=1e-12)
    assert np.exp(course.change) == pytest.approx(1 + np.arange(3 * EPOCH + 1) // EPOCH)


def test_deposits_add_up_to_one_at_most():
    numbers = np.arange(1.0, 10_001)
    paid = weigh_deposit(numbers)
    assert (paid > 0).all()
    assert weigh_rest(np.zeros(1))[0] == 1.0
    np.testing.assert_allclose(paid.cumsum() + weigh_rest(numbers), 1.0, rtol=0, atol=1e-12)


def test_wealth_of_fair_rounds_has_mean_one(monkeypatch):
    """Over all courses of seven fair rounds with three payments each: the e-process has mean one, and
    the detector the number of its deposits."""
    monkeypatch.setattr(wealth, "EPOCH", 3)
    ends, chances = np.array([-1.0, 0.25, 1.5]), np.array([0.4, 0.4, 0.2])
    assert chances @ ends == pytest.approx(0.0)
    total = np.zeros((2, 7))
    for drawn in itertools.product(range(3), repeat=7):
        _, course = Wealth().bet(ends[list(drawn)])
        total += chances[list(drawn)].prod() * np.exp(np.stack(course))
    assert total[0] == pytest.approx(1.0)
    assert total[1] == pytest.approx([1, 1, 1, 2, 2, 2, 3])


def test_the_worst_rounds_leave_something():
    found, course = Wealth().bet(np.full(5000, -1.0))
    assert np.isfinite(found.factors).all()
    assert np.isfinite(course.ever).all()
    assert np.isfinite(course.change).all()


def test_a_violation_that_comes_late_is_found_soon():
    """After 20,000 rounds that lost, new deposits win as soon as a player's who begins there."""
    rng = np.random.default_rng(1)
    quiet, broken = rng.choice([-0.3, 0.1], 20_000), rng.choice([-0.3, 0.5], 1000)
    _, course = Wealth().bet(np.concatenate([quiet, broken]))
    reached = int(np.flatnonzero(course.change[20_000:] > math.log(1000))[0])
    _, fresh = Wealth().bet(broken)
    alone = int(np.flatnonzero(fresh.change > math.log(1000))[0])
    assert reached <= alone + 2 * EPOCH
    assert course.ever[-1] > math.log(1e3)


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated():
    """Fair coins, 400 players: at most one in ten ever has ten times the money, and the mean number of
    deposits until the detector is at 20 is 20 at least (here it is above even if censored ones stop)."""
    rng = np.random.default_rng(2)
    reached, deposits = 0, []
    for _ in range(400):
        _, course = Wealth().bet(rng.choice([-0.8, 0.8], 64 * EPOCH))
        reached += (course.ever >= math.log(10)).any()
        over = np.flatnonzero(course.change >= math.log(20))
        deposits.append(1 + (over[0] if len(over) else 64 * EPOCH) // EPOCH)
    assert reached <= 40 + 3 * math.sqrt(400 * 0.1 * 0.9)
    assert np.mean(deposits) >= 20
