"""Rates of a law on rows, row by row: what each row contributes, and how surely the mean is known."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw.data.evidence import Evidence
from bylaw.formulation.dual import BLOCK_ROWS, block_of
from bylaw.formulation.linear_form import compile_problem
from bylaw.language.action_space import Decisions
from bylaw.language.expressions import Conditions, Rate, Source
from bylaw.language.problem import Problem

Limits = Mapping[str, tuple[float, float]]  # the least and the most of costs, by name
_SAME_COST = 1e-12


def contributions(rate: Rate, evidence: Evidence, law: Floats, decisions: Decisions) -> Floats:
    """(n_rows,): their weighted mean is the rate of the law (n_rows, n_actions) on these rows.

    On evidence as it was `observed`, that is the observed rate, with the draws integrated out.
    """
    varying, constant = _contributions(rate, evidence, law, decisions)
    return varying + constant


def _contributions(rate: Rate, evidence: Evidence, law: Floats, decisions: Decisions) -> tuple[Floats, float]:
    form = compile_problem(Problem(rate, decisions=decisions.kind, reject=decisions.reject), evidence)
    evidence = form.recipe.admit(evidence)
    per_row = np.empty(len(evidence))
    for start in range(0, len(evidence), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(evidence)))
        losses = form.base.T @ block_of(form, evidence, rows).features
        per_row[rows] = np.einsum("an,na->n", losses, law[rows])
    return per_row, form.base_constant


def alone(problem: Problem, evidence: Evidence) -> Floats:
    """The model's own answers, as a law (n_rows, n_actions): the label of least cost, of several the
    likeliest; never a rejection, and for sets that label alone."""
    form = compile_problem(Problem(problem.minimize, decisions=problem.kind, reject=problem.reject), evidence)
    costs = (block_of(form, form.recipe.admit(evidence)).features.T @ form.base)[:, : len(evidence.classes)]
    cheapest = np.isclose(costs, costs.min(axis=1, keepdims=True), rtol=0, atol=_SAME_COST)
    likeliest = np.where(cheapest, evidence.probabilities, -1.0).argmax(axis=1)
    return np.eye(form.base.shape[1])[likeliest]


def extent(
    rate: Rate, decisions: Decisions, label: Value | None = None, limits: Limits | None = None
) -> tuple[float, float]:
    """The least and the most that a row can have of a rate without conditions, whatever its label (or with
    this one) and its decision. `limits` are those of the caller's own costs."""
    if not rate.terms:
        return rate.constant, rate.constant
    positions = range(len(decisions.actions))
    ends = [
        [_limits(rate, limits or {}, decisions, position, y) for position in positions]
        for y in (decisions.classes if label is None else [label])
    ]
    low, high = np.array(ends).transpose(2, 0, 1)  # each (n_labels, n_actions)
    constant = rate.constant + sum(
        c * atom.meaning(decisions.kind, decisions.classes).constant for atom, c in rate.terms
    )
    if decisions.kind == "sets":
        low, high = np.minimum(low, 0.0).sum(axis=1), np.maximum(high, 0.0).sum(axis=1)
    return float(low.min()) + constant, float(high.max()) + constant


def _limits(
    rate: Rate, limits: Limits, decisions: Decisions, position: int, label: Value
) -> tuple[float, float]:
    """Of what one action pays on rows with this label."""
    factors: dict[Source | None, float] = {}
    for atom, coefficient in rate.terms:
        for term in atom.meaning(decisions.kind, decisions.classes).terms:
            if decisions.position(term.action) == position and term.label in (None, label):
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
    return (0.0, 1.0) if source.kind == "reference" else limits[source.name]


def has_rows(rate: Rate, evidence: Evidence) -> bool:
    """Whether some row has weight for each of the rate's conditions."""
    chances = [evidence.chance(atom.conditions) for atom, _ in rate.terms if atom.conditions]
    return all(np.average(chance, weights=evidence.weights) > 0 for chance in chances)


def standard_error(rate: Rate, evidence: Evidence, law: Floats, decisions: Decisions) -> float:
    """Of the rate on these rows, as a sample of many more.

    A conditional rate is a ratio of two means, of which both vary: to first order, a row moves it
    by its contribution less the rate times P(event | x) / P(event).
    """
    weights = np.ones(len(evidence)) if evidence.weights is None else evidence.weights
    moves = np.zeros(len(evidence))
    for event, part in _by_condition(rate).items():
        values, _ = _contributions(part, evidence, law, decisions)  # a constant does not vary
        chance = evidence.chance(event) * np.ones(len(evidence))
        moves += values - np.average(values, weights=weights) * chance / np.average(chance, weights=weights)
    return math.sqrt(float(weights**2 @ moves**2)) / float(weights.sum())


def _by_condition(rate: Rate) -> dict[Conditions, Rate]:
    """The rate as a sum of parts, each of one condition."""
    parts: dict[Conditions, Rate] = {}
    for atom, coefficient in rate.terms:
        term = Rate(((atom, coefficient),))
        parts[atom.conditions] = parts[atom.conditions] + term if atom.conditions in parts else term
    return parts
