"""Whether rows come in an order that has to do with their content, which a monitor must not be given."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray

from bylaw._base.callers import find_stack_level
from bylaw.errors import GuaranteeWarning
from bylaw.monitoring.watched_rows import UNKNOWN, WatchedRows

_FEWEST = 200  # rows that tell
_FAR = -8.0  # standard deviations below the expected number of changes: more than a busy hour brings


def warn_of_sorted_rows(rows: WatchedRows) -> None:
    """Where neighbours are far more alike than rows at random are."""
    likeliest = rows.decisions.argmax(axis=1)
    for name, codes in {**rows.groups, "the label": rows.labels, "the decision": likeliest}.items():
        known = codes[codes != UNKNOWN]
        changes, expected, distance = count_changes(known)
        if len(known) >= _FEWEST and distance < _FAR:
            warnings.warn(
                f"rows are sorted by {name}: it changes {changes:,} times from row to row, where "
                f"{expected:,.0f} are expected. A monitor compares rows with their neighbours, and is blind "
                "or wrong where these are alike: pass rows in the order in which they were decided, or "
                "shuffle them by something that has nothing to do with them, such as a hash of their ids",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )
            return


def count_changes(codes: NDArray[np.int64]) -> tuple[int, float, float]:
    """How often neighbours differ, how often they would at random, and by how many standard deviations fewer
    that is (Wald and Wolfowitz, 1940)."""
    n = len(codes)
    if n < 2:
        return 0, 0.0, 0.0
    changes = int((codes[1:] != codes[:-1]).sum())
    _, counts = np.unique(codes, return_counts=True)
    differ = 1 - float((counts * (counts - 1.0)).sum()) / (n * (n - 1.0))
    expected, deviation = (n - 1) * differ, math.sqrt((n - 1) * differ * (1 - differ))
    return changes, expected, (changes - expected) / max(deviation, 1.0)
