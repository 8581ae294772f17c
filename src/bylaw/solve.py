"""The functional front door: a problem and evidence in, a policy out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from bylaw.algebra import number
from bylaw.dual import Dual, blocks_of
from bylaw.errors import BylawError, ConvergenceWarning, InfeasibleRulesError
from bylaw.evidence import Evidence
from bylaw.linear_form import compile_problem
from bylaw.policy import Policy
from bylaw.problem import Problem
from bylaw.solution import Solution, Status
from bylaw.solvers.base import Callback, Solver
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.linear_program import LinearProgram

SOLVERS: Mapping[str, Solver] = {
    "auto": FullBatch(),
    "full_batch": FullBatch(),
    "linear_program": LinearProgram(),
}
_ENTROPY_SHARE = 1e-3  # of the objective's spread, that beta="auto" lets the randomisation cost


def solve(
    problem: Problem,
    evidence: Evidence,
    *,
    solver: str | Solver = "auto",
    beta: float | Literal["auto"] = "auto",
    tol: float = 1e-6,
    rng: np.random.Generator | int | None = None,
    callback: Callback | None = None,
) -> Policy:
    """The randomised policy of least cost that obeys the rules on these rows.

    Parameters
    ----------
    solver : "auto" (full_batch), "full_batch", "linear_program", or any `Solver`.
    beta : inverse temperature. The cost is within log|A|/beta (K log 2/beta for sets) of the
        optimum; "auto" makes that 0.1 % of the mean spread between the best and the worst
        decision.
    tol : largest norm of the gradient mapping, which bounds the violation of the rules.
    rng : a generator or a seed; the full batch solver shuffles blocks of rows with it.
    callback : called with each `Step`.

    Raises
    ------
    InfeasibleRulesError : when no policy obeys all the rules.
    """
    if not number(tol, "tol") > 0:
        raise BylawError(f"tol must be positive, not {tol}")
    form = compile_problem(problem, evidence)
    dual = Dual(form, blocks_of(form, evidence), beta=1.0)
    dual = replace(dual, beta=_beta(beta, dual))
    generator = None if rng is None else np.random.default_rng(rng)
    solution = _solver(solver)(dual, tol=tol, rng=generator, callback=callback)
    if solution.status is Status.INFEASIBLE:
        raise _conflict(dual, solution)
    if solution.status is not Status.CONVERGED:
        _warn(dual, solution, tol)
    return Policy.fitted(problem, form, dual.beta, solution)


def _solver(solver: str | Solver) -> Solver:
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise BylawError(f"there is no solver {solver!r}; choose one of {list(SOLVERS)} or pass your own")
        return SOLVERS[solver]
    return solver


def _beta(beta: float | str, dual: Dual) -> float:
    if beta == "auto":
        return dual.form.decisions.entropy / (_ENTROPY_SHARE * dual.loss_unit)
    if isinstance(beta, str):
        raise BylawError(f"beta must be a positive number or 'auto', not {beta!r}")
    if not number(beta, "beta") > 0:
        raise BylawError(f"beta must be positive, not {beta}; a larger beta gives a sharper policy")
    return float(beta)


def _conflict(dual: Dual, solution: Solution) -> InfeasibleRulesError:
    multipliers = solution.multipliers
    _, gradient = dual.value_and_gradient(multipliers)
    involved = np.flatnonzero(multipliers > 1e-6 * multipliers.max())
    least = dual.conflict(multipliers) / multipliers.sum()
    return InfeasibleRulesError(
        {dual.form.names[j]: -float(gradient[j]) for j in involved},
        certified=least > 0,
        least_violation=max(least, 0.0),
    )


def _warn(dual: Dual, solution: Solution, tol: float) -> None:
    _, gradient = dual.value_and_gradient(solution.multipliers)
    worst = int(np.argmin(gradient))
    excess = max(-float(gradient[worst]), 0.0)
    warnings.warn(
        f"the gradient mapping is {solution.gradient_mapping:.3g}, above tol={tol:g}: "
        f"{solution.status.value}. Of the rules, {dual.form.names[worst]!r} is missed most, by {excess:.3g}",
        ConvergenceWarning,
        stacklevel=3,
    )
