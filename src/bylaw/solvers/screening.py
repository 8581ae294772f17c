"""Rows whose decision does not depend on small moves of the multipliers, set aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw.decisions import Floats
from bylaw.dual import BLOCK_ROWS, Block, Dual, Tally

_SURE = 18.0  # beta times a margin: any other decision has a chance below 2e-8 on a few rows, none on most


@dataclass(frozen=True, eq=False)
class Screen:
    """Rows near a boundary between decisions, and the sums over all others, whose decisions are the
    same at all multipliers nearby: then a dual on the near rows alone has the same optimum.

    A decided row adds <W, phi 1_a'> to the potential, linear in lambda, so the far rows only shift bounds.
    """

    decided: tuple[NDArray[Any], ...]  # per block, the decisions at the centre, see `_decide`
    far: tuple[NDArray[np.bool_], ...]  # per block (n_rows,)
    near: list[Block]
    moments: Floats  # (F, A): sum of phi pi' over the far rows
    near_mass: float

    @classmethod
    def between(cls, dual: Dual, multipliers: Floats, others: Floats) -> Screen:
        """Far are the rows whose decision is the same here and there. Scores are linear in the multipliers:
        then it is the same at all points between, too."""
        here, there = dual.form.weights(multipliers), dual.form.weights(others)
        moments, decided, far, near = np.zeros(here.shape), [], [], []
        for block in dual.blocks:
            scores = here.T @ block.features
            decision, law = _decide(scores, dual)
            sure = np.minimum(_margin(scores, decision), _margin(there.T @ block.features, decision))
            kept = sure > 1.5 * _SURE / dual.beta  # with room, as the way there may bend
            law *= kept if block.weights is None else kept * block.weights
            moments += block.features @ law.T
            row_weights = None if block.weights is None else block.weights[~kept]
            near.append(Block(block.features[:, ~kept], row_weights))
            decided.append(decision)
            far.append(kept)
        mass = sum(block.mass for block in near)
        return cls(tuple(decided), tuple(far), _joined(near), moments, mass)

    def covers(self, dual: Dual, multipliers: Floats) -> bool:
        """Whether every far row is decided here as it was."""
        weights = dual.form.weights(multipliers)
        return all(
            (_margin(weights.T @ block.features, decision)[far] > _SURE / dual.beta).all()
            for block, decision, far in zip(dual.blocks, self.decided, self.far, strict=True)
        )

    def reduced(self, dual: Dual) -> Dual:
        """(mass / near mass) times the dual, but for a constant."""
        form = dual.form
        bounds = (form.bounds * dual.mass - form.couplings @ self.moments.ravel()) / self.near_mass
        return replace(dual, form=replace(form, bounds=bounds, base_constant=0.0), blocks=self.near)

    def tally(self, dual: Dual, multipliers: Floats) -> Tally:
        """Of all rows."""
        potential = float((dual.form.weights(multipliers) * self.moments).sum())
        far = Tally(dual.mass - self.near_mass, potential, self.moments)
        return self.reduced(dual).tally(multipliers) + far


def _decide(scores: Floats, dual: Dual) -> tuple[NDArray[Any], Floats]:
    """The best decision on each row, and the same as a law (n_actions, n_rows): positions (n_rows,), or
    for sets +1 for a label within and -1 without, (n_actions, n_rows)."""
    if dual.form.decisions.kind == "sets":
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
