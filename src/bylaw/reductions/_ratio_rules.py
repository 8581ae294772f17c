"""Ratio rules, such as error() <= 0.05 * accepted(), which are tightened by their level, not by a margin.

A rule without a constant compares two rates, N <= D. A margin would require N <= D - margin, which no policy
may satisfy if D is small (because few rows are accepted), although the ratio can be arbitrarily low. So the
level is tightened instead: N <= (1 - share) D. For the same reason, observed ratio rules are satisfied by
changing the level of the predicted ratio if no shift of the bound suffices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats
from bylaw.language import Problem, Rate, Rule
from bylaw.program import Dual, Feature, RateExcess, compile_problem
from bylaw.rows import RowData

if TYPE_CHECKING:
    from bylaw.reductions._observe import CorrectedSolution, Correction, RuleFacts


@dataclass(frozen=True)
class RatioRules:
    """The ratio rules, N <= D, among the M rules of a problem, with the coefficients of D."""

    chosen: NDArray[np.bool_]  # (M,): whether each rule has this form
    predicted: sparse.csr_array  # (M, F * A): coefficients of the predicted D; zero for other rules
    observed: sparse.csr_array  # (M, F' * A): coefficients of the observed D; zero for other rules

    @classmethod
    def find(cls, facts: RuleFacts) -> RatioRules | None:
        """Return the ratio rules of a problem, or None if it has none.

        Rules whose opposite is also a rule are excluded, because both cannot be tightened.
        """
        form, observed = facts.dual.form, facts.rates
        ratios = [is_ratio(found.excess) for found in form.rules]
        chosen = np.array(ratios) & np.isinf(facts.room)
        if not chosen.any():
            return None
        # The problem with N <= 2 D in place of ratio rules, whose coefficients thus differ by D.
        rules = [
            Rule(Rate(tuple((atom, c if c > 0 else 2 * c) for atom, c in found.excess.terms)), "<=", Rate(()))
            if is_chosen
            else found.rule
            for found, is_chosen in zip(form.rules, chosen, strict=True)
        ]
        doubled = facts.problem.with_rules(rules)
        parts = [
            couplings - _compile(doubled, rows, features, form.scales)
            for couplings, rows, features in (
                (form.couplings, facts.evidence, form.feature_map.features),
                (observed.couplings, facts.rows, observed.form.feature_map.features),
            )
        ]
        return cls(chosen, *parts)

    def measure(self, correction: Correction, dual: Dual, multipliers: Floats) -> tuple[Floats, Floats]:
        """Compute D under the policy with these multipliers, predicted and observed, (M,) each."""
        total = dual.tally(multipliers)
        assert total.observed is not None
        predicted: Floats = np.asarray(self.predicted @ (total.moments.ravel() / total.mass))
        observed: Floats = np.asarray(self.observed @ (total.observed.ravel() / total.mass))
        return predicted, np.where(correction.rates.visible, observed, predicted)

    def tighten(self, correction: Correction, shares: Floats) -> Correction:
        """Return the correction with the rules N <= (1 - share) D.

        `shares` have the shape (M,) and are zero for other rules.
        """
        form, scale = correction.dual.form, sparse.diags_array(shares)
        couplings = sparse.csr_array(form.couplings + scale @ self.predicted)
        seen = sparse.csr_array(correction.rates.couplings + scale @ self.observed)
        return correction.with_couplings(couplings, seen)

    def restate(self, tightened: Correction, shares: Floats, found: CorrectedSolution) -> CorrectedSolution:
        """Return a solution of tightened rules with rates and margins relative to the stated rules."""
        measured = self.measure(tightened, found.dual, found.solution.multipliers)
        predicted, observed = (shares * part for part in measured)
        rates = RateExcess(found.rates.predicted - predicted, found.rates.observed - observed)
        moved = predicted + found.target.trust * (observed - predicted)
        target = replace(found.target, margins=found.target.margins + moved)
        return tightened.conclude(replace(found, rates=rates, target=target))


def is_ratio(excess: Rate) -> bool:
    """Return whether a rule has the form N - D <= 0 with sums of probabilities N and D."""
    signs = {coefficient > 0 for _, coefficient in excess.terms}
    return not excess.constant and excess.is_probability and len(signs) == 2


def _compile(
    problem: Problem, rows: RowData, features: Sequence[Feature], scales: Floats
) -> sparse.csr_array:
    """Return the coefficients (M, F * A) of the problem's rules for these features, in these units."""
    form = compile_problem(problem, rows, features=features)
    return sparse.csr_array(form.couplings * (form.scales / scales)[:, None])
