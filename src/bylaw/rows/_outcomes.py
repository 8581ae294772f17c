"""Observed rows: labels, groups and costs that were observed, in place of predicted ones.

Some rows may have missing values. For an event e that refers to attributes with missing values, the rows have
prediction-powered outcomes (Angelopoulos et al., 2023)

    p(e | x) + (r / rho) (1{e} - p(e | x)),

where r is 1 on rows that have all of these attributes (or their weight, 1 / P(seen | x)) and 0 on the others,
and rho is the mean of r. Their mean over all rows is the predicted frequency of e plus the mean error of the
predictions on the rows that have it: it has no bias, however bad the predictions, and a small variance where
they are good.

Rows may have one attribute of an event and not another. Then the correction is a sum of stages: the rows that
have the group correct p(group, label | x) to 1{group} p(label | x, group), and those that have both correct
that to 1{group} 1{label}. So the labels of a group add up to the group, and a rate of the group, a ratio of
the two, varies no more than it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Mask
from bylaw.errors import EvidenceError
from bylaw.language import LABEL, Conditions, CostColumn
from bylaw.rows._evidence import Evidence, RowData, align_true_group, check_propensity_weights, name_cost
from bylaw.rows._groups import GroupProbabilities, KnownGroup, Part

Names = frozenset[str]


@dataclass(frozen=True, eq=False)
class PartlySeen:
    """Labels and groups that were observed on some rows or on all, which subsets of the rows share."""

    evidence: Evidence
    codes: NDArray[np.int64] | None  # (n_rows,): positions of labels; arbitrary where missing
    groups: Mapping[str, KnownGroup]  # with arbitrary codes where missing
    seen: Mapping[str, Mask]  # (n_rows,) each: masks of the attributes with missing values
    weights: Floats | None = None  # (n_rows,): 1 / P(observed | x)
    views: dict[Names, RowData] = field(
        default_factory=dict
    )  # cached results of `view`; next, of `correction`
    corrections: dict[Names, Floats] = field(default_factory=dict)

    def view(self, names: Names) -> RowData:
        """Return the rows with observed attributes in place of their probabilities.

        These are the attributes without missing values, and those in `names`, whose missing values are
        arbitrary.
        """
        if names not in self.views:
            shown = {n: group for n, group in self.groups.items() if n in names or n not in self.seen}
            codes = self.codes if LABEL in names or LABEL not in self.seen else None
            self.views[names] = _substitute(self.evidence, codes, shown)
        return self.views[names]

    def correction(self, names: Names) -> Floats:
        """Return the factor r / rho of the prediction error, (n_rows,); r marks rows with all of `names`."""
        if names not in self.corrections:
            shown = np.logical_and.reduce([self.seen[name] for name in names]).astype(np.float64)
            shown = shown if self.weights is None else shown * self.weights
            share = float(np.average(shown, weights=self.evidence.weights))
            if not share > 0:
                raise EvidenceError(
                    f"a rule refers to {' and '.join(sorted(names))}, but no row with positive weight has "
                    f"{'observed values of all of them' if len(names) > 1 else 'an observed value of it'}; "
                    "check the weights, or add such rows"
                )
            self.corrections[names] = shown / share
        return self.corrections[names]


@dataclass(frozen=True, eq=False, repr=False)
class ObservedRows(RowData):
    """Rows with observed columns in place of predictions, on which rates are observed rates.

    Policies are not applied to these rows. Attributes that were not observed have probabilities given the
    observed ones. If an attribute is missing on some rows, the probability of an event that refers to it is
    prediction-powered: on single rows it may be below zero or above one, but its mean is unbiased.
    """

    predicted: Evidence = field(kw_only=True)  # the same rows with predictions
    observed: Names = field(kw_only=True)  # columns observed on some rows; "label" and costs too
    partly: PartlySeen | None = field(kw_only=True, default=None)  # None if no row has missing values
    # Positions of these rows among those of `partly`.
    places: NDArray[np.intp] | None = field(kw_only=True, default=None)

    def rows(self, part: Part) -> ObservedRows:
        """Return a subset of the rows, with the corrections that were computed on all rows."""
        places = np.arange(len(self)) if self.places is None else self.places
        return super().rows(part).with_columns(predicted=self.predicted.rows(part), places=places[part])

    @property
    def seen(self) -> dict[str, Mask]:
        """Masks of the rows, (n_rows,), on which each attribute with missing values was observed."""
        where = self._locate()
        return {} if self.partly is None else {n: mask[where] for n, mask in self.partly.seen.items()}

    def _locate(self, rows: Part = slice(None)) -> Any:
        """Return the positions of some of these rows among the rows of `partly`."""
        return rows if self.places is None else self.places[rows]

    @property
    def unseen(self) -> set[Any]:
        """Attributes, and tuples of them, that were observed on no row; "label" may be among them."""
        return {*self.hidden_groups, LABEL} - self.observed

    def event_probability(self, event: Conditions, rows: Part = slice(None)) -> Floats | float:
        """Return 1{event} on the given rows, (n_rows,), or its probability if it was not observed.

        It is prediction-powered if the attributes of the event are missing on some rows.
        """
        total = before = super().event_probability(event, rows)
        if self.partly is None:
            return total
        # Correct for one attribute after the other: groups first, in decreasing order of their observed rows.
        where, seen = self._locate(rows), self.partly.seen
        order = self.find_partly_seen(name for name, _ in event)
        order = sorted(order, key=lambda name: (name == LABEL, -seen[name].sum(), name))
        for names in [frozenset(order[: i + 1]) for i in range(len(order))]:
            after = self.partly.view(names).event_probability(event, where)
            total = total + self.partly.correction(names)[where] * (after - before)
            before = after
        return total

    def event_weights(self, event: Conditions) -> Floats:
        """Return 1{event}, (n_rows,), or its probability if it was not observed; never negative.

        If the attributes of the event are missing on some rows, it is (r / rho) 1{event}: the other rows get
        a higher weight, and predictions are not used.
        """
        names = self.find_partly_seen(name for name, _ in event)
        if self.partly is None or not names:
            return super().event_probability(event) * np.ones(len(self))
        where = self._locate()
        outcome = self.partly.view(names).event_probability(event, where)
        return self.partly.correction(names)[where] * outcome

    def weigh_cost(self, event: Conditions, source: CostColumn, costs: Floats) -> Floats:
        """Return the observed cost of one action on rows in an event, (n_rows,), and 0 on other rows.

        `costs` (n_rows,) are the observed costs, with any number where they are missing. As for events,
        predictions fill the gaps without bias.
        """
        name = name_cost(source.name)
        names = self.find_partly_seen([name, *(name for name, _ in event)])
        if self.partly is None or name not in names:
            return super().weigh_cost(event, source, costs)
        predicted, before = self.predicted.costs.get(source.name), np.zeros(len(self))
        if predicted is not None:
            before = super().event_probability(event) * predicted[:, source.item]
        where = self._locate()
        after = self.partly.view(names).event_probability(event, where) * costs
        return before + self.partly.correction(names)[where] * (after - before)

    def find_partly_seen(self, names: Iterable[str]) -> Names:
        """Return the attributes among `names` that are missing on some rows."""
        return frozenset(names).intersection(() if self.partly is None else self.partly.seen)

    def seen_share(self, event: Conditions) -> float:
        """Return the share of rows on which all attributes of an event were observed."""
        return float(np.mean(self._find_seen(self.find_partly_seen(name for name, _ in event))))

    def restrict(self, names: Iterable[str]) -> ObservedRows:
        """Return the rows on which all attributes in `names` were observed.

        Other attributes that are missing on some rows are predicted. Weights are multiplied by the propensity
        weights.
        """
        return self.restrict_with_places(names)[0]

    def restrict_with_places(self, names: Iterable[str]) -> tuple[ObservedRows, NDArray[np.intp]]:
        """Return the result of `restrict`, and the positions of its rows among these rows."""
        chosen = self.find_partly_seen(names)
        if self.partly is None or not chosen:
            return self, np.arange(len(self))
        here = np.flatnonzero(self._find_seen(chosen))
        where = self._locate(here)
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
    """Return the rows with observed columns in place of predictions.

    A column whose values are all missing counts as not given.

    Parameters
    ----------
    evidence : Evidence
        may have observed labels, groups and costs.
    taken : array of shape (n_rows, n_actions), optional
        one-hot, the decisions that were taken: outcomes of other decisions may be missing.

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
    >>> partly.event_probability((("label", 1),))  # the second row has its predicted probability
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
    """Return the evidence with probabilities of groups that were observed on some rows and not predicted.

    The probabilities are the frequencies of the values on the rows where the group was observed.
    """
    groups, joint = dict(evidence.groups), dict(evidence.joint)
    for name in [name for name in seen if name in known and name not in evidence.groups]:
        group, weights = known[name], evidence.row_weights * seen[name]
        counts = np.bincount(group.codes, weights, minlength=len(group.values))
        if not counts.sum() > 0:
            raise EvidenceError(
                f"no row with positive weight has an observed value of {name!r}; check the weights, or add "
                "such rows"
            )
        shares = np.tile(counts / counts.sum(), (len(evidence), 1))
        groups[name] = GroupProbabilities(group.values, shares)
        if evidence.classes:
            joint[name] = shares[:, :, None] * evidence.probabilities[:, None]
    return evidence.with_columns(groups=groups, joint=joint)


