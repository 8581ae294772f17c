"""The function `refit`, which fits the rules of a policy on new rows and changes few decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bylaw._base import CONFIDENCE, check_fraction
from bylaw.errors import OptionError
from bylaw.fitting._solve import solve
from bylaw.language import CHANGED, Problem, Rule, Statement, custom
from bylaw.policy import Policy
from bylaw.rows import Evidence, as_evidence, observe
from bylaw.testing import DecidedRows, Untestable, add_changes


def refit(
    policy: Policy,
    evidence: Evidence,
    *,
    churn: float | None = None,
    ids: Any = None,
    rules: Sequence[Statement | str] | Statement | str | None = None,
    labels: Any = None,
    groups: Any = None,
    held_out: Evidence | None = None,
    held_out_ids: Any = None,
    **options: Any,
) -> Policy:
    """Fit the rules of a policy on new rows, and change few of its decisions.

    If fitting the rules changes at most a share `churn` of the decisions, the result is that fit. Otherwise
    the result satisfies the additional rule `custom("changed") <= churn`. Such a policy needs the decisions
    of the earlier policy on the rows that it decides: pass it `earlier.mark_changes(evidence)`, with ids if
    they were given here.

    Parameters
    ----------
    policy : Policy
        The earlier policy.
    evidence : Evidence
        The new rows.
    churn : float, optional
        The largest share of rows whose decision may change; by default any share.
    ids : array of shape (n_rows,), optional
        The ids with which the earlier policy drew its decisions on these rows. By default, its most likely
        decisions are compared.
    rules : list of rules, families or texts, optional
        The new rules; by default those of the earlier policy.
    labels : array of shape (n_rows,), optional
        The true labels, as in `solve`.
    groups : dict or frame, optional
        The true groups, as in `solve`.
    held_out : Evidence, optional
        Held-out rows on which all rules, including the one on changed decisions, are certified.
    held_out_ids : array, optional
        The ids of the held-out rows; required with `held_out` if `ids` are given.
    **options
        Further arguments of `solve`, such as `margin`. The new policy keeps the calibration of the earlier
        one unless `calibrate` is given, and deterministic decisions remain deterministic.

    Returns
    -------
    Policy

    Raises
    ------
    InfeasibleRulesError
        If no policy satisfies the rules with so few changes.
    UncertifiedError
        If the held-out rows are not enough to certify the policy.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, refit, rejected, solve
    >>> chance = np.linspace(0.01, 0.99, 400)
    >>> rows = Evidence(np.column_stack([1 - chance, chance]))
    >>> earlier = solve(Problem(error(), [rejected() <= 0.2]), rows)
    >>> chance = np.linspace(0.2, 0.8, 400)  # the model is less sure than it was
    >>> new = Evidence(np.column_stack([1 - chance, chance]))
    >>> round(earlier.expected(rejected(), new), 2)
    0.33
    >>> later = refit(earlier, new, churn=0.15)
    >>> bool(later.expected(rejected(), new) <= 0.2 + 1e-6)
    True
    """
    if not isinstance(policy, Policy):
        raise OptionError(
            f"policy must be a Policy, got {type(policy).__name__}; pass the policy first, then the evidence"
        )
    rows = as_evidence(evidence).with_observed(labels=labels, true_groups=groups)
    problem = policy.problem if rules is None else Problem(policy.problem.minimize, rules)
    problem = problem.with_rules([rule for rule in problem.rules if not counts_changes(rule)])
    options = {"deterministic": policy.deterministic, **options}
    if held_out is not None:
        as_evidence(held_out)
        options["guarantee"] = "high_probability"
    if held_out is not None and (ids is None) != (held_out_ids is None):
        raise OptionError(
            "ids= and held_out_ids= must be passed together, so that changes are counted in the same way on "
            "both, got only one of them"
        )
    solving = _Refitting(policy, options, held_out, held_out_ids)
    if churn is None:
        return solving.solve(problem, rows)
    check_fraction(churn, "churn", 0.05)
    marked = policy.mark_changes(rows, ids=ids)
    found = solving.solve(problem, rows)
    if measure_changes(found, marked) <= churn and solving.certifies(found, churn):
        return found
    counted = problem.with_rules([*problem.rules, custom(CHANGED) <= churn])
    found = solving.solve(counted, marked, marks=True)
    previous = {"policy": policy.digest, "by_id": ids is not None}
    return replace(found, card=replace(found.card, previous=previous))


def measure_changes(policy: Policy, marked: Evidence) -> float:
    """Return the share of decisions that differ from those of the earlier policy, marked in the rows."""
    changed = (policy.probabilities(marked) * marked.costs[CHANGED]).sum(axis=1)
    return float(np.average(changed, weights=marked.weights))


class _Refitting:
    """The earlier policy, with the options and held-out rows of a refit."""

    def __init__(
        self, earlier: Policy, options: dict[str, Any], held_out: Evidence | None, held_out_ids: Any
    ) -> None:
        self.earlier, self.options = earlier, options
        self.held_out, self.held_out_ids = held_out, held_out_ids
        self.calibration = None if "calibrate" in options else earlier.calibration

    def solve(self, problem: Problem, rows: Evidence, *, marks: bool = False) -> Policy:
        held_out = self._mark(self.held_out) if marks else self.held_out
        if self.calibration is None:
            return solve(problem, rows, held_out=held_out, **{"calibrate": "none", **self.options})
        held_out = None if held_out is None else self.calibration.apply(held_out)
        found = solve(problem, self.calibration.apply(rows), held_out=held_out, **self.options)
        return replace(found, calibration=self.calibration)

    def _mark(self, held_out: Evidence | None) -> Evidence | None:
        if held_out is None:
            return None
        marked = self.earlier.mark_changes(held_out, ids=self.held_out_ids)
        limits, outcomes = add_changes(marked.costs, held_out.limits, held_out.outcomes)
        return marked.with_columns(limits=limits, outcomes=outcomes)

    def certifies(self, policy: Policy, churn: float) -> bool:
        """Return whether held-out rows confirm that few decisions change; True without such rows.

        The error probability of the test is that of the certificate.
        """
        held_out = self._mark(self.held_out)
        if held_out is None:
            return True
        rows = policy.feature_map.admit(policy.calibrate(held_out))
        decided = DecidedRows(
            observe(rows),
            policy.probabilities(rows),
            policy.action_space,
            labelled=False,
            limits=held_out.limits,
            largest_weight=held_out.largest_weight,
        )
        test = decided.test(custom(CHANGED) <= churn)
        level = 1 - self.options.get("confidence", CONFIDENCE)
        return not isinstance(test, Untestable) and test.p_value(level) <= level


def counts_changes(rule: Statement) -> bool:
    """Return whether a rule bounds the share of decisions that an earlier refit may change."""
    return isinstance(rule, Rule) and any(atom.reads("cost") == CHANGED for atom in rule.atoms())
