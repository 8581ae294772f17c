"""A fingerprint of rows: enough to recognise them in other evidence, and nothing of what is in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.json_reader import Node
from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.formulation.dual import BLOCK_ROWS
from bylaw.formulation.linear_form import FeatureMap

Hashes = NDArray[np.uint64]

_SKETCH = 1024  # of the smallest hashes are kept: a fair sample of the distinct rows
_REPEATED = 0.01  # share of rows like another one, above which likeness says nothing
_SHARED = 0.05  # share of rows in common, above which they are no accident
_FEWEST = 3  # rows in common that mean anything
_START = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@dataclass(frozen=True)
class Fingerprint:
    """Of a set of rows in any order; those of different rows add up."""

    rows: int
    total: int  # sum of all hashes, modulo 2^64
    sketch: tuple[int, ...]  # the smallest hashes, in order

    def __add__(self, other: Fingerprint) -> Fingerprint:
        sketch = sorted((*self.sketch, *other.sketch))[:_SKETCH]
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % 2**64, tuple(sketch))

    def shares_rows_with(self, other: Fingerprint) -> bool:
        """The same rows, or a good part of either in common.

        Rows are recognised by what a policy sees of them, and two rows may look alike by accident. Where
        more than one in a hundred does, only the very same rows are recognised.
        """
        if (self.rows, self.total) == (other.rows, other.total):
            return True
        if self._repeats or other._repeats:
            return False
        reach = min(self._reach, other._reach)
        mine, others = ({h for h in side.sketch if h <= reach} for side in (self, other))
        common = len(mine & others)
        fewest = min(len(mine), len(others))
        return common >= min(_FEWEST, self.rows, other.rows) and common > _SHARED * fewest

    @property
    def _reach(self) -> int:
        """Every row with a smaller hash is in the sketch."""
        return self.sketch[-1] if self.rows > len(self.sketch) else 2**64

    @property
    def _repeats(self) -> bool:
        return len(self.sketch) - len(set(self.sketch)) > _REPEATED * len(self.sketch)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "total": f"{self.total:016x}",
            "sketch": "".join(f"{h:016x}" for h in self.sketch),
        }

    @classmethod
    def from_node(cls, node: Node) -> Fingerprint:
        text = node["sketch"].text()
        pieces = [Node(text[i : i + 16], node["sketch"].place) for i in range(0, len(text), 16)]
        sketch = [_hexadecimal(piece) for piece in pieces]
        rows = node["rows"].count()
        if sketch != sorted(sketch) or len(sketch) != min(rows, _SKETCH):
            node["sketch"].fail(f"the {min(rows, _SKETCH)} smallest hashes, in order")
        return cls(rows, _hexadecimal(node["total"]), tuple(sketch))


NO_ROWS = Fingerprint(0, 0, ())
Fingerprints = tuple[Fingerprint, ...]  # of rows that had different parts in a policy


def shares_rows(rows: Fingerprint, among: Fingerprints) -> bool:
    """Whether these rows share some with any part, or are several parts together."""
    together = (
        sum(parts, NO_ROWS) for n in range(1, len(among) + 1) for parts in itertools.combinations(among, n)
    )
    return any(rows.shares_rows_with(part) for part in together)


def make_fingerprint(columns: Iterable[Floats]) -> Fingerprint:
    """Of rows given as features (n_features, n_rows), in any number of pieces."""
    return reduce(add, (_piece(_hashes(features)) for features in columns), NO_ROWS)


def fingerprint_evidence(feature_map: FeatureMap, evidence: Evidence) -> Fingerprint:
    """Of evidence, as a policy with this feature map sees it."""
    evidence = feature_map.admit(evidence)
    slices = (slice(i, min(i + BLOCK_ROWS, len(evidence))) for i in range(0, len(evidence), BLOCK_ROWS))
    height = len(feature_map.features)
    return make_fingerprint(
        feature_map.columns(evidence, s, np.empty((height, s.stop - s.start))) for s in slices
    )


def _piece(hashes: Hashes) -> Fingerprint:
    smallest = np.partition(hashes, _SKETCH)[:_SKETCH] if len(hashes) > _SKETCH else hashes
    return Fingerprint(len(hashes), int(hashes.sum(dtype=np.uint64)), tuple(np.sort(smallest).tolist()))


def _hashes(features: Floats) -> Hashes:
    """One hash per row; equal rows have equal ones."""
    mixed = np.full(features.shape[1], _START)
    for column in features:
        mixed ^= (column + 0.0).view(np.uint64)  # -0.0 is 0.0
        mixed *= _ODD
        mixed ^= mixed >> _HALF
        mixed *= _ODD
        mixed ^= mixed >> _HALF
    return mixed


def _hexadecimal(node: Node) -> int:
    text = node.text()
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        node.fail("sixteen hexadecimal digits")
    return int(text, 16)
