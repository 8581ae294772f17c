"""Decisions of batches of rows, and the columns in which they are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import types

from bylaw._base import Value
from bylaw.cli.tables import PolicyTables
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy import Policy, as_one_type, hash_ids
from bylaw.rows import (
    Columns,
    TableFile,
    as_vector,
    check_unchanged,
    look_at,
    match_value,
    open_columns,
    open_writer,
    read_ahead,
    write_behind,
)

_BETWEEN = ";"  # separates the labels of a set if a table has no lists
MAX_KEYS = 2**25  # hashes of ids in memory at once: 0.25 GB, and as much again to sort them


class DecisionColumn:
    """A column of decisions in a table, for writing and reading.

    An action is written as it is or, if actions have several types (such as numbers and "reject"), as text. A
    set of labels is written as a list or, with `as_text` for CSV files, as text with semicolons between the
    labels.
    """

    def __init__(self, policy: Policy, *, as_text: bool = False) -> None:
        self.actions: Sequence[Value] = policy.actions
        self.sets = not policy.action_space.exclusive
        self.as_text = as_text
        if as_text and self.sets and (mixed := [label for label in self.actions if _BETWEEN in str(label)]):
            raise OptionError(
                f"labels must have no semicolon, which separates the labels of a set in CSV files, got "
                f"{mixed[0]!r}; write .parquet, .arrow or .jsonl"
            )

    @property
    def arrow_type(self) -> Any:
        single = pyarrow.array(as_one_type(self.actions)).type
        if not self.sets:
            return single
        return pyarrow.string() if self.as_text else pyarrow.list_(single)

    def write(self, decisions: NDArray[Any]) -> Any:
        """Return decisions as an Arrow array.

        `decisions` are indices of actions, (n_rows,), or membership in sets, (n_rows, n_labels).
        """
        values = as_one_type(self.actions)
        if not self.sets:
            return pyarrow.array(values).take(pyarrow.array(decisions))
        sets = [np.array(values, dtype=object)[row].tolist() for row in decisions]
        return pyarrow.array(
            [_BETWEEN.join(map(str, row)) for row in sets] if self.as_text else sets, self.arrow_type
        )

    def read(self, values: Sequence[Any]) -> NDArray[Any]:
        """Return values of the column as actions, (n_rows,), or membership in sets, (n_rows, n_labels)."""
        if None in values:
            raise EvidenceError(f"every row must have a decision, got none in row {values.index(None)}")
        cells = [[value] for value in values]
        if self.sets:
            cells = [value.split(_BETWEEN) if isinstance(value, str) else value for value in values]
        rows = [[str(label) for label in row if not self.sets or label != ""] for row in cells]
        known = {text: match_value(text, self.actions) for text in set().union(*rows)}
        if not self.sets:  # an unknown decision stays as it is
            pairs = zip(rows, values, strict=True)
            matches = [value if known[text] is None else known[text] for [text], value in pairs]
            return np.array(matches, dtype=object)
        if unknown := [text for text, label in known.items() if label is None]:
            raise EvidenceError(
                f"decisions must consist of labels of the policy, {self.actions}, got {min(unknown)!r}"
            )
        sets = [{known[text] for text in row} for row in rows]
        return np.array([[label in row for label in self.actions] for row in sets])

    def name(self, decision: Any) -> Any:
        """Return the action at an index, or the labels of a set."""
        if not self.sets:
            return self.actions[decision]
        return [label for label, inside in zip(self.actions, decision, strict=True) if inside]


def read_decisions(table: Path, column: str, policy: Policy, reading: Any) -> Any:
    """Return the decisions in a column of a table, as actions of the policy."""
    values = reading.read(TableFile(table, text=(column,)), [column])[column].to_pylist()
    try:
        return DecisionColumn(policy).read(values)
    except EvidenceError as problem:
        problem.add_place(f"{table}, {column}")
        raise


@dataclass
class Decider:
    """A policy that decides batches of rows, and counts the rows with group values unknown to the policy."""

    tables: PolicyTables
    columns: Columns
    column: DecisionColumn
    key: str | None
    probabilities: bool  # whether probabilities are also written
    keep: tuple[str, ...]  # columns that are copied to the output
    refers: bool  # whether rows with unknown group values are rejected; otherwise they are an error
    unseen: int = field(default=0, init=False)  # number of rows with unknown group values

    def __post_init__(self) -> None:
        if self.columns.id is None:
            raise OptionError("random draws need a column of ids; name it with --id-column NAME")
        if self.columns.id == "decision":
            raise OptionError(
                "the column of ids must not be called 'decision', like the column of decisions; rename it"
            )
        if self.refers and not self._known:
            raise OptionError(
                "--unseen has no effect, because the policy does not use values of groups; leave it out"
            )
        if self.refers and self.tables.policy.action_space.reject_position is None:
            raise OptionError(
                "--unseen refer needs a policy that can reject rows, got one with the decisions "
                f"{list(self.tables.policy.actions)}; use --unseen fail, or fit it with a rule on rejected()"
            )

    @property
    def id(self) -> str:
        """The name of the column of ids."""
        return self.columns.id or ""

    @property
    def names(self) -> list[str]:
        """The columns of the table to read."""
        return list(dict.fromkeys([self.id, *self.keep, *self.columns.needed]))

    @property
    def _known(self) -> dict[str, Sequence[Value]]:
        """The columns of groups, with the values in the fitted rows."""
        values, columns = self.tables.values, self.columns.groups
        return {columns[n]: v for n, v in values.items() if isinstance(columns.get(n), str)}

    @property
    def _chances(self) -> list[str]:
        """The output columns of probabilities; the pattern of input scores, p_*, does not match them."""
        return [f"decision_p_{action}" for action in self.column.actions if self.probabilities]

    def open(self, table: Path) -> TableFile:
        """Return a table with the columns to read; raise if it lacks a column that `keep` names."""
        file = open_columns(table, self.columns, self.tables.values, self.keep)
        taken = [self.id, "decision", *self._chances]
        for name in self.keep:
            if name not in file.names:
                raise OptionError(f"--keep must name a column of {table}, {file.names}, got {name!r}")
            if name in taken:
                raise OptionError(
                    f"--keep must not name a column that the output has anyway, got {name!r}; leave it out"
                )
            taken.append(name)
        if not self.refers:
            return file
        others = {name: values for name, values in file.values.items() if name not in self._known}
        return replace(file, text=[*file.text, *self._known], values=others)

    def make_schema(self, given: Any) -> Any:
        """Return the schema of the output: ids, decisions, their probabilities, and copied columns."""
        kept = []
        for one in map(given.field, (self.id, *self.keep)):
            if self.column.as_text and types.is_nested(one.type):
                raise OptionError(
                    f"--keep {one.name}: CSV files cannot store {one.type}; write .parquet or .jsonl"
                )
            # Write dictionary-encoded columns as plain values.
            kind = one.type.value_type if types.is_dictionary(one.type) else one.type
            kept.append(pyarrow.field(one.name, kind))
        fields = [kept[0], pyarrow.field("decision", self.column.arrow_type)]
        fields += [pyarrow.field(name, pyarrow.float64()) for name in self._chances]
        return pyarrow.schema([*fields, *kept[1:]])

    def decide(self, batch: Any) -> Any:
        """Return the decisions of a batch of rows as a record batch."""
        schema, policy = self.make_schema(batch.schema), self.tables.policy
        ids, *kept = (batch.column(name).cast(schema.field(name).type) for name in (self.id, *self.keep))
        batch, unseen = self._replace_unseen(batch) if self.refers else (batch, np.zeros(len(batch), bool))
        self.unseen += int(unseen.sum())
        evidence = self.tables.mark(self.columns.evidence(batch), ids)
        place = policy.action_space.reject_position or 0
        positions = policy.decide_positions(evidence, ids=ids, key=self.key)
        if unseen.any():
            positions = np.where(unseen, place, positions)
        columns = [ids, self.column.write(positions)]
        if self.probabilities:
            chances = policy.probabilities(evidence)
            chances = np.where(unseen[:, None], np.arange(chances.shape[1]) == place, chances)
            columns += [pyarrow.array(chance.astype(np.float64)) for chance in chances.T]
        return pyarrow.record_batch([*columns, *kept], schema=schema)

    def _replace_unseen(self, batch: Any) -> tuple[Any, NDArray[np.bool_]]:
        """Replace group values that are unknown to the policy by known ones.

        Return the batch, and a mask of the rows in which values were replaced, (n_rows,).
        """
        unseen = np.zeros(len(batch), dtype=bool)
        for name, known in self._known.items():
            codes = batch.column(name)
            codes = codes if types.is_dictionary(codes.type) else codes.dictionary_encode()
            matches = [
                match_value(value, known)
                if isinstance(value, str)
                else next((one for one in known if one == value), None)
                for value in codes.dictionary.to_pylist()
            ]
            new = pyarrow.array([value is None for value in matches], pyarrow.bool_())
            # A missing value is not replaced, and evidence refuses it.
            unseen |= new.take(codes.indices).fill_null(False).to_numpy(zero_copy_only=False)
            values = pyarrow.array([known[0] if value is None else value for value in matches])
            column = values.take(codes.indices) if matches else codes
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
        return batch, unseen


def write_decisions(
    decider: Decider,
    files: Sequence[TableFile],
    output: Path,
    advance: Callable[[int], None] | None,
    *,
    repeated: bool,
    empty: bool = False,
) -> int:
    """Write the decisions of all rows to a file, and return the number of rows.

    `advance` is called with the number of rows of each batch. With `repeated`, several rows may have the same
    id; with `empty`, there may be no rows.
    """
    order = IdOrder()
    with contextlib.ExitStack() as stack:
        pieces = stack.enter_context(read_ahead(_read_files(files, decider.names)))
        first = next(pieces, None)
        if first is None and not empty:
            raise EvidenceError(
                f"{files[0].path}{' and the other files' if files[1:] else ''} must have rows, got none"
            )
        given = files[0].read(decider.names).schema if first is None else first[1].schema
        append = stack.enter_context(open_writer(output, decider.make_schema(given)))
        write = stack.enter_context(write_behind(append))
        for place, batch in chain([] if first is None else [first], pieces):
            try:
                decided = decider.decide(batch)
            except EvidenceError as problem:
                problem.add_place(place)
                raise
            write(decided)
            order.add(batch.column(decider.id))
            if advance is not None:
                advance(len(batch))
        if not (decider.tables.policy.deterministic or order.rises or repeated):
            advice = "give each row a different id, or pass --repeated-ids to let such rows share their draw"
            refuse_repeated(  # before the output appears
                lambda: (batch.column(decider.id) for _, batch in _read_files(files, [decider.id])),
                decider.id,
                order.rows,
                advice,
            )
    return order.rows


def _read_files(files: Sequence[TableFile], names: Sequence[str]) -> Generator[tuple[str, Any], None, None]:
    """Yield the batches of all files with their locations; raise if a file changes while it is read."""
    for file in files:
        state, row = look_at(file.path), 0
        for batch in file.batches(names):
            if len(batch):
                yield f"{file.path}, rows from {row:,}", batch
            row += len(batch)
        check_unchanged(file.path, state)


class IdOrder:
    """A check of whether ids increase from row to row, because then no id can occur twice."""

    def __init__(self) -> None:
        self.rises, self.last, self.rows = True, None, 0

    def add(self, ids: Any) -> None:
        """Check the next ids, an Arrow array."""
        self.rows += len(ids)
        if not self.rises or not len(ids):
            return
        values = ids.cast(ids.type.value_type) if types.is_dictionary(ids.type) else ids
        self.rises = not values.null_count and (self.last is None or self.last.type == values.type)
        if self.rises:
            joined = values if self.last is None else pyarrow.concat_arrays([self.last, values])
            above = pyarrow.compute.call_function("greater", [joined[1:], joined[:-1]])
            self.rises = bool(above.to_numpy(zero_copy_only=False).all())
        self.last = values[-1:]


def refuse_repeated(
    read: Callable[[], Iterable[Any]],
    column: str,
    n_rows: int,
    advice: str = "give each row a different id",
) -> None:
    """Raise if several rows have the same id.

    `read` returns all ids in batches. It is called several times if the hashes of all ids do not fit into
    memory.
    """

    def hash_batches() -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        for batch in read():
            if len(batch):
                ids = as_vector(batch, "ids")
                yield ids, hash_ids(ids, "", "")[:, 0]

    n_parts = max(-(-n_rows // MAX_KEYS), 1)
    for part in range(n_parts):
        hashes = [keys[keys % np.uint64(n_parts) == part] for _, keys in hash_batches()]
        ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            ids = [value for ids, keys in hash_batches() for value in ids[keys == twice[0]].tolist()]
            raise OptionError(
                f"ids must be unique, got {ids[0]!r} on {len(ids):,} rows of the column {column!r}; {advice}"
            )
