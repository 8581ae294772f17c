"""Shadow prices: of rules whose multipliers are not unique, and of observed rules.

At a bound of zero, opposite rules hold with equality and their multipliers cancel, as do those of all groups
against the overall rate: many multipliers lambda >= 0 decide alike, and with b = 0 they have the same value
of the dual. Loosening all of these bounds by t saves t times the least sum of prices among them, as the least
cost is convex in the bounds. So these prices are reported: a small linear program.

Multipliers decide alike if they differ by what is the same for all actions of a row. Features depend on each
other: the probabilities of all values of an attribute add up to that of what is left of an event. So the last
value of each attribute is written as the rest.

Multipliers of observed rules are slopes of the predicted cost, which are checked against observed costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from scipy.optimize import linprog

from bylaw._base.numeric import as_dense
from bylaw._base.typing import Floats, Value
from bylaw.language.expressions import LABEL, Conditions
from bylaw.program.linear_form import Feature, FeatureMap, LinearForm
from bylaw.program.solution import Status
from bylaw.reductions._observe import CorrectedSolution, Correction
from bylaw.solvers.shifts import NEGLIGIBLE

_ZERO = 1e-12  # a bound, in units of the dual
_MOST_RULES, _MOST_VALUES = 400, 4_000_000  # of bound zero, and of the linear program's matrix
_SUPPORT = 1e-9  # of the largest multiplier
_SAME = 1e-8  # relative: scores that did not change


def compute_prices(form: LinearForm, multipliers: Floats) -> Floats:
    """The price of each rule in its own units, (M,): the derivative of the least cost as bounds are
    loosened."""
    return form.prices(find_least_multipliers(form, multipliers))


def confirm_prices(
    correction: Correction, found: CorrectedSolution, prices: Floats, units: Floats, shares: Floats
) -> Floats:
    """Return the prices (M,) of observed rules, those of a statement scaled if they promise a saving that
    the rows do not show.

    A multiplier is the slope of the predicted cost. Where few rows decide about a rule, and where a ratio
    crosses its bound at several prices, the observed cost may fall by much less, or more, when the bound
    is loosened. So statements about ratios, and those that promise a saving beyond the noise of the cost,
    are loosened by about a standard error of their rates and fitted again; if less than half or more than
    twice of the saving is seen, their prices are those of the saving that was seen.

    Parameters
    ----------
    correction : Correction
    found : CorrectedSolution
    prices : array of shape (n_rules,)
    units : array of shape (n_rules,)
        a rule's own unit in that of the dual.
    shares : array of shape (n_rules,)
        how far each rule moves with the level of its statement.
    """
    if not correction.affected.any() or found.solution.status is not Status.CONVERGED:
        return prices
    dual, multipliers, ratios = correction.dual, found.solution.multipliers, correction.ratios
    places = np.array([rule.place for rule in dual.form.rules])
    errors = np.zeros(places.max() + 1)
    np.maximum.at(errors, places, correction.errors.observed / units)
    steps = errors[places] * shares * units
    is_ratio = np.zeros(len(places), bool) if ratios is None else ratios.chosen & correction.affected
    confirmed, noise = prices.copy(), dual.loss_unit / math.sqrt(dual.n_rows)
    for place in np.unique(places):
        chosen = places == place
        promised = float(multipliers[chosen] @ steps[chosen])
        if promised <= noise and not (promised > 0 and is_ratio[chosen].any()):
            continue
        looser = dual.with_bounds(dual.form.bounds + np.where(chosen, steps, 0.0))
        answer = replace(correction.pose(found.target), dual=looser).solve(multipliers, rng=correction.rng)
        seen = correction.rates.measure_cost(found.dual.tally(multipliers)) - answer.cost
        if not promised / 2 <= seen <= 2 * promised:
            confirmed[chosen] *= max(seen, NEGLIGIBLE * dual.loss_unit) / promised
    return confirmed


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
