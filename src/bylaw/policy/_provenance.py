"""Origin of a policy: the rows that it was fitted on, its date, versions and options, and its audits.

Rows are recognized by hashes. Each row is hashed as the policy reads it: all features, rounded to about six
digits. A policy file keeps a digest of the whole table, which does not depend on the order of the rows. The
hashes of single rows stay in the memory of the process that fitted the policy.
"""

from __future__ import annotations

import hashlib
import itertools
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, pdtrc

from bylaw._base import Floats, Hashes, Node, find_version, hash_rows
from bylaw.program import BLOCK_ROWS, FeatureMap
from bylaw.rows import Evidence

# Features keep 20 of the 52 binary digits of a floating-point number, so that last digits do not matter.
_HALF_STEP = np.uint64(1 << 31)
_KEPT_DIGITS = np.uint64(0xFFFFFFFF00000000)

_FALSE_ALARM = 1e-6  # the probability that rows that were not fitted are recognized as fitted ones

# A row occurs as often in another sample with probability 0.31 at most (two Poisson numbers of mean 1), so
# that two samples agree in 12 different rows with probability 0.31^12 < 1e-6.
_MIN_DIFFERENT_ROWS = 12

_MIN_REPEATED_ROWS = 30  # the least number of repeated rows that can show that rows were copied


@dataclass(frozen=True)
class TableSum:
    """Hash of a set of rows that does not depend on their order. Hashes of disjoint sets can be added.

    Attributes
    ----------
    rows : int
        The number of rows.
    sums : tuple of int or None
        The sum of the hashes of the rows, and the sum of their squares, modulo 2^64; None if unknown.
    """

    rows: int = 0
    sums: tuple[int, int] | None = (0, 0)

    @classmethod
    def from_hashes(cls, hashes: Hashes) -> TableSum:
        """Return the sum of the hashes of rows, (n_rows,)."""
        return cls(len(hashes), (int(hashes.sum()), int((hashes * hashes).sum())))

    def __add__(self, other: TableSum) -> TableSum:
        sums = None
        if self.sums is not None and other.sums is not None:
            sums = ((self.sums[0] + other.sums[0]) % 2**64, (self.sums[1] + other.sums[1]) % 2**64)
        return TableSum(self.rows + other.rows, sums)

    def to_dict(self) -> dict[str, Any]:
        """Return the sum as a dict for a JSON file."""
        sums = None if self.sums is None else [f"{one:016x}" for one in self.sums]
        return {"rows": self.rows, "sums": sums}

    @classmethod
    def from_node(cls, node: Node) -> TableSum:
        """Read a sum from a JSON file; files before version 3 give only the number of rows."""
        if "sums" not in node.value or node["sums"].value is None:
            return cls(node["rows"].count(), None)
        first, second = (int(text, 16) for text in _read_hexadecimals(node["sums"], 16, count=2))
        return cls(node["rows"].count(), (first, second))

    def make_fingerprint(self) -> Fingerprint:
        """Return a fingerprint with the number of rows and their digest, which is safe to save."""
        if self.sums is None:
            return Fingerprint(self.rows)
        return Fingerprint(self.rows, (hashlib.sha256(f"{self.rows} {self.sums}".encode()).hexdigest(),))


