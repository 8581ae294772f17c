"""A policy's card: when it was made, with what, from which columns of a table, and which rows judged it."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from bylaw._base.files import Node
from bylaw._base.runtime import find_version
from bylaw.policy.recognition import Fingerprint

_LIBRARIES = ("bylaw", "numpy", "scipy")


@dataclass(frozen=True)
class Look:
    """One audit on held-out rows.

    Attributes
    ----------
    date : str
        UTC, as ISO 8601.
    verdict : str
        on all rules together.
    question : str
        a hash of the rules and options of the audit.
    fingerprint : Fingerprint
        of the rows.
    """

    date: str
    verdict: str
    question: str
    fingerprint: Fingerprint

    @classmethod
    def now(cls, verdict: str, question: str, fingerprint: Fingerprint) -> Look:
        """Return a look of this moment."""
        return cls(_now(), verdict, question, fingerprint)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.fingerprint.rows

    def to_dict(self) -> dict[str, Any]:
        """Return what a file keeps."""
        return {**vars(self), "fingerprint": self.fingerprint.to_dict()}

    @classmethod
    def from_node(cls, node: Node) -> Look:
        """Read a look, and check it."""
        texts = (_read_date(node["date"]), node["verdict"].text(), node["question"].text())
        return cls(*texts, Fingerprint.from_node(node["fingerprint"]))


class Looks:
    """A record to which looks are only ever added; it is not a part of the policy's hash."""

    def __init__(self, looks: Iterable[Look] = ()) -> None:
        self._looks = list(looks)

    def add(self, look: Look) -> None:
        self._looks.append(look)

    def __iter__(self) -> Iterator[Look]:
        return iter(tuple(self._looks))

    def __len__(self) -> int:
        return len(self._looks)

    def __repr__(self) -> str:
        return f"<{len(self)} looks>"


@dataclass(frozen=True)
class Card:
    """Facts about a policy for those who find its file, beside its rules, certificate and hash."""

    created: str  # UTC, as ISO 8601
    versions: Mapping[str, str]
    source: str = ""  # the table that it was fitted on, as its author called it
    columns: Mapping[str, Any] = field(default_factory=dict)  # the roles of that table's columns
    previous: Mapping[str, Any] = field(default_factory=dict)  # the policy since which changes are counted
    looks: Looks = field(default_factory=Looks, compare=False)  # the audits on held-out rows
    # What `solve` was told beside the rows: margin, whether labels were given, the names of true groups, and
    # how to calibrate.
    # Empty in files of versions that did not write it.
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def today(cls) -> Card:
        return cls(_now(), versions())

    def to_dict(self) -> dict[str, Any]:
        optional = {name: dict(getattr(self, name)) for name in ("previous", "options")}
        facts = {name: value for name, value in vars(self).items() if name not in ("looks", *optional)}
        return {
            **facts,
            **{name: value for name, value in optional.items() if value},
            "versions": dict(self.versions),
            "columns": dict(self.columns),
            "looks": [look.to_dict() for look in self.looks],
        }

    @classmethod
    def from_node(cls, node: Node) -> Card:
        created = _read_date(node["created"])
        looks = node["looks"].list() if "looks" in node.value else []  # files of version 1 have none
        found = {name: item.text() for name, item in node["versions"].items()}
        node["columns"].items()  # roles are checked by whoever reads a table with them
        record, previous = Looks(map(Look.from_node, looks)), {}
        if "previous" in node.value:
            known = node["previous"]
            previous = {"policy": known["policy"].text(), "by_id": known["by_id"].one_of([True, False])}
        options = _read_options(node["options"]) if "options" in node.value else {}
        return cls(created, found, node["source"].text(), node["columns"].value, previous, record, options)


def _read_options(node: Node) -> dict[str, Any]:
    margin = node["margin"]
    return {
        "margin": "auto" if margin.value == "auto" else margin.positive(zero=True),
        "labels": node["labels"].one_of([True, False]),
        "groups": [name.text() for name in node["groups"].list()],
        "calibrate": node["calibrate"].text(),
    }


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
    """Return the versions of Python and of the libraries that computed the policy."""
    libraries = {name: find_version(name, "unknown") for name in _LIBRARIES}
    return {"python": platform.python_version(), **libraries}
