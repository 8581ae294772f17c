"""Which cells of a table are too small to be shown: rates and counts of a few people would give them away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bylaw._base.validation import MIN_CELL


def choose_shown(counts: Sequence[float], min_cell: int = MIN_CELL) -> NDArray[np.bool_]:
    """Return which cells of one partition may be shown, (n_cells,), from how many rows each has.

    Cells with fewer than `min_cell` rows are hidden. The total less the cells that are shown is the sum of
    those that are hidden: where that is one cell, or has fewer than `min_cell` rows, the smallest of the
    others are hidden, too (secondary suppression). Cells without rows stay.

    Examples
    --------
    >>> choose_shown([1, 40, 200]).tolist()
    [False, False, True]
    >>> choose_shown([1, 40, 200], min_cell=0).tolist()
    [True, True, True]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    # Expected numbers of rows are sums, with rounding errors.
    hidden = (sizes > 0) & (sizes < min_cell - 1e-9)
    for place in np.argsort(sizes, kind="stable"):
        if not hidden.any() or (hidden.sum() > 1 and sizes[hidden].sum() >= min_cell):
            break
        hidden[place] |= sizes[place] > 0
    return ~hidden
