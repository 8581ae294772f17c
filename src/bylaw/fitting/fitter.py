"""How problems on some rows become policies: one fitter serves many problems on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bylaw._base.typing import Floats
from bylaw.backends.databases import SurveyedTable
from bylaw.backends.scan import SurveyedRows
from bylaw.calibration.calibration import Calibrate, Calibration
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import HeldOut, ObservedRows, observe
from bylaw.errors import InfeasibleRulesError, OptionError, Remedy, UncertifiedError
from bylaw.fitting.alike_actions import warn_of_alike_actions
from bylaw.fitting.bias_correction import (
    RAREST,
    CorrectedSolution,
    Correction,
    Resolve,
    Restate,
    as_stated,
)
from bylaw.fitting.certification import Finish, certify
from bylaw.fitting.conflicts import (
    Diagnosis,
    examine,
    list_small_cells,
    measure_slack,
    merge_rows,
    merge_slopes,
)
from bylaw.fitting.fitted_policy import (
    find_wholes,
    list_missed,
    make_corrected_policy,
    make_policy,
    predict_actions,
    warn_of_missed_rules,
    warn_of_small_chance,
)
from bylaw.fitting.hard_decisions import CONSTANT, harden, make_hard_policy
from bylaw.fitting.linearization import compares_quotients, needs_linearization, solve_linearized
from bylaw.fitting.objectives import WarmSolver
from bylaw.fitting.row_sources import make_dual
from bylaw.fitting.worst_group import SHARPER, GroupSearch, GroupWeights, Trial, add_groups
from bylaw.formulation.dual import Dual
from bylaw.formulation.free_options import check_options_cost
from bylaw.formulation.linear_form import compile_problem
from bylaw.formulation.row_rates import compute_group_rates
from bylaw.formulation.rule_excesses import measure_excesses
from bylaw.formulation.solution import Solution, Status
from bylaw.language.expressions import LABEL, Conditions
from bylaw.language.problem import Problem
from bylaw.language.worst import Objective
from bylaw.policy.policy import Policy
from bylaw.solvers.base import Callback, Solver, resolve_beta
from bylaw.solvers.full_batch import FullBatch


@dataclass(frozen=True)
class Fitter:
    """How problems on some rows become policies."""

    evidence: Evidence
    surveyed: SurveyedRows | SurveyedTable | None
    observed: ObservedRows | None
    calibrate: Calibrate
    calibration: Calibration | None
    solver: Solver
    beta: float | Literal["auto", "paper"]
    tol: float
    margin: float | Literal["auto"]
    certifying: HeldOut | None
    confidence: float
    lottery: bool
    rng: np.random.Generator | None
    callback: Callback | None

    def fit(self, problem: Problem) -> Policy:
        """The policy of least cost; an error where the rules conflict."""
        if self.surveyed is not None:
            _refuse_elsewhere(problem)
        if needs_linearization(problem):
            warm = WarmSolver(self.evidence, FullBatch(), self.beta, self.tol)
            policy = solve_linearized(problem, warm, self._fit_linear, self.observed)
        else:
            policy = self._fit_worst(problem) if problem.of_worst_group else self._fit_linear(problem)
        warn_of_alike_actions(policy, self.evidence)
        return _add_source(_add_calibration(policy, self.calibration), self.surveyed)

    def _fit_linear(self, problem: Problem) -> Policy:
        """With a linear objective."""
        return self._conclude(problem, *self._make_dual(problem))

    def _fit_worst(self, problem: Problem) -> Policy:
        """With the rate of the worst group: by weights of groups, for which a linear objective has the same
        optimum."""
        search = GroupSearch(problem, self.evidence)
        dual, _ = self._make_dual(search.weigh(), SHARPER, stated=problem.minimize)
        found = self._weigh_groups(search, dual)
        linear, dual = search.apply(dual, found.weights)
        policy = self._conclude(linear, dual, found.multipliers if dual.n_rules else None)
        return add_groups(policy, search, found, self.outcome)

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
        rates = compute_group_rates(search.objective, self.outcome, chances, weighed.form.action_space)
        found = GroupWeights(dict(weights), solution.multipliers)
        return Trial(
            found, np.array([rates[group] for group in search.groups]), solution.status is Status.MISSED
        )

    @property
    def outcome(self) -> ObservedRows:
        """The rows as they turned out, as far as that is known."""
        return observe(self.evidence, None, None) if self.observed is None else self.observed

    def describe_options(self) -> dict[str, Any]:
        """Return what a later report must know of how policies were chosen; it is saved with them."""
        names = frozenset[str]() if self.observed is None else self.observed.observed
        margin = self.margin if self.margin == "auto" else float(self.margin)
        return {
            "margin": margin,
            "labels": LABEL in names,
            "groups": sorted(names - {LABEL}),
            "calibrate": self.calibrate,
        }

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

    def diagnose(self, problem: Problem, costs: Mapping[Any, float] | None = None) -> Diagnosis:
        """Whether the rules can hold as observed; of a problem with a linear objective. Where that is not
        known, by how much the policy that `fit` would return misses them."""
        dual, _ = self._make_dual(problem)
        correction = self._correct(problem, dual) if dual.n_rules else None
        if correction is None or not correction.affected.any():
            found = examine(dual, problem, self.evidence, costs=costs)
            return replace(found, slack=measure_slack(dual)) if found.feasible else found
        fitted = correction.fit(0.0)
        healthy = Diagnosis(True, small_cells=list_small_cells(dual.form, self.evidence), observed=True)
        if fitted.solution.status is not Status.MISSED:
            return healthy
        conflict = _find_conflict(correction, fitted, costs)
        return (
            replace(healthy, missed=list_missed(correction, fitted))
            if conflict is None
            else conflict.diagnosis
        )

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
            self.outcome,
            tol=self.tol,
            rng=self.rng,
            callback=self.callback,
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
    if certifying:
        try:
            return certify(correction, certifying, confidence, finish)
        except UncertifiedError:
            _raise_conflict(correction, correction.plain)
            raise
    found = correction.fit(margin)
    _raise_conflict(correction, found)
    if margin == "auto":
        warn_of_small_chance(correction, found)
    return make_corrected_policy(correction, finish(correction, found))


def _raise_conflict(correction: Correction, found: CorrectedSolution) -> None:
    if found.solution.status is Status.MISSED and (conflict := _find_conflict(correction, found)):
        raise conflict


def _keep(
    correction: Correction, found: CorrectedSolution, restate: Restate = as_stated
) -> CorrectedSolution:
    """Return the randomized solution, stated in terms of the rules."""
    return restate(found)


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
        diagnosis = _diagnose(problem, evidence, dual, solution, tol)
        if diagnosis is not None:
            raise InfeasibleRulesError(diagnosis)
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
    least = float(wholes[wholes > RAREST].min(initial=1.0))
    if least >= 1 or solution.status is not Status.CONVERGED:
        return solution
    sharper = run(dual, solution.multipliers, tol * least)
    return sharper if sharper.status is Status.CONVERGED else solution


def _find_conflict(
    correction: Correction, found: CorrectedSolution, costs: Mapping[Any, float] | None = None
) -> InfeasibleRulesError | None:
    """Where no policy satisfies the rules as observed, or even as predicted."""
    problem, evidence = correction.problem, correction.evidence
    if correction.dual.source is None:  # the proof takes all rows at once
        slopes = merge_slopes(correction)
        diagnosis = examine(merge_rows(correction), problem, evidence, costs=costs, slopes=slopes)
        if not diagnosis.feasible:
            few = "" if correction.exact.all() else "; rules that few rows show count as predicted"
            remark = f"These are the observed rates of the fitted rows{few}."
            return InfeasibleRulesError(replace(diagnosis, observed=True, remark=remark))
    dual = correction.dual
    solution = correction.run(dual, correction.begin)
    if solution.status not in (Status.INFEASIBLE, Status.MAX_STEPS, Status.STALLED):
        return None
    diagnosis = _diagnose(problem, evidence, dual, solution, correction.tol, costs)
    remark = (
        "These are the rates that the probabilities predict, and no shift of them helps; as observed, a "
        "somewhat smaller or larger change may do."
    )
    return None if diagnosis is None else InfeasibleRulesError(replace(diagnosis, remark=remark))


def _diagnose(
    problem: Problem,
    evidence: Evidence,
    dual: Dual,
    solution: Solution,
    tol: float,
    costs: Mapping[Any, float] | None = None,
) -> Diagnosis | None:
    """Of a solution that may prove a conflict. The diagnosis has the last word: a conflict that is no larger
    than rounding errors is none."""
    missed = -float(dual.value_and_gradient(solution.multipliers)[1].min(initial=0.0)) > tol
    if not (missed or solution.status is Status.INFEASIBLE):
        return None
    diagnosis = examine(dual, problem, evidence, costs=costs, multipliers=solution.multipliers)
    return None if diagnosis.feasible else diagnosis
