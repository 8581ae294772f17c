"""Sets of labels under rules that are apart: every label of every row is an item that is decided by itself.

Where each label's inclusion is touched by one rule at most, the score of an item is -(loss + lambda_j cost)
with one multiplier, that of its rule. The dual is then a sum of convex functions of one multiplier each. An
item whose score is far from zero at both ends of a range of the multiplier is decided all along it, as scores
are linear: only items near the threshold are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.softmax import NEGLIGIBLE
from bylaw._base.typing import Floats
from bylaw.formulation.dual import Block, Dual

_TILE = 2**18  # bytes of losses at a time: what one step writes, the next one finds in the cache
_KEPT = 2**24  # items whose losses and costs are computed once and kept


class ItemSums(NamedTuple):
    """Sums over all items at some multipliers, times their rows' weights."""

    potential: float
    loss: float  # of the items within
    costs: Floats  # (M,): of the items within, for each rule
    observed: Floats  # (M,): the same as they turned out
    curvature: Floats  # (M,): the second derivatives of the potential


@dataclass(frozen=True)
class _Tile:
    """All labels of some rows."""

    losses: Floats  # (A, n_rows)
    costs: Floats  # (A, n_rows): of each label's rule
    observed: Floats | None  # (A, n_rows)
    weights: Floats | None  # (n_rows,)


def find_rules(couplings: sparse.csr_array, n_actions: int) -> NDArray[np.int64] | None:
    """(A,): the rule that touches the inclusion of each label, or M where none does; None where a label has
    several."""
    rules = np.repeat(np.arange(couplings.shape[0]), np.diff(couplings.indptr))
    found = np.full(n_actions, couplings.shape[0])
    found[couplings.indices % n_actions] = rules
    return found if (found[couplings.indices % n_actions] == rules).all() else None


