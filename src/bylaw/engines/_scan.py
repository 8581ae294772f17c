"""Scans, which take the place of evidence if rows are not in memory, and how they are read."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import Any

from bylaw._base import Value, check_whole
from bylaw.engines._engine import Database, Engine, Progress, Task
from bylaw.engines._tasks import BatchReader, Sampler, add_all, sample_rows, sum_rows, survey_rows
from bylaw.errors import EvidenceError, OptionError
from bylaw.language import Problem
from bylaw.program import Dual, Layout, LinearForm, Pass, make_blocks
from bylaw.rows import Columns, Evidence, Margins, ObservedRows, as_evidence

SAMPLE_ROWS = 262_144  # in memory, for the first stages of the solver
MOST_VALUES = 2**28  # values of columns in memory at once: two gigabytes
MEMORY_FACTOR = 9  # bytes that an audit needs for each byte of the columns in memory, as measured
VALUE_BYTES = 8  # the size of a number
_ENGINES = {  # the module of the engine, by the package of the source
    "pyarrow": "bylaw.engines._files",
    "polars": "bylaw.engines._polars_frames",
    "dask": "bylaw.engines._dask_frames",
    "pyspark": "bylaw.engines._spark_frames",
    "duckdb": "bylaw.engines._duckdb_tables",
    "_duckdb": "bylaw.engines._duckdb_tables",
    "psycopg": "bylaw.engines._postgres_tables",
}
Watcher = Callable[[Progress], Any]


def scan(
    source: Any,
    columns: Columns,
    *,
    table: str | None = None,
    pull: bool = False,
    progress: Watcher | None = None,
) -> Scan:
    r"""Return rows that need not fit in memory, to use in place of `Evidence`.

    No rows are read before they are used, and memory holds only sums over them and a sample. On a cluster or
    in a database, the sums are computed there.

    Parameters
    ----------
    source : path, pyarrow dataset, polars LazyFrame, Dask or Spark DataFrame, or a database connection
        a path is a file, a folder, or a pattern with stars: Parquet, Arrow or CSV (also .csv.gz).
    columns : Columns
        the roles of the columns. With `label` or `true_groups`, rules must be satisfied by observed rates.
    table : str, optional
        the table or view of a database; with DuckDB also a call, such as
        ``read_parquet('scores/*.parquet')``.
    pull : bool
        stream the rows of a database to this process, in batches, instead of summing them inside the
        database.
    progress : callable, optional
        called with a `Progress` whenever a part of the rows was read.

    Returns
    -------
    Scan

    Raises
    ------
    EvidenceError
        if the source cannot be read, or has no column of a given name.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bylaw import Columns, Problem, error, rejected, solve
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = path.write_text("no,yes\n" + "".join(f"{1 - i / 20},{i / 20}\n" for i in range(1, 20)))
    >>> rows = scan(path, Columns(["no", "yes"]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), rows)
    >>> round(policy.prices["rejected() <= 0.1"], 2)
    0.45
    """
    package = "pyarrow" if isinstance(source, str | PathLike) else type(source).__module__.split(".")[0]
    if package not in _ENGINES:
        raise OptionError(
            f"source must be a path, a pyarrow dataset, a polars LazyFrame, a Dask or Spark DataFrame or a "
            f"database connection, got {type(source).__name__}; pass rows in memory as Evidence"
        )
    if table is not None and package not in ("duckdb", "_duckdb", "psycopg"):
        raise OptionError(f"table= must be left out for a {type(source).__name__}, which is not a database")
    try:
        module = importlib.import_module(_ENGINES[package])
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"scanning {package} requires {missing.name}: pip install {missing.name}"
        ) from missing
    engine = module.open_source(source, columns, table)
    if missing := [name for name in columns.names if name not in engine.names]:
        raise EvidenceError(f"{engine} has no column {missing[0]!r}; it has {engine.names}")
    if pull or not isinstance(engine, Database):
        return Scan(engine, columns, progress)
    from bylaw.engines._databases import DatabaseScan

    return DatabaseScan(engine, columns, progress)


@dataclass(frozen=True)
class Scan:
    """Rows in partitions that are not in memory, and the roles of their columns. Made by `scan`.

    Attributes
    ----------
    engine : Engine
        reads the rows, or sums them where they are stored.
    columns : Columns
        the roles of their columns.
    """

    engine: Engine
    columns: Columns
    progress: Watcher | None = None
    starts: list[float] = field(
        default_factory=list, repr=False, compare=False
    )  # times at which passes began
    surveys: dict[Problem, SurveyedRows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def passes(self) -> int:
        """The number of passes over all rows so far."""
        return len(self.starts)

    def hold_rows(self) -> AbstractContextManager[None]:
        """Return a context in which all passes see the same rows, or one of them raises an error."""
        return contextlib.nullcontext()  # each pass checks that the rows did not change

    def walk(self, task: Task, columns: Sequence[str], count: Callable[[Any], int]) -> Iterator[Any]:
        """Yield the results of a task on each partition, in order, without empty results.

        `count` returns the number of rows of a result.
        """
        self.engine.check()
        self.starts.append(time.monotonic())
        rows = 0
        for result in self.engine.run(task, columns):
            if result is not None:
                rows += count(result)
                yield result
            self.report(rows)
        self.engine.check()

    def report(self, rows: int, n_rows: int | None = None) -> None:
        """Call the function `progress`, if there is one, with the progress of the current pass."""
        if self.progress is not None:
            n_rows = self.engine.n_rows if n_rows is None else n_rows
            self.progress(Progress(self.passes, rows, n_rows, time.monotonic() - self.starts[-1]))

    def _add_up(self, task: Task, columns: Sequence[str], count: Callable[[Any], int]) -> Any:
        total = None
        for part in self.walk(task, columns, count):
            total = part if total is None else total + part
        if total is None:
            raise EvidenceError(f"{self.engine} must have at least one row, got none")
        return total

    def survey(self, problem: Problem) -> SurveyedRows:
        """Return the rows with a sample, and with the values of groups and frequencies that a problem needs.

        The result is cached.
        """
        if problem in self.surveys:
            return replace(self.surveys[problem], begun=self.passes)
        begun = self.passes
        columns = self.columns.restrict(problem.attributes, problem.references, problem.arrays)
        plan = Sampler.of(SAMPLE_ROWS, self.engine.n_rows, self.engine.n_partitions, seed=0)
        reader, attributes = BatchReader(columns), list(problem.attributes)
        task = partial(survey_rows, reader=reader, attributes=attributes, plan=plan)
        found = self._add_up(task, columns.names, lambda part: part.n_rows)

        # Give groups the values that occur on all rows, and convert texts to values if rows have no types.
        margins, observed = found.margins, found.observed
        known = {name: column for name, column in columns.groups.items() if isinstance(column, str)}
        texts = {column: margins.list_values(name) for name, column in known.items() if name in margins.names}
        if observed is not None:
            texts |= {column: observed.list_values(name) for name, column in columns.true_groups.items()}
        engine, meanings, table = self.engine.settle(texts, found.sample.rows, {})
        for name, column in {**known, **columns.true_groups}.items():
            if column in meanings:
                margins = margins.rename(name, meanings[column])
                observed = None if observed is None else observed.rename(name, meanings[column])
        reader = BatchReader(columns, {name: margins.list_values(name) for name in margins.names})
        rows = replace(self, engine=engine, columns=columns)
        surveyed = SurveyedRows(rows, reader, found.n_weighted, margins, observed, table, begun)
        self.surveys[problem] = surveyed
        return surveyed

    def sample(
        self, n_rows: int, seed: int = 0, values: Mapping[str, Sequence[Value]] | None = None
    ) -> Evidence:
        """Return a random sample of the rows in memory, in which each row is equally likely.

        Parameters
        ----------
        n_rows : int
            the size of the sample, or all rows if there are fewer.
        seed : int
        values : dict, optional
            the values of known groups, to which texts in files without types are converted.

        Returns
        -------
        Evidence
            with observed labels and groups, if there are columns for them.
        """
        rows = self.sample_table(n_rows, seed)
        columns = {**self.columns.groups, **self.columns.true_groups}
        texts = {c: rows.column(c).unique().to_pylist() for c in columns.values() if isinstance(c, str)}
        known = {columns[name]: known for name, known in (values or {}).items() if name in columns}
        _, _, table = self.engine.settle(texts, rows, known)
        return BatchReader(self.columns).read(table)

    def sample_table(self, n_rows: int, seed: int = 0) -> Any:
        """Return a sample like that of `sample` as an Arrow table; groups in CSV files remain text."""
        if check_whole(n_rows, "n_rows") < 1:
            raise OptionError(f"n_rows must be at least 1, got {n_rows}")
        plan = Sampler.of(n_rows, self.engine.n_rows, self.engine.n_partitions, seed)
        task = partial(sample_rows, plan=plan)
        return self._add_up(task, self.columns.names, lambda part: len(part.rows)).rows

    def read(self, values: Mapping[str, Sequence[Value]] | None = None) -> Evidence:
        """Return all rows in memory.

        Parameters
        ----------
        values : dict, optional
            the values of known groups, to which texts in files without types are converted.

        Returns
        -------
        Evidence

        Raises
        ------
        EvidenceError
            if there are too many rows.
        """
        most = count_most_values() // len(self.columns.names)
        too_many = (self.engine.n_rows or 0) >= most  # if the number is known, read nothing
        found = None if too_many else self.sample(most, values=values)
        if found is None or len(found) >= most:
            raise EvidenceError(
                f"{self.engine} has {most:,} rows or more, too many to be read into memory for this; take a "
                f"random sample of them, such as rows.sample(1_000_000)"
            )
        return found


def count_most_values() -> int:
    """Return how many values may be in memory at once, so that an audit of them fits in memory."""
    return int(min(MOST_VALUES, find_memory() / (MEMORY_FACTOR * VALUE_BYTES)))


def find_memory() -> float:
    """Return the bytes of memory to use: half of the machine's, within the limits of the process."""
    limits = [math.inf]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not available on this system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits.append(math.inf if soft == resource.RLIM_INFINITY else soft)
    for name in (
        "memory.max",
        "memory/memory.limit_in_bytes",
    ):  # limits of a container, in control groups 2 and 1
        with contextlib.suppress(OSError, ValueError):  # no such file, or its limit is "max"
            limits.append(float(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits)


@dataclass(frozen=True)
class SurveyedRows:
    """Rows that are not in memory, with a sample, and with the frequencies that compiling a problem needs."""

    scan: Scan
    reader: BatchReader
    n_rows: int
    margins: Margins
    observed_margins: Margins | None
    table: Any  # an Arrow table of the sample
    begun: int  # passes over all rows before this problem

    @cached_property
    def evidence(self) -> Evidence:
        """The sample, with the frequencies of all rows."""
        return self.reader.read(self.table).with_columns(margins=self.margins)

    @cached_property
    def observed(self) -> ObservedRows | None:
        """The sample with observed labels and groups, or None if there are no columns for them."""
        if self.observed_margins is None:
            return None
        return self.reader.observe(self.evidence).with_columns(margins=self.observed_margins)

    def make_dual(self, form: LinearForm) -> Dual:
        """Return the dual problem over all rows, with the sample in memory."""
        blocks = make_blocks(form, self.evidence)
        return Dual(form, blocks, 1.0, source=BoundRows(self, form, blocks[0].layout))


@dataclass(frozen=True)
class BoundRows:
    """All rows together with a compiled problem, for passes over its features; implements `RowSource`."""

    rows: SurveyedRows
    form: LinearForm
    layout: Layout | None  # of the form's features in cells
    observed: LinearForm | None = None  # compiled on observed columns
    seen_layout: Layout | None = None
    known: dict[Pass, Any] = field(default_factory=dict, compare=False)  # sums that depend only on rows

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def mass(self) -> float:
        return self.rows.margins.mass

    @property
    def passes(self) -> int:
        return self.rows.scan.passes - self.rows.begun

    def observe(self, form: LinearForm, layout: Layout | None) -> BoundRows:
        return replace(self, observed=form, seen_layout=layout)

    def total(self, *passes: Pass) -> list[Any]:
        """Run passes over all rows, and return the sums of each; sums that do not change are cached."""
        if all(isinstance(one, FunctionType) and one in self.known for one in passes):
            return [self.known[one] for one in passes]
        reader = self.rows.reader
        if self.observed is None:  # read only columns that are used
            reader = replace(reader, columns=reader.columns.without_observed())
        task = partial(
            sum_rows,
            reader=reader,
            form=self.form,
            layout=self.layout,
            observed=self.observed,
            seen_layout=self.seen_layout,
            passes=passes,
        )
        parts = self.rows.scan.walk(task, reader.columns.names, lambda found: found[0])
        sums = reduce(add_all, (part for _, part in parts if part is not None))
        self.known.update(
            pair for pair in zip(passes, sums, strict=True) if isinstance(pair[0], FunctionType)
        )
        return sums


def read_rows(rows: Any, values: Mapping[str, Sequence[Value]] | None = None) -> Evidence:
    """Return rows in memory: `Evidence` unchanged, or all rows of a `Scan` if there are not too many.

    `values` are the values of known groups, for files without types.
    """
    return rows.read(values) if isinstance(rows, Scan) else as_evidence(rows)


def attach_observed(rows: Any, *, groups: Any = None, **observed: Any) -> Any:
    """Return evidence with observed columns added; return a `Scan` unchanged, which names its own columns.

    Parameters
    ----------
    rows : Evidence or Scan
    groups : optional
        true groups, which `solve`, `audit` and others call `groups`.
    **observed : optional
        other parameters of `Evidence.with_observed`.
    """
    if not isinstance(rows, Scan):
        return as_evidence(rows).with_observed(true_groups=groups, **observed)
    for name in ("labels", "groups", "propensity_weights"):
        if {**observed, "groups": groups}[name] is not None:
            raise OptionError(
                f"{name}= must be left out for scanned rows; name the columns instead: "
                "Columns(..., label=..., true_groups={...})"
            )
    return rows
