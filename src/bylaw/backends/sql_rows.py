"""Rows in a table of a database, of which only sums leave it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bylaw._base.typing import Floats
from bylaw.backends.database import PULL, Database
from bylaw.backends.sql_passes import Plan, Sheet, Sum, make_plan
from bylaw.data.columns import Columns
from bylaw.data.evidence import Evidence
from bylaw.errors import EvidenceError, OptionError
from bylaw.formulation.cells import Cells, Layout
from bylaw.formulation.formulas import UNDERFLOW, Cell, make_feature_terms
from bylaw.formulation.linear_form import LinearForm
from bylaw.formulation.passes import Pass, TallyPass
from bylaw.sql.cells import CellWriter

SAMPLE_ROWS = 2**18  # in a temporary table, for the first stages of a solve
_ROUNDING = 1e-9  # relative, of sums of weights
Watch = Callable[[], AbstractContextManager[None]]  # around each statement that looks at all rows


def write_columns(
    database: Database, columns: Columns, form: LinearForm, layout: Layout, evidence: Evidence
) -> tuple[str, Sheet]:
    """A SELECT of the cell, the weight and the columns of all rows that have a weight; and what is in it."""
    dialect, feature_map = database.dialect, replace(form.feature_map, features=layout.columns)
    terms = make_feature_terms(feature_map, columns)
    writer = CellWriter(terms, columns, form.action_space.reference_actions, dialect)
    given, clean, weights = writer.list_given(), writer.list_clean(), []
    if columns.weights is not None:
        given.append(f"{dialect.cast(dialect.quote_name(columns.weights), dialect.double)} AS weight")
        clean, weights = [*clean, "weight"], ["weight"]
    names = [f"column_{d}" if product else None for d, product in enumerate(terms.features)]
    products = [
        f"{writer.write_product(product)} AS {name}"
        for product, name in zip(terms.features, names, strict=True)
        if name is not None
    ]
    cell = f"{_write_cell(writer, layout.cells, evidence)} AS cell"
    least, zero = dialect.write_float(UNDERFLOW), dialect.write_float(0.0)
    kept = [f"CASE WHEN ABS({n}) > {least} THEN {n} ELSE {zero} END AS {n}" for n in names if n is not None]
    source = database.nest(database.relation, given, clean, [cell, *weights, *products])
    chosen = " WHERE weight > 0" if weights else ""
    select = f"SELECT {', '.join(['cell', *weights, *kept])} FROM {source}{chosen}"
    return select, Sheet(form, layout, dialect, tuple(names), bool(weights))


def _write_cell(writer: CellWriter, cells: Cells, evidence: Evidence) -> str:
    """The number of a row's cell."""
    text = "0"
    for name, count in zip(cells.names, cells.shape, strict=True):
        cell, values = Cell("groups", name), evidence.known_groups[name].values
        cases = [f"WHEN {writer.compare_value(cell, value)} THEN {i}" for i, value in enumerate(values)]
        text = f"{text} * {count} + CASE {' '.join(cases)} END"
    return text


