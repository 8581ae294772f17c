"""Options that would take all rows for nothing: refused before a fit."""

from __future__ import annotations

import math

from bylaw._base.typing import Floats
from bylaw.data.evidence import RowData
from bylaw.errors import RuleError
from bylaw.formulation.linear_form import LinearForm
from bylaw.language.worst import Objective

_NEGLIGIBLE = 1e-9  # by which a rule is not broken


def check_options_cost(minimize: Objective, form: LinearForm, evidence: RowData) -> None:
    """That no option takes all rows for nothing: one without a cost, by which no rule would be broken.

    Parameters
    ----------
    minimize : Rate, Ratio or Worst
    form : LinearForm
        of the problem with this objective.
    evidence : RowData
        the rows that it was compiled on.

    Raises
    ------
    RuleError
        that names the option and says how to state its cost or its capacity.
    """
    space = form.action_space
    if not minimize.is_probability or any(factor < 0 for _, factor in minimize.terms):
        return  # what other actions earn may outweigh an option that costs nothing
    for option in space.named_options:  # a rejection that nothing limits is what was asked for
        place = space.position(option)
        if not form.base[:, place].any() and not _breaks_rules(form, place, evidence):
            raise RuleError(
                f"the option {option!r} costs nothing and no rule limits it, so that it would get all rows: "
                f"add its cost to what is minimised, such as {minimize} + 0.1 * selected({option!r}), or "
                f"bound it, selected({option!r}) <= 0.05"
            )


def _breaks_rules(form: LinearForm, place: int, evidence: RowData) -> bool:
    """Whether some rule is broken where all rows get the action at this place. A rule that depends on other
    columns than probabilities counts as broken."""
    couplings = form.couplings[:, place :: form.base.shape[1]].tocoo()  # (M, F)
    totals: Floats = -form.bounds.copy()
    for j, k, coefficient in zip(*couplings.coords, couplings.data, strict=True):
        source, event = form.feature_map.features[k]
        totals[j] += math.inf if source else coefficient * (evidence.frequency(event) if event else 1.0)
    return bool((totals > _NEGLIGIBLE).any())
