"""Newton steps on a quadratic model of all rows so far: the default optimizer for rows that are read once.

Each tile of rows is expanded to second order at the current multipliers and then dropped. The sum of these
expansions is minimized over lambda >= 0, so that no step size is needed, and of two opposite rules at most
one has a price. Expansions are stored as functions of the score matrix, because coefficients and frequencies
of groups may be estimated more precisely later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from bylaw._base import Floats, Node
from bylaw.program import Block, Dual, Hessian, TallyPass
from bylaw.solvers._full_batch import FullBatch, minimize_quadratic
from bylaw.solvers._stochastic import ACSA, SGD, SGD3, OptimizerState, RowOptimizer, SampledRows

TILE_ROWS = 1024  # rows whose expansion is added in one step


@dataclass
class NewtonState(OptimizerState):
    """The sum of the second-order expansions of all rows so far, a quadratic model of the dual.

    It is stored for the pairs (feature, action) on which rules depend. The answer is its minimum.
    """

    point: Floats  # (n_rules,): the multipliers lambda
    curvature: Floats  # (n_pairs, n_pairs): sum of second derivatives
    slope: Floats  # (n_pairs,): linear coefficients of the model
    damping: Floats  # (n_pairs,): added to the diagonal of the curvature
    resolution: float = 1.0  # largest beta for second derivatives after one row; grows with sqrt(rows)
    mass: float = 0.0  # sum of the row weights so far
    steps: int = 0  # number of rows so far

    @property
    def answer(self) -> Floats:
        return self.point

    def advance(self, rows: SampledRows) -> None:
        """Take one step per tile of rows. Only the last call may end within a tile."""
        for first in range(0, len(rows.weights), TILE_ROWS):
            part = slice(first, first + TILE_ROWS)
            block = Block(rows.features[part].T.copy(), rows.weights[part])
            if block.mass:
                self._step(rows.dual, block)
            self.steps += len(rows.weights[part])

    def _step(self, dual: Dual, block: Block) -> None:
        """Add the expansion of a tile, and move to the minimum of the damped model."""
        if not self.mass:
            self._begin(dual, block)
        space, matrix = dual.form.action_space, dual.form.score_matrix(self.point)
        support, couplings = dual.rules.support, dual.rules.couplings
        # Compute first derivatives at the dual's beta, and second derivatives at a beta that is at most the
        # inverse of the multipliers' sampling error: they must be right over the distance still to move.
        moments = TallyPass(matrix, dual.beta, space)(block).moments
        softer = min(dual.beta, self.resolution * math.sqrt(self.steps + block.n_rows))
        curvature = TallyPass(matrix, softer, space, support)(block).curvature
        assert curvature is not None
        # Add the expansion of the tile to the model.
        weights = couplings.T @ self.point
        self.mass += block.mass
        self.curvature = self.curvature + curvature[0]
        self.slope = self.slope + curvature[0] @ weights + moments[support.features, support.actions]
        # Minimize the damped model.
        held = self.curvature + np.diag(self.damping)
        model = Hessian(couplings, held / self.mass, 0.0)
        target = couplings @ ((self.slope + self.damping * weights) / self.mass) - dual.form.bounds
        self.point = minimize_quadratic(model, target, (self.point > 0) | (model @ self.point < target))

    def _begin(self, dual: Dual, block: Block) -> None:
        """Begin at the optimum of the first tile.

        Rules are scaled to the same size, so that a ridge with the weight of one row keeps the multipliers of
        rules on small groups near zero.
        """
        # Scale the rules by their typical size on the tile.
        unit, support, couplings = dual.loss_unit, dual.rules.support, dual.rules.couplings
        squares = block.features[support.features] ** 2
        total = np.maximum(squares.sum(axis=1), np.finfo(float).tiny)
        typical = (squares**2).sum(axis=1) / total
        scales = np.sqrt(couplings**2 @ typical)
        scales[scales == 0] = 1.0
        form = replace(
            dual.form,
            couplings=sparse.csr_array(dual.form.couplings / scales[:, None]),
            bounds=dual.form.bounds / scales,
        )
        # Solve the dual of the tile with a ridge.
        first = replace(dual.with_rows([block]), form=form, ridge=1 / (unit * block.mass))
        given = self.point * scales if self.point.any() else None
        self.point = FullBatch()(first, tol=1e-3, start=given).multipliers / scales
        # Damp each pair with the curvature of thirty rows, so that small groups make small steps.
        self.damping = 30.0 / unit * typical
        sizes = total[typical > 0] / typical[typical > 0] / squares.shape[1]
        self.resolution = math.sqrt(sizes.min(initial=1.0)) / unit
        self.curvature, self.slope = np.zeros((len(typical), len(typical))), np.zeros(len(typical))


@dataclass(frozen=True)
class StochasticNewton(RowOptimizer):
    """An optimizer by Newton steps on a quadratic model of all rows so far, one per 1,024 rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> scores = np.random.default_rng(0).random(5000)
    >>> rows = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), rows, solver=StochasticNewton())
    >>> round(policy.expected(rejected(), rows), 2)
    0.2

    References
    ----------
    L. Luo and P. Song (2020). Renewable estimation and incremental inference in generalized linear models
    with streaming data sets. *JRSS B* 82(1), 69-97.
    """

    follows_frequencies: ClassVar[bool] = True  # couplings may change from tile to tile

    def choose_beta(self, dual: Dual) -> float:
        """Return the beta of the full-batch solver."""
        return FullBatch().auto_beta(dual)

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> NewtonState:
        """Return the state of the optimizer before the first step."""
        return NewtonState(start.copy(), np.zeros((0, 0)), np.zeros(0), np.zeros(0))

    def resume(self, state: Node, n_rules: int) -> NewtonState:
        """Return the state of the optimizer that was saved as JSON."""
        places = len(state["slope"].list())
        resumed = NewtonState(
            point=state["point"].vector(n_rules),
            curvature=state["curvature"].matrix(places, places),
            slope=state["slope"].vector(places),
            damping=state["damping"].vector(places),
            resolution=state["resolution"].positive(),
            mass=state["mass"].number(),
            steps=state["steps"].count(),
        )
        if min(resumed.point.min(initial=0), resumed.mass) < 0:
            state.fail("a state with multipliers >= 0")
        return resumed


OPTIMIZERS: dict[str, Any] = {"stochastic": StochasticNewton, "sgd3": SGD3, "acsa": ACSA, "sgd": SGD}