class LabelItems:
    """The items of a dual over sets whose rules are apart.

    Parameters
    ----------
    dual : Dual
    rules : array of shape (n_labels,)
        the rule of each label, as `find_rules` has them.
    observed : sparse array of shape (n_rules, n_observed_features * n_labels), optional
        the coefficients of the rules on the features as observed.
    keep : bool
        whether losses and costs are kept for several passes, as long as there are not too many.
    """

    def __init__(
        self,
        dual: Dual,
        rules: NDArray[np.int64],
        observed: sparse.csr_array | None = None,
        keep: bool = False,
    ) -> None:
        self.dual, self.rules = dual, rules
        self.base = sparse.csr_array(dual.form.base.T)
        self.couplings = _unfold(dual.form.couplings, len(rules))
        self.observed = None if observed is None else _unfold(observed, len(rules))
        few = dual.n_rows * len(rules) <= _KEPT
        self.kept = list(self._make_tiles()) if keep and few else None

    @property
    def tiles(self) -> Iterator[_Tile]:
        return self._make_tiles() if self.kept is None else iter(self.kept)

    def _make_tiles(self) -> Iterator[_Tile]:
        width = max(_TILE // (8 * len(self.rules)), 64)
        for block in self.dual.blocks:
            for first in range(0, block.features.shape[1], width):
                yield self._make_tile(block, slice(first, first + width))

    def _make_tile(self, block: Block, rows: slice) -> _Tile:
        features = np.ascontiguousarray(block.features[:, rows])
        seen = None
        if self.observed is not None and block.observed is not None:
            seen = self.observed @ np.ascontiguousarray(block.observed[:, rows])
        weights = None if block.weights is None else block.weights[rows]
        return _Tile(self.base @ features, self.couplings @ features, seen, weights)

    def screen(self, low: Floats, high: Floats) -> NearItems:
        """Sort out the items that are decided alike at all multipliers from `low` to `high`, (M,) each."""
        ends = [np.append(end, 0.0)[self.rules, None] for end in (low, high)]
        far = np.zeros((3, len(low) + 1))
        near: list[list[Floats]] = []
        for tile in self.tiles:
            near.append(self._screen_tile(tile, ends, far))
        columns = [np.concatenate(part) for part in zip(*near, strict=True)]
        return NearItems(self.dual.beta, self.dual.mass, low, high, far, *columns[:-1], columns[-1].astype(np.int64))

    def _screen_tile(self, tile: _Tile, ends: list[Floats], far: Floats) -> list[Floats]:
        """Add the decided items to `far`; the columns of the others."""
        sure = -NEGLIGIBLE / self.dual.beta
        margins = [end * tile.costs for end in ends]
        for margin in margins:
            margin += tile.losses
        least, most = np.minimum(*margins), np.maximum(*margins)
        inside = most <= -sure
        weights = inside if tile.weights is None else inside * tile.weights
        seen = tile.costs if tile.observed is None else tile.observed
        for k, values in enumerate((tile.losses, tile.costs, seen)):
            sums = np.einsum("an,an->a", values, weights)
            far[k] += np.bincount(self.rules, sums, minlength=far.shape[1])
        labels, rows = np.nonzero(~inside & (least < sure))
        of_rows = np.ones(len(rows)) if tile.weights is None else tile.weights[rows]
        parts = [values[labels, rows] for values in (tile.losses, tile.costs, seen)]
        return [*parts, of_rows, self.rules[labels].astype(float)]


@dataclass(frozen=True)
class NearItems:
    """The items that are not decided all along a range of multipliers, and sums over those that are."""

    beta: float
    mass: float  # of all rows
    low: Floats  # (M,)
    high: Floats  # (M,)
    far: Floats  # (3, M + 1): losses, costs, observed costs of items within
    losses: Floats  # (n_near,)
    costs: Floats
    observed: Floats
    weights: Floats
    rules: NDArray[np.int64]

    @property
    def n_rules(self) -> int:
        return len(self.low)

    def covers(self, multipliers: Floats) -> bool:
        return bool(((self.low <= multipliers) & (multipliers <= self.high)).all())

    def narrow(self, low: Floats, high: Floats) -> NearItems:
        """Of a smaller range."""
        sure = -NEGLIGIBLE / self.beta
        margins = [self.losses + np.append(end, 0.0)[self.rules] * self.costs for end in (low, high)]
        inside = np.maximum(*margins) <= -sure
        far = self.far + [
            self._add(np.where(inside, values, 0.0)) for values in (self.losses, self.costs, self.observed)
        ]
        near = ~inside & (np.minimum(*margins) < sure)
        parts = (self.losses, self.costs, self.observed, self.weights, self.rules)
        return NearItems(self.beta, self.mass, low, high, far, *(part[near] for part in parts))  # type: ignore[arg-type]

    def sum(self, multipliers: Floats) -> ItemSums:
        """At multipliers (M,) of the range."""
        prices = np.append(multipliers, 0.0)
        scores = -self.beta * (self.losses + prices[self.rules] * self.costs)
        tails = np.exp(-np.abs(scores))
        probabilities = np.where(scores > 0, 1.0, tails) / (1.0 + tails)
        potential = float(self.weights @ (np.maximum(scores, 0.0) + np.log1p(tails))) / self.beta
        columns = (self.losses, self.costs, self.observed)
        losses, costs, observed = self.far + [self._add(probabilities * column) for column in columns]
        curvature = self.beta * self._add(self.costs**2 * probabilities * (1 - probabilities))
        potential -= float(self.far[0].sum() + prices @ self.far[1])
        m = self.n_rules
        return ItemSums(potential, float(losses.sum()), costs[:m], observed[:m], curvature[:m])

    def _add(self, values: Floats) -> Floats:
        """(M + 1,): sums over the items of each rule."""
        return np.bincount(self.rules, values * self.weights, minlength=self.n_rules + 1)


def _unfold(couplings: sparse.csr_array, n_actions: int) -> sparse.csr_array:
    """(A, F): the coefficients of each label's rule, of couplings (M, F * A) that are apart."""
    features, actions = np.divmod(couplings.indices, n_actions)
    shape = (n_actions, couplings.shape[1] // n_actions)
    return sparse.csr_array((couplings.data, (actions, features)), shape=shape)
