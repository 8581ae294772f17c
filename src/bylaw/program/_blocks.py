"""Blocks of rows with their features, arranged for fast sums over all rows.

If the values of some groups are known on each row, rows are sorted by cell: a cell holds the rows with the
same known groups. A feature such as 1{S = s} p_y is p_y in the cells with S = s, and zero in all others. So
rows need only the columns 1 and p_y, whatever the number of groups, and the second derivatives of the dual
are one small matrix per cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats, Mask, Matrix, compact
from bylaw.program._linear_form import Feature, FeatureMap, LinearForm, compute_scores, has_few
from bylaw.rows import KnownGroup, ObservedRows, Part, RowData

# Sizes of blocks and cells were chosen by measurement. If rows are sorted by cell, fewer calls save more time
# than a block that fits in the cache.
BLOCK_ROWS = 8192  # rows of a block: its features and scores fit in a core's cache
CELL_ROWS = 64  # least mean number of rows in a cell: with fewer, a matrix product per cell is too slow
_SORTED_VALUES = 2**18  # most values in the columns of a block that is sorted by cell
_SORTED_ROWS = 32_768  # most rows of such a block, because the first blocks serve as samples
_VISIT_ROWS = 512  # rows per cell and block: the overhead of one cell takes as long as so many rows
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """The combinations of values of some known groups. Without groups, one cell holds all rows."""

    names: tuple[str, ...]
    shape: tuple[int, ...]  # the number of values of each group

    @classmethod
    def find(cls, feature_map: FeatureMap, rows: RowData, n_rows: int | None = None) -> Cells:
        """Return the cells of the known groups on which the features depend.

        A group that would leave fewer than `CELL_ROWS` rows per cell is left out. The number of rows is
        `n_rows`, by default the length of `rows`; pass it if most rows are not in memory.
        """
        cells, n_rows = cls((), ()), len(rows) if n_rows is None else n_rows
        known = _read_known(rows)
        for name in feature_map.attributes:
            if name in known:
                finer = cls((*cells.names, name), (*cells.shape, len(known[name].values)))
                cells = finer if len(finer) * CELL_ROWS <= n_rows else cells
        return cells

    def __len__(self) -> int:
        return math.prod(self.shape)

    def locate(self, rows: RowData) -> NDArray[np.integer]:
        """Return the cell of each row, (n_rows,)."""
        known = _read_known(rows)
        codes = tuple(known[name].codes for name in self.names)
        return np.ravel_multi_index(codes, self.shape).astype(np.min_scalar_type(len(self)))

    def lay_out(self, feature_map: FeatureMap, rows: RowData) -> Layout:
        """Return how the features are made of columns that the cells share."""
        names = set(self.names)
        if isinstance(rows, ObservedRows):  # cells are defined by the groups that were known before
            names -= {name for name in names if _was_corrected(rows, name)}
        columns: dict[Feature, int] = {}
        shares = list[tuple[NDArray[np.intp], int]]()  # for each feature: its cells and its column
        codes = np.indices(self.shape).reshape(len(self.shape), len(self))
        for feature in feature_map.features:
            inside = np.ones(len(self), dtype=bool)
            for name, value in feature.event:
                if name in names:
                    place = rows.groups[name].values.index(value)
                    inside &= codes[self.names.index(name)] == place
            rest = tuple((name, value) for name, value in feature.event if name not in names)
            column = columns.setdefault(Feature(feature.source, rest), len(columns))
            shares.append((np.flatnonzero(inside), column))
        marked = [cells * len(columns) + column for cells, column in shares]
        return Layout(self, tuple(columns), _mark(marked, len(self) * len(columns)))


def _read_known(rows: RowData) -> Mapping[str, KnownGroup]:
    return rows.predicted.known_groups if isinstance(rows, ObservedRows) else rows.known_groups


def _was_corrected(rows: ObservedRows, name: str) -> bool:
    """Return whether observed values of a known group are missing or differ from those known before."""
    group, before = rows.groups[name], rows.predicted.known_groups[name]
    if not isinstance(group, KnownGroup) or rows.find_partly_seen([name]):
        return True
    return group.values != before.values or not np.array_equal(group.codes, before.codes)


def _mark(rows: Sequence[NDArray[np.integer]], width: int) -> sparse.csr_array:
    """Return a sparse matrix (len(rows), width) with ones in the given, ascending columns of each row."""
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.zeros(0, np.int64), *rows])
    return sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(rows), width))


@dataclass(frozen=True, eq=False)
class Layout:
    """The features, made of columns that the cells share: in each cell, a feature is one column or zero."""

    cells: Cells
    columns: tuple[Feature, ...]  # the columns, which are features themselves
    embedding: sparse.csr_array  # (n_features, n_cells * n_columns): ones where a feature is a column

    @cached_property
    def operator(self) -> Matrix:
        """The matrix `embedding`, dense if it is small, for fast products."""
        return compact(self.embedding)

    @cached_property
    def _spans(self) -> NDArray[np.integer]:
        """The number of cells in which each feature is a column, (n_features,)."""
        return np.diff(self.embedding.indptr)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self._spans)

    def spread(self, matrix: Floats) -> Sequence[Floats | sparse.csr_array]:
        """Convert weights of features to weights of columns: one matrix (n_actions, n_columns) per cell.

        `matrix` is (n_features, n_actions). The results are sparse if most entries are zero. This is common
        with many classes, because the score of a label depends on its own probability and on a few shared
        columns.
        """
        n_cells, n_columns, n_actions = len(self.cells), len(self.columns), matrix.shape[1]
        nonzero = int(np.count_nonzero(matrix, axis=1) @ self._spans)
        if has_few(nonzero // n_cells, n_columns * n_actions):
            stacked = sparse.csr_array(self.embedding.T @ sparse.csr_array(matrix))
            starts = range(0, n_cells * n_columns, n_columns)
            return [sparse.csr_array(stacked[first : first + n_columns].T) for first in starts]
        return [part.T for part in self.spread_matrix(matrix)]

    def spread_matrix(self, matrix: Floats) -> Floats:
        """Return weights of columns, (n_cells, n_columns, n_actions), from weights of features."""
        return (self.operator.T @ matrix).reshape(len(self.cells), len(self.columns), -1)

    def moments(
        self, distribution: Floats, columns: Floats, starts: Places, wanted: Mask | None = None
    ) -> Floats:
        """Return the sums features @ distribution', (n_features, n_actions), over the rows of a block.

        `distribution` is (n_actions, n_rows), `columns` is (n_columns, n_rows). With `wanted`, a mask
        (n_columns, n_actions), other entries may be zero.
        """
        sums = np.zeros((len(self.cells), len(columns), len(distribution)))
        for cell, rows in iterate_cells(starts):
            sums[cell] = _multiply(columns[:, rows], distribution[:, rows], wanted)
        return self.gather(sums)

    def gather(self, sums: Floats) -> Floats:
        """Return sums of features, (n_features, n_actions), from sums of columns in each cell."""
        return self.operator @ sums.reshape(-1, sums.shape[2])

    def expand(self, columns: Floats, starts: Places) -> Floats:
        """Return the features, (n_features, n_rows), of the rows of a block with these columns."""
        features = np.zeros((self.n_features, columns.shape[1]))
        made = np.repeat(np.arange(self.n_features), self._spans)
        cells, sources = np.divmod(self.embedding.indices.astype(np.int64), len(self.columns))
        for cell, rows in iterate_cells(starts):
            here = cells == cell
            features[made[here], rows] = columns[sources[here], rows]
        return features

    def localize(self, features: Places, actions: Places) -> tuple[Places, Places, sparse.csr_array]:
        """Convert pairs (feature, action) to the pairs (column, action) of which they are made.

        Return the columns and the actions of the pairs that occur in any cell, in order of the action, and a
        sparse matrix, (n_pairs, n_cells * n_local_pairs), with ones where a given pair is one of these pairs
        in a cell.
        """
        ends, counts = self.embedding.indptr, self._spans[features]
        found = [self.embedding.indices[ends[f] : ends[f + 1]] for f in features]
        cells, columns = np.divmod(np.concatenate([np.zeros(0, np.int64), *found]), len(self.columns))
        keys, places = np.unique(
            np.repeat(actions, counts) * len(self.columns) + columns, return_inverse=True
        )
        rows = np.split(cells * len(keys) + places, np.cumsum(counts)[:-1])[: len(features)]
        return keys % len(self.columns), keys // len(self.columns), _mark(rows, len(self.cells) * len(keys))


def iterate_cells(starts: Places) -> Iterator[tuple[int, slice]]:
    """Yield each cell that has rows, and the slice of its rows; `starts` are the first row of each cell."""
    ends = starts.tolist()
    return ((c, slice(*ends[c : c + 2])) for c in range(len(ends) - 1) if ends[c] < ends[c + 1])


@dataclass(frozen=True)
class Block:
    """The features and weights of some rows, arranged for fast sums.

    If rows are sorted by cell, only the columns of which the features are made are kept.
    """

    columns: Floats  # (n_columns, n_rows): without cells, the features (n_features, n_rows)
    weights: Floats | None  # (n_rows,): weights of the rows; None if all are one
    seen: Floats | None = None  # (n_observed_columns, n_rows): columns of the observed features
    layout: Layout | None = None  # of the features, if rows are sorted by cell
    seen_layout: Layout | None = None  # of the observed features, if rows are sorted by cell
    cell_starts: Places | None = None  # (n_cells + 1,): index of the first row of each cell
    order: NDArray[np.intp] | None = None  # (n_rows,): indices of these rows in the evidence

    def rows(self, part: Part) -> Block:
        """Return the block of some of the rows, which must be in ascending order."""
        starts = self.cell_starts
        if starts is not None:
            starts = np.searchsorted(np.arange(self.n_rows)[part], starts)
        return replace(
            self,
            columns=self.columns[:, part].copy(),
            weights=None if self.weights is None else self.weights[part],
            seen=None if self.seen is None else self.seen[:, part].copy(),
            cell_starts=starts,
            order=None if self.order is None else self.order[part],
        )

    def with_observed(self, twin: Block) -> Block:
        """Return the block with the features of another block of the same rows as observed features."""
        return replace(self, seen=twin.columns, seen_layout=twin.layout)

    @property
    def n_rows(self) -> int:
        return self.columns.shape[1]

    @property
    def row_weights(self) -> Floats:
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @property
    def mass(self) -> float:
        return float(self.n_rows if self.weights is None else self.weights.sum())

    @property
    def starts(self) -> Places:
        """The index of the first row of each cell, and the number of rows, (n_cells + 1,)."""
        return np.array([0, self.n_rows]) if self.cell_starts is None else self.cell_starts

    @property
    def features(self) -> Floats:
        """The features, (n_features, n_rows), computed from the columns if rows are sorted by cell."""
        return self.columns if self.layout is None else self.layout.expand(self.columns, self.starts)

    @property
    def observed(self) -> Floats | None:
        """The features computed from observed labels and groups, (n_observed_features, n_rows), or None."""
        if self.seen is None or self.seen_layout is None:
            return self.seen
        return self.seen_layout.expand(self.seen, self.starts)

    def scores(self, score_matrix: Floats) -> Floats:
        """Return score_matrix' @ features, (n_actions, n_rows), for a matrix (n_features, n_actions)."""
        if self.layout is None:
            return compute_scores(score_matrix, self.columns)
        weights, scores = self.layout.spread(score_matrix), np.empty((score_matrix.shape[1], self.n_rows))
        for cell, rows in iterate_cells(self.starts):
            scores[:, rows] = weights[cell] @ self.columns[:, rows]
        return scores

    def moments(self, distribution: Floats, wanted: Mask | None = None) -> Floats:
        """Return the sums features @ distribution', (n_features, n_actions), over the rows.

        `distribution`, (n_actions, n_rows), includes the row weights. With `wanted`, a mask (n_columns,
        n_actions), other entries may be zero.
        """
        if self.layout is None:
            return _multiply(self.columns, distribution, wanted)
        return self.layout.moments(distribution, self.columns, self.starts, wanted)

    def observed_moments(self, distribution: Floats, wanted: Mask | None = None) -> Floats | None:
        """Return the same sums as `moments` for the observed features, or None without such features."""
        if self.seen is None:
            return None
        if self.seen_layout is None:
            return _multiply(self.seen, distribution, wanted)
        return self.seen_layout.moments(distribution, self.seen, self.starts, wanted)


