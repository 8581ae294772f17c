"""Rows that were decided, what is known of them so far, which were seen, and whether they are sorted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.runtime import find_stack_level
from bylaw._base.typing import Floats, Mask, Value
from bylaw.errors import EvidenceError, GuaranteeWarning
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import LABEL
from bylaw.policy.policy import Policy
from bylaw.program.linear_form import admit_values, evaluate_cost
from bylaw.rows.evidence import Evidence, RowData, as_evidence, name_cost
from bylaw.rows.groups import KnownGroup, Part
from bylaw.rows.outcomes import ObservedRows
from bylaw.testing._audit import encode_decisions

Codes = NDArray[np.int64]
Ids = NDArray[np.uint64]
UNKNOWN = -1
_FEWEST = 200  # rows that tell
_FAR = -8.0  # standard deviations below the expected number of changes: more than a busy hour brings


@dataclass(frozen=True)
class WatchedRows:
    """Columns of one set of rows; what is not known yet is `UNKNOWN`, and nan among costs."""

    decisions: Floats  # (n_rows, n_actions): probabilities, or what was decided
    labels: Codes  # (n_rows,)
    groups: Mapping[str, Codes]
    references: Mapping[str, NDArray[Any]]
    costs: Mapping[str, Floats]  # (n_rows, n_actions) each

    def __len__(self) -> int:
        return len(self.decisions)

    def take(self, part: Part) -> WatchedRows:
        return WatchedRows(
            self.decisions[part],
            self.labels[part],
            {name: codes[part] for name, codes in self.groups.items()},
            {name: column[part] for name, column in self.references.items()},
            {name: cost[part] for name, cost in self.costs.items()},
        )

    def find_shown(self, names: frozenset[str]) -> Mask:
        """Return which rows show all of these attributes, (n_rows,)."""
        shown = np.ones(len(self), dtype=bool)
        for name, codes in {LABEL: self.labels, **self.groups}.items():
            if name in names:
                shown &= codes != UNKNOWN
        for name, cost in self.costs.items():
            if name_cost(name) in names:
                shown &= ~np.isnan(cost).any(axis=1)
        return shown

    def fill(self, later: WatchedRows) -> WatchedRows:
        """Return the rows with what was observed later; what was known before does not change."""
        groups = {name: _fill(codes, later.groups[name], name) for name, codes in self.groups.items()}
        costs = {name: _fill_costs(cost, later.costs[name], name) for name, cost in self.costs.items()}
        labels = _fill(self.labels, later.labels, LABEL)
        return WatchedRows(self.decisions, labels, groups, self.references, costs)


def _fill(before: Codes, later: Codes, name: str) -> Codes:
    _refuse_changes((before != UNKNOWN) & (later != UNKNOWN) & (before != later), name)
    return np.where(before == UNKNOWN, later, before)


def _fill_costs(before: Floats, later: Floats, name: str) -> Floats:
    changed = ~np.isnan(before) & ~np.isnan(later) & (before != later)
    _refuse_changes(changed.any(axis=1), name_cost(name))
    return np.where(np.isnan(before), later, before)


def _refuse_changes(changed: Mask, name: str) -> None:
    if changed.any():
        raise EvidenceError(
            f"the {name} of {int(changed.sum()):,} rows differs from what was passed before, which has been "
            "counted. Correct the later table"
        )


def join_rows(parts: Sequence[WatchedRows]) -> WatchedRows:
    first = parts[0]
    return WatchedRows(
        np.concatenate([part.decisions for part in parts]),
        np.concatenate([part.labels for part in parts]),
        {name: np.concatenate([part.groups[name] for part in parts]) for name in first.groups},
        {name: np.concatenate([part.references[name] for part in parts]) for name in first.references},
        {name: np.concatenate([part.costs[name] for part in parts]) for name in first.costs},
    )


@dataclass(frozen=True)
class WatchedColumns:
    """The columns that the monitored rules read."""

    policy: Policy
    groups: Mapping[str, tuple[Value, ...]]  # with their values
    references: tuple[str, ...]
    costs: Mapping[str, Any]  # {name: its function, or None}

    @property
    def space(self) -> ActionSpace:
        return self.policy.action_space

    def read(
        self, evidence: Any, labels: Any, groups: Any, decisions: Any, outcomes: Mapping[str, Any] | None
    ) -> WatchedRows:
        """Return new rows, checked."""
        rows = as_evidence(evidence)
        if rows.weights is not None:
            raise EvidenceError("rows that arrive count alike: pass evidence without weights")
        rows = rows.with_observed(labels=labels, true_groups=groups, outcomes=outcomes)
        rows = self.policy.feature_map.admit(self.policy.calibrate(rows))
        taken = None if decisions is None else encode_decisions(decisions, self.space, rows)
        if missing := [name for name in self.references if name not in rows.references]:
            raise EvidenceError(f"a rule refers to the earlier model {missing[0]!r}: pass references=")
        return WatchedRows(
            self.policy.probabilities(rows) if taken is None else taken,
            _read_labels(rows),
            {name: self._read_group(name, values, rows) for name, values in self.groups.items()},
            {name: rows.references[name] for name in self.references},
            {name: self._read_cost(name, rows, taken) for name in self.costs},
        )

    def read_late(self, n_rows: int, labels: Any, groups: Any, outcomes: Any) -> WatchedRows:
        """Return what was observed later of rows that were counted before."""
        blank = Evidence.without_rows(self.space.classes, {}, options=self.space.named_options)
        rows = blank.with_columns(probabilities=np.zeros((n_rows, len(self.space.classes))))
        rows = rows.with_observed(labels=labels, true_groups=groups, outcomes=outcomes)
        return WatchedRows(
            np.zeros((n_rows, len(self.space.actions))),
            _read_labels(rows),
            {name: self._read_group(name, values, rows) for name, values in self.groups.items()},
            {},
            {name: self._read_cost(name, rows, None) for name in self.costs},
        )

    def _read_group(self, name: str, values: tuple[Value, ...], rows: Evidence) -> Codes:
        group = rows.true_groups.get(name)
        if group is None or (group.codes < 0).all():
            group = rows.known_groups.get(name)
        if group is None:
            return np.full(len(rows), UNKNOWN, np.int64)
        codes = admit_values(name, group.seen(), values).codes
        return np.where(group.codes < 0, UNKNOWN, codes)

    def _read_cost(self, name: str, rows: Evidence, taken: Floats | None) -> Floats:
        shape = (len(rows), len(self.space.actions))
        cost = rows.fill_outcomes(taken).get(name)
        if cost is None:
            return np.full(shape, np.nan)
        if isinstance(cost, str):
            return evaluate_cost(name, self.costs[name], rows, self.space)
        if cost.shape != shape:
            raise EvidenceError(
                f"outcomes[{name!r}] has {cost.shape[1]} columns; it needs one per action, "
                f"{list(self.space.actions)}"
            )
        observed = rows.find_observed(taken).get(name_cost(name), np.ones(len(rows), dtype=bool))
        return np.where(observed[:, None], cost, np.nan)

    def observe(self, rows: WatchedRows) -> ObservedRows:
        """Return rows that show everything that a rule needs, as they were observed."""
        classes = self.space.classes
        blank = Evidence.without_rows(classes, {}, options=self.space.named_options)
        known = {
            name: KnownGroup(self.groups[name], np.maximum(codes, 0)) for name, codes in rows.groups.items()
        }
        evidence = blank.with_columns(
            probabilities=(rows.labels[:, None] == np.arange(len(classes))).astype(np.float64),
            groups=known,
            references=dict(rows.references),
            costs=dict(rows.costs),
        )
        columns = {f.name: getattr(evidence, f.name) for f in fields(RowData)}
        names = frozenset({LABEL, *known, *map(name_cost, rows.costs)})
        return ObservedRows(**columns, predicted=evidence, observed=names)


def _read_labels(rows: Evidence) -> Codes:
    return np.full(len(rows), UNKNOWN) if rows.labels is None else rows.labels


@dataclass
class RowMemory:
    """Rows by the hashes of their ids: all that were seen, and those that wait for labels or groups."""

    seen: Ids = field(default_factory=lambda: np.empty(0, np.uint64))  # sorted
    waiting_ids: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    waiting: WatchedRows | None = None

    def find_seen(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which of these rows were seen, (n_rows,)."""
        places = np.minimum(np.searchsorted(self.seen, ids), max(len(self.seen) - 1, 0))
        return self.seen[places] == ids if len(self.seen) else np.zeros(len(ids), dtype=bool)

    def add_seen(self, ids: Ids) -> None:
        new = np.sort(ids[~self.find_seen(ids)])
        self.seen = np.insert(self.seen, np.searchsorted(self.seen, new), new)

    def find_waiting(self, ids: Ids) -> NDArray[np.int64]:
        """Return the place of each id among the waiting ones, or `UNKNOWN`."""
        if not len(self.waiting_ids):
            return np.full(len(ids), UNKNOWN, np.int64)
        order = np.argsort(self.waiting_ids, kind="stable")
        ordered = self.waiting_ids[order]
        places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        return np.where(ordered[places] == ids, order[places], UNKNOWN)


