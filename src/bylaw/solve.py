"""The functional front door: a problem and evidence in, a policy out."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bylaw.correction import Corrected, Observed, Resolve, affordable_margins, correct, observe, start
from bylaw.decisions import Floats
from bylaw.dual import Dual, blocks_of
from bylaw.errors import ConvergenceWarning, InfeasibleRulesError, OptionError, positive
from bylaw.evidence import Evidence, as_evidence
from bylaw.linear_form import compile_problem
from bylaw.measure import standard_error
from bylaw.policy import Policy
from bylaw.problem import Problem
from bylaw.solution import Guarantee, Solution, Status
from bylaw.solvers.acsa import ACSA
from bylaw.solvers.base import Callback, Solver
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.linear_program import LinearProgram
from bylaw.solvers.oracle import Optimizer
from bylaw.solvers.sgd import SGD
from bylaw.solvers.sgd3 import SGD3
from bylaw.solvers.stochastic import Stochastic, beta_of

SOLVERS: Mapping[str, Solver] = {
    "auto": FullBatch(),
    "full_batch": FullBatch(),
    "linear_program": LinearProgram(),
    "sgd3": Stochastic(SGD3()),
    "acsa": Stochastic(ACSA()),
    "sgd": Stochastic(SGD()),
}


def solve(
    problem: Problem,
    evidence: Evidence,
    *,
    solver: str | Solver | Optimizer = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
    labels: Any = None,
    groups: Any = None,
    margin: float = 0.0,
    rng: np.random.Generator | int | None = None,
    callback: Callback | None = None,
) -> Policy:
    """The randomised policy of least cost that obeys the rules on these rows.

    The rules hold for the rates that the evidence's probabilities predict; where the true labels
    or groups of these rows are given too, for the rates that are observed.

    Parameters
    ----------
    solver
        "auto" (full_batch), "full_batch", "linear_program", "sgd3", "acsa", "sgd", or any
        `Solver`, such as `Stochastic(optimizer, passes=5)`; an optimiser alone makes one pass.
    beta
        inverse temperature. The cost is within log|A|/beta (K log 2/beta for sets) of the
        optimum. "auto" makes that 0.1 % of the mean spread between the best and the worst
        decision, or T / (8 log2 T) for stochastic solvers on T rows; "paper" is
        0.5 sqrt(T) log sqrt(T).
    tol
        largest norm of the gradient mapping, which bounds the violation of the rules. A
        stochastic solver takes its steps and then says whether it got there.
    labels
        the true label of each row: rules that speak of labels then hold as observed.
    groups
        the true groups, {name: one value per row} or a frame, of attributes that the evidence
        knows only as probabilities: rules that speak of them then hold as observed.
    margin
        tighten every rule by this many standard errors of its rate on these rows, so that it is
        likelier to hold on others; at most half of what leaves a policy.
    rng
        a generator or a seed; the full batch solver shuffles blocks of rows with it, stochastic
        solvers sample rows (with seed 0 if none is given).
    callback
        called with each `Step`.

    Raises
    ------
    InfeasibleRulesError
        when no policy obeys all the rules.
    """
    if not isinstance(problem, Problem):
        raise OptionError(f"solve() takes a Problem and then Evidence, not {type(problem).__name__} first")
    as_evidence(evidence)
    positive(tol, "tol")
    _check_margin(margin)
    form = compile_problem(problem, evidence)
    dual = Dual(form, blocks_of(form, evidence), beta=1.0)
    chosen = _solver(solver)
    dual = replace(dual, beta=beta_of(beta, dual.n_rows, lambda: chosen.auto_beta(dual)))
    generator = None if rng is None else np.random.default_rng(rng)

    def run(dual: Dual, begin: Floats | None = None) -> Solution:
        return chosen(dual, tol=tol, start=begin, rng=generator, callback=callback)

    solution = run(dual)
    shift = np.zeros(dual.n_rules)
    observing = labels is not None or groups is not None
    if dual.n_rules and (observing or margin):
        seen = observe(problem, form, evidence, labels, groups)
        corrected = _corrected(problem, dual, solution, evidence, seen, margin, run)
        if corrected is not None:
            dual, solution, shift = corrected.dual, corrected.solution, corrected.shift
    if solution.status is Status.INFEASIBLE:
        conflict = _conflict(dual, solution)
        if observing:
            conflict.add_note("These are the rates that the probabilities predict; no shift of them helps.")
        raise conflict
    if solution.status in (Status.MAX_STEPS, Status.STALLED):
        _warn(dual, solution, tol)
    return Policy.fitted(problem, form, solution, guarantee_of(dual, solution), shift * form.scales)


def _check_margin(margin: Any) -> None:
    if not (isinstance(margin, numbers.Real) and 0 <= float(margin) < math.inf):
        raise OptionError(f"margin must be a number of standard errors, zero or more, not {margin!r}")


def _corrected(
    problem: Problem,
    dual: Dual,
    first: Solution,
    evidence: Evidence,
    seen: Observed,
    margin: float,
    run: Resolve,
) -> Corrected | None:
    """The rules held on what was seen, with a margin; None if they conflict there too."""
    begin = start(dual, first, seen, run)
    if begin is None:
        return None
    margins = _margins(problem, begin, evidence, seen, margin, run)
    corrected = correct(dual, begin, seen, margins, run)
    _warn_if_missed(problem, corrected, evidence, seen)
    return corrected


def _margins(
    problem: Problem, begin: Corrected, evidence: Evidence, seen: Observed, margin: float, run: Resolve
) -> Floats:
    """So many standard errors of each rule, as far as they can be afforded, (M,)."""
    if margin == 0:
        return np.zeros(begin.dual.n_rules)
    law = _law(problem, begin, evidence, seen)
    errors = [_standard_error(j, evidence, seen, law) for j in range(begin.dual.n_rules)]
    return affordable_margins(begin, margin * np.array(errors) / seen.form.scales, run)


def _law(problem: Problem, found: Corrected, evidence: Evidence, seen: Observed) -> Floats:
    guarantee = guarantee_of(found.dual, found.solution)
    return Policy.fitted(problem, seen.form, found.solution, guarantee).probabilities(evidence)


def _standard_error(j: int, evidence: Evidence, seen: Observed, law: Floats) -> float:
    """Of rule j, in its own unit."""
    rows = seen.evidence if seen.rules[j] else evidence
    return standard_error(seen.rates[j], rows, law, seen.form.decisions)


def _warn_if_missed(problem: Problem, corrected: Corrected, evidence: Evidence, seen: Observed) -> None:
    excess = corrected.excess * seen.form.scales
    worst = int(np.argmax(excess))
    if excess[worst] <= _standard_error(worst, evidence, seen, _law(problem, corrected, evidence, seen)):
        return
    warnings.warn(
        f"the observed rates of these rows do not obey every rule: {seen.form.names[worst]!r} is missed by "
        f"{excess[worst]:.3g}, more than a standard error. The model tells too little about it; loosen the "
        "rule, merge small groups, or give better probabilities",
        ConvergenceWarning,
        stacklevel=5,
    )


def _solver(solver: str | Solver | Optimizer) -> Solver:
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise OptionError(
                f"there is no solver {solver!r}; choose one of {list(SOLVERS)} or pass your own"
            )
        return SOLVERS[solver]
    return solver if hasattr(solver, "auto_beta") else Stochastic(solver)  # type: ignore[return-value, arg-type]


def guarantee_of(dual: Dual, solution: Solution) -> Guarantee:
    return Guarantee(
        gradient_mapping=solution.gradient_mapping,
        multiplier_norm=float(np.linalg.norm(solution.multipliers)),
        alpha=dual.loss_unit,
        beta=dual.beta,
        sigma=math.sqrt(dual.sigma2),
        smoothness=dual.smoothness,
        mean_norm=dual.mean_norm,
        entropy=dual.form.decisions.entropy,
    )


def _conflict(dual: Dual, solution: Solution) -> InfeasibleRulesError:
    """The rules that the proof needs: multipliers are dropped while it holds without them."""
    proof = solution.multipliers / solution.multipliers.max()
    for j in np.argsort(proof):
        without = np.where(np.arange(len(proof)) == j, 0.0, proof)
        if proof[j] and dual.conflict(without) > 0:
            proof = without
    scales = dual.form.scales
    violations = -dual.value_and_gradient(solution.multipliers)[1] * scales
    least = dual.conflict(proof) / float((proof / scales).sum())
    return InfeasibleRulesError(
        {dual.form.names[j]: float(violations[j]) for j in np.flatnonzero(proof)}, max(least, 0.0)
    )


def _warn(dual: Dual, solution: Solution, tol: float) -> None:
    _, gradient = dual.value_and_gradient(solution.multipliers)
    worst = int(np.argmin(gradient))
    excess = max(-float(gradient[worst] * dual.form.scales[worst]), 0.0)
    warnings.warn(
        f"the gradient mapping is {solution.gradient_mapping:.3g}, above tol={tol:g}: "
        f"{solution.status.value}. Of the rules, {dual.form.names[worst]!r} is missed most, by {excess:.3g}",
        ConvergenceWarning,
        stacklevel=3,
    )
