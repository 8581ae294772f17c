"""From a solution to a policy, with what is known of its rates on the fitted rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bylaw._base.numeric import Hashes
from bylaw._base.runtime import find_stack_level
from bylaw._base.typing import Floats
from bylaw._base.validation import MIN_CELL
from bylaw.errors import ConvergenceWarning, GuaranteeWarning
from bylaw.language.expressions import LABEL, format_conditions
from bylaw.language.families import FamilyAtLevels
from bylaw.language.problem import ExpandedRule, Problem
from bylaw.policy.policy import Policy, compute_probabilities
from bylaw.policy.recognition import Fingerprint, TableSum, hash_features
from bylaw.program.blocks import Block
from bylaw.program.dual import Dual, RuleExcesses, UnseenRows
from bylaw.program.linear_form import LinearForm, measure_wholes
from bylaw.program.solution import FittedRate, FittedRates, Guarantee, HardDecisions, Solution, Status
from bylaw.reductions._observe import CHANCE, FEW_ROWS, LEAST_CHANCE, CorrectedSolution, Correction
from bylaw.reductions._shadow_prices import compute_prices, confirm_prices
from bylaw.rows.evidence import Evidence

_TILE = 2**19  # values of features at a time
_LISTED = 10  # rules in a warning
_NOTABLE = 2.0  # standard errors of a cost, its range over sqrt(n) at most: a difference that is no noise
_LEFT_OPEN = 3.0  # standard errors of a rate that a stochastic solver may miss a rule by


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
        in the rules' own units.
    fitted_rates : FittedRates, optional
    prices : array of shape (n_rules,), optional
        of the rules; by default those of the multipliers.
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
    """(M,): how far each rule moves with the level of its statement."""
    statements = [found.statement for found in form.rules]
    return np.array([one.share if isinstance(one, FamilyAtLevels) else 1.0 for one in statements])


def find_wholes(dual: Dual, solution: Solution, observed: LinearForm | None = None) -> Floats:
    """(M,): what the quotients in rules divide by, as predicted or in the form of observed rates; one for
    other rules."""
    if not dual.form.has_quotients:
        return np.ones(dual.n_rules)
    total = dual.tally(solution.multipliers, whole=True)
    moments = total.moments if observed is None else total.observed
    assert moments is not None
    return measure_wholes(dual.form if observed is None else observed, moments / total.mass)


def fingerprint_rows(dual: Dual) -> Fingerprint:
    """Return the fingerprint of all rows of a dual, with the hashes of rows that are in memory. Of rows in
    a database, only the number is known."""
    if isinstance(dual.source, UnseenRows):
        return Fingerprint(dual.n_rows)
    if dual.source is not None:
        return dual.total(sum_hashes)[0].make_fingerprint()
    return Fingerprint.from_hashes(np.concatenate([hash_block(block) for block in dual.blocks]))


def sum_hashes(block: Block) -> TableSum:
    """Add up the hashes of the rows of a block. This is a pass."""
    return TableSum.from_hashes(hash_block(block))


def hash_block(block: Block) -> Hashes:
    """Return one hash per row, (n_rows,). With many groups, a block has many rows and features, and is
    cut."""
    n_features = len(block.columns) if block.cells is None else block.cells.layout.n_features
    if block.n_rows * n_features <= _TILE:
        return hash_features(block.features)
    width = max(_TILE // n_features, 1)
    parts = range(0, block.n_rows, width)
    return np.concatenate([hash_features(block.rows(slice(i, i + width)).features) for i in parts])


def make_corrected_policy(correction: Correction, found: CorrectedSolution) -> Policy:
    """The policy of a corrected solution; warns of the rules that it misses as observed."""
    fitted = describe_rates(correction, found)
    _warn_if_missed(correction, found, fitted)
    _warn_of_empty_cells(correction)
    _warn_if_dominated(correction, found)
    form, wholes = found.dual.form, _avoid_zero(find_wholes(found.dual, found.solution))
    tightened = found.shift * form.scales / wholes
    prices = compute_prices(form, found.solution.multipliers)
    if found.hard is None:
        units = wholes / form.scales
        prices = confirm_prices(correction, found, prices, units, find_shares(form))
    policy = make_policy(correction.problem, found.dual, found.solution, tightened, fitted, prices)
    return policy if found.hard is None else add_hard(policy, found.hard)


def add_hard(policy: Policy, hard: HardDecisions) -> Policy:
    """A policy without chance, with what that costs."""
    return replace(policy, hard=hard, guarantee=replace(policy.guarantee, chance=hard.excess))


def describe_rates(correction: Correction, found: CorrectedSolution) -> FittedRates:
    """Each rule on the fitted rows, in its own unit, and the chance that all hold on others."""
    wholes = find_wholes(found.dual, found.solution, correction.rates.form)
    scales = found.dual.form.scales / _avoid_zero(wholes)
    margins = np.maximum(found.target(found.rates) - found.rates.predicted - found.rates.error, 0.0)
    columns = (
        found.rates.observed * scales,
        correction.errors.observed * scales,
        correction.counts,
        np.where(correction.exact, 1.0, correction.trust),
        margins * scales,
    )
    chance, rows = correction.estimate_chance(found)
    rules = zip(found.dual.form.names, *(column.tolist() for column in columns), strict=True)
    softness = correction.dual.beta / found.dual.beta
    seen = bool(correction.affected.any())
    return FittedRates(tuple(FittedRate(*rule) for rule in rules), chance, rows, softness, seen)


def list_missed(correction: Correction, found: CorrectedSolution) -> dict[str, float]:
    """The rules that enough rows show to be missed as observed, and by how much, in their own units."""
    rules = describe_rates(correction, found).rules
    missed = correction.exact & (found.rates.observed > correction.tol)
    return {rules[j].rule: rules[j].excess for j in np.flatnonzero(missed)}


def _avoid_zero(wholes: Floats) -> Floats:
    """A quotient that divides by nothing holds, whatever its unit."""
    return np.where(wholes > 0, wholes, 1.0)


def _warn_if_missed(correction: Correction, found: CorrectedSolution, fitted: FittedRates) -> None:
    missed = found.rates.observed > correction.tol
    if missed[correction.exact].any() and found.hard is None:  # without chance, ties are the reason
        listed = _list_rules(fitted, missed & correction.exact)
        message = (
            f"the observed rates of these rows do not satisfy every rule: {listed}. The scores tell too "
            "little about it: loosen the rule, merge small groups, or give better probabilities"
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=find_stack_level())
    few = correction.conditional & (correction.counts < FEW_ROWS)
    coarse = find_coarse_rules(correction.dual.form.rules, correction.counts)
    few |= coarse
    if correction.rates.empty:  # cells that no row shows have a warning of their own
        few &= correction.rates.visible
    if (named := few | (~correction.exact & missed)).any():
        message = (
            f"too few rows show {int(named.sum())} of the rules to tell whether they hold on others, and "
            f"predicted rates count more there: {_list_rules(fitted, named, coarse)}. Merge small groups, "
            "loosen these rules, or add rows"
        )
        warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def warn_of_small_chance(correction: Correction, found: CorrectedSolution) -> None:
    """Warn if, with an automatic margin, rules that hold on the fitted rows are likely to be violated on
    others."""
    chance, rows = correction.estimate_chance(found)
    if chance >= LEAST_CHANCE or found.solution.status is Status.MISSED:
        return
    needed = "" if math.isinf(rows) else f", or fit about {rows:,.0f} rows"
    message = (
        "the rules hold on the fitted rows, but all of them hold on many new rows with a chance of "
        f"{chance:.0%} only, as no margin that leaves a policy at a reasonable cost reaches the {CHANCE:.0%} "
        f"that margin='auto' aims at. Loosen the rules, merge small groups{needed}"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def _warn_of_empty_cells(correction: Correction) -> None:
    """Warn of cells that no fitted row shows: their rules in a family hold as predicted."""
    if correction.rates.empty:
        cells = "; ".join(map(format_conditions, correction.rates.empty))
        message = (
            f"no row shows {cells}: rules about such rows hold as predicted by the probabilities, and it is "
            "unknown whether they hold as observed. Merge the group with another, or add rows"
        )
        warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def _warn_if_dominated(correction: Correction, found: CorrectedSolution) -> None:
    """Warn if a constant decision on some of the rows satisfies the rules and costs less, as observed."""
    if not correction.rows.observed or correction.dual.source is not None:
        return
    here = correction.rates.measure_cost(found.dual.tally(found.solution.multipliers))
    cheaper = correction.stated.mixture
    noise = _NOTABLE * correction.dual.loss_unit / math.sqrt(correction.dual.n_rows)
    if here <= max(correction.stated.most_cost, cheaper.cost + noise):
        return
    action = correction.dual.form.action_space.actions[cheaper.action]
    where = f"{cheaper.share:.0%} of the rows, drawn at random," if cheaper.share < 1 else "all rows"
    message = (
        f"a simple policy satisfies every rule and costs {cheaper.cost:.4g} on these rows, where this one "
        f"costs {here:.4g}: {action!r} on {where} and otherwise decisions without rules. The scores tell too "
        "little about what was observed: give better probabilities, or more rows"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def warn_of_small_groups(policy: Policy, evidence: Evidence) -> None:
    """Warn once of all groups with few rows that rules refer to. Where rates were observed, `_warn_if_missed`
    has listed their rules; in tables of fewer than a hundred rows every group is small."""
    rows = policy.guarantee.rows
    if policy.fitted_rates is not None or not rows >= 10 * MIN_CELL:
        return
    counts = {}
    for event, share in policy.frequencies.items():
        if group := tuple(condition for condition in event if condition[0] != LABEL):
            in_memory = evidence.margins is None
            counts[group] = evidence.count_effective(group) if in_memory else share * rows
    small = sorted((count, format_conditions(group)) for group, count in counts.items() if count < MIN_CELL)
    if small:
        named = "; ".join(f"{group} has {count:,.0f} rows" for count, group in small[:_LISTED])
        more = f"; and {len(small) - _LISTED} more" if len(small) > _LISTED else ""
        message = (
            f"rules refer to groups with fewer than {MIN_CELL} rows ({named}{more}): whether rules hold "
            "there cannot be assessed, and the weights of the policy, which its file states exactly, can "
            "tell about single rows of such groups. Merge them with others, or leave them out of the rules"
        )
        warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def find_coarse_rules(rules: Sequence[ExpandedRule], counts: Floats) -> NDArray[np.bool_]:
    """(M,): rules whose tolerance is finer than their rows can show: one of the `counts` (M,) rows of a group
    moves its rate by more."""
    return counts * np.array([found.tolerance for found in rules]) < 1


def _list_rules(
    fitted: FittedRates, chosen: NDArray[np.bool_], coarse: NDArray[np.bool_] | None = None
) -> str:
    """The names of some rules, those that are missed most first, by how much, and what one row counts."""
    order = sorted(np.flatnonzero(chosen).tolist(), key=lambda j: -fitted.rules[j].excess)
    listed = []
    for j in order[:_LISTED]:
        one, is_coarse = fitted.rules[j], coarse is not None and coarse[j]
        found = f"is missed by {one.excess:.3g}" if one.excess > 0 else "holds"
        one_row = f"; one row counts {1 / one.rows:.2g}" if is_coarse else ""
        listed.append(
            f"{one.rule!r} {found} ({one.rows:,.0f} rows, standard error {one.standard_error:.2g}{one_row})"
        )
    more = len(order) - len(listed)
    return "; ".join(listed) + (f"; and {more} more, see policy.observed" if more else "")


def warn_of_missed_rules(form: LinearForm, solution: Solution, found: RuleExcesses, tol: float = 0.0) -> None:
    """Where a policy misses rules by more than its solver may: the tolerance and, for a stochastic one, what
    the standard errors of the rates leave open."""
    sampled = solution.status is Status.SAMPLED
    missed = found.mean > tol + (_LEFT_OPEN * found.standard_errors if sampled else 0.0)
    if not missed.any() and solution.status in (Status.SAMPLED, Status.CONVERGED):
        return
    excesses, errors = found.mean * form.scales, found.standard_errors * form.scales
    worst = int(np.argmax(np.where(missed, excesses, -math.inf) if missed.any() else excesses))
    reached = f"the gradient mapping is {solution.gradient_mapping:.3g}"
    if not sampled:
        reached += (
            " by the solver's account" if solution.status is Status.CONVERGED else f", above tol={tol:g}"
        )
    message = (
        f"{reached}: {solution.status.value}. Of the rules, {form.names[worst]!r} is missed most, by "
        f"{max(float(excesses[worst]), 0.0):.3g}"
    )
    if sampled:
        message += f" (standard error {errors[worst]:.2g})"
    if missed.sum() > 1:
        message += f"; {missed.sum()} rules are missed in all"
    warnings.warn(ConvergenceWarning(message, solution.status.remedy), stacklevel=find_stack_level())


def predict_actions(dual: Dual, multipliers: Floats, evidence: Evidence) -> Floats:
    """(n_rows, n_actions): the probabilities of the actions on some rows."""
    form = dual.form
    return compute_probabilities(form.feature_map, form.score_matrix(multipliers), dual.beta, evidence).T


def make_guarantee(dual: Dual, solution: Solution, norms: tuple[float, float] | None = None) -> Guarantee:
    """`norms` are E||C(x)|| and E||C(x)||^2, where they are known without a pass over the rows."""
    mean_norm, sigma2 = (dual.mean_norm, dual.sigma2) if norms is None else norms
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
        most_slack=_bound_slack(dual, solution),
    )


def _bound_slack(dual: Dual, solution: Solution) -> float:
    """No policy satisfies all rules by more: for one that does by s, the least Lagrangian, -F(lambda), is at
    most its cost less s ||lambda||_1."""
    total = float(np.abs(solution.multipliers).sum())
    return max(dual.highest_cost + solution.value, 0.0) / total if total else math.inf
