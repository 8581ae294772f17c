"""Tables in databases: the rows stay there, and only sums over them are returned.

A first pass checks in SQL that the rows are valid, and finds the values of groups and the frequencies of
events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bylaw._base import as_scalar
from bylaw.engines._engine import PULL, Database
from bylaw.engines._scan import Scan
from bylaw.engines._sql_sums import SummedRows, select_columns
from bylaw.errors import EvidenceError, OptionError
from bylaw.language import CostColumn, Problem, ReferenceColumn
from bylaw.program import CELL_ROWS, Attribute, Cells, Dual, Feature, FeatureMap, LinearForm
from bylaw.rows import (
    LEAST_WEIGHT,
    MARGIN_TOLERANCE,
    SUM_TOLERANCE,
    Columns,
    Evidence,
    Group,
    GroupProbabilities,
    Key,
    KnownGroup,
    Margins,
    check_cells,
    list_events,
)
from bylaw.scoring import Cell, Features, SqlPrinter, Vector, apply, case, constant, get_column, join, read

MOST_CELLS = 1000  # the largest number of combinations of groups, each with its own sums
_MOST_SUMMED_CELLS = 200  # combinations of groups with their own sums; other groups become columns
_FILL_IN = "fill in missing values; if these are logits, apply softmax first"


@dataclass(frozen=True)
class DatabaseScan(Scan):
    """Rows in a table of a database, which returns only sums over them. Made by `scan`."""

    engine: Database

    def hold_rows(self) -> AbstractContextManager[None]:
        """Return a context in which all statements see the same rows."""
        return self.engine.hold_rows()

    @contextmanager
    def count_pass(self, n_rows: int | None = None) -> Iterator[None]:
        """Return a context; the statement in it is counted as a pass over all rows."""
        self.starts.append(time.monotonic())
        yield
        self.report(n_rows or 0, n_rows)

    def survey(self, problem: Problem) -> SurveyedTable:  # type: ignore[override]
        """Check all rows in one pass, and return them with the frequencies that a problem needs."""
        columns = self.columns.restrict(problem.attributes, problem.references, problem.arrays)
        if columns.label or columns.true_groups:
            raise OptionError(
                f"rules on observed columns cannot be computed in a database; leave out label and "
                f"true_groups, or {PULL}"
            )
        if columns.normalize:
            raise OptionError(
                f"normalize=True cannot be applied in a database; normalize the probabilities in the table, "
                f"or {PULL}"
            )
        if problem.functions:
            raise OptionError(
                f"custom({problem.functions[0]!r}) is a Python function, which databases cannot run; compute "
                f"it beforehand and pass its columns as costs, or {PULL}"
            )
        begun = self.passes
        with self.count_pass():
            n_rows, evidence = survey_table(self.engine, columns, problem)
        return SurveyedTable(self, columns, n_rows, evidence, begun)


@dataclass(frozen=True)
class SurveyedTable:
    """Rows in a database, with the values of groups and the frequencies that compiling a problem needs."""

    scan: DatabaseScan
    columns: Columns
    n_rows: int  # with positive weight
    evidence: Evidence  # without rows, but with the frequencies in the table
    begun: int  # passes over all rows before this problem
    observed: None = None

    def describe(self) -> str:
        """Return a description of the source of the rows, for the policy's card."""
        engine = self.scan.engine
        return f"{engine} in {engine.dialect.title}, by sums: its rows have no fingerprint"

    def make_dual(self, form: LinearForm) -> Dual:
        """Return the dual problem over all rows, which stay in the database."""
        evidence, n_rows, engine = self.evidence, self.n_rows, self.scan.engine
        assert evidence.margins is not None
        cells = Cells.find(form.feature_map, evidence, min(n_rows, _MOST_SUMMED_CELLS * CELL_ROWS))
        layout = cells.lay_out(form.feature_map, evidence)
        select, sheet = select_columns(engine, self.columns, form, layout, evidence)
        watch = partial(self.scan.count_pass, n_rows)
        mass, count = evidence.margins.mass, lambda: self.scan.passes - self.begun
        rows = SummedRows(engine, select, sheet, n_rows, mass, watch, count=count)
        return Dual(form, (), 1.0, source=rows)


