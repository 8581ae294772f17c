"""A policy's card: when it was made, with what, from which columns of a table, and which rows judged it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
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
        return cls(**node.fields(cls, date=_read_date, fingerprint=Fingerprint.from_node))


@dataclass(frozen=True)
class Card:
    """Facts about a policy for those who find its file, beside its rules, certificate and hash."""

    created: str  # UTC, as ISO 8601
    versions: Mapping[str, str]
    source: str = ""  # the table that it was fitted on, as its author called it
    columns: Mapping[str, Any] = field(default_factory=dict)  # the roles of that table's columns
    previous: Mapping[str, Any] = field(default_factory=dict)  # the policy since which changes are counted
    looks: list[Look] = field(default_factory=list, compare=False)  # the audits on held-out rows, in order
    # What `solve` was told beside the rows: margin, whether labels were given, the names of true groups, and
    # how to calibrate.
    # Empty in files of versions that did not write it.
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def today(cls) -> Card:
        """Return the card of a policy that is made now."""
        return cls(_now(), versions())

    def to_dict(self) -> dict[str, Any]:
        """Return what a file keeps; options and the previous policy only if there are any."""
        facts = {**vars(self), "versions": dict(self.versions), "columns": dict(self.columns)}
        for name in ("previous", "options"):
            facts[name] = dict(facts[name])
            if not facts[name]:
                del facts[name]
        return {**facts, "looks": [look.to_dict() for look in self.looks]}

    @classmethod
    def from_node(cls, node: Node) -> Card:
        """Read a card, and check it; of files of earlier versions, looks, options and more are missing."""

        def read_versions(versions: Node) -> dict[str, str]:
            return {name: item.text() for name, item in versions.items()}

        def read_columns(columns: Node) -> Any:
            columns.items()  # roles are checked by whoever reads a table with them
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
    """Return the versions of Python and of the libraries that computed the policy."""
    libraries = {name: find_version(name, "unknown") for name in _LIBRARIES}
    return {"python": platform.python_version(), **libraries}
