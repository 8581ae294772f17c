"""Weights of groups with which a linear objective has the same optimum as the rate of the worst group.

The minimum over policies of max_g r_g is the maximum, over weights w of the groups on the simplex, of the
minimum of sum_g w_g r_g. This is a dual with multipliers on a simplex (`Simplex`) beside those of the rules.

For observed rates, the weights are multipliers of rules instead: with one group h as the reference, minimize
r_h subject to r_g - r_h <= 0; then w_h is one minus the sum of the other weights. If this is negative, w_h is
zero at the optimum, because the dual is convex, and the search continues without h. Observed rates are convex
only approximately. If the rate of the worst group is far above the weighted mean, other weights are tried:
larger ones for groups above the mean and smaller ones for groups below it, with steps that shrink when they
overshoot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from bylaw._base import Floats, as_dense
from bylaw.errors import EvidenceError
from bylaw.language import Conditions, Problem, Worst, format_conditions
from bylaw.policy import Policy
from bylaw.program import Dual, GroupRate, Simplex, Solution, Status, compile_problem, compute_group_rates
from bylaw.reductions._policies import predict_actions
from bylaw.rows import Evidence, ObservedRows
from bylaw.solvers import FullBatch

if TYPE_CHECKING:
    from bylaw.reductions._fitter import Fitter

Fit = Callable[[Problem, Dual], Floats | None]  # returns multipliers (M,), or None if rules are violated


class GroupWeights(NamedTuple):
    """The group weights of a linear objective that has the same optimum as the worst group."""

    weights: Mapping[Conditions, float]  # the weight of every group; their sum is one
    multipliers: Floats  # (M,): multipliers of the rules of the problem


class Trial(NamedTuple):
    """Group weights, and the observed rates of the groups under the policy of these weights."""

    solved: GroupWeights
    rates: Floats  # (G,): observed rates
    violated: bool  # whether a rule is violated

    @property
    def weights(self) -> Floats:
        """The weights of the groups, (G,)."""
        return np.array(list(self.solved.weights.values()))

    @property
    def rank(self) -> tuple[bool, float]:
        """Whether a rule is violated, and the rate of the worst group, for comparisons; lower is better."""
        return self.violated, float(self.rates.max())

    @property
    def gap(self) -> float:
        """The rate of the worst group minus the weighted mean of all groups, which is zero at the optimum."""
        return float(self.rates.max() - self.weights @ self.rates)


@dataclass(frozen=True)
class GroupSearch:
    """A search for group weights in a problem whose objective is the rate of the worst group."""

    problem: Problem
    evidence: Evidence

    @property
    def objective(self) -> Worst:
        """The objective of the problem: the rate of the worst group."""
        assert isinstance(self.problem.minimize, Worst)
        return self.problem.minimize

    @cached_property
    def groups(self) -> tuple[Conditions, ...]:
        """The conditions of all groups; raises if a group has no rows."""
        groups = self.objective.list_groups(self.evidence.classes, self.evidence.group_values)
        for group in groups:
            if not self.evidence.frequency(group) > 0:
                raise EvidenceError(
                    f"{self.objective}: every group must have rows, got none with "
                    f"{format_conditions(group)}; merge rare values, or leave an attribute out of by="
                )
        return groups

    @property
    def equal_weights(self) -> dict[Conditions, float]:
        """Equal weights for all groups."""
        return dict.fromkeys(self.groups, 1 / len(self.groups))

    def weigh(self, weights: Mapping[Conditions, float] | None = None) -> Problem:
        """Return the problem that minimizes a weighted mean of the groups' rates, equal by default."""
        return self.problem.with_objective(self.objective.weigh(weights or self.equal_weights))

    def apply(self, dual: Dual, weights: Mapping[Conditions, float]) -> tuple[Problem, Dual]:
        """Return the problem with these weights, and its dual. `dual` is the dual of equal weights."""
        problem = self.weigh(weights)
        return problem, self._compile(dual, problem)

    def _compile(self, dual: Dual, problem: Problem) -> Dual:
        """Return the dual of another problem with the same features on the same rows."""
        features = dual.form.feature_map.features
        form = compile_problem(problem, self.evidence, dual.form.frequencies, features=features)
        return replace(dual, form=form)

    def find_weights(self, fitter: Fitter) -> tuple[Dual, GroupWeights]:
        """Find the weights, for observed rates if labels or groups were given.

        Return the dual of equal weights and the weights, which are equal if the rules conflict.
        """
        # A larger beta, because groups that are not the worst are decided by a small part of the loss.
        dual, _ = fitter.make_dual(self.weigh(), 3.0, stated=self.problem.minimize)
        predicted = self.find(dual, fitter.tol)
        if predicted is None:
            return dual, GroupWeights(self.equal_weights, np.zeros(dual.n_rules))
        margin = 0.0 if fitter.certifying else fitter.margin
        if fitter.observed is None and not margin:
            return dual, predicted

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
            trial = GroupWeights(dict(weights), solution.multipliers)
            observed = np.array([rates[one] for one in self.groups])
            return Trial(trial, observed, solution.status is Status.MISSED)

        begin = [predicted, self.find_observed(dual, fit, predicted)]
        trials = [try_weights(one.weights) for one in begin if one is not None]
        best = min(trials, key=lambda trial: trial.rank)
        return dual, self.improve(dual, best, try_weights).solved

    def find(self, dual: Dual, tol: float) -> GroupWeights | None:
        """Find the weights for predicted rates; return None if the rules conflict.

        `dual` is the dual of equal weights.
        """
        minimax, n_rules = self._add_groups(dual), dual.n_rules
        assert minimax.simplex is not None
        solution = FullBatch()(minimax, tol=tol)
        if solution.status is Status.INFEASIBLE:
            return None
        weights = (solution.multipliers[n_rules:] / minimax.simplex.total).tolist()
        return GroupWeights(dict(zip(self.groups, weights, strict=True)), solution.multipliers[:n_rules])

    def _add_groups(self, dual: Dual) -> Dual:
        """Return the dual with one further multiplier for each group.

        Its coefficients are those of the group's rate minus the mean rate of all groups, in a common unit.
        """
        stated = [self.objective.given(group) <= 0 for group in self.groups]
        form, rates = dual.form, self._compile(dual, self.weigh().with_rules(stated)).form
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

    def find_observed(self, dual: Dual, fit: Fit, about: GroupWeights) -> GroupWeights | None:
        """Find the weights for observed rates, near the weights `about`; return None if no fit succeeds.

        `dual` is the dual of equal weights.
        """
        groups = sorted(self.groups, key=lambda group: -about.weights[group])
        while len(groups) > 1:
            reference, *others = groups
            # Minimize the rate of the reference under rules that no other group has a higher rate.
            rules = self.objective.compare(reference, others)
            problem = self.problem.with_objective(self.objective.weigh({reference: 1.0}), rules)
            anchored = self._compile(dual, problem)
            multipliers = fit(problem, anchored)
            if multipliers is None:
                return None
            prices = dict(
                zip(others, anchored.form.prices(multipliers)[dual.n_rules :].tolist(), strict=True)
            )
            if (remainder := 1 - sum(prices.values())) >= -1e-6:  # up to rounding errors
                prices = {**dict.fromkeys(self.groups, 0.0), **prices, reference: max(remainder, 0.0)}
                total = sum(prices.values())
                weights = {group: price / total for group, price in prices.items()}
                return GroupWeights(weights, multipliers[: dual.n_rules])
            groups = sorted(others, key=lambda group: -prices[group])
        return None

    def improve(
        self, dual: Dual, begin: Trial, try_weights: Callable[[dict[Conditions, float]], Trial]
    ) -> Trial:
        """Try other weights as long as the rate of the worst group is far above the weighted mean.

        The number of trials decreases with the number of rows.
        """
        best = last = begin
        steps, before = np.full(len(self.groups), 0.5), np.zeros(len(self.groups))
        weights = np.maximum(begin.weights, 0.01)  # so that a weight of zero can grow
        for _ in range(min(max(2**22 // dual.n_rows, 8), 60)):
            if not best.violated and best.gap <= 0.005 * dual.loss_unit:
                break
            # Move the logarithm of each weight by its own step, as in resilient propagation.
            sign = np.sign(last.rates - weights @ last.rates / weights.sum())
            steps *= np.where(sign * before > 0, 1.2, np.where(sign * before < 0, 0.5, 1.0))
            weights, before = weights * np.exp(sign * steps), sign
            weights /= weights.sum()
            last = try_weights(dict(zip(self.groups, weights.tolist(), strict=True)))
            best = min(best, last, key=lambda trial: trial.rank)
        return best


def add_groups(policy: Policy, search: GroupSearch, found: GroupWeights, rows: ObservedRows) -> Policy:
    """Return the policy for the stated problem, with the weights and observed rates of the groups."""
    chances = policy.probabilities(search.evidence)
    rates = compute_group_rates(search.objective, rows, chances, policy.action_space)
    groups = tuple(GroupRate(group, found.weights[group], rates[group]) for group in search.groups)
    shares = {group: search.evidence.frequency(group) for group in search.groups}  # files hide small groups
    frequencies = {**shares, **policy.frequencies}
    return replace(policy, problem=search.problem, group_rates=groups, frequencies=frequencies)
