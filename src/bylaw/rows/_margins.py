"""Frequencies of events from sums over rows, to compile rules on rows that are not in memory.

An event is a combination of known groups together with a label, an unknown group, or both. `Margins` sums the
probabilities of labels and unknown groups over the rows of each combination of known groups, which is a cell.
The weight of an event is a sum over cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bylaw._base import Floats, Value
from bylaw.errors import EvidenceError
from bylaw.language import LABEL, Conditions, Source
from bylaw.rows._evidence import RowData
from bylaw.rows._groups import find_combination

_MOST_CELLS = 100_000  # the largest number of combinations of known groups
Cell = tuple[Value, ...]  # one value for each known group
Key = tuple[Any, Any, Any]  # unknown group, its value, label; None for those that an event does not involve


@dataclass(frozen=True)
class Margins:
    """Sums of the weighted probabilities of events over rows, by combination of known groups.

    Margins of different rows can be added.
    """

    names: tuple[str, ...]  # the known groups
    keys: Mapping[Key, int]  # the position of each event in the sums
    cells: Mapping[Cell, Floats]  # (2, n_keys): sums of w and w^2 times event probabilities
    # The mean absolute value of other columns, for rows in a database.
    sizes: Mapping[Source, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: RowData, attributes: Sequence[str]) -> Margins:
        """Sum over rows, in one cell for each combination of the known groups among `attributes`."""
        known = {name: group for name, group in rows.known_groups.items() if name in attributes}
        codes, shape = np.zeros(len(rows), np.int64), tuple(len(group.values) for group in known.values())
        for group in known.values():
            codes = codes * len(group.values) + group.codes
        events, weights, size = dict(list_events(rows)), rows.row_weights, math.prod(shape)
        chances = [rows.event_probability(event) for event in events.values()]
        sums = np.array(
            [
                [np.bincount(codes, w * chance, size).astype(np.float64) for chance in chances]
                for w in ([weights] if rows.weights is None else [weights, weights**2])
            ]
        )
        sums = np.concatenate([sums, sums]) if rows.weights is None else sums
        cells = {}
        for c in np.flatnonzero(np.bincount(codes)).tolist():
            places = np.unravel_index(c, shape) if shape else ()
            cell = tuple(group.values[i] for group, i in zip(known.values(), places, strict=True))
            cells[cell] = sums[:, :, c]
        return cls(tuple(known), {key: k for k, key in enumerate(events)}, cells)

    def __add__(self, other: Margins) -> Margins:
        if self.names != other.names or self.keys != other.keys:
            raise EvidenceError(
                "all parts of the rows must have the same groups and classes, got "
                f"groups {list(self.names)} with {len(self.keys)} events and {list(other.names)} with "
                f"{len(other.keys)}"
            )
        cells = dict(self.cells)
        for cell, sums in other.cells.items():
            cells[cell] = cells[cell] + sums if cell in cells else sums
        check_cells(self.names, len(cells), _MOST_CELLS)
        return Margins(self.names, self.keys, cells)

    @property
    def mass(self) -> float:
        """The sum of the weights of all rows."""
        return float(sum(sums[0, 0] for sums in self.cells.values()))

    def list_values(self, name: str) -> tuple[Value, ...]:
        """Return the sorted values of a known group."""
        found = {cell[self.names.index(name)] for cell in self.cells}
        try:
            return tuple(sorted(found))  # type: ignore[type-var]
        except TypeError:
            shown = sorted(map(repr, found))[:5]
            raise EvidenceError(
                f"the values of groups[{name!r}] must have one type, got {', '.join(shown)}; convert them to "
                "one type"
            ) from None

    def count_values(self, name: str) -> Floats:
        """Return the effective number of rows (Kish) of each value of a known group, (n_values,)."""
        place, sums = self.names.index(name), dict.fromkeys(self.list_values(name), np.zeros(2))
        for cell, found in self.cells.items():
            sums[cell[place]] = sums[cell[place]] + found[:, 0]
        mass, squares = np.array(list(sums.values())).T
        return np.divide(mass**2, squares, out=np.zeros(len(mass)), where=squares > 0)

    def rename(self, name: str, values: Mapping[Value, Value]) -> Margins:
        """Return the margins with the values of a known group replaced according to `values`."""
        place, cells = self.names.index(name), {}
        for cell, sums in self.cells.items():
            cells[(*cell[:place], values[cell[place]], *cell[place + 1 :])] = sums
        return Margins(self.names, self.keys, cells)

    def frequency(self, conditions: Conditions) -> float:
        """Return P(event), the weighted share of the rows."""
        return float(self._find(conditions)[0]) / self.mass

    def estimate_size(self, source: Source | None, event: Conditions) -> float:
        """Estimate E|source P(event | x)| as if the source and the event were independent.

        The source is a column of costs or of an earlier model; None stands for 1.
        """
        return self.frequency(event) * (1.0 if source is None else self.sizes[source])

    def count_effective(self, conditions: Conditions) -> float:
        """Return the effective number of rows (Kish) in an event."""
        mass, squares = self._find(conditions)
        return float(mass**2 / squares) if squares else 0.0

    def _find(self, conditions: Conditions) -> Floats:
        """Return the sums of w and of w^2 over the rows in an event, (2,)."""
        event = dict(conditions)
        label = event.pop(LABEL, None)
        places = [(self.names.index(name), event.pop(name)) for name in self.names if name in event]
        name, value = None, None
        if event and (found := find_combination((key[0] for key in self.keys), event)) is not None:
            name, value = found
        column = self.keys[name, value, label]
        inside = [s[:, column] for cell, s in self.cells.items() if all(cell[i] == v for i, v in places)]
        return np.sum(inside, axis=0) if inside else np.zeros(2)


def check_cells(names: Sequence[str], n_cells: int, most: int) -> None:
    """Raise an `EvidenceError` if known groups have more than `most` combinations of values."""
    if n_cells > most:
        raise EvidenceError(
            f"the groups {' x '.join(names)} must have at most {most:,} combinations of values, got more; if "
            "one of these columns is a number or an id, divide its values into a few groups first"
        )


def list_events(rows: RowData) -> Iterator[tuple[Key, Conditions]]:
    """Yield the key and the conditions of the events that `Margins` sums in each cell.

    The first event always occurs. The others are each label, each value of an unknown group, and, where their
    joint probabilities are known, both.
    """
    yield (None, None, None), ()
    for label in rows.classes:
        yield (None, None, label), ((LABEL, label),)
    for name, group in rows.hidden_groups.items():
        for value in group.values:
            event = tuple(zip(name, value, strict=True)) if isinstance(name, tuple) else ((name, value),)
            yield (name, value, None), event
            for label in rows.classes if name in rows.joint else ():
                yield (name, value, label), tuple(sorted((*event, (LABEL, label))))