def _multiply(columns: Floats, distribution: Floats, wanted: Mask | None) -> Floats:
    """Return columns @ distribution.T; with `wanted`, compute only its marked entries."""
    if wanted is None:
        return columns @ distribution.T
    moments = np.zeros(wanted.shape)
    for column in np.flatnonzero(wanted.any(axis=1)):
        actions = np.flatnonzero(wanted[column])
        moments[column, actions] = distribution[actions] @ columns[column]
    return moments


def make_blocks(
    form: LinearForm, evidence: RowData, most: int | None = None, like: Sequence[Block] | None = None
) -> list[Block]:
    """Return the blocks of all rows, or only the first `most` of them.

    Block i takes every n-th row from row i on, of the rows sorted by cell, so that the first few blocks are a
    representative sample with rows of each cell. With `like`, each block has the same rows in the same order
    as the block in `like`.
    """
    evidence = _admit(form, evidence)
    if like is None:
        cells = Cells.find(form.feature_map, evidence)
        n_blocks = _count_blocks(evidence, cells)
    else:
        cells = like[0].layout.cells if like[0].layout else Cells((), ())
        n_blocks = len(like)
    chosen = range(n_blocks if most is None else min(most, n_blocks))
    if not cells.names:
        return [make_block(form, evidence, slice(i, None, n_blocks)) for i in chosen]
    layout, codes = cells.lay_out(form.feature_map, evidence), cells.locate(evidence)
    if like is None:
        sorted_rows = np.argsort(codes, kind="stable")
        orders = [sorted_rows[i::n_blocks] for i in chosen]
    else:
        orders = [block.order for block in like[: len(chosen)] if block.order is not None]
    return [_make_sorted_block(form, evidence, layout, codes, order) for order in orders]


