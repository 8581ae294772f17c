"""Small moves from one optimum to the next, with the curvature of the last."""

from __future__ import annotations

import math

import numpy as np

from bylaw._base.typing import Floats
from bylaw.formulation.dual import Dual, Hessian
from bylaw.formulation.passes import Tally
from bylaw.formulation.solution import Solution, Status, Step
from bylaw.solvers.base import gradient_mapping
from bylaw.solvers.full_batch import minimize_quadratic

_CHORDS = 8  # steps, before the start is given up
_PROGRESS = 0.2  # a step should leave this much of the gradient mapping, or less
_REGULAR = 1e-6  # relative, added to diagonals: rules may depend on each other


class ModifiedNewton:
    """Newton steps whose curvature, the greater part of their cost, is kept from one point of a path to the
    next for as long as the steps get far with it."""

    def __init__(self) -> None:
        self._curvature: tuple[Hessian, float] | None = None  # and the mass of the rows it is a mean over

    def refine(self, dual: Dual, start: Floats, *, tol: float, alpha: float) -> tuple[Solution, Tally] | None:
        """From a start near the optimum, with the sums over rows there; None if that is not near enough."""
        point, trace, last = start, list[Step](), math.inf
        for _ in range(_CHORDS):
            total = dual.tally(point)
            value, gradient = dual.first_order(total, point)
            norm = float(np.linalg.norm(gradient_mapping(point, gradient, alpha)))
            if norm <= tol:
                return Solution(point, Status.CONVERGED, norm, value, len(trace), tuple(trace)), total
            if norm > last:
                break
            if self._curvature is None or norm > _PROGRESS * last:
                total = dual.tally(point, curvature=True)
                self._curvature = dual.second_order(total), total.mass
            point = self._step(point, gradient, dual.mass)
            trace.append(Step(len(trace), dual.mass, dual.beta, value, norm))
            last = norm
        self._curvature = None  # of a point that led nowhere
        return None

    def _step(self, point: Floats, gradient: Floats, mass: float) -> Floats:
        """To the minimum of the local quadratic over lambda >= 0."""
        assert self._curvature is not None
        hessian, its_mass = self._curvature
        lift = _REGULAR**2 + _REGULAR * hessian.trace / len(point)
        model = Hessian(hessian.couplings, hessian.curvature * (its_mass / mass), lift)
        return minimize_quadratic(model, model @ point - gradient, (point > 0) | (gradient < 0))
