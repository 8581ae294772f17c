"""The dual of a problem, wherever its rows are; of rows elsewhere, with what a sample of them leads to."""

from __future__ import annotations

from bylaw._base.typing import Floats
from bylaw.engines.databases import SurveyedTable
from bylaw.engines.scan import SurveyedRows
from bylaw.program.blocks import make_blocks
from bylaw.program.dual import Dual, UnseenRows
from bylaw.program.linear_form import LinearForm
from bylaw.program.solution import Solution, Status
from bylaw.reductions._policies import sum_hashes
from bylaw.rows.evidence import Evidence
from bylaw.solvers.base import resolve_beta
from bylaw.solvers.full_batch import FullBatch, take_newton_step
from bylaw.solvers.screening import ScreenedRows, screen_rows

_ABOUT = 1e-4  # precision of the optimum of a sample
_SOFTER = 0.98  # of its beta: that of all rows is no smaller


def make_dual(
    form: LinearForm, evidence: Evidence, surveyed: SurveyedRows | SurveyedTable | None, beta: float | str
) -> tuple[Dual, Floats | None]:
    """Of rows in memory; or of rows elsewhere, with their constants, and with what a sample of them leads to:
    the rows near its optimum, or multipliers to begin with. One walk tells both."""
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
    """A sample of so many rows, with about their beta, and its optimum."""
    solver = FullBatch()
    sample = sample.with_beta(resolve_beta(beta, n_rows, lambda: solver.auto_beta(sample)) * _SOFTER)
    return sample, solver(sample, tol=_ABOUT)


def _approach_unseen(dual: Dual, source: UnseenRows, beta: float | str) -> Floats | None:
    """Measures the constants of rows that never leave where they are, and all that a Newton step takes from
    the optimum of a sample; returns where this leads."""
    near = None
    if dual.n_rules:
        with source.sampling() as take:
            near = _solve_sample(dual.with_sample(take(dual.n_rows)), dual.n_rows, beta)
    if near is None or near[1].status is not Status.CONVERGED:
        dual.measure_constants()
        return None
    about, multipliers = dual.with_beta(near[0].beta), near[1].multipliers
    (total,) = dual.measure_constants(about.make_tally_pass(multipliers, curvature=True, rules_alone=True))
    return take_newton_step(about, multipliers, total)
