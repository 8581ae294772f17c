"""Rows as they turned out: labels and groups that were seen, in place of their probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.data.arrays import as_columns
from bylaw.data.evidence import Evidence, RowData, encode_values
from bylaw.data.groups import GroupProbabilities, KnownGroup, Part, factorize
from bylaw.errors import EvidenceError

Limits = Mapping[str, tuple[float, float]]  # the least and the most of costs, by name


@dataclass(frozen=True, eq=False, repr=False)
class ObservedRows(RowData):
    """Rows as they turned out: on these, a rate is an observed rate. A policy does not decide on them.

    What was not observed is known by its probabilities given what was.
    """

    predicted: Evidence = field(kw_only=True)  # what was known of the same rows beforehand

    def rows(self, part: Part) -> ObservedRows:
        """Some of the rows."""
        return super().rows(part).with_columns(predicted=self.predicted.rows(part))


@dataclass(frozen=True)
class HeldOut:
    """Rows that have no part in the choice of a policy, and what was observed of them.

    Parameters
    ----------
    evidence : Evidence
        what is known of the rows when they are decided.
    labels : array of shape (n_rows,), optional
        the true labels.
    groups : dict or frame, optional
        the true groups, of attributes that the evidence knows only as probabilities.
    limits : dict, optional
        the least and the most of costs in `custom`, by name.
    largest_weight : float, optional
        that any row can have; by default the largest of these rows.

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


def observe(evidence: Evidence, labels: Any = None, groups: Any = None) -> ObservedRows:
    """The rows with observed labels and groups in place of their probabilities.

    Parameters
    ----------
    evidence : Evidence
    labels : array of shape (n_rows,), optional
        the true labels.
    groups : dict or frame, optional
        the true groups, {name: one value per row}.

    Returns
    -------
    ObservedRows

    Examples
    --------
    >>> observe(Evidence([[0.7, 0.3], [0.2, 0.8]]), labels=[1, 1]).probabilities
    array([[0., 1.],
           [0., 1.]])
    """
    codes = None if labels is None else _label_codes(evidence, labels)
    columns = as_columns(groups, "groups")
    seen = {name: _seen_group(evidence, name, column) for name, column in columns.items()}
    known, joint = {**evidence.groups, **seen}, dict(evidence.joint)
    for name, group in sorted(evidence.groups.items(), key=lambda item: isinstance(item[0], tuple)):
        if not isinstance(group, GroupProbabilities) or name in seen:
            continue
        cells = _given(group, evidence.joint.get(name), name, codes, seen)
        known[name] = GroupProbabilities(group.values, cells.sum(axis=2))
        if name in joint:
            joint[name] = cells
        if isinstance(name, tuple):
            unseen = [(i, a) for i, a in enumerate(name) if a not in seen and a not in evidence.joint]
            known |= {a: known[name].margin(i) for i, a in unseen}
    probabilities = evidence.probabilities
    if codes is not None:
        probabilities = np.eye(len(evidence.classes))[codes]
    else:
        for name in [name for name in seen if name in evidence.joint]:
            probabilities = _label_given(evidence.joint[name], seen[name].codes, probabilities)
    return ObservedRows(
        classes=evidence.classes,
        probabilities=probabilities,
        groups=known,
        joint={name: array for name, array in joint.items() if name not in seen},
        references=evidence.references,
        costs=evidence.costs,
        weights=evidence.weights,
        index=evidence.index,
        predicted=evidence,
    )


def _label_codes(evidence: Evidence, labels: Any) -> NDArray[np.int64]:
    return encode_values(
        evidence.vector(labels, "labels"), {label: i for i, label in enumerate(evidence.classes)}, "labels"
    )


def _seen_group(evidence: Evidence, name: str, column: Any) -> KnownGroup:
    """A group's true values, in the order of its probabilities."""
    what = f"groups[{name!r}]"
    if isinstance(column, Mapping) or len(getattr(column, "shape", (0,))) == 2:
        raise EvidenceError(f"{what} must be what was seen, one value per row")
    group = column if isinstance(column, KnownGroup) else factorize(evidence.vector(column, what), what)
    evidence.check_length(len(group.codes), what)
    if name not in evidence.groups:
        return group
    if unknown := set(group.values) - set(values := evidence.groups[name].values):
        raise EvidenceError(
            f"{what} has values without probabilities: {sorted(map(str, unknown))}; there are "
            f"probabilities of {list(values)}"
        )
    return group.with_values(values)


def _label_given(joint: Floats, codes: NDArray[np.int64], otherwise: Floats) -> Floats:
    """P(label | x, group) for the group that was seen, (n_rows, n_classes)."""
    here = joint[np.arange(len(joint)), codes]
    total = here.sum(axis=1, keepdims=True)
    return np.where(total > 0, here / np.where(total > 0, total, 1.0), otherwise)


def _given(
    group: GroupProbabilities,
    joint: Floats | None,
    name: Any,
    codes: NDArray[np.int64] | None,
    seen: Mapping[str, KnownGroup],
) -> Floats:
    """(n_rows, n_values, n_classes or 1): the group, with the label where there is a model of both, given
    the label and those of its attributes that were seen."""
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
    total = kept.sum(axis=(1, 2), keepdims=True)
    even = possible / possible.sum(axis=(1, 2), keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), even)
