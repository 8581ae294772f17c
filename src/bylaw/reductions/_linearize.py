"""Problems that are not linear, solved as linear problems around their solutions.

Predictive parity compares ratios. With one level c for each label it becomes linear: the precision of each
group is within the tolerance of c and, if groups are compared with all rows, the overall precision equals c.
The prices of these rules give the derivative of the least cost with respect to c, with which the best c is
searched for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bylaw._base import Floats, Value, find_stack_level
from bylaw.errors import ConvergenceWarning
from bylaw.language import (
    ExpandedRule,
    Family,
    FamilyAtLevels,
    Problem,
    Rate,
    Ratio,
    Rule,
    Statement,
    hold_within,
    precision,
)
from bylaw.policy import Policy, compute_probabilities
from bylaw.program import FittedRate, RulePrice, measure_rate, measure_wholes
from bylaw.reductions._objectives import (
    ROUGHLY,
    SETTLED,
    VANISHES,
    Solved,
    WarmSolver,
    expand_ratio,
    find_ratio_or_rate,
    minimize_objective,
)
from bylaw.rows import Evidence, RowData

_STEPS = 30  # iterations of the descent to the best levels
_GRID = np.linspace(-0.5, 0.5, 25)  # first steps from a level
_NEAR = np.linspace(-0.04, 0.04, 5)  # steps from the level of a similar problem
_SCALES = (1.0, 0.1, 0.01)  # factors of these steps, one after the other
_SCANNED_ROWS = 20_000  # rows on which these steps are tried; more rows take longer for the same result
_FARTHEST = 1e6  # the cost, in units of the loss, of levels at which rules conflict
_REPEATS = 4  # largest number of fits around the last policy, for observed rates
_MISSED = 1e-4  # a difference of ratios that exceeds its bound by more counts as violated


def solve_linearized(
    problem: Problem, warm: WarmSolver, solve: Callable[[Problem], Policy], observed: RowData | None
) -> Policy:
    """Return the policy of a nonlinear problem, fitted as a linear problem around its solution.

    `solve` fits a linear problem, for observed rates if the rows have observed labels or groups. Differences
    of ratios are then checked on `observed`, otherwise on predicted rates.
    """
    if any(map(compares_quotients, problem.rules)):
        found = _LevelSearch(problem, warm).search()
    else:
        found = minimize_objective(problem, warm)
    if observed is not None:
        found = found._replace(problem=_drop_idle(found, len(problem.rules)))
    policy = solve(found.problem)
    ratio = find_ratio_or_rate(problem).resolve(warm.evidence.classes).split()
    if ratio is not None:
        policy = _repeat(policy, found, ratio, warm.evidence, solve)
    rows, chances = warm.evidence if observed is None else observed, policy.probabilities(warm.evidence)
    policy = _restate(replace(policy, problem=problem), chances, rows)
    if missed := list(_list_missed(policy, chances, rows)):
        worst, excess = max(missed, key=lambda pair: pair[1])
        warnings.warn(
            f"{len(missed)} differences between ratios violate their bounds, {str(worst)!r} by {excess:.3g}; "
            "loosen the rule, merge small groups, or use better probabilities",
            ConvergenceWarning,
            stacklevel=find_stack_level(),
        )
    return policy


def _drop_idle(found: Solved, n_stated: int) -> Problem:
    """Keep only the binding one of the two rules that fix an overall precision at its level.

    Together, both rules would fix an observed rate at one number, which may be impossible.
    """
    form, rules = found.dual.form, list(found.problem.rules[:n_stated])
    prices = np.bincount(form.places, form.prices(found.solution.multipliers), len(found.problem.rules))
    overall: dict[str, list[tuple[float, Statement]]] = {}
    for rule, price in zip(found.problem.rules[n_stated:], prices[n_stated:].tolist(), strict=True):
        assert isinstance(rule, Rule)
        overall.setdefault(str(rule.left), []).append((price, rule))
    rules += [max(pair, key=lambda item: item[0])[1] for pair in overall.values()]
    return found.problem.with_rules(rules)


def _repeat(
    policy: Policy, found: Solved, ratio: Ratio, evidence: Evidence, solve: Callable[[Problem], Policy]
) -> Policy:
    """Repeat the fit, linearized around the last policy, until its ratio no longer changes."""
    assumed = found.measure(ratio.numerator) / found.measure(ratio.denominator)
    for _ in range(_REPEATS):
        value, whole = (policy.expected(rate, evidence) for rate in (ratio, ratio.denominator))
        if abs(value - assumed) <= SETTLED * (1 + abs(value)):
            break
        policy, assumed = solve(found.problem.with_objective(expand_ratio(ratio, value, whole))), value
    return policy


def _restate(policy: Policy, chances: Floats, rows: RowData) -> Policy:
    """Return the policy with its single rules in the form in which they were stated.

    Rules that compare the precision of a group with a level from the search are replaced by rules that
    compare it with the precision of all rows. Comparisons between two groups have no such form and stay
    unchanged.
    """
    space, kept = policy.action_space, {str(rule) for rule in policy.problem.rules}
    stated = {
        f"{one.statement}: {Rate(one.rule.left.terms[:1])} {one.rule.sense}": one.rule
        for one in policy.problem.expand(rows.classes, rows.group_values, space.options)
        if isinstance(one.statement, Family)
        and compares_quotients(one.statement)
        and one.statement.between == "overall"
    }

    def find(price: RulePrice) -> Rule | None:
        return stated.get(f"{price.statement}: {price.rule.rpartition(' ')[0]}")

    prices, fitted = list[RulePrice](), list[FittedRate]()
    known = (None,) * len(policy.rule_prices) if policy.fitted_rates is None else policy.fitted_rates.rules
    for price, rate in zip(policy.rule_prices, known, strict=True):
        if price.statement not in kept:
            continue
        rule = find(price)
        prices.append(price if rule is None else price._replace(rule=str(rule)))
        if rate is not None and rule is not None:
            excess = measure_rate(rule.excess, rows, chances, space)  # nan where it divides by nothing
            rate = rate._replace(rule=str(rule), excess=rate.excess if math.isnan(excess) else excess)
        fitted += [] if rate is None else [rate]
    rates = policy.fitted_rates and replace(policy.fitted_rates, rules=tuple(fitted))
    return replace(policy, rule_prices=tuple(prices), fitted_rates=rates)


def _list_missed(policy: Policy, chances: Floats, rows: RowData) -> Iterator[tuple[Rule, float]]:
    """Yield the single rules on differences of ratios that are violated, and the sizes of the violations.

    A rule with a denominator of zero counts as satisfied.
    """
    space = policy.action_space
    for rule, *_ in policy.problem.expand(rows.classes, rows.group_values, policy.action_space.options):
        wholes = [event.whole for event in rule.excess.by_event() if event.whole is not None]
        if len(wholes) < 2:
            continue
        least = min(measure_rate(Rate(((whole, 1.0),)), rows, chances, space) for whole in wholes)
        excess = measure_rate(rule.excess, rows, chances, space) if least > VANISHES else 0.0
        if excess > _MISSED + policy.guarantee.gradient_mapping / max(least, VANISHES):
            yield rule, excess


def compares_quotients(statement: object) -> bool:
    """Return whether a statement is a family that compares ratios, such as predictive_parity()."""
    return isinstance(statement, Family) and statement.compares_quotients


class _Level(NamedTuple):
    """The key of a level: a label and, if groups are compared with each other, a rule and a partition."""

    label: Value
    place: int = -1
    partition: int = -1


@dataclass
class _LevelSearch:
    """A search for the levels of predictive parity with the least cost."""

    problem: Problem
    warm: WarmSolver

    best: tuple[float, Floats] | None = None  # the least cost so far, and its levels

    def search(self) -> Solved:
        """Return the solution at the best levels, which are scanned on some rows and refined by descent.

        If a similar problem was solved before, the search starts at its levels.
        """
        known = [self.warm.levels.get(key) for key in self.keys]
        if None not in known:
            levels = self._scan(np.array(known, dtype=np.float64), _NEAR)
        elif len(self.warm.evidence) > _SCANNED_ROWS:
            some = self.warm.evidence.rows(slice(None, None, len(self.warm.evidence) // _SCANNED_ROWS))
            sampled = replace(self, warm=replace(self.warm, evidence=some, last=None))
            levels = sampled._descend(sampled._scan(self._start(), _GRID))
        else:
            levels = self._scan(self._start(), _GRID)
        levels = self._descend(levels)
        self.warm.levels.update(zip(self.keys, levels.tolist(), strict=True))
        return self._solve(levels)

    @cached_property
    def keys(self) -> list[_Level]:
        """The levels to be found, by label or by label and comparison."""
        found = [
            self._find_key(place, p, y)
            for place, family in self.families.items()
            for p in range(len(family.attributes))
            for y in self._list_labels(family)
        ]
        return list(dict.fromkeys(found))

    @cached_property
    def families(self) -> dict[int, Family]:
        """The families that compare ratios, by their index among the rules."""
        rules = enumerate(self.problem.rules)
        return {i: rule for i, rule in rules if isinstance(rule, Family) and compares_quotients(rule)}

    def _list_labels(self, family: Family) -> Sequence[Value]:
        return self.warm.evidence.classes if family.labels is None else family.labels

    def _find_key(self, place: int, partition: int, label: Value) -> _Level:
        overall = self.families[place].between == "overall"
        return _Level(label) if overall else _Level(label, place, partition)

    def _start(self) -> Floats:
        """Return the precisions of the best policy without these families, as levels to start from."""
        others = [rule for rule in self.problem.rules if not compares_quotients(rule)]
        found = minimize_objective(self.problem.with_rules(others), replace(self.warm, last=None), ROUGHLY)
        form, evidence = found.dual.form, self.warm.evidence
        matrix = form.score_matrix(found.solution.multipliers)
        chances = compute_probabilities(form.feature_map, matrix, found.dual.beta, evidence).T
        rates = [
            measure_rate(precision(key.label), evidence, chances, form.action_space) for key in self.keys
        ]
        return np.nan_to_num(np.array(rates), nan=0.5)

    def _state(self, levels: Floats) -> Problem:
        """Return the problem at these levels, with rules that fix overall precisions at their levels."""
        at = dict(zip(self.keys, levels.tolist(), strict=True))
        rules, overall = list(self.problem.rules), list[Rule]()
        for place, family in self.families.items():
            labels = self._list_labels(family)
            table = tuple(
                tuple(at[self._find_key(place, p, y)] for y in labels) for p in range(len(family.attributes))
            )
            rules[place] = FamilyAtLevels(**vars(family), common=table)
        for key, level in at.items():
            overall += hold_within(precision(key.label), level, level) if key.place < 0 else ()
        return self.problem.with_rules([*rules, *overall])

    def _solve(self, levels: Floats) -> Solved:
        return minimize_objective(self._state(levels), self.warm)

    def _evaluate(self, levels: Floats) -> tuple[float, Floats]:
        """Return the least cost at these levels, and its derivative."""
        found = self._solve(levels)
        if found.infeasible:
            return _FARTHEST * found.dual.loss_unit, np.zeros(len(levels))
        form, slopes = found.dual.form, np.zeros(len(levels))
        prices = form.prices(found.solution.multipliers) * measure_wholes(form, found.moments)
        for expanded, price in zip(form.rules, prices.tolist(), strict=True):
            if isinstance(expanded.statement, FamilyAtLevels) or expanded.place >= len(self.problem.rules):
                key = self._recognize(expanded)
                slopes[self.keys.index(key)] += -price if expanded.rule.sense == "<=" else price
        cost = -found.solution.value
        if self.best is None or cost < self.best[0]:
            self.best = cost, levels.copy()
        return cost, slopes

    def _recognize(self, expanded: ExpandedRule) -> _Level:
        """Return the key of the level in a single rule."""
        atom = expanded.rule.left.terms[0][0]
        if expanded.place not in self.families:
            return _Level(atom.arguments[0])
        attributes = self.families[expanded.place].attributes
        names = {name for name, _ in atom.conditions}
        partition = next((p for p, one in enumerate(attributes) if set(one) == names), 0)
        return self._find_key(expanded.place, partition, atom.arguments[0])

    def _scan(self, levels: Floats, steps: Floats) -> Floats:
        """Return the best levels among steps from each level in turn, first large and then smaller ones.

        The cost may have several minima, and is undefined at levels at which rules conflict.
        """
        for k in range(len(levels)):
            for scale in _SCALES:
                here = levels[k]
                for step in (scale * steps).tolist():
                    trial = levels.copy()
                    trial[k] = np.clip(here + step, 0.0, 1.0)
                    self._evaluate(trial)
                levels = levels if self.best is None else self.best[1]
        return levels

    def _descend(self, levels: Floats) -> Floats:
        options, bounds = {"maxiter": _STEPS, "ftol": 1e-10, "gtol": 1e-6}, [(0.0, 1.0)] * len(levels)
        minimize(self._evaluate, levels, (), "L-BFGS-B", True, bounds=bounds, options=options)
        return levels if self.best is None else self.best[1]
