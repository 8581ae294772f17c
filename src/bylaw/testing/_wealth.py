"""Wealth: the money of a player who bets, round by round, that a rule is violated.

Each round multiplies the money on an alternative by a factor whose mean is at most one while the rule is
satisfied. Money is deposited again and again, in equal parts on all alternatives, so that a late violation is
still detected: late deposits have not lost money before it.

- For deposits w_1, w_2, ... with a sum of one, the money made of them plus the deposits to come is an
  e-process: while the rule is satisfied, it ever reaches 1/a with probability at most a (Ville, 1939).
- For deposits of one before every round, the money is an e-detector of Shiryaev-Roberts type (Shin, Ramdas
  and Rinaldo, 2024): while the rule is satisfied, the mean number of rounds until it reaches A is at least A.

With R the product of factors since the start of a block of rounds, the money of a deposit before round j is
R_t / R_{j-1} after round t. Sums of these are kept in blocks, so that no product overflows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bylaw._base import Floats

N_ALTERNATIVES = 7  # alternatives to the rule, on which the money is bet
BLOCK = 32  # rounds in a block
_MOST = 1e100  # the largest amount of money that is recorded


@dataclass(frozen=True)
class Wealth:
    """The wealth after some rounds of bets against one rule; arrays have an entry for each alternative."""

    rounds: int = 0  # number of rounds
    ever: Floats = field(default_factory=lambda: np.zeros(N_ALTERNATIVES))  # e-process at the block's start
    change: Floats = field(
        default_factory=lambda: np.zeros(N_ALTERNATIVES)
    )  # e-detector at the block's start
    product: Floats = field(default_factory=lambda: np.ones(N_ALTERNATIVES))  # of factors in the block
    inverses: Floats = field(default_factory=lambda: np.zeros(N_ALTERNATIVES))  # the sum of 1 / R_{j-1}
    log_start: float = 0.0  # log of the e-process before the first round

    def bet(self, factors: Floats, every: int = 1) -> tuple[Wealth, Floats]:
        """Return the wealth after further rounds, and its course.

        `factors` are (n_alternatives, n_rounds). The course (2, n_rounds) has the logarithms of the e-process
        and of the e-detector after each round. The e-process gets a deposit at the start of every `every`-th
        block.
        """
        n_rounds, offset, first = factors.shape[1], self.rounds % BLOCK, self.rounds // BLOCK
        n_blocks = -(-(offset + n_rounds) // BLOCK)
        shape = (N_ALTERNATIVES, n_blocks, BLOCK)
        played = slice(offset, offset + n_rounds)
        # Fill blocks of rounds; what was played of the first is summed up in its last place before these.
        steps = np.ones((N_ALTERNATIVES, n_blocks * BLOCK))
        # A part of the money is not staked, and factors are bounded, so that no product overflows.
        steps[:, played] = np.minimum(0.999 * factors + 0.001, 1000.0)
        if offset:
            steps[:, offset - 1] = self.product
        products = np.multiply.accumulate(steps.reshape(shape), axis=2)
        inverses = np.empty(shape)
        inverses[:, :, 0] = 1.0
        np.divide(1.0, products[:, :, :-1], out=inverses[:, :, 1:])
        if offset:
            inverses[:, 0, :offset] = 0.0
            inverses[:, 0, offset - 1] = self.inverses
        inverses = np.add.accumulate(inverses, axis=2)
        # Carry the money from block to block.
        blocks = first + np.arange(n_blocks)
        number = blocks // every + 1.0  # of the latest deposit
        deposits = np.where(blocks % every == 0, weigh_rest(number - 1) - weigh_rest(number), 0.0)
        begun = np.empty((n_blocks, 2, N_ALTERNATIVES))
        money = np.stack([self.ever, self.change])
        ends = products[:, :, -1].T
        added = np.empty((n_blocks, 2, N_ALTERNATIVES))
        added[:, 0], added[:, 1] = deposits[:, None], inverses[:, :, -1].T
        for block in range(n_blocks):
            begun[block] = money
            money = np.minimum(ends[block] * (money + added[block]), _MOST)
        rest = weigh_rest(number)[:, None]
        made = (products * (begun[:, 0].T + deposits)[:, :, None]).mean(axis=0) + rest
        detected = (products * (begun[:, 1].T[:, :, None] + inverses)).mean(axis=0)
        course = np.log([np.minimum(x.ravel()[played], _MOST) for x in (made, detected)])
        course[0] += self.log_start
        rounds = self.rounds + n_rounds
        product, spent = np.ones(N_ALTERNATIVES), np.zeros(N_ALTERNATIVES)
        if place := rounds % BLOCK:
            money = begun[-1]
            product, spent = products[:, -1, place - 1].copy(), inverses[:, -1, place - 1].copy()
        return Wealth(rounds, money[0].copy(), money[1].copy(), product, spent, self.log_start), course


def weigh_rest(number: Floats) -> Floats:
    """Return the share of the e-process's money that is still to be deposited after `number` deposits.

    It is one before the first. The k-th deposit is the difference of two such shares, about 1 / (k log(k)^2),
    so that late deposits are not too small.
    """
    return math.log(2) / np.log(number + 2)
