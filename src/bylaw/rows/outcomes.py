"""Rows as they turned out: labels, groups and costs that were seen, in place of what was predicted.

Some rows may show neither. For an event e that refers to attributes which only some rows show, the rows have
prediction-powered outcomes (Angelopoulos et al., 2023)

    p(e | x) + (r / rho) (1{e} - p(e | x)),

where r is 1 on rows that show all of these attributes (or their weight, 1 / P(seen | x)) and 0 on the others,
and rho is the mean of r. Their mean over all rows is the predicted frequency of e plus the mean error of the
predictions on the rows that show it: it has no bias, however bad the predictions, and a small variance where
they are good.

Rows may show one attribute of an event and not another. Then the correction is a sum of stages: the rows that
show the group correct p(group, label | x) to 1{group} p(label | x, group), and those that show both correct
that to 1{group} 1{label}. So the labels of a group add up to the group, and a rate of the group, a ratio of
the two, varies no more than it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats, Mask
from bylaw.errors import EvidenceError
from bylaw.language.expressions import LABEL, Conditions, CostColumn
from bylaw.rows.evidence import Evidence, RowData, align_true_group, check_propensity_weights, name_cost
from bylaw.rows.groups import GroupProbabilities, KnownGroup, Part
from bylaw.rows.substitution import substitute

Names = frozenset[str]


@dataclass(frozen=True, eq=False)
class PartlySeen:
    """Labels and groups that were seen on some rows, or on all. Shared by all parts of these rows."""

    evidence: Evidence
    codes: NDArray[np.int64] | None  # (n_rows,): of labels; they mean nothing where these were not seen
    groups: Mapping[str, KnownGroup]  # likewise
    seen: Mapping[str, Mask]  # where, for attributes with missing values: (n_rows,) each
    weights: Floats | None = None  # (n_rows,): 1 / P(seen | x)

    def view(self, names: Names) -> RowData:
        """The rows with what was seen on all of them, and with these attributes as if they were."""
        if names not in self._views:
            shown = {n: group for n, group in self.groups.items() if n in names or n not in self.seen}
            codes = self.codes if LABEL in names or LABEL not in self.seen else None
            self._views[names] = substitute(self.evidence, codes, shown)
        return self._views[names]

    def list_stages(self, names: Names) -> list[Names]:
        """These attributes one after the other: groups first, those that more rows show before others."""
        order = sorted(names, key=lambda name: (name == LABEL, -self.seen[name].sum(), name))
        return [frozenset(order[: i + 1]) for i in range(len(order))]

    def find_seen(self, names: Names) -> Mask:
        """(n_rows,): the rows that show all of these attributes."""
        return np.logical_and.reduce([self.seen[name] for name in sorted(names)])

    def correction(self, names: Names) -> Floats:
        """(n_rows,): r / rho, by which the error of a prediction counts."""
        if names not in self._corrections:
            shown = self.find_seen(names).astype(np.float64)
            shown = shown if self.weights is None else shown * self.weights
            share = float(np.average(shown, weights=self.evidence.weights))
            if not share > 0:
                raise EvidenceError(
                    f"a rule refers to {' and '.join(sorted(names))}, and no row with weight shows "
                    f"{'both' if len(names) == 2 else 'all of them' if len(names) > 2 else 'it'}"
                )
            self._corrections[names] = shown / share
        return self._corrections[names]

    @cached_property
    def _views(self) -> dict[Names, RowData]:
        return {}

    @cached_property
    def _corrections(self) -> dict[Names, Floats]:
        return {}


@dataclass(frozen=True, eq=False, repr=False)
class ObservedRows(RowData):
    """Rows as they turned out: on these, a rate is an observed rate. A policy does not decide on them.

    What was not observed is known by its probabilities given what was. Where an attribute was observed on
    some rows only, the probability of an event that refers to it is prediction-powered: below zero or above
    one on single rows, and right on average.
    """

    predicted: Evidence = field(kw_only=True)  # what was known of the same rows beforehand
    observed: Names = field(kw_only=True)  # attributes that some rows show; "label" and costs among them
    partly: PartlySeen | None = field(kw_only=True, default=None)  # None: what rows show, all of them show
    places: NDArray[np.intp] | None = field(
        kw_only=True, default=None
    )  # of these rows among those of `partly`

    def rows(self, part: Part) -> ObservedRows:
        """Some of the rows; how much each of them counts does not depend on the others."""
        places = np.arange(len(self)) if self.places is None else self.places
        return super().rows(part).with_columns(predicted=self.predicted.rows(part), places=places[part])

    @property
    def seen(self) -> dict[str, Mask]:
        """Where each attribute was seen, (n_rows,); only those with missing values."""
        where = slice(None) if self.places is None else self.places
        return {} if self.partly is None else {n: mask[where] for n, mask in self.partly.seen.items()}

    @property
    def unseen(self) -> set[Any]:
        """Attributes, and tuples of them, that no row shows; "label" may be among them."""
        return {*self.hidden_groups, LABEL} - self.observed

    def event_probability(self, event: Conditions, rows: Part = slice(None)) -> Floats | float:
        """Whether the event was observed on these rows, (n_rows,), or its probability; prediction-powered
        where only some rows show what it refers to."""
        total = before = super().event_probability(event, rows)
        if self.partly is None:
            return total
        where: Any = rows if self.places is None else self.places[rows]
        for names in self.partly.list_stages(self.find_partly_seen(name for name, _ in event)):
            after = self.partly.view(names).event_probability(event, where)
            total = total + self.partly.correction(names)[where] * (after - before)
            before = after
        return total

    def event_weights(self, event: Conditions) -> Floats:
        """(n_rows,): whether the event was observed, or its probability. Where only some rows show what it
        refers to, these stand for all, (r / rho) 1{e}: never below zero, but without the predictions."""
        names = self.find_partly_seen(name for name, _ in event)
        if self.partly is None or not names:
            return super().event_probability(event) * np.ones(len(self))
        where: Any = slice(None) if self.places is None else self.places
        outcome = self.partly.view(names).event_probability(event, where)
        return self.partly.correction(names)[where] * outcome

    def weigh_cost(self, event: Conditions, source: CostColumn, costs: Floats) -> Floats:
        """(n_rows,): what one action costs where the event holds; prediction-powered, too. `costs` (n_rows,)
        are those that were observed, and mean nothing where they were not."""
        name = name_cost(source.name)
        names = self.find_partly_seen([name, *(name for name, _ in event)])
        if self.partly is None or name not in names:
            return super().weigh_cost(event, source, costs)
        predicted, before = self.predicted.costs.get(source.name), np.zeros(len(self))
        if predicted is not None:
            before = super().event_probability(event) * predicted[:, source.item]
        where: Any = slice(None) if self.places is None else self.places
        after = self.partly.view(names).event_probability(event, where) * costs
        return before + self.partly.correction(names)[where] * (after - before)

    def find_partly_seen(self, names: Iterable[str]) -> Names:
        """Those of these attributes that only some rows show."""
        return frozenset(names).intersection(() if self.partly is None else self.partly.seen)

    def seen_share(self, event: Conditions) -> float:
        """The share of rows that show all that an event refers to."""
        names = self.find_partly_seen(name for name, _ in event)
        return float(np.mean(self._find_seen(names))) if names else 1.0

    def restrict(self, names: Iterable[str]) -> ObservedRows:
        """The rows that show all of these attributes, with these as observed and no others that only some
        rows show. Their weights are multiplied by those of being seen."""
        return self.restrict_with_places(names)[0]

    def restrict_with_places(self, names: Iterable[str]) -> tuple[ObservedRows, NDArray[np.intp]]:
        """`restrict`, and the places of these rows among the present ones."""
        chosen = self.find_partly_seen(names)
        if self.partly is None or not chosen:
            return self, np.arange(len(self))
        here = np.flatnonzero(self._find_seen(chosen))
        where = here if self.places is None else self.places[here]
        view = self.partly.view(chosen).rows(where)
        weights = view.weights
        if self.partly.weights is not None:
            weights = view.row_weights * self.partly.weights[where]
        columns = {f.name: getattr(view, f.name) for f in fields(RowData)}
        columns |= {"weights": weights, "costs": {name: cost[here] for name, cost in self.costs.items()}}
        observed = self.observed - (frozenset(self.partly.seen) - chosen)
        return ObservedRows(**columns, predicted=self.predicted.rows(here), observed=observed), here

    def _find_seen(self, names: Names) -> Mask:
        return np.logical_and.reduce([mask for name, mask in self.seen.items() if name in names])


def observe(evidence: Evidence, taken: Floats | None = None) -> ObservedRows:
    """Return the rows with what was observed of them in place of what was predicted.

    A column of which no row shows a value counts as not given.

    Parameters
    ----------
    evidence : Evidence
        with observed labels, groups, and costs, if there are any.
    taken : array of shape (n_rows, n_actions), optional
        one-hot, the decisions that were taken: outcomes of others may be missing, and mean nothing then.

    Returns
    -------
    ObservedRows

    References
    ----------
    Angelopoulos, Bates, Fannjiang, Jordan and Zrnic (2023), Prediction-powered inference, Science.

    Examples
    --------
    >>> observe(Evidence([[0.7, 0.3], [0.2, 0.8]], labels=[1, 1])).probabilities
    array([[0., 1.],
           [0., 1.]])
    >>> partly = observe(Evidence([[0.75, 0.25], [0.25, 0.75]], labels=[1, None]))
    >>> partly.event_probability((("label", 1),))  # the second row is as predicted
    array([1.75, 0.75])
    """
    masks, weights = evidence.find_observed(taken), evidence.propensity_weights
    codes = None if evidence.labels is None or (evidence.labels < 0).all() else evidence.labels
    groups = {}
    for name in [name for name, group in evidence.true_groups.items() if (group.codes >= 0).any()]:
        group = align_true_group(name, evidence.true_groups[name], evidence.groups)
        groups[name] = KnownGroup(group.values, np.maximum(group.codes, 0))
    partly = PartlySeen(
        _guess_groups(evidence, groups, masks),
        codes,
        groups,
        masks,
        check_propensity_weights(weights, masks) if weights is not None and masks else None,
    )
    costs, rows = evidence.fill_outcomes(taken), partly.view(frozenset())
    columns = {f.name: getattr(rows, f.name) for f in fields(RowData)}
    arrays = {name: cost for name, cost in costs.items() if not isinstance(cost, str)}
    return ObservedRows(
        **{**columns, "costs": {**rows.costs, **arrays}},
        predicted=evidence,
        observed=frozenset({*groups, *map(name_cost, costs), *([] if codes is None else [LABEL])}),
        partly=partly if masks else None,
    )


def _guess_groups(evidence: Evidence, known: Mapping[str, KnownGroup], seen: Mapping[str, Mask]) -> Evidence:
    """The evidence, with the frequencies among the rows that show it for a group that it knows nothing of."""
    guessed = {}
    for name in [name for name in seen if name in known and name not in evidence.groups]:
        group, weights = known[name], evidence.row_weights * seen[name]
        counts = np.bincount(group.codes, weights, minlength=len(group.values))
        if not counts.sum() > 0:
            raise EvidenceError(f"no row with weight shows {name!r}")
        shares = np.tile(counts / counts.sum(), (len(evidence), 1))
        guessed[name] = GroupProbabilities(group.values, shares)
    if not guessed:
        return evidence
    joint = {
        name: group.probabilities[:, :, None] * evidence.probabilities[:, None]
        for name, group in guessed.items()
        if evidence.classes
    }
    return evidence.with_columns(groups={**evidence.groups, **guessed}, joint={**evidence.joint, **joint})
