"""Rates computed row by row: the contribution of each row, its range, and the standard error of the mean."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from bylaw._base import Floats, Value, find_stack_level
from bylaw.calibration import CalibratedEvidence
from bylaw.errors import GuaranteeWarning
from bylaw.language import (
    LABEL,
    ActionSpace,
    Atom,
    Conditions,
    CostColumn,
    Event,
    Meaning,
    Problem,
    Rate,
    Ratio,
    Rule,
    Source,
    Worst,
    format_conditions,
)
from bylaw.program._blocks import make_block
from bylaw.program._linear_form import (
    FeatureMap,
    Frequencies,
    add_label,
    compile_problem,
    evaluate_cost,
    measure_frequency,
)
from bylaw.rows import Evidence, Limits, RowData


def compute_row_rates(rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return one value per row, (n_rows,), whose weighted mean is the rate of a policy.

    `probabilities` are those of its decisions, (n_rows, n_actions). On `ObservedRows`, this is the observed
    rate, averaged over the random decisions.
    """
    varying, constant = _compute_row_rates(rate.resolve(space.classes), rows, probabilities, space)
    return varying + constant


def measure_rate(rate: Rate | Ratio, rows: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return a rate or ratio for decisions with these probabilities, (n_rows, n_actions); nan for 0/0."""

    def mean(linear: Rate) -> float:
        return float(np.average(compute_row_rates(linear, rows, probabilities, space), weights=rows.weights))

    return combine_means(rate, space.classes, mean)


def combine_means(rate: Rate | Ratio, classes: Sequence[Value], mean: Callable[[Rate], float]) -> float:
    """Return a rate or ratio, given a function `mean` that returns the mean of a linear rate; nan for 0/0.

    So rates that are not linear (ratios, products) can be computed from means that are sums over parts of the
    rows.
    """
    combine = partial(combine_means, classes=classes, mean=mean)
    if isinstance(rate, Ratio):
        return combine(rate.numerator) / (combine(rate.denominator) or math.nan)
    rate, total, linear = rate.resolve(classes), 0.0, []
    for atom, c in rate.terms:
        if atom.definition.factors is not None:
            factors = np.maximum([combine(factor) for factor in atom.list_factors(classes)], 0.0)
            total += c * float(np.prod(factors) ** (1 / len(factors)))  # their geometric mean
        elif atom.is_quotient:
            part, whole = (mean(Rate(((share, 1.0),))) for share in (atom.part, atom.whole))
            total += c * part / (whole or math.nan)
        else:
            linear.append((atom, c))
    return total + mean(Rate(tuple(linear), rate.constant))


def measure_factor(rule: Rule, rows: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return, for a rule on a ratio of two rates, the rate in the denominator; nan for other rules."""
    return math.nan if rule.factor is None else measure_rate(rule.factor, rows, probabilities, space)


def count_denominator(rule: Rule, rows: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return the expected number of rows that count in the smallest denominator of a rule.

    It is infinite for a rule without ratios. If it is zero, the ratio is 0/0.
    """
    amounts = (compute_event_amounts(one, rows, probabilities, space) for one in rule.denominators)
    shares = (float(np.average(amount, weights=rows.weights)) for amount in amounts)
    return len(rows) * min(shares, default=math.inf)


def _compute_row_rates(
    rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace
) -> tuple[Floats, float]:
    """Return the part of a rate that varies between rows, (n_rows,), and the constant part."""
    varying, constant = np.zeros(len(rows)), rate.constant
    for atom, coefficient in rate.terms:
        meaning = atom.meaning(space)
        constant += coefficient * meaning.constant
        # Divide by P(conditions), or by a denominator; nan for 0.
        share = measure_frequency(atom.conditions, rows) if atom.conditions else 1.0
        if atom.is_quotient:
            whole = compute_whole(atom.whole, rows, probabilities, space)
            share = float(np.average(whole, weights=rows.weights)) or math.nan
        varying += (coefficient / share) * _sum_terms(atom, meaning, rows, probabilities, space)
    return varying, constant


def compute_sizes(event: Event, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return how much each row counts in an event, (n_rows,): P(conditions | x), or its denominator."""
    if event.whole is not None:
        return compute_whole(event.whole, rows, probabilities, space)
    return rows.event_probability(event.conditions) * np.ones(len(rows))


def compute_whole(whole: Atom, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return the contribution of each row to the denominator of a ratio, (n_rows,)."""
    return compute_event_amounts(Rate(((whole, 1.0),)), rows, probabilities, space)


def compute_event_amounts(rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return the contribution of each row to a rate times the probability of its conditions, (n_rows,).

    All terms of the rate must be given the same event: the result is E[1{event} Z | x], where Z is the
    contribution of the row to the rate without its conditions.
    """
    total = np.full(len(rows), rate.constant)
    for atom, coefficient in rate.terms:
        meaning = atom.meaning(space)
        total += coefficient * _sum_terms(atom, meaning, rows, probabilities, space)
        total += coefficient * meaning.constant * rows.event_probability(atom.conditions)
    return total


def _sum_terms(
    atom: Atom, meaning: Meaning, rows: RowData, probabilities: Floats, space: ActionSpace
) -> Floats:
    """Return the contribution of each row to one term of a rate, times P(conditions | x), (n_rows,)."""
    name = atom.reads("cost")
    costs = None if name is None else evaluate_cost(name, atom.function, rows, space)
    total = np.zeros(len(rows))
    for term in meaning.terms:
        event = add_label(atom.conditions, term.label)
        if event is None:
            continue
        if isinstance(term.source, CostColumn):
            assert costs is not None
            paid = rows.weigh_cost(event, term.source, costs[:, term.source.item])
        else:
            paid = rows.event_probability(event)
            paid = paid if term.source is None else paid * rows.column(term.source)
        total += term.coefficient * paid * probabilities[:, space.position(term.action)]
    return total


# Three kinds of decisions on the same rows are compared. They have the same names in all texts and results:
#   "your model": labels only, by the model's own probabilities before any calibration (`decide_as_model`);
#   "without rules": the same problem with the same calibration and the same actions, but without its rules
#     (`decide_without_rules`, or `bylaw.fitting._solve.solve_without_rules` if that needs a solver);
#   "with rules": the policy.
# Changed decisions are those that differ from "your model". The cost of the rules is the cost "with rules"
# less the cost "without rules".


def decide_as_model(problem: Problem, evidence: Evidence, frequencies: Frequencies | None = None) -> Floats:
    """Return the decisions of the model itself, one-hot (n_rows, n_actions), from its probabilities.

    Each row gets the label of least cost or, of several, the likeliest. Probabilities are those before
    calibration. Options are taken only if there are no labels; for sets, the result holds one label. If the
    objective is not linear, the decision is the likeliest label or, among options alone, the one of least
    numerator. `frequencies` are those of the objective's conditions; pass them for rows that are too few to
    measure them.
    """
    if isinstance(evidence, CalibratedEvidence):
        raw = evidence.raw
        evidence = raw.with_columns(
            groups={**evidence.groups, **raw.hidden_groups},
            costs=evidence.costs,
            weights=evidence.weights,
            margins=evidence.margins,
        )
    if isinstance(problem.minimize, Ratio) and not evidence.classes:
        problem = problem.with_objective(problem.minimize.numerator)
    space = problem.action_space(evidence.classes, evidence.options)
    if not problem.minimize.is_linear:
        return np.eye(len(space.actions))[evidence.probabilities.argmax(axis=1)]
    costs = _compute_action_costs(problem, evidence, frequencies)
    return _choose_cheapest(costs, range(len(space.model_actions)), evidence)


def decide_without_rules(
    problem: Problem, evidence: Evidence, frequencies: Frequencies | None = None
) -> Floats | None:
    """Return the best decisions without rules, (n_rows, n_actions), or None.

    Each row gets the action of least cost by its probabilities, which are calibrated if the policy is; for
    sets, the labels that lower the cost. Options that cost nothing are left out, as they would be taken on
    every row. The result is None if the objective is a ratio or the rate of the worst group, because these do
    not decide row by row.
    """
    if isinstance(problem.minimize, Ratio | Worst) or not problem.minimize.is_linear:
        return None
    space = problem.action_space(evidence.classes, evidence.options)
    costs = _compute_action_costs(problem, evidence, frequencies)
    if not space.exclusive:
        return space.best_decision(costs.T).T
    free = list_free_options(problem.minimize, space)
    allowed = [a for a, action in enumerate(space.actions) if action not in free]
    return _choose_cheapest(costs, allowed, evidence)


def _compute_action_costs(problem: Problem, evidence: Evidence, frequencies: Frequencies | None) -> Floats:
    """Return the cost of each action on each row, (n_rows, n_actions), up to a constant."""
    form = compile_problem(problem, evidence, frequencies, rules=())
    return make_block(form, form.feature_map.admit(evidence)).features.T @ form.base


def _choose_cheapest(costs: Floats, allowed: Sequence[int], evidence: Evidence) -> Floats:
    """Return the cheapest allowed action on each row, one-hot; among equal costs, the likeliest label."""
    offered = costs[:, allowed]
    cheapest = np.isclose(offered, offered.min(axis=1, keepdims=True), rtol=0, atol=1e-12)  # up to rounding
    likely = np.zeros(costs.shape)
    likely[:, : len(evidence.classes)] = evidence.probabilities if evidence.classes else 0.0
    best = np.where(cheapest, likely[:, allowed], -1.0).argmax(axis=1)
    return np.eye(costs.shape[1])[np.asarray(allowed)[best]]


def list_free_options(minimize: Rate | Ratio | Worst, space: ActionSpace) -> list[Value]:
    """Return the options that cost nothing in the objective, so that only rules limit them.

    The list is empty if some label has a negative cost. For a ratio, the costs are those of the numerator.
    """
    rate = minimize.rate if isinstance(minimize, Worst) else minimize
    rate = (rate.numerator if isinstance(rate, Ratio) else rate).resolve(space.classes)
    if not (space.options and space.classes and rate.terms and rate.is_linear):
        return []
    limits = {name: (0.0, 1.0) for atom, _ in rate.terms if (name := atom.reads("cost")) is not None}
    low, high = _list_limits(rate, space, range(len(space.actions)), None, limits)
    if low[:, : len(space.classes)].min() < 0:
        return []
    paid = np.maximum(np.abs(low), np.abs(high)).max(axis=0)[len(space.classes) :]
    return [option for option, most in zip(space.options, paid, strict=True) if not most]


def bound_rate(
    rate: Rate, space: ActionSpace, label: Value | None = None, limits: Limits | None = None
) -> tuple[float, float]:
    """Return the smallest and the largest possible contribution of a row to a rate without conditions.

    They are for any decision and any label, or for the given label. `limits` are those of custom costs.
    """
    if not rate.terms:
        return rate.constant, rate.constant
    ends = _list_limits(rate, space, range(len(space.actions)), label, limits)
    constant = rate.constant + sum(c * atom.meaning(space).constant for atom, c in rate.terms)
    low, high = space.combine_ranges(*ends)
    return float(low.min()) + constant, float(high.max()) + constant


def bound_quotient(
    rate: Rate, space: ActionSpace, label: Value | None = None, limits: Limits | None = None
) -> tuple[float, float]:
    """Return the smallest and the largest ratio of a row, for a rate whose terms have one denominator."""
    decided = rate.terms[0][0].decided
    if decided is None:  # each numerator is between zero and the denominator
        return sum(min(c, 0.0) for _, c in rate.terms), sum(max(c, 0.0) for _, c in rate.terms)
    low, high = _list_limits(rate, space, [space.actions.index(decided)], label, limits)
    return float(low.min()), float(high.max())


def _list_limits(
    rate: Rate, space: ActionSpace, positions: Sequence[int], label: Value | None, limits: Limits | None
) -> tuple[Floats, Floats]:
    """Return the smallest and largest contributions of actions to a rate, (n_labels, n_positions) each."""
    labels = (space.classes or (None,)) if label is None else [label]
    low, high = np.zeros((2, len(labels), len(positions)))
    for i, y in enumerate(labels):
        for k, position in enumerate(positions):
            factors: dict[Source | None, float] = {}
            for atom, coefficient in rate.terms:
                for term in atom.meaning(space).terms:
                    if space.position(term.action) == position and term.label in (None, y):
                        factors[term.source] = factors.get(term.source, 0.0) + coefficient * term.coefficient
            for source, factor in factors.items():
                ends = (1.0, 1.0) if source is None else (0.0, 1.0)
                if isinstance(source, CostColumn):
                    ends = (limits or {})[source.name]
                low[i, k] += min(factor * end for end in ends)
                high[i, k] += max(factor * end for end in ends)
    return low, high


def compute_group_rates(
    objective: Worst, rows: RowData, probabilities: Floats, space: ActionSpace
) -> dict[Conditions, float]:
    """Return the rate of each group that has rows, for an objective that is the worst of these rates."""
    rates = list_group_rates(objective, rows)
    return {group: measure_rate(rate, rows, probabilities, space) for group, rate in rates.items()}


def list_group_rates(objective: Worst, rows: RowData) -> dict[Conditions, Rate]:
    """Return the objective as a rate of each group that has rows; it is the largest of these rates."""
    groups = objective.list_groups(rows.classes, rows.group_values)
    rates = {group: objective.given(group) for group in groups}
    return {group: rate for group, rate in rates.items() if has_rows(rate, rows)}


def warn_of_missing_groups(
    objective: Worst, rates: Mapping[Conditions, float], feature_map: FeatureMap
) -> None:
    """Warn if groups of the fit have no rows here, because one of them may be the worst."""
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    if not set(objective.by) <= {LABEL, *values}:
        return
    groups = objective.list_groups(feature_map.action_space.classes, values)
    missing = [format_conditions(group) for group in groups if group not in rates]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        warnings.warn(
            f"{objective} is computed without the groups that have no rows: {'; '.join(missing[:5])}{more}. "
            "One of them may be the worst group; add rows of these groups",
            GuaranteeWarning,
            stacklevel=find_stack_level(),
        )


def has_rows(rate: Rate | Ratio, evidence: RowData) -> bool:
    """Return whether the rows that satisfy each of the rate's conditions have a positive weight."""
    terms = rate.resolve(evidence.classes).terms
    return all(evidence.frequency(atom.conditions) > 0 for atom, _ in terms if atom.conditions)


def standard_error(rate: Rate, evidence: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return the standard error of the rate on these rows.

    A conditional rate is a ratio of two means that both vary. To first order, a row changes it by its
    contribution less the rate times P(event | x) / P(event).
    """
    weights = evidence.row_weights
    moves = np.zeros(len(evidence))
    for event, part in rate.resolve(space.classes).by_event().items():
        values, _ = _compute_row_rates(part, evidence, probabilities, space)  # a constant does not vary
        chance = compute_sizes(event, evidence, probabilities, space)
        moves += values - np.average(values, weights=weights) * chance / np.average(chance, weights=weights)
    return math.sqrt(float(weights**2 @ moves**2)) / float(weights.sum())
