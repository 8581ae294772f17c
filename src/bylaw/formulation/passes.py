"""Passes: what a pass over rows computes on each block. The results of different blocks add up.

Whoever wants something of all rows asks for sums, and a pass tells what is summed. So rows need not be in
memory: a pass travels to where they are, and only its sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bylaw._base.blas_threads import limit_blas_threads
from bylaw._base.typing import Floats
from bylaw.formulation.blocks import Block
from bylaw.formulation.cells import Layout, iterate_cells
from bylaw.formulation.cost_norms import CellNorms, CostNorms
from bylaw.formulation.linear_form import LinearForm
from bylaw.formulation.moments import Places
from bylaw.language.action_space import ActionSpace

_DECIDED = 1e-9  # rows whose answer is this sure add nothing to the curvature


class Sums(Protocol):
    """Sums over rows; those of different rows add up."""

    def __add__(self, other: Self, /) -> Self: ...


class Pass(Protocol):
    """What is summed: a function of a block of rows, which may run in another process."""

    def __call__(self, block: Block, /) -> Any: ...


class RowSource(Protocol):
    """Rows that live elsewhere, and are only ever seen by their sums."""

    @property
    def n_rows(self) -> int: ...

    @property
    def mass(self) -> float:
        """The sum of all weights."""
        ...

    def total(self, *passes: Pass) -> list[Any]:
        """The sums of each pass over all rows, all of them in one walk over the rows."""
        ...

    def observe(self, form: LinearForm) -> RowSource:
        """The same rows, whose blocks have the features of this form as observed, too."""
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
    places: tuple[Places | None, Places | None] = (None, None)  # where predicted and observed moments go

    def __call__(self, block: Block) -> Tally:
        scores = block.scores(self.beta * self.score_matrix)
        potential = self.space.to_probabilities(scores)
        curvature = None if self.support is None else self._compute_curvature(block, scores, self.support)
        if block.weights is not None:
            scores *= block.weights
            potential *= block.weights
        moments = block.moments(scores, self.chosen, self.places[0])
        observed = block.observed_moments(scores, self.places[1])
        return Tally(block.mass, float(potential.sum()) / self.beta, moments, curvature, observed)

    def _compute_curvature(self, block: Block, probabilities: Floats, support: Support) -> Floats:
        """sum of beta phi_k phi_l (1{a = b} pi_a - pi_a pi_b) over each cell's rows, from undecided ones
        alone. For sets, labels are apart: the sum of beta phi_k phi_l 1{a = b} pi_a (1 - pi_a)."""
        size = len(support.actions)
        total = np.zeros((len(block.starts) - 1, size, size))
        columns, starts, mass = block.columns, block.starts, np.sqrt(self.beta * block.row_weights)
        if self.space.exclusive:
            undecided = np.flatnonzero(probabilities.max(axis=0) < 1 - _DECIDED)
            probabilities, columns, mass = probabilities[:, undecided], columns[:, undecided], mass[undecided]
            starts = np.searchsorted(undecided, starts)
            spread = columns[support.features] * (probabilities[support.actions] * mass)
            for cell, rows in iterate_cells(starts):
                part = spread[:, rows]
                total[cell] -= part @ part.T  # of a matrix and itself: half the work
        diagonal = self.space.curvature_diagonal(probabilities)
        open_ = diagonal > _DECIDED
        for action, here in support.by_action:
            rows = np.flatnonzero(open_[action])
            spread = columns[support.features[here, None], rows] * (np.sqrt(diagonal[action]) * mass)[rows]
            for cell, inside in iterate_cells(np.searchsorted(rows, starts)):
                part = spread[:, inside]
                total[cell, here, here] += part @ part.T
        return total


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
    """The norms of the rules' costs."""

    norms: CostNorms | CellNorms

    def __call__(self, block: Block) -> NormSums:
        norms, weights = self.norms(block), block.row_weights
        squares = norms**2
        return NormSums(float(weights @ norms), float(weights @ squares), float(weights**2 @ squares))


def sum_features(block: Block) -> Floats:
    """(F,): sum of phi."""
    return block.moments(block.row_weights[None])[:, 0]
