"""Fingerprints of sets of rows: noisy counts, enough to recognise the set and too little to tell of any row.

Each row falls into one of 8,192 buckets, by a hash of what a policy sees of it (to about six digits, so that
rows that were written as 32-bit numbers are recognised), and the number of rows in each bucket is kept with
noise: the discrete Laplace distribution, P(z) proportional to exp(-|z|). A row that is added or left out
changes one count by one, and with it the probability of any file by a factor of at most e: epsilon = 1 in the
sense of differential privacy. A row that is exchanged for another changes two counts: epsilon = 2, and this
is the figure for somebody who knows the number of rows and all other rows.

The noise comes from a secret that is drawn when the process starts and never stored. The same rows have the
same fingerprint throughout a process, so that policies that are saved again and again give no more away;
fingerprints from several processes add up their epsilons.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.hashing import Hashes, hash_rows
from bylaw._base.json_reader import Node
from bylaw._base.typing import Floats

Counts = NDArray[np.int64]

BUCKETS = 8192
EPSILON = 1.0  # of a row that is added or left out
_SHIFT = np.uint64(64 - 13)  # the highest bits of a hash are its bucket
_WIDTHS = ("<i1", "<i2", "<i4", "<i8")
_MANY = 30  # draws, whose sum is normal
_TAIL = 45  # epsilons: noise beyond has a probability below 2^-63
_SECRET = os.urandom(32)
_HALF, _KEPT = np.uint64(1 << 31), np.uint64(0xFFFFFFFF00000000)  # the last 32 of 52 binary digits go


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Of a set of rows in any order; those of different rows add up.

    Attributes
    ----------
    rows : int
        how many; this is exact.
    counts : array of shape (n_buckets,)
        read-only.
    draws : int
        how many draws of noise each count contains; 0 where the counts are exact and are not to be saved.
    """

    rows: int
    counts: Counts
    draws: int = 0

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, self.counts + other.counts, self.draws + other.draws)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint):
            return NotImplemented
        alike = (self.rows, self.draws) == (other.rows, other.draws)
        return alike and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self.rows, self.draws, self.counts.tobytes()))

    def release(self) -> Fingerprint:
        """With one more draw of noise, the same for the same counts throughout a process."""
        content = self._pack().tobytes() + f"{self.rows} {self.draws}".encode()
        return Fingerprint(self.rows, self.counts + _draw_noise(content), self.draws + 1)

    def to_dict(self) -> dict[str, Any]:
        if not self.draws:
            raise ValueError("exact counts are not saved: release() them first")
        text = base64.b64encode(self._pack().tobytes()).decode()
        return {"rows": self.rows, "draws": self.draws, "counts": text}

    def _pack(self) -> NDArray[np.integer]:
        """The counts as the shortest integers that hold them all."""
        largest = int(np.abs(self.counts).max())
        return self.counts.astype(next(width for width in _WIDTHS if largest <= np.iinfo(width).max))

    @classmethod
    def from_node(cls, node: Node) -> Fingerprint:
        """Also from the files of version 1, which held hashes: what is left of them is the number of rows."""
        rows = node["rows"].count()
        if "sketch" in node.value:
            return _forget_hashes(rows, node["sketch"])
        draws = node["draws"].count()
        if not 1 <= draws <= 10**6:
            node["draws"].fail("from 1 to 1,000,000")
        counts = _decode(node["counts"])
        if np.abs(counts).max() > rows + draws * _TAIL / EPSILON:
            node["counts"].fail(f"counts of {rows} rows")
        return cls(rows, counts, draws)


NO_ROWS = Fingerprint(0, np.zeros(BUCKETS, np.int64))
Fingerprints = tuple[Fingerprint, ...]  # of rows that had different parts in a policy


def make_fingerprint(columns: Iterable[Floats]) -> Fingerprint:
    """Of rows given as features (n_features, n_rows), in any number of pieces; it may be saved."""
    return count_rows(columns).release()


def count_rows(columns: Iterable[Floats]) -> Fingerprint:
    """The same without noise, to be added up; `release` it before anybody else sees it."""
    rows, counts = 0, np.zeros(BUCKETS, np.int64)
    for features in columns:
        rows += features.shape[1]
        counts += count_buckets(hash_features(features))
    return Fingerprint(rows, counts)


def count_unseen(rows: int) -> Fingerprint:
    """Of rows that could not be hashed: how many they are, and counts of zero, which recognise nothing."""
    return Fingerprint(rows, np.zeros(BUCKETS, np.int64)).release()


def hash_features(features: Floats) -> Hashes:
    """One hash per row of features (n_features, n_rows), rounded to twenty binary digits."""
    rounded = np.add(features, 0.0, order="C")  # -0.0 is 0.0
    bits = rounded.view(np.uint64)
    bits += _HALF
    bits &= _KEPT
    return hash_rows(rounded)


def count_buckets(hashes: Hashes) -> Counts:
    return np.bincount((hashes >> _SHIFT).view(np.int64), minlength=BUCKETS)


def noise_distribution(draws: int) -> Floats:
    """Probabilities of the sum of so many draws of noise, from -reach to reach, (2 reach + 1,)."""
    if draws > _MANY:
        reach = math.ceil(10 * math.sqrt(draws * noise_variance()))
        normal = np.exp(-np.square(np.arange(-reach, reach + 1)) / (2 * draws * noise_variance()))
        return normal / normal.sum()
    reach = int(_TAIL / EPSILON)
    once = np.exp(-EPSILON * np.abs(np.arange(-reach, reach + 1)))
    total: Floats = np.ones(1)
    for _ in range(draws):
        total = np.convolve(total, once / once.sum()).astype(np.float64)
    return total


def noise_variance() -> float:
    """Of one draw."""
    return 1 / (math.cosh(EPSILON) - 1)


def _draw_noise(content: bytes) -> Counts:
    """From a keyed hash, (n_buckets,): without the secret it cannot be told from true randomness."""
    stream = hashlib.shake_256(_SECRET + content).digest(8 * BUCKETS)
    bits = np.frombuffer(stream, dtype="<u8")
    limits = _find_limits()
    sizes = len(limits) - np.searchsorted(limits, bits >> np.uint64(1), side="right")
    return sizes * (2 * (bits & np.uint64(1)).view(np.int64) - 1)


@cache
def _find_limits() -> NDArray[np.uint64]:
    """2^63 P(|z| >= step), from the most steps to one."""
    steps = np.arange(1, int(_TAIL / EPSILON))
    beyond = 2 * np.exp(-EPSILON * steps) / (1 + np.exp(-EPSILON))
    return (beyond[::-1] * 2.0**63).astype(np.uint64)


def _decode(node: Node) -> Counts:
    try:
        content = base64.b64decode(node.text(), validate=True)
    except (binascii.Error, ValueError):
        node.fail("base64")
    widths = {BUCKETS * np.dtype(width).itemsize: width for width in _WIDTHS}
    if len(content) not in widths:
        node.fail(f"{BUCKETS:,} counts")
    return np.frombuffer(content, dtype=widths[len(content)]).astype(np.int64)


def _forget_hashes(rows: int, node: Node) -> Fingerprint:
    """Version 1 kept hashes of single rows, from which these could be guessed. Only their number is left, and
    counts of zero recognise nothing."""
    if len(node.text()) != 16 * min(rows, 1024):
        node.fail(f"the {min(rows, 1024)} smallest hashes")
    return count_unseen(rows)
