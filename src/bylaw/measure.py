"""Rates of a law on rows, row by row: what each row contributes, and how surely the mean is known."""

from __future__ import annotations

import math

import numpy as np

from bylaw.algebra import Conditions, Rate
from bylaw.decisions import Decisions, Floats
from bylaw.dual import BLOCK_ROWS, block_of
from bylaw.evidence import Evidence
from bylaw.linear_form import compile_problem
from bylaw.problem import Problem


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
