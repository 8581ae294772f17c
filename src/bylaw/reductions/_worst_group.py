"""The weights of groups for which a linear objective has the optimum of the worst group.

min over policies of max_g r_g is the maximum, over weights w of the groups on the simplex, of the least
sum_g w_g r_g: a dual with multipliers on a simplex (`Simplex`) beside those of the rules. Where rates are
held as observed, weights are found as multipliers of rules instead: with one group h for reference, minimise
r_h subject to r_g - r_h <= 0, and w_h is what the others leave of one. Where they leave nothing, w_h is zero
at the optimum, as the dual is convex, and the search goes on without h. As observed it is convex about, but
not exactly: where the worst group's rate is far above the weighted mean of all, weights are tried one after
the other, more for groups above that mean and less for those below, by steps that shrink when they overshoot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from bylaw._base.numeric import as_dense
from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError
from bylaw.language.expressions import Conditions, Worst, format_conditions
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.program.dual import Dual, Simplex
from bylaw.program.linear_form import LinearForm, compile_problem
from bylaw.program.row_rates import compute_group_rates
from bylaw.program.solution import GroupRate, Solution, Status
from bylaw.reductions._policies import predict_actions
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import ObservedRows
from bylaw.solvers.full_batch import FullBatch

if TYPE_CHECKING:
    from bylaw.reductions._fitter import Fitter

SHARPER = 3.0  # times the usual beta: groups that are not the worst are decided by a small part of the loss
_NEGATIVE = -1e-6  # a weight below this is no rounding error

_OPEN = 0.005  # of the unit of the loss, that the worst rate may be above the weighted mean
_TRIED_ROWS, _FEWEST_TRIALS, _MOST_TRIALS = 2**22, 8, 60  # of weights
_RARE = 0.01  # a weight that may grow again
_STEP, _FASTER, _SLOWER = 0.5, 1.2, 0.5  # of the logarithm of a weight

Fit = Callable[[Problem, Dual], Floats | None]  # multipliers (M,), or None where the rules are missed


class GroupWeights(NamedTuple):
    """Of a linear objective in place of the worst group's."""

    weights: Mapping[Conditions, float]  # of every group, of sum one
    multipliers: Floats  # (M,), of the problem's own rules


class Trial(NamedTuple):
    """Weights, and what comes of them."""

    found: GroupWeights
    rates: Floats  # (G,), as observed
    missed: bool  # whether a rule is

    @property
    def weights(self) -> Floats:
        """(G,)"""
        return np.array(list(self.found.weights.values()))

    @property
    def rank(self) -> tuple[bool, float]:
        """Rather rules that hold than a lower rate of the worst group."""
        return self.missed, float(self.rates.max())

    @property
    def gap(self) -> float:
        """Between the worst rate and the weighted mean: none at the optimum."""
        return float(self.rates.max() - self.weights @ self.rates)


