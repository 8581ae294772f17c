"""Rules on ratios that hold only because what they divide by is zero: found after a fit, and warned of.

A floor on the precision of "fraud" that no row reaches is satisfied by never deciding "fraud": its rate is
0/0, and its shadow price is zero although the rule decides every row.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

from bylaw._base.runtime import find_stack_level
from bylaw.engines.databases import SurveyedTable
from bylaw.errors import BylawError, GuaranteeWarning
from bylaw.language.expressions import Rule, format_conditions
from bylaw.language.problem import ExpandedRule, Problem
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import count_denominator, has_rows, list_denominators, measure_rate
from bylaw.reductions._fitter import Fitter
from bylaw.solvers.full_batch import FullBatch

_FEWEST = 0.5  # expected rows that a ratio counts: with fewer, no decision is likely to be among them
_MOST_ROWS = 20_000  # on which a reachable level is searched: ten more fits of these take about a second
_HALVINGS = 8  # of the levels in between, which leaves less than half a point
_LISTED = 3  # rules in a warning


def mark_vacuous_rules(policy: Policy, fitter: Fitter) -> Policy:
    """Return the policy with the names of its vacuous rules, and warn of them.

    Parameters
    ----------
    policy : Policy
        that the fitter returned.
    fitter : Fitter
        whose rows it was fitted on; of scanned rows, their sample. The rows of a database are not read.
    """
    if isinstance(fitter.surveyed, SurveyedTable):
        return policy
    rows, space = fitter.outcome, policy.action_space
    stated = policy.problem.expand(rows.classes, rows.group_values, space.options)
    ratios = [found for found in stated if _divides_by_decisions(found.rule, policy)]
    ratios = [found for found in ratios if has_rows(found.rule.excess, rows)]
    if not ratios:
        return policy
    probabilities = policy.probabilities(fitter.evidence)
    vacuous = [
        found for found in ratios if count_denominator(found.rule, rows, probabilities, space) < _FEWEST
    ]
    if not vacuous:
        return policy
    statements = {found.place: found for found in reversed(vacuous)}
    described = [_describe(statements[place], policy, fitter) for place in sorted(statements)[:_LISTED]]
    more = len(statements) - len(described)
    warnings.warn(
        "; ".join(described) + (f"; and {more} more rules like this, see policy.vacuous" if more else ""),
        GuaranteeWarning,
        stacklevel=find_stack_level(),
    )
    return replace(policy, vacuous=tuple(str(found.rule) for found in vacuous))


def _divides_by_decisions(rule: Rule, policy: Policy) -> bool:
    """Whether a rule is on a ratio whose denominator counts decisions: an error rate may well be zero."""
    atoms = [atom for rate in list_denominators(rule) for atom, _ in rate.terms]
    terms = [term for atom in atoms for term in atom.meaning(policy.action_space).terms]
    return bool(terms) and all(term.label is None and term.source is None for term in terms)


def _describe(found: ExpandedRule, policy: Policy, fitter: Fitter) -> str:
    """Which rule is vacuous, what it costs, and what to do."""
    problem, rows, minimize = policy.problem, fitter.outcome, policy.problem.minimize
    cost = policy.expected(minimize, rows, probabilities=policy.probabilities(fitter.evidence))
    message = (
        f"{found.rule} holds only because {_describe_denominators(found.rule)} on these {len(rows):,} rows: "
        f"the rate that it bounds is 0/0, and {minimize} is {cost:.4g}"
    )
    advice = "Loosen the rule to a level that decisions reach; a frontier over its level shows which"
    if fitter.surveyed is not None or len(rows) > _MOST_ROWS:
        return f"{message}. {advice}"
    again = replace(fitter, solver=FullBatch(), certifying=None, callback=None)
    others = [rule for i, rule in enumerate(problem.rules) if i != found.place]
    free = _fit_quietly(again, problem.with_rules(others))
    if free is None:
        return f"{message}. {advice}"
    cost = free.expected(minimize, rows, probabilities=free.probabilities(fitter.evidence))
    message += f" ({round(cost, 12):.4g} without the rule)"
    chances = free.probabilities(fitter.evidence)
    if count_denominator(found.rule, rows, chances, free.action_space) < _FEWEST:
        return f"{message}. The same is so without the rule, which has no effect here: leave it out"
    reach = _find_reach(problem, found.place, free, again)
    if reach is None:
        return f"{message}. {advice}"
    best = "highest" if found.rule.sense == ">=" else "lowest"
    return (
        f"{message}. The {best} level that decisions reach on these rows is about {reach:g}: loosen the rule "
        f"to {problem.rules[found.place].at(reach)} or further, or give better probabilities"
    )


def _describe_denominators(rule: Rule) -> str:
    """In words: 'fraud' is never decided."""
    atoms = [atom for rate in list_denominators(rule) for atom, _ in rate.terms]
    said = []
    for atom in atoms:
        among = f" among rows with {format_conditions(atom.conditions)}" if atom.conditions else ""
        never = f"{atom.decided!r} is never decided{among}"
        said.append(f"{atom} is zero" if atom.decided is None else never)
    return " and ".join(said)


def _find_reach(problem: Problem, place: int, free: Policy, fitter: Fitter) -> float | None:
    """Return the tightest level of a rule at which its ratio is not 0/0, by halving from the level that the
    policy without the rule has; None where it has no level, or is 0/0 there, too."""
    rule, rows = problem.rules[place], fitter.outcome
    if not isinstance(rule, Rule):
        return None
    loose = measure_rate(rule.bounded, rows, free.probabilities(fitter.evidence), free.action_space)
    loose += 0.0 if rule.factor is not None else rule.left.constant
    tight = rule.level
    if not (loose - tight) * rule.loosening > 0:  # also where it is not a number
        return None
    for _ in range(_HALVINGS):
        middle = (loose + tight) / 2
        rules = [rule.at(middle) if i == place else other for i, other in enumerate(problem.rules)]
        found = _fit_quietly(fitter, problem.with_rules(rules))
        rows_decided = 0.0
        if found is not None:
            chances = found.probabilities(fitter.evidence)
            rows_decided = count_denominator(rule, rows, chances, found.action_space)
        reached = rows_decided >= _FEWEST
        loose, tight = (middle, tight) if reached else (loose, middle)
    step = math.floor if rule.loosening < 0 else math.ceil
    return step(100 * loose) / 100


def _fit_quietly(fitter: Fitter, problem: Problem) -> Policy | None:
    """Return the policy of another problem on the same rows; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fitter.fit(problem)
        except BylawError:
            return None
