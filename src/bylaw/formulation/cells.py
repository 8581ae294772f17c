"""Cells: rows with the same known groups.

A feature such as 1{S = s} p_y is p_y in the cells with S = s, and zero in all others. So rows need only the
columns 1 and p_y, whatever the number of groups, and the curvature of each cell is a matrix of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats
from bylaw.data.evidence import RowData
from bylaw.data.groups import KnownGroup
from bylaw.data.outcomes import ObservedRows
from bylaw.formulation.linear_form import Feature, FeatureMap, compute_scores

CELL_ROWS = 64  # in a cell, on average: fewer do not pay for its own products of matrices
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """The combinations of values of some known groups; without groups, one cell of all rows."""

    names: tuple[str, ...]
    shape: tuple[int, ...]  # how many values each has

    @classmethod
    def find(cls, feature_map: FeatureMap, rows: RowData, n_rows: int | None = None) -> Cells:
        """Of the groups that features refer to, as long as cells have rows enough: of these rows, or of so
        many that live elsewhere."""
        cells, n_rows = cls((), ()), len(rows) if n_rows is None else n_rows
        for name in feature_map.attributes:
            group = _before(rows).groups.get(name)
            if isinstance(group, KnownGroup):
                finer = cls((*cells.names, name), (*cells.shape, len(group.values)))
                cells = finer if len(finer) * CELL_ROWS <= n_rows else cells
        return cells

    def __len__(self) -> int:
        return math.prod(self.shape)

    def locate(self, rows: RowData) -> NDArray[np.integer]:
        """(n_rows,): the cell of each row."""
        codes = tuple(_read_group(_before(rows), name).codes for name in self.names)
        return np.ravel_multi_index(codes, self.shape).astype(np.min_scalar_type(len(self)))

    def lay_out(self, feature_map: FeatureMap, rows: RowData) -> Layout:
        """How features are made of columns that the cells share."""
        names = {name for name in self.names if _agrees(rows, name)}
        columns: dict[Feature, int] = {}
        entries: list[tuple[int, int, int]] = []  # feature, cell, column
        codes = np.indices(self.shape).reshape(len(self.shape), len(self))
        for f, feature in enumerate(feature_map.features):
            inside = np.ones(len(self), dtype=bool)
            for name, value in feature.event:
                if name in names:
                    place = _read_group(rows, name).values.index(value)
                    inside &= codes[self.names.index(name)] == place
            rest = tuple((name, value) for name, value in feature.event if name not in names)
            column = columns.setdefault(Feature(feature.source, rest), len(columns))
            entries += [(f, cell, column) for cell in np.flatnonzero(inside).tolist()]
        found = np.array(entries, dtype=np.int64).reshape(-1, 3)
        where = (found[:, 0], found[:, 1] * len(columns) + found[:, 2])
        shape = (len(feature_map.features), len(self) * len(columns))
        embedding = sparse.csr_array((np.ones(len(found)), where), shape=shape)
        return Layout(self, tuple(columns), embedding, len(feature_map.features))


@dataclass(frozen=True, eq=False)
class Layout:
    """F features as D columns that C cells share: in each cell, a feature is one of the columns, or zero."""

    cells: Cells
    columns: tuple[Feature, ...]  # D
    embedding: sparse.csr_array  # (F, C * D): ones where a feature is a column
    n_features: int  # F

    @cached_property
    def _transposed(self) -> sparse.csr_array:
        return sparse.csr_array(self.embedding.T)

    def spread(self, matrix: Floats) -> Floats:
        """(C, D, A): the weights of the columns in each cell, of weights of features (F, A)."""
        return (self._transposed @ matrix).reshape(len(self.cells), len(self.columns), -1)

    def gather(self, sums: Floats) -> Floats:
        """(F, A): the sums of features, of sums of columns in each cell (C, D, A)."""
        return self.embedding @ sums.reshape(-1, sums.shape[2])

    def scores(self, matrix: Floats, columns: Floats, starts: Places) -> Floats:
        """matrix' features, (A, n_rows), of a matrix (F, A) and columns (D, n_rows)."""
        weights = self.spread(matrix)
        scores = np.empty((matrix.shape[1], columns.shape[1]))
        for cell, here in iterate_cells(starts):
            scores[:, here] = compute_scores(weights[cell], columns[:, here])
        return scores

    def moments(
        self, distribution: Floats, columns: Floats, starts: Places, chosen: Places | None = None
    ) -> Floats:
        """features distribution', (F, A), of a distribution (A, n_rows) and columns (D, n_rows); of features
        that are none of the chosen columns, zero."""
        sums = np.zeros((len(self.cells), len(columns), len(distribution)))
        part = columns if chosen is None else columns[chosen]
        for cell, here in iterate_cells(starts):
            sums[cell, slice(None) if chosen is None else chosen] = part[:, here] @ distribution[:, here].T
        return self.gather(sums)

    def expand(self, columns: Floats, starts: Places) -> Floats:
        """(F, n_rows): the features themselves."""
        features = np.zeros((self.n_features, columns.shape[1]))
        for cell, here in iterate_cells(starts):
            rows, sources = self._entries[cell]
            features[rows, here] = columns[sources, here]
        return features

    @cached_property
    def _entries(self) -> list[tuple[Places, Places]]:
        """For each cell, the features that are not zero and their columns."""
        entries = self.embedding.tocoo()
        features = np.asarray(entries.coords[0], dtype=np.int64)
        cells, columns = np.divmod(np.asarray(entries.coords[1], dtype=np.int64), len(self.columns))
        inside = [cells == cell for cell in range(len(self.cells))]
        return [(features[here], columns[here]) for here in inside]

    def localize(self, features: Places, actions: Places) -> tuple[Places, Places, sparse.csr_array]:
        """Of Q places (feature, action), the q places (column, action) that they are in any cell, in order of
        action, and which of these they are in which cell: ones in a matrix (Q, C * q)."""
        found = self.embedding[features].tocoo()
        cells, columns = np.divmod(found.coords[1], len(self.columns))
        keys, places = np.unique(actions[found.coords[0]] * len(self.columns) + columns, return_inverse=True)
        shape = (len(features), len(self.cells) * len(keys))
        ones = (found.data, (found.coords[0], cells * len(keys) + places))
        return keys % len(self.columns), keys // len(self.columns), sparse.csr_array(ones, shape=shape)


def iterate_cells(starts: Places) -> Iterator[tuple[int, slice]]:
    """The cells that have rows, each with its rows; `starts` (C + 1,) tells where each begins."""
    ends = starts.tolist()
    return ((c, slice(*ends[c : c + 2])) for c in range(len(ends) - 1) if ends[c] < ends[c + 1])


def _before(rows: RowData) -> RowData:
    """What was known of the rows beforehand."""
    return rows.predicted if isinstance(rows, ObservedRows) else rows


def _read_group(rows: RowData, name: str) -> KnownGroup:
    group = rows.groups[name]
    assert isinstance(group, KnownGroup)
    return group


def _agrees(rows: RowData, name: str) -> bool:
    """Whether rows have the group that was known beforehand, and no row lacks it."""
    if not isinstance(rows, ObservedRows):
        return True
    group, before = rows.groups[name], _read_group(rows.predicted, name)
    if not isinstance(group, KnownGroup) or rows.find_partly_seen([name]):
        return False
    return group.values == before.values and np.array_equal(group.codes, before.codes)
