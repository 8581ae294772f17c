"""Warnings about a fitted policy: violated rules, small groups, vacuous rules and equivalent actions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bylaw._base import MIN_CELL, Floats, Value, find_stack_level
from bylaw.engines import SurveyedTable
from bylaw.errors import BylawError, ConvergenceWarning, GuaranteeWarning
from bylaw.language import LABEL, ExpandedRule, Problem, Rate, Rule, Worst, format_conditions
from bylaw.policy import Policy
from bylaw.program import (
    FittedRates,
    LinearForm,
    RuleExcesses,
    Solution,
    Status,
    compile_problem,
    count_denominator,
    has_rows,
    measure_rate,
)
from bylaw.reductions._observe import CHANCE, FEW_ROWS, LEAST_CHANCE, CorrectedSolution, Correction
from bylaw.rows import Evidence
from bylaw.solvers import FullBatch

if TYPE_CHECKING:
    from bylaw.reductions._fitter import Fitter

FEWEST_DECIDED = 0.5  # with fewer expected rows in its denominator, a ratio counts as 0/0


def _warn(message: str, category: type[Warning] = GuaranteeWarning) -> None:
    warnings.warn(message, category, stacklevel=find_stack_level())


def _shorten(items: Sequence[str], most: int, ending: str = "") -> str:
    """Join the first items, and add the number of further items."""
    more = f"; and {len(items) - most} more{ending}" if len(items) > most else ""
    return "; ".join(items[:most]) + more


# Rules that are violated, and rows that are too few.


def warn_of_violations(form: LinearForm, solution: Solution, found: RuleExcesses, tol: float = 0.0) -> None:
    """Warn if a policy violates rules on predicted rates by more than the tolerance.

    Stochastic solvers may violate a rule by three further standard errors of its rate.
    """
    sampled = solution.status is Status.SAMPLED
    violated = found.mean > tol + (3.0 * found.standard_errors if sampled else 0.0)
    if not violated.any() and solution.status in (Status.SAMPLED, Status.CONVERGED):
        return
    excesses, errors = found.mean * form.scales, found.standard_errors * form.scales
    worst = int(np.argmax(np.where(violated, excesses, -math.inf) if violated.any() else excesses))
    reached = f"the gradient mapping is {solution.gradient_mapping:.3g}"
    if not sampled:
        converged = solution.status is Status.CONVERGED
        reached += " according to the solver" if converged else f", above tol={tol:g}"
    message = (
        f"{reached}: {solution.status.value}. Of the rules, {form.names[worst]!r} is violated most, by "
        f"{max(float(excesses[worst]), 0.0):.3g}"
    )
    if sampled:
        message += f" (standard error {errors[worst]:.2g})"
    if violated.sum() > 1:
        message += f"; {violated.sum()} rules are violated in all"
    error = ConvergenceWarning(message, solution.status.remedy)
    warnings.warn(error, stacklevel=find_stack_level())


def warn_of_observed_rates(correction: Correction, solved: CorrectedSolution, policy: Policy) -> None:
    """Warn of rules that observed rates violate, and of rules with too few rows."""
    fitted = policy.fitted_rates
    assert fitted is not None
    violated = solved.rates.observed > correction.tol
    if violated[correction.facts.exact].any() and solved.hard is None:  # ties have another warning
        listed = _list_rules(fitted, violated & correction.facts.exact)
        _warn(
            f"the observed rates of these rows violate rules: {listed}. The probabilities predict these "
            "rates too poorly; loosen the rules, merge small groups, or use better probabilities",
            ConvergenceWarning,
        )
    few = correction.facts.conditional & (correction.facts.counts < FEW_ROWS)
    coarse = find_coarse_rules(correction.dual.form.rules, correction.facts.counts)
    few |= coarse
    if correction.rates.empty:  # conditions that no row meets have another warning
        few &= correction.rates.visible
    if (named := few | (~correction.facts.exact & violated)).any():
        _warn(
            f"{int(named.sum())} rules are about too few rows to estimate their rates, so the fit relies on "
            f"predicted rates for them: {_list_rules(fitted, named, coarse)}. Merge small groups, loosen "
            "these rules, or add rows"
        )
    if correction.rates.empty:
        cells = "; ".join(map(format_conditions, correction.rates.empty))
        _warn(
            f"no row was observed with {cells}: rules about such rows hold for the predicted rates, and it "
            "is unknown whether they hold for the observed ones. Merge the group with another, or add rows"
        )
    if correction.facts.rows.observed and correction.dual.source is None:
        _warn_of_simple_policies(correction, solved)


def _warn_of_simple_policies(correction: Correction, solved: CorrectedSolution) -> None:
    """Warn if a constant decision on some of the rows satisfies the observed rules at a lower cost."""
    cost = correction.rates.measure_cost(solved.dual.tally(solved.solution.multipliers))
    simple = correction.stated.mixture
    noise = 2.0 * correction.dual.loss_unit / math.sqrt(correction.dual.n_rows)  # two standard errors
    if cost > max(correction.stated.most_cost, simple.cost + noise):
        action = correction.dual.form.action_space.actions[simple.action]
        where = f"{simple.share:.0%} of the rows, drawn at random," if simple.share < 1 else "all rows"
        _warn(
            f"a simple policy satisfies every rule and costs {simple.cost:.4g} on these rows, where this one "
            f"costs {cost:.4g}: {action!r} on {where} and otherwise decisions without rules. The "
            "probabilities predict the observed labels too poorly; use better probabilities, or more rows"
        )


def warn_of_small_chance(correction: Correction, solved: CorrectedSolution) -> None:
    """Warn if rules fitted with margin="auto" are likely to be violated on new rows."""
    chance, rows = correction.estimate_chance(solved)
    if chance >= LEAST_CHANCE or solved.solution.status is Status.MISSED:
        return
    needed = "" if math.isinf(rows) else f", or fit about {rows:,.0f} rows"
    _warn(
        "the rules hold on the fitted rows, but the probability that all of them hold on new rows is only "
        f"{chance:.0%}: no margin at a reasonable cost reaches the {CHANCE:.0%} that margin='auto' aims at. "
        f"Loosen the rules, merge small groups{needed}"
    )


def warn_of_small_groups(policy: Policy, evidence: Evidence) -> None:
    """Give one warning that lists all groups in rules that have few rows.

    Policies for observed rates have another warning. Tables of fewer than ten times the minimum size of a
    group are ignored, because all of their groups are small.
    """
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
        named = _shorten([f"{group} has {count:,.0f} rows" for count, group in small], 10)
        _warn(
            f"rules refer to groups with fewer than {MIN_CELL} rows ({named}). It is unknown whether the "
            "rules hold for these groups, and the exact weights in the policy's file can reveal single rows "
            "of such groups. Merge them with other groups, or leave them out of the rules"
        )


def find_coarse_rules(rules: Sequence[ExpandedRule], counts: Floats) -> NDArray[np.bool_]:
    """Return whether one of the `counts` rows of a rule changes its rate by more than its tolerance, (M,)."""
    return counts * np.array([one.tolerance for one in rules]) < 1


def _list_rules(
    fitted: FittedRates, chosen: NDArray[np.bool_], coarse: NDArray[np.bool_] | None = None
) -> str:
    """Return a text that lists some rules, the most violated first, with the effect of a single row."""
    listed = []
    for j in sorted(np.flatnonzero(chosen).tolist(), key=lambda j: -fitted.rules[j].excess):
        rate, is_coarse = fitted.rules[j], coarse is not None and coarse[j]
        state = f"is violated by {rate.excess:.3g}" if rate.excess > 0 else "holds"
        one_row = f"; one row counts {1 / rate.rows:.2g}" if is_coarse else ""
        error = f"standard error {rate.standard_error:.2g}"
        listed.append(f"{rate.rule!r} {state} ({rate.rows:,.0f} rows, {error}{one_row})")
    return _shorten(listed, 10, ", see policy.observed")


# Vacuous rules: rules on ratios that are satisfied only because the denominator is zero. A floor on the
# precision of "fraud" that no row reaches is satisfied by never deciding "fraud": its rate is 0/0, and its
# shadow price is zero although the rule affects every row.


def mark_vacuous_rules(policy: Policy, fitter: Fitter) -> Policy:
    """Return the policy with the names of its vacuous rules, and warn of them.

    A rule on a ratio is vacuous if its denominator is zero. The rows of a database are not checked.
    """
    if isinstance(fitter.surveyed, SurveyedTable):
        return policy
    rows, space = fitter.outcome, policy.action_space
    expanded = policy.problem.expand(rows.classes, rows.group_values, space.options)
    ratios = [one for one in expanded if _divides_by_decisions(one.rule, policy)]
    ratios = [one for one in ratios if has_rows(one.rule.excess, rows)]
    if not ratios:
        return policy
    chances = policy.probabilities(fitter.evidence)
    vacuous = [one for one in ratios if count_denominator(one.rule, rows, chances, space) < FEWEST_DECIDED]
    if not vacuous:
        return policy
    statements = {one.place: one for one in reversed(vacuous)}
    described = [_describe_vacuous(statements[place], policy, fitter) for place in sorted(statements)[:3]]
    more = len(statements) - len(described)
    _warn("; ".join(described) + (f"; and {more} more rules like this, see policy.vacuous" if more else ""))
    return replace(policy, vacuous=tuple(str(one.rule) for one in vacuous))


def _divides_by_decisions(rule: Rule, policy: Policy) -> bool:
    """Return whether a rule is on a ratio whose denominator counts decisions."""
    atoms = [atom for rate in rule.denominators for atom, _ in rate.terms]
    terms = [term for atom in atoms for term in atom.meaning(policy.action_space).terms]
    return bool(terms) and all(term.label is None and term.source is None for term in terms)


def _describe_vacuous(one: ExpandedRule, policy: Policy, fitter: Fitter) -> str:
    """Return the text of a warning of a vacuous rule: its cause, its cost, and advice."""
    problem, rows, minimize = policy.problem, fitter.outcome, policy.problem.minimize

    def measure_cost(policy: Policy) -> float:
        return policy.expected(minimize, rows, probabilities=policy.probabilities(fitter.evidence))

    zeros = []
    for atom in (atom for rate in one.rule.denominators for atom, _ in rate.terms):
        among = f" among rows with {format_conditions(atom.conditions)}" if atom.conditions else ""
        never = f"{atom.decided!r} is never decided{among}"
        zeros.append(f"{atom} is zero" if atom.decided is None else never)
    message = (
        f"{one.rule} holds only because {' and '.join(zeros)} on these {len(rows):,} rows: its rate "
        f"is 0/0, and {minimize} is {measure_cost(policy):.4g}"
    )
    advice = "Loosen the rule to a level that decisions can reach; use frontier() to find such a level"
    if fitter.surveyed is not None or len(rows) > 20_000:  # the fits below would take more than a second
        return f"{message}. {advice}"
    again = replace(fitter, solver=FullBatch(), certifying=None, callback=None)
    others = [rule for i, rule in enumerate(problem.rules) if i != one.place]
    free = _fit_quietly(again, problem.with_rules(others))
    if free is None:
        return f"{message}. {advice}"
    message += f" ({round(measure_cost(free), 12):.4g} without the rule)"
    if not _reaches(one.rule, free, again):
        return f"{message}. Without the rule, the result is the same; leave it out"
    reach = _find_reach(problem, one.place, free, again)
    if reach is None:
        return f"{message}. {advice}"
    best = "highest" if one.rule.sense == ">=" else "lowest"
    return (
        f"{message}. The {best} level that decisions reach on these rows is about {reach:g}: loosen the rule "
        f"to {problem.rules[one.place].at(reach)} or further, or use better probabilities"
    )


def _reaches(rule: Rule, policy: Policy | None, fitter: Fitter) -> bool:
    """Return whether the denominators of a rule are positive under a policy."""
    if policy is None:
        return False
    chances = policy.probabilities(fitter.evidence)
    return count_denominator(rule, fitter.outcome, chances, policy.action_space) >= FEWEST_DECIDED


def _find_reach(problem: Problem, place: int, free: Policy, fitter: Fitter) -> float | None:
    """Return the tightest level of a rule at which its ratio is not 0/0, by bisection.

    The search starts at the level of the policy without the rule. Return None if that policy does not satisfy
    a looser level.
    """
    rule, rows = problem.rules[place], fitter.outcome
    if not isinstance(rule, Rule):
        return None
    loose = measure_rate(rule.bounded, rows, free.probabilities(fitter.evidence), free.action_space)
    loose += 0.0 if rule.factor is not None else rule.left.constant
    tight = rule.level
    if not (loose - tight) * rule.loosening > 0:  # this includes NaN
        return None
    for _ in range(8):  # to less than half a percentage point
        middle = (loose + tight) / 2
        rules = [rule.at(middle) if i == place else other for i, other in enumerate(problem.rules)]
        reached = _reaches(rule, _fit_quietly(fitter, problem.with_rules(rules)), fitter)
        loose, tight = (middle, tight) if reached else (loose, middle)
    step = math.floor if rule.loosening < 0 else math.ceil
    return step(100 * loose) / 100


def _fit_quietly(fitter: Fitter, problem: Problem) -> Policy | None:
    """Return the policy of another problem on the same rows, or None if the fit fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fitter.fit(problem)
        except BylawError:
            return None