def make_batch_blocks(form: LinearForm, batch: RowData, layout: Layout | None) -> list[Block]:
    """Return blocks of successive rows of a batch, sorted by the cells of `layout`.

    They are faster to make than those of `make_blocks`, but a single block is not a representative sample.
    """
    batch, cells = _admit(form, batch), Cells((), ()) if layout is None else layout.cells
    ends = np.linspace(0, len(batch), _count_blocks(batch, cells) + 1).astype(np.intp).tolist()
    parts = [slice(*ends[i : i + 2]) for i in range(len(ends) - 1)]
    if layout is None:
        return [make_block(form, batch, part) for part in parts]
    codes = cells.locate(batch)
    orders = (part.start + np.argsort(codes[part], kind="stable") for part in parts)
    return [_make_sorted_block(form, batch, layout, codes, order) for order in orders]


def _admit(form: LinearForm, rows: RowData) -> RowData:
    """Check that the rows have what the form needs, and drop rows of weight zero."""
    rows = form.feature_map.admit(rows)
    if rows.weights is None or rows.weights.all():
        return rows
    return rows.rows(np.flatnonzero(rows.weights))


def _count_blocks(rows: RowData, cells: Cells) -> int:
    """Return the number of blocks: blocks fit in the cache, but are large enough for the number of cells."""
    size = BLOCK_ROWS
    if cells.names:
        most = min(_SORTED_VALUES // (len(rows.classes) + 1), _SORTED_ROWS)
        size = max(size, most, len(cells) * _VISIT_ROWS)
    return -(-len(rows) // size)


def _make_sorted_block(
    form: LinearForm,
    evidence: RowData,
    layout: Layout,
    codes: NDArray[np.integer],
    order: NDArray[np.intp],
) -> Block:
    """Return the block of the rows with indices `order`, which must be sorted by cell."""
    shared = replace(form, feature_map=replace(form.feature_map, features=layout.columns))
    starts = np.searchsorted(codes[order], np.arange(len(layout.cells) + 1))
    return replace(make_block(shared, evidence, order), layout=layout, cell_starts=starts, order=order)


def make_block(form: LinearForm, evidence: RowData, rows: Part = slice(None)) -> Block:
    """Return the block of some rows of evidence, which was checked by `FeatureMap.admit` before."""
    width = len(range(*rows.indices(len(evidence)))) if isinstance(rows, slice) else len(rows)
    features = form.feature_map.columns(evidence, rows, np.empty((len(form.feature_map.features), width)))
    return Block(features, None if evidence.weights is None else evidence.weights[rows].copy())


def join_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the same rows in fewer blocks, by joining successive ones."""
    blocks = [block for block in blocks if block.n_rows] or list(blocks[:1])
    ends = np.cumsum([block.n_rows for block in blocks])
    groups: dict[int, list[Block]] = {}
    for block, end in zip(blocks, ends.tolist(), strict=True):
        groups.setdefault((end - 1) // BLOCK_ROWS, []).append(block)
    return [_join(group) for group in groups.values()]


def _join(blocks: Sequence[Block]) -> Block:
    first, seen = blocks[0], [block.seen for block in blocks if block.seen is not None]
    if len(blocks) == 1:
        return first
    whole = replace(
        first,
        columns=np.concatenate([block.columns for block in blocks], axis=1),
        weights=None if first.weights is None else np.concatenate([block.row_weights for block in blocks]),
        seen=np.concatenate(seen, axis=1) if seen else None,
        order=None,
    )
    if first.layout is None:
        return whole
    cells = np.arange(len(first.layout.cells))
    codes = np.concatenate([np.repeat(cells, np.diff(block.starts)) for block in blocks])
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(cells) + 1))
    return replace(whole.rows(order), cell_starts=starts)
