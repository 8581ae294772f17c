"""The smoothed dual of a compiled problem, and the sums over rows from which it is computed.

The dual function is F(lambda) = E[lse_beta(-L - C' lambda)] for multipliers lambda >= 0, one per rule. Its
gradient is the negative violation, dF/dlambda_j = b_j - <B_j, E[phi pi']>. The time for one evaluation does
not depend on the number of rules.

A pass is a function of a block of rows whose results are added up over the blocks. So rows need not be in
memory: passes are sent to the processes that read the rows, and only the sums are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats, Mask, Matrix, as_dense, checkpoint, compact, find_columns, limit_blas_threads
from bylaw.language import ActionSpace
from bylaw.program._blocks import Block, Layout, iterate_cells
from bylaw.program._linear_form import LinearForm

_DECIDED = 1e-9  # a row adds nothing to the curvature if other decisions have a smaller probability
_MANY_ENTRIES = 2**14  # least number of moments for which only the used ones are computed


class Pass(Protocol):
    """A function of a block of rows whose results are added up. It may run in another process."""

    def __call__(self, block: Block, /) -> Any: ...


class RowSource(Protocol):
    """Rows that are not in memory and are read only by passes over all of them."""

    @property
    def n_rows(self) -> int: ...

    @property
    def mass(self) -> float:
        """The sum of all weights."""
        ...

    @property
    def passes(self) -> int:
        """The number of passes over all rows for this problem so far."""
        ...

    def total(self, *passes: Pass) -> list[Any]:
        """Return the sums of each pass over all rows; the rows are read once for all passes."""
        ...

    def observe(self, form: LinearForm, layout: Layout | None) -> RowSource:
        """Return the same rows, with the observed features of `form` in their blocks."""
        ...


@runtime_checkable
class UnseenRows(RowSource, Protocol):
    """Rows of which not even a sample is in memory."""

    @property
    def layout(self) -> Layout | None:
        """The layout of features in columns and cells, or None without cells."""
        ...

    def sampling(self) -> AbstractContextManager[Callable[[int], RowSource]]:
        """Lend a function that samples about this many rows, which stay in the database until the end."""
        ...


def sum_blocks(blocks: Iterable[Block], passes: Sequence[Pass]) -> list[Any]:
    """Return the sums of each pass over these blocks, in the order of the passes."""
    checkpoint()
    with limit_blas_threads():
        parts = ([one(block) for one in passes] for block in blocks)
        return reduce(lambda total, part: list(map(add, total, part)), parts)


@dataclass(frozen=True)
class Support:
    """The pairs (feature, action) on which rules depend; second derivatives are computed for these.

    If rows are sorted by cell, these are pairs (column, action) of the columns of the features.
    """

    features: NDArray[np.int64]  # (n_pairs,): the feature (or column) of each pair
    actions: NDArray[np.int64]  # (n_pairs,): the action of each pair, in ascending order

    @cached_property
    def by_action(self) -> list[tuple[int, slice, NDArray[np.int64]]]:
        """Each action in the support, the slice of its pairs, and the features of these pairs."""
        actions, starts, counts = np.unique(self.actions, return_index=True, return_counts=True)
        places = [slice(start, start + count) for start, count in zip(starts, counts, strict=True)]
        return [(int(a), place, self.features[place]) for a, place in zip(actions, places, strict=True)]


class Sums:
    """A dataclass of sums over rows. Sums over different rows are added field by field."""

    def __add__(self, other: Self) -> Self:
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(None if one is None or two is None else one + two for one, two in pairs))


@dataclass(frozen=True)
class Tally(Sums):
    """Sums over rows from which the dual and its derivatives are computed."""

    mass: float  # sum of the row weights
    potential: float  # sum of lse_beta (or softplus) of the scores
    moments: Floats  # (n_features, n_actions): sum of phi pi'
    curvature: Floats | None = None  # (n_cells, n_pairs, n_pairs): second derivatives
    observed: Floats | None = None  # (n_observed_features, n_actions): the moments of observed features


@dataclass(frozen=True)
class TallyPass:
    """A pass that computes a `Tally` of the policy with scores features' @ score_matrix."""

    score_matrix: Floats  # (n_features, n_actions)
    beta: float
    space: ActionSpace
    support: Support | None = None
    wanted: tuple[Mask | None, Mask | None] = (None, None)  # used entries of moments and observed moments

    def __call__(self, block: Block) -> Tally:
        scores = block.scores(self.beta * self.score_matrix)
        potential = self.space.to_probabilities(scores)
        curvature = None
        if self.support is not None:
            curvature = _compute_curvature(block, scores, self.space, self.beta, self.support)
        if block.weights is not None:
            scores *= block.weights
            potential *= block.weights
        moments = block.moments(scores, self.wanted[0])
        observed = block.observed_moments(scores, self.wanted[1])
        potential = float(potential.sum()) / self.beta
        return Tally(block.mass, potential, moments, curvature, observed)


