"""Rows whose decision does not depend on small moves of the multipliers, set aside.

Scores are W' phi. At W + D an advantage of action a over b is off by
(D_a - D_b)' phi <= |R' (D_a - D_b)| |R^-1 phi| for any invertible R, tight for RR' = E[phi phi']. So a row is
far if the margin of its decision is above _FAR / beta + allowance |R^-1 phi|, and wherever the largest
|R' (D_a - D_b)| is within the allowance, far rows are decided alike without being looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats
from bylaw.program import (
    BLOCK_ROWS,
    Block,
    Dual,
    Layout,
    LinearForm,
    Pass,
    RowSource,
    Sums,
    Tally,
    TallyPass,
    UnseenRows,
    join_blocks,
    sum_blocks,
)

_NEAR_VALUES = 2**26  # columns of near rows that are kept in memory: half a gigabyte
_NEAR_SHARE = 0.25  # of all rows: enough for the steps from a sample's optimum to that of all rows
_FAR = 20.0  # beta times a margin: any other decision has a chance below 1e-8, and adds 1e-8 / beta


@dataclass(frozen=True, eq=False)
class Metric:
    """How far moves of the weights can move the scores of a row.

    T columns of rows, of which the features are made in each of C cells.
    """

    features: NDArray[np.int64]  # that rules touch; the weights of others do not move
    columns: NDArray[np.int64]  # (T,): of the blocks
    layout: Layout | None  # of the cells, if there are any
    root: Floats  # (T, T): R, lower triangular, with RR' about E[x x']
    separate: bool  # for sets, the decision on each label is separate

    @classmethod
    def of(cls, dual: Dual) -> Metric:
        """Return the metric of a dual, by the rows of its first block."""
        touched, block = dual.rules.columns, dual.blocks[0]
        columns = block.columns[touched]
        square = columns @ columns.T / columns.shape[1]
        # Features may depend on each other: a part in a million makes the matrix definite.
        square += np.diag(1e-6 * np.where(square.diagonal() > 0, square.diagonal(), 1.0))
        features, separate = np.unique(dual.rules.support.features), not dual.form.action_space.exclusive
        return cls(features, touched, block.layout, np.linalg.cholesky(square), separate)

    def length(self, moves: Floats) -> float:
        """Return the largest |R' D_a| of a score, or |R' (D_a - D_b)| of an advantage, in any cell."""
        spread = moves[None] if self.layout is None else self.layout.spread_matrix(moves)
        scaled = self.root.T @ spread[:, self.columns]  # R' D, (C, T, A), of moves (F, A)
        gram = scaled.transpose(0, 2, 1) @ scaled
        squares = np.diagonal(gram, axis1=1, axis2=2)
        lengths = squares if self.separate else squares[:, :, None] + squares[:, None] - 2 * gram
        return math.sqrt(max(lengths.max(), 0.0))

    def sizes(self, columns: Floats) -> Floats:
        """Return |R^-1 x| of each row, (n_rows,), of columns (D, n_rows)."""
        scaled = self._inverse @ columns[self.columns]
        return np.sqrt(np.einsum("tn,tn->n", scaled, scaled))

    @cached_property
    def _inverse(self) -> Floats:
        return np.linalg.inv(self.root).astype(np.float64)

    def decide(self, scores: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Return the best actions on each row, (n_actions, n_rows), and their margins, (n_rows,).

        The best action has the largest score; for sets, all labels of positive score are best. If several
        scores are equal, all of them are best, and the margin is zero.
        """
        if self.separate:
            return scores > 0, np.abs(scores).min(axis=0)
        best, second = scores[0], np.full(scores.shape[1], -np.inf)
        for score in scores[1:]:
            np.maximum(second, np.minimum(best, score), out=second)
            best = np.maximum(best, score)
        return scores == best, best - second


@dataclass(frozen=True)
class Screen(Sums):
    """The rows near a boundary between decisions, and the sums over all others."""

    near: tuple[Block, ...]
    far: Tally  # without the potential, which depends on the weights

    def __add__(self, other: Any) -> Self:
        total = super().__add__(other)
        if sum(block.n_rows < BLOCK_ROWS for block in total.near) > 32:  # small blocks are slow
            return replace(total, near=tuple(join_blocks(total.near)))
        return total

    def far_tally(self, weights: Floats) -> Tally:
        """Return the tally of the far rows at weights, (F, A), at which they are decided alike."""
        return replace(self.far, potential=float((weights * self.far.moments).sum()))


