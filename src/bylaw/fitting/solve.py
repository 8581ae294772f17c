"""The functional front door: a problem and evidence in, a policy out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import CONFIDENCE, check_fraction, check_margin, check_positive
from bylaw.calibration.calibration import (
    Calibrate,
    CalibratedEvidence,
    fit_calibration,
)
from bylaw.engines.databases import DatabaseScan
from bylaw.engines.engine import PULL
from bylaw.engines.scan import Scan, attach_observed, read_rows
from bylaw.errors import BylawError, OptionError, Remedy
from bylaw.language.problem import Problem
from bylaw.language.rates import rejected, selected
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import list_free_options
from bylaw.reductions import Fitter, mark_vacuous_rules, warn_of_small_groups
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import observe
from bylaw.solvers import (
    ACSA,
    SGD,
    SGD3,
    Callback,
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
    """The policy of least cost that satisfies the rules on these rows: a randomised one, or with
    `deterministic=True` one without chance.

    The rules hold for the rates that the evidence's probabilities predict; where the true labels
    or groups of these rows are given too, for the observed rates.

    Parameters
    ----------
    problem : Problem
        what to minimise under which rules.
    evidence : Evidence or Scan
        the rows, with labels and groups as observed if there are any; or rows that live elsewhere, whose
        columns name these.
    solver : str, Solver or Optimizer
        "auto" (full_batch), "full_batch", "linear_program", "stochastic", "sgd3", "acsa", "sgd", or any
        `Solver`, such as `Stochastic(optimizer, passes=5)`; an optimizer alone makes one pass.
    beta : float, "auto" or "paper"
        inverse temperature. The cost is within log|A|/beta (K log 2/beta for sets) of the
        optimum. "auto" makes that 0.1 % of the mean spread between the best and the worst
        decision, or T / (8 log2 T) for "sgd3", "acsa", "sgd" and optimizers of your own on T rows; "paper"
        is 0.5 sqrt(T) log sqrt(T).
    tol : float
        largest norm of the gradient mapping, which bounds the violation of the rules. A
        stochastic solver takes its steps and then reports whether it got there; its rules may be missed
        by three standard errors of their rates more.
    labels : array of shape (n_rows,), optional
        the true label of each row, `Evidence(labels=)`: rules that refer to labels then hold as observed.
        Labels may be missing
        (None, NaN, NA, null, masked) on some rows, and so may groups: the rates are then prediction-powered,
        those that the probabilities predict over all rows plus their mean error on the rows that were seen.
    groups : dict or frame, optional
        the true groups, `Evidence(true_groups=)`, of attributes that the evidence knows only as
        probabilities: rules that refer to them then hold as observed.
    calibrate : None, "auto", "none", "temperature", "vector", "isotonic" or "dirichlet"
        fit a calibration of the probabilities on the observed labels and groups, and solve with calibrated
        probabilities; it becomes a part of the policy, which applies it to new rows by itself. "auto" takes
        the method with the least cross-validated log loss, or none. By default, None, it is "auto" where
        labels or true groups of rows in memory are given, and "none" elsewhere.
    propensity_weights : array of shape (n_rows,), optional
        `Evidence(propensity_weights=)`: where labels or groups are missing, 1 / P(seen | x) of the rows that
        show them. By default these are a random sample of all rows.
    margin : float or "auto"
        tighten every rule by this many standard errors of its rate on these rows, so that it is likelier to
        hold on others; less where that would leave no policy. "auto" is as many as it takes for all rules
        that bind to hold together on new rows with a chance of about 95 %.
    guarantee : None or "high_probability"
        with "high_probability", all rules hold together on the population of the rows with this
        `confidence`, by a test on the `held_out` rows (learn then test). Of the policies with smaller and
        smaller margins that are tested, the last that passes is returned.
    confidence : float
        of that guarantee.
    held_out : Evidence or Scan, optional
        rows that were held out; with `labels` and `true_groups` where rules refer to labels or to groups that
        are known only as probabilities.
    deterministic : bool
        True for decisions without chance: each row gets the action of largest score, of equal ones the
        first, and the rules are held, corrected and certified on these decisions. `policy.hard` states what
        that costs. Rows with the same scores are decided alike; where that makes a rule impossible, a warning
        names both.
    rng : Generator or int, optional
        the full batch solver shuffles blocks of rows with it, stochastic solvers sample rows (with seed 0
        if none is given).
    callback : callable, optional
        called with each `Step`.

    Returns
    -------
    Policy

    Raises
    ------
    InfeasibleRulesError
        when no policy satisfies all the rules.
    UncertifiedError
        when the held-out rows do not suffice for any policy.

    Warns
    -----
    ConvergenceWarning
        when the policy misses rules by more than its solver may; it states which and by how much.
    GuaranteeWarning
        when rules are missed without chance, as rows have the same scores; when a rule on a ratio holds only
        because what it divides by is zero, such as a floor on the precision of a label that is never decided.

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
    if not isinstance(problem, Problem):
        raise OptionError(f"solve() takes a Problem and then Evidence, not {type(problem).__name__} first")
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


