"""Sets of labels under rules that are apart: every label of every row is an item that is decided by itself.

Where each label's inclusion is touched by one rule at most, the score of an item is -(loss + lambda_j cost)
with one multiplier, that of its rule. The dual is then a sum of convex functions of one multiplier each. An
item whose score is far from zero at both ends of a range of the multiplier is decided all along it, as scores
are linear: only items near the threshold are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.numeric import NEGLIGIBLE
from bylaw._base.typing import Floats
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual
from bylaw.program.linear_form import LinearForm

_TILE = 2**18  # bytes of losses at a time: what one step writes, the next one finds in the cache
_KEPT = 2**24  # items whose losses and costs are computed once and kept


_COLUMNS = ("losses", "costs", "observed", "weights", "rules")


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


def find_rules(n_actions: int, *couplings: sparse.csr_array) -> NDArray[np.int64] | None:
    """(A,): the rule that touches the inclusion of each label, or M where none does; None where a label has
    several. The same M rules may have couplings with several kinds of features."""
    n_rules = len(couplings[0].indptr) - 1
    rules = np.concatenate([np.repeat(np.arange(n_rules), np.diff(part.indptr)) for part in couplings])
    labels = np.concatenate([part.indices % n_actions for part in couplings])
    found = np.full(n_actions, n_rules)
    found[labels] = rules
    return found if (found[labels] == rules).all() else None


def find_separate_rules(form: LinearForm, *others: sparse.csr_array) -> NDArray[np.int64] | None:
    """The rule of each label, (A,), where decisions are sets and no label has several; otherwise None."""
    if form.action_space.exclusive:
        return None
    return find_rules(form.base.shape[1], form.couplings, *others)


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
        self.couplings = _unfold(dual.form.couplings, dual.form.base.shape)
        seen = dual.blocks[0].observed
        self.observed = None
        if observed is not None and seen is not None:
            self.observed = _unfold(observed, (len(seen), len(rules)))
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
        empty = NearItems(self.dual.beta, self.dual.mass, low, high, np.zeros((3, len(low) + 1)))
        parts = [self._screen_tile(tile, ends, empty) for tile in self.tiles]
        columns = {name: _join([getattr(near, name) for near in parts]) for name in _COLUMNS}
        return replace(empty, far=sum(near.far for near in parts), **columns)  # type: ignore[arg-type]

    def _screen_tile(self, tile: _Tile, ends: list[Floats], empty: NearItems) -> NearItems:
        sure = -NEGLIGIBLE / self.dual.beta
        margins = [end * tile.costs for end in ends]
        for margin in margins:
            margin += tile.losses
        least, most = np.minimum(*margins).reshape(-1), np.maximum(*margins).reshape(-1)
        not_in = most > -sure
        near = self._take(tile, np.flatnonzero(not_in & (least < sure)), empty)
        return replace(near, far=self._take(tile, np.flatnonzero(~not_in), empty).add_columns())

    def _take(self, tile: _Tile, places: NDArray[np.integer], empty: NearItems) -> NearItems:
        """Some items of a tile."""
        several, n_rows = bool(self.rules.any()), tile.costs.shape[1]
        return replace(
            empty,
            losses=tile.losses.reshape(-1)[places],
            costs=tile.costs.reshape(-1)[places],
            observed=None if tile.observed is None else tile.observed.reshape(-1)[places],
            weights=None if tile.weights is None else tile.weights[places % n_rows],
            rules=self.rules[places // n_rows] if several else None,
        )


def _join(columns: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    return None if columns[0] is None else np.concatenate(columns)  # type: ignore[arg-type]


def _nothing() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class NearItems:
    """The items that are not decided all along a range of multipliers, and sums over those that are."""

    beta: float
    mass: float  # of all rows
    low: Floats  # (M,)
    high: Floats  # (M,)
    far: Floats  # (3, M + 1): losses, costs, observed costs of items within
    losses: Floats = field(default_factory=_nothing)  # (n_near,)
    costs: Floats = field(default_factory=_nothing)
    observed: Floats | None = None  # None where nothing was observed
    weights: Floats | None = None  # None for ones
    rules: NDArray[np.int64] | None = None  # None where all items have the first rule

    def covers(self, multipliers: Floats) -> bool:
        return bool(((self.low <= multipliers) & (multipliers <= self.high)).all())

    def narrow(self, low: Floats, high: Floats) -> NearItems:
        """Of a smaller range."""
        sure = -NEGLIGIBLE / self.beta
        margins = [self._margins(end) for end in (low, high)]
        least, most = np.minimum(*margins), np.maximum(*margins)
        inside = np.flatnonzero(most <= -sure)
        near = np.flatnonzero((most > -sure) & (least < sure))
        far = self.far + self._take(inside).add_columns()
        return replace(self._take(near), low=low, high=high, far=far)

    def sum(self, multipliers: Floats) -> ItemSums:
        """At multipliers (M,) of the range."""
        scores = self._margins(multipliers)
        scores *= -self.beta
        tails = np.exp(-np.abs(scores))
        above_one = 1.0 + tails
        probabilities = np.where(scores > 0, 1.0, tails) / above_one
        soft = np.maximum(scores, 0.0) + np.log(above_one)
        potential = float(soft.sum() if self.weights is None else self.weights @ soft) / self.beta
        potential -= float(self.far[0].sum() + np.append(multipliers, 0.0) @ self.far[1])
        losses, costs, observed = self.far + self.add_columns(probabilities)
        curvature = self.beta * self._add(self.costs * self.costs, tails / (above_one * above_one))
        m = len(multipliers)
        return ItemSums(potential, float(losses.sum()), costs[:m], observed[:m], curvature[:m])

    def _margins(self, multipliers: Floats) -> Floats:
        """(n_near,): losses and costs together."""
        prices = multipliers[0] if self.rules is None else np.append(multipliers, 0.0)[self.rules]
        margins = prices * self.costs
        margins += self.losses
        return margins

    def add_columns(self, factors: Floats | None = None) -> Floats:
        """(3, M + 1): sums of losses, costs and observed costs times these factors (n_near,)."""
        losses, costs = self._add(self.losses, factors), self._add(self.costs, factors)
        return np.array(
            [losses, costs, costs if self.observed is None else self._add(self.observed, factors)]
        )

    def _add(self, values: Floats, factors: Floats | None = None) -> Floats:
        """(M + 1,): weighted sums over the items of each rule."""
        if self.weights is not None:
            factors = self.weights if factors is None else self.weights * factors
        if self.rules is None:
            return np.array([values.sum() if factors is None else values @ factors, 0.0])
        products = values if factors is None else values * factors
        return np.bincount(self.rules, products, minlength=len(self.low) + 1).astype(np.float64)

    def _take(self, items: NDArray[np.integer]) -> NearItems:
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return replace(self, **{name: None if c is None else c[items] for name, c in columns.items()})


def _unfold(couplings: sparse.csr_array, shape: tuple[int, int]) -> sparse.csr_array:
    """Return the coefficients (A, F) of couplings (M, F * A); where several rules touch the same place, their
    sum."""
    features, actions = np.divmod(couplings.indices, shape[1])
    return sparse.csr_array((couplings.data, (actions, features)), shape=shape[::-1])
