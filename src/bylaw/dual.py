"""The smoothed dual: sums over blocks of rows, and what a solver sees of them.

F(lambda) = E[lse_beta(-L - C' lambda)], lambda >= 0, whose gradient is the negative violation:
dF/dlambda_j = b_j - <B_j, E[phi pi']>. The cost of a pass does not depend on the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from bylaw.decisions import Decisions, Floats
from bylaw.evidence import Evidence
from bylaw.linear_form import LinearForm

BLOCK_ROWS = 8192  # a block of features and scores fits in a core's cache
_DECIDED = 1e-9  # rows whose answer is this sure add nothing to the curvature


@dataclass(frozen=True)
class Block:
    """Some rows, ready for a pass: features action-major, and weights."""

    features: Floats  # (n_features, n_rows)
    weights: Floats | None  # (n_rows,), or None for ones

    @property
    def mass(self) -> float:
        return float(self.features.shape[1] if self.weights is None else self.weights.sum())


def blocks_of(form: LinearForm, evidence: Evidence) -> list[Block]:
    """All rows as blocks. Block i takes every n-th row from row i on, so that the first few
    blocks are a fair sample of all, even of sorted rows."""
    evidence = form.recipe.admit(evidence)
    n_blocks = -(-len(evidence) // BLOCK_ROWS)
    blocks = []
    for i in range(n_blocks):
        rows = slice(i, None, n_blocks)
        width = len(range(i, len(evidence), n_blocks))
        features = form.recipe.columns(evidence, rows, np.empty((len(form.recipe.features), width)))
        blocks.append(Block(features, None if evidence.weights is None else evidence.weights[rows].copy()))
    return blocks


@dataclass(frozen=True)
class Tally:
    """Sums over rows; tallies of different rows add up."""

    mass: float  # total weight
    potential: float  # sum of lse_beta (or softplus) of the scores
    moments: Floats  # (F, A): sum of phi pi'
    curvature: Floats | None = None  # (F * A, F * A): sum of beta phi phi' x (diag pi - pi pi')

    def __add__(self, other: Tally) -> Tally:
        both = self.curvature is not None and other.curvature is not None
        return Tally(
            self.mass + other.mass,
            self.potential + other.potential,
            self.moments + other.moments,
            self.curvature + other.curvature if both else None,  # type: ignore[operator]
        )


def tally(block: Block, weights: Floats, beta: float, decisions: Decisions, curvature: bool = False) -> Tally:
    """One pass over one block. `weights` (F, A) turn features into scores."""
    scores = (beta * weights).T @ block.features
    potential = decisions.soften(scores)
    bend = _curvature(block, scores, decisions, beta) if curvature else None
    if block.weights is None:
        return Tally(block.mass, float(potential.sum()) / beta, block.features @ scores.T, bend)
    scores *= block.weights
    return Tally(block.mass, float(potential @ block.weights) / beta, block.features @ scores.T, bend)


def _curvature(block: Block, law: Floats, decisions: Decisions, beta: float) -> Floats:
    """Second derivative of the potential in the flattened weights, from undecided rows alone."""
    if decisions.kind == "sets":
        return _curvature_of_sets(block, law, beta)
    open_rows = np.flatnonzero(law.max(axis=0) < 1 - _DECIDED)
    law, features = law[:, open_rows], block.features[:, open_rows]
    n_features, n_actions = len(features), len(law)
    root = np.sqrt(beta) if block.weights is None else np.sqrt(beta * block.weights[open_rows])
    features = features * root
    spread = (features[:, None, :] * law[None, :, :]).reshape(n_features * n_actions, -1)
    total = -(spread @ spread.T)
    square = total.reshape(n_features, n_actions, n_features, n_actions)
    for a in range(n_actions):
        square[:, a, :, a] += spread[a::n_actions] @ features.T
    return total


def _curvature_of_sets(block: Block, law: Floats, beta: float) -> Floats:
    n_features, n_actions = len(block.features), len(law)
    square = np.zeros((n_features, n_actions, n_features, n_actions))
    for a, chance in enumerate(law):
        weight = beta * chance * (1 - chance)
        open_rows = np.flatnonzero(weight > beta * _DECIDED)
        if block.weights is not None:
            weight = weight * block.weights
        features = block.features[:, open_rows]
        square[:, a, :, a] = (features * weight[open_rows]) @ features.T
    return square.reshape(n_features * n_actions, -1)


@dataclass(frozen=True)
class Dual:
    """What a solver sees: value, gradient and Hessian on all rows, and the paper's constants."""

    form: LinearForm
    blocks: Sequence[Block]
    beta: float
    ridge: float = 0.0  # adds ridge/2 |lambda|^2: keeps small samples from asking the impossible

    @property
    def n_rules(self) -> int:
        return len(self.form.bounds)

    @cached_property
    def mass(self) -> float:
        return sum(block.mass for block in self.blocks)

    def tally(self, multipliers: Floats, curvature: bool = False) -> Tally:
        weights = self.form.weights(multipliers)
        parts = (tally(block, weights, self.beta, self.form.decisions, curvature) for block in self.blocks)
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
        return self.second_order(self.tally(multipliers, curvature=True))

    def second_order(self, total: Tally) -> Floats:
        assert total.curvature is not None
        couplings = self.form.couplings
        half = couplings @ (total.curvature / total.mass)
        hessian = couplings @ half.T
        return hessian + self.ridge * np.eye(self.n_rules)

    def stochastic_gradient(self, multipliers: Floats, features: Floats) -> Floats:
        """The gradient on some rows with these features, (F, n_rows): unbiased for sampled rows."""
        total = tally(Block(features, None), self.form.weights(multipliers), self.beta, self.form.decisions)
        return self.form.bounds - self.form.couplings @ (total.moments.ravel() / total.mass)

    def conflict(self, multipliers: Floats) -> float:
        """E[min over policies of lambda' c]: above zero, no policy satisfies every rule."""
        weights = (self.form.couplings.T @ multipliers).reshape(self.form.base.shape)
        return self._mean(self.form.decisions.least, weights) - float(self.form.bounds @ multipliers)

    @cached_property
    def highest_cost(self) -> float:
        """E[largest loss of a row]: no policy costs more."""
        return self.form.base_constant - self._mean(self.form.decisions.least, -self.form.base)

    @cached_property
    def loss_unit(self) -> float:
        """E[largest - smallest loss of a row], or 1 if no decision matters to the objective."""
        lowest = self.form.base_constant + self._mean(self.form.decisions.least, self.form.base)
        return self.highest_cost - lowest or 1.0

    def _mean(self, statistic: Callable[[Floats], Floats], weights: Floats) -> float:
        """E[statistic of the row's (n_actions,) products with these weights (F, A)]."""
        sums = (float(_ones(b) @ statistic(weights.T @ b.features)) for b in self.blocks)
        return sum(sums) / self.mass

    @cached_property
    def sigma2(self) -> float:
        """sigma^2 = E||C(x)||_{1->2}^2, the bound on the variance of a stochastic gradient."""
        return self._mean_cost_norm(power=2)

    @cached_property
    def mean_norm(self) -> float:
        """E||C(x)||_{1->2}, the bound on the gradient's norm."""
        return self._mean_cost_norm(power=1)

    @property
    def smoothness(self) -> float:
        """L = 2 beta sigma^2, a Lipschitz constant of the gradient."""
        return 2 * self.beta * self.sigma2

    def _mean_cost_norm(self, power: int) -> float:
        grams, crosses = _grams(self.form)
        total = sum(
            float(np.dot(_cost_norms(b.features, grams, crosses, self.form) ** power, _ones(b)))
            for b in self.blocks
        )
        return total / self.mass


