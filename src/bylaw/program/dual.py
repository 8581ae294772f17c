"""The smoothed dual: what a solver sees of sums over rows.

F(lambda) = E[lse_beta(-L - C' lambda)], lambda >= 0, whose gradient is the negative violation:
dF/dlambda_j = b_j - <B_j, E[phi pi']>. The cost of a pass does not depend on the number of rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.matrices import Matrix, as_dense, compact, find_columns
from bylaw._base.typing import Floats
from bylaw.program.blocks import Block
from bylaw.program.cells import Layout
from bylaw.program.linear_form import LinearForm
from bylaw.program.passes import (
    LossRange,
    LossRangePass,
    NormPass,
    NormSums,
    Pass,
    Response,
    ResponsePass,
    RowSource,
    Support,
    Tally,
    TallyPass,
    UnseenRows,
    sum_blocks,
)
from bylaw.program.simplex import Simplex

_OF_ROWS = frozenset({"mass", "loss_range", "loss_unit"})  # constants of a dual, whatever its bounds
_OF_RULES = frozenset({"support", "wanted", "_local_support", "local_couplings", "touched_columns"})
_OF_BOUNDS = frozenset({"_norm_moments"})
_OF_ALL = _OF_ROWS | _OF_RULES
_MANY_ENTRIES = 2**14  # of moments, from which on only those that are used are computed
_FEW_WANTED = 1 / 16  # of the entries; where more are used, one product of matrices is faster


@dataclass(frozen=True)
class Hessian:
    """couplings @ curvature @ couplings' + ridge: M rules may be many, the places they touch few."""

    couplings: Matrix  # (M, Q)
    curvature: Matrix  # (Q, Q)
    ridge: float

    def __matmul__(self, vector: Floats) -> Floats:
        return self.couplings @ (self.curvature @ (self.couplings.T @ vector)) + self.ridge * vector

    def restrict(self, rules: NDArray[np.bool_] | slice) -> Floats:
        """Return the part for some rules, as a dense matrix."""
        couplings, curvature = self.couplings[rules], self.curvature
        if not isinstance(couplings, np.ndarray):  # few rules touch few places
            touched = find_columns(couplings)
            couplings, curvature = couplings[:, touched], curvature[touched][:, touched]
        part = couplings @ as_dense(couplings @ as_dense(curvature)).T
        return part + self.ridge * np.eye(len(part))

    @cached_property
    def trace(self) -> float:
        if isinstance(self.couplings, np.ndarray):
            own = float(((self.couplings @ self.curvature) * self.couplings).sum())
        else:
            own = float((self.couplings.T @ self.couplings).multiply(self.curvature).sum())
        return own + self.ridge * self.n_rules

    @property
    def n_rules(self) -> int:
        return (
            len(self.couplings) if isinstance(self.couplings, np.ndarray) else len(self.couplings.indptr) - 1
        )