def survey_table(database: Database, columns: Columns, problem: Problem) -> tuple[int, Evidence]:
    """Return the number of rows with positive weight, and evidence without rows but with frequencies."""
    described = describe_columns(columns, {})
    space = problem.action_space(described.classes, described.options)
    known = list(described.known_groups)
    events = {key: Feature(None, event) for key, event in list_events(described)}
    sources = (
        *(ReferenceColumn(name, y) for name in columns.references for y in space.reference_actions),
        *(CostColumn(name, a) for name in columns.costs for a in range(len(space.actions))),
    )
    listed = (*events.values(), *(Feature(source, ()) for source in sources))
    groups = {name: group for name, group in described.groups.items() if isinstance(name, str)}
    attributes = {name: Attribute(group.values, group.known) for name, group in groups.items()}
    features = Features(FeatureMap(space, listed, attributes), columns)
    chances = join(map(features.compute, events.values())).named("event")
    sizes = join(apply("abs", features.compute(feature)) for feature in listed[len(events) :])
    keys = {key: k for k, key in enumerate(events)}
    one = constant(1.0)
    weight = one if columns.weights is None else read("weight").named("weight")
    checks = list(_list_checks(features, described, weight))
    distances = list(_list_distances(columns, described, keys, chances))
    asked = [
        one,
        one if columns.weights is None else case((weight > 0.0, one), otherwise=0.0),
        join(failure for failure, _ in checks),
        join(distance for distance, _ in distances),
        weight * chances,
        weight * (weight * chances),
        weight * sizes,
    ]

    # Query the sum of every entry in each combination of known groups; query equal sums only once.
    cells = [features.given[Cell("groups", name)] for name in known]
    printer = SqlPrinter(database.dialect, features)
    texts, source = printer.nest([*cells, *asked], database.relation)
    sums = [printer.sum_up(text) for text in texts[len(known) :]]
    places = {text: i for i, text in enumerate(dict.fromkeys(sums))}
    grouping = f"GROUP BY {', '.join(texts[: len(known)])}" if known else "HAVING COUNT(*) > 0"
    rows = database.ask(
        f"SELECT {', '.join([*texts[: len(known)], *places])} FROM {source} {grouping} LIMIT {MOST_CELLS + 1}"
    )
    if not rows:
        raise EvidenceError(f"{database} must have at least one row, got none")
    check_cells(known, len(rows), MOST_CELLS)
    table = np.array([[float(value or 0) for value in row[len(known) :]] for row in rows])
    ends = np.cumsum([part.width for part in asked])[:-1]
    found = np.split(table[:, [places[text] for text in sums]], ends, axis=1)
    totals = [part.sum(axis=0) for part in found]

    # Raise an error if some rows are invalid.
    for (_, complaint), count in zip(checks, totals[2].astype(int).tolist(), strict=True):
        if count:
            rows_of = f"{count:,} {'row' if count == 1 else 'rows'}"
            raise EvidenceError(f"{database} has {rows_of} with {complaint}")
    for (_, complaint), mean in zip(distances, (totals[3] / totals[0]).tolist(), strict=True):
        if mean > MARGIN_TOLERANCE:
            raise EvidenceError(complaint.replace("{:.2f}", f"{mean:.2f}"))

    # Convert the sums to margins.
    by_cell = {}
    for row, *moments in zip(rows, found[4], found[5], strict=True):
        values = zip(known, row, strict=False)
        cell = (as_scalar(value, f"a value of groups[{name!r}]", EvidenceError) for name, value in values)
        by_cell[tuple(cell)] = np.array(moments)
    mass = float(totals[4][0])  # of the event that always occurs
    if not mass > 0:
        raise EvidenceError("at least one of the weights must be positive, got only zeros")
    means = {source: size / mass for source, size in zip(sources, totals[6].tolist(), strict=True)}
    margins = Margins(tuple(known), keys, by_cell, means)
    values = {name: margins.list_values(name) for name in known}
    return int(totals[1][0]), describe_columns(columns, values, margins=margins)


