"""How the rates of the rules respond to the multipliers: derivatives, as predicted and as observed.

The predicted rates are the negative gradient of the dual, and their derivative its negative curvature. A
policy scores actions by what is predicted, so the derivative of an observed rate has observed features on one
side and predicted ones on the other: no symmetric matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bylaw._base.matrices import as_dense, compact
from bylaw._base.typing import Floats
from bylaw.formulation.dual import Dual
from bylaw.formulation.observed_rates import ObservedRates
from bylaw.formulation.passes import Support, Tally


@dataclass(frozen=True)
class RateResponse:
    """Of M rules, by cell."""

    support: Support  # the q' places of observed features that rules touch in any cell
    observed: Floats  # (C, M, q'): the coefficients there
    predicted: Floats  # (C, M, q): those of the places of the dual's curvature

    @classmethod
    def of(cls, dual: Dual, rates: ObservedRates) -> RateResponse:
        """For a dual whose blocks have observed features."""
        n_actions, block = rates.form.base.shape[1], dual.blocks[0]
        places = np.unique(rates.couplings.indices)
        places = places[np.argsort(places % n_actions, kind="stable")]
        couplings = rates.operator[:, places]
        support = Support(*np.divmod(places.astype(np.int64), n_actions))
        layout = None if block.cells is None else block.cells.seen_layout
        if layout is None:
            return cls(support, as_dense(couplings)[None], dual.local_couplings)
        columns, actions, embedding = layout.localize(support.features, support.actions)
        local = as_dense(couplings @ compact(embedding)).reshape(dual.n_rules, -1, len(actions))
        return cls(Support(columns, actions), local.transpose(1, 0, 2), dual.local_couplings)

    def differentiate(self, total: Tally) -> tuple[Floats, Floats]:
        """(M, M) each: the derivatives of predicted and of observed rates in the multipliers."""
        assert total.curvature is not None
        assert total.response is not None
        right = self.predicted.transpose(0, 2, 1)
        pairs = (self.predicted, total.curvature), (self.observed, total.response)
        predicted, observed = (-(left @ middle @ right).sum(axis=0) / total.mass for left, middle in pairs)
        return predicted, observed
