"""Files larger than memory: Parquet, Arrow and CSV, one or many, by pyarrow.

Parquet files are cut into partitions of whole row groups, any other file is one. Large files are looked at in
several processes; otherwise a thread reads ahead while the rows before are looked at.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from bylaw._base.typing import Value
from bylaw.engines.engine import Engine, Meanings, RowMap, Task
from bylaw.engines.processes import count_processes, run_apart
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows.background_io import read_ahead
from bylaw.rows.columns import Columns
from bylaw.rows.table_files import (
    FileState,
    TableFile,
    detect_format,
    find_files,
    look_at,
    name_file,
    parse_column,
)

_PARTITION_ROWS = 2**20
_LARGE = 2**28  # bytes: it takes longer to look at their rows than to start processes
_NOTHING: tuple[int, Iterator[Any]] = (-1, iter(()))  # no partition is left


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """A path, a folder, a pattern, or a pyarrow dataset."""
    if table is not None:
        raise EvidenceError("table= names a table of a database; a path needs none")
    if isinstance(source, pyarrow.dataset.Dataset):
        paths = [Path(path) for path in getattr(source, "files", ())]
        if not paths:
            raise EvidenceError("the pyarrow dataset has no files; rows in memory are passed as Evidence")
        return TableFiles.find(paths, columns, str(paths[0].parent))
    return TableFiles.find(find_files(str(source)), columns, str(source))


class _Partition(NamedTuple):
    path: Path
    row_groups: tuple[int, ...] | None  # of a Parquet file; None for all rows


@dataclass(frozen=True)
class TableFiles(Engine):
    """Files with the same columns."""

    title: str
    files: tuple[TableFile, ...]
    states: tuple[FileState, ...] = field(repr=False)

    @classmethod
    def find(cls, paths: Sequence[Path], columns: Columns, title: str) -> TableFiles:
        untyped = [c for c in (*columns.groups.values(), *columns.true_groups.values()) if isinstance(c, str)]
        ids = () if columns.id is None else (columns.id,)
        values = columns.list_values()
        if detect_format(paths[0]) == "csv":  # the values of all rows tell what a group's are: see settle
            ids, values = (*ids, *untyped), {n: known for n, known in values.items() if n not in untyped}
        found = cls.of(
            [TableFile(path, ids, columns.numbers, values, encoded=untyped) for path in paths], title
        )
        for file in found.files:
            if missing := [n for n in (*columns.needed, *columns.outcomes) if n not in file.names]:
                raise EvidenceError(f"{file.path} has no column {missing[0]!r}; it has {file.names}")
        return found

    @classmethod
    def of(cls, files: Sequence[TableFile], title: str) -> TableFiles:
        """Single files, as they are now."""
        return cls(title, tuple(files), tuple(look_at(file.path) for file in files))

    def __str__(self) -> str:
        return self.title

    @property
    def names(self) -> list[str]:
        return self.files[0].names

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @cached_property
    def _n_rows(self) -> int | None:
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    @property
    def n_partitions(self) -> int:
        return len(self.partitions)

    @cached_property
    def partitions(self) -> list[_Partition]:
        return [partition for file in self.files for partition in _cut(file.path)]

    def describe(self, partition: int) -> str:
        return str(self.partitions[partition].path)

    def check(self) -> None:
        for file, state in zip(self.files, self.states, strict=True):
            if look_at(file.path) != state:
                raise EvidenceError(
                    f"{file.path} was changed while its rows were read; nothing was fitted. Start again"
                )

    def settle(
        self, texts: Mapping[str, Sequence[Any]], sample: Any, known: Mapping[str, Sequence[Value]]
    ) -> tuple[Engine, Meanings, Any]:
        """In a CSV file all is text: what all values of a column look like decides what they are."""
        if detect_format(self.files[0].path) != "csv":
            return self, {}, sample
        meanings: dict[str, dict[Any, Value]] = {}
        for name, found in texts.items():
            column = parse_column(pyarrow.array(found), known.get(name, ()))
            meanings[name] = dict(zip(found, column.to_pylist(), strict=True))
            values = parse_column(sample.column(name), tuple(meanings[name].values()))
            sample = sample.set_column(sample.schema.get_field_index(name), name, values)
        files = [
            replace(
                file,
                text=[name for name in file.text if name not in meanings],
                values={**file.values, **{name: tuple(m.values()) for name, m in meanings.items()}},
            )
            for file in self.files
        ]
        return replace(self, files=tuple(files)), meanings, sample

    def map(self, rows: RowMap) -> Any:
        """Files have no frame."""
        raise OptionError(
            "there is no frame to give back for rows in files: `bylaw decide policy.json FOLDER -o FOLDER` "
            "decides them part by part; in Python, policy.decide(columns.evidence(batch), ids=...) a batch"
        )

    @cached_property
    def is_large(self) -> bool:
        """Whether several processes pay."""
        large = sum(state.size for state in self.states) >= _LARGE
        return large and min(self.n_partitions, count_processes()) > 1

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """In several processes where that pays, and whatever these leave over in this one."""
        done = 0
        if self.is_large:
            for result in run_apart(partial(self._run_alone, task, columns), self.n_partitions):
                yield result
                done += 1
        yield from self._run_here(task, columns, done)

    def _run_alone(self, task: Task, columns: Sequence[str], i: int) -> Any:
        """One partition, in a process that has one core."""
        pyarrow.set_cpu_count(1)
        return self._work(task, i, (batch for _, batch in self._read(columns, i, i + 1)))

    def _run_here(self, task: Task, columns: Sequence[str], first: int) -> Iterator[Any]:
        """One partition after the other, from the first on."""
        with read_ahead(self._read(columns, first, self.n_partitions)) as batches:
            parts = groupby(batches, key=itemgetter(0))
            ahead, rows = next(parts, _NOTHING)
            for i in range(first, self.n_partitions):
                yield self._work(task, i, (batch for _, batch in rows) if ahead == i else iter(()))
                if ahead == i:
                    ahead, rows = next(parts, _NOTHING)

    def _work(self, task: Task, i: int, batches: Iterator[Any]) -> Any:
        try:
            return task(i, batches)
        except EvidenceError as problem:
            problem.add_place(self.describe(i))
            raise

    def _read(self, columns: Sequence[str], first: int, end: int) -> Generator[tuple[int, Any], None, None]:
        """Batches of some partitions, each with the number of its partition."""
        files = {file.path: file for file in self.files}
        for i in range(first, end):
            partition = self.partitions[i]
            for batch in files[partition.path].batches(columns, partition.row_groups):
                yield i, batch


def _cut(path: Path) -> Iterator[_Partition]:
    """Into partitions of about a million rows."""
    if detect_format(path) != "parquet":
        yield _Partition(path, None)
        return
    with name_file(path), pyarrow.parquet.ParquetFile(path) as file:
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    first, rows = 0, 0
    for i, count in enumerate(counts):
        rows += count
        if rows >= _PARTITION_ROWS or i + 1 == len(counts):
            yield _Partition(path, tuple(range(first, i + 1)))
            first, rows = i + 1, 0
