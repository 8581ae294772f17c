"""The first pass over a table, in SQL: whether its rows can be used, which values groups have, and how often
events occur."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.validation import as_scalar
from bylaw.engines.database import Database
from bylaw.errors import EvidenceError
from bylaw.language.expressions import LABEL, CostColumn, ReferenceColumn
from bylaw.language.problem import Problem
from bylaw.program.linear_form import Attribute, Feature, FeatureMap
from bylaw.rows.columns import Columns
from bylaw.rows.evidence import LEAST_WEIGHT, MARGIN_TOLERANCE, Evidence
from bylaw.rows.groups import Group, GroupProbabilities, KnownGroup
from bylaw.rows.margins import Key, Margins
from bylaw.rows.probabilities import SUM_TOLERANCE
from bylaw.scoring import Cell, Features, SqlPrinter, Vector, apply, case, constant, get_column, join, read

MOST_CELLS = 1000  # combinations of groups: sums of each leave the database
_FILL_IN = "fill in what is missing; if these are logits, apply softmax first"


class SqlSurvey(NamedTuple):
    """What is known of a table."""

    n_rows: int  # that have a weight
    evidence: Evidence  # without rows


class Check(NamedTuple):
    """Numbers that are zero on rows that can be used, and the error where they are not."""

    failure: Vector
    complaint: str


def survey_table(database: Database, columns: Columns, problem: Problem) -> SqlSurvey:
    """Survey a table in one statement, whose answer has one row for each combination of known groups."""
    described = describe_columns(columns, {})
    space = problem.action_space(described.classes, described.options)
    known, events = list(described.known_groups), dict(_list_events(described))
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
    one = constant(1.0)
    weight = one if columns.weights is None else read("weight").named("weight")
    checks = list(_list_checks(features, described, weight))
    distances = list(
        _list_distances(columns, described, dict(zip(events, range(len(events)), strict=True)), chances)
    )
    asked = [
        one,
        one if columns.weights is None else case((weight > 0.0, one), otherwise=0.0),
        join(check.failure for check in checks),
        join(check.failure for check in distances),
        weight * chances,
        weight * (weight * chances),
        weight * sizes,
    ]
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
        raise EvidenceError(f"{database} has no rows")
    if len(rows) > MOST_CELLS:
        raise EvidenceError(
            f"{' x '.join(known)} has more than {MOST_CELLS:,} combinations of values; is one of "
            "these columns a number, or an id? Put its values into a few groups first"
        )
    table = np.array([[float(value or 0) for value in row[len(known) :]] for row in rows])
    ends = np.cumsum([part.width for part in asked])[:-1]
    found = np.split(table[:, [places[text] for text in sums]], ends, axis=1)
    totals = [part.sum(axis=0) for part in found]
    for check, count in zip(checks, totals[2].astype(int).tolist(), strict=True):
        if count:
            rows_of = f"{count:,} {'row' if count == 1 else 'rows'}"
            raise EvidenceError(f"{database} has {rows_of} with {check.complaint}")
    for check, mean in zip(distances, (totals[3] / totals[0]).tolist(), strict=True):
        if mean > MARGIN_TOLERANCE:
            raise EvidenceError(check.complaint.replace("{:.2f}", f"{mean:.2f}"))
    by_cell = {}
    for row, *moments in zip(rows, found[4], found[5], strict=True):
        values = zip(known, row, strict=False)
        cell = (as_scalar(value, f"a value of groups[{name!r}]", EvidenceError) for name, value in values)
        by_cell[tuple(cell)] = np.array(moments)
    keys = {key: k for k, key in enumerate(events)}
    mass = Margins(tuple(known), keys, by_cell).mass
    if not mass > 0:
        raise EvidenceError("all weights are zero; there is nothing to learn from")
    means = {source: size / mass for source, size in zip(sources, totals[6].tolist(), strict=True)}
    margins = Margins(tuple(known), keys, by_cell, means)
    values = {name: margins.list_values(name) for name in known}
    return SqlSurvey(int(totals[1][0]), describe_columns(columns, values, margins=margins))


def _list_checks(features: Features, described: Evidence, weight: Vector) -> Iterator[Check]:
    """Yield what may be wrong with a row."""
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
                complaint = f"no class in {names[i]}; the classes are {classes}"
            yield Check(case((condition.take([i]), 0.0), otherwise=1.0), complaint)
    if columns.weights is not None:
        admitted = apply("between", weight, LEAST_WEIGHT, 1 / LEAST_WEIGHT)
        yield Check(
            case((apply("=", weight, 0.0), 0.0), (admitted, 0.0), otherwise=1.0),
            f"no weight in {columns.weights!r}: weights are finite, and zero or from "
            f"{LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}",
        )


def _list_distances(
    columns: Columns, described: Evidence, places: Mapping[Key, int], chances: Vector
) -> Iterator[Check]:
    """Yield how far joint probabilities are from the probabilities beside them."""
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
            yield Check(
                join(gaps).sum() * 0.5,
                f"joint[{name!r}] does not add up to the {other} given beside it (mean distance "
                f"{{:.2f}}, tolerance {MARGIN_TOLERANCE:g}); are its values {list(values)} and classes "
                f"{list(classes)} in the same order?",
            )


def _list_events(rows: Evidence) -> Iterator[tuple[Key, Feature]]:
    """Everything that is not known of a row."""
    yield (None, None, None), Feature(None, ())
    for label in rows.classes:
        yield (None, None, label), Feature(None, ((LABEL, label),))
    for name, group in rows.hidden_groups.items():
        for value in group.values:
            event = tuple(zip(name, value, strict=True)) if isinstance(name, tuple) else ((name, value),)
            yield (name, value, None), Feature(None, event)
            for label in rows.classes if name in rows.joint else ():
                yield (name, value, label), Feature(None, tuple(sorted((*event, (LABEL, label)))))


def describe_columns(columns: Columns, values: dict[str, tuple[Any, ...]], **more: Any) -> Evidence:
    """Evidence without rows, with these values of known groups."""
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
