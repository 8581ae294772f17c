"""Blocks of rows, ready for a pass: features action-major, sorted by cell where groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.program.cells import Cells, Layout
from bylaw.program.linear_form import LinearForm, compute_scores
from bylaw.rows.evidence import RowData
from bylaw.rows.groups import Part

BLOCK_ROWS = 8192  # a block of features and scores fits in a core's cache
_SORTED_VALUES = 2**18  # of a block that is sorted by cell: fewer calls count for more than the nearest cache
_SORTED_ROWS = 32_768  # at most, unless there are many cells: the first blocks are samples
_CELL_ROWS = 512  # of a cell in a block, on average: each visit to a cell takes as long as so many rows


@dataclass(frozen=True)
class CellRows:
    """How the rows of a block are sorted by cell."""

    starts: NDArray[np.int64]  # (C + 1,): where each cell begins
    layout: Layout  # of features
    seen_layout: Layout | None = None  # of features as observed
    order: NDArray[np.intp] | None = None  # (n_rows,): which rows of the evidence these are

    def rows(self, part: Part, n_rows: int) -> CellRows:
        """Where the cells of some rows, in order, begin."""
        places = np.arange(n_rows)[part]
        order = None if self.order is None else self.order[part]
        return replace(self, starts=np.searchsorted(places, self.starts), order=order)

    @classmethod
    def sort(cls, codes: NDArray[np.integer], layout: Layout, order: NDArray[np.intp]) -> CellRows:
        """Of rows in an order in which their cells, (n_rows,), are sorted."""
        starts = np.searchsorted(codes[order], np.arange(len(layout.cells) + 1))
        return cls(starts, layout, order=order)

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n_rows,): the cell of each row."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@dataclass(frozen=True)
class Block:
    """Some rows, ready for a pass: features action-major, and weights. Where rows are sorted by cell, only
    the columns are kept of which their features are made."""

    columns: Floats  # (D, n_rows): without cells, the features (F, n_rows)
    weights: Floats | None  # (n_rows,), or None for ones
    seen: Floats | None = None  # (n_observed_columns, n_rows): the same rows as they turned out
    cells: CellRows | None = None

    def rows(self, part: Part) -> Block:
        """Some of the rows, in order."""
        return Block(
            self.columns[:, part].copy(),
            None if self.weights is None else self.weights[part],
            None if self.seen is None else self.seen[:, part].copy(),
            None if self.cells is None else self.cells.rows(part, self.n_rows),
        )

    def with_observed(self, twin: Block) -> Block:
        """With the features that the same rows have in a twin as those that were observed."""
        cells = self.cells
        if cells is not None and twin.cells is not None:
            cells = replace(cells, seen_layout=twin.cells.layout)
        return replace(self, seen=twin.columns, cells=cells)

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
    def starts(self) -> NDArray[np.int64]:
        """(C + 1,): where each cell begins."""
        return np.array([0, self.n_rows]) if self.cells is None else self.cells.starts

    @property
    def features(self) -> Floats:
        """(F, n_rows), made where they are not kept."""
        cells = self.cells
        return self.columns if cells is None else cells.layout.expand(self.columns, cells.starts)

    @property
    def observed(self) -> Floats | None:
        """(F', n_rows): features of the rows as they turned out."""
        layout = None if self.cells is None else self.cells.seen_layout
        return self.seen if self.seen is None or layout is None else layout.expand(self.seen, self.starts)

    def scores(self, score_matrix: Floats) -> Floats:
        """features' score_matrix, (A, n_rows), of a matrix (F, A)."""
        if self.cells is None:
            return compute_scores(score_matrix, self.columns)
        return self.cells.layout.scores(score_matrix, self.columns, self.starts)

    def moments(
        self,
        distribution: Floats,
        chosen: NDArray[np.int64] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Floats:
        """Compute the sum of phi pi', (F, A), of a distribution (A, n_rows) times weights. With `chosen`,
        features that are none of these columns get zeros; with `wanted` (F, A), so may other entries."""
        if self.cells is not None:
            return self.cells.layout.moments(distribution, self.columns, self.starts, chosen)
        if wanted is not None:
            return _multiply(self.columns, distribution, wanted)
        if chosen is None:
            return self.columns @ distribution.T
        moments = np.zeros((len(self.columns), len(distribution)))
        moments[chosen] = self.columns[chosen] @ distribution.T
        return moments

    def observed_moments(
        self, distribution: Floats, wanted: NDArray[np.bool_] | None = None
    ) -> Floats | None:
        """Compute the same sum of the observed features, (F', A)."""
        if self.seen is None:
            return None
        if self.cells is not None and self.cells.seen_layout is not None:
            return self.cells.seen_layout.moments(distribution, self.seen, self.starts)
        return self.seen @ distribution.T if wanted is None else _multiply(self.seen, distribution, wanted)


def _multiply(features: Floats, distribution: Floats, wanted: NDArray[np.bool_]) -> Floats:
    """Compute the entries of features @ distribution.T that are wanted."""
    moments = np.zeros(wanted.shape)
    for feature in np.flatnonzero(wanted.any(axis=1)):
        actions = np.flatnonzero(wanted[feature])
        moments[feature, actions] = distribution[actions] @ features[feature]
    return moments


def make_blocks(
    form: LinearForm, evidence: RowData, most: int | None = None, like: Sequence[Block] | None = None
) -> list[Block]:
    """All rows as blocks, or the first few blocks. Block i takes every n-th row from row i on, of the rows
    sorted by cell, so that the first few are a fair sample of all and have their share of each cell. With
    `like`, each block has the same rows in the same order as that one."""
    evidence = _admit(form, evidence)
    if like is None:
        cells = Cells.find(form.feature_map, evidence)
        n_blocks = _count_blocks(evidence, cells)
    else:
        cells = like[0].cells.layout.cells if like[0].cells else Cells((), ())
        n_blocks = len(like)
    chosen = range(n_blocks if most is None else min(most, n_blocks))
    if not cells.names:
        return [make_block(form, evidence, slice(i, None, n_blocks)) for i in chosen]
    layout = cells.lay_out(form.feature_map, evidence)
    if like is not None:
        parts = [block.cells for block in like[: len(chosen)] if block.cells]
        parts = [replace(part, layout=layout, seen_layout=None) for part in parts]
    else:
        codes = cells.locate(evidence)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes, np.arange(len(cells) + 1), sorter=order)
        starts = (np.maximum(-(-(ends - i) // n_blocks), 0) for i in chosen)
        parts = [
            CellRows(begin, layout, order=order[i::n_blocks]) for i, begin in zip(chosen, starts, strict=True)
        ]
    return [_make_sorted_block(form, evidence, part) for part in parts]


def make_batch_blocks(form: LinearForm, batch: RowData, layout: Layout | None) -> list[Block]:
    """Rows that are some of many, with the cells of all, as blocks of rows that follow each other, which are
    faster to read: these blocks are no samples."""
    batch, cells = _admit(form, batch), Cells((), ()) if layout is None else layout.cells
    ends = np.linspace(0, len(batch), _count_blocks(batch, cells) + 1).astype(np.intp).tolist()
    parts = [slice(*ends[i : i + 2]) for i in range(len(ends) - 1)]
    if layout is None:
        return [make_block(form, batch, part) for part in parts]
    codes = cells.locate(batch)
    orders = (part.start + np.argsort(codes[part], kind="stable") for part in parts)
    return [_make_sorted_block(form, batch, CellRows.sort(codes, layout, order)) for order in orders]


def _admit(form: LinearForm, rows: RowData) -> RowData:
    """Those with a weight: a sample of nothing teaches nothing."""
    rows = form.feature_map.admit(rows)
    if rows.weights is None or rows.weights.all():
        return rows
    return rows.rows(np.flatnonzero(rows.weights))


def _count_blocks(rows: RowData, cells: Cells) -> int:
    """Of rows without cells, as many as a core's cache holds; with cells, as many as each visit is worth."""
    size = BLOCK_ROWS
    if cells.names:
        most = min(_SORTED_VALUES // (len(rows.classes) + 1), _SORTED_ROWS)
        size = max(size, most, len(cells) * _CELL_ROWS)
    return -(-len(rows) // size)


def _make_sorted_block(form: LinearForm, evidence: RowData, cells: CellRows) -> Block:
    """Some rows, which are sorted by cell."""
    layout, rows = cells.layout, cells.order
    assert rows is not None
    feature_map = replace(form.feature_map, features=layout.columns)
    columns = feature_map.columns(evidence, rows, np.empty((len(layout.columns), len(rows))))
    weights = None if evidence.weights is None else evidence.weights[rows]
    return Block(columns, weights, cells=cells)


def make_block(form: LinearForm, evidence: RowData, rows: slice = slice(None)) -> Block:
    """Some rows of evidence that the form's recipe has admitted."""
    width = len(range(*rows.indices(len(evidence))))
    features = form.feature_map.columns(evidence, rows, np.empty((len(form.feature_map.features), width)))
    return Block(features, None if evidence.weights is None else evidence.weights[rows].copy())


def join_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The same rows in fewer blocks, each of several that follow each other."""
    blocks = [block for block in blocks if block.n_rows] or list(blocks[:1])
    ends = np.cumsum([block.n_rows for block in blocks])
    groups: dict[int, list[Block]] = {}
    for block, end in zip(blocks, ends.tolist(), strict=True):
        groups.setdefault((end - 1) // BLOCK_ROWS, []).append(block)
    return [_join(group) for group in groups.values()]


def _join(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    whole = Block(
        np.concatenate([block.columns for block in blocks], axis=1),
        None if blocks[0].weights is None else np.concatenate([block.row_weights for block in blocks]),
        _join_observed(blocks),
    )
    cells = blocks[0].cells
    if cells is None:
        return whole
    codes = np.concatenate([block.cells.codes for block in blocks if block.cells is not None])
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(cells.starts)))
    return replace(whole.rows(order), cells=replace(cells, starts=starts, order=None))


def _join_observed(blocks: Sequence[Block]) -> Floats | None:
    seen = [block.seen for block in blocks if block.seen is not None]
    return np.concatenate(seen, axis=1) if seen else None
