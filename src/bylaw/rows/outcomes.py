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
from bylaw.errors import EvidenceError, OptionError
from bylaw.language.expressions import LABEL, Conditions, CostColumn
from bylaw.rows.arrays import as_columns, as_matrix, check_alignment, fill_missing, own
from bylaw.rows.evidence import Evidence, RowData, check_sizes, encode_values
from bylaw.rows.groups import GroupProbabilities, KnownGroup, Part, PartlyKnownGroup, factorize
from bylaw.rows.substitution import substitute

KNOWN = "known"  # in place of an outcome: a cost that does not depend on what turns out, such as a price list
Limits = Mapping[str, tuple[float, float]]  # the least and the most of costs, by name
Names = frozenset[str]


def name_cost(name: str) -> str:
    """A cost of `custom(name)` among the attributes that rows show."""
    return f"custom({name!r})"


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


@dataclass(frozen=True)
class HeldOut:
    """Rows that have no part in the choice of a policy, and what was observed of them.

    Parameters
    ----------
    evidence : Evidence
        what is known of the rows when they are decided.
    labels : array of shape (n_rows,), optional
        the true labels; missing where they are not known.
    groups : dict or frame, optional
        the true groups, of attributes that the evidence knows only as probabilities; missing where they are
        not known.
    limits : dict, optional
        the least and the most of costs in `custom`, by name.
    largest_weight : float, optional
        that any row can have; where rows have weights, nothing is certified without it.
    propensity_weights : array of shape (n_rows,), optional
        1 / P(seen | x) of rows that show labels or groups which others lack, where that depends on x.
    outcomes : dict, optional
        what costs in `custom` turned out to be, as in `audit`; those of the evidence are predictions.

    Examples
    --------
    >>> HeldOut(Evidence([[0.7, 0.3], [0.2, 0.8]]), labels=[0, 1]).labels
    [0, 1]
    """

    evidence: Evidence
    labels: Any = None
    groups: Any = None
    limits: Limits = field(default_factory=dict)
    largest_weight: float | None = None
    propensity_weights: Any = None
    outcomes: Mapping[str, Any] | None = None


def observe(
    evidence: Evidence,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    outcomes: Mapping[str, Any] | None = None,
    taken: Floats | None = None,
) -> ObservedRows:
    """The rows with observed labels, groups and costs in place of those predicted.

    Values may be missing: None, NaN, NaT, NA, null, or masked. An attribute that no row shows counts as not
    given.

    Parameters
    ----------
    evidence : Evidence
    labels : array of shape (n_rows,), optional
        the true labels.
    groups : dict or frame, optional
        the true groups, {name: one value per row}.
    propensity_weights : array of shape (n_rows,), optional
        1 / P(seen | x), up to a factor, of the rows that show labels or groups which others lack; on the
        others it is not read. By default, the rows that show them are a random sample of all.
    outcomes : dict, optional
        {name: what the cost of each action turned out to be, (n_rows, n_actions), or "known" where it does
        not depend on what turns out}. Rows with a missing value count as not seen.
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
    >>> observe(Evidence([[0.7, 0.3], [0.2, 0.8]]), labels=[1, 1]).probabilities
    array([[0., 1.],
           [0., 1.]])
    >>> partly = observe(Evidence([[0.75, 0.25], [0.25, 0.75]]), labels=[1, None])
    >>> partly.event_probability((("label", 1),))  # the second row is as predicted
    array([1.75, 0.75])
    """
    partly, turned_out = read_seen(evidence, labels, groups, propensity_weights, outcomes, taken)
    rows = partly.view(frozenset())
    columns = {f.name: getattr(rows, f.name) for f in fields(RowData)}
    arrays = {name: cost for name, cost in turned_out.items() if not isinstance(cost, str)}
    labelled = [] if partly.codes is None else [LABEL]
    return ObservedRows(
        **{**columns, "costs": {**rows.costs, **arrays}},
        predicted=evidence,
        observed=frozenset({*partly.groups, *map(name_cost, turned_out), *labelled}),
        partly=partly if partly.seen else None,
    )


def read_seen(
    evidence: Evidence,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    outcomes: Mapping[str, Any] | None = None,
    taken: Floats | None = None,
) -> tuple[PartlySeen, dict[str, Floats | str]]:
    """What `observe` takes, checked: labels and groups with where they were seen, and what costs turned out
    to be; those that no row shows are left out."""
    seen: dict[str, Mask] = {}
    columns = as_columns(groups, "groups")
    costs = as_columns(outcomes, "outcomes")
    given = {"labels": labels, "groups": columns, "propensity_weights": propensity_weights, "outcomes": costs}
    check_alignment(given, evidence.index)
    codes = None if labels is None else _read_labels(evidence, labels, seen)
    found = {name: _read_group(evidence, name, column, seen) for name, column in columns.items()}
    known = {name: group for name, group in found.items() if group is not None}
    turned_out = {name: _read_outcome(evidence, name, cost, seen, taken) for name, cost in costs.items()}
    weights = (
        None if propensity_weights is None else _read_propensity_weights(evidence, propensity_weights, seen)
    )
    partly = PartlySeen(_guess_groups(evidence, known, seen), codes, known, seen, weights)
    return partly, {name: cost for name, cost in turned_out.items() if cost is not None}