# Actions that neither the objective nor the rules distinguish. Under `1 - f1("fraud")`, all labels but
# "fraud" are equivalent, and so is a rejection. A rule that distinguishes two of them, such as
# rejected() <= 0.1, is then satisfied by random decisions, at a price of about zero.


def warn_of_alike_actions(policy: Policy, evidence: Evidence) -> None:
    """Warn of equivalent actions, and suggest a problem that distinguishes them.

    `evidence` contains the fitted rows, or a sample of them.
    """
    alike = find_alike_actions(policy, evidence)
    if not alike:
        return
    first, *others = alike[:4]
    names = ", ".join(map(repr, [first, *others[:-1]])) + f" and {others[-1]!r}"
    more = f" ({len(alike) - 4} more are like them)" if len(alike) > 4 else ""
    how = "always takes the first of" if policy.deterministic else "chooses at random between"
    minimize = policy.problem.minimize
    if isinstance(minimize, Worst) or not set(alike).intersection(policy.action_space.classes):
        advice = "Minimize a sum that gives each a different cost, or remove all of them but one"
    elif evidence.margins is not None:  # the evidence is a sample of out-of-memory rows
        advice = f"To decide by errors, minimize {minimize} + 0.1 * error()"
    else:
        value = policy.expected(minimize, evidence)
        level = value + 0.005 * abs(value) or 0.001
        unit = 10.0 ** (math.floor(math.log10(abs(level))) - 2)  # three digits, as they are printed
        rules = "its rules and " if policy.problem.rules else ""
        bound = f"{minimize} <= {math.ceil(level / unit) * unit:g}"
        advice = f"To decide by errors, minimize error() subject to {rules}{bound}"
    _warn(
        f"the policy {how} {names}{more}: neither minimize={minimize} nor a binding rule distinguishes "
        f"them. {advice}"
    )


