"""The functional front door: a problem and evidence in, a policy out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import check_fraction, check_margin, check_positive
from bylaw.backends.database import PULL
from bylaw.backends.databases import DatabaseScan, SurveyedTable
from bylaw.backends.scan import Scan, SurveyedRows, read_rows
from bylaw.calibration.calibration import (
    Calibrate,
    Calibration,
    calibrate_held_out,
    fit_calibration,
)
from bylaw.data.arrays import check_alignment
from bylaw.data.evidence import Evidence, as_evidence
from bylaw.data.outcomes import HeldOut, ObservedRows, observe
from bylaw.errors import InfeasibleRulesError, OptionError, Remedy
from bylaw.fitting.alike_actions import warn_of_alike_actions
from bylaw.fitting.bias_correction import CorrectedSolution, Correction, Resolve, merge_rows
from bylaw.fitting.certification import Finish, certify
from bylaw.fitting.diagnosis import examine
from bylaw.fitting.fitted_policy import (
    find_wholes,
    make_corrected_policy,
    make_policy,
    predict_actions,
    warn_of_missed_rules,
)
from bylaw.fitting.hard_decisions import CONSTANT, harden, make_hard_policy
from bylaw.fitting.linearization import compares_quotients, needs_linearization, solve_linearized
from bylaw.fitting.objectives import WarmSolver
from bylaw.fitting.ratio_rules import RatioRules
from bylaw.fitting.row_sources import make_dual
from bylaw.fitting.worst_group import SHARPER, GroupSearch, GroupWeights, Trial, add_groups
from bylaw.formulation.dual import Dual
from bylaw.formulation.free_options import check_options_cost
from bylaw.formulation.linear_form import compile_problem
from bylaw.formulation.row_rates import compute_group_rates
from bylaw.formulation.rule_excesses import measure_excesses
from bylaw.formulation.solution import Solution, Status
from bylaw.language.expressions import Conditions
from bylaw.language.problem import Problem
from bylaw.language.worst import Objective
from bylaw.policy.policy import Policy
from bylaw.solvers.acsa import ACSA
from bylaw.solvers.base import Callback, Solver, resolve_beta
from bylaw.solvers.full_batch import FullBatch
from bylaw.solvers.linear_program import LinearProgram
from bylaw.solvers.oracle import Optimizer
from bylaw.solvers.sgd import SGD
from bylaw.solvers.sgd3 import SGD3
from bylaw.solvers.stochastic import Stochastic
from bylaw.solvers.stochastic_newton import StochasticNewton

SOLVERS: Mapping[str, Solver] = {
    "auto": FullBatch(),
    "full_batch": FullBatch(),
    "linear_program": LinearProgram(),
    "stochastic": Stochastic(StochasticNewton()),
    "sgd3": Stochastic(SGD3()),
    "acsa": Stochastic(ACSA()),
    "sgd": Stochastic(SGD()),
}
_CONFIDENCE = 0.95
_RAREST = 1e-3  # share of rows that a quotient divides by, for it to be held as precisely as other rates


def solve(
    problem: Problem,
    evidence: Evidence | Scan,
    *,
    solver: str | Solver | Optimizer = "auto",
    beta: float | Literal["auto", "paper"] = "auto",
    tol: float = 1e-6,
    labels: Any = None,
    groups: Any = None,
    seen_weights: Any = None,
    calibrate: Calibrate | None = None,
    margin: float | Literal["auto"] = 0.0,
    guarantee: Literal["high_probability"] | None = None,
    confidence: float = _CONFIDENCE,
    held_out: Evidence | HeldOut | Scan | None = None,
    lottery: bool = True,
    rng: np.random.Generator | int | None = None,
    callback: Callback | None = None,
) -> Policy:
    """The policy of least cost that satisfies the rules on these rows: a randomised one, or with
    `lottery=False` one without chance.

    The rules hold for the rates that the evidence's probabilities predict; where the true labels
    or groups of these rows are given too, for the observed rates.

    Parameters
    ----------
    problem : Problem
        what to minimise under which rules.
    evidence : Evidence or Scan
        the rows, as they are known when they are decided; or rows that live elsewhere, whose columns name
        labels and groups as observed.
    solver : str, Solver or Optimizer
        "auto" (full_batch), "full_batch", "linear_program", "stochastic", "sgd3", "acsa", "sgd", or any
        `Solver`, such as `Stochastic(optimizer, passes=5)`; an optimiser alone makes one pass.
    beta : float, "auto" or "paper"
        inverse temperature. The cost is within log|A|/beta (K log 2/beta for sets) of the
        optimum. "auto" makes that 0.1 % of the mean spread between the best and the worst
        decision, or T / (8 log2 T) for "sgd3", "acsa", "sgd" and optimisers of your own on T rows; "paper"
        is 0.5 sqrt(T) log sqrt(T).
    tol : float
        largest norm of the gradient mapping, which bounds the violation of the rules. A
        stochastic solver takes its steps and then reports whether it got there; its rules may be missed
        by three standard errors of their rates more.
    labels : array of shape (n_rows,), optional
        the true label of each row: rules that refer to labels then hold as observed. Labels may be missing
        (None, NaN, NA, null, masked) on some rows, and so may groups: the rates are then prediction-powered,
        those that the probabilities predict over all rows plus their mean error on the rows that were seen.
    groups : dict or frame, optional
        the true groups, {name: one value per row}, of attributes that the evidence knows only as
        probabilities: rules that refer to them then hold as observed.
    calibrate : None, "auto", "none", "temperature", "vector", "isotonic" or "dirichlet"
        fit a calibration of the probabilities on the observed labels and groups, and solve with calibrated
        probabilities; it becomes a part of the policy, which applies it to new rows by itself. "auto" takes
        the method with the least cross-validated log loss, or none.
    seen_weights : array of shape (n_rows,), optional
        where labels or groups are missing, 1 / P(seen | x) of the rows that show them. By default these are
        a random sample of all rows.
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
    held_out : Evidence, HeldOut or Scan, optional
        rows that were held out; `HeldOut(evidence, labels, groups)` where rules refer to labels or to
        groups that are known only as probabilities.
    lottery : bool
        False for decisions without chance: each row gets the action of largest score, of equal ones the
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
        when rules are missed without chance, as rows have the same scores.

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
    surveyed = None
    if not isinstance(lottery, bool):
        raise OptionError(f"lottery must be True or False, not {lottery!r}")
    if isinstance(evidence, Scan):
        if not lottery:
            raise OptionError(
                "decisions without chance (lottery=False) need all rows in memory", Remedy("read_all_rows")
            )
        _refuse_columns(labels=labels, groups=groups, seen_weights=seen_weights, calibrate=calibrate)
        if isinstance(evidence, DatabaseScan):
            _refuse_rows(margin, guarantee, solver)
        if not isinstance(as_solver(solver), FullBatch):
            raise OptionError(
                f"solver={solver!r} needs all rows in memory: leave it out, or have them all there",
                Remedy("read_all_rows"),
            )
        surveyed = evidence.survey(problem)
        evidence = surveyed.evidence
    _check_rows(evidence, labels, groups, seen_weights)
    evidence.check_group_sizes(problem.compared_attributes)
    check_positive(tol, "tol")
    if margin != "auto":
        check_margin(margin)
    certifying = _check_guarantee(guarantee, confidence, held_out, margin)
    calibration = fit_calibration(evidence, labels, groups, calibrate, problem.attributes, seen_weights)
    if calibration is not None:
        evidence = calibration.apply(evidence)
        certifying = calibrate_held_out(calibration, certifying)
    if seen_weights is not None and labels is None and groups is None:
        raise OptionError("seen_weights= has no effect without labels= or groups=. Leave it out")
    observed = None if surveyed is None else surveyed.observed
    if labels is not None or groups is not None:
        observed = observe(evidence, labels, groups, seen_weights)
    flow = _Flow(
        evidence=evidence,
        surveyed=surveyed,
        observed=observed,
        solver=as_solver(solver),
        beta=beta,
        tol=tol,
        margin=margin,
        certifying=certifying,
        confidence=confidence,
        lottery=lottery,
        rng=None if rng is None else np.random.default_rng(rng),
        callback=callback,
    )
    if surveyed is not None:
        _refuse_elsewhere(problem)
    if needs_linearization(problem):
        warm = WarmSolver(evidence, FullBatch(), beta, tol)
        policy = solve_linearized(problem, warm, flow.solve, observed)
    else:
        policy = flow.solve_worst(problem) if problem.of_worst_group else flow.solve(problem)
    warn_of_alike_actions(policy, evidence)
    return _add_source(_add_calibration(policy, calibration), surveyed)


