"""Standard errors and correlations of the rules' rates, as estimates for the population of the rows.

A row moves a rate, to first order, by its influence: its contribution less the rate times P(event | x) /
P(event), since a conditional rate is a ratio of two means. The variance of the rate is that of the influences
over the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats
from bylaw.data.evidence import RowData
from bylaw.formulation.dual import Dual, Tally, make_blocks
from bylaw.formulation.linear_form import (
    Feature,
    LinearForm,
    RateParts,
    compile_parts,
    compute_scores,
)
from bylaw.formulation.observed_rates import ObservedRates

_SAMPLE_BLOCKS = 16  # of rows that show how much rates vary


class StandardErrors(NamedTuple):
    """Of the rules' rates, (M,) each, in the dual's units."""

    predicted: Floats
    observed: Floats
    error: Floats  # of observed less predicted


@dataclass(frozen=True)
class _View:
    """The rates on one set of features: as predicted, or as observed."""

    couplings: sparse.csr_array  # (M, F * A), in the dual's units
    parts: RateParts
    scales: Floats  # (M,): the dual's units
    chances: list[Floats]  # for each block, (E, n_rows): P(condition | x)

    @cached_property
    def _touched(self) -> tuple[NDArray[np.integer], sparse.csr_array]:
        """The places (feature, action) that rules touch, and the couplings there."""
        places = np.unique(self.couplings.indices)
        return places, self.couplings[:, places]

    def slopes(self, moments: Floats, mass: float) -> Floats:
        """(M, E): the part of each rate that is given each condition, over the condition's frequency."""
        rates = self.parts.couplings @ (moments.ravel() / mass) / self.scales[self.parts.rules]
        slopes = np.zeros((len(self.scales), len(self.parts.conditions)))
        np.add.at(
            slopes, (self.parts.rules, self.parts.events), rates / self.parts.frequencies[self.parts.events]
        )
        return slopes

    def influences(self, features: Floats, probabilities: Floats, slopes: Floats, block: int) -> Floats:
        """(M, n_rows), of mean zero."""
        places, couplings = self._touched
        touched, actions = np.divmod(places, len(probabilities))
        return couplings @ (features[touched] * probabilities[actions]) - slopes @ self.chances[block]


@dataclass(frozen=True)
class RateUncertainty:
    """How much the rules' rates vary from sample to sample, measured on some blocks of the rows."""

    sample: Dual  # a part of the rows
    n_rows: int  # of all
    views: tuple[_View, _View]  # as predicted, as observed

    @classmethod
    def of(cls, dual: Dual, rates: ObservedRates, evidence: RowData, rows: RowData) -> RateUncertainty:
        """For a dual whose blocks have the features of the evidence and, as observed, of the same `rows`."""
        sample = dual.with_rows(dual.blocks[:_SAMPLE_BLOCKS])
        scales = dual.form.scales
        predicted = _View(dual.form.couplings, *_compile(dual.form, evidence, scales))
        observed = _View(rates.couplings, *_compile(rates.form, rows, scales))
        return cls(sample, dual.n_rows, (predicted, observed))

    def standard_errors(self, multipliers: Floats, beta: float) -> StandardErrors:
        squares = np.zeros((3, self.sample.n_rules))
        for weights, predicted, observed in self._influences(multipliers, beta):
            for k, influence in enumerate((predicted, observed, observed - predicted)):
                squares[k] += influence**2 @ weights**2
        return StandardErrors(*(np.sqrt(squares) * self._shrinkage))

    def covariance(self, multipliers: Floats, beta: float, trust: Floats, rules: NDArray[np.int64]) -> Floats:
        """Of the rates of some rules, each `trust` (M,) of the way from the predicted to the observed."""
        total = np.zeros((len(rules), len(rules)))
        for weights, predicted, observed in self._influences(multipliers, beta):
            mixed = predicted[rules] + trust[rules, None] * (observed - predicted)[rules]
            total += (mixed * weights**2) @ mixed.T
        return total * self._shrinkage**2

    @property
    def _shrinkage(self) -> float:
        """From a sum of squares on the sample to a standard error on all rows."""
        return math.sqrt(self.sample.n_rows / self.n_rows) / self.sample.mass

    def _influences(self, multipliers: Floats, beta: float) -> Iterator[tuple[Floats, Floats, Floats]]:
        """For each block its weights, (n_rows,), and its influences on predicted and observed rates."""
        total: Tally = self.sample.with_beta(beta).tally(multipliers)
        assert total.observed is not None
        slopes = [
            view.slopes(moments, total.mass)
            for view, moments in zip(self.views, (total.moments, total.observed), strict=True)
        ]
        matrix = beta * self.sample.form.score_matrix(multipliers)
        for i, block in enumerate(self.sample.blocks):
            assert block.observed is not None
            probabilities = compute_scores(matrix, block.features)
            self.sample.form.action_space.to_probabilities(probabilities)
            predicted = self.views[0].influences(block.features, probabilities, slopes[0], i)
            observed = self.views[1].influences(block.observed, probabilities, slopes[1], i)
            yield block.row_weights, predicted, observed


def _compile(form: LinearForm, rows: RowData, scales: Floats) -> tuple[RateParts, Floats, list[Floats]]:
    """The parts of the rules' rates, and the chances of their conditions on the blocks of the sample."""
    parts = compile_parts(form, rows)
    conditions = tuple(Feature(None, condition) for condition in parts.conditions)
    chances = replace(form, feature_map=replace(form.feature_map, features=conditions))
    blocks = make_blocks(chances, rows, most=_SAMPLE_BLOCKS)
    return parts, scales, [block.features for block in blocks]
