"""Cells: rows with the same known groups.

A feature such as 1{S = s} p_y is p_y in the cells with S = s, and zero in all others. So rows need only the
columns 1 and p_y, whatever the number of groups, and the curvature of each cell is a matrix of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.matrices import Matrix, compact
from bylaw._base.typing import Floats
from bylaw.program.linear_form import MANY_WEIGHTS, Feature, FeatureMap, has_few
from bylaw.rows.evidence import RowData
from bylaw.rows.groups import KnownGroup
from bylaw.rows.outcomes import ObservedRows

CELL_ROWS = 64  # in a cell, on average: fewer do not pay for its own products of matrices
_ONE = Feature(None, ())
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
        where = list[tuple[NDArray[np.intp], int]]()  # of each feature, its cells and its column
        codes = np.indices(self.shape).reshape(len(self.shape), len(self))
        for feature in feature_map.features:
            inside = np.ones(len(self), dtype=bool)
            for name, value in feature.event:
                if name in names:
                    place = _read_group(rows, name).values.index(value)
                    inside &= codes[self.names.index(name)] == place
            rest = tuple((name, value) for name, value in feature.event if name not in names)
            column = columns.setdefault(Feature(feature.source, rest), len(columns))
            where.append((np.flatnonzero(inside), column))
        marked = [cells * len(columns) + column for cells, column in where]
        embedding = _mark(marked, len(self) * len(columns))
        return Layout(self, tuple(columns), embedding, len(feature_map.features))


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of columns in a cell."""

    matrix: Floats | sparse.csr_array | sparse.csc_array  # (A, D)

    def compute(self, columns: Floats, out: Floats) -> Floats:
        """Scores (A, n_rows), of columns (D, n_rows)."""
        if isinstance(self.matrix, np.ndarray):
            return np.matmul(self.matrix, columns, out=out)
        out[...] = self.matrix @ columns
        return out


@dataclass(frozen=True, eq=False)
class OwnWeights:
    """The same where A columns are those of one action each, in order, and a few are those of all."""

    own: slice
    scale: Floats  # (A, 1)
    shared: list[int]  # K
    matrix: Floats  # (A, K)
    constant: int  # the column of ones, or -1

    def compute(self, columns: Floats, out: Floats) -> Floats:
        """Scores (A, n_rows), of columns (D, n_rows)."""
        np.multiply(self.scale, columns[self.own], out=out)
        for k, column in enumerate(self.shared):
            weights = self.matrix[:, k, None]
            out += weights if column == self.constant else weights * columns[column]
        return out


