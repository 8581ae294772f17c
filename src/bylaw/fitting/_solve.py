"""The function `solve`, and the checks and options that other functions share with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bylaw._base import CONFIDENCE, Floats, check_fraction, check_margin, check_positive
from bylaw.calibration import Calibrate, CalibratedEvidence, fit_calibration
from bylaw.engines import PULL, DatabaseScan, Scan, attach_observed, read_rows
from bylaw.errors import BylawError, OptionError, Remedy
from bylaw.language import Problem, rejected, selected
from bylaw.policy import Policy
from bylaw.program import Callback, list_free_options
from bylaw.reductions import Fitter, mark_vacuous_rules, warn_of_small_groups
from bylaw.rows import Evidence, observe
from bylaw.solvers import (
    ACSA,
    SGD,
    SGD3,
    FullBatch,
    LinearProgram,
    Optimizer,
    Solver,
    Stochastic,
    StochasticNewton,
)
from bylaw.testing import find_without_rules

SOLVERS: Mapping[str, Solver] = {
    "auto": FullBatch(),
    "full_batch": FullBatch(),
    "linear_program": LinearProgram(),
    "stochastic": Stochastic(StochasticNewton()),
    "sgd3": Stochastic(SGD3()),
    "acsa": Stochastic(ACSA()),
    "sgd": Stochastic(SGD()),
}


def solve(
    problem: Problem,
    evidence: Evidence | Scan,
    *,
    solver: str | Solver | Optimizer = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
    guarantee: Literal["high_probability"] | None = None,
    confidence: float = 0.95,
    held_out: Evidence | Scan | None = None,
    deterministic: bool = False,
    rng: np.random.Generator | int | None = None,
    callback: Callback | None = None,
) -> Policy:
    """Find the policy of least cost that satisfies the rules of a problem on these rows.

    The policy is randomized unless `deterministic=True`. The rules are satisfied by the rates that the
    probabilities of the evidence predict or, if true labels or groups of the rows are given, by the observed
    rates.

    Parameters
    ----------
    problem : Problem
        The objective and the rules.
    evidence : Evidence or Scan
        The rows, with observed labels and groups if there are any; or rows outside of memory, see `scan`.
    solver : str, Solver or Optimizer
        One of "auto" (the same as "full_batch"), "full_batch", "linear_program", "stochastic", "sgd3", "acsa"
        and "sgd", or a `Solver` such as `Stochastic(optimizer, passes=5)`. An optimizer alone makes one pass.
    beta : float, "auto" or "paper"
        Inverse temperature. The cost is within ``log(A) / beta`` of the optimum for A actions, and within
        ``K log(2) / beta`` for prediction sets of K labels. "auto" makes that 0.1 % of the mean difference
        between the best and the worst decision, or ``T / (8 log2(T))`` for "sgd3", "acsa", "sgd" and custom
        optimizers on T rows. "paper" is ``0.5 sqrt(T) log(sqrt(T))``.
    tol : float
        Largest norm of the gradient mapping, which bounds the violation of the rules. A stochastic solver
        takes its steps and then reports whether it reached this precision; its rules may be violated by three
        more standard errors of their rates.
    labels : array of shape (n_rows,), optional
        The true label of each row, a short form of `Evidence(labels=)`. Rules that refer to labels are then
        satisfied by observed rates. Labels and groups may be missing (None, NaN, NA, null, masked) on some
        rows. The rates are then prediction-powered: the predicted rates of all rows plus the mean error of
        the prediction on the rows with labels.
    groups : dict or frame, optional
        The true groups, a short form of `Evidence(true_groups=)`, of attributes that the evidence knows only
        as probabilities. Rules that refer to them are then satisfied by observed rates.
    propensity_weights : array of shape (n_rows,), optional
        Inverse propensity weights, a short form of `Evidence(propensity_weights=)`: if labels or groups are
        missing on some rows, the weights 1 / P(observed | x) of the rows that have them. By default, these
        rows are assumed to be a random sample of all rows.
    calibrate : None, "auto", "none", "temperature", "vector", "isotonic" or "dirichlet"
        Fit a calibration of the probabilities on the observed labels and groups, and solve with calibrated
        probabilities. It becomes a part of the policy, which applies it to new rows. "auto" selects the
        method with the least cross-validated log loss, or none. None, the default, means "auto" if labels or
        true groups of rows in memory are given, and "none" otherwise.
    margin : float or "auto"
        Tighten every rule by this many standard errors of its rate on these rows, so that it is likelier to
        hold on other rows. The margin is reduced if no policy would satisfy the rules with it. "auto" is the
        margin with which all binding rules hold together on new rows with a probability of about 95 %.
    guarantee : None or "high_probability"
        With "high_probability", all rules hold together on the population of the rows with probability
        `confidence`. Policies with smaller and smaller margins are tested on the `held_out` rows until one
        fails (learn then test), and the last policy that passed is returned.
    confidence : float
        The confidence of this guarantee.
    held_out : Evidence or Scan, optional
        Rows for the test of the guarantee, which must not be among the fitted rows. They need `labels` and
        `true_groups` if rules refer to labels or to groups that are known only as probabilities.
    deterministic : bool
        Whether decisions are deterministic. Each row then gets the action with the largest score (the first
        of equal ones), and the rules are satisfied and certified with these decisions. `policy.hard` contains
        the extra cost. Rows with the same scores get the same decision; if this makes a rule impossible, a
        warning names the rule and the number of such rows.
    rng : Generator or int, optional
        The random generator or seed, with which the full batch solver shuffles blocks of rows and
        stochastic solvers sample rows (with seed 0 by default).
    callback : callable, optional
        A function that is called with each `Step` of the solver.

    Returns
    -------
    Policy

    Raises
    ------
    InfeasibleRulesError
        If no policy satisfies all the rules.
    UncertifiedError
        If the held-out rows are not enough to certify any policy.

    Warns
    -----
    ConvergenceWarning
        If the policy violates rules by more than the tolerance of its solver. The warning names the rules
        and the size of each violation.
    GuaranteeWarning
        If deterministic decisions violate rules because rows have the same scores, or if a rule on a ratio
        is satisfied only because its denominator is zero, such as a floor on the precision of a label that
        is never decided.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> round(policy.prices["rejected() <= 0.1"], 2)
    0.45
    """
    check_problem(problem)
    evidence = attach_observed(evidence, labels=labels, groups=groups, propensity_weights=propensity_weights)
    with evidence.hold_rows() if isinstance(evidence, Scan) else nullcontext():
        fitter = make_fitter(
            problem,
            evidence,
            solver=solver,
            beta=beta,
            tol=tol,
            calibrate=calibrate,
            margin=margin,
            guarantee=guarantee,
            confidence=confidence,
            held_out=held_out,
            deterministic=deterministic,
            rng=rng,
            callback=callback,
        )
        policy = fit_problem(fitter, problem)
    warn_of_small_groups(policy, fitter.evidence)
    return policy


def check_problem(problem: Any) -> None:
    """Raise if the first argument of a public function is not a problem."""
    if not isinstance(problem, Problem):
        raise OptionError(
            f"problem must be a Problem, got {type(problem).__name__}; pass the problem first, then "
            "the evidence"
        )


def fit_problem(fitter: Fitter, problem: Problem) -> Policy:
    """Fit a problem; add the names of its vacuous rules and the options of the fit to the policy."""
    policy = mark_vacuous_rules(fitter.fit(problem), fitter)
    return replace(policy, card=replace(policy.card, options=fitter.describe_options()))


def make_fitter(
    problem: Problem,
    evidence: Evidence | Scan,
    *,
    solver: str | Solver | Optimizer = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
    guarantee: Literal["high_probability"] | None = None,
    confidence: float = 0.95,
    held_out: Evidence | Scan | None = None,
    deterministic: bool = False,
    rng: np.random.Generator | int | None = None,
    callback: Callback | None = None,
) -> Fitter:
    """Check the options of `solve`, and return an object that fits problems on these rows."""
    surveyed = None
    if not isinstance(deterministic, bool):
        raise OptionError(f"deterministic must be True or False, got {deterministic!r}")
    if isinstance(evidence, Scan):
        if deterministic:
            raise OptionError(
                "deterministic must be False for scanned rows, got True", Remedy("read_all_rows")
            )
        refuse_calibration(calibrate)
        if isinstance(evidence, DatabaseScan):
            _refuse_rows(margin, guarantee, solver)
        if not isinstance(as_solver(solver), FullBatch):
            raise OptionError(
                f"solver must be 'auto' or 'full_batch' for scanned rows, got {solver!r}; the others "
                "need all rows in memory",
                Remedy("read_all_rows"),
            )
        surveyed = evidence.survey(problem)
        evidence = surveyed.evidence
    evidence.check_group_sizes(problem.compared_attributes)
    check_positive(tol, "tol")
    if margin != "auto":
        check_margin(margin)
    certifying = _check_guarantee(guarantee, confidence, held_out, margin)
    if calibrate is None:
        observable = (
            evidence.has_observed and surveyed is None and not isinstance(evidence, CalibratedEvidence)
        )
        calibrate = "auto" if observable else "none"
    calibration = None if calibrate == "none" else fit_calibration(evidence, calibrate, problem.attributes)
    if calibration is not None:
        evidence = calibration.apply(evidence)
        certifying = None if certifying is None else calibration.apply(certifying)
    observed = None if surveyed is None else surveyed.observed
    if surveyed is None and evidence.has_observed:
        observed = observe(evidence.with_columns(outcomes={}))  # costs are those of the evidence
    return Fitter(
        evidence=evidence.without_observed(),  # policies decide by the other columns
        surveyed=surveyed,
        observed=observed,
        calibrate=calibrate,
        calibration=calibration,
        solver=as_solver(solver),
        beta=beta,
        tol=tol,
        margin=margin,
        certifying=certifying,
        confidence=confidence,
        deterministic=deterministic,
        rng=None if rng is None else np.random.default_rng(rng),
        callback=callback,
    )


def solve_without_rules(policy: Policy, evidence: Evidence, decided: Evidence | None = None) -> Floats | None:
    """Return the decisions that the same problem, calibration and actions give without any rules.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence
        The rows on which the policy was fitted. Their observed columns only matter if the objective is
        nonlinear and the policy was fitted with them.
    decided : Evidence, optional
        The rows to decide; by default `evidence`.

    Returns
    -------
    array of shape (n_rows, n_actions) or None
        The probabilities of the actions. None if the objective has no value without rules.
    """
    decided = policy.feature_map.admit(policy.calibrate(evidence if decided is None else decided))
    known = find_without_rules(policy, decided)
    if known is not None:
        return known
    # Options that cost nothing are excluded, as they are where no solver is needed: without rules, they would
    # be taken on every row.
    space = policy.action_space
    free = list_free_options(policy.problem.minimize, space)
    excluded = [(selected(one) if one in space.named_options else rejected()) <= 0 for one in free]
    if policy.fitted_rates is None:
        evidence = evidence.without_observed()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = solve(
                policy.problem.with_rules(excluded),
                policy.calibrate(evidence),
                beta=policy.beta,
                deterministic=policy.deterministic,
            )
            return found.probabilities(decided)
    except BylawError:
        return None


def refuse_calibration(calibrate: Any) -> None:
    """Raise if a calibration is requested for scanned rows."""
    if calibrate not in (None, "none"):
        raise OptionError(
            f"calibrate must be None for scanned rows, got {calibrate!r}; calibrate the probabilities before "
            "they are written, or solve with Evidence of a sample of the rows"
        )


def _refuse_rows(margin: Any, guarantee: Any, solver: Any) -> None:
    """Raise if an option needs single rows, which a database does not return."""
    if margin:
        raise OptionError(f"margin must be 0 for rows in a database, got {margin!r}; leave it out, or {PULL}")
    if guarantee is not None:
        raise OptionError(
            f"guarantee must be None for rows in a database, got {guarantee!r}; leave it out, or {PULL}"
        )
    if not (isinstance(solver, FullBatch) or solver in ("auto", "full_batch")):
        raise OptionError(
            f"solver must be 'auto' for rows in a database, got {solver!r}; leave it out, or {PULL}"
        )


def _check_guarantee(guarantee: Any, confidence: Any, held_out: Any, margin: Any) -> Evidence | None:
    """Check the options of a guarantee, and return the held-out rows, or None without a guarantee."""
    check_fraction(confidence, "confidence")
    if guarantee not in (None, "high_probability"):
        raise OptionError(f"guarantee must be None or 'high_probability', got {guarantee!r}")
    if (guarantee is None) != (held_out is None):
        raise OptionError(
            "guarantee='high_probability' and held_out= must be passed together, got only one of them; pass "
            "both, or neither"
        )
    if guarantee is None:
        if confidence != CONFIDENCE:
            raise OptionError(
                f"confidence={confidence:g} has no effect without a guarantee; pass "
                "guarantee='high_probability', or leave confidence out"
            )
        return None
    if margin:
        raise OptionError(
            f"margin must be 0 with guarantee='high_probability', got {margin!r}; the test finds the margins"
        )
    return read_rows(held_out)


def as_solver(solver: str | Solver | Optimizer) -> Solver:
    """Return the solver with this name, a solver that runs this optimizer, or the solver itself."""
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise OptionError(
                f"solver must be one of {list(SOLVERS)}, a Solver or an Optimizer, got {solver!r}"
            )
        return SOLVERS[solver]
    return solver if hasattr(solver, "auto_beta") else Stochastic(solver)  # type: ignore[return-value, arg-type]
