"""Rates row by row: what each row contributes, its range, and the standard error of the mean."""

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
    """Return a value per row, (n_rows,), whose weighted mean is the rate of the probabilities.

    On `ObservedRows`, this is the observed rate, averaged over the random decisions.
    """
    varying, constant = _compute_row_rates(rate.resolve(space.classes), rows, probabilities, space)
    return varying + constant


def measure_rate(rate: Rate | Ratio, rows: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return a rate, linear or not, of the probabilities (n_rows, n_actions); nan for 0/0."""

    def mean(linear: Rate) -> float:
        return float(np.average(compute_row_rates(linear, rows, probabilities, space), weights=rows.weights))

    return combine_means(rate, space.classes, mean)


def combine_means(rate: Rate | Ratio, classes: Sequence[Value], mean: Callable[[Rate], float]) -> float:
    """Compute a rate from the means of linear ones, of which it may be a quotient or a product; nan for 0/0.

    Means over all rows are sums over parts of them; quotients are not.
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
    """Return the rate that the level of a rule on a ratio multiplies; nan for other rules."""
    return math.nan if rule.factor is None else measure_rate(rule.factor, rows, probabilities, space)


def count_denominator(rule: Rule, rows: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return the expected number of rows in the smallest denominator of a rule.

    It is infinite for a rule without ratios; at zero, the ratio is 0/0.
    """
    amounts = (compute_event_amounts(one, rows, probabilities, space) for one in rule.denominators)
    shares = (float(np.average(amount, weights=rows.weights)) for amount in amounts)
    return len(rows) * min(shares, default=math.inf)


def _compute_row_rates(
    rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace
) -> tuple[Floats, float]:
    """Return what varies between rows, (n_rows,), and the constant."""
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
    """Return how much each row counts in an event, (n_rows,): P(conditions | x), or a denominator."""
    if event.whole is not None:
        return compute_whole(event.whole, rows, probabilities, space)
    return rows.event_probability(event.conditions) * np.ones(len(rows))


def compute_whole(whole: Atom, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return how much each row counts in the denominator of a quotient, (n_rows,)."""
    return compute_event_amounts(Rate(((whole, 1.0),)), rows, probabilities, space)


def compute_event_amounts(rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """Return E[1{event} Z | x], (n_rows,), of a rate whose terms are given the same event.

    Z is the contribution of a row to the rate without its conditions.
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
    """Return the contribution of each row under the atom's conditions, (n_rows,)."""
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


# What bylaw says of "before" and "after" compares three kinds of decisions on the same rows, which have the
# same names in every text and in every result:
#   "your model": by the model's own scores, before any calibration, and labels only (`decide_as_model`);
#   "without rules": the same problem with the same calibration and the same actions, but without its rules
#     (`decide_without_rules`, and `bylaw.fitting._solve.solve_without_rules` where that takes a solver);
#   "with rules": the policy.
# Decisions that change differ from those of your model. What rules cost is the difference of the other two.


def decide_as_model(problem: Problem, evidence: Evidence, frequencies: Frequencies | None = None) -> Floats:
    """Return the decisions of your model, one-hot (n_rows, n_actions): by its own scores.

    On each row, it is the label of least cost; of several, the likeliest. Probabilities are those before
    calibration. An option is never taken, unless there are no labels; a set holds that label alone. With an
    objective that is not linear, the decision is the likeliest label; among options alone, that of the least
    numerator. `frequencies` are those of the objective's conditions, for rows that are too few to measure
    them.
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

    On each row, it is the action of least cost by the scores of these rows, which are calibrated if the
    policy is; for sets, the labels that lower the cost. Options that cost nothing are left out: without
    rules, they would be taken on every row. None for objectives that do not decide row by row: ratios, and
    the rate of the worst group.
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
    """Return what each action costs on each row, (n_rows, n_actions), up to a constant."""
    form = compile_problem(problem, evidence, frequencies, rules=())
    return make_block(form, form.feature_map.admit(evidence)).features.T @ form.base


def _choose_cheapest(costs: Floats, allowed: Sequence[int], evidence: Evidence) -> Floats:
    """Return the cheapest of the allowed actions on each row, one-hot; of several the likeliest label."""
    offered = costs[:, allowed]
    cheapest = np.isclose(offered, offered.min(axis=1, keepdims=True), rtol=0, atol=1e-12)  # up to rounding
    likely = np.zeros(costs.shape)
    likely[:, : len(evidence.classes)] = evidence.probabilities if evidence.classes else 0.0
    best = np.where(cheapest, likely[:, allowed], -1.0).argmax(axis=1)
    return np.eye(costs.shape[1])[np.asarray(allowed)[best]]


def list_free_options(minimize: Rate | Ratio | Worst, space: ActionSpace) -> list[Value]:
    """Return the options that cost nothing by the objective and that only rules limit.

    There are none if some label costs less than nothing. Of a ratio, the numerator counts.
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
    """Return the least and the largest contribution of a row to a rate without conditions.

    They hold for any label (or for this one) and any decision. `limits` are those of the caller's own costs.
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
    """Return the least and the largest numerator / denominator of a row, for one denominator."""
    decided = rate.terms[0][0].decided
    if decided is None:  # of all others, the part is between nothing and the whole
        return sum(min(c, 0.0) for _, c in rate.terms), sum(max(c, 0.0) for _, c in rate.terms)
    low, high = _list_limits(rate, space, [space.actions.index(decided)], label, limits)
    return float(low.min()), float(high.max())


def _list_limits(
    rate: Rate, space: ActionSpace, positions: Sequence[int], label: Value | None, limits: Limits | None
) -> tuple[Floats, Floats]:
    """Return the limits of what these actions contribute, (n_labels, n_positions) each."""
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
    """Return the rate of each group that has rows."""
    rates = list_group_rates(objective, rows)
    return {group: measure_rate(rate, rows, probabilities, space) for group, rate in rates.items()}


def list_group_rates(objective: Worst, rows: RowData) -> dict[Conditions, Rate]:
    """Return the rate of each group that has rows, to be measured."""
    groups = objective.list_groups(rows.classes, rows.group_values)
    rates = {group: objective.given(group) for group in groups}
    return {group: rate for group, rate in rates.items() if has_rows(rate, rows)}


def warn_of_missing_groups(
    objective: Worst, rates: Mapping[Conditions, float], feature_map: FeatureMap
) -> None:
    """Warn of groups that the fit had and that have no rows, one of which may be the worst."""
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    if not set(objective.by) <= {LABEL, *values}:
        return
    groups = objective.list_groups(feature_map.action_space.classes, values)
    missing = [format_conditions(group) for group in groups if group not in rates]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        warnings.warn(
            f"{objective}: no row here has {'; '.join(missing[:5])}{more}, which is left out: nothing "
            "is known of the worst group if it is there. Add such rows",
            GuaranteeWarning,
            stacklevel=find_stack_level(),
        )


def has_rows(rate: Rate | Ratio, evidence: RowData) -> bool:
    """Return whether some row has weight for each of the rate's conditions."""
    terms = rate.resolve(evidence.classes).terms
    return all(evidence.frequency(atom.conditions) > 0 for atom, _ in terms if atom.conditions)


def standard_error(rate: Rate, evidence: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Return the standard error of the rate on these rows.

    A conditional rate is a ratio of two means, both of which vary: to first order, a row moves it by its
    contribution less the rate times P(event | x) / P(event).
    """
    weights = evidence.row_weights
    moves = np.zeros(len(evidence))
    for event, part in rate.resolve(space.classes).by_event().items():
        values, _ = _compute_row_rates(part, evidence, probabilities, space)  # a constant does not vary
        chance = compute_sizes(event, evidence, probabilities, space)
        moves += values - np.average(values, weights=weights) * chance / np.average(chance, weights=weights)
    return math.sqrt(float(weights**2 @ moves**2)) / float(weights.sum())
