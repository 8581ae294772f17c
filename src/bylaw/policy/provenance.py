"""A policy's card: when it was made, with what, and from which columns of a table."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bylaw._base.json_reader import Node

_LIBRARIES = ("bylaw", "numpy", "scipy")


@dataclass(frozen=True)
class Card:
    """What somebody who finds the file wants to know, beside its rules, certificate and hash."""

    created: str  # UTC, as ISO 8601
    versions: Mapping[str, str]
    source: str = ""  # the table that it was fitted on, as its author called it
    columns: Mapping[str, Any] = field(default_factory=dict)  # the roles of that table's columns

    @classmethod
    def today(cls) -> Card:
        return cls(datetime.now(UTC).isoformat(timespec="seconds"), versions())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_node(cls, node: Node) -> Card:
        created = node["created"].text()
        try:
            datetime.fromisoformat(created)
        except ValueError:
            node["created"].fail("a date and time")
        found = {name: item.text() for name, item in node["versions"].items()}
        node["columns"].items()  # roles are checked by whoever reads a table with them
        return cls(created, found, node["source"].text(), node["columns"].value)


@cache
def versions() -> Mapping[str, str]:
    """Of Python and of the libraries that computed the policy."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