@dataclass(frozen=True)
class ScreenPass:
    """A pass that sorts rows out: far rows have a decision with a margin that small moves leave."""

    weights: Floats  # (F, A): of the scores
    metric: Metric
    allowance: float
    margin: float

    def __call__(self, block: Block) -> Screen:
        decision, margin = self.metric.decide(block.scores(self.weights))
        far = margin > self.margin + self.allowance * self.metric.sizes(block.columns)
        mass = far * block.row_weights
        moments, observed = block.moments(decision * mass), block.observed_moments(decision * mass)
        near = block.rows(np.flatnonzero(~far))
        return Screen((near,), Tally(float(mass.sum()), 0.0, moments, observed=observed))

    def covers(self, weights: Floats) -> bool:
        """Return whether every far row is sure to be decided alike at these weights, (F, A)."""
        moves = weights - self.weights
        # A coefficient of zero hides a feature from the metric: at other levels its weights move, too.
        hidden = np.delete(moves, self.metric.features, axis=0).any()
        return not hidden and self.metric.length(moves) <= self.allowance


class ScreenedRows:
    """Out-of-memory rows, of which those near a decision boundary are kept in memory.

    The first tally screens the rows, in one pass over all of them. As long as the weights stay so close that
    no far row can change its decision, later tallies are made of the near rows and of the sums over the far
    ones; they are exact to the last digits. If weights move further, rows are screened again.
    """

    def __init__(self, dual: Dual) -> None:
        assert dual.source is not None
        self.source: RowSource = dual.source
        self.sample, self.metric = dual.with_rows(dual.blocks), Metric.of(dual)
        self.kept: tuple[ScreenPass, Screen] | None = None

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def mass(self) -> float:
        return self.source.mass

    @property
    def passes(self) -> int:
        return self.source.passes

    def observe(self, form: LinearForm, layout: Layout | None) -> RowSource:
        return self.source.observe(form, layout)

    def total(self, *passes: Pass) -> list[Any]:
        if len(passes) != 1 or not isinstance(passes[0], TallyPass):
            return self.source.total(*passes)
        wanted = passes[0]
        weights, sharpest = wanted.score_matrix, _FAR / wanted.beta
        if self.kept is None or sharpest > self.kept[0].margin or not self.kept[0].covers(weights):
            plan = self.plan(weights, wanted.beta)
            if plan is None:
                return self.source.total(wanted)
            self.kept = None  # there is room for one screen
            self.keep(plan, self.source.total(plan)[0])
        assert self.kept is not None
        _, screen = self.kept
        (near,) = sum_blocks(screen.near, [wanted])
        return [replace(near + screen.far_tally(weights), curvature=near.curvature)]

    def keep(self, plan: ScreenPass, screen: Screen) -> None:
        """Keep the rows near a decision boundary, which the screening pass has sorted out, in memory."""
        self.kept = plan, replace(screen, near=tuple(join_blocks(screen.near)))

    def plan(self, weights: Floats, beta: float) -> ScreenPass | None:
        """Return a pass that screens the rows around weights (F, A), for policies of this beta or larger.

        Return None if there is not enough memory for the near rows.
        """
        margin, room = _FAR / beta, []
        for block in self.sample.blocks:
            _, found = self.metric.decide(block.scores(weights))
            room.append((found - margin) / np.maximum(self.metric.sizes(block.columns), np.finfo(float).tiny))
        first = self.sample.blocks[0]
        n_columns = len(first.columns) + (0 if first.seen is None else len(first.seen))
        share = min(_NEAR_VALUES / n_columns / self.n_rows, _NEAR_SHARE)
        allowance = float(np.quantile(np.concatenate(room), share))
        return ScreenPass(weights, self.metric, allowance, margin) if allowance > 0 else None


def screen_rows(dual: Dual) -> Dual:
    """Return the dual on screened rows if its rows are out of memory and may be read."""
    stays = dual.source is None or isinstance(dual.source, UnseenRows)
    return dual if stays else dual.with_source(ScreenedRows(dual))
