"""Rows whose decision does not depend on small moves of the multipliers, set aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw.decisions import Floats
from bylaw.dual import BLOCK_ROWS, Block, Dual, Tally

_SURE = 18.0  # beta times a margin: any other decision has a chance below 2e-8 on a few rows, none on most
_ASIDE = 0.15  # of its own length, that a path may stray from a straight line
_ROOM = 0.5  # of the margin that makes sure, to stray on top of that


@dataclass(frozen=True, eq=False)
class Screen:
    """Rows near a boundary between decisions, and the sums over all others, whose decisions are the
    same at all weights around a segment: there a dual on the near rows alone has the same gradient.

    A decided row adds <W, phi 1_a'> to the potential, linear in lambda, so the far rows only shift bounds.

    Scores are W' phi. A row with one decision and some margin at both ends of the segment has them all
    along it, as margins are concave in W. At W + D an advantage of action a over b is off by
    (D_a - D_b)' phi <= stray(D) |phi / u|, for any units u of the features. So a row is far if its margin
    at both ends is above _SURE / beta + allowance |phi / u|, and wherever the stray from the segment is
    within the allowance, all far rows are still decided alike: no row need be asked.
    """

    here: Floats  # (F, A): weights at one end
    way: Floats  # (F, A): from there to the other end
    units: Floats  # (F,): sizes of the features
    apart: bool  # for sets, where each label is decided by itself
    allowance: float
    near: list[Block]
    moments: Floats  # (F, A): sum of phi pi' over the far rows
    mass: float  # of all rows

    @classmethod
    def between(cls, dual: Dual, here: Floats, there: Floats) -> Screen:
        """Of the rows of a dual, around the segment between two weights (F, A)."""
        units = _units(dual.blocks[0])
        apart = dual.form.decisions.kind == "sets"
        allowance = _ASIDE * _stray(there - here, units, apart)
        allowance += _ROOM * _SURE / (dual.beta * np.sqrt(len(units)))
        moments, near = np.zeros(here.shape), []
        for block in dual.blocks:
            scores = here.T @ block.features
            decision, law = _decide(scores, apart)
            margin = np.minimum(_margin(scores, decision), _margin(there.T @ block.features, decision))
            sizes = np.sqrt(units**-2.0 @ block.features**2)  # |phi / u|
            far = margin > _SURE / dual.beta + allowance * sizes
            law *= far if block.weights is None else far * block.weights
            moments += block.features @ law.T
            row_weights = None if block.weights is None else block.weights[~far]
            near.append(Block(block.features[:, ~far], row_weights))
        return cls(here, there - here, units, apart, allowance, _joined(near), moments, dual.mass)

    @cached_property
    def near_mass(self) -> float:
        return sum(block.mass for block in self.near)

    def covers(self, weights: Floats) -> bool:
        """Whether every far row is sure to be decided as it was at these weights (F, A)."""
        # Any point of the segment will do for the comparison; this one is about the nearest.
        way, gone = ((m * self.units[:, None]).ravel() for m in (self.way, weights - self.here))
        share = np.clip(way @ gone / (way @ way), 0.0, 1.0) if way.any() else 0.0
        return _stray(weights - self.here - share * self.way, self.units, self.apart) <= self.allowance

    def reduced(self, dual: Dual) -> Dual:
        """(mass / near mass) times the dual, but for a constant."""
        form = dual.form
        bounds = (form.bounds * self.mass - form.couplings @ self.moments.ravel()) / self.near_mass
        return replace(dual, form=replace(form, bounds=bounds, base_constant=0.0), blocks=self.near)

    def far_tally(self, weights: Floats) -> Tally:
        """Of the far rows, at covered weights (F, A)."""
        return Tally(self.mass - self.near_mass, float((weights * self.moments).sum()), self.moments)


def _units(block: Block) -> Floats:
    """Root mean squares of the features, (F,)."""
    sizes = np.sqrt((block.features**2).mean(axis=1))
    return np.where(sizes > 0, sizes, 1.0)


def _stray(moves: Floats, units: Floats, apart: bool) -> float:
    """The largest change of a score, or of the advantage of one action over another, by moves (F, A) of
    the weights on rows of size |phi / u| = 1: 2 max_a |u (D_a - mean D)| bounds |u (D_a - D_b)|."""
    if not apart:
        moves = 2 * (moves - moves.mean(axis=1, keepdims=True))
    return float(np.sqrt((units**2 @ moves**2).max()))


def _decide(scores: Floats, apart: bool) -> tuple[NDArray[Any], Floats]:
    """The best decision on each row, and the same as a law (n_actions, n_rows): positions (n_rows,), or
    for sets +1 for a label within and -1 without, (n_actions, n_rows)."""
    if apart:
        return np.where(scores > 0, 1.0, -1.0), (scores > 0).astype(float)
    best, law = scores.argmax(axis=0), np.zeros(scores.shape)
    law[best, np.arange(len(best))] = 1.0
    return best, law


def _margin(scores: Floats, decision: NDArray[Any]) -> Floats:
    """By how much the decision is better than any other, (n_rows,); overwrites the scores."""
    if decision.ndim == 2:
        return (scores * decision).min(axis=0)
    rows = np.arange(len(decision))
    own = scores[decision, rows]
    scores[decision, rows] = -np.inf
    return own - scores.max(axis=0)


def _joined(blocks: list[Block]) -> list[Block]:
    """The same rows in fewer blocks."""
    features = np.concatenate([block.features for block in blocks], axis=1)
    weights = None if blocks[0].weights is None else np.concatenate([block.row_weights for block in blocks])
    starts = range(0, features.shape[1], BLOCK_ROWS)
    parts = [slice(start, start + BLOCK_ROWS) for start in starts]
    return [
        Block(np.ascontiguousarray(features[:, p]), None if weights is None else weights[p]) for p in parts
    ]
