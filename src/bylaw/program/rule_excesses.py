"""By how much a policy exceeds the bounds of its rules, and how precisely rows can tell."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from operator import add

import numpy as np

from bylaw._base.matrices import Matrix
from bylaw._base.typing import Floats
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual
from bylaw.program.linear_form import LinearForm
from bylaw.program.passes import Support

_ROWS = 1024  # at a time: there may be thousands of rules


@dataclass(frozen=True)
class RuleExcesses:
    """Sums over rows; those of different rows add up. M rules, in the dual's units."""

    mass: float  # sum of weights w
    squared_mass: float  # sum of w^2
    value: float  # sum of w times the dual's value
    excesses: Floats  # (M,): sum of w (c_j - b_j)
    scaled: Floats  # (M,): sum of w^2 (c_j - b_j)
    squares: Floats  # (M,): sum of w^2 (c_j - b_j)^2

    def __add__(self, other: RuleExcesses) -> RuleExcesses:
        return RuleExcesses(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    @property
    def mean(self) -> Floats:
        """(M,): E[c_j] - b_j, above zero where a rule is missed."""
        return self.excesses / self.mass

    @property
    def standard_errors(self) -> Floats:
        """(M,): of the mean."""
        spread = self.squares - 2 * self.mean * self.scaled + self.mean**2 * self.squared_mass
        return np.sqrt(np.maximum(spread, 0.0)) / self.mass


@dataclass(frozen=True)
class ExcessPass:
    """The excesses of the policy with scores features' score_matrix."""

    form: LinearForm
    multipliers: Floats  # (M,)
    beta: float
    support: Support
    couplings: Matrix  # (M, Q), at the places of the support

    def __call__(self, block: Block) -> RuleExcesses:
        starts = range(0, block.n_rows, _ROWS)
        return reduce(add, (self._measure(block.rows(slice(first, first + _ROWS))) for first in starts))

    def _measure(self, block: Block) -> RuleExcesses:
        form, support, weights = self.form, self.support, block.row_weights
        probabilities = block.scores(self.beta * form.score_matrix(self.multipliers))
        potential = float(form.action_space.to_probabilities(probabilities) @ weights) / self.beta
        places = block.features[support.features] * probabilities[support.actions]
        costs = self.couplings @ places - form.bounds[:, None]
        constant = float(form.bounds @ self.multipliers) - form.base_constant
        return RuleExcesses(
            mass=block.mass,
            squared_mass=float(weights @ weights),
            value=potential + block.mass * constant,
            excesses=costs @ weights,
            scaled=costs @ weights**2,
            squares=costs**2 @ weights**2,
        )


def measure_excesses(dual: Dual, multipliers: Floats) -> RuleExcesses:
    """Of the policy of these multipliers, on the rows of the dual."""
    return dual.total(ExcessPass(dual.form, multipliers, dual.beta, *dual.support))[0]
