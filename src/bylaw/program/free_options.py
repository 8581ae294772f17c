"""Options that would take rows for nothing: refused before a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw.errors import RuleError
from bylaw.language.expressions import Rate
from bylaw.language.rates import selected
from bylaw.language.worst import Objective, Worst
from bylaw.program.linear_form import LinearForm
from bylaw.rows.evidence import RowData

_NEGLIGIBLE = 1e-9  # by which a rule is not broken


def check_options_cost(minimize: Objective, form: LinearForm, evidence: RowData) -> None:
    """That no option takes all rows for nothing: one without a cost, by which no rule would be broken.

    Parameters
    ----------
    minimize : Rate, Ratio or Worst
    form : LinearForm
        of the problem with this objective; of the worst group's, with any weights.
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
        if _is_free(option, form, evidence):
            raise RuleError(
                f"the option {option!r} costs nothing and no rule limits it, so that it would get all rows: "
                f"add its cost to what is minimised, such as {_add_cost(minimize, option)}, or bound it, "
                f"selected({option!r}) <= 0.05"
            )


def check_options_of_ratio(minimize: Objective, forms: Sequence[LinearForm], evidence: RowData) -> None:
    """That a ratio tells each option, and a rejection, from the labels, or that a rule limits it.

    Parameters
    ----------
    minimize : Rate or Ratio
        as it was stated.
    forms : sequence of LinearForm
        of the problem with the ratio's numerator, and with its denominator, as objective.
    evidence : RowData
        the rows that they were compiled on.

    Raises
    ------
    RuleError
        that names the option and says what else to minimise.
    """
    space = forms[0].action_space
    for option in space.options:
        place = space.position(option)
        if _is_like_a_label(option, forms) and not _breaks_rules(forms[0], place, evidence):
            what, rate = "a rejection", "rejected()"
            if option in space.named_options:
                what, rate = f"the option {option!r}", f"selected({option!r})"
            raise RuleError(
                f"{what} costs nothing in minimize={minimize} and no rule limits it, so that chance would "
                f"decide who gets it: minimise error() + 0.1 * {rate} subject to a rule on what is minimised "
                f"now, such as {minimize} <= 0.5, or bound it, {rate} <= 0.05"
            )


def _is_free(option: Value, form: LinearForm, evidence: RowData) -> bool:
    """Whether it costs nothing, and no rule is broken where all rows get it."""
    place = form.action_space.position(option)
    return not form.base[:, place].any() and not _breaks_rules(form, place, evidence)


def _is_like_a_label(option: Value, forms: Sequence[LinearForm]) -> bool:
    """Whether it has the same part as some label in every objective."""
    space = forms[0].action_space
    base = np.vstack([form.base for form in forms])
    labels = [space.position(label) for label in space.classes]
    return bool((base[:, labels] == base[:, [space.position(option)]]).all(axis=0).any())


def _add_cost(minimize: Objective, option: Value) -> Objective:
    """With a cost of this option."""
    cost = 0.1 * selected(option)
    if isinstance(minimize, Worst):
        return Worst(minimize.rate + cost, minimize.by)
    assert isinstance(minimize, Rate)
    return minimize + cost


def _breaks_rules(form: LinearForm, place: int, evidence: RowData) -> bool:
    """Whether some rule is broken where all rows get the action at this place. A rule that depends on other
    columns than probabilities counts as broken."""
    couplings = form.couplings[:, place :: form.base.shape[1]].tocoo()  # (M, F)
    totals: Floats = -form.bounds.copy()
    for j, k, coefficient in zip(*couplings.coords, couplings.data, strict=True):
        source, event = form.feature_map.features[k]
        totals[j] += math.inf if source else coefficient * (evidence.frequency(event) if event else 1.0)
    return bool((totals > _NEGLIGIBLE).any())