@dataclass(frozen=True)
class _Flow:
    """How problems on some rows become policies."""

    evidence: Evidence
    surveyed: SurveyedRows | SurveyedTable | None
    observed: ObservedRows | None
    solver: Solver
    beta: float | Literal["auto", "paper"]
    tol: float
    margin: float | Literal["auto"]
    certifying: HeldOut | None
    confidence: float
    lottery: bool
    rng: np.random.Generator | None
    callback: Callback | None

    def solve(self, problem: Problem) -> Policy:
        """With a linear objective."""
        return self._conclude(problem, *self._make_dual(problem))

    def solve_worst(self, problem: Problem) -> Policy:
        """With the rate of the worst group: by weights of groups, for which a linear objective has the same
        optimum."""
        search = GroupSearch(problem, self.evidence)
        dual, _ = self._make_dual(search.weigh(), SHARPER, stated=problem.minimize)
        found = self._weigh_groups(search, dual)
        linear, dual = search.apply(dual, found.weights)
        policy = self._conclude(linear, dual, found.multipliers if dual.n_rules else None)
        return add_groups(policy, search, found, self._outcome)

    def _weigh_groups(self, search: GroupSearch, dual: Dual) -> GroupWeights:
        """With which a linear objective has the optimum of the worst group, as observed where that can be.
        `dual` is that of equal weights, which stay if the rules conflict."""
        margin = 0.0 if self.certifying else self.margin

        def fit(problem: Problem, anchored: Dual) -> Floats | None:
            found = self._correct(problem, anchored, anchored.n_rules - dual.n_rules).fit(margin).solution
            return None if found.status is Status.MISSED else found.multipliers

        found = search.find(dual, self.tol)
        if found is None:
            return GroupWeights(search.equal_weights, np.zeros(dual.n_rules))
        if self.observed is None and not margin:
            return found
        begin = [found, search.find_observed(dual, fit, found)]
        trials = [self._try_weights(search, dual, one.weights) for one in begin if one is not None]
        best = min(trials, key=lambda trial: trial.rank)
        return search.improve(dual, best, lambda weights: self._try_weights(search, dual, weights)).found

    def _try_weights(self, search: GroupSearch, dual: Dual, weights: Mapping[Conditions, float]) -> Trial:
        """The groups' rates as observed, with these weights."""
        problem, weighed = search.apply(dual, weights)
        solution = Solution(np.zeros(0), Status.CONVERGED, 0.0, 0.0, 0)
        if weighed.n_rules:
            corrected = self._correct(problem, weighed).fit(0.0 if self.certifying else self.margin)
            solution, weighed = corrected.solution, corrected.dual
        chances = predict_actions(weighed, solution.multipliers, self.evidence)
        rates = compute_group_rates(search.objective, self._outcome, chances, weighed.form.action_space)
        found = GroupWeights(dict(weights), solution.multipliers)
        return Trial(
            found, np.array([rates[group] for group in search.groups]), solution.status is Status.MISSED
        )

    @property
    def _outcome(self) -> ObservedRows:
        """The rows as they turned out, as far as that is known."""
        return observe(self.evidence, None, None) if self.observed is None else self.observed

    def _make_dual(
        self, problem: Problem, sharpness: float = 1.0, stated: Objective | None = None
    ) -> tuple[Dual, Floats | None]:
        """And multipliers to begin with, if there are any; an automatic beta is so much larger. `stated` is
        the objective in the words of a caller."""
        form = compile_problem(problem, self.evidence, features=() if self.lottery else (CONSTANT,))
        check_options_cost(stated or problem.minimize, form, self.evidence)
        dual, near = make_dual(form, self.evidence, self.surveyed, self.beta)
        if self.certifying and not dual.n_rules:
            raise OptionError("there are no rules to certify; leave out guarantee and held_out")
        beta = resolve_beta(self.beta, dual.n_rows, lambda: sharpness * self.solver.auto_beta(dual))
        return dual.with_beta(beta), near

    def _conclude(self, problem: Problem, dual: Dual, begin: Floats | None) -> Policy:
        if dual.n_rules and (self.observed is not None or self.margin or self.certifying):
            finish, correction = _keep if self.lottery else harden, self._correct(problem, dual)
            return _solve_as_observed(correction, self.margin, self.certifying, self.confidence, finish)
        rows, trusted = (problem, self.evidence, dual), isinstance(self.solver, FullBatch)
        solution = _solve_as_predicted(*rows, self.run, self.tol, begin, trusted=trusted)
        if self.lottery:
            return make_policy(problem, dual, solution)
        return make_hard_policy(*rows, solution, self.tol)

    def _correct(self, problem: Problem, dual: Dual, spared: int = 0) -> Correction:
        full_batch = isinstance(self.solver, FullBatch)
        return Correction.prepare(
            problem,
            self.evidence,
            dual,
            self._outcome,
            tol=self.tol,
            rng=self.rng,
            callback=self.callback,
            soften=full_batch and self.beta == "auto",
            run=self.run,
            polish=not full_batch,
            spared=spared,
        )

    def run(self, dual: Dual, begin: Floats | None = None, tol: float | None = None) -> Solution:
        precision = self.tol if tol is None else tol
        return self.solver(dual, tol=precision, start=begin, rng=self.rng, callback=self.callback)


