"""The first pass over a table, in SQL: whether its rows can be used, which values groups have, and how often
events occur."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.validation import as_scalar
from bylaw.backends.database import Database
from bylaw.data.columns import Columns
from bylaw.data.evidence import LEAST_WEIGHT, MARGIN_TOLERANCE, Evidence
from bylaw.data.groups import Group, GroupProbabilities, KnownGroup
from bylaw.data.margins import Key, Margins
from bylaw.data.probabilities import SUM_TOLERANCE
from bylaw.errors import EvidenceError
from bylaw.formulation.formulas import Cell, make_feature_terms
from bylaw.formulation.layout import get_column
from bylaw.formulation.linear_form import Attribute, Feature, FeatureMap
from bylaw.language.expressions import LABEL, CostColumn, ReferenceColumn
from bylaw.language.problem import Problem
from bylaw.sql.cells import CellWriter
from bylaw.sql.text import write_sum

MOST_CELLS = 1000  # combinations of groups: sums of each leave the database
_FILL_IN = "fill in what is missing; if these are logits, apply softmax first"


class SqlSurvey(NamedTuple):
    """What is known of a table."""

    n_rows: int  # that have a weight
    evidence: Evidence  # without rows


class Check(NamedTuple):
    """A condition on each row, and what to say where some fail it."""

    condition: str
    complaint: str


def survey_table(database: Database, columns: Columns, problem: Problem) -> SqlSurvey:
    """In one statement, whose answer has one row for each combination of known groups."""
    question = _Question.of(database, columns, problem)
    rows = database.ask(question.write())
    if not rows:
        raise EvidenceError(f"{database} has no rows")
    if len(rows) > MOST_CELLS:
        raise EvidenceError(
            f"{' x '.join(question.known)} has more than {MOST_CELLS:,} combinations of values; is one of "
            "these columns a number, or an id? Put its values into a few groups first"
        )
    return question.read(rows)


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


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked, and how the answer is read."""

    database: Database
    columns: Columns
    described: Evidence  # without values of known groups
    known: tuple[str, ...]  # groups
    events: dict[Key, Feature]
    sources: tuple[Feature, ...]  # earlier models and costs
    cells: CellWriter
    sums: dict[str, int] = field(default_factory=dict)  # by expression, its place after the groups

    @classmethod
    def of(cls, database: Database, columns: Columns, problem: Problem) -> _Question:
        described = describe_columns(columns, {})
        space = problem.action_space(described.classes, described.options)
        answers = space.reference_actions
        events = dict(_list_events(described))
        sources = [
            *(Feature(ReferenceColumn(name, y), ()) for name in columns.references for y in answers),
            *(Feature(CostColumn(n, a), ()) for n in columns.costs for a in range(len(space.actions))),
        ]
        groups = {name: group for name, group in described.groups.items() if isinstance(name, str)}
        attributes = {name: Attribute(group.values, group.known) for name, group in groups.items()}
        feature_map = FeatureMap(space, (*events.values(), *sources), attributes)
        cells = CellWriter(make_feature_terms(feature_map, columns), columns, answers, database.dialect)
        known = tuple(described.known_groups)
        return cls(database, columns, described, known, events, tuple(sources), cells)

    @property
    def weighted(self) -> bool:
        return self.columns.weights is not None

    def write(self) -> str:
        """The statement."""
        dialect, weight = self.database.dialect, self.columns.weights
        given, clean = self.cells.list_given(), self.cells.list_clean()
        if weight is not None:
            given.append(f"{dialect.cast(dialect.quote_name(weight), dialect.double)} AS weight")
        checks = [f"{check.condition} AS check_{i}" for i, check in enumerate(self.checks)]
        distances = [f"{text} AS distance_{i}" for i, (text, _) in enumerate(self.distances)]
        events = [f"{self._write(k)} AS event_{k}" for k in range(len(self.products))]
        source = self.database.nest(
            self.database.relation, given, ["*", *clean], ["*", *checks], ["*", *distances, *events]
        )
        groups = [self.cells.given[Cell("groups", name)] for name in self.known]
        self._list_sums()
        grouping = f" GROUP BY {', '.join(groups)}" if groups else " HAVING COUNT(*) > 0"
        return f"SELECT {', '.join([*groups, *self.sums])} FROM {source}{grouping} LIMIT {MOST_CELLS + 1}"

    @cached_property
    def products(self) -> list[str]:
        """Of events, and then of sources."""
        return [self.cells.write_product(product) for product in self.cells.terms.features]

    def _write(self, k: int) -> str:
        return self.products[k] or self.database.dialect.write_float(1.0)

    def _ask(self, text: str) -> int:
        return self.sums.setdefault(text, len(self.sums))

    def _list_sums(self) -> None:
        self._ask("COUNT(*)")
        self._ask("SUM(CASE WHEN weight > 0 THEN 1 ELSE 0 END)" if self.weighted else "COUNT(*)")
        for i in range(len(self.checks)):
            self._ask(_count_failing(i))
        for i in range(len(self.distances)):
            self._ask(f"SUM(distance_{i})")
        for k in range(len(self.events)):
            self._ask(self._sum(f"event_{k}"))
            self._ask(self._sum(f"event_{k}", 2))
        for k in range(len(self.events), len(self.products)):
            self._ask(self._sum(f"ABS(event_{k})"))

    def _sum(self, text: str, power: int = 1) -> str:
        return f"SUM({' * '.join([*(['weight'] * power if self.weighted else []), text])})"

    @cached_property
    def checks(self) -> list[Check]:
        return list(self._list_checks())

    def _list_checks(self) -> Iterator[Check]:
        cells, terms, number = self.cells, self.cells.terms, self.database.dialect.write_float
        for group in terms.distributions:
            for cell in group:
                complaint = f"no probability from 0 to 1 in {self._name(cell)}; {_FILL_IN}"
                yield Check(cells.check_probability(cell), complaint)
            names = ", ".join(map(self._name, group))
            complaint = f"{names} not summing to one (tolerance {SUM_TOLERANCE:g}); divide them by their sum"
            yield Check(cells.check_sum(group), complaint)
        for cell in terms.known:
            if cell.part == "groups":
                complaint = f"no value in {self._name(cell)}; fill it in or leave these rows out"
                yield Check(f"{cells.given[cell]} IS NOT NULL", complaint)
            else:
                classes = [*self.described.classes, *self.described.options]
                complaint = f"no class in {self._name(cell)}; the classes are {classes}"
                yield Check(cells.check_value(cell), complaint)
        for cell in terms.numbers:
            yield Check(cells.check_number(cell), f"no finite number in {self._name(cell)}; fill it in")
        if self.weighted:
            least, most = number(LEAST_WEIGHT), number(1 / LEAST_WEIGHT)
            condition = f"(weight = {number(0.0)} OR weight BETWEEN {least} AND {most})"
            yield Check(
                condition,
                f"no weight in {self.columns.weights!r}: weights are finite, and zero or from "
                f"{LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}",
            )

    def _name(self, cell: Cell) -> str:
        return repr(get_column(self.columns, *cell))

    @cached_property
    def distances(self) -> list[tuple[str, str]]:
        """How far joint probabilities are from what is given beside them, and the complaint."""
        places, found = {key: k for k, key in enumerate(self.events)}, []
        half = self.database.dialect.write_float(0.5)
        for name in self.columns.joint:
            values, classes = self.described.groups[name].values, self.described.classes
            sides = {
                "probabilities": [[(None, None, y), *((name, s, y) for s in values)] for y in classes],
                str(name): [[(name, s, None), *((name, s, y) for y in classes)] for s in values],
            }
            for other, sums in sides.items():
                texts = [[self._write(places[key]) for key in keys] for keys in sums]
                gaps = [f"ABS({write_sum(parts)} - {alone})" for alone, *parts in texts]
                complaint = (
                    f"joint[{name!r}] does not add up to the {other} given beside it (mean distance "
                    f"{{:.2f}}, tolerance {MARGIN_TOLERANCE:g}); are its values {list(values)} and classes "
                    f"{list(classes)} in the same order?"
                )
                found.append((f"{half} * ({write_sum(gaps)})", complaint))
        return found

    def read(self, rows: Sequence[tuple[Any, ...]]) -> SqlSurvey:
        n_known = len(self.known)
        table = np.array([[float(x or 0) for x in row[n_known:]] for row in rows])
        self._check(table)
        cells = {}
        for row, sums in zip(rows, table, strict=True):
            cell = tuple(
                as_scalar(value, f"a value of groups[{name!r}]", EvidenceError)
                for name, value in zip(self.known, row[:n_known], strict=True)
            )
            cells[cell] = np.array([self._read_events(sums, power) for power in (1, 2)])
        margins = Margins(self.known, {key: k for k, key in enumerate(self.events)}, cells)
        if not margins.mass > 0:
            raise EvidenceError("all weights are zero; there is nothing to learn from")
        margins = Margins(self.known, margins.keys, cells, self._read_sizes(table, margins.mass))
        values = {name: margins.list_values(name) for name in self.known}
        n_rows = int(table[:, self._place_of_weighted].sum())
        return SqlSurvey(n_rows, describe_columns(self.columns, values, margins=margins))

    @property
    def _place_of_weighted(self) -> int:
        return 1 if self.weighted else 0

    def _read_events(self, sums: np.ndarray, power: int) -> list[float]:
        return [sums[self.sums[self._sum(f"event_{k}", power)]] for k in range(len(self.events))]

    def _read_sizes(self, table: np.ndarray, mass: float) -> dict[Any, float]:
        first = len(self.events)
        return {
            feature.source: float(table[:, self.sums[self._sum(f"ABS(event_{first + i})")]].sum() / mass)
            for i, feature in enumerate(self.sources)
        }

    def _check(self, table: np.ndarray) -> None:
        """An error if some row cannot be used."""
        for i, check in enumerate(self.checks):
            if count := int(table[:, self.sums[_count_failing(i)]].sum()):
                rows = f"{count:,} {'row' if count == 1 else 'rows'}"
                raise EvidenceError(f"{self.database} has {rows} with {check.complaint}")
        for i, (_, complaint) in enumerate(self.distances):
            mean = table[:, self.sums[f"SUM(distance_{i})"]].sum() / table[:, 0].sum()
            if mean > MARGIN_TOLERANCE:
                raise EvidenceError(complaint.format(mean))


def _count_failing(i: int) -> str:
    return f"SUM(CASE WHEN check_{i} THEN 0 ELSE 1 END)"


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
