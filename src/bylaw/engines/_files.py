"""Files larger than memory, Parquet, Arrow and CSV, read with pyarrow.

Parquet files are divided into partitions of whole row groups; any other file is one partition. Large files
are read in several processes by joblib, which need no `if __name__ == "__main__"` in scripts. Other files are
read in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from bylaw._base import Value
from bylaw.engines._engine import Engine, Meanings, Task
from bylaw.errors import EvidenceError
from bylaw.rows import (
    Columns,
    FileState,
    TableFile,
    detect_format,
    find_files,
    look_at,
    name_file,
    parse_column,
    read_ahead,
)

_PARTITION_ROWS = 2**20
_LARGE = 2**28  # bytes, for which reading takes longer than starting processes


def open_source(source: Any, columns: Columns, table: str | None) -> Engine:
    """Return the engine that reads a path, a folder, a pattern with stars, or a pyarrow dataset."""
    if isinstance(source, pyarrow.dataset.Dataset):
        paths = [Path(path) for path in getattr(source, "files", ())]
        if not paths:
            raise EvidenceError(
                "the pyarrow dataset must have files, got none; pass rows in memory as Evidence"
            )
        return TableFiles.find(paths, columns, str(paths[0].parent))
    return TableFiles.find(find_files(str(source)), columns, str(source))


@dataclass(frozen=True)
class TableFiles(Engine):
    """Files with the same columns."""

    title: str
    files: tuple[TableFile, ...]
    states: tuple[FileState, ...] = field(repr=False)

    @classmethod
    def find(cls, paths: Sequence[Path], columns: Columns, title: str) -> TableFiles:
        """Return the engine of files whose columns are read by their roles."""
        ids = [] if columns.id is None else [columns.id]
        values = columns.list_values()
        if (
            detect_format(paths[0]) == "csv"
        ):  # `settle` converts the texts of groups when all of them are known
            groups = (*columns.groups.values(), *columns.true_groups.values())
            ids += [one for one in groups if isinstance(one, str)]
            values = {name: known for name, known in values.items() if name not in ids}
        found = cls.of([TableFile(path, ids, columns.numbers, values) for path in paths], title)
        for file in found.files:
            if missing := [name for name in columns.names if name not in file.names]:
                raise EvidenceError(f"{file.path} has no column {missing[0]!r}; it has {file.names}")
        return found

    @classmethod
    def of(cls, files: Sequence[TableFile], title: str) -> TableFiles:
        """Return the engine of single files, which must not change afterwards."""
        return cls(title, tuple(files), tuple(look_at(file.path) for file in files))

    def __str__(self) -> str:
        return self.title

    @property
    def names(self) -> list[str]:
        return self.files[0].names

    @property
    def n_rows(self) -> int | None:
        counts = [n_rows for _, n_rows in self.partitions]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    @property
    def n_partitions(self) -> int:
        return len(self.partitions)

    @cached_property
    def partitions(self) -> list[tuple[TableFile, int | None]]:
        """The partitions, of about a million rows each, with their numbers of rows or None."""
        return [partition for file in self.files for partition in _cut(file)]

    def check(self) -> None:
        for file, state in zip(self.files, self.states, strict=True):
            if look_at(file.path) != state:
                raise EvidenceError(
                    f"{file.path} was changed while its rows were read, so nothing was fitted; start again"
                )

    def settle(
        self, texts: Mapping[str, Sequence[Any]], sample: Any, known: Mapping[str, Sequence[Value]]
    ) -> tuple[Engine, Meanings, Any]:
        if detect_format(self.files[0].path) != "csv":
            return self, {}, sample
        meanings: dict[str, dict[Any, Value]] = {}
        for name, found in texts.items():
            column = parse_column(pyarrow.array(found), known.get(name, ()))
            meanings[name] = dict(zip(found, column.to_pylist(), strict=True))
            values = parse_column(sample.column(name), tuple(meanings[name].values()))
            sample = sample.set_column(sample.schema.get_field_index(name), name, values)
        settled = {name: tuple(one.values()) for name, one in meanings.items()}
        text = [name for name in self.files[0].text if name not in settled]
        values = {**self.files[0].values, **settled}
        files = tuple(replace(file, text=text, values=values) for file in self.files)
        return replace(self, files=files), meanings, sample

    @property
    def is_large(self) -> bool:
        """Whether the files are so large that several processes read them faster."""
        large = sum(state.size for state in self.states) >= _LARGE
        return large and min(self.n_partitions, count_processes()) > 1

    def run(self, task: Task, columns: Sequence[str]) -> Iterator[Any]:
        """Run a task on one partition after the other, or in several processes if the files are large."""
        done = 0
        if self.is_large:
            import joblib

            n_processes = min(count_processes(), self.n_partitions)
            parallel = joblib.Parallel(n_processes, return_as="generator", max_nbytes=None)
            try:
                jobs = (joblib.delayed(self._run_apart)(task, columns, i) for i in range(self.n_partitions))
                for result in parallel(jobs):
                    yield result
                    done += 1
            except (
                BrokenProcessPool
            ):  # a process was killed, for example without enough memory: continue in this one
                pass
        for i in range(done, self.n_partitions):
            yield self._run_on(task, columns, i)

    def _run_apart(self, task: Task, columns: Sequence[str], i: int) -> Any:
        """Run a task on one partition, in a process that uses one core."""
        pyarrow.set_cpu_count(1)
        return self._run_on(task, columns, i)

    def _run_on(self, task: Task, columns: Sequence[str], i: int) -> Any:
        """Run a task on one partition, while a thread reads ahead; errors name the file."""
        file, _ = self.partitions[i]
        try:
            with read_ahead(file.batches(columns)) as batches:
                return task(i, batches)
        except EvidenceError as problem:
            if str(file.path) not in str(problem):
                problem.add_place(file.path)
            raise


def count_processes() -> int:
    """Return how many processes can run in parallel."""
    try:
        import joblib  # installed with the command line and with scikit-learn
    except ModuleNotFoundError:
        return 1
    return int(joblib.cpu_count())


def _cut(file: TableFile) -> Iterator[tuple[TableFile, int | None]]:
    """Yield partitions of a file, of about a million rows each, with their numbers of rows or None."""
    if detect_format(file.path) != "parquet":
        yield file, None
        return
    with name_file(file.path), pyarrow.parquet.ParquetFile(file.path) as opened:
        counts = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
    first, rows = 0, 0
    for i, count in enumerate(counts):
        rows += count
        if rows >= _PARTITION_ROWS or i + 1 == len(counts):
            yield replace(file, row_groups=tuple(range(first, i + 1))), rows
            first, rows = i + 1, 0