def _substitute(
    evidence: Evidence, codes: NDArray[np.int64] | None, seen: Mapping[str, KnownGroup]
) -> RowData:
    """Return the rows with observed labels and groups in place of their probabilities.

    Other probabilities become conditional on these. `codes` (n_rows,) are the positions of the labels.
    """
    groups, joint = {**evidence.groups, **seen}, dict(evidence.joint)
    for name, group in sorted(evidence.hidden_groups.items(), key=lambda item: isinstance(item[0], tuple)):
        if name in seen:
            continue
        cells = _condition(group, evidence.joint.get(name), name, codes, seen)
        groups[name] = GroupProbabilities(group.values, cells.sum(axis=2))
        if name in joint:
            joint[name] = cells
        if isinstance(name, tuple):
            unseen = [(i, a) for i, a in enumerate(name) if a not in seen and a not in evidence.joint]
            groups |= {a: groups[name].margin(i) for i, a in unseen}
    probabilities = evidence.probabilities
    if codes is not None:
        probabilities = np.eye(len(evidence.classes)).take(codes, axis=0)
    else:
        for name in [name for name in seen if name in evidence.joint]:  # P(label | x, group)
            cells = evidence.joint[name][np.arange(len(evidence)), seen[name].codes]
            probabilities = _divide(cells, cells.sum(axis=1, keepdims=True), probabilities)
    columns = {f.name: getattr(evidence, f.name) for f in fields(RowData) if f.name != "margins"}
    columns["joint"] = {name: array for name, array in joint.items() if name not in seen}
    return RowData(**{**columns, "probabilities": probabilities, "groups": groups})


