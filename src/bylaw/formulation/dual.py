"""The smoothed dual: sums over blocks of rows, and what a solver sees of them.

F(lambda) = E[lse_beta(-L - C' lambda)], lambda >= 0, whose gradient is the negative violation:
dF/dlambda_j = b_j - <B_j, E[phi pi']>. The cost of a pass does not depend on the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.blas_threads import limit_blas_threads
from bylaw._base.typing import Floats
from bylaw.data.evidence import RowData
from bylaw.formulation.cost_norms import CostNorms
from bylaw.formulation.linear_form import LinearForm, compute_scores
from bylaw.formulation.moments import Places, compute_moments
from bylaw.language.action_space import ActionSpace

BLOCK_ROWS = 8192  # a block of features and scores fits in a core's cache
_OF_ROWS = frozenset({"mass", "loss_range", "loss_unit"})  # constants of a dual, whatever its bounds
_OF_RULES = frozenset({"support", "places"})
_DECIDED = 1e-9  # rows whose answer is this sure add nothing to the curvature


@dataclass(frozen=True)
class Block:
    """Some rows, ready for a pass: features action-major, and weights."""

    features: Floats  # (n_features, n_rows)
    weights: Floats | None  # (n_rows,), or None for ones
    observed: Floats | None = None  # (n_observed_features, n_rows): the same rows as they turned out

    def rows(self, part: slice) -> Block:
        """Some of the rows."""
        return Block(
            self.features[:, part].copy(),
            None if self.weights is None else self.weights[part],
            None if self.observed is None else self.observed[:, part].copy(),
        )

    @property
    def row_weights(self) -> Floats:
        return np.ones(self.features.shape[1]) if self.weights is None else self.weights

    @property
    def mass(self) -> float:
        return float(self.features.shape[1] if self.weights is None else self.weights.sum())


def make_blocks(form: LinearForm, evidence: RowData, most: int | None = None) -> list[Block]:
    """All rows as blocks, or the first few blocks. Block i takes every n-th row from row i on, so that the
    first few are a fair sample of all, even of sorted rows."""
    evidence = form.feature_map.admit(evidence)
    if evidence.weights is not None and not evidence.weights.all():
        evidence = evidence.rows(np.flatnonzero(evidence.weights))  # a sample of nothing teaches nothing
    n_blocks = -(-len(evidence) // BLOCK_ROWS)
    chosen = range(n_blocks if most is None else min(most, n_blocks))
    return [make_block(form, evidence, slice(i, None, n_blocks)) for i in chosen]


def make_block(form: LinearForm, evidence: RowData, rows: slice = slice(None)) -> Block:
    """Some rows of evidence that the form's recipe has admitted."""
    width = len(range(*rows.indices(len(evidence))))
    features = form.feature_map.columns(evidence, rows, np.empty((len(form.feature_map.features), width)))
    return Block(features, None if evidence.weights is None else evidence.weights[rows].copy())


@dataclass(frozen=True)
class Tally:
    """Sums over rows; tallies of different rows add up."""

    mass: float  # total weight
    potential: float  # sum of lse_beta (or softplus) of the scores
    moments: Floats  # (F, A): sum of phi pi'
    curvature: Floats | None = None  # (Q, Q): its second derivative in the weights at Q places
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
class Support:
    """The Q places (feature, action) that rules touch; curvature is wanted there alone."""

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
    places: tuple[Places | None, Places | None] = (None, None),
) -> Tally:
    """One pass over one block, with scores = features' score_matrix, (F, A); with `support`, the
    curvature at those places is tallied too. `places` are where predicted and observed moments are wanted."""
    scores = compute_scores(beta * score_matrix, block.features)
    potential = space.to_probabilities(scores)
    curvature = None if support is None else _curvature(block, scores, space, beta, support)
    if block.weights is not None:
        scores *= block.weights
        potential *= block.weights
    moments = compute_moments(places[0], block.features, scores)
    observed = None if block.observed is None else compute_moments(places[1], block.observed, scores)
    return Tally(block.mass, float(potential.sum()) / beta, moments, curvature, observed)


def _curvature(
    block: Block, probabilities: Floats, space: ActionSpace, beta: float, support: Support
) -> Floats:
    """sum of beta phi_k phi_l (1{a = b} pi_a - pi_a pi_b) over the rows, from undecided ones alone.

    For sets, labels are apart: the sum of beta phi_k phi_l 1{a = b} pi_a (1 - pi_a).
    """
    total = np.zeros((len(support.actions), len(support.actions)))
    features, mass = block.features, np.sqrt(beta * block.row_weights)
    if space.exclusive:
        undecided = np.flatnonzero(probabilities.max(axis=0) < 1 - _DECIDED)
        probabilities, features, mass = probabilities[:, undecided], features[:, undecided], mass[undecided]
        spread = features[support.features] * (probabilities[support.actions] * mass)
        total -= spread @ spread.T  # of a matrix and itself: half the work
    diagonal = space.curvature_diagonal(probabilities)
    open_ = diagonal > _DECIDED
    for action, here in support.by_action:
        rows = np.flatnonzero(open_[action])
        columns = features[support.features[here, None], rows] * (np.sqrt(diagonal[action]) * mass)[rows]
        total[here, here] += columns @ columns.T
    return total


