"""Rows of a monitor: their decisions, the values observed so far, and a check whether they are sorted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Mask, Value, find_stack_level
from bylaw.errors import EvidenceError, GuaranteeWarning
from bylaw.language import LABEL, ActionSpace
from bylaw.policy import Policy
from bylaw.program import admit_values, evaluate_cost
from bylaw.rows import Evidence, KnownGroup, ObservedRows, Part, RowData, as_evidence, name_cost
from bylaw.testing._audit import encode_decisions

Codes = NDArray[np.int64]
Ids = NDArray[np.uint64]
UNKNOWN = -1


@dataclass(frozen=True)
class WatchedRows:
    """Columns of monitored rows; missing values are `UNKNOWN`, or nan in columns of costs.

    The columns are "decisions" (n_rows, n_actions), which are probabilities or decisions that were taken,
    "labels" (n_rows,), "groups/name" (n_rows,), "references/name", and "costs/name" (n_rows, n_actions).
    """

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["decisions"])

    def select(self, table: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a table such as "groups", {name: column}."""
        pairs = ((key.partition("/"), column) for key, column in self.columns.items())
        return {name: column for (first, _, name), column in pairs if first == table and name}

    def take(self, part: Part) -> WatchedRows:
        """Return the rows of this part, such as an array of positions."""
        return WatchedRows({key: column[part] for key, column in self.columns.items()})

    def find_shown(self, names: frozenset[str]) -> Mask:
        """Return a mask of the rows where none of these attributes is missing, (n_rows,)."""
        shown = np.ones(len(self), dtype=bool)
        for key, column in self.columns.items():
            if _name_attribute(key) in names:
                shown &= ~_find_any(_find_unknown(column))
        return shown

    def fill(self, later: WatchedRows) -> WatchedRows:
        """Return the rows with missing values taken from `later`; raise if it changes other values."""
        filled = dict(self.columns)
        for key, before in self.columns.items():
            if (name := _name_attribute(key)) is None:
                continue
            unknown, after = _find_unknown(before), later.columns[key]
            changed = _find_any(~unknown & ~_find_unknown(after) & (before != after))
            if changed.any():
                raise EvidenceError(
                    f"the {name} of {int(changed.sum()):,} rows differs from the values passed before, "
                    "which were already counted: correct the later table"
                )
            filled[key] = np.where(unknown, after, before)
        return WatchedRows(filled)

    def put(self, others: WatchedRows, where: Mask) -> WatchedRows:
        """Return the rows with those at the mask `where`, (n_rows,), replaced by `others`."""
        places = np.arange(len(self))
        places[where] = len(self) + np.arange(len(others))
        return join_rows([self, others]).take(places)


def _name_attribute(key: str) -> str | None:
    """Return the name that rules use for a column that may be observed later; None for other columns."""
    table, _, name = key.partition("/")
    return {"labels": LABEL, "groups": name, "costs": name_cost(name)}.get(table)


def _find_unknown(column: NDArray[Any]) -> Mask:
    return np.isnan(column) if column.dtype.kind == "f" else column == UNKNOWN


def _find_any(entries: Mask) -> Mask:
    """Return a mask of the rows with at least one true entry, (n_rows,)."""
    return entries if entries.ndim == 1 else np.logical_or.reduce(entries, axis=1)


def join_rows(parts: Sequence[WatchedRows]) -> WatchedRows:
    """Return the rows of all parts, which have the same columns, in one object."""
    return WatchedRows(
        {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns}
    )


