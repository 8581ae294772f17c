"""The exact linear program over policies, solved by HiGHS: the reference for the other solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from bylaw._base import Floats
from bylaw.program import Callback, Dual, ExactOptimum, Solution
from bylaw.solvers._full_batch import FullBatch


def exact_policy(dual: Dual) -> ExactOptimum | None:
    """Minimize the cost over all policies on these rows, or return None if the rules conflict.

    Raise an `ArithmeticError` if HiGHS does not find the optimum.
    """
    form = dual.form
    features = np.concatenate([block.features for block in dual.blocks], axis=1)
    mass = np.concatenate([block.row_weights for block in dual.blocks]) / dual.mass
    n_actions, n_rows = form.base.shape[1], len(mass)
    weighted = features * mass
    # Write E[c_j] as coefficients of the unknowns pi(a | x_i), which are ordered by action.
    rules = np.hstack([form.couplings[:, a::n_actions] @ weighted for a in range(n_actions)])
    one_each = sparse.hstack([sparse.eye_array(n_rows)] * n_actions)
    exclusive = form.action_space.exclusive
    answer = linprog(
        (form.base.T @ weighted).ravel() / dual.loss_unit,  # the tolerances of HiGHS are absolute
        A_ub=rules if dual.n_rules else None,
        b_ub=form.bounds if dual.n_rules else None,
        A_eq=one_each if exclusive else None,
        b_eq=np.ones(n_rows) if exclusive else None,
        bounds=(0, None) if exclusive else (0, 1),
        method="highs",
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise ArithmeticError(f"HiGHS did not find the optimum of the linear program: {answer.message}")
    multipliers = np.maximum(-answer.ineqlin.marginals, 0.0) if dual.n_rules else np.zeros(0)
    cost = answer.fun * dual.loss_unit + form.base_constant
    return ExactOptimum(cost, multipliers * dual.loss_unit, answer.x.reshape(n_actions, n_rows))


@dataclass(frozen=True)
class LinearProgram:
    """A solver of the exact linear program, followed by Newton steps on the dual.

    At the optimum of the linear program, two actions are equally good on some rows, and the program does not
    determine the decisions on similar new rows. Therefore its multipliers are only the start of Newton steps
    at the dual's beta, until the randomized policy itself satisfies the rules. The exact cost and multipliers
    are in `solution.exact`. `start` is used only if the linear program has no optimum or HiGHS does not find
    it.
    """

    def auto_beta(self, dual: Dual) -> float:
        return FullBatch().auto_beta(dual)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        try:
            exact = exact_policy(dual)
        except ArithmeticError:
            exact = None
        if exact is None:  # the full-batch solver proves that the rules conflict
            return FullBatch()(dual, tol=tol, start=start, rng=rng, callback=callback)
        polished = FullBatch()(dual, tol=tol, start=exact.multipliers, rng=rng, callback=callback)
        return replace(polished, exact=exact._replace(probabilities=None))
