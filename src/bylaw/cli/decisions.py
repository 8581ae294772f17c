"""Decisions of batches of rows, and how they are written to columns and read from them."""

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

from bylaw._base.typing import Value
from bylaw.cli.tables import PolicyTables
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy.policy import Policy
from bylaw.policy.row_maps import as_one_type
from bylaw.policy.sampling import hash_ids
from bylaw.rows import table_files
from bylaw.rows.arrays import as_vector
from bylaw.rows.background_io import read_ahead, write_behind
from bylaw.rows.columns import Columns
from bylaw.rows.table_files import TableFile, check_unchanged, look_at, open_columns
from bylaw.rows.text_values import match_value

_BETWEEN = ";"  # labels of a set, where a table has no lists
MAX_KEYS = 2**25  # hashes of ids in memory at once: a quarter of a gigabyte, and as much to sort them


class DecisionColumn:
    """A column of decisions in a table, to write and to read.

    An action is written as itself, or as text if actions have several types, as with numbers and "reject". A
    set of labels is written as a list or, `as_text` in CSV files, as text with semicolons between them.
    """

    def __init__(self, policy: Policy, *, as_text: bool = False) -> None:
        self.actions: Sequence[Value] = policy.actions
        self.sets = not policy.action_space.exclusive
        self.as_text = as_text
        if as_text and self.sets and (mixed := [label for label in self.actions if _BETWEEN in str(label)]):
            raise OptionError(
                f"the label {mixed[0]!r} has a semicolon, which separates the labels of a set in CSV files: "
                "write .parquet, .arrow or .jsonl"
            )

    @property
    def arrow_type(self) -> Any:
        single = pyarrow.array(as_one_type(self.actions)).type
        if not self.sets:
            return single
        return pyarrow.string() if self.as_text else pyarrow.list_(single)

    def write(self, decisions: NDArray[Any]) -> Any:
        """Return an Arrow array of positions of actions, (n_rows,), or of membership, (n_rows, n_labels)."""
        values = as_one_type(self.actions)
        if not self.sets:
            return pyarrow.array(values).take(pyarrow.array(decisions))
        sets = [np.array(values, dtype=object)[row].tolist() for row in decisions]
        return pyarrow.array(
            [_BETWEEN.join(map(str, row)) for row in sets] if self.as_text else sets, self.arrow_type
        )

    def read(self, values: Sequence[Any]) -> NDArray[Any]:
        """Return actions, (n_rows,), or membership, (n_rows, n_labels), from values of the column."""
        if None in values:
            raise EvidenceError(f"the decision in row {values.index(None)} is missing")
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
            raise EvidenceError(f"{min(unknown)!r} is not a label of the policy")
        sets = [{known[text] for text in row} for row in rows]
        return np.array([[label in row for label in self.actions] for row in sets])

    def name(self, decision: Any) -> Any:
        """Return the action at a position, or the labels of a set."""
        if not self.sets:
            return self.actions[decision]
        return [label for label, inside in zip(self.actions, decision, strict=True) if inside]


def read_decisions(table: Path, column: str, policy: Policy, reading: Any) -> Any:
    """Return the decisions in a column of a table, in the actions of the policy."""
    values = reading.read(TableFile(table, text=(column,)), [column])[column].to_pylist()
    try:
        return DecisionColumn(policy).read(values)
    except EvidenceError as problem:
        problem.add_place(f"{table}, {column}")
        raise


