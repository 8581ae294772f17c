"""Tables of databases: rows stay inside, and only sums of them leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from functools import partial

from bylaw.engines._sql_sums import SummedRows, select_columns
from bylaw.engines._sql_survey import SqlSurvey, survey_table
from bylaw.engines.database import PULL, Database
from bylaw.engines.engine import Progress
from bylaw.engines.scan import Scan
from bylaw.errors import OptionError
from bylaw.language.problem import Problem
from bylaw.program.blocks import CELL_ROWS, Cells
from bylaw.program.dual import Dual
from bylaw.program.linear_form import LinearForm
from bylaw.rows.columns import Columns
from bylaw.rows.evidence import Evidence

_MOST_CELLS = 200  # whose sums leave the database one by one; further groups are columns


@dataclass(frozen=True)
class DatabaseScan(Scan):
    """Rows in a table of a database, which only sums of them leave. Made by `scan`."""

    engine: Database

    @classmethod
    def of(cls, scanned: Scan) -> DatabaseScan:
        return cls(**{field.name: getattr(scanned, field.name) for field in fields(Scan)})

    def hold_rows(self) -> AbstractContextManager[None]:
        """Return a context in which all statements see the same rows."""
        return self.engine.hold_rows()

    @contextmanager
    def count_pass(self, n_rows: int | None = None) -> Iterator[None]:
        """While a statement looks at all rows."""
        self.meter.walks += 1
        start = time.monotonic()
        yield
        if self.progress is not None:
            self.progress(Progress(self.meter.walks, n_rows or 0, n_rows, time.monotonic() - start))

    def survey(self, problem: Problem, seed: int = 0) -> SurveyedTable:  # type: ignore[override]
        """The first pass: whether the rows can be used, which values groups have, how often events occur."""
        columns = self.columns.restrict(problem.attributes, problem.references, problem.arrays)
        _refuse(problem, columns)
        begun = self.passes
        with self.count_pass():
            found = survey_table(self.engine, columns, problem)
        return SurveyedTable(self, columns, found, begun)


def _refuse(problem: Problem, columns: Columns) -> None:
    if columns.label or columns.true_groups:
        raise OptionError(
            f"rules as observed need the rows themselves: leave out label and true_groups, or {PULL}"
        )
    if columns.normalize:
        raise OptionError(
            f"normalize=True needs the rows themselves: divide the probabilities in the table, or {PULL}"
        )
    if problem.functions:
        raise OptionError(
            f"custom({problem.functions[0]!r}) is a Python function, which no database can run: compute it "
            f"beforehand and pass its columns as costs, or {PULL}"
        )


@dataclass(frozen=True)
class SurveyedTable:
    """Rows in a database of which is known what it takes to compile a problem."""

    scan: DatabaseScan
    columns: Columns
    found: SqlSurvey
    begun: int  # how often all rows had been looked at before
    observed: None = None

    @property
    def evidence(self) -> Evidence:
        """Without rows; frequencies are those of the table."""
        return self.found.evidence

    def describe(self) -> str:
        """Where the rows are, for the policy's card."""
        engine = self.scan.engine
        return f"{engine} in {engine.dialect.title}, by sums: its rows have no fingerprint"

    def make_dual(self, form: LinearForm) -> Dual:
        """Of all rows, none of which is in memory."""
        evidence, n_rows, engine = self.evidence, self.found.n_rows, self.scan.engine
        assert evidence.margins is not None
        cells = Cells.find(form.feature_map, evidence, min(n_rows, _MOST_CELLS * CELL_ROWS))
        layout = cells.lay_out(form.feature_map, evidence)
        select, sheet = select_columns(engine, self.columns, form, layout, evidence)
        watch = partial(self.scan.count_pass, n_rows)
        mass, count = evidence.margins.mass, lambda: self.scan.passes - self.begun
        rows = SummedRows(engine, select, sheet, n_rows, mass, watch, count=count)
        return Dual(form, (), 1.0, source=rows)