def find_alike_actions(policy: Policy, evidence: Evidence) -> tuple[Value, ...]:
    """Return actions with the same cost and nearly the same scores on all rows, or an empty tuple.

    The result is also empty for prediction sets.
    """
    rates = _list_objectives(policy)
    if not policy.action_space.rivals or not rates:
        return ()
    problems = [policy.problem.with_objective(rate) for rate in rates]
    losses = np.vstack(
        [compile_problem(one, evidence, policy.frequencies, rules=()).base for one in problems]
    )
    weights = policy.score_matrix * _measure_features(policy, evidence)[:, None]  # (F, A)
    # Odds of e^7: one row in a thousand is decided at random. For deterministic decisions, only ties matter.
    tie = 1e-6 * policy.guarantee.alpha if policy.deterministic else 0.0
    tolerance = max(7.0 / policy.beta, tie)
    # Projections with factors of at most one are no further apart than columns are: few need be compared.
    shadows = np.array([np.cos(np.arange(len(part))) @ part for part in (losses, weights)])  # (2, A)
    slack = tolerance + 1e-12 * abs(shadows).max()
    for k, action in enumerate(policy.action_space.rivals):
        near = np.flatnonzero((abs(shadows - shadows[:, [k]]) <= slack).all(axis=0))
        same = (losses[:, near] == losses[:, [k]]).all(axis=0)
        same &= abs(weights[:, near] - weights[:, [k]]).sum(axis=0) <= tolerance
        if same.sum() > 1:
            return (action, *(policy.actions[j] for j in near[same] if j != k))
    return ()


def _list_objectives(policy: Policy) -> list[Rate]:
    """Return the linear rates in the objective; empty if it contains a product."""
    minimize = policy.problem.minimize
    if isinstance(minimize, Worst):
        return [minimize.rate]
    resolved = minimize.resolve(policy.action_space.classes)
    if (ratio := resolved.split()) is not None:
        return [ratio.numerator, ratio.denominator]
    return [resolved] if isinstance(resolved, Rate) and resolved.is_linear else []


def _measure_features(policy: Policy, evidence: Evidence) -> Floats:
    """Return the largest absolute value of each feature on about a thousand rows, (F,).

    Without rows, probabilities are bounded by one, and other columns by a very large number.
    """
    features = policy.feature_map.features
    if not len(evidence):
        return np.array([1.0 if feature.source is None else 1e100 for feature in features])
    rows = policy.feature_map.admit(evidence.rows(slice(None, None, math.ceil(len(evidence) / 1000))))
    columns = policy.feature_map.columns(rows, slice(None), np.empty((len(features), len(rows))))
    return abs(columns).max(axis=1)