@dataclass
class Decider:
    """A policy that decides batches of rows, and counts rows of groups that are new since its fit."""

    tables: PolicyTables
    columns: Columns
    column: DecisionColumn
    key: str | None
    probabilities: bool  # whether the output has them, too
    keep: tuple[str, ...]  # other columns that are written as they are
    refers: bool  # whether rows of new groups are rejected; otherwise they are an error
    unseen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.columns.id is None:
            raise OptionError("draws are keyed by ids: name their column with --id-column NAME")
        if self.columns.id == "decision":
            raise OptionError("the column of ids is called 'decision', like that of the decisions; rename it")
        if self.refers and not self._known:
            raise OptionError("--unseen has no effect: the policy decides without values of groups")
        if self.refers and self.tables.policy.action_space.reject_position is None:
            raise OptionError(
                "--unseen refer: the policy has no rejection to refer rows with; its decisions are "
                f"{list(self.tables.policy.actions)}. Use --unseen fail, or fit it with a rule on rejected()"
            )

    @property
    def id(self) -> str:
        return self.columns.id or ""

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([self.id, *self.keep, *self.columns.needed]))

    @property
    def _known(self) -> dict[str, Sequence[Value]]:
        """Columns of groups, with the values that the policy was fitted on."""
        values, columns = self.tables.values, self.columns.groups
        return {columns[n]: v for n, v in values.items() if isinstance(columns.get(n), str)}

    @property
    def _chances(self) -> list[str]:
        """Columns of probabilities, whose names do not match the pattern of the scores, p_*."""
        return [f"decision_p_{action}" for action in self.column.actions if self.probabilities]

    def open(self, table: Path) -> TableFile:
        """Return a table of these columns; raise an error if a column to keep is not in it."""
        file = open_columns(table, self.columns, self.tables.values, self.keep)
        taken = [self.id, "decision", *self._chances]
        for name in self.keep:
            if name not in file.names:
                raise OptionError(f"--keep {name}: {table} has no column {name!r}; it has {file.names}")
            if name in taken:
                raise OptionError(f"--keep {name}: the output has a column {name!r} anyway")
            taken.append(name)
        if not self.refers:
            return file
        others = {name: values for name, values in file.values.items() if name not in self._known}
        return replace(file, text=[*file.text, *self._known], values=others)

    def make_schema(self, given: Any) -> Any:
        """Return the schema of the output: ids, decisions, their probabilities, and columns that are kept."""
        kept = []
        for one in map(given.field, (self.id, *self.keep)):
            if self.column.as_text and types.is_nested(one.type):
                raise OptionError(
                    f"--keep {one.name}: a CSV file has no {one.type}; write .parquet or .jsonl"
                )
            # Codes of values are written as the values.
            kind = one.type.value_type if types.is_dictionary(one.type) else one.type
            kept.append(pyarrow.field(one.name, kind))
        fields = [kept[0], pyarrow.field("decision", self.column.arrow_type)]
        fields += [pyarrow.field(name, pyarrow.float64()) for name in self._chances]
        return pyarrow.schema([*fields, *kept[1:]])

    def decide(self, batch: Any) -> Any:
        """Return a record batch of decisions."""
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
        """Return the rows with a known value in place of new ones, and a mask of these rows, (n_rows,)."""
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
    """Write the decisions of all rows to a file, and return how many there are.

    `advance`, if given, gets the number of rows of each batch. An id may be in several rows if `repeated`,
    and there may be no rows if `empty`.
    """
    order = IdOrder()
    with contextlib.ExitStack() as stack:
        pieces = stack.enter_context(read_ahead(_read_files(files, decider.names)))
        first = next(pieces, None)
        if first is None and not empty:
            raise EvidenceError(f"{files[0].path}{' and others have' if files[1:] else ' has'} no rows")
        given = files[0].read(decider.names).schema if first is None else first[1].schema
        append = stack.enter_context(table_files.open_writer(output, decider.make_schema(given)))
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
            advice = (
                "give each row an id of its own, or pass --repeated-ids to let such rows share their draw"
            )
            refuse_repeated(  # before the output appears
                lambda: (batch.column(decider.id) for _, batch in _read_files(files, [decider.id])),
                decider.id,
                order.rows,
                advice,
            )
    return order.rows


def _read_files(files: Sequence[TableFile], names: Sequence[str]) -> Generator[tuple[str, Any], None, None]:
    """Yield the batches of one file after the other with their places; raise if a file changes meanwhile."""
    for file in files:
        state, row = look_at(file.path), 0
        for batch in file.batches(names):
            if len(batch):
                yield f"{file.path}, from row {row:,} on", batch
            row += len(batch)
        check_unchanged(file.path, state)


class IdOrder:
    """A check that ids rise from row to row, so that none occurs twice and no hashes need to be kept."""

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
    advice: str = "give each row an id of its own",
) -> None:
    """Raise an error if an id of a column is in several rows.

    `read` returns all ids in batches. It is called several times if their hashes do not fit into memory
    together.
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
                f"the id {ids[0]!r} in the column {column!r} is that of {len(ids):,} rows; {advice}"
            )
