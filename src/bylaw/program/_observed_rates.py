"""Observed rates of the rules on the rows of a dual, and their standard errors.

Observed rates use observed labels and groups. They are sums over rows and linear in the policy, as predicted
rates are. To first order, a row changes a rate by its influence: its contribution less the rate times
P(event | x) / P(event), because a conditional rate is a ratio of two means. The variance of the rate is the
variance of the influences divided by the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats, Matrix, compact, find_columns, find_mirrors
from bylaw.language import LABEL, Conditions, Problem, Rule
from bylaw.program._blocks import make_blocks
from bylaw.program._dual import Dual, Tally, find_wanted
from bylaw.program._linear_form import (
    Feature,
    LinearForm,
    RateParts,
    compile_parts,
    compile_problem,
    scale_rows,
)
from bylaw.program._solution import RateExcess
from bylaw.rows import ObservedRows, RowData


@dataclass(frozen=True)
class ObservedRates:
    """The rules compiled with observed labels and groups."""

    form: LinearForm
    couplings: sparse.csr_array  # (n_rules, n_observed_features * n_actions), in the dual's units
    visible: NDArray[np.bool_]  # (n_rules,): rules whose labels and groups were all observed
    empty: tuple[Conditions, ...] = ()  # conditions without observed rows, for rules of families

    @cached_property
    def operator(self) -> Matrix:
        """The coefficients of the rules, dense if they are few, for fast products."""
        return compact(self.couplings)

    def measure(self, dual: Dual, total: Tally) -> RateExcess:
        """Return the excesses of predicted and observed rates of the policy whose sums are `total`."""
        bounds = dual.form.bounds
        predicted = dual.form.operator @ (total.moments.ravel() / total.mass) - bounds
        assert total.observed is not None
        observed = self.operator @ (total.observed.ravel() / total.mass) - bounds
        return RateExcess(predicted, np.where(self.visible, observed, predicted))

    def measure_cost(self, total: Tally) -> float:
        """Return the objective of the policy whose sums are `total`, with observed labels and groups."""
        assert total.observed is not None
        return float((self.form.base * total.observed).sum()) / total.mass + self.form.base_constant


def compile_observed(problem: Problem, form: LinearForm, rows: ObservedRows) -> ObservedRates:
    """Compile the rules of `form` with the observed labels and groups of the rows.

    Rules of a family about a cell without rows, such as a label that never occurs in a group, keep their
    predicted rates.
    """
    empty = dict.fromkeys(
        condition
        for found in form.rules
        if not isinstance(found.statement, Rule)
        for condition in found.excess.by_condition()
        if LABEL in dict(condition) and condition in form.frequencies and rows.frequency(condition) == 0
    )
    frequencies = {condition: form.frequencies[condition] for condition in empty}
    outcome = compile_problem(problem, rows, frequencies, rules=form.rules)
    blind = [bool(rows.unseen.intersection(dict(feature.event))) for feature in form.feature_map.features]
    visible = abs(form.couplings) @ np.repeat(blind, form.base.shape[1]) == 0
    visible &= [empty.keys().isdisjoint(found.excess.by_condition()) for found in form.rules]
    couplings = scale_rows(outcome.couplings, outcome.scales / form.scales)
    return ObservedRates(outcome, couplings, visible, tuple(empty))


def attach_observed(dual: Dual, rates: ObservedRates, rows: ObservedRows) -> Dual:
    """Return the dual with observed features of the same rows in its blocks."""
    twins = make_blocks(rates.form, rows, like=dual.blocks)
    blocks = [block.with_observed(twin) for block, twin in zip(dual.blocks, twins, strict=True)]
    source = None if dual.source is None else dual.source.observe(rates.form, twins[0].layout)
    wanted = find_wanted(rates.form.base, rates.couplings, twins[0].layout)
    return dual.with_observed(blocks, wanted, source)


_MOST_ROWS = 2**17  # most rows on which standard errors are estimated: more hardly improve them
_MOST_VALUES = 2**24  # most rows times rules, so that many rules use fewer rows
_TILE = 2**17  # rows times rules that are computed at a time, to save memory


class StandardErrors(NamedTuple):
    """Standard errors of the rules' rates, (n_rules,) each, in the dual's units."""

    predicted: Floats
    observed: Floats
    error: Floats  # of the difference, observed less predicted


@dataclass(frozen=True)
class _View:
    """The coefficients of the rules for predicted features or for observed ones."""

    couplings: Matrix  # (n_rules, n_features * n_actions), in the dual's units
    parts: RateParts
    scales: Floats  # (n_rules,): the units of the dual's rules
    conditions: list[int]  # indices of the features that are P(condition | x)
    chances: list[Floats] | None = None  # (n_conditions, n_rows) of each block, if not features

    def find_chances(self, block: int, features: Floats) -> Floats:
        """Return the probabilities of the conditions on each row of a block, (n_conditions, n_rows)."""
        return features[self.conditions] if self.chances is None else self.chances[block]

    def restrict(
        self, rules: NDArray[np.int64], moments: Floats, mass: float
    ) -> Callable[[Floats, Floats, Floats], Floats]:
        """Return a function that computes the influence of each row on the rates of some rules.

        Its arguments are the features, the probabilities of the actions and those of the conditions, each
        with one column per row. The influences, (len(rules), n_rows), are for a policy with these moments;
        their mean is zero.
        """
        parts, shape = self.parts, (len(self.scales), len(self.parts.conditions))
        rates = parts.operator @ (moments.ravel() / mass) / self.scales[parts.rules]
        # A row that satisfies a condition lowers the rates given it, by rate / frequency.
        entries = rates / parts.frequencies[parts.events], (parts.rules, parts.events)
        slopes = compact(sparse.csr_array(entries, shape=shape))[rules]
        couplings = self.couplings[rules]
        places = find_columns(couplings)
        features, actions = np.divmod(places, moments.shape[1])
        couplings = couplings[:, places]
        return lambda values, probabilities, chances: (
            couplings @ (values[features] * probabilities[actions]) - slopes @ chances
        )


@dataclass(frozen=True)
class RateUncertainty:
    """The sampling variance of the rules' rates, estimated on some blocks of the rows."""

    sample: Dual  # some of the rows
    n_rows: int  # the number of all rows
    views: tuple[_View, _View]  # for predicted and for observed rates

    @classmethod
    def of(cls, dual: Dual, rates: ObservedRates, evidence: RowData, rows: RowData) -> RateUncertainty:
        """Return the uncertainty for a dual with observed features and the rows that it was made of."""
        most = max(min(_MOST_VALUES // dual.n_rules, _MOST_ROWS) // dual.blocks[0].n_rows, 1)
        pairs = ((dual.form, dual.form.operator, evidence), (rates.form, rates.operator, rows))
        predicted, observed = (_compile(dual, *pair, most) for pair in pairs)
        return cls(dual.with_rows(dual.blocks[:most]), dual.n_rows, (predicted, observed))

    def tally(self, multipliers: Floats, beta: float) -> Tally:
        """Return the sums over the sampled rows for the policy of these multipliers."""
        return self.sample.with_beta(beta).tally(multipliers)

    def standard_errors(self, multipliers: Floats, beta: float, total: Tally | None = None) -> StandardErrors:
        """Return the standard errors of a policy's rates; `total` may be its tally on the sample."""
        rules, places = np.unique(self.mirrors, return_inverse=True)  # opposite rules have equal variances
        squares = np.zeros((3, len(rules)))
        for weights, predicted, observed in self._influences(multipliers, beta, rules, total):
            predicted *= weights
            observed *= weights
            pairs = (predicted, predicted), (observed, observed), (predicted, observed)
            squares += [np.einsum("ij,ij->i", one, other) for one, other in pairs]
        squares[2] = np.maximum(squares[0] + squares[1] - 2 * squares[2], 0.0)  # of the difference
        return StandardErrors(*(np.sqrt(squares) * self._shrinkage)[:, places])

    @cached_property
    def mirrors(self) -> NDArray[np.int64]:
        """For each rule, the index of the first rule that is the same or its opposite, (n_rules,)."""
        both = [sparse.csr_array(view.couplings) for view in self.views]
        return find_mirrors(sparse.csr_array(sparse.hstack(both, format="csr")))

    def covariance(self, multipliers: Floats, beta: float, rules: NDArray[np.int64]) -> Floats:
        """Return the covariance matrix of the observed rates of some rules."""
        total = np.zeros((len(rules), len(rules)))
        for weights, _, observed in self._influences(multipliers, beta, rules):
            total += (observed * weights**2) @ observed.T
        return total * self._shrinkage**2

    @property
    def _shrinkage(self) -> float:
        """The factor from the root of a sum of squares on the sample to a standard error on all rows."""
        return math.sqrt(self.sample.n_rows / self.n_rows) / self.sample.mass

    def _influences(
        self, multipliers: Floats, beta: float, rules: NDArray[np.int64], total: Tally | None = None
    ) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Yield, for parts of the rows, weights and influences on predicted and on observed rates."""
        total = self.tally(multipliers, beta) if total is None else total
        assert total.observed is not None
        predicted = self.views[0].restrict(rules, total.moments, total.mass)
        observed = self.views[1].restrict(rules, total.observed, total.mass)
        matrix = beta * self.sample.form.score_matrix(multipliers)
        for i, block in enumerate(self.sample.blocks):
            before, after = block.features, block.observed
            assert after is not None
            probabilities = block.scores(matrix)
            self.sample.form.action_space.to_probabilities(probabilities)
            chances = self.views[0].find_chances(i, before), self.views[1].find_chances(i, after)
            width = max(_TILE // len(rules), 1)
            for part in (slice(first, first + width) for first in range(0, block.n_rows, width)):
                decided = probabilities[:, part]
                yield (
                    block.row_weights[part],
                    predicted(before[:, part], decided, chances[0][:, part]),
                    observed(after[:, part], decided, chances[1][:, part]),
                )


def _compile(dual: Dual, form: LinearForm, couplings: Matrix, rows: RowData, most: int) -> _View:
    """Return the coefficients of the rules for one set of features, with the probabilities of conditions."""
    parts = compile_parts(form)
    conditions = tuple(Feature(None, condition) for condition in parts.conditions)
    places = {feature: k for k, feature in enumerate(form.feature_map.features)}
    if places.keys() >= set(conditions):
        return _View(couplings, parts, dual.form.scales, [places[feature] for feature in conditions])
    chances = replace(form, feature_map=replace(form.feature_map, features=conditions))
    blocks = make_blocks(chances, rows, most=most, like=dual.blocks)
    return _View(couplings, parts, dual.form.scales, [], [block.features for block in blocks])