def _condition(
    group: GroupProbabilities,
    joint: Floats | None,
    name: Any,
    codes: NDArray[np.int64] | None,
    seen: Mapping[str, KnownGroup],
) -> Floats:
    """Return the probabilities of a group given the label and its observed attributes, (n_rows, n_values, 1).

    With `joint` probabilities, those of the group and the label together, (n_rows, n_values, n_classes).
    """
    cells = group.probabilities[:, :, None] if joint is None else joint
    possible = np.ones(cells.shape, dtype=bool)
    if joint is not None and codes is not None:
        possible &= np.eye(joint.shape[2], dtype=bool)[codes][:, None, :]
    for place, attribute in enumerate(name if isinstance(name, tuple) else ()):
        if attribute in seen:
            here = [seen[attribute].values.index(value[place]) for value in group.values]
            possible &= (seen[attribute].codes[:, None] == np.array(here))[:, :, None]
    if possible.all():
        return cells
    kept = cells * possible
    even = possible / possible.sum(axis=(1, 2), keepdims=True)
    return _divide(kept, kept.sum(axis=(1, 2), keepdims=True), even)


def _divide(parts: Floats, total: Floats, otherwise: Floats) -> Floats:
    """Return `parts` / `total`; `otherwise` where the total is zero."""
    return np.where(total > 0, parts / np.where(total > 0, total, 1.0), otherwise)
