"""Rates row by row: what each row contributes, its range, and the standard error of the mean."""

from __future__ import annotations

import math

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw.data.evidence import Evidence, RowData
from bylaw.data.outcomes import Limits
from bylaw.formulation.blocks import make_block
from bylaw.formulation.linear_form import add_label, compile_problem, evaluate_cost, measure_frequency
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import Atom, Conditions, CostColumn, Meaning, Rate, Source
from bylaw.language.problem import Problem
from bylaw.language.worst import Worst

_SAME_COST = 1e-12


def compute_row_rates(rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """(n_rows,): their weighted mean is the rate of the probabilities (n_rows, n_actions) on these rows.

    On `ObservedRows`, that is the observed rate, with the draws integrated out.
    """
    varying, constant = _compute_row_rates(rate, rows, probabilities, space)
    return varying + constant


def _compute_row_rates(
    rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace
) -> tuple[Floats, float]:
    """What varies between rows, (n_rows,), and the constant."""
    varying, constant = np.zeros(len(rows)), rate.constant
    for atom, coefficient in rate.terms:
        meaning = atom.meaning(space)
        constant += coefficient * meaning.constant
        frequency = measure_frequency(atom.conditions, rows) if atom.conditions else 1.0
        varying += (coefficient / frequency) * _sum_terms(atom, meaning, rows, probabilities, space)
    return varying, constant


def compute_event_amounts(rate: Rate, rows: RowData, probabilities: Floats, space: ActionSpace) -> Floats:
    """(n_rows,): E[1{event} Z | x] of a rate whose terms are all given the same event, where Z is what a row
    has of the rate without its conditions."""
    total = np.full(len(rows), rate.constant)
    for atom, coefficient in rate.terms:
        meaning = atom.meaning(space)
        total += coefficient * _sum_terms(atom, meaning, rows, probabilities, space)
        total += coefficient * meaning.constant * rows.event_probability(atom.conditions)
    return total


def _sum_terms(
    atom: Atom, meaning: Meaning, rows: RowData, probabilities: Floats, space: ActionSpace
) -> Floats:
    """(n_rows,): what the decisions pay on the rows of the atom's conditions."""
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


def decide_baseline(problem: Problem, evidence: Evidence) -> Floats:
    """The baseline, the model without rules, one-hot (n_rows, n_actions): the label of least cost, of several
    the likeliest; never a rejection, and for sets that label alone."""
    form = compile_problem(Problem(problem.rate, decisions=problem.kind, reject=problem.reject), evidence)
    costs = (make_block(form, form.feature_map.admit(evidence)).features.T @ form.base)[
        :, : len(evidence.classes)
    ]
    cheapest = np.isclose(costs, costs.min(axis=1, keepdims=True), rtol=0, atol=_SAME_COST)
    likeliest = np.where(cheapest, evidence.probabilities, -1.0).argmax(axis=1)
    return np.eye(form.base.shape[1])[likeliest]


def bound_rate(
    rate: Rate, space: ActionSpace, label: Value | None = None, limits: Limits | None = None
) -> tuple[float, float]:
    """The least and the most that a row can have of a rate without conditions, whatever its label (or with
    this one) and its decision. `limits` are those of the caller's own costs."""
    if not rate.terms:
        return rate.constant, rate.constant
    positions = range(len(space.actions))
    ends = [
        [_limits(rate, limits or {}, space, position, y) for position in positions]
        for y in (space.classes if label is None else [label])
    ]
    low, high = np.array(ends).transpose(2, 0, 1)  # each (n_labels, n_actions)
    constant = rate.constant + sum(c * atom.meaning(space).constant for atom, c in rate.terms)
    low, high = space.combine_ranges(low, high)
    return float(low.min()) + constant, float(high.max()) + constant


def _limits(
    rate: Rate, limits: Limits, space: ActionSpace, position: int, label: Value
) -> tuple[float, float]:
    """Of what one action pays on rows with this label."""
    factors: dict[Source | None, float] = {}
    for atom, coefficient in rate.terms:
        for term in atom.meaning(space).terms:
            if space.position(term.action) == position and term.label in (None, label):
                factors[term.source] = factors.get(term.source, 0.0) + coefficient * term.coefficient
    low = high = 0.0
    for source, factor in factors.items():
        ends = _source_limits(source, limits)
        low += min(factor * end for end in ends)
        high += max(factor * end for end in ends)
    return low, high


def _source_limits(source: Source | None, limits: Limits) -> tuple[float, float]:
    if source is None:
        return 1.0, 1.0
    return limits[source.name] if isinstance(source, CostColumn) else (0.0, 1.0)


def compute_group_rates(
    objective: Worst, rows: RowData, probabilities: Floats, space: ActionSpace
) -> dict[Conditions, float]:
    """The rate of each group that has rows."""
    rates = {
        group: objective.given(group) for group in objective.list_groups(rows.classes, rows.group_values)
    }
    return {
        group: float(
            np.average(compute_row_rates(rate, rows, probabilities, space), weights=rows.row_weights)
        )
        for group, rate in rates.items()
        if has_rows(rate, rows)
    }


def has_rows(rate: Rate, evidence: RowData) -> bool:
    """Whether some row has weight for each of the rate's conditions."""
    chances = [evidence.event_probability(atom.conditions) for atom, _ in rate.terms if atom.conditions]
    return all(np.average(chance, weights=evidence.weights) > 0 for chance in chances)


def standard_error(rate: Rate, evidence: RowData, probabilities: Floats, space: ActionSpace) -> float:
    """Of the rate on these rows, as a sample of many more.

    A conditional rate is a ratio of two means, of which both vary: to first order, a row moves it
    by its contribution less the rate times P(event | x) / P(event).
    """
    weights = evidence.row_weights
    moves = np.zeros(len(evidence))
    for event, part in rate.by_condition().items():
        values, _ = _compute_row_rates(part, evidence, probabilities, space)  # a constant does not vary
        chance = evidence.event_probability(event) * np.ones(len(evidence))
        moves += values - np.average(values, weights=weights) * chance / np.average(chance, weights=weights)
    return math.sqrt(float(weights**2 @ moves**2)) / float(weights.sum())
