"""The smoothed dual: sums over blocks of rows, and what a solver sees of them.

F(lambda) = E[lse_beta(-L - C' lambda)], lambda >= 0, whose gradient is the negative violation:
dF/dlambda_j = b_j - <B_j, E[phi pi']>. The cost of a pass does not depend on the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.blas_threads import limit_blas_threads
from bylaw._base.matrices import Matrix, as_dense, compact
from bylaw._base.typing import Floats
from bylaw.data.evidence import RowData
from bylaw.data.groups import Part
from bylaw.formulation.cells import CELL_ROWS, Cells, Layout, iterate_cells
from bylaw.formulation.cost_norms import CellNorms, CostNorms
from bylaw.formulation.linear_form import LinearForm, compute_scores
from bylaw.formulation.moments import Places, compute_moments
from bylaw.language.action_space import ActionSpace

BLOCK_ROWS = 8192  # a block of features and scores fits in a core's cache
_OF_ROWS = frozenset({"mass", "loss_range", "loss_unit"})  # constants of a dual, whatever its bounds
_OF_RULES = frozenset({"support", "places", "_local_support", "local_couplings"})
_OF_ALL = _OF_ROWS | _OF_RULES
_DECIDED = 1e-9  # rows whose answer is this sure add nothing to the curvature


@dataclass(frozen=True)
class CellRows:
    """How the rows of a block are sorted by cell."""

    starts: NDArray[np.int64]  # (C + 1,): where each cell begins
    layout: Layout  # of features
    seen_layout: Layout | None = None  # of features as observed
    order: NDArray[np.intp] | None = None  # (n_rows,): which rows of the evidence these are

    def rows(self, part: Part, n_rows: int) -> CellRows:
        """Where the cells of some rows, in order, begin."""
        places = np.arange(n_rows)[part]
        order = None if self.order is None else self.order[part]
        return replace(self, starts=np.searchsorted(places, self.starts), order=order)

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n_rows,): the cell of each row."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@dataclass(frozen=True)
class Block:
    """Some rows, ready for a pass: features action-major, and weights. Where rows are sorted by cell, only
    the columns are kept of which their features are made."""

    columns: Floats  # (D, n_rows): without cells, the features (F, n_rows)
    weights: Floats | None  # (n_rows,), or None for ones
    seen: Floats | None = None  # (n_observed_columns, n_rows): the same rows as they turned out
    cells: CellRows | None = None

    def rows(self, part: Part) -> Block:
        """Some of the rows, in order."""
        return Block(
            self.columns[:, part].copy(),
            None if self.weights is None else self.weights[part],
            None if self.seen is None else self.seen[:, part].copy(),
            None if self.cells is None else self.cells.rows(part, self.n_rows),
        )

    def with_observed(self, twin: Block) -> Block:
        """With the features that the same rows have in a twin as those that were observed."""
        cells = self.cells
        if cells is not None and twin.cells is not None:
            cells = replace(cells, seen_layout=twin.cells.layout)
        return replace(self, seen=twin.columns, cells=cells)

    @property
    def n_rows(self) -> int:
        return self.columns.shape[1]

    @property
    def row_weights(self) -> Floats:
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @property
    def mass(self) -> float:
        return float(self.n_rows if self.weights is None else self.weights.sum())

    @property
    def starts(self) -> NDArray[np.int64]:
        """(C + 1,): where each cell begins."""
        return np.array([0, self.n_rows]) if self.cells is None else self.cells.starts

    @property
    def features(self) -> Floats:
        """(F, n_rows), made where they are not kept."""
        cells = self.cells
        return self.columns if cells is None else cells.layout.expand(self.columns, cells.starts)

    @property
    def observed(self) -> Floats | None:
        """(F', n_rows): features of the rows as they turned out."""
        layout = None if self.cells is None else self.cells.seen_layout
        return self.seen if self.seen is None or layout is None else layout.expand(self.seen, self.starts)

    def scores(self, score_matrix: Floats) -> Floats:
        """features' score_matrix, (A, n_rows), of a matrix (F, A)."""
        if self.cells is None:
            return compute_scores(score_matrix, self.columns)
        return self.cells.layout.scores(score_matrix, self.columns, self.starts)

    def moments(
        self,
        distribution: Floats,
        chosen: NDArray[np.int64] | None = None,
        places: Places | None = None,
    ) -> Floats:
        """(F, A): sum of phi pi', of a distribution (A, n_rows) times weights; of features that are none of
        the chosen columns, and elsewhere than at the places that are wanted, zero."""
        if self.cells is not None:
            return self.cells.layout.moments(distribution, self.columns, self.starts, chosen)
        if places is not None:
            return places.compute(self.columns, distribution)
        if chosen is None:
            return self.columns @ distribution.T
        moments = np.zeros((len(self.columns), len(distribution)))
        moments[chosen] = self.columns[chosen] @ distribution.T
        return moments

    def observed_moments(self, distribution: Floats, places: Places | None = None) -> Floats | None:
        """(F', A): the same with features as observed."""
        layout = None if self.cells is None else self.cells.seen_layout
        if self.seen is None or layout is None:
            return None if self.seen is None else compute_moments(places, self.seen, distribution)
        return layout.moments(distribution, self.seen, self.starts)


def make_blocks(
    form: LinearForm, evidence: RowData, most: int | None = None, like: Sequence[Block] | None = None
) -> list[Block]:
    """All rows as blocks, or the first few blocks. Block i takes every n-th row from row i on, of the rows
    sorted by cell, so that the first few are a fair sample of all and have their share of each cell. With
    `like`, each block has the same rows in the same order as that one."""
    evidence = form.feature_map.admit(evidence)
    if evidence.weights is not None and not evidence.weights.all():
        evidence = evidence.rows(np.flatnonzero(evidence.weights))  # a sample of nothing teaches nothing
    if like is None:
        cells = Cells.find(form.feature_map, evidence)
        n_blocks = -(-len(evidence) // max(BLOCK_ROWS, len(cells) * CELL_ROWS))
    else:
        cells = like[0].cells.layout.cells if like[0].cells else Cells((), ())
        n_blocks = len(like)
    chosen = range(n_blocks if most is None else min(most, n_blocks))
    if not cells.names:
        return [make_block(form, evidence, slice(i, None, n_blocks)) for i in chosen]
    layout = cells.lay_out(form.feature_map, evidence)
    if like is None:
        codes = cells.locate(evidence)
        order, places = np.argsort(codes, kind="stable"), np.arange(len(cells) + 1)
        parts = [order[i::n_blocks] for i in chosen]
        sorted_rows = [CellRows(np.searchsorted(codes[part], places), layout, order=part) for part in parts]
    else:
        sorted_rows = [
            replace(block.cells, layout=layout, seen_layout=None)
            for block in like[: len(chosen)]
            if block.cells
        ]
    return [_make_sorted_block(form, evidence, rows) for rows in sorted_rows]


def _make_sorted_block(form: LinearForm, evidence: RowData, cells: CellRows) -> Block:
    """Some rows, which are sorted by cell."""
    layout, rows = cells.layout, cells.order
    assert rows is not None
    feature_map = replace(form.feature_map, features=layout.columns)
    columns = feature_map.columns(evidence, rows, np.empty((len(layout.columns), len(rows))))
    weights = None if evidence.weights is None else evidence.weights[rows]
    return Block(columns, weights, cells=cells)


def make_block(form: LinearForm, evidence: RowData, rows: slice = slice(None)) -> Block:
    """Some rows of evidence that the form's recipe has admitted."""
    width = len(range(*rows.indices(len(evidence))))
    features = form.feature_map.columns(evidence, rows, np.empty((len(form.feature_map.features), width)))
    return Block(features, None if evidence.weights is None else evidence.weights[rows].copy())


def join_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The same rows in fewer blocks."""
    columns = np.concatenate([block.columns for block in blocks], axis=1)
    weights = None if blocks[0].weights is None else np.concatenate([block.row_weights for block in blocks])
    cells = blocks[0].cells
    if cells is not None:
        codes = np.concatenate([block.cells.codes for block in blocks if block.cells is not None])
        order = np.argsort(codes, kind="stable")
        columns, weights = columns[:, order], None if weights is None else weights[order]
        cells = replace(cells, starts=np.searchsorted(codes[order], np.arange(len(cells.starts))), order=None)
    whole = Block(columns, weights, cells=cells)
    n_blocks = max(-(-whole.n_rows // BLOCK_ROWS), 1)
    return [whole.rows(slice(i, None, n_blocks)) for i in range(n_blocks)]


@dataclass(frozen=True)
class Tally:
    """Sums over rows; tallies of different rows add up."""

    mass: float  # total weight
    potential: float  # sum of lse_beta (or softplus) of the scores
    moments: Floats  # (F, A): sum of phi pi'
    curvature: Floats | None = None  # (C, q, q): in each cell, its second derivative at q places
    observed: Floats | None = None  # (F', A): sum of phi' pi', with the features as observed
    response: Floats | None = None  # (C, q', q): in each cell, the derivative of these at q' places

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.mass + other.mass,
            self.potential + other.potential,
            self.moments + other.moments,
            _add(self.curvature, other.curvature),
            _add(self.observed, other.observed),
            _add(self.response, other.response),
        )


def _add(one: Floats | None, other: Floats | None) -> Floats | None:
    return None if one is None or other is None else one + other


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


def tally(
    block: Block,
    score_matrix: Floats,
    beta: float,
    space: ActionSpace,
    support: Support | None = None,
    chosen: NDArray[np.int64] | None = None,
    places: tuple[Places | None, Places | None] = (None, None),
    seen_support: Support | None = None,
) -> Tally:
    """One pass over one block, with scores = features' score_matrix, (F, A); with `support`, the
    curvature at those places is tallied too, and with `chosen`, the moments of those columns alone. `places`
    are where predicted and observed moments are wanted, `seen_support` where the latter's derivative is."""
    scores = block.scores(beta * score_matrix)
    potential = space.to_probabilities(scores)
    curvature = response = None
    if support is not None:
        sides = [(block.columns, support)]
        if seen_support is not None and block.seen is not None:
            sides.append((block.seen, seen_support))
        curvature, response = (*_curvature(block, scores, space, beta, *sides), None)[:2]
    if block.weights is not None:
        scores *= block.weights
        potential *= block.weights
    moments = block.moments(scores, chosen, places[0])
    observed = block.observed_moments(scores, places[1])
    return Tally(block.mass, float(potential.sum()) / beta, moments, curvature, observed, response)


Side = tuple[Floats, Support]  # columns (D, n_rows) and the places of them that count


def _curvature(
    block: Block, probabilities: Floats, space: ActionSpace, beta: float, *sides: Side
) -> list[Floats]:
    """sum of beta phi_k phi_l (1{a = b} pi_a - pi_a pi_b) over each cell's rows, from undecided ones alone:
    for each side, k are its places and l those of the first.

    For sets, labels are apart: the sum of beta phi_k phi_l 1{a = b} pi_a (1 - pi_a). So is an action that is
    the only one that rules touch.
    """
    starts, mass = block.starts, np.sqrt(beta * block.row_weights)
    size = len(sides[0][1].actions)
    totals = [np.zeros((len(starts) - 1, len(support.actions), size)) for _, support in sides]
    alone = len({action for _, support in sides for action, _ in support.by_action}) == 1
    if space.exclusive and not alone:
        undecided, mass = _select(probabilities.max(axis=0) < 1 - _DECIDED, mass)
        probabilities = probabilities[:, undecided]
        sides = tuple((columns[:, undecided], support) for columns, support in sides)
        starts = _locate(starts, undecided)
        spreads = [
            columns[support.features] * (probabilities[support.actions] * mass) for columns, support in sides
        ]
        for cell, rows in iterate_cells(starts):
            for total, spread in zip(totals, spreads, strict=True):
                total[cell] -= spread[:, rows] @ spreads[0][:, rows].T  # of the first: half the work
    diagonal = space.curvature_diagonal(probabilities)
    if alone and space.exclusive:
        diagonal = {action: diagonal[action] * (1 - diagonal[action]) for action, _ in sides[0][1].by_action}
    _add_diagonal(totals, diagonal, mass, starts, sides)
    return totals


def _add_diagonal(
    totals: list[Floats],
    diagonal: Floats | Mapping[int, Floats],
    mass: Floats,
    starts: NDArray[np.int64],
    sides: Sequence[Side],
) -> None:
    """The part of the curvature between places of one action, from each action's diagonal, (n_rows,)."""
    for action, first in sides[0][1].by_action:
        rows, factor = _select(diagonal[action] > _DECIDED, mass)
        factor = factor * np.sqrt(diagonal[action][rows])
        places = [dict(support.by_action).get(action, slice(0)) for _, support in sides]
        spreads = [
            columns[support.features[here]][:, rows] * factor
            for (columns, support), here in zip(sides, places, strict=True)
        ]
        for cell, inside in iterate_cells(_locate(starts, rows)):
            for total, here, spread in zip(totals, places, spreads, strict=True):
                total[cell, here, first] += spread[:, inside] @ spreads[0][:, inside].T


def _select(wanted: NDArray[np.bool_], mass: Floats) -> tuple[NDArray[np.intp] | slice, Floats]:
    """The rows that are wanted, and their mass; where all are, without a copy."""
    if wanted.all():
        return slice(None), mass
    rows = np.flatnonzero(wanted)
    return rows, mass[rows]


def _locate(starts: NDArray[np.int64], rows: NDArray[np.intp] | slice) -> NDArray[np.int64]:
    """Where cells begin among some of the rows."""
    return starts if isinstance(rows, slice) else np.searchsorted(rows, starts)


@dataclass(frozen=True)
class Hessian:
    """couplings @ curvature @ couplings' + ridge: M rules may be many, the places they touch few."""

    couplings: Matrix  # (M, Q)
    curvature: Matrix  # (Q, Q)
    ridge: float

    def __matmul__(self, vector: Floats) -> Floats:
        return self.couplings @ (self.curvature @ (self.couplings.T @ vector)) + self.ridge * vector

    def restrict(self, rules: NDArray[np.bool_] | slice) -> Floats:
        """The part for some rules, dense."""
        couplings = self.couplings[rules]
        half = couplings @ self.curvature
        part = couplings @ as_dense(half).T
        return part + self.ridge * np.eye(len(part))

    @cached_property
    def trace(self) -> float:
        gram = self.couplings.T @ self.couplings
        if isinstance(gram, np.ndarray) and isinstance(self.curvature, np.ndarray):
            return float((gram * self.curvature).sum()) + self.ridge * self.n_rules
        return float(sparse.csr_array(gram).multiply(self.curvature).sum()) + self.ridge * self.n_rules

    @property
    def n_rules(self) -> int:
        return (
            len(self.couplings) if isinstance(self.couplings, np.ndarray) else len(self.couplings.indptr) - 1
        )


@dataclass(frozen=True)
class Dual:
    """What a solver sees: value, gradient and Hessian on all rows, and the paper's constants."""

    form: LinearForm
    blocks: Sequence[Block]
    beta: float
    ridge: float = 0.0  # adds ridge/2 |lambda|^2: keeps small samples from asking the impossible
    observed_places: Places | None = None  # where observed moments are wanted; None for everywhere
    all_moments: bool = False  # those, too, that neither the objective nor a rule refers to

    @property
    def n_rules(self) -> int:
        return len(self.form.bounds)

    @property
    def n_rows(self) -> int:
        return sum(block.n_rows for block in self.blocks)

    def with_bounds(self, bounds: Floats) -> Dual:
        """The same rows under other bounds, (M,)."""
        return self._share(replace(self, form=replace(self.form, bounds=bounds)), _OF_ALL)

    def with_form(self, form: LinearForm) -> Dual:
        """The same rows under rules with other coefficients of the same features."""
        return self._share(replace(self, form=form), _OF_ROWS)

    def with_beta(self, beta: float) -> Dual:
        """The same rows and rules, with another inverse temperature."""
        return self._share(replace(self, beta=beta), _OF_ALL)

    def with_rows(self, blocks: Sequence[Block]) -> Dual:
        """The same rules on a sample of the rows; the units of the loss stay those of all rows."""
        return self._share(replace(self, blocks=blocks), _OF_RULES | {"loss_range", "loss_unit"})

    def sample(self, blocks: Sequence[Block], beta: float) -> Dual:
        """The same rules on a sample of the rows, with its own units of the loss."""
        _ = self._local_support, self.places  # once for all samples
        return self._share(replace(self, blocks=blocks, beta=beta), _OF_RULES)

    def with_observed(self, blocks: Sequence[Block], places: Places | None) -> Dual:
        """The same rows with their features as observed, and where moments of these are wanted."""
        return self._share(replace(self, blocks=blocks, observed_places=places), _OF_ALL)

    def _share(self, other: Dual, constants: frozenset[str] | set[str]) -> Dual:
        """Constants that were computed here and are the same there."""
        other.__dict__.update({name: self.__dict__[name] for name in constants if name in self.__dict__})
        return other

    @cached_property
    def mass(self) -> float:
        return sum(block.mass for block in self.blocks)

    @cached_property
    def support(self) -> tuple[Support, Matrix]:
        """The places that rules touch, and the couplings there, (M, Q)."""
        places = np.unique(self.form.couplings.indices)
        places = places[np.argsort(places % self.form.base.shape[1], kind="stable")]
        features, actions = np.divmod(places, self.form.base.shape[1])
        return Support(features, actions), compact(self.form.couplings[:, places])

    @cached_property
    def places(self) -> Places | None:
        """Where moments are wanted; None for everywhere."""
        form = self.form
        wanted = np.concatenate([np.flatnonzero(form.base), form.couplings.indices])
        return None if self.all_moments else Places.choose(wanted, form.base.shape)

    @cached_property
    def _local_support(self) -> tuple[Support, Matrix | None]:
        """The places of columns that rules touch in any cell, and which of them are those of the support in
        which cell, (Q, C * q); None where they are the same."""
        support, cells = self.support[0], self.blocks[0].cells
        if cells is None:
            return support, None
        columns, actions, places = cells.layout.localize(support.features, support.actions)
        return Support(columns, actions), compact(places)

    @cached_property
    def local_couplings(self) -> Floats:
        """(C, M, q): the rules' coefficients at the places of the curvature, in each cell."""
        couplings, (local, places) = self.support[1], self._local_support
        if places is None:
            return as_dense(couplings)[None]
        found = as_dense(couplings @ places).reshape(self.n_rules, -1, len(local.actions))
        return found.transpose(1, 0, 2)

    def tally(
        self,
        multipliers: Floats,
        curvature: bool = False,
        rules_alone: bool = False,
        seen_support: Support | None = None,
    ) -> Tally:
        """The sums over all rows; with `rules_alone`, moments only of the features that rules touch: with
        many classes, most serve the cost alone. With curvature and `seen_support`, how the observed moments
        respond at these places."""
        score_matrix, space = self.form.score_matrix(multipliers), self.form.action_space
        support = self._local_support[0] if curvature else None
        chosen = np.unique(self._local_support[0].features) if rules_alone else None
        places = (self.places, self.observed_places)
        with limit_blas_threads():
            parts = (
                tally(block, score_matrix, self.beta, space, support, chosen, places, seen_support)
                for block in self.blocks
            )
            return reduce(add, parts)

    def value_and_gradient(self, multipliers: Floats) -> tuple[float, Floats]:
        """F(lambda) and its gradient, (M,)."""
        return self.first_order(self.tally(multipliers, rules_alone=True), multipliers)

    def first_order(self, total: Tally, multipliers: Floats) -> tuple[float, Floats]:
        form = self.form
        value = total.potential / total.mass + float(form.bounds @ multipliers) - form.base_constant
        gradient = form.bounds - form.operator @ (total.moments.ravel() / total.mass)
        value += self.ridge / 2 * float(multipliers @ multipliers)
        return value, gradient + self.ridge * multipliers

    def hessian(self, multipliers: Floats) -> Floats:
        """(M, M)."""
        return self.second_order(self.tally(multipliers, curvature=True)).restrict(slice(None))

    def second_order(self, total: Tally) -> Hessian:
        assert total.curvature is not None
        curvature, places = total.curvature / total.mass, self._local_support[1]
        if places is None:
            return Hessian(self.support[1], curvature[0], self.ridge)
        n_cells, size = curvature.shape[:2]
        cells = np.arange(n_cells + 1)
        if isinstance(places, np.ndarray):
            apart = np.zeros((n_cells, size, n_cells, size))
            apart[cells[:-1], :, cells[:-1]] = curvature
            return Hessian(
                self.support[1], places @ apart.reshape(places.shape[1], -1) @ places.T, self.ridge
            )
        apart = sparse.bsr_array((curvature, cells[:-1], cells), shape=(n_cells * size, n_cells * size))
        together = sparse.csr_array(places @ apart.tocsr() @ places.T)
        return Hessian(self.support[1], together, self.ridge)

    def stochastic_gradient(self, multipliers: Floats, block: Block) -> Floats:
        """The gradient on some rows, each counting with its weight, (M,): unbiased for rows that are
        drawn evenly and have weights of mean one."""
        total = tally(block, self.form.score_matrix(multipliers), self.beta, self.form.action_space)
        moments = self.form.couplings @ total.moments.ravel()
        return (self.form.bounds * total.mass - moments) / block.n_rows

    def conflict(self, multipliers: Floats) -> float:
        """E[min over policies of lambda' c]: above zero, no policy satisfies every rule."""
        weights = (self.form.couplings.T @ multipliers).reshape(self.form.base.shape)
        return self._mean(self.form.action_space.min_loss, weights) - float(self.form.bounds @ multipliers)

    def best_response(self, multipliers: Floats) -> Floats:
        """E[c] - b, (M,), of the policy of least lambda'c on every row."""
        weights = (self.form.couplings.T @ multipliers).reshape(self.form.base.shape)
        moments = np.zeros_like(weights)
        with limit_blas_threads():
            for block in self.blocks:
                decision = self.form.action_space.best_decision(block.scores(weights))
                moments += block.moments(decision * block.row_weights)
        return self.form.couplings @ (moments.ravel() / self.mass) - self.form.bounds

    @property
    def highest_cost(self) -> float:
        """E[largest loss of a row]: no policy costs more."""
        return self.loss_range[1]

    @cached_property
    def loss_unit(self) -> float:
        """E[largest - smallest loss of a row], or 1 if no decision matters to the objective."""
        return self.loss_range[1] - self.loss_range[0] or 1.0

    @cached_property
    def loss_range(self) -> tuple[float, float]:
        """E[smallest loss of a row] and E[largest loss of a row]."""
        space, constant = self.form.action_space, self.form.base_constant
        lowest = highest = 0.0
        for block in self.blocks:
            losses = block.scores(self.form.base)
            lowest += float(block.row_weights @ space.min_loss(losses))
            highest -= float(block.row_weights @ space.min_loss(np.negative(losses, out=losses)))
        return constant + lowest / self.mass, constant + highest / self.mass

    def _mean(self, statistic: Callable[[Floats], Floats], weights: Floats) -> float:
        """E[statistic of the row's (n_actions,) products with these weights (F, A)]."""
        with limit_blas_threads():
            sums = [float(block.row_weights @ statistic(block.scores(weights))) for block in self.blocks]
        return sum(sums) / self.mass

    @property
    def mean_norm(self) -> float:
        """E||C(x)||_{1->2}, the bound on the gradient's norm."""
        return self._norm_moments[0]

    @property
    def sigma2(self) -> float:
        """sigma^2 = E||C(x)||_{1->2}^2, the bound on the variance of a stochastic gradient.

        A row of weight w (of mean one) steps with w times its gradient: then also E[w^2 ||C(x)||^2].
        """
        return self._norm_moments[1]

    @property
    def smoothness(self) -> float:
        """L = 2 beta sigma^2, a Lipschitz constant of the gradient."""
        return 2 * self.beta * self.sigma2

    @cached_property
    def _norm_moments(self) -> tuple[float, float]:
        support, places = self._local_support
        norms_of = (
            CostNorms(self.form) if places is None else CellNorms(self.form, support, self.support[1], places)
        )
        first = second = scaled = 0.0
        with limit_blas_threads():
            for block in self.blocks:
                norms, weights = norms_of(block), block.row_weights
                first += float(weights @ norms)
                second += float(weights @ norms**2)
                scaled += float(weights**2 @ norms**2)
        return first / self.mass, max(second / self.mass, scaled * self.n_rows / self.mass**2)
