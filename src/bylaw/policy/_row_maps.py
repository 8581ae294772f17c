"""Probabilities and decisions of a policy for out-of-memory rows, computed by the engine of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow

from bylaw._base import Value, check_key
from bylaw.engines import Scan, scan
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy._policy import Policy
from bylaw.rows import Columns
from bylaw.scoring import DialectName, name_results, to_sql


def answer_rows(
    policy: Policy,
    rows: Any,
    columns: Columns | None,
    *,
    decides: bool,
    ids: str | None = None,
    key: str | None = None,
) -> Any:
    """Return a lazy frame with the probabilities or decisions of a policy, of the same kind as the rows.

    The rows are a `Scan`, or a frame with the roles of its `columns`. `decides` is True for decisions by id.
    """
    if not isinstance(rows, Scan):
        if columns is None:
            raise OptionError(
                f"evidence must be Evidence, a Scan or a frame, got {type(rows).__name__}; for a frame of "
                "Dask, Spark or Polars, pass columns=Columns(...)"
            )
        rows = scan(rows, columns)
    elif columns is not None:
        raise OptionError(
            "columns must not be given with a Scan, which has its own columns: leave out columns="
        )
    ids = rows.columns.id if ids is None else ids
    if decides and not isinstance(ids, str):
        raise OptionError(
            "ids must be the name of a column, because decisions on out-of-memory rows are drawn by id: "
            "pass ids="
        )
    if key is not None:
        check_key(key)
    found = policy.calibration
    calibrated = [] if found is None else [found.by, *found.groups, *found.joint]
    needed = rows.columns.without_outcomes().restrict(
        [*policy.problem.attributes, *calibrated], policy.problem.references, policy.problem.arrays
    )
    answers = RowAnswers(replace(policy, fingerprints=()), needed, ids, decides, key)
    if missing := [name for name in answers.reads if name not in rows.engine.names]:
        raise EvidenceError(
            f"{rows.engine} must have the column {missing[0]!r}, got only {rows.engine.names}"
        )
    return rows.engine.map(answers)


@dataclass(frozen=True)
class RowAnswers:
    """Map from batches of rows to probabilities, or to decisions by id; implements `RowMap`."""

    policy: Policy
    columns: Columns
    id: str | None  # the column of ids, which the result keeps
    decides: bool  # True for decisions, False for probabilities
    key: str | None = None

    @property
    def carried(self) -> list[str]:
        return [] if self.id is None else [self.id]

    @property
    def reads(self) -> list[str]:
        return list(dict.fromkeys([*self.carried, *self.columns.needed]))

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns of the result."""
        return name_results(self.policy, self.carried, probabilities=not self.decides, decisions=self.decides)

    def make_schema(self, given: Any) -> Any:
        if not self.decides:
            made = pyarrow.float64()
        else:
            made = pyarrow.bool_() if self._decides_sets else self._actions.type
        names = self.names[len(self.carried) :]
        kept = [given.field(name) for name in self.carried]
        return pyarrow.schema([*kept, *(pyarrow.field(name, made) for name in names)])

    def __call__(self, batch: Any, /) -> Any:
        evidence = self.columns.evidence(batch)
        kept = [batch.column(name) for name in self.carried]
        if self.decides:
            found = self.policy.decide_positions(evidence, ids=batch.column(self.id), key=self.key)
            made = found.T if self._decides_sets else [self._actions.take(pyarrow.array(found))]
        else:
            made = self.policy.probabilities(evidence).T
        schema = self.make_schema(batch.schema)
        return pyarrow.RecordBatch.from_arrays([*kept, *map(pyarrow.array, made)], schema=schema)

    def write_sql(self, dialect: DialectName, table: str) -> str:
        return to_sql(
            self.policy,
            self.columns,
            dialect=dialect,
            table=[table],
            id_column=self.id if self.decides else None,
            key=self.key,
            keep=self.carried,
            probabilities=not self.decides,
        )

    @property
    def _decides_sets(self) -> bool:
        return len(self.policy.action_space.list_decision_columns()) > 1

    @property
    def _actions(self) -> Any:
        return pyarrow.array(as_one_type(self.policy.actions))


def as_one_type(actions: Sequence[Value]) -> list[Value]:
    """Return actions as values of a table column: text if they have more than one type."""
    mixed = len({type(action) for action in actions}) > 1
    return [str(action) for action in actions] if mixed else list(actions)
