"""From a batch of scores to a batch of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from bylaw._base.typing import Value
from bylaw.cli.decision_columns import ActionColumn, SetColumn
from bylaw.cli.inputs import Previous, list_group_values, open_table
from bylaw.data.column_roles import Roles
from bylaw.data.table_files import TableFile
from bylaw.data.text_values import match_value
from bylaw.errors import OptionError
from bylaw.policy.policy import Policy


def name_probability(action: Value) -> str:
    """The column of an action's probability; no pattern of the input's scores, p_*, matches it."""
    return f"decision_p_{action}"


@dataclass
class Decider:
    """Decides batches, and counts rows of groups that were never seen."""

    policy: Policy
    roles: Roles
    column: ActionColumn | SetColumn
    key: str | None
    probabilities: bool
    keep: tuple[str, ...]
    as_text: bool  # the output has no lists
    previous: Previous | None  # whose decisions count as unchanged
    refers: bool  # rows of groups that were never seen; else they are refused
    unseen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not self.refers:
            return
        if not self._known:
            raise OptionError("--unseen has no effect: the policy decides without values of groups")
        if self.policy.action_space.reject_position is None:
            raise OptionError(
                "--unseen refer: the policy has no rejection to refer rows with; its decisions are "
                f"{list(self.policy.actions)}. Use --unseen fail, or fit it with a rule on rejected()"
            )

    @property
    def id(self) -> str:
        return self.roles.id or ""

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([self.id, *self.keep, *self.roles.needed]))

    @property
    def _known(self) -> dict[str, Sequence[Value]]:
        """Columns of values of groups, with those that the policy was fitted on."""
        values, columns = list_group_values(self.policy), self.roles.columns.groups
        return {columns[n]: v for n, v in values.items() if isinstance(columns.get(n), str)}

    def open(self, table: Path) -> TableFile:
        """A table of these columns."""
        file = open_table(table, self.roles, list_group_values(self.policy), self.keep)
        if not self.refers:
            return file
        others = {name: values for name, values in file.values.items() if name not in self._known}
        return replace(file, text=[*file.text, *self._known], values=others)

    def make_schema(self, given: Any) -> Any:
        """The ids and the columns to keep as they came, the decisions, and the probability of each action if
        it is asked for."""
        kept = [pyarrow.field(name, self._find_type(given.field(name))) for name in (self.id, *self.keep)]
        fields = [kept[0], pyarrow.field("decision", self.column.arrow_type)]
        if self.probabilities:
            fields += [pyarrow.field(name_probability(a), pyarrow.float64()) for a in self.policy.actions]
        return pyarrow.schema([*fields, *kept[1:]])

    def _find_type(self, field: Any) -> Any:
        """What a column is written as: values, where it came as codes of them."""
        from pyarrow import types

        if self.as_text and types.is_nested(field.type):
            raise OptionError(
                f"--keep {field.name}: a CSV file has no {field.type}; write .parquet or .jsonl"
            )
        return field.type.value_type if types.is_dictionary(field.type) else field.type

    def decide(self, batch: Any) -> Any:
        """A record batch of decisions."""
        schema = self.make_schema(batch.schema)
        ids, *kept = (batch.column(name).cast(schema.field(name).type) for name in (self.id, *self.keep))
        batch, unseen = self._replace_unseen(batch)
        evidence = self.roles.columns.evidence(batch)
        evidence = evidence if self.previous is None else self.previous.mark(evidence, ids)
        positions = self.policy.decide_positions(evidence, ids=ids, key=self.key)
        place = self.policy.action_space.reject_position or 0
        if unseen is not None:
            positions = np.where(unseen, place, positions)
        columns = [ids, self.column.write(positions)]
        if self.probabilities:
            chances = self.policy.probabilities(evidence)
            if unseen is not None:
                chances = np.where(unseen[:, None], np.arange(chances.shape[1]) == place, chances)
            columns += [pyarrow.array(chance.astype(np.float64)) for chance in chances.T]
        return pyarrow.record_batch([*columns, *kept], schema=schema)

    def _replace_unseen(self, batch: Any) -> tuple[Any, Any]:
        """The rows with some known value in place of those that were never seen, and which rows these are,
        (n_rows,); None if rows are not referred."""
        if not self.refers:
            return batch, None
        unseen = np.zeros(len(batch), dtype=bool)
        for name, known in self._known.items():
            codes = batch.column(name)
            codes = codes if pyarrow.types.is_dictionary(codes.type) else codes.dictionary_encode()
            found = [_match(value, known) for value in codes.dictionary.to_pylist()]
            strange = np.array([value is None for value in found], dtype=bool)
            indices = codes.indices.to_numpy(zero_copy_only=False)
            missing = codes.is_null().to_numpy(zero_copy_only=False)
            places = np.where(missing, 0, indices).astype(np.int64)
            unseen |= ~missing & (strange[places] if len(strange) else False)
            values = pyarrow.array([known[0] if value is None else value for value in found])
            column = values.take(codes.indices) if found else codes
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
        self.unseen += int(unseen.sum())
        return batch, unseen


def _match(value: Any, known: Sequence[Value]) -> Value | None:
    """Which of the known values a cell holds, as itself or as text."""
    if value is None:
        return None
    if isinstance(value, str):
        return match_value(value, known)
    return next((one for one in known if one == value), None)