def _note_missing(name: str, missing: Mask, seen: dict[str, Mask]) -> None:
    if missing.any():
        seen[name] = ~missing


def _read_labels(evidence: Evidence, labels: Any, seen: dict[str, Mask]) -> NDArray[np.int64] | None:
    """The codes of labels; None if all of them are missing."""
    vector, missing = evidence.partial_vector(labels, "labels")
    if missing.all():
        return None
    if not evidence.classes:
        raise EvidenceError(
            f"labels: there are no classes, only the options {list(evidence.options)}; what these turned out "
            "to cost is passed as outcomes={name: an array of shape (rows, options)}"
        )
    _note_missing(LABEL, missing, seen)
    positions = {label: i for i, label in enumerate(evidence.classes)}
    return encode_values(fill_missing(vector, missing), positions, "labels")


def _read_group(evidence: Evidence, name: str, column: Any, seen: dict[str, Mask]) -> KnownGroup | None:
    """A group's true values, in the order of its probabilities; None if all of them are missing."""
    what = f"groups[{name!r}]"
    if isinstance(column, Mapping) or len(getattr(column, "shape", (0,))) == 2:
        raise EvidenceError(f"{what} must be what was seen, one value per row")
    found = column if isinstance(column, PartlyKnownGroup) else _split_missing(evidence, column, what)
    evidence.check_length(len(found.seen), what)
    if not found.seen.any():
        return None
    _note_missing(name, ~found.seen, seen)
    if name not in evidence.groups:
        return found.group
    if unknown := set(found.group.values) - set(values := evidence.groups[name].values):
        raise EvidenceError(
            f"{what} has values without probabilities: {sorted(map(str, unknown))}; there are "
            f"probabilities of {list(values)}"
        )
    group, known = found.group.with_values(values), evidence.groups[name]
    if isinstance(known, KnownGroup) and (wrong := (group.codes != known.codes)[found.seen]).any():
        raise EvidenceError(
            f"{what} differs on {int(wrong.sum()):,} rows from the group by which decisions are made; leave "
            "it out, or give the other one another name"
        )
    return group


def _split_missing(evidence: Evidence, column: Any, what: str) -> PartlyKnownGroup:
    if isinstance(column, KnownGroup):
        return PartlyKnownGroup(column, np.ones(len(column.codes), dtype=bool))
    vector, missing = evidence.partial_vector(column, what)
    if missing.all():
        return PartlyKnownGroup(KnownGroup((), np.zeros(len(vector), np.int64)), ~missing)
    return PartlyKnownGroup(factorize(fill_missing(vector, missing), what), ~missing)


def _read_outcome(
    evidence: Evidence, name: str, cost: Any, seen: dict[str, Mask], taken: Floats | None
) -> Floats | str | None:
    """What a cost turned out to be, (n_rows, n_actions), or `KNOWN`; None if all rows are missing."""
    what = f"outcomes[{name!r}]"
    if isinstance(cost, str):
        if cost != KNOWN:
            raise OptionError(
                f"{what} takes an array of shape (rows, actions), or {KNOWN!r} where the cost does not "
                f"depend on what turns out, not {cost!r}"
            )
        return KNOWN
    masked = np.ma.filled(cost.astype(np.float64), np.nan) if isinstance(cost, np.ma.MaskedArray) else cost
    matrix = as_matrix(masked, what)[0]
    if matrix.ndim != 2 or len(matrix) != len(evidence):
        raise EvidenceError(
            f"{what} must have shape (rows, actions) with {len(evidence)} rows, not {matrix.shape}"
        )
    if np.isinf(matrix).any():
        raise EvidenceError(f"{what} must be finite, or missing (NaN) where it is not known")
    gaps = np.isnan(matrix)
    needed = gaps if taken is None or taken.shape != matrix.shape else gaps & (taken > 0)
    missing: Mask = np.asarray(needed.any(axis=1))
    if missing.all() or gaps.all():
        return None
    _note_missing(name_cost(name), missing, seen)
    return own(np.where(gaps | missing[:, None], matrix[~gaps & ~missing[:, None]][0], matrix), None)


def _read_propensity_weights(evidence: Evidence, propensity_weights: Any, seen: Mapping[str, Mask]) -> Floats:
    """Ones where nothing was seen that others lack."""
    if not seen:
        raise OptionError("propensity_weights= has no effect: no label or group is missing. Leave it out")
    column, missing = evidence.partial_vector(propensity_weights, "propensity_weights")
    shown = np.logical_or.reduce(list(seen.values()))
    try:
        weights = np.where(shown & ~missing, column, 1.0).astype(np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"propensity_weights must be numbers, not {column.dtype}") from None
    if (shown & missing).any() or not np.isfinite(weights).all() or (weights <= 0).any():
        raise EvidenceError(
            "propensity_weights must be finite and positive on every row that shows a label or a group which "
            "others lack: 1 / P(seen | x)"
        )
    return check_sizes(weights, "propensity_weights")


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
