"""Rows that live elsewhere, in place of evidence: `scan` names them and what their columns hold."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from bylaw._base.typing import Value
from bylaw._base.validation import check_whole
from bylaw.engines.engine import Engine, Progress, Task
from bylaw.engines.reading import BatchReader, SumTask, add_all
from bylaw.errors import EvidenceError, OptionError
from bylaw.language.problem import Problem
from bylaw.program.blocks import Layout, make_blocks
from bylaw.program.dual import Dual, Pass
from bylaw.program.linear_form import LinearForm
from bylaw.rows.columns import Columns
from bylaw.rows.evidence import Evidence, Limits, as_evidence
from bylaw.rows.margins import Margins
from bylaw.rows.outcomes import ObservedRows

if TYPE_CHECKING:
    from bylaw.engines.survey import Survey  # needs pyarrow

SAMPLE_ROWS = 262_144  # in memory, for the first stages of a solve
MOST_VALUES = 2**28  # of columns, that are read into memory at once: two gigabytes
MEMORY_FACTOR = 9  # bytes that an audit of rows in memory takes for each byte of their columns, as measured
VALUE_BYTES = 8  # of a number
_ENGINES = {  # by the package of a source: the module of its engine
    "pyarrow": "bylaw.engines.files",
    "polars": "bylaw.engines.polars_frames",
    "dask": "bylaw.engines.dask_frames",
    "pyspark": "bylaw.engines.spark_frames",
    "duckdb": "bylaw.engines.duckdb_tables",
    "_duckdb": "bylaw.engines.duckdb_tables",
    "psycopg": "bylaw.engines.postgres_tables",
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
    """Rows that need not fit in memory, to be passed wherever `Evidence` goes.

    Nothing is read before the rows are used. They are only ever seen by their sums: where they live on a
    cluster or in a database, the sums are computed there.

    Parameters
    ----------
    source : path, pyarrow dataset, polars LazyFrame, Dask or Spark DataFrame, or a database connection
        a path is a file, a folder, or a pattern with stars: Parquet, Arrow or CSV (also .csv.gz).
    columns : Columns
        what the columns hold. With `label` or `true_groups`, rules hold as observed.
    table : str, optional
        the table or view of a database; with DuckDB also a call, such as
        ``read_parquet('scores/*.parquet')``.
    pull : bool
        stream the rows of a database to this process, in batches, instead of summing them up inside it.
    progress : callable, optional
        called with a `Progress` whenever a part of the rows was seen.

    Returns
    -------
    Scan

    Raises
    ------
    EvidenceError
        if the source cannot be read, or lacks a column.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bylaw import Columns, Problem, error, rejected, solve
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = path.write_text("no,yes\\n" + "".join(f"{1 - i / 20},{i / 20}\\n" for i in range(1, 20)))
    >>> rows = scan(path, Columns(["no", "yes"]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), rows)
    >>> round(policy.prices["rejected() <= 0.1"], 2)
    0.45
    """
    package = "pyarrow" if isinstance(source, str | PathLike) else type(source).__module__.split(".")[0]
    if package not in _ENGINES:
        raise OptionError(
            f"scan() takes a path, a pyarrow dataset, a polars LazyFrame, a Dask or Spark DataFrame or a "
            f"database connection, not {type(source).__name__}; rows in memory are passed as Evidence"
        )
    try:
        module = importlib.import_module(_ENGINES[package])
    except ModuleNotFoundError as missing:
        raise OptionError(f"scanning {package} needs {missing.name}: pip install {missing.name}") from missing
    engine = module.open_source(source, columns, table)
    if missing := [name for name in BatchReader(columns).names if name not in engine.names]:
        raise EvidenceError(f"{engine} has no column {missing[0]!r}; it has {engine.names}")
    found = Scan(engine, columns, progress)
    return found if pull else engine.keep_rows(found)


@dataclass
class _Meter:
    """Counts the walks over all rows."""

    walks: int = 0


@dataclass(frozen=True)
class Scan:
    """Rows in partitions somewhere, and the roles of their columns. Made by `scan`.

    Attributes
    ----------
    engine : Engine
        where the rows are.
    columns : Columns
        what their columns hold.
    """

    engine: Engine
    columns: Columns
    progress: Watcher | None = None
    meter: _Meter = field(default_factory=_Meter, repr=False, compare=False)
    known: dict[Any, SurveyedRows] = field(default_factory=dict, repr=False, compare=False)  # surveys

    @property
    def passes(self) -> int:
        """How often all rows were looked at so far."""
        return self.meter.walks

    def hold_rows(self) -> AbstractContextManager[None]:
        """Return a context in which all passes see the same rows, or one of them raises an error."""
        return contextlib.nullcontext()  # each walk checks it

    def walk(self, task: Task, columns: Sequence[str], count: Callable[[Any], int]) -> Iterator[Any]:
        """The results of a task on each partition, in their order; empty ones are left out."""
        self.engine.check()
        self.meter.walks += 1
        start, rows = time.monotonic(), 0
        for result in self.engine.run(task, columns):
            if result is not None:
                rows += count(result)
                yield result
            if self.progress is not None:
                seconds = time.monotonic() - start
                self.progress(Progress(self.meter.walks, rows, self.engine.n_rows, seconds))
        self.engine.check()

    def survey(self, problem: Problem, seed: int = 0) -> SurveyedRows:
        """The first walk: what a problem needs to know of all rows, and a sample of them; it is kept."""
        from bylaw.engines.survey import SamplePlan, SurveyTask

        begun = self.passes
        if (problem, seed) in self.known:
            return replace(self.known[problem, seed], begun=begun)
        columns = self.columns.restrict(problem.attributes, problem.references, problem.arrays)
        reader = BatchReader(columns)
        plan = SamplePlan.of(SAMPLE_ROWS, self.engine.n_rows, self.engine.n_partitions, seed)
        task = SurveyTask(reader, tuple(problem.attributes), plan)
        found = self._add_up(self.walk(task, reader.names, lambda part: part.counts.n_rows))
        self.known[problem, seed] = _settle(replace(self, columns=columns), found, begun)
        return self.known[problem, seed]

    def sample(
        self, n_rows: int, seed: int = 0, values: Mapping[str, Sequence[Value]] | None = None
    ) -> Evidence:
        """Rows that are sampled at random, each as likely as any other, in memory.

        Parameters
        ----------
        n_rows : int
            how many; all, where there are fewer.
        seed : int
        values : dict, optional
            of known groups, where files have no types: what their text stands for.

        Returns
        -------
        Evidence
            with labels and groups as observed where the columns name them.
        """
        rows = self.sample_table(n_rows, seed)
        columns = {**self.columns.groups, **self.columns.true_groups}
        texts = {c: rows.column(c).unique().to_pylist() for c in columns.values() if isinstance(c, str)}
        known = {columns[name]: known for name, known in (values or {}).items() if name in columns}
        _, _, table = self.engine.settle(texts, rows, known)
        return BatchReader(self.columns).read(table)

    def sample_table(self, n_rows: int, seed: int = 0) -> Any:
        """The same as an Arrow table; where files have no types, groups are text."""
        from bylaw.engines.survey import SamplePlan, SampleTask

        if check_whole(n_rows, "n_rows") < 1:
            raise OptionError(f"n_rows must be at least 1, not {n_rows}")
        plan = SamplePlan.of(n_rows, self.engine.n_rows, self.engine.n_partitions, seed)
        names = BatchReader(self.columns).names
        return self._add_up(self.walk(SampleTask(plan), names, lambda part: len(part.rows))).rows

    def read(self, values: Mapping[str, Sequence[Value]] | None = None) -> Evidence:
        """All rows in memory, if they are not too many.

        Parameters
        ----------
        values : dict, optional
            as for `sample`.

        Returns
        -------
        Evidence

        Raises
        ------
        EvidenceError
            if there are too many.
        """
        most = count_most_values() // len(BatchReader(self.columns).names)
        too_many = (self.engine.n_rows or 0) >= most  # where that is known, nothing is read in vain
        found = None if too_many else self.sample(most, values=values)
        if found is None or len(found) >= most:
            raise EvidenceError(
                f"{self.engine} has {most:,} rows or more, too many to be read into memory for this; take a "
                f"random sample of them, such as rows.sample(1_000_000)"
            )
        return found

    def _add_up(self, parts: Iterator[Any]) -> Any:
        total = None
        for part in parts:
            total = part if total is None else total + part
        if total is None:
            raise EvidenceError(f"{self.engine} has no rows")
        return total


def count_most_values() -> int:
    """Return how many values of columns may be in memory at once, by what an audit of them takes."""
    return int(min(MOST_VALUES, find_memory() / (MEMORY_FACTOR * VALUE_BYTES)))


def find_memory() -> float:
    """Return the bytes that this process may take: half of the machine's, and no more than its limits."""
    limits = [math.inf]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # unknown to this system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits.append(math.inf if soft == resource.RLIM_INFINITY else soft)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container: control groups 2 and 1
        with contextlib.suppress(OSError, ValueError):  # there is none, or its limit is "max"
            limits.append(float(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits)


def _settle(scanned: Scan, found: Survey, begun: int) -> SurveyedRows:
    """Groups have the values that they have on all rows; where rows have no types, as they are spelled."""
    columns, counts = scanned.columns, found.counts
    margins, observed = counts.margins, counts.observed
    known = {name: column for name, column in columns.groups.items() if isinstance(column, str)}
    texts = {column: margins.list_values(name) for name, column in known.items() if name in margins.names}
    if observed is not None:
        texts |= {column: observed.list_values(name) for name, column in columns.true_groups.items()}
    engine, meanings, table = scanned.engine.settle(texts, found.sample.rows, {})
    for name, column in {**known, **columns.true_groups}.items():
        if column in meanings:
            margins = margins.rename(name, meanings[column])
            observed = None if observed is None else observed.rename(name, meanings[column])
    values = {name: margins.list_values(name) for name in margins.names}
    rows = replace(scanned, engine=engine)
    reader = BatchReader(columns, values)
    return SurveyedRows(rows, reader, counts.n_weighted, margins, observed, table, begun)


@dataclass(frozen=True)
class SurveyedRows:
    """Rows elsewhere of which is known what it takes to compile a problem, and a sample of them in memory."""

    scan: Scan
    reader: BatchReader
    n_rows: int
    margins: Margins
    observed_margins: Margins | None
    table: Any  # an Arrow table of the sample
    begun: int  # how often all rows had been looked at before

    @cached_property
    def evidence(self) -> Evidence:
        """The sample; frequencies are those of all rows."""
        return self.reader.read(self.table).with_columns(margins=self.margins)

    @cached_property
    def observed(self) -> ObservedRows | None:
        """The sample as it turned out."""
        if self.observed_margins is None:
            return None
        return self.reader.observe(self.evidence).with_columns(margins=self.observed_margins)

    def make_dual(self, form: LinearForm) -> Dual:
        """Of all rows, with the sample in memory."""
        blocks = make_blocks(form, self.evidence)
        return Dual(form, blocks, 1.0, source=BoundRows(self, form, blocks[0].layout))


@dataclass(frozen=True)
class BoundRows:
    """All rows with the features of a form: a `RowSource`."""

    rows: SurveyedRows
    form: LinearForm
    layout: Layout | None  # of its features in cells
    observed: LinearForm | None = None  # compiled on what was observed
    seen_layout: Layout | None = None
    known: dict[Pass, Any] = field(default_factory=dict, compare=False)  # sums that depend on rows alone

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
        """Sums of plain functions are kept: they depend on nothing but the rows."""
        plain = [one for one in passes if isinstance(one, FunctionType)]
        if not (len(plain) == len(passes) and all(one in self.known for one in plain)):
            sums = self._walk(passes)
            self.known.update((one, found) for one, found in zip(passes, sums, strict=True) if one in plain)
            return sums
        return [self.known[one] for one in plain]

    def _walk(self, passes: tuple[Pass, ...]) -> list[Any]:
        reader = self.rows.reader
        if self.observed is None:  # read no columns that are not used
            reader = replace(reader, columns=reader.columns.without_observed())
        task = SumTask(reader, self.form, self.layout, self.observed, self.seen_layout, passes)
        parts = self.rows.scan.walk(task, reader.names, lambda found: found.rows)
        return reduce(add_all, (part.sums for part in parts if part.sums is not None))


def read_rows(rows: Any, values: Mapping[str, Sequence[Value]] | None = None) -> Evidence:
    """Return rows in memory: evidence as it is, or scanned rows, if these are not too many.

    `values` are those of known groups, where files have no types.
    """
    return rows.read(values) if isinstance(rows, Scan) else as_evidence(rows)


def attach_observed(
    rows: Any,
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    outcomes: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    largest_weight: float | None = None,
) -> Any:
    """Return evidence with these observed columns, or scanned rows, which have them in columns of their own.

    These are the arguments of `solve`, `audit` and others, which stand for columns of the evidence.
    """
    given = {"labels": labels, "groups": groups, "propensity_weights": propensity_weights}
    if isinstance(rows, Scan):
        for name, value in given.items():
            if value is not None:
                raise OptionError(
                    f"{name}= goes with Evidence; of scanned rows, state the columns: "
                    "Columns(..., label=..., true_groups={...})"
                )
        return rows
    return as_evidence(rows).with_observed(
        labels=labels,
        true_groups=groups,
        propensity_weights=propensity_weights,
        outcomes=outcomes,
        limits=limits,
        largest_weight=largest_weight,
    )
