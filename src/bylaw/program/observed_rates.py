"""Observed rates of the rules on the rows of a dual: also sums over rows, and linear in the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.matrices import Matrix, compact
from bylaw._base.typing import Floats
from bylaw.language.expressions import LABEL, Conditions, Rule
from bylaw.language.problem import Problem
from bylaw.program.blocks import make_blocks
from bylaw.program.dual import Dual, find_wanted
from bylaw.program.linear_form import LinearForm, compile_problem, scale_rows
from bylaw.program.passes import Tally
from bylaw.rows.outcomes import ObservedRows


class RateExcess(NamedTuple):
    """How far the rates of a policy are beyond the stated bounds, (M,) each, in the dual's units."""

    predicted: Floats
    observed: Floats

    @property
    def error(self) -> Floats:
        """The plug-in error: observed less predicted."""
        return self.observed - self.predicted


Target = Callable[[RateExcess], Floats]  # (M,): what must be <= 0


@dataclass(frozen=True)
class ObservedRates:
    """The rules compiled on the rows as they turned out."""

    form: LinearForm
    couplings: sparse.csr_array  # (M, F' * A), in the units of the dual's rules
    visible: NDArray[np.bool_]  # (M,): rules of which everything was observed
    empty: tuple[Conditions, ...] = ()  # cells of families that no row shows; their rules are not visible

    @cached_property
    def operator(self) -> Matrix:
        """The couplings, for products with them."""
        return compact(self.couplings)

    def measure(self, dual: Dual, total: Tally) -> RateExcess:
        """Of the policy whose rows were tallied."""
        bounds = dual.form.bounds
        predicted = dual.form.operator @ (total.moments.ravel() / total.mass) - bounds
        assert total.observed is not None
        observed = self.operator @ (total.observed.ravel() / total.mass) - bounds
        return RateExcess(predicted, np.where(self.visible, observed, predicted))

    def measure_cost(self, total: Tally) -> float:
        """Return the objective of the policy whose rows were tallied, as observed."""
        assert total.observed is not None
        return float((self.form.base * total.observed).sum()) / total.mass + self.form.base_constant


def compile_observed(problem: Problem, form: LinearForm, rows: ObservedRows) -> ObservedRates:
    """Compile the rules of `form` on the rows as observed. Rules of a family about a cell that no row shows,
    such as a label that a group never has, stay as predicted."""
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
    """The dual whose blocks have the features of the same rows as observed."""
    twins = make_blocks(rates.form, rows, like=dual.blocks)
    pairs = zip(dual.blocks, twins, strict=True)
    blocks = [block.with_observed(twin) for block, twin in pairs]
    found = dual.with_observed(blocks, find_wanted(rates.form.base, rates.couplings))
    if dual.source is None:
        return found
    layout = None if twins[0].cells is None else twins[0].cells.layout
    return found.with_source(dual.source.observe(rates.form, layout))
