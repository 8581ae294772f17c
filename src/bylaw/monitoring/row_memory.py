"""Which rows a monitor has seen, by the hashes of their ids, and which of them wait for more."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bylaw.monitoring.watched_rows import UNKNOWN, WatchedRows

Ids = NDArray[np.uint64]


@dataclass
class RowMemory:
    """Rows by the hashes of their ids: all that were seen, and those that wait for labels or groups."""

    seen: Ids = field(default_factory=lambda: np.empty(0, np.uint64))  # sorted
    waiting_ids: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    waiting: WatchedRows | None = None

    def find_seen(self, ids: Ids) -> NDArray[np.bool_]:
        """(n_rows,): which of these rows were seen."""
        places = np.minimum(np.searchsorted(self.seen, ids), max(len(self.seen) - 1, 0))
        return self.seen[places] == ids if len(self.seen) else np.zeros(len(ids), dtype=bool)

    def add_seen(self, ids: Ids) -> None:
        new = np.sort(ids[~self.find_seen(ids)])
        self.seen = np.insert(self.seen, np.searchsorted(self.seen, new), new)

    def find_waiting(self, ids: Ids) -> NDArray[np.int64]:
        """The place of each id among the waiting ones, or `UNKNOWN`."""
        if not len(self.waiting_ids):
            return np.full(len(ids), UNKNOWN, np.int64)
        order = np.argsort(self.waiting_ids, kind="stable")
        ordered = self.waiting_ids[order]
        places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        return np.where(ordered[places] == ids, order[places], UNKNOWN)