@dataclass(frozen=True)
class WatchedColumns:
    """The columns that the monitored rules need, and how to read them."""

    policy: Policy
    groups: Mapping[str, tuple[Value, ...]]  # {name: its values}
    references: tuple[str, ...]  # names of earlier models
    costs: Mapping[str, Any]  # {name of a cost: its function, or None}

    @property
    def space(self) -> ActionSpace:
        return self.policy.action_space

    @property
    def blank(self) -> Evidence:
        """Evidence without rows."""
        return Evidence.without_rows(self.space.classes, {}, options=self.space.named_options)

    def read(self, evidence: Any, observed: Mapping[str, Any], decisions: Any) -> WatchedRows:
        """Validate new rows and their observed values, and return their columns."""
        rows = as_evidence(evidence)
        if rows.weights is not None:
            raise EvidenceError("Monitor does not support sample weights: pass evidence without weights")
        rows = self.policy.feature_map.admit(self.policy.calibrate(rows.with_observed(**observed)))
        taken = None if decisions is None else encode_decisions(decisions, self.space, rows)
        if missing := [name for name in self.references if name not in rows.references]:
            raise EvidenceError(
                f"evidence must have the labels of the earlier model {missing[0]!r}, to which a rule refers: "
                "pass references="
            )
        decided = self.policy.probabilities(rows) if taken is None else taken
        references = {f"references/{name}": rows.references[name] for name in self.references}
        return WatchedRows({"decisions": decided, **references, **self._read_observed(rows, taken)})

    def read_late(self, n_rows: int, observed: Mapping[str, Any]) -> WatchedRows:
        """Return the columns of values that were observed later for rows that were counted before."""
        rows = self.blank.with_columns(probabilities=np.zeros((n_rows, len(self.space.classes))))
        decided = np.zeros((n_rows, len(self.space.actions)))
        return WatchedRows(
            {"decisions": decided, **self._read_observed(rows.with_observed(**observed), None)}
        )

    def _read_observed(self, rows: Evidence, taken: Floats | None) -> dict[str, NDArray[Any]]:
        labels = np.full(len(rows), UNKNOWN) if rows.labels is None else rows.labels
        groups = {
            f"groups/{name}": self._read_group(name, values, rows) for name, values in self.groups.items()
        }
        costs = {f"costs/{name}": self._read_cost(name, rows, taken) for name in self.costs}
        return {"labels": labels, **groups, **costs}

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
                f"outcomes[{name!r}] must have one column for each action, got {cost.shape[1]} for "
                f"{list(self.space.actions)}"
            )
        observed = rows.find_observed(taken).get(name_cost(name), np.ones(len(rows), dtype=bool))
        return np.where(observed[:, None], cost, np.nan)

    def observe(self, rows: WatchedRows) -> ObservedRows:
        """Convert rows on which nothing that a rule needs is missing to observed rows."""
        labels, costs = rows.columns["labels"], rows.select("costs")
        groups = {
            name: KnownGroup(self.groups[name], np.maximum(codes, 0))
            for name, codes in rows.select("groups").items()
        }
        evidence = self.blank.with_columns(
            probabilities=(labels[:, None] == np.arange(len(self.space.classes))).astype(np.float64),
            groups=groups,
            references=rows.select("references"),
            costs=costs,
        )
        columns = {f.name: getattr(evidence, f.name) for f in fields(RowData)}
        names = frozenset({LABEL, *groups, *map(name_cost, costs)})
        return ObservedRows(**columns, predicted=evidence, observed=names)


def warn_of_sorted_rows(rows: WatchedRows) -> None:
    """Warn if adjacent rows are far more similar than rows in random order."""
    likeliest, labels = rows.columns["decisions"].argmax(axis=1), rows.columns["labels"]
    for name, codes in {**rows.select("groups"), "the label": labels, "the decision": likeliest}.items():
        known = codes[codes != UNKNOWN]
        changes, expected, distance = count_changes(known)
        if len(known) >= 200 and distance < -8:  # more than by a busy hour
            warnings.warn(
                f"rows are sorted by {name}: it changes {changes:,} times from row to row, where "
                f"{expected:,.0f} are expected. A monitor compares rows with their neighbors, and misses "
                "violations if these are alike: pass rows in the order in which they were decided, or "
                "shuffle them by a column that is independent of them, such as a hash of their ids",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )
            return


def count_changes(codes: NDArray[np.int64]) -> tuple[int, float, float]:
    """Return how often adjacent rows differ, its expectation in random order, and the distance of both.

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
