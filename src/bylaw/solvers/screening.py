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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.program.blocks import BLOCK_ROWS, Block, Layout, join_blocks
from bylaw.program.dual import Dual, Pass, RowSource, Tally, TallyPass, UnseenRows, sum_blocks
from bylaw.program.linear_form import LinearForm

_REGULAR = 1e-6  # relative, added to diagonals: features may depend on each other
_NEAR_VALUES = 2**26  # of columns of near rows, that are kept in memory: half a gigabyte
_FAR = 20.0  # beta times a margin: any other decision has a chance below 1e-8, and adds 1e-8 / beta
_LOOSE = 32  # small blocks of near rows, before they are joined
_NEAR_SHARE = 0.25  # of all rows: enough for the steps from a sample's optimum to that of all rows
_TINY = 1e-300


@dataclass(frozen=True)
class ScreenSums:
    """The near rows of some blocks, and the sums over their far rows."""

    near: tuple[Block, ...]
    moments: Floats  # (F, A): sum of phi pi' over the far rows
    observed: Floats | None  # (F', A): the same with features as observed

    def __add__(self, other: ScreenSums) -> ScreenSums:
        observed = None
        if self.observed is not None and other.observed is not None:
            observed = self.observed + other.observed
        near = (*self.near, *other.near)
        if sum(block.n_rows < BLOCK_ROWS for block in near) > _LOOSE:
            near = tuple(join_blocks(near))
        return ScreenSums(near, self.moments + other.moments, observed)


@dataclass(frozen=True)
class ScreenPass:
    """A pass that sorts rows out: far rows have a decision with a margin that small moves leave."""

    weights: Floats  # (F, A): of the scores
    metric: Metric
    allowance: float
    margin: float

    def __call__(self, block: Block) -> ScreenSums:
        decision, margin = _decide(block.scores(self.weights), self.metric.apart)
        far = margin > self.margin + self.allowance * self.metric.sizes(block.columns)
        distribution = decision * (far if block.weights is None else far * block.weights).astype(np.float64)
        return ScreenSums(
            (block.rows(np.flatnonzero(~far)),),
            block.moments(distribution),
            block.observed_moments(distribution),
        )


@dataclass(frozen=True, eq=False)
class Screen:
    """The rows near a boundary between decisions, and the sums over all others."""

    plan: ScreenPass
    near: list[Block]
    sums: ScreenSums  # over the far rows
    mass: float  # of all rows

    @classmethod
    def make(cls, plan: ScreenPass, sums: ScreenSums, mass: float) -> Screen:
        """Make a screen of the sums of its pass over all rows."""
        return cls(plan, join_blocks(sums.near), replace(sums, near=()), mass)

    def covers(self, weights: Floats) -> bool:
        """Return whether every far row is sure to be decided alike at these weights, (F, A)."""
        metric, moves = self.plan.metric, weights - self.plan.weights
        # A coefficient of zero hides a feature from the metric: at other levels its weights move, too.
        hidden = np.delete(moves, metric.features, axis=0).any()
        return not hidden and metric.length(moves) <= self.plan.allowance

    def far_tally(self, weights: Floats) -> Tally:
        """Compute the tally of the far rows at covered weights, (F, A)."""
        moments, near_mass = self.sums.moments, sum(block.mass for block in self.near)
        potential = float((weights * moments).sum())
        return Tally(self.mass - near_mass, potential, moments, observed=self.sums.observed)


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
        self.screen: Screen | None = None
        self.beta = math.inf  # of the policies that the screen serves, or larger

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
        if len(passes) == 1 and isinstance(passes[0], TallyPass):
            return [self._tally(passes[0])]
        return self.source.total(*passes)

    def _tally(self, wanted: TallyPass) -> Tally:
        if self.screen is None or wanted.beta < self.beta or not self.screen.covers(wanted.score_matrix):
            plan = self.plan(wanted.score_matrix, wanted.beta)
            if plan is None:
                return self.source.total(wanted)[0]
            self.screen = None  # there is room for one
            self.keep(plan, self.source.total(plan)[0])
        assert self.screen is not None
        (near,) = sum_blocks(self.screen.near, [wanted])
        far = self.screen.far_tally(wanted.score_matrix)
        return replace(near + far, curvature=near.curvature)

    def keep(self, plan: ScreenPass, sums: ScreenSums) -> None:
        """Keep the rows near a decision boundary, which the screening pass has sorted out, in memory."""
        self.beta = _FAR / plan.margin
        self.screen = Screen.make(plan, sums, self.mass)

    def plan(self, weights: Floats, beta: float) -> ScreenPass | None:
        """Return a pass that screens the rows around weights (F, A), for policies of this beta or larger.

        Return None if there is not enough memory for the near rows.
        """
        margin, room = _FAR / beta, []
        for block in self.sample.blocks:
            _, found = _decide(block.scores(weights), self.metric.apart)
            room.append((found - margin) / np.maximum(self.metric.sizes(block.columns), _TINY))
        first = self.sample.blocks[0]
        n_columns = len(first.columns) + (0 if first.seen is None else len(first.seen))
        share = min(_NEAR_VALUES / n_columns / self.n_rows, _NEAR_SHARE)
        allowance = float(np.quantile(np.concatenate(room), share))
        if allowance <= 0:
            return None
        return ScreenPass(weights, self.metric, allowance, margin)