@dataclass(frozen=True)
class Dual:
    """What a solver sees: value, gradient and Hessian on all rows, and the paper's constants."""

    form: LinearForm
    blocks: Sequence[Block]  # all rows; or, where these live elsewhere, a fair sample of them, or none
    beta: float
    ridge: float = 0.0  # adds ridge/2 |lambda|^2: keeps small samples from asking the impossible
    observed_wanted: NDArray[np.bool_] | None = None  # (F', A): entries of observed moments that rules use
    source: RowSource | None = None  # all rows, where these live elsewhere
    simplex: Simplex | None = None  # where the last multipliers are, if they are weights of groups

    @property
    def n_rules(self) -> int:
        return len(self.form.bounds)

    @property
    def n_rows(self) -> int:
        return sum(block.n_rows for block in self.blocks) if self.source is None else self.source.n_rows

    def total(self, *passes: Pass) -> list[Any]:
        """The sums of each pass over all rows."""
        return sum_blocks(self.blocks, passes) if self.source is None else self.source.total(*passes)

    def with_bounds(self, bounds: Floats) -> Dual:
        """The same rows under other bounds, (M,)."""
        return self._share(replace(self, form=replace(self.form, bounds=bounds)), _OF_ALL)

    def with_form(self, form: LinearForm) -> Dual:
        """The same rows under rules with other coefficients of the same features."""
        return self._share(replace(self, form=form), _OF_ROWS)

    def with_beta(self, beta: float) -> Dual:
        """The same rows and rules, with another inverse temperature."""
        return self._share(replace(self, beta=beta), _OF_ALL | _OF_BOUNDS)

    def with_ridge(self, ridge: float) -> Dual:
        """The same rows and rules, with another ridge."""
        return self._share(replace(self, ridge=ridge), _OF_ALL | _OF_BOUNDS)

    def with_rows(self, blocks: Sequence[Block]) -> Dual:
        """The same rules on a sample of the rows; the units of the loss stay those of all rows."""
        sample = replace(self, blocks=blocks, source=None)
        return self._share(sample, _OF_RULES | {"loss_range", "loss_unit"})

    def sample(self, blocks: Sequence[Block], beta: float) -> Dual:
        """The same rules on a sample of the rows, with its own units of the loss."""
        _ = self.touched_columns, self.wanted  # once for all samples
        sample = replace(self, blocks=blocks, beta=beta, source=None)
        return self._share(sample, _OF_ALL if sample.n_rows == self.n_rows else _OF_RULES)

    def compute_shared(self) -> None:
        """The constants that duals of other betas and of samples share, once for all of them."""
        _ = self.loss_unit, self.touched_columns, self.wanted

    def with_sample(self, source: RowSource) -> Dual:
        """The same on a sample of rows that live elsewhere and stay there."""
        sample = replace(self, blocks=(), source=source)
        return self._share(sample, _OF_RULES | {"loss_range", "loss_unit", "_local_support"})

    def with_observed(self, blocks: Sequence[Block], wanted: NDArray[np.bool_] | None) -> Dual:
        """Return the dual of blocks of the same rows that also have observed features."""
        return self._share(replace(self, blocks=blocks, observed_wanted=wanted), _OF_ALL | _OF_BOUNDS)

    def with_source(self, source: RowSource) -> Dual:
        """The same rows, from where their sums are cheaper or tell more."""
        return self._share(replace(self, source=source), _OF_ALL | _OF_BOUNDS)

    def measure_constants(self, *others: Pass) -> list[Any]:
        """All constants that take a pass over the rows, in one walk, and the sums of other passes."""
        loss_range, norms, *sums = self.total(self._loss_pass, self._norm_pass, *others)
        constants = {"loss_range": self._read_range(loss_range), "_norm_moments": self._read_norms(norms)}
        self.__dict__.update(constants)
        return sums

    def _share(self, other: Dual, constants: frozenset[str] | set[str]) -> Dual:
        """Constants that were computed here and are the same there."""
        other.__dict__.update({name: self.__dict__[name] for name in constants if name in self.__dict__})
        return other

    @cached_property
    def mass(self) -> float:
        return sum(block.mass for block in self.blocks) if self.source is None else self.source.mass

    @cached_property
    def support(self) -> tuple[Support, Matrix]:
        """The places that rules touch, and the couplings there, (M, Q)."""
        places = np.unique(self.form.couplings.indices)
        places = places[np.argsort(places % self.form.base.shape[1], kind="stable")]
        features, actions = np.divmod(places, self.form.base.shape[1])
        return Support(features, actions), compact(self.form.operator[:, places])

    @cached_property
    def wanted(self) -> NDArray[np.bool_] | None:
        """The entries (feature, action) of moments that the objective or rules use; None for all."""
        return find_wanted(self.form.base, self.form.couplings)

    @cached_property
    def _local_support(self) -> tuple[Support, Matrix | None]:
        """The places of columns that rules touch in any cell, and which of them are those of the support in
        which cell, (Q, C * q); None where they are the same."""
        support, layout = self.support[0], self.layout
        if layout is None:
            return support, None
        columns, actions, places = layout.localize(support.features, support.actions)
        return Support(columns, actions), compact(places)

    @cached_property
    def local_couplings(self) -> Floats:
        """(C, M, q): the rules' coefficients at the places of the curvature, in each cell."""
        couplings, (local, places) = self.support[1], self._local_support
        if places is None:
            return as_dense(couplings)[None]
        found = as_dense(couplings @ places).reshape(self.n_rules, -1, len(local.actions))
        return found.transpose(1, 0, 2)

    @property
    def layout(self) -> Layout | None:
        """How features are made of columns in each cell, where rows are sorted by cell."""
        if isinstance(self.source, UnseenRows):
            return self.source.layout
        cells = self.blocks[0].cells
        return None if cells is None else cells.layout

    @cached_property
    def touched_columns(self) -> NDArray[np.int64]:
        """The columns of blocks that rules touch in any cell."""
        return np.unique(self._local_support[0].features)

    def tally(
        self, multipliers: Floats, curvature: bool = False, rules_alone: bool = False, whole: bool = False
    ) -> Tally:
        """Return the sums over all rows.

        Parameters
        ----------
        multipliers : array of shape (n_rules,)
        curvature : bool
            whether the second derivatives are computed, too.
        rules_alone : bool
            whether moments are only needed of features that rules touch. With many classes, most features
            are only in the cost.
        whole : bool
            whether moments are needed that neither the objective nor a rule uses.
        """
        tally_pass = self.make_tally_pass(multipliers, curvature, rules_alone)
        return self.total(replace(tally_pass, wanted=(None, None)) if whole else tally_pass)[0]

    def make_tally_pass(
        self, multipliers: Floats, curvature: bool = False, rules_alone: bool = False
    ) -> TallyPass:
        """Return the pass that a tally takes."""
        support = self._local_support[0] if curvature else None
        chosen = self.touched_columns if rules_alone else None
        matrix, space = self.form.score_matrix(multipliers), self.form.action_space
        return TallyPass(matrix, self.beta, space, support, chosen, (self.wanted, self.observed_wanted))

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
                self.support[1], places @ apart.reshape(2 * places.shape[1:]) @ places.T, self.ridge
            )
        apart = sparse.bsr_array((curvature, cells[:-1], cells), shape=(n_cells * size, n_cells * size))
        together = sparse.csr_array(places @ apart.tocsr() @ places.T)
        return Hessian(self.support[1], together, self.ridge)

    def stochastic_gradient(self, multipliers: Floats, block: Block) -> Floats:
        """The gradient on some rows, each counting with its weight, (M,): unbiased for rows that are
        drawn evenly and have weights of mean one."""
        matrix = self.form.score_matrix(multipliers)
        total = TallyPass(matrix, self.beta, self.form.action_space)(block)
        moments = self.form.couplings @ total.moments.ravel()
        return (self.form.bounds * total.mass - moments) / block.n_rows

    def conflict(self, multipliers: Floats) -> float:
        """E[min over policies of lambda' c]: above zero, no policy satisfies every rule."""
        (response,) = self._respond([multipliers])
        return response.cost / self.mass - float(self.form.bounds @ multipliers)

    def best_response(self, multipliers: Floats) -> Floats:
        """E[c] - b, (M,), of the policy of least lambda'c on every row."""
        return self.best_responses([multipliers])[0]

    def best_responses(self, several: Sequence[Floats]) -> list[Floats]:
        """The same for several multipliers in one walk over the rows."""
        moments = [response.moments for response in self._respond(several)]
        return [self.form.couplings @ (part.ravel() / self.mass) - self.form.bounds for part in moments]

    def _respond(self, several: Sequence[Floats]) -> list[Response]:
        shape, space = self.form.base.shape, self.form.action_space
        passes = [ResponsePass((self.form.couplings.T @ one).reshape(shape), space) for one in several]
        return self.total(*passes) if passes else []

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
        return self._read_range(self.total(self._loss_pass)[0])

    @property
    def _loss_pass(self) -> LossRangePass:
        return LossRangePass(self.form.base, self.form.action_space)

    def _read_range(self, sums: LossRange) -> tuple[float, float]:
        constant = self.form.base_constant
        return constant + sums.lowest / self.mass, constant + sums.highest / self.mass

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
        return self._read_norms(self.total(self._norm_pass)[0])

    @property
    def _norm_pass(self) -> NormPass:
        return NormPass(self.form)

    def _read_norms(self, sums: NormSums) -> tuple[float, float]:
        """E||C(x)|| and, also with weights, E||C(x)||^2."""
        spread = sums.scaled * self.n_rows / self.mass**2
        return sums.first / self.mass, max(sums.second / self.mass, spread)


def find_wanted(base: Floats, couplings: sparse.csr_array) -> NDArray[np.bool_] | None:
    """Find the entries (feature, action) that an objective (F, A) or rules (M, F * A) use; return None where
    these are not a small part of many. With many classes, a label's own probability matters to its own
    inclusion alone."""
    wanted = base != 0
    wanted.ravel()[couplings.indices] = True
    few = wanted.size >= _MANY_ENTRIES and np.count_nonzero(wanted) < _FEW_WANTED * wanted.size
    return wanted if few else None
