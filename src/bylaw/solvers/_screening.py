"""Screening: rows whose decision does not depend on small changes of the multipliers are read only once.

Scores are W' phi. If the weights W change by D, the difference of the scores of actions a and b changes by
(D_a - D_b)' phi <= |R' (D_a - D_b)| |R^-1 phi| for any invertible R; the bound is tight for RR' =
E[phi phi']. So a row is far from a decision boundary if the margin of its decision is above
_FAR / beta + allowance |R^-1 phi|. As long as the largest |R' (D_a - D_b)| is at most the allowance, the
decisions on far rows stay the same, and these rows need not be read again.
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

_NEAR_VALUES = 2**26  # most values of near rows that are kept in memory: half a gigabyte
_NEAR_SHARE = 0.25  # largest share of near rows: enough for steps from a sample's optimum to that of all rows
_FAR = 20.0  # least beta times margin of a far row: other decisions then have a probability below 1e-8


@dataclass(frozen=True, eq=False)
class Metric:
    """A bound on the change of the scores of a row when the weights of the features change.

    It uses the columns of the rows on which rules depend in any cell.
    """

    features: NDArray[np.int64]  # features on which rules depend; the weights of others do not change
    columns: NDArray[np.int64]  # (n_columns_used,): indices of the columns in blocks
    layout: Layout | None  # of features in columns and cells, if rows are sorted by cell
    root: Floats  # the lower triangular matrix R, (n_columns_used, n_columns_used), with RR' near E[x x']
    separate: bool  # whether decisions are sets, so that the decision on each label is separate

    @classmethod
    def of(cls, dual: Dual) -> Metric:
        """Return the metric of a dual, estimated from the rows of its first block."""
        touched, block = dual.rules.columns, dual.blocks[0]
        columns = block.columns[touched]
        square = columns @ columns.T / columns.shape[1]
        # Columns may be linearly dependent: a millionth of the diagonal makes the matrix positive definite.
        square += np.diag(1e-6 * np.where(square.diagonal() > 0, square.diagonal(), 1.0))
        features, separate = np.unique(dual.rules.support.features), not dual.form.action_space.exclusive
        return cls(features, touched, block.layout, np.linalg.cholesky(square), separate)

    def length(self, moves: Floats) -> float:
        """Return the largest |R' (D_a - D_b)|, or |R' D_a| for sets, in any cell for changes D of weights."""
        spread = moves[None] if self.layout is None else self.layout.spread_matrix(moves)
        scaled = self.root.T @ spread[:, self.columns]  # R' D, (n_cells, n_columns_used, n_actions)
        gram = scaled.transpose(0, 2, 1) @ scaled
        squares = np.diagonal(gram, axis1=1, axis2=2)
        lengths = squares if self.separate else squares[:, :, None] + squares[:, None] - 2 * gram
        return math.sqrt(max(lengths.max(), 0.0))

    def sizes(self, columns: Floats) -> Floats:
        """Return |R^-1 x| of each row, (n_rows,), how much changes of the weights can change its scores."""
        scaled = self._inverse @ columns[self.columns]
        return np.sqrt(np.einsum("tn,tn->n", scaled, scaled))

    @cached_property
    def _inverse(self) -> Floats:
        return np.linalg.inv(self.root).astype(np.float64)

    def decide(self, scores: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Return the best actions on each row, (n_actions, n_rows), and their margins, (n_rows,).

        The best action has the largest score; for sets, all labels with a positive score are best. If several
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
    """The rows near a decision boundary, and the sums over all other rows."""

    near: tuple[Block, ...]  # blocks of rows near a boundary
    far: Tally  # sums over the other rows, without the potential, which depends on the weights

    def __add__(self, other: Any) -> Self:
        total = super().__add__(other)
        if sum(block.n_rows < BLOCK_ROWS for block in total.near) > 32:  # small blocks are slow
            return replace(total, near=tuple(join_blocks(total.near)))
        return total

    def far_tally(self, weights: Floats) -> Tally:
        """Return the sums over the far rows at weights that do not change the decisions on them."""
        return replace(self.far, potential=float((weights * self.far.moments).sum()))


@dataclass(frozen=True)
class ScreenPass:
    """A pass that separates near rows from far rows, whose decision is stable under small changes."""

    weights: Floats  # (n_features, n_actions): weights of the features in the scores
    metric: Metric
    allowance: float  # largest change of the weights, by the metric, that leaves far rows unchanged
    margin: float  # least margin of far rows after such a change

    def __call__(self, block: Block) -> Screen:
        decision, margin = self.metric.decide(block.scores(self.weights))
        far = margin > self.margin + self.allowance * self.metric.sizes(block.columns)
        mass = far * block.row_weights
        moments, observed = block.moments(decision * mass), block.observed_moments(decision * mass)
        near = block.rows(np.flatnonzero(~far))
        return Screen((near,), Tally(float(mass.sum()), 0.0, moments, observed=observed))

    def covers(self, weights: Floats) -> bool:
        """Return whether the decisions on all far rows are surely the same at these weights."""
        moves = weights - self.weights
        # The metric ignores features with coefficient zero, whose weights may change if a level changes.
        hidden = np.delete(moves, self.metric.features, axis=0).any()
        return not hidden and self.metric.length(moves) <= self.allowance


class ScreenedRows:
    """Out-of-memory rows, of which those near a decision boundary are kept in memory.

    The first tally screens the rows, in one pass over all of them. As long as the weights stay so close that
    no far row can change its decision, later tallies are computed from the near rows and the sums over the
    far rows; they are exact up to rounding errors. If the weights move further, rows are screened again.
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
        # Screen the rows unless the last screen is valid for these weights and this beta.
        weights, sharpest = wanted.score_matrix, _FAR / wanted.beta
        if self.kept is None or sharpest > self.kept[0].margin or not self.kept[0].covers(weights):
            plan = self.plan(weights, wanted.beta)
            if plan is None:
                return self.source.total(wanted)
            self.kept = None  # free the memory of the last screen first
            self.keep(plan, self.source.total(plan)[0])
        # Add the sums over near rows and over far rows.
        assert self.kept is not None
        _, screen = self.kept
        (near,) = sum_blocks(screen.near, [wanted])
        return [replace(near + screen.far_tally(weights), curvature=near.curvature)]

    def keep(self, plan: ScreenPass, screen: Screen) -> None:
        """Keep the rows near a decision boundary, as found by the screening pass, in memory."""
        self.kept = plan, replace(screen, near=tuple(join_blocks(screen.near)))

    def plan(self, weights: Floats, beta: float) -> ScreenPass | None:
        """Return a pass that screens the rows at these weights, for policies with this beta or a larger one.

        Return None if the near rows would not fit in memory.
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
    """Return the dual on screened rows if its rows are out of memory and a sample of them is in memory."""
    stays = dual.source is None or isinstance(dual.source, UnseenRows)
    return dual if stays else dual.with_source(ScreenedRows(dual))