def _list_checks(features: Features, described: Evidence, weight: Vector) -> Iterator[tuple[Vector, str]]:
    """Yield vectors that are one on invalid rows and zero on others, each with an error message."""
    columns = features.columns
    for kind, cells, condition in features.check_row():
        names = [repr(get_column(columns, *cell)) for cell in cells]
        if kind == "value" and cells[0].part == "groups":
            condition = apply("{} IS NOT NULL", features.given[cells[0]])
        for i in range(condition.width):
            if kind == "probability":
                complaint = f"no probability from 0 to 1 in {names[i]}; {_FILL_IN}"
            elif kind == "sum":
                complaint = (
                    f"{', '.join(names)} not summing to one (tolerance {SUM_TOLERANCE:g}); divide them by "
                    "their sum"
                )
            elif kind == "number":
                complaint = f"no finite number in {names[i]}; fill it in"
            elif cells[0].part == "groups":
                complaint = f"no value in {names[i]}; fill it in or leave these rows out"
            else:
                classes = [*described.classes, *described.options]
                complaint = f"an unknown class in {names[i]}; it must be one of {classes}"
            yield case((condition.take([i]), 0.0), otherwise=1.0), complaint
    if columns.weights is not None:
        admitted = apply("between", weight, LEAST_WEIGHT, 1 / LEAST_WEIGHT)
        yield (
            case((apply("=", weight, 0.0), 0.0), (admitted, 0.0), otherwise=1.0),
            f"an invalid weight in {columns.weights!r}; weights must be finite, and zero or from "
            f"{LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}",
        )


def _list_distances(
    columns: Columns, described: Evidence, places: Mapping[Key, int], chances: Vector
) -> Iterator[tuple[Vector, str]]:
    """Yield distances between joint probabilities and the separate ones, each with an error message.

    The error is raised if the mean distance is large.
    """
    for name in columns.joint:
        values, classes = described.groups[name].values, described.classes
        sides = {
            "probabilities": [[(None, None, y), *((name, s, y) for s in values)] for y in classes],
            str(name): [[(name, s, None), *((name, s, y) for y in classes)] for s in values],
        }
        for other, sums in sides.items():
            gaps = []
            for keys in sums:
                alone, *parts = (places[key] for key in keys)
                gaps.append(apply("abs", chances.take(parts).sum() - chances.take([alone])))
            yield (
                join(gaps).sum() * 0.5,
                f"joint[{name!r}] must add up to the {other} given with it, got a mean distance of {{:.2f}} "
                f"(tolerance {MARGIN_TOLERANCE:g}); check that its values {list(values)} and classes "
                f"{list(classes)} are in the same order",
            )


def describe_columns(columns: Columns, values: Mapping[str, tuple[Any, ...]], **more: Any) -> Evidence:
    """Return evidence with zero rows that has these columns; `values` are those of known groups."""
    groups: dict[Any, Group] = {}
    for name, roles in columns.groups.items():
        if isinstance(roles, str):
            groups[name] = KnownGroup(values.get(name, ()), np.empty(0, np.int64))
        else:
            groups[name] = GroupProbabilities(tuple(roles), np.empty((0, len(roles))))
    classes = list(columns.probabilities) if columns.classes is None else columns.classes
    return Evidence.without_rows(
        classes,
        groups,
        joint={name: np.empty((0, len(rows), len(classes))) for name, rows in columns.joint.items()},
        references={
            name: np.empty(0 if isinstance(roles, str) else (0, len(roles)))
            for name, roles in columns.references.items()
        },
        costs={name: np.empty((0, len(names))) for name, names in columns.costs.items()},
        options=tuple(as_scalar(option, "an option", EvidenceError) for option in columns.options),
        **more,
    )