def _compute_curvature(
    block: Block, probabilities: Floats, space: ActionSpace, beta: float, support: Support
) -> Floats:
    """Return the second derivatives for the pairs of a support in each cell, (n_cells, n_pairs, n_pairs).

    They are the sum of beta phi_k phi_l (1{a = b} pi_a - pi_a pi_b) over the rows. Rows whose decision is
    practically certain are skipped. For sets, the decisions on labels are independent, and the sum is that of
    beta phi_k phi_l 1{a = b} pi_a (1 - pi_a). Both formulas agree if the rules involve only one action.
    """
    starts, columns, mass = block.starts, block.columns, beta * block.row_weights
    total = np.zeros((len(starts) - 1, len(support.actions), len(support.actions)))
    alone = space.exclusive and len(support.by_action) == 1
    if space.exclusive and not alone:
        # Subtract beta phi_k phi_l pi_a pi_b, on rows without a certain decision.
        undecided = np.flatnonzero(probabilities.max(axis=0) < 1 - _DECIDED)
        if len(undecided) < block.n_rows:
            probabilities, columns, mass = probabilities[:, undecided], columns[:, undecided], mass[undecided]
            starts = np.searchsorted(undecided, starts)
        spread = columns[support.features] * (probabilities[support.actions] * np.sqrt(mass))
        for cell, rows in iterate_cells(starts):
            total[cell] -= spread[:, rows] @ spread[:, rows].T  # one matrix: half the work
    # Add the products of pairs that have the same action.
    diagonal = space.curvature_diagonal(probabilities)
    for action, place, features in support.by_action:
        chances, part, inside = diagonal[action], columns[features], starts
        factor = chances * (1 - chances) * mass if alone else chances * mass
        rows = np.flatnonzero(chances > _DECIDED)
        if len(rows) < len(chances):
            part, factor, inside = part[:, rows], factor[rows], np.searchsorted(rows, starts)
        scaled = part * factor
        for cell, here in iterate_cells(inside):
            total[cell, place, place] += part[:, here] @ scaled[:, here].T
    return total


@dataclass(frozen=True)
class ResponsePass:
    """A pass that computes the moments of the decisions of least cost, for action costs features' @ costs."""

    costs: Floats  # (n_features, n_actions)
    space: ActionSpace

    def __call__(self, block: Block) -> Floats:
        return block.moments(self.space.best_decision(block.scores(self.costs)) * block.row_weights)


@dataclass(frozen=True)
class LossRangePass:
    """A pass that computes the sums over rows of the smallest and of the largest loss of any action, (2,)."""

    base: Floats  # (n_features, n_actions)
    space: ActionSpace

    def __call__(self, block: Block) -> Floats:
        losses, weights = block.scores(self.base), block.row_weights
        lowest = weights @ self.space.min_loss(losses)
        return np.array([lowest, -weights @ self.space.min_loss(np.negative(losses, out=losses))])


