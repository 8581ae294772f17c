"""Scored rows of a contest, as files that every contestant reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_FEATURES = 100_000  # rows whose features are kept, for learners that train again


@dataclass(frozen=True)
class Rows:
    scores: np.ndarray  # (n_rows, n_classes), P(label | x)
    labels: np.ndarray  # (n_rows,)
    groups: np.ndarray  # (n_rows,), 0 to n_groups - 1
    guesses: np.ndarray | None = None  # (n_rows, n_groups), P(group | x)
    features: np.ndarray | None = None  # (n_rows, n_features)

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, which: Any) -> Rows:
        return Rows(**{name: array[which] for name, array in self._arrays().items()})

    def save(self, path: Path) -> None:
        np.savez(path, **self._arrays())

    @classmethod
    def load(cls, path: Path) -> Rows:
        with np.load(path) as file:
            return cls(**file)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in vars(self).items() if array is not None}
