"""The list of reductions by which a problem on some rows becomes a policy.

Each reduction declares to which tasks it applies. It passes a simpler task on to the reductions after it, and
turns the resulting policy into a policy of its own task. The last reduction solves a linear problem for
predicted rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from bylaw._base import Floats
from bylaw.calibration import Calibrate, Calibration
from bylaw.engines import SurveyedRows, SurveyedTable
from bylaw.errors import InfeasibleRulesError, OptionError, Remedy, UncertifiedError
from bylaw.language import LABEL, Objective, Problem
from bylaw.policy import Policy
from bylaw.program import (
    Callback,
    Dual,
    LinearForm,
    Solution,
    Status,
    UnseenRows,
    check_options_cost,
    compile_problem,
    make_blocks,
    measure_excesses,
)
from bylaw.reductions._certify import certify
from bylaw.reductions._conflicts import (
    Diagnosis,
    diagnose_solution,
    examine,
    find_conflict,
    list_small_cells,
    measure_slack,
)
from bylaw.reductions._deterministic import CONSTANT, harden, make_hard_policy
from bylaw.reductions._linearize import compares_quotients, solve_linearized
from bylaw.reductions._objectives import WarmSolver
from bylaw.reductions._observe import RAREST, CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import (
    find_wholes,
    list_missed,
    make_corrected_policy,
    make_policy,
    sum_hashes,
)
from bylaw.reductions._warnings import (
    warn_of_alike_actions,
    warn_of_observed_rates,
    warn_of_small_chance,
    warn_of_violations,
)
from bylaw.reductions._worst_group import GroupSearch, add_groups
from bylaw.rows import Evidence, ObservedRows, observe
from bylaw.solvers import FullBatch, ScreenedRows, Solver, resolve_beta, screen_rows, take_newton_step


@dataclass(frozen=True)
class Task:
    """A problem to fit and, after compilation, its dual and the multipliers to start from (if any)."""

    problem: Problem
    dual: Dual | None = None
    begin: Floats | None = None

    @property
    def compiled(self) -> Dual:
        """The dual of the problem, for tasks that are compiled."""
        assert self.dual is not None
        return self.dual


class Reduction(Protocol):
    """A way to fit some tasks by fitting simpler tasks."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        """Return whether the task needs this reduction."""
        ...

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        """Return the policy of a task. `rest` fits a simpler task by the reductions after this one."""
        ...


class Calibrated:
    """The reduction of calibrated probabilities: it adds the calibration map to the policy."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return fitter.calibration is not None

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        return replace(rest(task), calibration=fitter.calibration)


class Linearized:
    """The reduction of nonlinear objectives and rules to a linear problem around their solution."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return not task.problem.is_linear

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        warm = WarmSolver(fitter.evidence, FullBatch(), fitter.beta, fitter.tol)
        return solve_linearized(task.problem, warm, lambda problem: rest(Task(problem)), fitter.observed)


class WorstGroup:
    """The reduction of the rate of the worst group to a linear objective.

    For some weights of the groups, the weighted mean of their rates has the same optimum.
    """

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return task.problem.of_worst_group

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        search = GroupSearch(task.problem, fitter.evidence)
        dual, found = search.find_weights(fitter)
        linear, dual = search.apply(dual, found.weights)
        policy = rest(Task(linear, dual, found.multipliers if dual.n_rules else None))
        return add_groups(policy, search, found, fitter.outcome)


class Compiled:
    """The compilation of a linear problem to its dual on the rows."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return task.dual is None

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        return rest(Task(task.problem, *fitter.make_dual(task.problem)))


