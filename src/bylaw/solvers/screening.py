"""Rows whose decision does not depend on small moves of the multipliers, set aside."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.formulation.blocks import Block, join_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.passes import Tally

_SURE = 18.0  # beta times a margin: any other decision has a chance below 2e-8 on a few rows, none on most
_ASIDE = 0.2  # of its own length, that a path may stray from a straight line
_REGULAR = 1e-6  # relative, added to diagonals: features may depend on each other
_ROOM = 0.5  # of the margin that makes sure, to stray on top of that


@dataclass(frozen=True, eq=False)
class Screen:
    """Rows near a boundary between decisions, and the sums over all others, whose decisions are the
    same at all weights around a segment: there a dual on the near rows alone has the same gradient.

    A decided row adds <W, phi 1_a'> to the potential, linear in lambda, so the far rows only shift bounds.

    Scores are W' phi. A row with one decision and some margin at both ends of the segment has them all
    along it, as margins are concave in W. At W + D an advantage of action a over b is off by
    (D_a - D_b)' phi <= |R' (D_a - D_b)| |R^-1 phi| for any invertible R, tight for RR' = E[phi phi']. So a
    row is far if its margin at both ends is above _SURE / beta + allowance |R^-1 phi|, and wherever the
    largest |R' (D_a - D_b)| is within the allowance, far rows are decided alike: no row need be asked.
    """

    here: Floats  # (F, A): weights at one end
    way: Floats  # (F, A): from there to the other end
    metric: _Metric
    allowance: float
    near: list[Block]
    moments: Floats  # (F, A): sum of phi pi' over the far rows
    mass: float  # of all rows

    @classmethod
    def ahead(cls, dual: Dual, here: Floats, step: Floats, steps: float) -> Screen:
        """Of the rows of a dual, around the segment from weights (F, A) to those some steps ahead."""
        there = here + steps * step
        metric = _Metric.of(dual)
        allowance = _ASIDE * (1 + steps) * metric.length(step) + _ROOM * _SURE / dual.beta / metric.typical
        moments, near = np.zeros(here.shape), []
        for block in dual.blocks:
            scores = block.scores(here)
            decision, distribution = _decide(scores, metric.apart)
            margin = np.minimum(_margin(scores, decision), _margin(block.scores(there), decision))
            far = margin > _SURE / dual.beta + allowance * metric.sizes(block.features)
            distribution *= far if block.weights is None else far * block.weights
            moments += block.moments(distribution)
            near.append(block.rows(np.flatnonzero(~far)))
        return cls(here, there - here, metric, allowance, join_blocks(near), moments, dual.mass)

    @cached_property
    def near_mass(self) -> float:
        return sum(block.mass for block in self.near)

    def covers(self, weights: Floats) -> bool:
        """Whether every far row is sure to be decided as it was at these weights (F, A)."""
        # Any point of the segment will do for the comparison; this one is about the nearest.
        way, gone = (self.metric(moves).ravel() for moves in (self.way, weights - self.here))
        share = np.clip(way @ gone / (way @ way), 0.0, 1.0) if way.any() else 0.0
        aside = weights - self.here - share * self.way
        # A coefficient of zero hides a feature from the metric: at other levels its weights move, too.
        hidden = np.delete(aside, self.metric.touched, axis=0).any()
        return not hidden and self.metric.length(aside) <= self.allowance

    def reduced(self, dual: Dual) -> Dual:
        """(mass / near mass) times the dual, but for a constant."""
        form = dual.form
        bounds = (form.bounds * self.mass - form.couplings @ self.moments.ravel()) / self.near_mass
        return replace(dual, form=replace(form, bounds=bounds, base_constant=0.0), blocks=self.near)

    def far_tally(self, weights: Floats) -> Tally:
        """Of the far rows, at covered weights (F, A)."""
        return Tally(self.mass - self.near_mass, float((weights * self.moments).sum()), self.moments)


@dataclass(frozen=True, eq=False)
class _Metric:
    """How far moves of the weights can move the scores of a row."""

    touched: NDArray[np.int64]  # (T,): features that rules touch; the weights of others do not move
    root: Floats  # (T, T): R, lower triangular, with RR' about E[phi phi']
    apart: bool  # for sets, where each label is decided by itself

    @classmethod
    def of(cls, dual: Dual) -> _Metric:
        touched = np.unique(dual.form.couplings.indices // dual.form.base.shape[1])
        features = dual.blocks[0].features[touched]
        square = features @ features.T / features.shape[1]
        square += np.diag(_REGULAR * np.where(square.diagonal() > 0, square.diagonal(), 1.0))
        return cls(touched, np.linalg.cholesky(square), not dual.form.action_space.exclusive)

    @property
    def typical(self) -> float:
        """E[size^2]^(1/2)."""
        return math.sqrt(max(len(self.touched), 1))

    def __call__(self, moves: Floats) -> Floats:
        """R' D, (T, A), of moves (F, A)."""
        return self.root.T @ moves[self.touched]

    def length(self, moves: Floats) -> float:
        """The largest |R' D_a| of a score, or |R' (D_a - D_b)| of the advantage of one action."""
        moves = self(moves)
        gram = moves.T @ moves
        squares = np.diag(gram)
        return math.sqrt(max((squares if self.apart else squares[:, None] + squares - 2 * gram).max(), 0.0))

    def sizes(self, features: Floats) -> Floats:
        """|R^-1 phi| of each row, (n_rows,)."""
        scaled = np.linalg.inv(self.root) @ features[self.touched]
        return np.sqrt(np.einsum("tn,tn->n", scaled, scaled))


def _decide(scores: Floats, apart: bool) -> tuple[NDArray[Any], Floats]:
    """The best decision on each row, and its one-hot matrix (n_actions, n_rows): positions (n_rows,), or
    for sets +1 for a label within and -1 without, (n_actions, n_rows)."""
    if apart:
        return np.where(scores > 0, 1.0, -1.0), (scores > 0).astype(float)
    best, distribution = scores.argmax(axis=0), np.zeros(scores.shape)
    distribution[best, np.arange(len(best))] = 1.0
    return best, distribution


def _margin(scores: Floats, decision: NDArray[Any]) -> Floats:
    """By how much the decision is better than any other, (n_rows,); overwrites the scores."""
    if decision.ndim == 2:
        return (scores * decision).min(axis=0)
    rows = np.arange(len(decision))
    own = scores[decision, rows]
    scores[decision, rows] = -np.inf
    return own - scores.max(axis=0)