@dataclass(frozen=True, eq=False)
class SummedRows:
    """Rows of a table, or of a sample of them in a temporary table: `UnseenRows`."""

    database: Database
    select: str  # of the cell, the weight and the columns of each row
    sheet: Sheet
    n_rows: int
    mass: float
    watch: Watch = nullcontext
    table: str = ""  # of a sample
    count: Callable[[], int] = int  # passes over all rows so far
    last: dict[str, Any] = field(default_factory=dict, repr=False)  # the last tally, and of what

    @property
    def layout(self) -> Layout | None:
        """None where all rows are one cell, whose columns are the features."""
        return self.sheet.layout if self.sheet.layout.cells.names else None

    @property
    def passes(self) -> int:
        return self.count()

    def observe(self, form: LinearForm, layout: Layout | None) -> SummedRows:
        raise OptionError(f"rules as observed need the rows themselves: {PULL}")

    def total(self, *passes: Pass) -> list[Any]:
        """The last tally is kept: whoever has found a solution asks for its rates once more."""
        if len(passes) == 1 and isinstance(wanted := passes[0], TallyPass):
            if not (self.last and _covers(self.last["of"], wanted)):
                self.last.update(of=wanted, found=self._ask(passes)[0])
            return [self.last["found"]]
        return self._ask(passes)

    def _ask(self, passes: tuple[Pass, ...]) -> list[Any]:
        plans = [make_plan(one, Plan(self.sheet, f"p{i}")) for i, one in enumerate(passes)]
        totals = Sum("COUNT(*)"), Sum(self._mass)
        wanted = dict.fromkeys([*totals, *(one for plan in plans for one in plan.sums)])
        parts = [
            [one for one in wanted if one.only == only] for only in dict.fromkeys(w.only for w in wanted)
        ]
        with self.watch():
            rows = self.database.ask(self._write(plans, parts))
        sums = np.zeros((self.sheet.shape[0], len(wanted)))
        for cell, *found in rows:
            if cell is not None:  # else there is a value that was not there before
                filled = [values or [0.0] * len(part) for values, part in zip(found, parts, strict=True)]
                sums[int(cell)] = [float(x or 0) for values in filled for x in values]
        self._check(sums)
        places = {one: i for i, one in enumerate(one for part in parts for one in part)}
        return [plan.read(sums[:, [places[one] for one in plan.sums]]) for plan in plans]

    def _write(self, plans: list[Plan], parts: list[list[Sum]]) -> str:
        """One SELECT of the sums over all rows, joined by those over the rows that meet a condition. They
        come as arrays: there may be more of them than an answer can have columns."""
        depth = max((len(plan.layers) for plan in plans), default=0)
        layers = [[item for plan in plans for item in plan.layer(i).items()] for i in range(depth)]
        lines = [["*", *(f"{text} AS {name}" for name, text in layer)] for layer in layers]
        source = self.database.nest(f"({self.select}) AS bylaw_columns", *lines)
        selects = []
        for i, part in enumerate(parts):
            sums = f"ARRAY[{', '.join(one.text for one in part)}] AS sums_{i}"
            chosen = "" if part[0].only is None else f" WHERE {part[0].only}"
            select = f"SELECT cell AS cell_{i}, {sums} FROM {source}{chosen} GROUP BY cell"
            selects.append(f"({select}) AS part_{i}" + (f" ON cell_{i} = cell_0" if i else ""))
        names = [f"sums_{i}" for i in range(len(parts))]
        return f"SELECT cell_0, {', '.join(names)} FROM {' LEFT JOIN '.join(selects)}"

    @property
    def _mass(self) -> str:
        return "SUM(weight)" if self.sheet.weighted else "COUNT(*)"

    def _check(self, sums: Floats) -> None:
        count, mass = sums[:, 0].sum(), sums[:, 1 if self.sheet.weighted else 0].sum()
        if count != self.n_rows or not math.isclose(mass, self.mass, rel_tol=_ROUNDING):
            raise EvidenceError(
                f"{self.database} was changed while its rows were read; nothing was fitted. Start again"
            )

    @contextmanager
    def sampling(self) -> Iterator[Callable[[int], SummedRows]]:
        """Temporary tables: one of many rows, which a pass over all of them fills, and smaller ones of it."""
        made: dict[float, SummedRows] = {}

        def take(rows: int) -> SummedRows:
            if 1.0 not in made:
                with self.watch():
                    made[1.0] = self._store(min(SAMPLE_ROWS / self.n_rows, 1.0))
            whole = made[1.0]
            share = min(rows / whole.n_rows, 1.0)
            if share not in made:
                made[share] = whole._store(share)
            return made[share]

        try:
            yield take
        finally:
            for sample in made.values():
                sample.database.run_inside(f"DROP TABLE {sample.table}")

    def _store(self, share: float) -> SummedRows:
        """A share of the rows, in a temporary table."""
        name = f"bylaw_sample_{uuid.uuid4().hex[:12]}"
        rows = self.database.thin(self.select, share) if share < 1 else self.select
        self.database.run_inside(f"CREATE TEMPORARY TABLE {name} AS {rows}")
        ((n_rows, mass),) = self.database.ask(f"SELECT COUNT(*), {self._mass} FROM {name}")
        sample = replace(self, select=f"SELECT * FROM {name}", table=name, watch=nullcontext, last={})
        return replace(sample, n_rows=int(n_rows), mass=float(mass or 0))


def _covers(known: TallyPass, wanted: TallyPass) -> bool:
    """Whether a tally tells all that another one asks for."""
    same = known.beta == wanted.beta and np.array_equal(known.score_matrix, wanted.score_matrix)
    curved = wanted.support is None or known.support is not None
    return same and curved and (known.chosen is None or wanted.chosen is not None)
