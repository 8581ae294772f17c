"""Policies made from solutions, with their guarantees, prices and rates on the fitted rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from scipy.optimize import linprog

from bylaw._base import Floats, Hashes, Value, as_dense
from bylaw.language import LABEL, Conditions, FamilyAtLevels, Problem
from bylaw.policy import Fingerprint, Policy, TableSum, compute_probabilities, hash_features
from bylaw.program import (
    Block,
    Dual,
    Feature,
    FeatureMap,
    FittedRate,
    FittedRates,
    Guarantee,
    HardDecisions,
    LinearForm,
    Solution,
    Status,
    UnseenRows,
    measure_wholes,
)
from bylaw.reductions._observe import CorrectedSolution, Correction
from bylaw.rows import Evidence
from bylaw.solvers import NEGLIGIBLE

_TILE = 2**19  # number of feature values that are hashed at a time


def make_policy(
    problem: Problem,
    dual: Dual,
    solution: Solution,
    tightened: Floats | None = None,
    fitted_rates: FittedRates | None = None,
    prices: Floats | None = None,
) -> Policy:
    """Make the policy of a solution.

    Parameters
    ----------
    problem : Problem
    dual : Dual
    solution : Solution
    tightened : array of shape (n_rules,), optional
        By how much each rule was tightened, in its own unit.
    fitted_rates : FittedRates, optional
        The observed rates of the fitted rows.
    prices : array of shape (n_rules,), optional
        The prices of the rules; by default those of the multipliers.
    """
    rows, wholes = fingerprint_rows(dual), find_wholes(dual, solution) * find_shares(dual.form)
    guarantee = make_guarantee(dual, solution)
    if dual.source is not None:
        solution = replace(solution, passes=dual.source.passes)
    if prices is None:
        prices = compute_prices(dual.form, solution.multipliers)
    return Policy.from_solution(
        problem, dual.form, solution, guarantee, tightened, (rows,), fitted_rates, wholes, prices=prices
    )


def find_shares(form: LinearForm) -> Floats:
    """Return the change of each rule's bound per unit of the level of its statement, (M,)."""
    statements = [found.statement for found in form.rules]
    return np.array([one.share if isinstance(one, FamilyAtLevels) else 1.0 for one in statements])


def find_wholes(dual: Dual, solution: Solution, observed: LinearForm | None = None) -> Floats:
    """Return the denominators of the ratios in rules, (M,), and one for other rules.

    They are predicted, or observed if `observed` is given.
    """
    if not dual.form.has_quotients:
        return np.ones(dual.n_rules)
    total = dual.tally(solution.multipliers, whole=True)
    moments = total.moments if observed is None else total.observed
    assert moments is not None
    return measure_wholes(dual.form if observed is None else observed, moments / total.mass)


def fingerprint_rows(dual: Dual) -> Fingerprint:
    """Return the fingerprint of all rows of a dual, with the hashes of rows that are in memory.

    For rows in a database, it contains only their number.
    """
    if isinstance(dual.source, UnseenRows):
        return Fingerprint(dual.n_rows)
    if dual.source is not None:
        return dual.total(sum_hashes)[0].make_fingerprint()
    return Fingerprint.from_hashes(np.concatenate([hash_block(block) for block in dual.blocks]))


def sum_hashes(block: Block) -> TableSum:
    """Add up the hashes of the rows of a block, for a pass over all blocks."""
    return TableSum.from_hashes(hash_block(block))