def _ones(block: Block) -> Floats:
    return np.ones(block.features.shape[1]) if block.weights is None else block.weights


def _grams(form: LinearForm) -> tuple[Floats, Floats]:
    """sum_j B_j[:, a] B_j[:, a]' (A, F, F) and sum_j b_j B_j[:, a] (A, F)."""
    n_features, n_actions = form.base.shape
    columns = [form.couplings[:, a::n_actions] for a in range(n_actions)]
    grams = np.array([(c.T @ c).toarray() for c in columns]).reshape(n_actions, n_features, n_features)
    return grams, np.array([c.T @ form.bounds for c in columns])


def _cost_norms(features: Floats, grams: Floats, crosses: Floats, form: LinearForm) -> Floats:
    """||C(x)||_{1->2} = max_a ||c(x, a)||_2 on each row, (n_rows,).

    A set may hold every label at once: there the labels' norms add up, beside the bounds'.
    """
    squares = np.array([np.einsum("fn,fn->n", features, gram @ features) for gram in grams])
    offset = form.bounds @ form.bounds
    if form.decisions.kind == "sets":
        return np.sqrt(np.maximum(squares, 0.0)).sum(axis=0) + np.sqrt(offset)
    squares += offset - 2 * crosses @ features
    return np.sqrt(np.maximum(squares.max(axis=0), 0.0))
