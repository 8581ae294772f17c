"""By how much a policy exceeds the bounds of its rules, and how precisely rows can tell."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from operator import add

import numpy as np

from bylaw._base.typing import Floats
from bylaw.formulation.dual import Block, Dual

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


def measure_excesses(dual: Dual, multipliers: Floats) -> RuleExcesses:
    """Of the policy of these multipliers, on the rows of the dual."""
    parts = (
        _measure(dual, multipliers, block.rows(slice(first, first + _ROWS)))
        for block in dual.blocks
        for first in range(0, block.n_rows, _ROWS)
    )
    return reduce(add, parts)


def _measure(dual: Dual, multipliers: Floats, block: Block) -> RuleExcesses:
    form, (support, couplings) = dual.form, dual.support
    weights = block.row_weights
    probabilities = block.scores(dual.beta * form.score_matrix(multipliers))
    potential = float(form.action_space.to_probabilities(probabilities) @ weights) / dual.beta
    places = block.features[support.features] * probabilities[support.actions]
    costs = couplings @ places - form.bounds[:, None]
    constant = float(form.bounds @ multipliers) - form.base_constant
    return RuleExcesses(
        mass=block.mass,
        squared_mass=float(weights @ weights),
        value=potential + block.mass * constant,
        excesses=costs @ weights,
        scaled=costs @ weights**2,
        squares=costs**2 @ weights**2,
    )
