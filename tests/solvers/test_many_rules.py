"""Newton steps under many rules on many cells, against non-negative least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import block_diag, cholesky, solve_triangular
from scipy.optimize import nnls

from bylaw import Evidence, Problem, demographic_parity, error, selected, solve
from bylaw.program import Hessian, Status
from bylaw.solvers import _full_batch as full_batch
from bylaw.solvers._full_batch import minimize_quadratic

N_CELLS, N_ACTIONS = 12, 4


def make_model(seed, ridge):
    """Upper and lower limits on each cell's rates less the overall ones, as of demographic parity: all rates
    of a cell add up to one, so that some rules depend on others."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(N_ACTIONS), N_CELLS)
    blocks = [np.diag(share) - np.outer(share, share) for share in shares]
    together = np.vstack([np.eye(N_CELLS * N_ACTIONS), np.tile(np.eye(N_ACTIONS), N_CELLS)])
    curvature = together @ block_diag(*blocks) @ together.T
    local = np.kron(np.diag(rng.uniform(5, 20, N_CELLS)), np.eye(N_ACTIONS))
    couplings = np.hstack([local, -np.tile(np.eye(N_ACTIONS), N_CELLS).T])
    couplings = np.vstack([couplings, -couplings])
    target = couplings @ curvature @ rng.normal(size=len(curvature)) - 0.01
    return Hessian(sparse.csr_array(couplings), sparse.csr_array(curvature), ridge), target


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [1e-2, 1e-5])
@pytest.mark.parametrize("seed", range(5))
def test_the_minimum_is_that_of_non_negative_least_squares(seed, ridge):
    model, target = make_model(seed, ridge)
    root = cholesky(model.restrict(slice(None)))
    expected = nnls(root, solve_triangular(root, target, trans=1))[0]
    for guess in (np.zeros(len(target), bool), target > 0):
        point = minimize_quadratic(model, target, guess | (target > 0))
        slope = model @ point - target
        assert point.min() >= 0
        assert slope.min() > -1e-9
        assert abs(point * slope).max() < 1e-9
        np.testing.assert_allclose(point, expected, atol=1e-6 * expected.max())


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True])
def test_quasi_newton_steps_lead_to_the_same_optimum(monkeypatch, hidden):
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(60, 0.3), 6000)
    groups = {str(g): chances[:, g] for g in range(60)} if hidden else chances.argmax(axis=1)
    evidence = Evidence(rng.dirichlet(np.ones(5), 6000), groups={"group": groups})
    problem = Problem(error(), [demographic_parity("group", tol=0.02), selected(0) <= 0.15])
    outlined = solve(problem, evidence, tol=1e-8)
    assert len(outlined.solution.multipliers) >= full_batch.MANY_RULES
    monkeypatch.setattr(full_batch, "MANY_RULES", 10_000)
    newton = solve(problem, evidence, tol=1e-8)
    assert {outlined.solution.status, newton.solution.status} == {Status.CONVERGED}
    assert len(outlined.solution.trace) != len(newton.solution.trace)
    assert outlined.solution.value == pytest.approx(newton.solution.value, abs=1e-10)
    np.testing.assert_allclose(outlined.probabilities(evidence), newton.probabilities(evidence), atol=1e-4)