def _refuse_elsewhere(problem: Problem) -> None:
    """What takes many passes over the rows."""
    if problem.of_worst_group or needs_linearization(problem):
        linear = problem.minimize.is_linear and not problem.of_worst_group
        rule = next(filter(compares_quotients, problem.rules), None)
        what = str(rule) if linear else f"minimize={problem.minimize}"
        raise OptionError(
            f"{what} needs all rows in memory, over which it takes many passes", Remedy("read_all_rows")
        )


def _refuse_columns(**options: Any) -> None:
    """What the columns of scanned rows tell, or what needs rows in memory."""
    if options.pop("calibrate") not in (None, "none"):
        raise OptionError(
            "calibrate= needs rows in memory: calibrate the probabilities before they are written, or solve "
            "with Evidence of a sample of the rows"
        )
    for name, value in options.items():
        if value is not None:
            raise OptionError(
                f"{name}= goes with Evidence; of scanned rows, state the columns: "
                "Columns(..., label=..., true_groups={...})"
            )


def _refuse_rows(margin: Any, guarantee: Any, solver: Any) -> None:
    """What sums over the rows of a database do not tell."""
    if margin:
        raise OptionError(f"margin= needs the rows themselves: leave it out, or {PULL}")
    if guarantee is not None:
        raise OptionError(f"guarantee= needs the rows themselves: leave it out, or {PULL}")
    if not (isinstance(solver, FullBatch) or solver in ("auto", "full_batch")):
        raise OptionError(f"solver={solver!r} needs the rows themselves: use 'auto', or {PULL}")