@dataclass(frozen=True)
class Hessian:
    """couplings @ curvature @ couplings' + ridge: M rules may be many, the places they touch few."""

    couplings: sparse.csr_array  # (M, Q)
    half: Floats  # (M, Q): couplings @ curvature
    ridge: float

    def __matmul__(self, vector: Floats) -> Floats:
        return self.half @ (self.couplings.T @ vector) + self.ridge * vector

    def restrict(self, rules: NDArray[np.bool_] | slice) -> Floats:
        """The part for some rules, dense."""
        part = self.couplings[rules] @ self.half[rules].T
        return part + self.ridge * np.eye(len(part))

    @cached_property
    def trace(self) -> float:
        rows = self.couplings.tocoo()
        diagonal = float(rows.data @ self.half[rows.coords])
        return diagonal + self.ridge * len(self.half)


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
        return sum(block.features.shape[1] for block in self.blocks)

    def with_bounds(self, bounds: Floats) -> Dual:
        """The same rows under other bounds, (M,)."""
        return self._share(replace(self, form=replace(self.form, bounds=bounds)), _OF_ROWS | _OF_RULES)

    def with_form(self, form: LinearForm) -> Dual:
        """The same rows under rules with other coefficients of the same features."""
        return self._share(replace(self, form=form), _OF_ROWS)

    def with_beta(self, beta: float) -> Dual:
        """The same rows and rules, with another inverse temperature."""
        return self._share(replace(self, beta=beta), _OF_ROWS | _OF_RULES)

    def with_rows(self, blocks: Sequence[Block]) -> Dual:
        """The same rules on a sample of the rows; the units of the loss stay those of all rows."""
        return self._share(replace(self, blocks=blocks), _OF_RULES | {"loss_range", "loss_unit"})

    def _share(self, other: Dual, constants: frozenset[str] | set[str]) -> Dual:
        """Constants that were computed here and are the same there."""
        other.__dict__.update({name: self.__dict__[name] for name in constants if name in self.__dict__})
        return other

    @cached_property
    def mass(self) -> float:
        return sum(block.mass for block in self.blocks)

    @cached_property
    def support(self) -> tuple[Support, sparse.csr_array]:
        """The places that rules touch, and the couplings there, (M, Q)."""
        places = np.unique(self.form.couplings.indices)
        places = places[np.argsort(places % self.form.base.shape[1], kind="stable")]
        features, actions = np.divmod(places, self.form.base.shape[1])
        return Support(features, actions), self.form.couplings[:, places]

    @cached_property
    def places(self) -> Places | None:
        """Where moments are wanted; None for everywhere."""
        form = self.form
        wanted = np.concatenate([np.flatnonzero(form.base), form.couplings.indices])
        return None if self.all_moments else Places.choose(wanted, form.base.shape)

    def tally(self, multipliers: Floats, curvature: bool = False) -> Tally:
        score_matrix = self.form.score_matrix(multipliers)
        support = self.support[0] if curvature else None
        places = (self.places, self.observed_places)
        with limit_blas_threads():
            parts = (
                tally(block, score_matrix, self.beta, self.form.action_space, support, places)
                for block in self.blocks
            )
            return reduce(add, parts)

    def value_and_gradient(self, multipliers: Floats) -> tuple[float, Floats]:
        """F(lambda) and its gradient, (M,)."""
        return self.first_order(self.tally(multipliers), multipliers)

    def first_order(self, total: Tally, multipliers: Floats) -> tuple[float, Floats]:
        form = self.form
        value = total.potential / total.mass + float(form.bounds @ multipliers) - form.base_constant
        gradient = form.bounds - form.couplings @ (total.moments.ravel() / total.mass)
        value += self.ridge / 2 * float(multipliers @ multipliers)
        return value, gradient + self.ridge * multipliers

    def hessian(self, multipliers: Floats) -> Floats:
        """(M, M)."""
        return self.second_order(self.tally(multipliers, curvature=True)).restrict(slice(None))

    def second_order(self, total: Tally) -> Hessian:
        assert total.curvature is not None
        couplings = self.support[1]
        return Hessian(couplings, couplings @ (total.curvature / total.mass), self.ridge)

    def stochastic_gradient(self, multipliers: Floats, block: Block) -> Floats:
        """The gradient on some rows, each counting with its weight, (M,): unbiased for rows that are
        drawn evenly and have weights of mean one."""
        total = tally(block, self.form.score_matrix(multipliers), self.beta, self.form.action_space)
        moments = self.form.couplings @ total.moments.ravel()
        return (self.form.bounds * total.mass - moments) / block.features.shape[1]

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
                losses = compute_scores(weights, block.features)
                decision = self.form.action_space.best_decision(losses)
                moments += block.features @ (decision * block.row_weights).T
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
            losses = compute_scores(self.form.base, block.features)
            lowest += float(block.row_weights @ space.min_loss(losses))
            highest -= float(block.row_weights @ space.min_loss(np.negative(losses, out=losses)))
        return constant + lowest / self.mass, constant + highest / self.mass

    def _mean(self, statistic: Callable[[Floats], Floats], weights: Floats) -> float:
        """E[statistic of the row's (n_actions,) products with these weights (F, A)]."""
        sums = (float(b.row_weights @ statistic(compute_scores(weights, b.features))) for b in self.blocks)
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
        norms_of = CostNorms(self.form)
        first = second = scaled = 0.0
        for block in self.blocks:
            norms, weights = norms_of(block.features), block.row_weights
            first += float(weights @ norms)
            second += float(weights @ norms**2)
            scaled += float(weights**2 @ norms**2)
        return first / self.mass, max(second / self.mass, scaled * self.n_rows / self.mass**2)