class Certified:
    """The reduction for rules that hold with high probability: policies are tested on held-out rows."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return fitter.certifying is not None

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        assert fitter.certifying is not None
        correction = fitter.correct(task.problem, task.compiled)
        try:
            return certify(correction, fitter.certifying, fitter.confidence, fitter.finish)
        except UncertifiedError:
            _raise_conflict(correction, correction.plain)
            raise


class Observed:
    """The reduction for rules on observed labels or groups, or with margins."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return bool(task.compiled.n_rules) and (fitter.observed is not None or bool(fitter.margin))

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        correction = fitter.correct(task.problem, task.compiled)
        if correction.facts.affected.any() or fitter.margin:
            found = correction.fit(fitter.margin)
            _raise_conflict(correction, found)
            if fitter.margin == "auto":
                warn_of_small_chance(correction, found)
        else:  # no rule refers to what was observed
            found = correction.describe(solve_predicted(replace(task, dual=correction.dual), fitter))
        finished = fitter.finish(correction, found)
        policy = make_corrected_policy(correction, finished)
        warn_of_observed_rates(correction, finished, policy)
        return policy


class Deterministic:
    """The reduction for deterministic decisions that satisfy rules on predicted rates."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return fitter.deterministic

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        solution = solve_predicted(task, fitter)
        return make_hard_policy(task.problem, fitter.evidence, task.compiled, solution, fitter.tol)


class Predicted:
    """The last reduction: a solver fits a linear problem with rules on predicted rates."""

    def applies(self, task: Task, fitter: Fitter) -> bool:
        return True

    def fit(self, task: Task, fitter: Fitter, rest: Callable[[Task], Policy]) -> Policy:
        return make_policy(task.problem, task.compiled, solve_predicted(task, fitter))


REDUCTIONS: tuple[Reduction, ...] = (
    Calibrated(),
    Linearized(),
    WorstGroup(),
    Compiled(),
    Certified(),
    Observed(),
    Deterministic(),
    Predicted(),
)


@dataclass(frozen=True)
class Fitter:
    """Rows, and the options with which problems are fitted on these rows."""

    evidence: Evidence
    surveyed: SurveyedRows | SurveyedTable | None
    observed: ObservedRows | None
    calibrate: Calibrate
    calibration: Calibration | None
    solver: Solver
    beta: float | Literal["auto", "paper"]
    tol: float
    margin: float | Literal["auto"]
    certifying: Evidence | None
    confidence: float
    deterministic: bool
    rng: np.random.Generator | None
    callback: Callback | None

    def fit(self, problem: Problem) -> Policy:
        """Return the policy of least cost that satisfies the rules; raise if the rules conflict."""
        if self.surveyed is not None:
            _refuse_scanned_rows(problem)
        policy = self._reduce(Task(problem), REDUCTIONS)
        warn_of_alike_actions(policy, self.evidence)
        if isinstance(self.surveyed, SurveyedTable):  # audits cannot recognize its rows
            policy = replace(policy, card=replace(policy.card, source=self.surveyed.describe()))
        return policy

    def _reduce(self, task: Task, reductions: Sequence[Reduction]) -> Policy:
        """Fit a task by the first of these reductions that applies to it and the ones after it."""
        place = next(i for i, reduction in enumerate(reductions) if reduction.applies(task, self))
        return reductions[place].fit(task, self, partial(self._reduce, reductions=reductions[place + 1 :]))

    @property
    def outcome(self) -> ObservedRows:
        """The observed labels and groups of the rows, which may be empty."""
        return observe(self.evidence.without_observed()) if self.observed is None else self.observed

    def describe_options(self) -> dict[str, Any]:
        """Return the options that reports need; they are saved with the policy."""
        names = frozenset[str]() if self.observed is None else self.observed.observed
        margin = self.margin if self.margin == "auto" else float(self.margin)
        return {
            "margin": margin,
            "labels": LABEL in names,
            "groups": sorted(names - {LABEL}),
            "calibrate": self.calibrate,
        }

    def make_dual(
        self, problem: Problem, sharpness: float = 1.0, stated: Objective | None = None
    ) -> tuple[Dual, Floats | None]:
        """Compile a linear problem on the rows.

        Parameters
        ----------
        problem : Problem
        sharpness : float
            A factor of an automatic beta.
        stated : rate, optional
            The objective to name in messages; by default that of the problem.

        Returns
        -------
        The dual, and multipliers to start from or None.
        """
        form = compile_problem(problem, self.evidence, features=(CONSTANT,) if self.deterministic else ())
        check_options_cost(stated or problem.minimize, form, self.evidence)
        dual, near = make_dual(form, self.evidence, self.surveyed, self.beta)
        if self.certifying and not dual.n_rules:
            raise OptionError(
                "a problem with guarantee= must have at least one rule, got none; add rules, or leave out "
                "guarantee and held_out"
            )
        beta = resolve_beta(self.beta, dual.n_rows, lambda: sharpness * self.solver.auto_beta(dual))
        return dual.with_beta(beta), near

    def diagnose(self, problem: Problem, costs: Mapping[Any, float] | None = None) -> Diagnosis:
        """Return whether observed rates can satisfy the rules of a problem with a linear objective.

        If they cannot but no conflict is proved, the diagnosis contains the violations of the best policy.
        """
        dual, _ = self.make_dual(problem)
        correction = self.correct(problem, dual) if dual.n_rules else None
        if correction is None or not correction.facts.affected.any():
            found = examine(dual, problem, self.evidence, costs=costs)
            return replace(found, slack=measure_slack(dual)) if found.feasible else found
        fitted = correction.fit(0.0)
        healthy = Diagnosis(True, small_cells=list_small_cells(dual.form, self.evidence), observed=True)
        if fitted.solution.status is not Status.MISSED:
            return healthy
        conflict = find_conflict(correction, costs)
        return (
            replace(healthy, missed=list_missed(correction, fitted))
            if conflict is None
            else conflict.diagnosis
        )

    def correct(self, problem: Problem, dual: Dual, spared: int = 0) -> Correction:
        """Return the `Correction` of a problem, which fits it for observed rates.

        The last `spared` rules compare groups for the objective, and get no margin.
        """
        return Correction.prepare(
            problem,
            self.evidence,
            dual,
            self.outcome,
            tol=self.tol,
            rng=self.rng,
            callback=self.callback,
            run=self.run,
            polish=not isinstance(self.solver, FullBatch),
            spared=spared,
        )

    def finish(
        self, correction: Correction, found: CorrectedSolution, restate: Restate = as_stated
    ) -> CorrectedSolution:
        """Return a solution in terms of the stated rules, with deterministic decisions if required."""
        return harden(correction, found, restate) if self.deterministic else restate(found)

    def run(self, dual: Dual, begin: Floats | None = None, tol: float | None = None) -> Solution:
        """Apply the solver to a dual, starting from the multipliers `begin`."""
        precision = self.tol if tol is None else tol
        return self.solver(dual, tol=precision, start=begin, rng=self.rng, callback=self.callback)


def solve_predicted(task: Task, fitter: Fitter) -> Solution:
    """Solve a compiled problem for predicted rates; raise if the rules conflict.

    Warn if the solution violates rules by more than the tolerance. The rates of the solution are measured
    again unless the solver is `FullBatch`, which reports them itself.
    """
    dual, tol = task.compiled, fitter.tol
    solution = _sharpen(dual, fitter.run(dual, task.begin), fitter)
    if solution.status in (Status.INFEASIBLE, Status.MAX_STEPS, Status.STALLED):
        diagnosis = diagnose_solution(task.problem, fitter.evidence, dual, solution, tol)
        if diagnosis is not None:
            raise InfeasibleRulesError(diagnosis)
    converged = solution.status is Status.CONVERGED
    if converged and isinstance(fitter.solver, FullBatch):
        return solution
    if not converged or dual.value_and_gradient(solution.multipliers)[1].min(initial=0.0) < -tol:
        excesses = measure_excesses(dual, solution.multipliers)
        warn_of_violations(dual.form, solution, excesses, tol)
    return solution


def _sharpen(dual: Dual, solution: Solution, fitter: Fitter) -> Solution:
    """Solve with a smaller tolerance if the denominators of ratio rules are small.

    The solver sees a ratio rule multiplied by its denominator; the ratio itself must be within the tolerance.
    """
    wholes = find_wholes(dual, solution)
    least = float(wholes[wholes > RAREST].min(initial=1.0))
    if least >= 1 or solution.status is not Status.CONVERGED:
        return solution
    sharper = fitter.run(dual, solution.multipliers, fitter.tol * least)
    return sharper if sharper.status is Status.CONVERGED else solution


def _raise_conflict(correction: Correction, found: CorrectedSolution) -> None:
    """Raise if the rules are violated because they conflict."""
    if found.solution.status is Status.MISSED and (conflict := find_conflict(correction)):
        raise conflict


def _refuse_scanned_rows(problem: Problem) -> None:
    """Raise if a problem needs many passes over rows that are not in memory."""
    if problem.of_worst_group or not problem.is_linear:
        linear = problem.minimize.is_linear and not problem.of_worst_group
        rule = next(filter(compares_quotients, problem.rules), None)
        what = str(rule) if linear else f"minimize={problem.minimize}"
        raise OptionError(
            f"{what} must be solved with all rows in memory, because it takes many passes over them",
            Remedy("read_all_rows"),
        )


def make_dual(
    form: LinearForm, evidence: Evidence, surveyed: SurveyedRows | SurveyedTable | None, beta: float | str
) -> tuple[Dual, Floats | None]:
    """Return the dual of a compiled problem, and multipliers to start from or None.

    Out-of-memory rows are read once. That pass computes the constants of the dual. Around the optimum of a
    sample, it also keeps the rows near a decision boundary (files) or takes a first Newton step (databases).
    """
    if surveyed is None:
        return Dual(form, make_blocks(form, evidence), beta=1.0), None
    dual = surveyed.make_dual(form)
    if isinstance(dual.source, UnseenRows):
        return dual, _approach_unseen(dual, dual.source, beta)
    dual, plan = screen_rows(dual), None
    assert isinstance(dual.source, ScreenedRows)
    if dual.n_rules and surveyed.observed is None:
        near = _solve_sample(dual.sample(dual.blocks, 1.0), dual.n_rows, beta)
        plan = dual.source.plan(form.score_matrix(near[1].multipliers), near[0].beta)
    *_, sums = dual.measure_constants(sum_hashes, *([] if plan is None else [plan]))
    if plan is not None:
        dual.source.keep(plan, sums)
    return dual, None


def _solve_sample(sample: Dual, n_rows: int, beta: float | str) -> tuple[Dual, Solution]:
    """Solve a sample of `n_rows` rows; return its dual and its optimum.

    Beta is slightly smaller than that of all rows.
    """
    solver = FullBatch()
    sample = sample.with_beta(resolve_beta(beta, n_rows, lambda: solver.auto_beta(sample)) * 0.98)
    return sample, solver(sample, tol=1e-4)


def _approach_unseen(dual: Dual, source: UnseenRows, beta: float | str) -> Floats | None:
    """Measure the constants of rows in a database, and take a Newton step from the optimum of a sample.

    Return the multipliers after this step, or None if the sample has no optimum.
    """
    near = None
    if dual.n_rules:
        with source.sampling() as take:
            near = _solve_sample(dual.with_rows((), take(dual.n_rows)), dual.n_rows, beta)
    if near is None or near[1].status is not Status.CONVERGED:
        dual.measure_constants()
        return None
    about, multipliers = dual.with_beta(near[0].beta), near[1].multipliers
    (total,) = dual.measure_constants(about.make_tally_pass(multipliers, curvature=True))
    return take_newton_step(about, multipliers, total)