@dataclass(frozen=True, eq=False)
class Layout:
    """F features as D columns that C cells share: in each cell, a feature is one of the columns, or zero."""

    cells: Cells
    columns: tuple[Feature, ...]  # D
    embedding: sparse.csr_array  # (F, C * D): ones where a feature is a column
    n_features: int  # F

    @cached_property
    def _operator(self) -> Matrix:
        return compact(self.embedding)

    @cached_property
    def _transposed(self) -> Matrix:
        found = self._operator.T
        return found if isinstance(found, np.ndarray) else sparse.csr_array(found)

    @cached_property
    def _spans(self) -> NDArray[np.integer]:
        """(F,): in how many cells each feature is a column."""
        return np.diff(self.embedding.indptr)

    def spread(self, matrix: Floats) -> Sequence[Weights | OwnWeights]:
        """The weights of the columns in each cell, (A, D), of weights of features (F, A)."""
        n_cells, n_columns, n_actions = len(self.cells), len(self.columns), matrix.shape[1]
        if n_columns * n_actions >= MANY_WEIGHTS:
            counts = np.count_nonzero(matrix, axis=1)
            if has_few(int(counts @ self._spans) // n_cells, n_columns * n_actions):
                return self._spread_few(matrix, counts)
        return [Weights(part.T) for part in self.spread_matrix(matrix)]

    def spread_matrix(self, matrix: Floats) -> Floats:
        """(C, D, A): the same as one array."""
        return (self._transposed @ matrix).reshape(len(self.cells), len(self.columns), -1)

    def _spread_few(self, matrix: Floats, counts: NDArray[np.integer]) -> Sequence[Weights | OwnWeights]:
        """Where most are zero: a label's score depends on its own probability and on a few columns that all
        labels share."""
        n_cells, n_columns, n_actions = len(self.cells), len(self.columns), matrix.shape[1]
        single = np.flatnonzero((counts == 1) & (self._spans == n_cells))
        own = self.embedding.indices[self.embedding.indptr[single]]  # in the first cell, as in all others
        scale = matrix[single].diagonal()
        if len(single) == n_actions and scale.all() and (np.diff(own) == 1).all():
            rest = np.setdiff1d(np.flatnonzero(counts), single)
            shared = np.unique(self.embedding[rest].indices % n_columns)
            weights = self._choose(shared)[rest].T @ matrix[rest]
            columns = slice(int(own[0]), int(own[-1]) + 1)
            parts = weights.reshape(n_cells, len(shared), n_actions).swapaxes(1, 2)
            constant = self.columns.index(_ONE) if _ONE in self.columns else -1
            chosen = shared.tolist()
            return [OwnWeights(columns, scale[:, None], chosen, part, constant) for part in parts]
        stacked = sparse.csr_array(self._transposed @ sparse.csr_array(matrix))
        starts = range(0, n_cells * n_columns, n_columns)
        return [Weights(sparse.csc_array(stacked[first : first + n_columns].T)) for first in starts]

    def scores(self, matrix: Floats, columns: Floats, starts: Places) -> Floats:
        """matrix' features, (A, n_rows), of a matrix (F, A) and columns (D, n_rows)."""
        weights = self.spread(matrix)
        scores = np.empty((matrix.shape[1], columns.shape[1]))
        for cell, here in iterate_cells(starts):
            weights[cell].compute(columns[:, here], scores[:, here])
        return scores

    def moments(
        self, distribution: Floats, columns: Floats, starts: Places, chosen: Places | None = None
    ) -> Floats:
        """features distribution', (F, A), of a distribution (A, n_rows) and columns (D, n_rows); of features
        that are none of the chosen columns, zero."""
        part = columns if chosen is None else columns[chosen]
        sums = np.zeros((len(self.cells), len(part), len(distribution)))
        for cell, here in iterate_cells(starts):
            sums[cell] = part[:, here] @ distribution[:, here].T
        return self.gather(sums, chosen)

    def gather(self, sums: Floats, chosen: Places | None = None) -> Floats:
        """(F, A): the sums of features, of sums of columns, or of the chosen ones, in each cell (C, D, A)."""
        operator = self._operator if chosen is None else self._choose(chosen)
        return operator @ sums.reshape(-1, sums.shape[2])

    def _choose(self, chosen: Places) -> Matrix:
        """(F, C * len(chosen)): the embedding for some columns alone."""
        key = chosen.tobytes()
        if key not in self._chosen:
            first = np.arange(len(self.cells))[:, None] * len(self.columns)
            self._chosen[key] = compact(self.embedding[:, (first + chosen).ravel()])
        return self._chosen[key]

    @cached_property
    def _chosen(self) -> dict[bytes, Matrix]:
        return {}

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
        features = np.repeat(np.arange(self.n_features), self._spans)
        cells, columns = np.divmod(self.embedding.indices.astype(np.int64), len(self.columns))
        inside = [cells == cell for cell in range(len(self.cells))]
        return [(features[here], columns[here]) for here in inside]

    def localize(self, features: Places, actions: Places) -> tuple[Places, Places, sparse.csr_array]:
        """Of Q places (feature, action), the q places (column, action) that they are in any cell, in order of
        action, and which of these they are in which cell: ones in a matrix (Q, C * q)."""
        ends, counts = self.embedding.indptr, self._spans[features]
        found = [self.embedding.indices[ends[f] : ends[f + 1]] for f in features]
        cells, columns = np.divmod(np.concatenate([np.zeros(0, np.int64), *found]), len(self.columns))
        keys, places = np.unique(
            np.repeat(actions, counts) * len(self.columns) + columns, return_inverse=True
        )
        rows = np.split(cells * len(keys) + places, np.cumsum(counts)[:-1])[: len(features)]  # maybe none
        return keys % len(self.columns), keys // len(self.columns), _mark(rows, len(self.cells) * len(keys))


def _mark(rows: Sequence[NDArray[np.integer]], width: int) -> sparse.csr_array:
    """(len(rows), width): ones in these columns of each row, which are in order."""
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.zeros(0, np.int64), *rows])
    return sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(rows), width))


def iterate_cells(starts: Places) -> Iterator[tuple[int, slice]]:
    """The cells that have rows, each with its rows; `starts` (C + 1,) tells where each begins."""
    ends = starts.tolist()
    return ((c, slice(*ends[c : c + 2])) for c in range(len(ends) - 1) if ends[c] < ends[c + 1])


def iterate_tiles(starts: Places, width: int) -> Iterator[tuple[int, slice]]:
    """The same, but no more than so many rows at a time."""
    for cell, rows in iterate_cells(starts):
        for first in range(rows.start, rows.stop, width):
            yield cell, slice(first, min(first + width, rows.stop))


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
