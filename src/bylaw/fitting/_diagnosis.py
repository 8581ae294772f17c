"""The function `diagnose`, which checks whether rules can be satisfied together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from bylaw.engines import Scan, attach_observed
from bylaw.fitting._solve import check_problem, make_fitter
from bylaw.language import Problem, selected
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.reductions import Diagnosis, examine, measure_slack
from bylaw.rows import Evidence


def diagnose(
    problem: Problem,
    evidence: Evidence | Scan,
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    relaxation_costs: Mapping[Any, float] | None = None,
) -> Diagnosis:
    """Check whether the rules of a problem can be satisfied together on these rows.

    If they cannot, the result names the rules that conflict, the level that each of them could reach, and the
    smallest relaxation after which all rules can be satisfied.

    Parameters
    ----------
    problem : Problem
        The rules, and an objective, which has no effect on the result.
    evidence : Evidence or Scan
        The rows. For scanned rows, predicted rates are examined.
    labels, groups, propensity_weights : optional
        As in `solve`. With them, observed rates are examined.
    relaxation_costs : dict, optional
        {rule or family, or its text: a positive number}, one by default. Loosening a rule of cost 2 by some
        amount counts as much as loosening a rule of cost 1 by twice that amount.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, selected
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> diagnosis = diagnose(Problem(error(), [selected(0) <= 0.3, selected(1) <= 0.6]), evidence)
    >>> diagnosis.feasible, diagnosis.conflict
    (False, ('selected(0) <= 0.3', 'selected(1) <= 0.6'))
    >>> round(sum(diagnosis.relaxation.values()), 4)
    0.1
    """
    check_problem(problem)
    given = attach_observed(evidence, labels=labels, groups=groups, propensity_weights=propensity_weights)
    with given.hold_rows() if isinstance(given, Scan) else nullcontext():
        surveyed = given.survey(problem) if isinstance(given, Scan) else None
        rows: Any = given if surveyed is None else surveyed.evidence
        # Only the rules are examined: any linear objective will do.
        linear = problem.minimize.is_linear and not problem.of_worst_group
        stated = problem if linear else problem.with_objective(selected(rows.classes[0]))
        if surveyed is None and rows.has_observed:
            return make_fitter(stated, rows).diagnose(stated, relaxation_costs)
        form = compile_problem(stated, rows)
        dual = Dual(form, make_blocks(form, rows), beta=1.0) if surveyed is None else surveyed.make_dual(form)
        found = examine(dual, stated, rows, costs=relaxation_costs)
        return replace(found, slack=measure_slack(dual)) if found.feasible else found