@dataclass(frozen=True)
class NormPass:
    """A pass that computes the sums of w ||C||, w ||C||^2 and w^2 ||C||^2 over rows with weights w, (3,).

    ||C(x)||_{1->2} is the largest norm, over decisions on row x, of the vector of the rules' costs less their
    bounds. These norms bound gradients and their variance.
    """

    form: LinearForm

    @cached_property
    def _costs(self) -> list[tuple[NDArray[np.int64], sparse.csr_array, Floats]]:
        """For each action: the features on which rules depend, and the products B'B and B'b for `measure`."""
        by_action, n_actions, costs = self.form.couplings.tocsc(), self.form.base.shape[1], []
        for action in range(n_actions):
            couplings = sparse.csr_array(by_action[:, action::n_actions])
            used = np.unique(couplings.indices)
            touched = couplings[:, used]
            costs.append((used, sparse.csr_array(touched.T @ touched), touched.T @ self.form.bounds))
        return costs

    def measure(self, features: Floats) -> Floats:
        """Return the norm of the rules' costs on each row, (n_rows,); `features` are (n_features, n_rows)."""
        squares, crosses = np.zeros((2, self.form.base.shape[1], features.shape[1]))
        for action, (used, gram, cross) in enumerate(self._costs):
            part = features[used]
            squares[action] = np.einsum("fn,fn->n", part, gram @ part)  # ||B phi||^2
            crosses[action] = 2 * cross @ part
        bounds = float(self.form.bounds @ self.form.bounds)
        return self.form.action_space.combine_norms(squares, crosses, bounds)

    def __call__(self, block: Block) -> Floats:
        norms, weights = self.measure(block.features), block.row_weights
        return np.array([weights @ norms, weights @ norms**2, weights**2 @ norms**2])


def sum_features(block: Block) -> Floats:
    """Return the weighted sum of the features over the rows of a block, (n_features,)."""
    return block.moments(block.row_weights[None])[:, 0]


_EXCESS_ROWS = 1024  # rows whose excesses are computed at a time, to save memory if rules are many


@dataclass(frozen=True)
class RuleExcesses(Sums):
    """Sums for the excesses of rules (rates less bounds), in the dual's units, and their standard errors."""

    mass: float  # sum of weights w
    squared_mass: float  # sum of w^2
    value: float  # sum of w times the dual's value
    excesses: Floats  # (n_rules,): sum of w (c_j - b_j)
    scaled: Floats  # (n_rules,): sum of w^2 (c_j - b_j)
    squares: Floats  # (n_rules,): sum of w^2 (c_j - b_j)^2

    @property
    def mean(self) -> Floats:
        """The excess of each rule, E[c_j] - b_j, (n_rules,): positive if the rule is violated."""
        return self.excesses / self.mass

    @property
    def standard_errors(self) -> Floats:
        """The standard errors of the excesses, (n_rules,)."""
        spread = self.squares - 2 * self.mean * self.scaled + self.mean**2 * self.squared_mass
        return np.sqrt(np.maximum(spread, 0.0)) / self.mass


@dataclass(frozen=True)
class ExcessPass:
    """A pass that computes the `RuleExcesses` of the policy given by the multipliers."""

    form: LinearForm
    multipliers: Floats  # (n_rules,)
    beta: float
    support: Support
    couplings: Matrix  # (n_rules, n_pairs): coefficients of the rules for each pair of the support

    def __call__(self, block: Block) -> RuleExcesses:
        starts = range(0, block.n_rows, _EXCESS_ROWS)
        return reduce(add, (self._measure(block.rows(slice(i, i + _EXCESS_ROWS))) for i in starts))

    def _measure(self, block: Block) -> RuleExcesses:
        form, support, weights = self.form, self.support, block.row_weights
        probabilities = block.scores(self.beta * form.score_matrix(self.multipliers))
        potential = float(form.action_space.to_probabilities(probabilities) @ weights) / self.beta
        places = block.features[support.features] * probabilities[support.actions]
        costs = self.couplings @ places - form.bounds[:, None]
        constant = float(form.bounds @ self.multipliers) - form.base_constant
        return RuleExcesses(
            mass=block.mass,
            squared_mass=float(weights @ weights),
            value=potential + block.mass * constant,
            excesses=costs @ weights,
            scaled=costs @ weights**2,
            squares=costs**2 @ weights**2,
        )


def measure_excesses(dual: Dual, multipliers: Floats) -> RuleExcesses:
    """Return by how much the policy of these multipliers exceeds each rule's bound on the dual's rows."""
    rules = dual.rules
    return dual.total(ExcessPass(dual.form, multipliers, dual.beta, rules.support, rules.couplings))[0]


