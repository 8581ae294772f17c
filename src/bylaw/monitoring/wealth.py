"""Wealth: what a player has who bets, round by round, that a rule is broken.

A round pays x, of mean at most zero while the rule holds and never below -1. Who stakes the share s of his
money on each round has prod(1 + s x) of what he brought (Waudby-Smith and Ramdas, 2024). Stakes are a few
fixed ones, with equal money on each: no stake is best for all violations, and none depends on the rows.

Money is brought in every `EPOCH` rounds, so that a player who comes after the rule was broken has not lost
his before.

- Of deposits w_1, w_2, ... that add up to one, all that was made of them and what is left to deposit is an
  e-process: while the rule holds, it ever reaches 1/a with probability a at most (Ville, 1939).
- Of deposits of one each it is an e-detector of Shiryaev-Roberts type (Shin, Ramdas and Rinaldo, 2024):
  while the rule holds, the mean number of deposits until it reaches A is A at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats

STAKES = np.array([0.95, 0.3, 0.1, 0.03])
EPOCH = 32  # rounds between deposits
_NOTHING = np.full(len(STAKES), -np.inf)


class Course(NamedTuple):
    """The logarithms of the e-process and of the e-detector after each round, (n_rounds,)."""

    ever: Floats
    change: Floats


@dataclass(frozen=True)
class Wealth:
    """After some rounds; arrays have an entry for each stake."""

    rounds: int = 0
    factors: Floats = field(default_factory=lambda: np.zeros(len(STAKES)))  # log of prod(1 + s x)
    ever: Floats = field(default_factory=_NOTHING.copy)  # log of deposits, each over its factors before
    change: Floats = field(default_factory=_NOTHING.copy)  # likewise

    def bet(self, payments: Floats) -> tuple[Wealth, Course]:
        """After rounds with these payments (n_rounds,), in order; and the course of it."""
        numbers = self.rounds + np.arange(float(len(payments)))
        deposits = numbers % EPOCH == 0
        gains = np.log1p(np.multiply.outer(STAKES, payments))
        factors = np.add.accumulate(np.column_stack([self.factors, gains]), axis=1)
        place, paid = np.cumsum(deposits), numbers[deposits] // EPOCH + 1
        before = factors[:, :-1][:, deposits]
        ever = _add_deposits(self.ever, np.log(weigh_deposit(paid)) - before)
        change = _add_deposits(self.change, -before)
        left = np.log(weigh_rest(numbers // EPOCH + 1))
        after = factors[:, 1:]
        course = Course(np.logaddexp(_mix(after + ever[:, place]), left), _mix(after + change[:, place]))
        return Wealth(self.rounds + len(payments), factors[:, -1], ever[:, -1], change[:, -1]), course


def weigh_deposit(number: Floats) -> Floats:
    """Of the first, second, ... deposit: about 1 / (k log(k)^2), so that late ones are not negligible."""
    return weigh_rest(number - 1) - weigh_rest(number)


def weigh_rest(number: Floats) -> Floats:
    """What is left after so many deposits: one before the first."""
    return math.log(2) / np.log(number + 2)


def _add_deposits(log_total: Floats, deposits: Floats) -> Floats:
    """(n_stakes, 1 + n_deposits): totals before the deposits and after each, all in logarithms."""
    return np.logaddexp.accumulate(np.column_stack([log_total, deposits]), axis=1)


def _mix(logs: Floats) -> Floats:
    """Of equal money on each stake."""
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))
