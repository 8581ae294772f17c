"""Costs of rules: a rate with your model, without rules, and with rules, in memory or in a database."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bylaw._base import Floats
from bylaw.engines import SurveyedRows
from bylaw.language import CHANGED, LABEL, ActionSpace, Objective, Rate, Worst
from bylaw.policy import Policy
from bylaw.program import (
    combine_means,
    compute_row_rates,
    decide_as_model,
    decide_without_rules,
    has_rows,
    list_group_rates,
)
from bylaw.rows import KNOWN, Evidence, Limits, ObservedRows, RowData, name_cost


class Costs(NamedTuple):
    """A rate for three kinds of decisions: your model's, the best ones without rules, and the policy's."""

    model: float  # the rate with your model
    without_rules: float  # nan if unknown
    policy: float  # the rate with rules

    def describe(self, rules: bool, write: Callable[[float], str] = "{:.4g}".format) -> str:
        """Return a text with the three numbers and their names; `rules` is true if the policy has rules."""
        model, without, policy = ("not known" if math.isnan(cost) else write(cost) for cost in self)
        if not rules:
            return f"{model} with your model, {policy} with this policy, which has no rules"
        unruled = "" if math.isnan(self.without_rules) else f"{without} without rules, "
        return f"{model} with your model, {unruled}{policy} with rules"


def measure_referred(probabilities: Floats, space: ActionSpace, rows: RowData) -> float:
    """Return the weighted share of decisions that are rejections or other options.

    It is nan if all actions are labels. Such decisions do not count as errors, so that the error rate
    decreases as this share grows. `probabilities` are (n_rows, n_actions).
    """
    n_labels = len(space.classes)
    if not (space.options and n_labels):
        return math.nan
    return float(np.average(probabilities[:, n_labels:].sum(axis=1), weights=rows.weights))


def format_referred(share: float) -> str:
    """Return the share of referred cases as a text to append to a cost; empty if it is zero."""
    return f", with {100 * share:.3g} % of cases referred" if share > 0 else ""


def add_changes(
    names: Iterable[str], limits: Limits, outcomes: Mapping[str, Any] | None
) -> tuple[Limits, Mapping[str, Any] | None]:
    """Add limits and outcomes of the cost of a changed decision, 0 or 1, if it is among the names."""
    if CHANGED not in names:
        return limits, outcomes
    return {CHANGED: (0.0, 1.0), **limits}, {CHANGED: KNOWN, **(outcomes or {})}


def list_costs(rate: Objective) -> list[str]:
    """Return the names of the `custom` costs that a rate depends on."""
    return list(dict.fromkeys(name for a, _ in rate.terms if (name := a.reads("cost")) is not None))


def find_predicted_costs(rate: Objective, rows: ObservedRows) -> list[str]:
    """Return the names of the costs in a rate for which the rows have only predictions."""
    return [name for name in list_costs(rate) if name_cost(name) not in rows.observed]


def is_observed(rate: Objective, rows: ObservedRows, space: ActionSpace) -> bool:
    """Return whether a rate is measured with observed labels and outcomes, not predicted ones."""
    labelled = LABEL in rows.observed
    needed = not list_costs(rate) or any(atom.needs_label(space) for atom, _ in rate.terms)
    return not find_predicted_costs(rate, rows) and (labelled or not needed)


def compare_costs(
    policy: Policy,
    rows: ObservedRows,
    rate: Objective | None = None,
    *,
    probabilities: Floats | None = None,
    model: Floats | None = None,
    without_rules: Floats | None = None,
) -> Costs:
    """Compute the cost with your model, without rules and with rules, averaged over random decisions.

    Costs use observed labels and outcomes where they are given, and predicted ones otherwise; see
    `is_observed`. They are nan where no row meets the conditions of the rate. The cost without rules is also
    nan if only a solver finds these decisions, because the objective is a ratio or the rate of the worst
    group.

    Parameters
    ----------
    policy : Policy
        The policy whose decisions are those with rules.
    rows : ObservedRows
        The rows, from `observe(evidence)`.
    rate : Rate or Worst, optional
        The rate to measure; by default, the one that the policy minimizes.
    probabilities, model, without_rules : array of shape (n_rows, n_actions), optional
        Probabilities of the decisions with rules, of your model and without rules; by default, they are
        computed.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.rows._outcomes import observe
    >>> evidence = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    >>> policy = solve(Problem(error(), [rejected() <= 0.25]), evidence)
    >>> costs = compare_costs(policy, observe(evidence.with_observed(labels=[0, 0, 1, 0])))
    >>> [round(cost, 2) for cost in costs]
    [0.0, 0.0, 0.0]
    """
    evidence, measured = policy.calibrate(rows.predicted), policy.problem.minimize if rate is None else rate
    counted = measured.rate if isinstance(measured, Worst) else measured
    if not (has_rows(counted, evidence) and has_rows(counted, rows)):
        return Costs(math.nan, math.nan, math.nan)
    if model is None:
        model = decide_as_model(policy.problem, evidence, policy.frequencies)
    if without_rules is None:
        without_rules = find_without_rules(policy, evidence)
    after = policy.probabilities(evidence) if probabilities is None else probabilities
    decisions = model, without_rules, after
    return Costs(
        *(
            math.nan if part is None else policy.expected(measured, rows, probabilities=part)
            for part in decisions
        )
    )


def find_without_rules(policy: Policy, evidence: Evidence) -> Floats | None:
    """Return the probabilities of the best decisions without rules on calibrated rows, (n_rows, n_actions).

    They are those of the policy if it has no rules, and None if only a solver finds them.
    """
    if not policy.problem.rules:
        return policy.probabilities(evidence)
    return decide_without_rules(policy.problem, evidence, policy.frequencies)


class ScannedCosts(NamedTuple):
    """The number of scanned rows, their costs, and the share of referred cases."""

    n_rows: int
    costs: Costs
    referred: float


def compare_scanned_costs(policy: Policy, rows: SurveyedRows) -> ScannedCosts:
    """Compute the costs of `compare_costs` in one pass over rows that are scanned in batches.

    The rows are from `scan(...).survey(policy.problem)`. Observed labels are used if there are any.
    """
    classes, objective = policy.action_space.classes, policy.problem.minimize
    observed: RowData = rows.evidence if rows.observed is None else rows.observed
    measured = (
        list(list_group_rates(objective, observed).values()) if isinstance(objective, Worst) else [objective]
    )
    # List the linear rates that are needed: their sums over batches add up.
    places: dict[Rate, int] = {}

    def note(linear: Rate) -> float:
        places.setdefault(linear, len(places))
        return 1.0

    for rate in measured:
        combine_means(rate, classes, note)
    task = partial(_add_up_costs, policy, rows, tuple(places))
    sums = sum(rows.scan.walk(task, rows.reader.columns.names, lambda part: int(part[0])), np.zeros(1))
    n_rows, mass, referred = sums[:3].tolist()
    means = sums[3:].reshape(3, -1) / mass

    def measure(means: Floats) -> float:
        return max(combine_means(rate, classes, lambda linear: means[places[linear]]) for rate in measured)

    return ScannedCosts(int(n_rows), Costs(*map(measure, means)), referred / mass)


def _add_up_costs(
    policy: Policy, rows: SurveyedRows, rates: Sequence[Rate], partition: int, batches: Iterator[Any]
) -> Floats | None:
    """Return sums over a partition: the number of rows, their weight, the referred weight, and the rates.

    The sums of all rates with your model come first, then those without rules, then those with rules.
    """
    reader, parts = rows.reader, list[Floats]()
    for batch in batches:
        if not len(batch):
            continue
        evidence = reader.read(batch).with_columns(margins=rows.margins)
        mass = float(evidence.row_weights.sum())
        observed: RowData = evidence
        if reader.observes:
            observed = reader.observe(evidence).with_columns(margins=rows.observed_margins)
        without = find_without_rules(policy, policy.calibrate(evidence))
        model = decide_as_model(policy.problem, evidence, policy.frequencies)
        after = policy.probabilities(evidence)
        sums = [
            math.nan
            if part is None
            else evidence.row_weights @ compute_row_rates(rate, observed, part, policy.action_space)
            for part in (model, without, after)
            for rate in rates
        ]
        referred = mass and mass * measure_referred(after, policy.action_space, evidence)
        parts.append(np.array([len(batch), mass, referred, *sums]))
    return np.sum(parts, axis=0) if parts else None