def screen_rows(dual: Dual) -> Dual:
    """Return the dual on screened rows if its rows are out of memory and may be read."""
    stays = dual.source is None or isinstance(dual.source, UnseenRows)
    return dual if stays else dual.with_source(ScreenedRows(dual))


@dataclass(frozen=True, eq=False)
class Metric:
    """How far moves of the weights can move the scores of a row.

    T columns of rows, of which the features are made in each of C cells.
    """

    features: NDArray[np.int64]  # that rules touch; the weights of others do not move
    columns: NDArray[np.int64]  # (T,): of the blocks
    layout: Layout | None  # of the cells, if there are any
    root: Floats  # (T, T): R, lower triangular, with RR' about E[x x']
    apart: bool  # for sets, where each label is decided by itself

    @classmethod
    def of(cls, dual: Dual) -> Metric:
        touched, block = dual.rules.columns, dual.blocks[0]
        columns = block.columns[touched]
        square = columns @ columns.T / columns.shape[1]
        square += np.diag(_REGULAR * np.where(square.diagonal() > 0, square.diagonal(), 1.0))
        return cls(
            np.unique(dual.rules.support.features),
            touched,
            None if block.cells is None else block.cells.layout,
            np.linalg.cholesky(square),
            not dual.form.action_space.exclusive,
        )

    def __call__(self, moves: Floats) -> Floats:
        """R' D, (C, T, A), of moves (F, A)."""
        spread = moves[None] if self.layout is None else self.layout.spread_matrix(moves)
        return self.root.T @ spread[:, self.columns]

    def length(self, moves: Floats) -> float:
        """Return the largest |R' D_a| of a score, or |R' (D_a - D_b)| of an advantage, in any cell."""
        moves = self(moves)
        gram = moves.transpose(0, 2, 1) @ moves
        squares = np.diagonal(gram, axis1=1, axis2=2)
        apart = squares if self.apart else squares[:, :, None] + squares[:, None] - 2 * gram
        return math.sqrt(max(apart.max(), 0.0))

    def sizes(self, columns: Floats) -> Floats:
        """|R^-1 x| of each row, (n_rows,), of columns (D, n_rows)."""
        scaled = self.inverse @ columns[self.columns]
        return np.sqrt(np.einsum("tn,tn->n", scaled, scaled))

    @cached_property
    def inverse(self) -> Floats:
        return np.linalg.inv(self.root).astype(np.float64)


def _decide(scores: Floats, apart: bool) -> tuple[NDArray[np.bool_], Floats]:
    """Return the best actions on each row, (n_actions, n_rows), and their margins, (n_rows,).

    The best action is that of largest score; for sets, all labels of positive score. If several scores are
    equal, all of them are best, and the margin is zero.
    """
    if apart:
        return scores > 0, np.abs(scores).min(axis=0)
    best, second = scores[0], np.full(scores.shape[1], -np.inf)
    for score in scores[1:]:
        np.maximum(second, np.minimum(best, score), out=second)
        best = np.maximum(best, score)
    return scores == best, best - second
