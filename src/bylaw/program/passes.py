"""Passes: what a pass over rows computes on each block. The results of different blocks add up.

Whoever wants something of all rows asks for sums, and a pass tells what is summed. So rows need not be in
memory: a pass travels to where they are, and only its sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.blas_threads import limit_blas_threads
from bylaw._base.interruption import checkpoint
from bylaw._base.typing import Floats
from bylaw.language.action_space import ActionSpace
from bylaw.program.blocks import Block
from bylaw.program.cells import Layout, iterate_cells, iterate_tiles
from bylaw.program.linear_form import LinearForm

_TILE = 2**17  # scores at a time, where a cell has more: as many as fit in a core's own cache
_FEW_COLUMNS = 16  # of which all pairs are fewer than the products of one action after another
_DECIDED = 1e-9  # rows whose answer is this sure add nothing to the curvature
_FEW = 4  # where at most one row in so many adds something, the others are left out


class Pass(Protocol):
    """What is summed: a function of a block of rows, which may run in another process; its results add up."""

    def __call__(self, block: Block, /) -> Any: ...


class RowSource(Protocol):
    """Rows that live elsewhere, and are only ever seen by their sums."""

    @property
    def n_rows(self) -> int: ...

    @property
    def mass(self) -> float:
        """The sum of all weights."""
        ...

    @property
    def passes(self) -> int:
        """How often all rows were looked at for this problem so far."""
        ...

    def total(self, *passes: Pass) -> list[Any]:
        """The sums of each pass over all rows, all of them in one walk over the rows."""
        ...

    def observe(self, form: LinearForm, layout: Layout | None) -> RowSource:
        """The same rows, whose blocks have the features of this form as observed, too, in this layout."""
        ...


@runtime_checkable
class UnseenRows(RowSource, Protocol):
    """Rows of which not even a sample is in memory."""

    @property
    def layout(self) -> Layout | None:
        """How features are made of columns in each cell, if there are cells."""
        ...

    def sampling(self) -> AbstractContextManager[Callable[[int], RowSource]]:
        """Takes samples of about so many rows, which stay where the rows are and are gone in the end."""
        ...


def sum_blocks(blocks: Iterable[Block], passes: Iterable[Pass]) -> list[Any]:
    """The sums of each pass over these blocks, in their order."""
    checkpoint()
    chosen = tuple(passes)
    with limit_blas_threads():
        parts = ([one(block) for one in chosen] for block in blocks)
        return reduce(lambda total, part: list(map(add, total, part)), parts)


@dataclass(frozen=True)
class Support:
    """The Q places (feature, action) that rules touch; curvature is wanted there alone. Where rows are sorted
    by cell, the q places (column, action) of these features."""

    features: NDArray[np.int64]  # (Q,)
    actions: NDArray[np.int64]  # (Q,), in order

    @cached_property
    def by_action(self) -> list[tuple[int, slice]]:
        """Every action that is touched, and its places."""
        actions, starts, counts = np.unique(self.actions, return_index=True, return_counts=True)
        ranges = zip(actions.tolist(), starts.tolist(), counts.tolist(), strict=True)
        return [(action, slice(start, start + count)) for action, start, count in ranges]

    @cached_property
    def columns_by_action(self) -> dict[int, tuple[slice, NDArray[np.int64]]]:
        """The places of every action that is touched, and their features."""
        return {action: (here, self.features[here]) for action, here in self.by_action}

    @cached_property
    def grid(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The features and the actions, where the places are all pairs of these; else None."""
        actions, counts = np.unique(self.actions, return_counts=True)
        if not len(actions) or (counts != counts[0]).any():
            return None
        features = self.features[: counts[0]]
        return (features, actions) if (self.features.reshape(len(actions), -1) == features).all() else None


@dataclass(frozen=True)
class Tally:
    """The potential of the dual and its derivatives."""

    mass: float  # total weight
    potential: float  # sum of lse_beta (or softplus) of the scores
    moments: Floats  # (F, A): sum of phi pi'
    curvature: Floats | None = None  # (C, q, q): in each cell, its second derivative at q places
    observed: Floats | None = None  # (F', A): sum of phi' pi', with the features as observed

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.mass + other.mass,
            self.potential + other.potential,
            self.moments + other.moments,
            _add(self.curvature, other.curvature),
            _add(self.observed, other.observed),
        )