def _check_rows(evidence: Any, labels: Any, groups: Any, seen_weights: Any) -> None:
    """Also where none of it is used."""
    index = as_evidence(evidence).index
    check_alignment({"labels": labels, "groups": groups, "seen_weights": seen_weights}, index)


def _add_calibration(policy: Policy, calibration: Calibration | None) -> Policy:
    return policy if calibration is None else replace(policy, calibration=calibration)


def _add_source(policy: Policy, surveyed: SurveyedRows | SurveyedTable | None) -> Policy:
    """Whoever finds the policy is told why audits do not recognise its rows."""
    if not isinstance(surveyed, SurveyedTable):
        return policy
    return replace(policy, card=replace(policy.card, source=surveyed.describe()))


def _solve_as_observed(
    correction: Correction,
    margin: float | Literal["auto"],
    certifying: HeldOut | None,
    confidence: float,
    finish: Finish,
) -> Policy:
    if not (correction.affected.any() or margin or certifying):
        parts = correction.problem, correction.evidence, correction.dual
        solution = _solve_as_predicted(*parts, correction.run, correction.tol, trusted=not correction.polish)
        return make_corrected_policy(correction, finish(correction, correction.describe(solution)))
    found = correction.fit(0.0 if certifying else margin)
    if found.solution.status is Status.MISSED and not certifying:
        ratios = RatioRules.find(correction)
        found = found if ratios is None else ratios.hold_as_observed(correction, margin)
    if found.solution.status is Status.MISSED:
        _raise_if_impossible(correction, found)
    if certifying:
        return certify(correction, found, certifying, confidence, finish)
    return make_corrected_policy(correction, finish(correction, found))