@dataclass(frozen=True)
class Fingerprint:
    """Digests of a set of rows, by which an audit recognizes them.

    Attributes
    ----------
    rows : int
        The number of rows.
    digests : tuple of str
        The SHA-256 of the whole table. If held-out rows took part in choosing a policy, also digests of these
        rows joined with the other rows of the fit. Empty if the rows could not be hashed.
    hashes : array of shape (n_rows,) or None
        The hashes of the single rows, in memory only.
    """

    rows: int
    digests: tuple[str, ...] = ()
    hashes: Hashes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_hashes(cls, hashes: Hashes) -> Fingerprint:
        """Return the fingerprint of rows in memory, given their hashes (n_rows,)."""
        digests = TableSum.from_hashes(hashes).make_fingerprint().digests
        return cls(len(hashes), digests, hashes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Drop the hashes of single rows from pickled policies."""
        return Fingerprint, (self.rows, self.digests)

    @cached_property
    def _repeats(self) -> tuple[Hashes, NDArray[np.int64]]:
        """The distinct hashes of rows, sorted, and how often each occurs."""
        assert self.hashes is not None
        return np.unique(self.hashes, return_counts=True)

    @property
    def n_different(self) -> int:
        """The number of distinct rows."""
        return len(self._repeats[0])

    @property
    def copied(self) -> bool:
        """True if rows are repeated more regularly than in a sample of independent rows.

        If f_j distinct rows occur j times, counts of independent rows are a mixture of Poisson distributions,
        for which (j! f_j)^2 <= (j-1)! f_{j-1} (j+1)! f_{j+1}.
        """
        counts = np.append(np.bincount(self._repeats[1]), 0).astype(float)
        for times in np.flatnonzero(counts[2:] >= _MIN_REPEATED_ROWS) + 2:
            expected = counts[times] ** 2 / max(counts[times - 1] * (times + 1) / times, 1.0)
            if expected >= _MIN_REPEATED_ROWS and counts[times + 1] < expected / 4:
                return True
        return False

    def join(self, earlier: Sequence[Fingerprint]) -> tuple[Fingerprint, ...]:
        """Return the earlier fingerprints and this one.

        The digests of this one then include those of its rows joined with the rows of the earlier ones.
        """
        known = [part.hashes for part in earlier if part.hashes is not None]
        if self.hashes is None:
            return (*earlier, self)
        together = [
            digest
            for n in range(1, len(known) + 1)
            for parts in itertools.combinations(known, n)
            for digest in Fingerprint.from_hashes(np.concatenate([*parts, self.hashes])).digests
        ]
        return (*earlier, Fingerprint(self.rows, (*self.digests, *together), self.hashes))

    def to_dict(self) -> dict[str, Any]:
        """Return the fingerprint as a dict for a JSON file."""
        return {"rows": self.rows, "digests": list(self.digests)}

    @classmethod
    def from_node(cls, node: Node) -> Fingerprint:
        """Read a fingerprint from a JSON file.

        Files before version 3, which recognized rows by noisy counts, give only the number of rows.
        """
        rows = node["rows"].count()
        if "digests" not in node.value and ("counts" in node.value or "sketch" in node.value):
            return cls(rows)
        return cls(rows, tuple(_read_hexadecimals(node["digests"], 64)))


def _read_hexadecimals(node: Node, digits: int, count: int | None = None) -> list[str]:
    """Read a list of hexadecimal numbers, each with this number of digits."""
    texts = [one.text() for one in node.list()]
    valid = all(re.fullmatch(f"[0-9a-f]{{{digits}}}", text) for text in texts)
    if not valid or len(texts) != (count or len(texts)):
        node.fail(f"hexadecimal numbers of {digits} digits")
    return texts


Fingerprints = tuple[Fingerprint, ...]  # of the rows that fitted a policy, and of those that certified it


def hash_features(features: Floats) -> Hashes:
    """Return the hash of each row, (n_rows,), given features (n_features, n_rows), which are rounded."""
    rounded = np.add(features, 0.0, order="C")  # -0.0 is 0.0
    bits = rounded.view(np.uint64)
    bits += _HALF_STEP
    bits &= _KEPT_DIGITS
    return hash_rows(rounded)


def hash_evidence(feature_map: FeatureMap, evidence: Evidence) -> Fingerprint:
    """Return the fingerprint of evidence, given the feature map of the policy that reads it."""
    evidence = feature_map.admit(evidence)
    slices = (slice(i, min(i + BLOCK_ROWS, len(evidence))) for i in range(0, len(evidence), BLOCK_ROWS))
    height = len(feature_map.features)
    pieces = [
        hash_features(feature_map.columns(evidence, s, np.empty((height, s.stop - s.start)))) for s in slices
    ]
    return Fingerprint.from_hashes(np.concatenate([np.empty(0, np.uint64), *pieces]))


def shares_rows(rows: Fingerprint, among: Sequence[Fingerprint]) -> bool:
    """Return True if some of the rows in memory were used to fit a policy.

    They are recognized as a whole table, or one by one if the hashes of the fitted rows are in memory, too.

    Parameters
    ----------
    rows : Fingerprint
        The rows in memory, with their hashes.
    among : sequence of Fingerprint
        The sets of fitted rows.
    """
    known = {digest for part in among for digest in part.digests}
    if rows.n_different >= _MIN_DIFFERENT_ROWS and not known.isdisjoint(rows.digests):
        return True
    return any(_has_common_rows(rows, part) for part in among if part.hashes is not None and part.rows)


def _has_common_rows(rows: Fingerprint, fitted: Fingerprint) -> bool:
    """Return True if two sets have more common rows than independent samples have.

    Rows whose scores have few digits may agree by accident. If `twice` of n fitted rows occur twice, a new
    row agrees with a row that occurs once with probability 2 twice / n (Good and Turing).
    """
    different, times = fitted._repeats
    most_twice = gammaincinv((times == 2).sum() + 1, 1 - _FALSE_ALARM)  # an upper bound of its mean
    n_rows = rows.n_different if rows.copied else rows.rows
    expected = n_rows * min(2 * most_twice / fitted.rows, 1.0)
    common = len(np.intersect1d(rows._repeats[0], different[times == 1], assume_unique=True))
    return bool(pdtrc(common - 1, expected) < _FALSE_ALARM)


@dataclass(frozen=True)
class Look:
    """Record of one audit on held-out rows.

    Attributes
    ----------
    date : str
        The date and time in UTC, as ISO 8601.
    verdict : str
        The verdict on all rules together.
    question : str
        A hash of the rules and options of the audit.
    fingerprint : Fingerprint
        The fingerprint of the rows.
    """

    date: str
    verdict: str
    question: str
    fingerprint: Fingerprint

    @classmethod
    def now(cls, verdict: str, question: str, fingerprint: Fingerprint) -> Look:
        """Return a record with the current date and time."""
        return cls(_now(), verdict, question, fingerprint)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.fingerprint.rows

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict for a JSON file."""
        return {**vars(self), "fingerprint": self.fingerprint.to_dict()}

    @classmethod
    def from_node(cls, node: Node) -> Look:
        """Read a record from a JSON file and validate it."""
        return cls(**node.fields(cls, date=_read_date, fingerprint=Fingerprint.from_node))


@dataclass(frozen=True)
class Card:
    """Facts about the origin of a policy: its date, versions, table, options and audits."""

    created: str  # the date and time in UTC, as ISO 8601
    versions: Mapping[str, str]  # {library: version}
    source: str = ""  # the name of the table that the policy was fitted on
    columns: Mapping[str, Any] = field(default_factory=dict)  # the roles of that table's columns
    previous: Mapping[str, Any] = field(
        default_factory=dict
    )  # the policy that changed decisions are counted against
    looks: list[Look] = field(default_factory=list, compare=False)  # the audits on held-out rows, in order
    # The options of `solve`: the margin, True if labels were given, the names of true groups, and the
    # calibration. Empty in files of versions that did not write them.
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def today(cls) -> Card:
        """Return a card with the current date and versions."""
        return cls(_now(), versions())

    def to_dict(self) -> dict[str, Any]:
        """Return the card as a dict for a JSON file; empty options and previous policies are left out."""
        facts = {**vars(self), "versions": dict(self.versions), "columns": dict(self.columns)}
        for name in ("previous", "options"):
            facts[name] = dict(facts[name])
            if not facts[name]:
                del facts[name]
        return {**facts, "looks": [look.to_dict() for look in self.looks]}

    @classmethod
    def from_node(cls, node: Node) -> Card:
        """Read a card from a JSON file and validate it; files of earlier versions may have fewer fields."""

        def read_versions(versions: Node) -> dict[str, str]:
            return {name: item.text() for name, item in versions.items()}

        def read_columns(columns: Node) -> Any:
            columns.items()  # roles are checked when a table is read with them
            return columns.value

        def read_previous(previous: Node) -> dict[str, Any]:
            by_id = previous["by_id"].one_of([True, False])
            return {"policy": previous["policy"].text(), "by_id": by_id}

        def read_options(options: Node) -> dict[str, Any]:
            margin = options["margin"]
            return {
                "margin": "auto" if margin.value == "auto" else margin.positive(zero=True),
                "labels": options["labels"].one_of([True, False]),
                "groups": [name.text() for name in options["groups"].list()],
                "calibrate": options["calibrate"].text(),
            }

        return cls(
            **node.fields(
                cls,
                created=_read_date,
                versions=read_versions,
                columns=read_columns,
                previous=read_previous,
                looks=lambda looks: list(map(Look.from_node, looks.list())),
                options=read_options,
            )
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_date(node: Node) -> str:
    try:
        datetime.fromisoformat(node.text())
    except ValueError:
        node.fail("a date and time")
    return node.text()


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that compute policies."""
    libraries = {name: find_version(name, "unknown") for name in ("bylaw", "numpy", "scipy")}
    return {"python": platform.python_version(), **libraries}
