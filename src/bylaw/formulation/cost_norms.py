"""The norms ||C(x)||_{1->2} of the rules' costs on each row, which bound gradients and their variance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bylaw._base.matrices import Matrix, as_dense
from bylaw._base.typing import Floats
from bylaw.formulation.cells import iterate_cells
from bylaw.formulation.linear_form import LinearForm

if TYPE_CHECKING:
    from bylaw.formulation.blocks import Block
    from bylaw.formulation.passes import Support

_FEW_RULES = 4  # whose costs are computed one by one
_TILE = 2**20  # bytes of costs at a time, so that they stay in a core's cache


class CostNorms:
    """max_a ||c(x, a)||_2 on each row: from the costs of few rules, or from Gram matrices of many."""

    def __init__(self, form: LinearForm) -> None:
        n_actions, self.form = form.base.shape[1], form
        self.shape, self.bounds, self.space = form.base.shape, form.bounds, form.action_space
        if len(form.bounds) <= _FEW_RULES:
            self.rules = [unfold(form.couplings[[j]], form.base.shape) for j in range(len(form.bounds))]
        else:
            by_action = form.couplings.tocsc()
            parts = (by_action[:, a::n_actions] for a in range(n_actions))
            self.rules, self.costs = None, [_ActionCosts(part.tocsr(), form.bounds) for part in parts]

    def __call__(self, block: Block) -> Floats:
        """(n_rows,)."""
        features = block.features
        width = max(_TILE // (8 * self.shape[1]), 64)
        tiles = (features[:, first : first + width] for first in range(0, features.shape[1], width))
        return np.concatenate([self._measure(tile) for tile in tiles])

    def _measure(self, features: Floats) -> Floats:
        bounds = float(self.bounds @ self.bounds)
        if self.rules is None:
            squares, crosses = np.array([cost(features) for cost in self.costs]).transpose(1, 0, 2)
            return self.space.combine_norms(squares, crosses, bounds)
        squares, crosses = np.zeros((2, self.shape[1], features.shape[1]))
        for couplings, bound in zip(self.rules, self.bounds.tolist(), strict=True):
            costs = couplings @ features
            crosses += 2 * bound * costs
            squares += np.square(costs, out=costs)
        return self.space.combine_norms(squares, crosses, bounds)


class CellNorms:
    """The same of rows that are sorted by cell, from Gram matrices of the couplings in each."""

    def __init__(
        self, form: LinearForm, support: Support, couplings: Matrix, places: Matrix
    ) -> None:  # q places, (M, Q), (Q, C * q)
        self.form, self.support, self.couplings = form, support, couplings
        self.places = sparse.csc_array(places) if isinstance(places, sparse.sparray) else places
        self.grams: dict[int, tuple[Any, Floats]] = {}
        actions = [action for action, _ in support.by_action]
        whole = len(actions) == form.base.shape[1]
        self.actions = slice(None) if whole else actions
        columns = [support.features[here] for _, here in support.by_action]
        alike = all(np.array_equal(part, columns[0]) for part in columns)
        self.alike = columns[0] if columns and alike else None  # where all actions are touched alike

    def __call__(self, block: Block) -> Floats:
        """(n_rows,), of ||B phi||^2 and 2 b'B phi for each action."""
        norms, bounds = np.empty(block.n_rows), float(self.form.bounds @ self.form.bounds)
        for cell, rows in iterate_cells(block.starts):
            if cell not in self.grams:
                self.grams[cell] = self._compute_gram(cell)
            squares, crosses = self._measure(block.columns[:, rows], *self.grams[cell])
            norms[rows] = self.form.action_space.combine_norms(squares, crosses, bounds)
        return norms

    def _measure(self, columns: Floats, grams: Any, cross: Floats) -> Floats:
        """Both, (2, A, n_rows), of rows (D, n_rows) of a cell; or (2, A, 1) where all of these are alike."""
        part = None if self.alike is None else columns[self.alike]
        if part is not None and (part == part[:, :1]).all():  # such as the constant
            columns, part = columns[:, :1], part[:, :1]
        costs = np.zeros((2, self.form.base.shape[1], columns.shape[1]))
        if part is not None:
            costs[0, self.actions] = np.einsum("atn,tn->an", grams @ part, part)
            costs[1, self.actions] = 2 * cross.reshape(len(grams), -1) @ part
            return costs
        for (action, here), gram in zip(self.support.by_action, grams, strict=True):
            part = columns[self.support.features[here]]
            costs[0, action] = np.einsum("fn,fn->n", part, gram @ part)
            costs[1, action] = 2 * cross[here] @ part
        return costs

    def _compute_gram(self, cell: int) -> tuple[Any, Floats]:
        """For each action that is touched, B'B at its places in a cell, as one array where all are alike; and
        B'b at all of them."""
        size = len(self.support.actions)
        couplings = self.couplings @ self.places[:, cell * size : (cell + 1) * size]
        gram = as_dense(couplings.T @ couplings)
        grams = [gram[here, here].copy() for _, here in self.support.by_action]
        return grams if self.alike is None else np.stack(grams), couplings.T @ self.form.bounds


def unfold(couplings: sparse.csr_array, shape: tuple[int, int]) -> sparse.csr_array:
    """(A, F): the coefficients of rules, of couplings (M, F * A) and their shape (F, A); where several rules
    touch the same place, they are added up."""
    features, actions = np.divmod(couplings.indices, shape[1])
    return sparse.csr_array((couplings.data, (actions, features)), shape=shape[::-1])


class _ActionCosts:
    """Of one action, ||B phi||^2 and 2 b'B phi on each row, from the features that rules touch."""

    def __init__(self, couplings: sparse.csr_array, bounds: Floats) -> None:  # (M, F), (M,)
        self.used = np.unique(couplings.indices)
        touched = couplings[:, self.used]
        self.gram = (touched.T @ touched).toarray()
        self.cross = touched.T @ bounds

    def __call__(self, features: Floats) -> tuple[Floats, Floats]:
        """(n_rows,) each."""
        part = features[self.used]
        return np.einsum("fn,fn->n", part, self.gram @ part), 2 * self.cross @ part