@dataclass(frozen=True)
class Simplex:
    """A constraint on the last `size` multipliers of a dual: they are non-negative with the sum `total`."""

    size: int
    total: float

    def start(self, n_rules: int) -> Floats:
        """Return initial multipliers, (n_rules,): zero for rules, and equal weights for groups."""
        point = np.zeros(n_rules)
        point[-self.size :] = self.total / self.size
        return point

    def project(self, point: Floats) -> Floats:
        """Return the nearest point, (n_rules,), with entries >= 0 and the last ones on the simplex."""
        nearest, last = np.maximum(point, 0.0), point[-self.size :]
        ordered = np.sort(last)[::-1]
        excess = (np.cumsum(ordered) - self.total) / np.arange(1, self.size + 1)
        nearest[-self.size :] = np.maximum(last - excess[np.flatnonzero(ordered > excess)[-1]], 0.0)
        return nearest

    def add_equation(self, root: Floats, target: Floats) -> tuple[Floats, Floats]:
        """Append the equation of the simplex to a least-squares problem, (n, n) and (n,), as one more row.

        The weight of the row is far above the curvature; `rescale` removes the error that remains.
        """
        line = np.zeros(root.shape[1])
        line[-self.size :] = 1e3 * max(float(abs(root).max()), np.finfo(float).tiny)
        return np.vstack([root, line]), np.append(target, line[-1] * self.total)

    def rescale(self, point: Floats) -> Floats:
        """Move a non-negative point that is nearly on the simplex onto it, (n_rules,)."""
        moved = point.copy()
        moved[-self.size :] *= self.total / float(moved[-self.size :].sum())
        return moved


def gradient_mapping(
    multipliers: Floats, gradient: Floats, alpha: float, simplex: Simplex | None = None
) -> Floats:
    """Return the gradient mapping G_alpha(lambda) = (lambda - P(lambda - alpha grad)) / alpha, (n_rules,).

    P is the projection on lambda >= 0 and, for weights of groups, on their simplex. The mapping is zero at
    the optimum.
    """
    if simplex is not None:
        return (multipliers - simplex.project(multipliers - alpha * gradient)) / alpha
    return np.minimum(multipliers / alpha, gradient)


@dataclass(frozen=True)
class Hessian:
    """The matrix couplings @ curvature @ couplings' + ridge * identity, (n_rules, n_rules)."""

    couplings: Matrix  # (n_rules, n_pairs)
    curvature: Matrix  # (n_pairs, n_pairs)
    ridge: float

    def __matmul__(self, vector: Floats) -> Floats:
        return self.couplings @ (self.curvature @ (self.couplings.T @ vector)) + self.ridge * vector

    def restrict(self, rules: NDArray[np.bool_] | slice) -> Floats:
        """Return the rows and columns of some rules, as a dense matrix."""
        couplings, curvature = self.couplings[rules], self.curvature
        if not isinstance(couplings, np.ndarray):  # few rules depend on few pairs
            touched = find_columns(couplings)
            couplings, curvature = couplings[:, touched], curvature[touched][:, touched]
        part = couplings @ as_dense(couplings @ as_dense(curvature)).T
        return part + self.ridge * np.eye(len(part))

    @cached_property
    def trace(self) -> float:
        if isinstance(self.couplings, np.ndarray):
            own, n_rules = ((self.couplings @ self.curvature) * self.couplings).sum(), len(self.couplings)
        else:
            own = (self.couplings.T @ self.couplings).multiply(self.curvature).sum()
            n_rules = len(self.couplings.indptr) - 1
        return float(own) + self.ridge * n_rules


