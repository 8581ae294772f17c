"""Values that were seen in place of their probabilities, and the other probabilities given these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.rows.evidence import Evidence, RowData
from bylaw.rows.groups import GroupProbabilities, KnownGroup


def substitute(
    evidence: Evidence, codes: NDArray[np.int64] | None, seen: Mapping[str, KnownGroup]
) -> RowData:
    """The rows with label codes (n_rows,) and groups that were seen on all of them; what was not is known
    by its probabilities given what was."""
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
        probabilities = np.eye(len(evidence.classes)).take(codes, axis=0)
    else:
        for name in [name for name in seen if name in evidence.joint]:
            probabilities = _label_given(evidence.joint[name], seen[name].codes, probabilities)
    return RowData(
        classes=evidence.classes,
        probabilities=probabilities,
        groups=known,
        joint={name: array for name, array in joint.items() if name not in seen},
        references=evidence.references,
        costs=evidence.costs,
        weights=evidence.weights,
        index=evidence.index,
        options=evidence.options,
    )


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