def hash_block(block: Block) -> Hashes:
    """Return one hash per row, (n_rows,). Large blocks are processed in parts."""
    n_features = len(block.columns) if block.layout is None else block.layout.n_features
    if block.n_rows * n_features <= _TILE:
        return hash_features(block.features)
    width = max(_TILE // n_features, 1)
    parts = range(0, block.n_rows, width)
    return np.concatenate([hash_features(block.rows(slice(i, i + width)).features) for i in parts])


def make_corrected_policy(correction: Correction, found: CorrectedSolution) -> Policy:
    """Return the policy of a solution for observed rates."""
    fitted = describe_rates(correction, found)
    form, wholes = found.dual.form, _avoid_zero(find_wholes(found.dual, found.solution))
    tightened = found.shift * form.scales / wholes
    prices = compute_prices(form, found.solution.multipliers)
    if found.hard is None:
        units = wholes / form.scales
        prices = confirm_prices(correction, found, prices, units, find_shares(form))
    policy = make_policy(correction.facts.problem, found.dual, found.solution, tightened, fitted, prices)
    return policy if found.hard is None else add_hard(policy, found.hard)


def add_hard(policy: Policy, hard: HardDecisions) -> Policy:
    """Return the policy with the cost of its deterministic decisions."""
    return replace(policy, hard=hard, guarantee=replace(policy.guarantee, chance=hard.excess))


def describe_rates(correction: Correction, found: CorrectedSolution) -> FittedRates:
    """Return the observed rate of each rule on the fitted rows, in its own unit.

    The result also has the probability that all rules are satisfied on new rows.
    """
    wholes = find_wholes(found.dual, found.solution, correction.rates.form)
    scales = found.dual.form.scales / _avoid_zero(wholes)
    margins = np.maximum(found.target(found.rates) - found.rates.predicted - found.rates.error, 0.0)
    columns = (
        found.rates.observed * scales,
        correction.facts.errors.observed * scales,
        correction.facts.counts,
        np.where(correction.facts.exact, 1.0, correction.facts.trust),
        margins * scales,
    )
    chance, rows = correction.estimate_chance(found)
    rules = zip(found.dual.form.names, *(column.tolist() for column in columns), strict=True)
    softness = correction.dual.beta / found.dual.beta
    seen = bool(correction.facts.affected.any())
    return FittedRates(tuple(FittedRate(*rule) for rule in rules), chance, rows, softness, seen)


def list_missed(correction: Correction, found: CorrectedSolution) -> dict[str, float]:
    """Return {rule: violation} for the violated rules that have enough rows, in their own units."""
    rules = describe_rates(correction, found).rules
    missed = correction.facts.exact & (found.rates.observed > correction.tol)
    return {rules[j].rule: rules[j].excess for j in np.flatnonzero(missed)}


def _avoid_zero(wholes: Floats) -> Floats:
    """Replace denominators of zero by one, because a ratio 0/0 satisfies its rule in any unit."""
    return np.where(wholes > 0, wholes, 1.0)


def predict_actions(dual: Dual, multipliers: Floats, evidence: Evidence) -> Floats:
    """Return the probabilities of the actions on some rows, (n_rows, n_actions)."""
    form = dual.form
    return compute_probabilities(form.feature_map, form.score_matrix(multipliers), dual.beta, evidence).T


def make_guarantee(dual: Dual, solution: Solution, norms: tuple[float, float] | None = None) -> Guarantee:
    """Return the guarantee of a solution.

    `norms` are E||C(x)|| and E||C(x)||^2; without them, they are computed from the dual.
    """
    mean_norm, sigma2 = (dual.mean_norm, dual.sigma2) if norms is None else norms
    # The least Lagrangian, -F(lambda), is at most the cost of a policy with slack s less s ||lambda||_1.
    total = float(np.abs(solution.multipliers).sum())
    most_slack = max(dual.highest_cost + solution.value, 0.0) / total if total else math.inf
    return Guarantee(
        gradient_mapping=solution.gradient_mapping,
        multiplier_norm=float(np.linalg.norm(solution.multipliers)),
        alpha=dual.loss_unit,
        beta=dual.beta,
        sigma=math.sqrt(sigma2),
        smoothness=2 * dual.beta * sigma2,
        mean_norm=mean_norm,
        entropy=dual.form.action_space.entropy,
        rows=float(dual.n_rows),
        most_slack=most_slack,
    )


# Shadow prices. At a bound of zero, opposite rules hold with equality and their multipliers cancel, as do
# those of all groups against the overall rate: many multipliers lambda >= 0 give the same decisions, and with
# b = 0 they have the same value of the dual. Loosening all of these bounds by t saves t times the least sum
# of prices among them, because the least cost is convex in the bounds. A small linear program finds these
# prices.
#
# Multipliers give the same decisions if they differ by something that is the same for all actions of a row.
# Features depend on each other: the probabilities of all values of an attribute add up to that of the event
# alone. So the last value of each attribute is written as the remainder.


def compute_prices(form: LinearForm, multipliers: Floats) -> Floats:
    """Return the price of each rule, (M,): the saving per unit by which its bound is loosened."""
    return form.prices(find_least_multipliers(form, multipliers))


def find_least_multipliers(form: LinearForm, multipliers: Floats) -> Floats:
    """Return equivalent multipliers (M,), with the same decisions and the least sum of prices.

    Only multipliers of rules whose bound is zero change.
    """
    zero = np.flatnonzero(abs(form.bounds) <= 1e-12)
    # With more than 400 rules or a very large matrix, the linear program would take longer than the fit.
    small = 1 < len(zero) <= 400 and len(zero) * form.base.size <= 4_000_000
    if not small or not multipliers[zero].any():
        return multipliers
    # Compare actions by the coefficients of these rules, each in independent features: (P, n_rules).
    n_features, n_actions = form.base.shape
    couplings = as_dense(form.couplings[zero]).reshape(len(zero), n_features, n_actions)
    decisive = form.action_space.compare_actions(couplings)
    matrix = np.einsum("jfa,fc->jca", decisive, _find_basis(form.feature_map)).reshape(len(zero), -1).T
    matrix = matrix[abs(matrix).max(axis=1) > 0]
    if np.linalg.matrix_rank(matrix) == len(zero):
        return multipliers
    target = matrix @ multipliers[zero]
    answer = linprog(1 / form.scales[zero], A_eq=matrix, b_eq=target, bounds=(0, None), method="highs")
    if answer.x is None:
        return multipliers
    # Solve the equations again to the last digit, with the same rules.
    used = np.flatnonzero(answer.x > 1e-9 * answer.x.max(initial=0.0))
    least = np.zeros(len(zero))
    least[used] = np.maximum(np.linalg.lstsq(matrix[:, used], target, rcond=None)[0], 0.0)
    if abs(matrix @ least - target).max() > 1e-8 * max(float(abs(multipliers[zero]).max()), 1e-300):
        return multipliers
    changed = multipliers.copy()
    changed[zero] = least
    return changed


def _find_basis(feature_map: FeatureMap) -> Floats:
    """Return each feature as a combination of linearly independent features, (F, C)."""
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
    """Return an event as a signed sum of events without the last value of any attribute.

    This uses P(last value) = P(any value) - P(the other values).
    """
    parts: list[list[tuple[Conditions, float]]] = []
    for name, value in event:
        *others, last = values.get(name, (value, None))
        rest = [(((name, other),), -1.0) for other in others]
        parts.append([((), 1.0), *rest] if value == last else [(((name, value),), 1.0)])
    terms = []
    for combination in product(*parts):
        pairs = [pair for part, _ in combination for pair in part]
        terms.append((tuple(sorted(pairs, key=repr)), math.prod(sign for _, sign in combination)))
    return terms


def confirm_prices(
    correction: Correction, solved: CorrectedSolution, prices: Floats, units: Floats, shares: Floats
) -> Floats:
    """Return the prices (M,) of observed rules, corrected where refitting does not confirm their savings.

    A multiplier is the slope of the predicted cost. If a rule depends on few rows, or if a ratio reaches its
    bound at several prices, loosening the bound may change the observed cost by much less or much more. So
    the statements about ratios, and those whose promised saving exceeds the noise of the cost, are loosened
    by about one standard error of their rates and fitted again. If the actual saving is less than half or
    more than twice the promised one, the prices are rescaled to the actual saving.

    Parameters
    ----------
    correction : Correction
    solved : CorrectedSolution
    prices : array of shape (n_rules,)
        The prices to confirm.
    units : array of shape (n_rules,)
        The own unit of each rule, in units of the dual.
    shares : array of shape (n_rules,)
        The change of each rule's bound per unit of the level of its statement.
    """
    if not correction.facts.affected.any() or solved.solution.status is not Status.CONVERGED:
        return prices
    dual, multipliers, ratios = correction.dual, solved.solution.multipliers, correction.facts.ratios
    places = np.array([rule.place for rule in dual.form.rules])
    errors = np.zeros(places.max() + 1)
    np.maximum.at(errors, places, correction.facts.errors.observed / units)
    steps = errors[places] * shares * units
    is_ratio = np.zeros(len(places), bool) if ratios is None else ratios.chosen & correction.facts.affected
    confirmed, noise = prices.copy(), dual.loss_unit / math.sqrt(dual.n_rows)
    for place in np.unique(places):
        chosen = places == place
        promised = float(multipliers[chosen] @ steps[chosen])
        if promised <= noise and not (promised > 0 and is_ratio[chosen].any()):
            continue
        looser = dual.with_bounds(dual.form.bounds + np.where(chosen, steps, 0.0))
        answer = replace(correction.pose(solved.target), dual=looser).solve(multipliers)
        saving = correction.rates.measure_cost(solved.dual.tally(multipliers)) - answer.cost
        if not promised / 2 <= saving <= 2 * promised:
            confirmed[chosen] *= max(saving, NEGLIGIBLE * dual.loss_unit) / promised
    return confirmed