def fit_problem(fitter: Fitter, problem: Problem) -> Policy:
    """Return the policy of a problem on a fitter's rows, marked with its vacuous rules and the options of the
    fit."""
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
    """What `solve` does with these options, for this problem and others with the same groups and costs."""
    surveyed = None
    if not isinstance(deterministic, bool):
        raise OptionError(f"deterministic must be True or False, got {deterministic!r}")
    if isinstance(evidence, Scan):
        if deterministic:
            raise OptionError("deterministic decisions need all rows in memory", Remedy("read_all_rows"))
        refuse_calibration(calibrate)
        if isinstance(evidence, DatabaseScan):
            _refuse_rows(margin, guarantee, solver)
        if not isinstance(as_solver(solver), FullBatch):
            raise OptionError(
                f"solver={solver!r} needs all rows in memory: leave it out, or have them all there",
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
    calibration = fit_calibration(evidence, calibrate, problem.attributes)
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
    """Return the decisions without rules: the same problem, calibration and actions, but no rules.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence
        the rows on which the policy was chosen. What was observed of them matters only where the objective
        is not linear and the policy was chosen with it.
    decided : Evidence, optional
        the rows to decide; by default the same.

    Returns
    -------
    array of shape (n_rows, n_actions) or None
        probabilities of the actions. None if there is no such policy, because the objective has no value
        without rules.
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
    """Raise if probabilities of scanned rows are to be calibrated."""
    if calibrate not in (None, "none"):
        raise OptionError(
            "calibrate= needs rows in memory: calibrate the probabilities before they are written, or solve "
            "with Evidence of a sample of the rows"
        )


def _refuse_rows(margin: Any, guarantee: Any, solver: Any) -> None:
    """What sums over the rows of a database do not tell."""
    if margin:
        raise OptionError(f"margin= needs the rows themselves: leave it out, or {PULL}")
    if guarantee is not None:
        raise OptionError(f"guarantee= needs the rows themselves: leave it out, or {PULL}")
    if not (isinstance(solver, FullBatch) or solver in ("auto", "full_batch")):
        raise OptionError(f"solver={solver!r} needs the rows themselves: use 'auto', or {PULL}")


def _check_guarantee(guarantee: Any, confidence: Any, held_out: Any, margin: Any) -> Evidence | None:
    """The rows that must certify the policy, if it is to be certified."""
    check_fraction(confidence, "confidence")
    if guarantee not in (None, "high_probability"):
        raise OptionError(f"guarantee must be None or 'high_probability', not {guarantee!r}")
    if (guarantee is None) != (held_out is None):
        raise OptionError(
            "guarantee='high_probability' and held_out= go together: pass evidence of rows that were held out"
        )
    if guarantee is None:
        if confidence != CONFIDENCE:
            raise OptionError(f"confidence={confidence:g} has no effect without a guarantee: leave it out")
        return None
    if margin:
        raise OptionError(
            "with guarantee='high_probability' the margins are found by the test; leave out margin"
        )
    return read_rows(held_out)


def as_solver(solver: str | Solver | Optimizer) -> Solver:
    """By its name, or itself."""
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise OptionError(f"there is no solver {solver!r}; choose one of {list(SOLVERS)}")
        return SOLVERS[solver]
    return solver if hasattr(solver, "auto_beta") else Stochastic(solver)  # type: ignore[return-value, arg-type]