def warn_of_sorted_rows(rows: WatchedRows) -> None:
    """Warn if adjacent rows are far more alike than rows in random order."""
    likeliest = rows.decisions.argmax(axis=1)
    for name, codes in {**rows.groups, "the label": rows.labels, "the decision": likeliest}.items():
        known = codes[codes != UNKNOWN]
        changes, expected, distance = count_changes(known)
        if len(known) >= _FEWEST and distance < _FAR:
            warnings.warn(
                f"rows are sorted by {name}: it changes {changes:,} times from row to row, where "
                f"{expected:,.0f} are expected. A monitor compares rows with their neighbours, and is blind "
                "or wrong where these are alike: pass rows in the order in which they were decided, or "
                "shuffle them by something that has nothing to do with them, such as a hash of their ids",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )
            return


def count_changes(codes: NDArray[np.int64]) -> tuple[int, float, float]:
    """Return how often adjacent rows differ, how often they would at random, and the distance of both.

    The distance is in standard deviations (Wald and Wolfowitz, 1940).
    """
    n = len(codes)
    if n < 2:
        return 0, 0.0, 0.0
    changes = int((codes[1:] != codes[:-1]).sum())
    _, counts = np.unique(codes, return_counts=True)
    differ = 1 - float((counts * (counts - 1.0)).sum()) / (n * (n - 1.0))
    expected, deviation = (n - 1) * differ, math.sqrt((n - 1) * differ * (1 - differ))
    return changes, expected, (changes - expected) / max(deviation, 1.0)