def _keep(correction: Correction, found: CorrectedSolution) -> CorrectedSolution:
    """Randomised, as it was found."""
    return found


def _solve_as_predicted(
    problem: Problem,
    evidence: Evidence,
    dual: Dual,
    run: Resolve,
    tol: float,
    begin: Floats | None = None,
    *,
    trusted: bool,
) -> Solution:
    """The solver's answer; an error where the rules conflict, a warning where it is not good enough. Whether
    the rules hold is measured, unless a solver that says so is trusted."""
    solution = _sharpen(dual, run(dual, begin), run, tol)
    if solution.status in (Status.INFEASIBLE, Status.MAX_STEPS, Status.STALLED):
        _raise_if_conflicting(problem, evidence, dual, solution, tol)
    if trusted and solution.status is Status.CONVERGED:  # its gradient mapping is within the tolerance
        return solution
    converged = solution.status is Status.CONVERGED
    if not converged or dual.value_and_gradient(solution.multipliers)[1].min(initial=0.0) < -tol:
        excesses = measure_excesses(dual, solution.multipliers)
        warn_of_missed_rules(dual.form, solution, excesses, tol)
    return solution


def _sharpen(dual: Dual, solution: Solution, run: Resolve, tol: float) -> Solution:
    """So precise that quotients hold to the tolerance, not just what they are multiplied out to."""
    wholes = find_wholes(dual, solution)
    least = float(wholes[wholes > _RAREST].min(initial=1.0))
    if least >= 1 or solution.status is not Status.CONVERGED:
        return solution
    sharper = run(dual, solution.multipliers, tol * least)
    return sharper if sharper.status is Status.CONVERGED else solution


def _raise_if_impossible(correction: Correction, found: CorrectedSolution) -> None:
    """Where no policy satisfies the rules as observed, or even as predicted."""
    problem, evidence = correction.problem, correction.evidence
    if correction.dual.source is None:  # the proof takes all rows at once
        diagnosis = examine(merge_rows(correction), problem, evidence)
        if not diagnosis.feasible:
            conflict = InfeasibleRulesError(diagnosis)
            few = "" if correction.exact.all() else "; rules that few rows show count as predicted"
            conflict.add_note(f"These are the observed rates of the fitted rows{few}.")
            raise conflict
    dual, begin = correction.dual.with_beta(found.dual.beta), correction.begin
    soft = dual.with_beta(begin.beta) if begin.beta else dual  # rules hold for soft policies or for none
    solution = correction.run(soft, begin.multipliers)
    if solution.status in (Status.INFEASIBLE, Status.MAX_STEPS, Status.STALLED):
        note = "These are the rates that the probabilities predict; no shift of them helps."
        _raise_if_conflicting(problem, evidence, dual, solution, correction.tol, note)


def _check_guarantee(guarantee: Any, confidence: Any, held_out: Any, margin: Any) -> HeldOut | None:
    """The rows that must certify the policy, if it is to be certified."""
    check_fraction(confidence, "confidence")
    if guarantee not in (None, "high_probability"):
        raise OptionError(f"guarantee must be None or 'high_probability', not {guarantee!r}")
    if (guarantee is None) != (held_out is None):
        raise OptionError(
            "guarantee='high_probability' and held_out= go together: pass evidence of rows that were held out"
        )
    if guarantee is None:
        if confidence != _CONFIDENCE:
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


def _raise_if_conflicting(
    problem: Problem, evidence: Evidence, dual: Dual, solution: Solution, tol: float, note: str = ""
) -> None:
    """The diagnosis has the last word: a conflict that is no larger than rounding errors is none."""
    missed = -float(dual.value_and_gradient(solution.multipliers)[1].min(initial=0.0)) > tol
    if not (missed or solution.status is Status.INFEASIBLE):
        return
    diagnosis = examine(dual, problem, evidence, multipliers=solution.multipliers)
    if diagnosis.feasible:
        return
    conflict = InfeasibleRulesError(diagnosis)
    if note:
        conflict.add_note(note)
    raise conflict
