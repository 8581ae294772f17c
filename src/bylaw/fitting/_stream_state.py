"""The state of a stream after its warm-up: compiled rules, an optimizer, and an incomplete tile of rows."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from bylaw._base import Floats
from bylaw.language import Conditions
from bylaw.policy import TableSum
from bylaw.program import (
    Block,
    Dual,
    Feature,
    FeatureMap,
    Guarantee,
    LinearForm,
    RateParts,
    RuleExcesses,
    Solution,
    Status,
    compile_parts,
    gradient_mapping,
    measure_excesses,
    replace_frequencies,
)
from bylaw.solvers import TILE_ROWS, SampledRows


@dataclass
class StreamState:
    """The state of a stream after its warm-up.

    Rows are processed in tiles of a fixed size, however they are divided into batches. The rates are measured
    on each tile before the optimizer uses it, so they are never measured on rows to which the policy was
    fitted. The frequencies of the `followed` conditions are means over the rows so far.
    """

    form: LinearForm
    mean_weight: float
    guarantee: Guarantee  # with the measured gradient mapping
    optimizer_state: Any
    waiting: Floats  # (F + E + 1, n < TILE_ROWS): features, P(followed conditions), weights of waiting rows
    followed: tuple[Conditions, ...] = ()  # the E conditions whose frequencies are updated
    followed_mass: float = 0.0  # sum of the weights of the rows in these frequencies
    warm_up: int = 0  # number of first rows, from which the first frequencies are estimated
    tiles: int = 0  # number of tiles so far
    measured: tuple[RuleExcesses, ...] = ()  # sums over about the last half of the tiles, in two parts
    value: float = 0.0  # measured value of the dual
    conflicting: bool = False  # the rows of the last tile prove that no policy satisfies the rules on them
    table: TableSum = field(default_factory=TableSum)  # hashes of all rows so far

    @property
    def feature_map(self) -> FeatureMap:
        """The features that are kept of each row: those of the rules and of the followed conditions."""
        chances = tuple(Feature(None, condition) for condition in self.followed)
        return replace(self.form.feature_map, features=(*self.form.feature_map.features, *chances))

    @property
    def excesses(self) -> RuleExcesses | None:
        """The excess of each rule (rate minus bound) on about the last half of the rows, or None."""
        return reduce(add, self.measured) if self.measured else None

    def add(self, block: Block) -> None:
        """Process the next rows, which have the features of `feature_map`."""
        weights = block.row_weights / self.mean_weight
        rows = np.hstack([self.waiting, np.vstack([block.features, weights])])
        whole = rows.shape[1] - rows.shape[1] % TILE_ROWS
        for first in range(0, whole, TILE_ROWS):
            self._take(rows[:, first : first + TILE_ROWS])
        self.waiting = rows[:, whole:].copy()

    def flush(self) -> StreamState:
        """Return a copy of the state that includes the waiting rows; they continue to wait in this state."""
        state = copy.copy(self)
        state.optimizer_state = copy.deepcopy(self.optimizer_state)
        if self.waiting.shape[1]:
            state._take(self.waiting)
        return state

    def solution(self) -> Solution:
        answer, steps = self.optimizer_state.answer.copy(), self.optimizer_state.steps
        status = Status.INFEASIBLE if self.conflicting else Status.SAMPLED
        return Solution(answer, status, self.guarantee.gradient_mapping, self.value, steps)

    @cached_property
    def _parts(self) -> RateParts:
        return compile_parts(replace(self.form, frequencies=dict.fromkeys(self.form.frequencies, 1.0)))

    def _take(self, rows: Floats) -> None:
        n_features, weights = len(self.form.feature_map.features), rows[-1]
        if self.followed:
            self._follow(rows[n_features:-1], weights)
        block = Block(np.ascontiguousarray(rows[:n_features]), weights.copy())
        dual = Dual(self.form, [block], self.guarantee.beta)
        steps = SampledRows.from_dual(dual, block.features.T.copy(), block.row_weights)
        if self.tiles:
            self._measure(dual)
            self.optimizer_state.advance(steps)
        else:  # before the first tile, the policy cannot be measured
            self.optimizer_state.advance(steps)
            self._measure(dual)
        self.tiles += 1
        answer = self.optimizer_state.answer
        self.conflicting = bool(dual.mass and dual.n_rules and dual.conflict(answer) > 0)

    def _follow(self, chances: Floats, weights: Floats) -> None:
        """Update the followed frequencies with those rows of a tile that come after the warm-up."""
        skipped = max(self.warm_up - self.tiles * TILE_ROWS, 0)
        chances, weights = chances[:, skipped:], weights[skipped:]
        if not (mass := float(weights.sum())):
            return
        self.followed_mass += mass
        before = np.array([self.form.frequencies[condition] for condition in self.followed])
        after = before + (chances @ weights - before * mass) / self.followed_mass
        frequencies = dict(zip(self.followed, after.tolist(), strict=True))
        self.form = replace_frequencies(self.form, self._parts, frequencies)

    def _measure(self, dual: Dual) -> None:
        """Measure the current policy on a tile; drop old measurements if the tile is a power of two."""
        if not dual.mass:
            return
        answer = self.optimizer_state.answer
        found = measure_excesses(dual, answer)
        if len(self.measured) < 2 or self.tiles & (self.tiles - 1) == 0:
            self.measured = (*self.measured[-1:], found)
        else:
            self.measured = (self.measured[0], self.measured[1] + found)
        total = reduce(add, self.measured)
        self.value = total.value / total.mass
        mapping = gradient_mapping(answer, -total.mean, self.guarantee.alpha)
        self.guarantee = replace(
            self.guarantee,
            gradient_mapping=float(np.linalg.norm(mapping)),
            multiplier_norm=float(np.linalg.norm(answer)),
            rows=float(self.table.rows),
            most_slack=math.nan if answer.any() else math.inf,
        )