@dataclass(frozen=True, eq=False)
class RuleConstants:
    """The pairs (feature, action) on which rules and the objective depend, and the coefficients of the rules.

    Duals whose rules differ only in their bounds share one object.
    """

    form: LinearForm
    layout: Layout | None  # of features in columns and cells, if rows are sorted by cell

    @cached_property
    def places(self) -> NDArray[np.integer]:
        """Indices of the pairs (feature, action) on which rules depend, in flattened moments, (n_pairs,)."""
        places, n_actions = np.unique(self.form.couplings.indices), self.form.base.shape[1]
        return places[np.argsort(places % n_actions, kind="stable")]

    @cached_property
    def support(self) -> Support:
        """The pairs (feature, action) on which rules depend."""
        return Support(*np.divmod(self.places, self.form.base.shape[1]))

    @cached_property
    def couplings(self) -> Matrix:
        """The coefficients of the rules for each pair of the support, (n_rules, n_pairs)."""
        return compact(self.form.operator[:, self.places])

    @cached_property
    def wanted(self) -> Mask | None:
        """A mask of the moments (column, action) that the objective or the rules use, or None for all."""
        return find_wanted(self.form.base, self.form.couplings, self.layout)

    @cached_property
    def local(self) -> tuple[Support, Matrix | None]:
        """The pairs (column, action) on which rules depend in any cell, and a matrix.

        The matrix, (n_pairs, n_cells * n_local_pairs), has ones where a pair (feature, action) of the support
        is one of these pairs in a cell. Without cells, the pairs are those of the support, and the matrix is
        None.
        """
        if self.layout is None:
            return self.support, None
        columns, actions, embedding = self.layout.localize(self.support.features, self.support.actions)
        return Support(columns, actions), compact(embedding)

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The columns of blocks on which rules depend in any cell."""
        return np.unique(self.local[0].features)


@dataclass(eq=False)
class RowConstants:
    """Constants of a dual that are sums over its rows, each None until it is first used.

    Duals of the same rows share one object.
    """

    mass: float | None = None
    loss_range: tuple[float, float] | None = None
    norms: tuple[LinearForm, tuple[float, float]] | None = None  # a form and the norms of its rules


@dataclass(frozen=True)
class Dual:
    """The smoothed dual of a compiled problem on some rows, with its value, gradient and Hessian."""

    form: LinearForm
    blocks: Sequence[Block]  # all rows; if they are out of memory, a representative sample, or nothing
    beta: float  # inverse temperature: larger values make the policy less random
    ridge: float = 0.0  # adds ridge/2 |lambda|^2, so that noise in small samples makes no rule infeasible
    observed_wanted: Mask | None = None  # mask (column, action) of the observed moments that are used
    source: RowSource | None = None  # all rows, if they are out of memory
    simplex: Simplex | None = None  # the constraint on the last multipliers, if they are weights of groups
    rules: RuleConstants = field(init=False, repr=False, compare=False)
    rows: RowConstants = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", RuleConstants(self.form, self.layout))
        object.__setattr__(self, "rows", RowConstants())

    @property
    def n_rules(self) -> int:
        return len(self.form.bounds)

    @property
    def n_rows(self) -> int:
        return sum(block.n_rows for block in self.blocks) if self.source is None else self.source.n_rows

    @property
    def layout(self) -> Layout | None:
        """The layout of features in columns and cells, or None if rows are not sorted by cell."""
        if isinstance(self.source, UnseenRows):
            return self.source.layout
        return self.blocks[0].layout if self.blocks else None

    def total(self, *passes: Pass) -> list[Any]:
        """Return the sums of each pass over all rows."""
        return sum_blocks(self.blocks, passes) if self.source is None else self.source.total(*passes)

    def with_bounds(self, bounds: Floats) -> Dual:
        """Return the dual of the same rows with other bounds of the rules, (n_rules,)."""
        return self._change(form=replace(self.form, bounds=bounds))

    def with_form(self, form: LinearForm) -> Dual:
        """Return the dual of the same rows for rules with other coefficients of the same features."""
        return self._change(rules=RuleConstants(form, self.layout), form=form)

    def with_beta(self, beta: float, ridge: float = 0.0) -> Dual:
        """Return the dual with another inverse temperature and ridge."""
        return self._change(beta=beta, ridge=ridge)

    def with_rows(self, blocks: Sequence[Block], source: RowSource | None = None) -> Dual:
        """Return the dual of a sample of the rows; its unit of the loss stays that of all rows."""
        units = RowConstants(loss_range=self.rows.loss_range)
        return self._change(rows=units, blocks=blocks, source=source)

    def sample(self, blocks: Sequence[Block], beta: float) -> Dual:
        """Return the dual of a sample of the rows, with its own unit of the loss."""
        whole = sum(block.n_rows for block in blocks) == self.n_rows
        rows = self.rows if whole else RowConstants()
        return self._change(rows=rows, blocks=blocks, beta=beta, source=None)

    def with_observed(self, blocks: Sequence[Block], wanted: Mask | None, source: RowSource | None) -> Dual:
        """Return the dual of blocks of the same rows that also have observed features."""
        return self._change(blocks=blocks, observed_wanted=wanted, source=source)

    def with_source(self, source: RowSource) -> Dual:
        """Return the dual of the same rows, read from another source."""
        return self._change(source=source)

    def _change(
        self, rows: RowConstants | None = None, rules: RuleConstants | None = None, **changes: Any
    ) -> Dual:
        """Return a copy with some fields replaced. Constants that are not given are shared with this dual."""
        other = replace(self, **changes)
        object.__setattr__(other, "rows", self.rows if rows is None else rows)
        object.__setattr__(other, "rules", self.rules if rules is None else rules)
        return other

    def measure_constants(self, *others: Pass) -> list[Any]:
        """Compute all constants of the rows, reading them once, and return the sums of other passes."""
        losses, norms, *sums = self.total(self._loss_pass, NormPass(self.form), *others)
        self.rows.loss_range, self.rows.norms = self._read_range(losses), (self.form, self._read_norms(norms))
        return sums

    @property
    def mass(self) -> float:
        """The sum of all weights."""
        if self.rows.mass is None:
            blocks = sum(block.mass for block in self.blocks)
            self.rows.mass = blocks if self.source is None else self.source.mass
        return self.rows.mass

    def tally(self, multipliers: Floats, curvature: bool = False, whole: bool = False) -> Tally:
        """Compute the sums over all rows that give the dual and its derivatives at these multipliers.

        With `curvature`, they include second derivatives. With `whole`, they include the moments that neither
        the objective nor a rule uses.
        """
        tally_pass = self.make_tally_pass(multipliers, curvature)
        return self.total(replace(tally_pass, wanted=(None, None)) if whole else tally_pass)[0]

    def make_tally_pass(self, multipliers: Floats, curvature: bool = False) -> TallyPass:
        """Return the pass that computes the sums of `tally` at these multipliers."""
        support = self.rules.local[0] if curvature else None
        matrix, space = self.form.score_matrix(multipliers), self.form.action_space
        return TallyPass(matrix, self.beta, space, support, (self.rules.wanted, self.observed_wanted))

    def value_and_gradient(self, multipliers: Floats) -> tuple[float, Floats]:
        """Return F(lambda) and its gradient, (n_rules,)."""
        return self.first_order(self.tally(multipliers), multipliers)

    def first_order(self, total: Tally, multipliers: Floats) -> tuple[float, Floats]:
        """Return F(lambda) and its gradient, (n_rules,), from the tally at these multipliers."""
        form = self.form
        value = total.potential / total.mass + float(form.bounds @ multipliers) - form.base_constant
        gradient = form.bounds - form.operator @ (total.moments.ravel() / total.mass)
        value += self.ridge / 2 * float(multipliers @ multipliers)
        return value, gradient + self.ridge * multipliers

    def hessian(self, multipliers: Floats) -> Floats:
        """Return the second derivatives of F, (n_rules, n_rules)."""
        return self.second_order(self.tally(multipliers, curvature=True)).restrict(slice(None))

    def second_order(self, total: Tally) -> Hessian:
        """Return the second derivatives of F from a tally with second derivatives of rows."""
        assert total.curvature is not None
        curvature, embedding = total.curvature / total.mass, self.rules.local[1]
        if embedding is None:
            return Hessian(self.rules.couplings, curvature[0], self.ridge)
        # Add up the curvature of all cells, from pairs of columns to pairs of the support.
        n_cells, size = curvature.shape[:2]
        if isinstance(embedding, np.ndarray):
            by_cell = embedding.reshape(len(embedding), n_cells, size).swapaxes(0, 1)
            square = (by_cell @ curvature @ by_cell.swapaxes(1, 2)).sum(axis=0)
            return Hessian(self.rules.couplings, square, self.ridge)
        cells = np.arange(n_cells + 1)
        shape = (n_cells * size, n_cells * size)
        diagonal = sparse.bsr_array((curvature, cells[:-1], cells), shape=shape).tocsr()
        return Hessian(self.rules.couplings, sparse.csr_array(embedding @ diagonal @ embedding.T), self.ridge)

    def stochastic_gradient(self, multipliers: Floats, block: Block) -> Floats:
        """Return an estimate of the gradient, (n_rules,), from the weighted rows of a block.

        It is unbiased for rows that are drawn uniformly and have weights of mean one.
        """
        matrix = self.form.score_matrix(multipliers)
        total = TallyPass(matrix, self.beta, self.form.action_space)(block)
        moments = self.form.couplings @ total.moments.ravel()
        return (self.form.bounds * total.mass - moments) / block.n_rows

    def conflict(self, multipliers: Floats) -> float:
        """Return the minimum of E[lambda' (c - b)] over all policies; if positive, the rules conflict."""
        return float(multipliers @ self.best_responses([multipliers])[0])

    def best_responses(self, several: Sequence[Floats]) -> list[Floats]:
        """Return E[c] - b, (n_rules,), of the policy that minimizes E[lambda' c], for several lambda."""
        form = self.form
        costs = [(form.couplings.T @ one).reshape(form.base.shape) for one in several]
        sums = self.total(*(ResponsePass(one, form.action_space) for one in costs)) if costs else []
        return [form.couplings @ (moments.ravel() / self.mass) - form.bounds for moments in sums]

    @property
    def highest_cost(self) -> float:
        """The mean of the largest loss on each row: no policy costs more."""
        return self.loss_range[1]

    @property
    def loss_unit(self) -> float:
        """The mean difference between largest and smallest loss on a row, or 1 if all losses are equal."""
        return self.loss_range[1] - self.loss_range[0] or 1.0

    @property
    def loss_range(self) -> tuple[float, float]:
        """The means of the smallest and of the largest loss on each row."""
        if self.rows.loss_range is None:
            self.rows.loss_range = self._read_range(self.total(self._loss_pass)[0])
        return self.rows.loss_range

    @property
    def _loss_pass(self) -> LossRangePass:
        return LossRangePass(self.form.base, self.form.action_space)

    def _read_range(self, sums: Floats) -> tuple[float, float]:
        lowest, highest = (sums / self.mass + self.form.base_constant).tolist()
        return lowest, highest

    @property
    def mean_norm(self) -> float:
        """E||C(x)||_{1->2}, a bound on the gradient's norm (see `NormPass`)."""
        return self._norms[0]

    @property
    def sigma2(self) -> float:
        """The bound sigma^2 = E||C(x)||_{1->2}^2 on the variance of a stochastic gradient.

        If rows have weights w (of mean one), stochastic steps use w times the gradient of a row, so that the
        bound is at least E[w^2 ||C(x)||^2].
        """
        return self._norms[1]

    @property
    def smoothness(self) -> float:
        """L = 2 beta sigma^2, a Lipschitz constant of the gradient."""
        return 2 * self.beta * self.sigma2

    @property
    def _norms(self) -> tuple[float, float]:
        if self.rows.norms is None or self.rows.norms[0] is not self.form:
            self.rows.norms = self.form, self._read_norms(self.total(NormPass(self.form))[0])
        return self.rows.norms[1]

    def _read_norms(self, sums: Floats) -> tuple[float, float]:
        """Return E||C(x)|| and the bound sigma^2 from the sums of a `NormPass`."""
        first, second, scaled = (sums / self.mass).tolist()
        return first, max(second, scaled * self.n_rows / self.mass)


def find_wanted(base: Floats, couplings: sparse.csr_array, layout: Layout | None) -> Mask | None:
    """Return a mask (column, action) of the moments that the objective or the rules use.

    The coefficients are `base`, (n_features, n_actions), and `couplings`, (n_rules, n_features * n_actions).
    Return None, which means all moments, unless there are many and only a small part of them is used. With
    many classes, the probability of a label is used only for this label, and computing the other moments
    would take most of the time.
    """
    wanted: Mask = base != 0
    wanted.ravel()[couplings.indices] = True
    if layout is not None:
        wanted = np.any(layout.spread_matrix(wanted.astype(np.float64)) > 0, axis=0)
    few = wanted.size >= _MANY_ENTRIES and np.count_nonzero(wanted) < wanted.size / 16
    return wanted if few else None
