"""The default for rows that come once: Newton steps on a quadratic model that all rows so far add up to.

Each tile of rows is expanded to second order where the multipliers are when it comes, and forgotten. The sum
of these expansions is minimised over lambda >= 0, so that no step size is needed, and of the two sides of a
rule at most one has a price. Expansions are kept as functions of the score matrix: the couplings, and with
them the frequencies of groups, may be known better later on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from bylaw._base.files import Node
from bylaw._base.typing import Floats
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual, Hessian, TallyPass
from bylaw.solvers.full_batch import FullBatch, minimize_quadratic
from bylaw.solvers.oracle import Oracle, SampledRows

TILE_ROWS = 1024  # rows of one step
_DAMPING = 30.0  # rows' worth of curvature in each cell that a step is held back by
_FIRST_RIDGE = 1.0  # rows' worth that hold the first tile's optimum near zero, where it has too few
_FIRST_TOLERANCE = 1e-3  # of that optimum, whose sampling error is larger


@dataclass
class NewtonState:
    """The sum of the expansions of all rows so far, with Q places (feature, action) that rules touch."""

    point: Floats  # (M,): lambda
    curvature: Floats  # (Q, Q)
    slope: Floats  # (Q,)
    damping: Floats  # (Q,)
    resolution: float = 1.0  # of multipliers by one row of the smallest cell: beta
    mass: float = 0.0
    steps: int = 0

    @property
    def answer(self) -> Floats:
        return self.point

    def advance(self, rows: SampledRows) -> None:
        """One step per tile; only the last call may end within one."""
        for first in range(0, len(rows.weights), TILE_ROWS):
            part = slice(first, first + TILE_ROWS)
            block = Block(rows.features[part].T.copy(), rows.weights[part])
            if block.mass:
                self._step(rows.dual, block)
            self.steps += len(rows.weights[part])

    def _step(self, dual: Dual, block: Block) -> None:
        """To the minimum of the model, held near the point where the last expansion was made."""
        if not self.mass:
            self._begin(dual, block)
        support, couplings = dual.rules.support, dual.rules.couplings
        moments, curvature = self._expand(dual, block)
        weights = couplings.T @ self.point
        self.mass += block.mass
        self.curvature = self.curvature + curvature
        self.slope = self.slope + curvature @ weights + moments[support.features, support.actions]
        held = self.curvature + np.diag(self.damping)
        model = Hessian(couplings, held / self.mass, 0.0)
        target = couplings @ ((self.slope + self.damping * weights) / self.mass) - dual.form.bounds
        self.point = minimize_quadratic(model, target, (self.point > 0) | (model @ self.point < target))

    def _begin(self, dual: Dual, block: Block) -> None:
        """At the optimum of the first tile. Rules are scaled to the same size there, so that the ridge holds
        back those of small groups as much as it takes."""
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
        first = replace(dual.with_rows([block]), form=form, ridge=_FIRST_RIDGE / (unit * block.mass))
        given = self.point * scales if self.point.any() else None
        self.point = FullBatch()(first, tol=_FIRST_TOLERANCE, start=given).multipliers / scales
        self.damping = _DAMPING / unit * typical
        sizes = total[typical > 0] / typical[typical > 0] / squares.shape[1]
        self.resolution = math.sqrt(sizes.min(initial=1.0)) / unit
        self.curvature, self.slope = np.zeros((len(typical), len(typical))), np.zeros(len(typical))

    def _expand(self, dual: Dual, block: Block) -> tuple[Floats, Floats]:
        """Moments of the tile, (F, A), and their derivative at the places of the rules, (Q, Q).

        The derivative is wanted over the distance that the multipliers may still go, which is their
        sampling error: beta is no larger there than its inverse.
        """
        space, matrix = dual.form.action_space, dual.form.score_matrix(self.point)
        softer = min(dual.beta, self.resolution * math.sqrt(self.steps + block.n_rows))
        moments = TallyPass(matrix, dual.beta, space)(block).moments
        curvature = TallyPass(matrix, softer, space, dual.rules.support)(block).curvature
        assert curvature is not None
        return moments, curvature[0]

    def state(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "point": self.point.tolist(),
            "curvature": self.curvature.tolist(),
            "slope": self.slope.tolist(),
            "damping": self.damping.tolist(),
            "resolution": self.resolution,
            "mass": self.mass,
            "steps": self.steps,
        }


@dataclass(frozen=True)
class StochasticNewton:
    """Newton steps on the sum of second-order expansions, one for each tile of 1,024 rows.

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
        """That of the full batch."""
        return FullBatch().auto_beta(dual)

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> NewtonState:
        return NewtonState(start.copy(), np.zeros((0, 0)), np.zeros(0), np.zeros(0))

    def resume(self, state: Node, n_rules: int) -> NewtonState:
        places = len(state["slope"].list())
        walk = NewtonState(
            point=state["point"].vector(n_rules),
            curvature=state["curvature"].matrix(places, places),
            slope=state["slope"].vector(places),
            damping=state["damping"].vector(places),
            resolution=state["resolution"].positive(),
            mass=state["mass"].number(),
            steps=state["steps"].count(),
        )
        if min(walk.point.min(initial=0), walk.mass) < 0:
            state.fail("a walk over multipliers >= 0")
        return walk

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats:
        return oracle.run(self.begin(sigma2, smoothness, steps, start), steps)
