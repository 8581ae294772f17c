"""Shadow prices of rules whose multipliers are not unique.

At a bound of zero, opposite rules hold with equality and their multipliers cancel, as do those of all groups
against the overall rate: many multipliers lambda >= 0 decide alike, and with b = 0 they have the same value
of the dual. Loosening all of these bounds by t saves t times the least sum of prices among them, as the least
cost is convex in the bounds. So these prices are reported: a small linear program.

Multipliers decide alike if they differ by what is the same for all actions of a row. Features depend on each
other: the probabilities of all values of an attribute add up to that of what is left of an event. So the last
value of each attribute is written as the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import numpy as np
from scipy.optimize import linprog

from bylaw._base.matrices import as_dense
from bylaw._base.typing import Floats, Value
from bylaw.formulation.linear_form import Feature, FeatureMap, LinearForm
from bylaw.language.expressions import LABEL, Conditions

_ZERO = 1e-12  # a bound, in units of the dual
_MOST_RULES, _MOST_VALUES = 400, 4_000_000  # of bound zero, and of the linear program's matrix
_SUPPORT = 1e-9  # of the largest multiplier
_SAME = 1e-8  # relative: scores that did not change


def compute_prices(form: LinearForm, multipliers: Floats) -> Floats:
    """The price of each rule in its own units, (M,): the derivative of the least cost as bounds are
    loosened."""
    return form.prices(find_least_multipliers(form, multipliers))


def find_least_multipliers(form: LinearForm, multipliers: Floats) -> Floats:
    """(M,): of all multipliers that decide alike and differ in rules of bound zero only, those with the least
    sum of prices; as they are where no others exist."""
    zero = np.flatnonzero(abs(form.bounds) <= _ZERO)
    size = len(zero) * form.base.size
    if not 1 < len(zero) <= _MOST_RULES or size > _MOST_VALUES or not multipliers[zero].any():
        return multipliers
    matrix = _compare_actions(form, zero)
    if np.linalg.matrix_rank(matrix) == len(zero):
        return multipliers
    target = matrix @ multipliers[zero]
    answer = linprog(1 / form.scales[zero], A_eq=matrix, b_eq=target, bounds=(0, None), method="highs")
    if answer.x is None:
        return multipliers
    found = _polish(matrix, target, np.maximum(answer.x, 0.0))
    if abs(matrix @ found - target).max() > _SAME * max(float(abs(multipliers[zero]).max()), 1e-300):
        return multipliers
    return _replace(multipliers, zero, found)


def _compare_actions(form: LinearForm, rules: np.ndarray) -> Floats:
    """(P, n_rules): the coefficients of these rules that decide, each in independent features."""
    n_features, n_actions = form.base.shape
    couplings = as_dense(form.couplings[rules]).reshape(len(rules), n_features, n_actions)
    decisive = form.action_space.compare_actions(couplings)
    independent = np.einsum("jfa,fc->jca", decisive, _find_basis(form.feature_map))
    columns = independent.reshape(len(rules), -1).T
    return columns[abs(columns).max(axis=1) > 0]


def _find_basis(feature_map: FeatureMap) -> Floats:
    """(F, C): each feature as a sum of independent ones."""
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    if feature_map.action_space.classes:
        values[LABEL] = tuple(feature_map.action_space.classes)
    places: dict[Feature, int] = {}
    entries = [
        (k, places.setdefault(Feature(source, event), len(places)), sign)
        for k, (source, whole) in enumerate(feature_map.features)
        for event, sign in _expand(whole, values)
    ]
    basis = np.zeros((len(feature_map.features), len(places)))
    for k, place, sign in entries:
        basis[k, place] += sign
    return basis


def _expand(event: Conditions, values: Mapping[str, tuple[Value, ...]]) -> list[tuple[Conditions, float]]:
    """An event by others without the last value of any attribute: P(last) = P(any) - P(the others)."""
    parts: list[list[tuple[Conditions, float]]] = []
    for name, value in event:
        *others, last = values.get(name, (value, None))
        rest = [(((name, other),), -1.0) for other in others]
        parts.append([((), 1.0), *rest] if value == last else [(((name, value),), 1.0)])
    found = []
    for chosen in product(*parts):
        pairs = [pair for part, _ in chosen for pair in part]
        found.append((tuple(sorted(pairs, key=repr)), math.prod(sign for _, sign in chosen)))
    return found


def _polish(matrix: Floats, target: Floats, found: Floats) -> Floats:
    """The same rules, to the last digit."""
    used = np.flatnonzero(found > _SUPPORT * found.max(initial=0.0))
    exact = np.linalg.lstsq(matrix[:, used], target, rcond=None)[0]
    return _replace(np.zeros(len(found)), used, np.maximum(exact, 0.0))


def _replace(values: Floats, places: np.ndarray, others: Floats) -> Floats:
    changed = values.copy()
    changed[places] = others
    return changed