def _add(one: Floats | None, other: Floats | None) -> Floats | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class TallyPass:
    """The tally of the policy with scores features' score_matrix; with `support`, the curvature at those
    places too, and with `chosen`, the moments of those columns alone."""

    score_matrix: Floats  # (F, A)
    beta: float
    space: ActionSpace
    support: Support | None = None
    chosen: NDArray[np.int64] | None = None
    wanted: tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None] = (None, None)  # of both moments

    def __call__(self, block: Block) -> Tally:
        wide = self.score_matrix.shape[1] * block.n_rows >= _TILE * (len(block.starts) - 1)
        if wide and block.cells is not None and block.seen is None:
            return self._tally_tiles(block, block.cells.layout)
        scores = block.scores(self.beta * self.score_matrix)
        potential = self.space.to_probabilities(scores)
        curvature = self._compute_curvature(block, scores)
        if block.weights is not None:
            scores *= block.weights
            potential *= block.weights
        moments = block.moments(scores, self.chosen, self.wanted[0])
        observed = block.observed_moments(scores, self.wanted[1])
        potential = float(potential.sum()) / self.beta
        return Tally(block.mass, potential, moments, curvature, observed)

    def _tally_tiles(self, block: Block, layout: Layout) -> Tally:
        """The same a few rows at a time: with many actions, what one step writes the next one finds in the
        cache."""
        n_actions, columns, potential = self.score_matrix.shape[1], block.columns, 0.0
        probabilities = None if self.support is None else np.empty((n_actions, block.n_rows))
        part = columns if self.chosen is None else columns[self.chosen]
        sums = np.zeros((len(layout.cells), len(part), n_actions))
        weights, room = layout.spread(self.beta * self.score_matrix), np.empty(max(_TILE, n_actions))
        for cell, rows in iterate_tiles(block.starts, len(room) // n_actions):
            size = rows.stop - rows.start
            tile = room[: n_actions * size].reshape(n_actions, size)
            scores = weights[cell].compute(columns[:, rows], tile)
            potentials = self.space.to_probabilities(scores)
            if probabilities is not None:
                probabilities[:, rows] = scores
            if block.weights is not None:
                scores *= block.weights[rows]
                potentials *= block.weights[rows]
            potential += float(potentials.sum())
            sums[cell] += part[:, rows] @ scores.T
        curvature = None
        if probabilities is not None:
            curvature = self._compute_curvature(block, probabilities)
        return Tally(block.mass, potential / self.beta, layout.gather(sums, self.chosen), curvature)

    def _compute_curvature(self, block: Block, probabilities: Floats) -> Floats | None:
        """Return the curvature, where it is wanted."""
        if self.support is None:
            return None
        return _compute_curvature(block, probabilities, self.space, self.beta, self.support)


def _compute_curvature(
    block: Block, probabilities: Floats, space: ActionSpace, beta: float, support: Support
) -> Floats:
    """Compute the sum of beta phi_k phi_l (1{a = b} pi_a - pi_a pi_b) over each cell's rows, (C, q, q), from
    undecided rows alone.

    For sets, labels are apart: the sum of beta phi_k phi_l 1{a = b} pi_a (1 - pi_a). So is an action that is
    the only one that rules touch.
    """
    starts, mass = block.starts, beta if block.weights is None else beta * block.weights
    columns, size = block.columns, len(support.actions)
    total = np.zeros((len(starts) - 1, size, size))
    alone, together = len(support.columns_by_action) == 1, space.exclusive
    if together and not alone:
        undecided, mass = _select(probabilities.max(axis=0) < 1 - _DECIDED, mass)
        probabilities, columns = probabilities[:, undecided], columns[:, undecided]
        starts = _locate(starts, undecided)
        spread = _spread(columns, probabilities, np.sqrt(mass), support)
        for cell, rows in iterate_cells(starts):
            total[cell] -= spread[:, rows] @ spread[:, rows].T  # of the same matrix: half the work
    diagonal, grid = space.curvature_diagonal(probabilities), support.grid
    if grid is not None and len(grid[0]) <= _FEW_COLUMNS and not (together and alone):
        _add_grid_diagonal(total, diagonal[grid[1]], columns[grid[0]] * np.sqrt(mass), starts)
        return total
    if together and alone:
        diagonal = {action: diagonal[action] * (1 - diagonal[action]) for action, _ in support.by_action}
    _add_diagonal(total, diagonal, mass, starts, columns, support)
    return total


def _spread(columns: Floats, probabilities: Floats, root: Floats | float, support: Support) -> Floats:
    """(Q, n_rows): phi_k pi_a times the root of the mass, at each place."""
    if support.grid is None:
        return columns[support.features] * (probabilities[support.actions] * root)
    features, actions = support.grid
    chosen = probabilities if len(actions) == len(probabilities) else probabilities[actions]
    spread = chosen[:, None] * (columns[features] * root)
    return spread.reshape(len(support.actions), -1)


def _add_grid_diagonal(total: Floats, diagonal: Floats, columns: Floats, starts: NDArray[np.int64]) -> None:
    """The part of the curvature (C, q, q) between places of one action, where all of A actions have the same
    D columns (D, n_rows), of their diagonal (A, n_rows): one product of matrices for all actions."""
    one, other = np.triu_indices(len(columns))
    pairs, places = columns[one] * columns[other], np.arange(len(diagonal))
    blocks = total.reshape(len(total), *(len(diagonal), len(columns)) * 2)
    for cell, rows in iterate_cells(starts):
        sums = diagonal[:, rows] @ pairs[:, rows].T
        square = np.zeros((len(diagonal), len(columns), len(columns)))
        square[:, one, other] = square[:, other, one] = sums
        blocks[cell, places, :, places] += square


def _add_diagonal(
    total: Floats,
    diagonal: Floats | Mapping[int, Floats],
    mass: Floats | float,
    starts: NDArray[np.int64],
    columns: Floats,
    support: Support,
) -> None:
    """Add the part of the curvature between places of one action, from each action's diagonal, (n_rows,)."""
    for action, place in support.by_action:
        _, features = support.columns_by_action[action]
        part = columns[features]
        undecided, factor, inside = diagonal[action] > _DECIDED, diagonal[action] * mass, starts
        count = np.count_nonzero(undecided)
        if count * _FEW <= len(undecided):
            rows = np.flatnonzero(undecided)
            part, factor, inside = part[:, rows], factor[rows], _locate(starts, rows)
        elif count < len(undecided):
            factor *= undecided
        scaled = part * factor
        for cell, here in iterate_cells(inside):
            total[cell, place, place] += part[:, here] @ scaled[:, here].T


def _select(
    wanted: NDArray[np.bool_], mass: Floats | float
) -> tuple[NDArray[np.intp] | slice, Floats | float]:
    """The rows that are wanted, and their mass; where all are, without a copy."""
    if wanted.all():
        return slice(None), mass
    rows = np.flatnonzero(wanted)
    return rows, mass[rows] if isinstance(mass, np.ndarray) else mass


def _locate(starts: NDArray[np.int64], rows: NDArray[np.intp] | slice) -> NDArray[np.int64]:
    """Where cells begin among some of the rows."""
    return starts if isinstance(rows, slice) else np.searchsorted(rows, starts)


@dataclass(frozen=True)
class Response:
    """The decisions of least cost on every row."""

    cost: float  # sum of their costs
    moments: Floats  # (F, A): sum of phi pi'

    def __add__(self, other: Response) -> Response:
        return Response(self.cost + other.cost, self.moments + other.moments)


@dataclass(frozen=True)
class ResponsePass:
    """The decisions of least cost, where an action costs features' costs."""

    costs: Floats  # (F, A)
    space: ActionSpace

    def __call__(self, block: Block) -> Response:
        losses = block.scores(self.costs)
        decision = self.space.best_decision(losses) * block.row_weights
        return Response(float((decision * losses).sum()), block.moments(decision))


@dataclass(frozen=True)
class LossRange:
    """The least and the largest losses that decisions can have on these rows."""

    lowest: float
    highest: float

    def __add__(self, other: LossRange) -> LossRange:
        return LossRange(self.lowest + other.lowest, self.highest + other.highest)


@dataclass(frozen=True)
class LossRangePass:
    """Sums of the least and of the largest loss of each row."""

    base: Floats  # (F, A)
    space: ActionSpace

    def __call__(self, block: Block) -> LossRange:
        losses = block.scores(self.base)
        lowest = float(block.row_weights @ self.space.min_loss(losses))
        return LossRange(
            lowest, -float(block.row_weights @ self.space.min_loss(np.negative(losses, out=losses)))
        )


@dataclass(frozen=True)
class NormSums:
    """Of the norms ||C(x)|| of rows with weights w."""

    first: float  # sum of w ||C||
    second: float  # sum of w ||C||^2
    scaled: float  # sum of w^2 ||C||^2

    def __add__(self, other: NormSums) -> NormSums:
        return NormSums(self.first + other.first, self.second + other.second, self.scaled + other.scaled)


@dataclass(frozen=True)
class NormPass:
    """Sums of the norms ||C(x)||_{1->2} of the rules' costs on each row, the largest over decisions. They
    bound gradients and their variance."""

    form: LinearForm

    @cached_property
    def _costs(self) -> list[tuple[NDArray[np.int64], sparse.csr_array, Floats]]:
        """For each action, the features that rules touch, and with the rules' coefficients B there, B'B and
        B'b for bounds b."""
        by_action, n_actions = self.form.couplings.tocsc(), self.form.base.shape[1]
        costs = []
        for action in range(n_actions):
            couplings = sparse.csr_array(by_action[:, action::n_actions])
            used = np.unique(couplings.indices)
            touched = couplings[:, used]
            costs.append((used, sparse.csr_array(touched.T @ touched), touched.T @ self.form.bounds))
        return costs

    def measure(self, features: Floats) -> Floats:
        """Compute the norm of each row, (n_rows,), from its features, (F, n_rows)."""
        squares, crosses = np.zeros((2, self.form.base.shape[1], features.shape[1]))
        for action, (used, gram, cross) in enumerate(self._costs):
            part = features[used]
            squares[action] = np.einsum("fn,fn->n", part, gram @ part)  # ||B phi||^2
            crosses[action] = 2 * cross @ part
        bounds = float(self.form.bounds @ self.form.bounds)
        return self.form.action_space.combine_norms(squares, crosses, bounds)

    def __call__(self, block: Block) -> NormSums:
        norms, weights = self.measure(block.features), block.row_weights
        squares = np.square(norms)
        return NormSums(float(weights @ norms), float(weights @ squares), float(weights**2 @ squares))


def sum_features(block: Block) -> Floats:
    """(F,): sum of phi."""
    return block.moments(block.row_weights[None])[:, 0]