@dataclass(frozen=True)
class GroupSearch:
    """For the weights of the groups of a problem whose objective is the worst group's rate."""

    problem: Problem
    evidence: Evidence

    @property
    def objective(self) -> Worst:
        assert isinstance(self.problem.minimize, Worst)
        return self.problem.minimize

    @cached_property
    def groups(self) -> tuple[Conditions, ...]:
        """All of them; an error if one has no rows."""
        groups = self.objective.list_groups(self.evidence.classes, self.evidence.group_values)
        for group in groups:
            if not self.evidence.frequency(group) > 0:
                raise EvidenceError(
                    f"{self.objective}: no row has {format_conditions(group)}, and a group without rows has "
                    "no rate. Merge values that are rare, or leave an attribute out of by="
                )
        return groups

    @property
    def equal_weights(self) -> dict[Conditions, float]:
        return dict.fromkeys(self.groups, 1 / len(self.groups))

    def weigh(self, weights: Mapping[Conditions, float] | None = None) -> Problem:
        """The problem with a linear objective; by default, all groups count the same."""
        return self.problem.with_objective(self.objective.weigh(weights or self.equal_weights))

    def apply(self, dual: Dual, weights: Mapping[Conditions, float]) -> tuple[Problem, Dual]:
        """The problem with these weights, and its dual; `dual` is that of equal ones."""
        problem = self.weigh(weights)
        return problem, self._compile(dual, problem)

    def _compile(self, dual: Dual, problem: Problem) -> Dual:
        """Another problem with the same features on the rows of a dual."""
        known = dual.form
        form = compile_problem(problem, self.evidence, known.frequencies, features=known.feature_map.features)
        return replace(dual, form=form)

    def find_weights(self, fitter: Fitter) -> tuple[Dual, GroupWeights]:
        """Find the weights, as observed where labels or groups were given; return them with the dual of equal
        weights. Weights are equal if the rules conflict."""
        dual, _ = fitter.make_dual(self.weigh(), SHARPER, stated=self.problem.minimize)
        found = self.find(dual, fitter.tol)
        if found is None:
            return dual, GroupWeights(self.equal_weights, np.zeros(dual.n_rules))
        margin = 0.0 if fitter.certifying else fitter.margin
        if fitter.observed is None and not margin:
            return dual, found

        def fit(problem: Problem, anchored: Dual) -> Floats | None:
            correction = fitter.correct(problem, anchored, anchored.n_rules - dual.n_rules)
            solution = correction.fit(margin).solution
            return None if solution.status is Status.MISSED else solution.multipliers

        def try_weights(weights: Mapping[Conditions, float]) -> Trial:
            problem, weighed = self.apply(dual, weights)
            solution = Solution(np.zeros(0), Status.CONVERGED, 0.0, 0.0, 0)
            if weighed.n_rules:
                corrected = fitter.correct(problem, weighed).fit(margin)
                solution, weighed = corrected.solution, corrected.dual
            chances = predict_actions(weighed, solution.multipliers, self.evidence)
            rates = compute_group_rates(self.objective, fitter.outcome, chances, weighed.form.action_space)
            found = GroupWeights(dict(weights), solution.multipliers)
            return Trial(
                found, np.array([rates[one] for one in self.groups]), solution.status is Status.MISSED
            )

        begin = [found, self.find_observed(dual, fit, found)]
        trials = [try_weights(one.weights) for one in begin if one is not None]
        best = min(trials, key=lambda trial: trial.rank)
        return dual, self.improve(dual, best, try_weights).found

    def find(self, dual: Dual, tol: float) -> GroupWeights | None:
        """Find the weights for predicted rates; `dual` is that of equal weights. Return None if the rules
        conflict."""
        minimax, n_rules = self._add_groups(dual), dual.n_rules
        assert minimax.simplex is not None
        total = minimax.simplex.total
        found = FullBatch()(minimax, tol=tol)
        if found.status is Status.INFEASIBLE:
            return None
        weights = (found.multipliers[n_rules:] / total).tolist()
        return GroupWeights(dict(zip(self.groups, weights, strict=True)), found.multipliers[:n_rules])

    def _add_groups(self, dual: Dual) -> Dual:
        """The dual with a multiplier for each group: its rate less the mean of all, in one unit."""
        form, rates = dual.form, self._compile_rates(dual)
        unit = float(rates.scales.max())
        of_groups = as_dense(rates.couplings) * rates.scales[:, None] / unit
        centred = sparse.csr_array(of_groups - of_groups.mean(axis=0))
        form = replace(
            form,
            couplings=sparse.csr_array(sparse.vstack([form.couplings, centred])),
            bounds=np.append(form.bounds, np.zeros(len(self.groups))),
            scales=np.append(form.scales, np.full(len(self.groups), unit)),
            rules=form.rules + rates.rules,
        )
        return replace(dual, form=form, simplex=Simplex(len(self.groups), unit))

    def _compile_rates(self, dual: Dual) -> LinearForm:
        """The groups' rates, as rules that they are <= 0."""
        rates = [self.objective.given(group) <= 0 for group in self.groups]
        return self._compile(dual, self.weigh().with_rules(rates)).form

    def find_observed(self, dual: Dual, fit: Fit, about: GroupWeights) -> GroupWeights | None:
        """The weights for rates as a fit holds them, near others; `dual` is that of equal ones."""
        groups = sorted(self.groups, key=lambda group: -about.weights[group])
        while len(groups) > 1:
            reference, *others = groups
            problem, anchored = self._anchor(dual, reference, others)
            multipliers = fit(problem, anchored)
            if multipliers is None:
                return None
            found = anchored.form.prices(multipliers)[dual.n_rules :]
            prices = dict(zip(others, found.tolist(), strict=True))
            if (left := 1 - sum(prices.values())) >= _NEGATIVE:
                prices = {**dict.fromkeys(self.groups, 0.0), **prices, reference: max(left, 0.0)}
                total = sum(prices.values())
                weights = {group: price / total for group, price in prices.items()}
                return GroupWeights(weights, multipliers[: dual.n_rules])
            groups = sorted(others, key=lambda group: -prices[group])
        return None

    def improve(
        self, dual: Dual, begin: Trial, try_weights: Callable[[dict[Conditions, float]], Trial]
    ) -> Trial:
        """The best of the weights that are tried, where the worst group's rate can be lower."""
        best = here = begin
        steps, before = np.full(len(self.groups), _STEP), np.zeros(len(self.groups))
        weights = np.maximum(begin.weights, _RARE)
        for _ in range(min(max(_TRIED_ROWS // dual.n_rows, _FEWEST_TRIALS), _MOST_TRIALS)):
            if not best.missed and best.gap <= _OPEN * dual.loss_unit:
                break
            sign = np.sign(here.rates - weights @ here.rates / weights.sum())
            steps *= np.where(sign * before > 0, _FASTER, np.where(sign * before < 0, _SLOWER, 1.0))
            weights, before = weights * np.exp(sign * steps), sign
            weights /= weights.sum()
            here = try_weights(dict(zip(self.groups, weights.tolist(), strict=True)))
            best = min(best, here, key=lambda trial: trial.rank)
        return best

    def _anchor(
        self, dual: Dual, reference: Conditions, others: Sequence[Conditions]
    ) -> tuple[Problem, Dual]:
        """The rate of a reference, and the rules that no other group is worse; on the rows of a dual."""
        rules = self.objective.compare(reference, others)
        problem = self.problem.with_objective(self.objective.weigh({reference: 1.0}), rules)
        return problem, self._compile(dual, problem)


def add_groups(policy: Policy, search: GroupSearch, found: GroupWeights, rows: ObservedRows) -> Policy:
    """The policy of the linear objective as one of the problem as stated: with the groups, their weights and
    their rates on the fitted rows."""
    chances = policy.probabilities(search.evidence)
    rates = compute_group_rates(search.objective, rows, chances, policy.action_space)
    groups = tuple(GroupRate(group, found.weights[group], rates[group]) for group in search.groups)
    shares = {group: search.evidence.frequency(group) for group in search.groups}  # files hide small groups
    frequencies = {**shares, **policy.frequencies}
    return replace(policy, problem=search.problem, group_rates=groups, frequencies=frequencies)
