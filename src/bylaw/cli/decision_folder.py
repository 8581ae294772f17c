"""A folder of decisions, one part for each file of a table, that can be resumed.

A list in the folder states by which policy and options its parts were decided, and of which state of which
file each of them is. A part is in the list when it is whole: a run that is killed loses one part at most.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bylaw._base.json_reader import Node, read_json, write_json
from bylaw.cli.console import warn
from bylaw.data.table_files import FileState, find_files, find_root, find_suffix, look_at, would_read
from bylaw.errors import OptionError, PolicyFileError

LIST = "_bylaw.json"  # which no reader of tables takes for one of them
_FORMAT, _VERSION = "bylaw-decisions", 1
_PARTIAL = ".bylaw-*.partial"  # what is left of a part where the file system has no files without a name
_HELP = "choose another folder, or pass --overwrite to begin anew"
_OTHER = {
    "policy": "its policy is another one",
    "columns": "it read other columns",
    "probabilities": "it differs in --probabilities",
    "keep": "it differs in --keep",
    "format": "it differs in --format",
    "key": "its key is another one",
    "unseen": "it differs in --unseen",
}
_ROUNDS = 100_000  # so that whoever sees the list cannot try out many keys


def name_parts(table: Path, format_: str | None) -> dict[str, Path]:
    """The file of each part, by the part's name: that of the file, in the same subfolder."""
    parts: dict[str, Path] = {}
    root = find_root(table)
    for path in find_files(str(table)):
        name = path.relative_to(root)
        if format_ is not None:
            plain = name.name[: -len(find_suffix(path) or "")]
            name = name.with_name(f"{plain}.{format_}")
        if (other := parts.setdefault(name.as_posix(), path)) != path:
            raise OptionError(f"{path} and {other} would both be written to {name}; rename one of them")
    return parts


class Settings(NamedTuple):
    """What decisions depend on, beside their rows, and what is written of them."""

    policy: str  # its digest
    columns: Mapping[str, Any]
    probabilities: bool
    keep: Sequence[str]
    format: str | None
    key: str | None
    unseen: str | None = None  # what becomes of groups that were never seen, if they are not refused

    def to_dict(self, salt: str) -> dict[str, Any]:
        """Plain values; the key may be secret, and is hashed."""
        hashed = None
        if self.key is not None:
            hashed = hashlib.pbkdf2_hmac("sha256", self.key.encode(), bytes.fromhex(salt), _ROUNDS).hex()
        return json.loads(json.dumps({**self._asdict(), "key": hashed}))


class _Part(NamedTuple):
    """A part that is complete."""

    source: str  # the name of its file
    read: FileState  # of that file
    written: FileState
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "read": self.read._asdict(),
            "written": self.written._asdict(),
            "rows": self.rows,
        }

    @classmethod
    def from_node(cls, node: Node) -> _Part:
        read, written = (
            FileState(node[name]["size"].count(), node[name]["modified"].count())
            for name in ("read", "written")
        )
        return cls(node["source"].text(), read, written, node["rows"].count())


class _List(NamedTuple):
    """What is in the file."""

    salt: str
    settings: dict[str, Any]
    parts: dict[str, _Part]

    @classmethod
    def from_node(cls, node: Node) -> _List:
        node.check_version(_FORMAT, _VERSION)
        settings = {name: value.value for name, value in node["settings"].items()}
        salt = node["salt"].text()
        try:
            bytes.fromhex(salt)
        except ValueError:
            node["salt"].fail("hexadecimal")
        return cls(salt, settings, {name: _Part.from_node(part) for name, part in node["parts"].items()})


@dataclass(frozen=True)
class DecisionFolder:
    """Parts that are complete, and where others go."""

    path: Path
    root: Path  # of the table
    salt: str
    settings: Mapping[str, Any]
    parts: dict[str, _Part] = field(default_factory=dict)

    @classmethod
    def open(
        cls, path: Path, table: Path, names: Sequence[str], settings: Settings, overwrite: bool
    ) -> DecisionFolder:
        """A folder for parts of these names: a new one, or that of a run with the same settings."""
        for name in names:
            if would_read(table, path / name):
                raise OptionError(f"{path / name} is among the files of {table}; choose another folder")
        if path.exists() and not path.is_dir():
            raise OptionError(f"{path} is a file, and no folder for the parts of {table}")
        found = _read_list(path, overwrite)
        _check_list(path, found, names, settings, overwrite)
        if found is None or overwrite:
            _remove(path, [] if found is None else found.parts)
            found = None
        salt = secrets.token_hex(16) if found is None else found.salt
        parts = {} if found is None else found.parts
        folder = cls(path, find_root(table), salt, settings.to_dict(salt), parts)
        path.mkdir(exist_ok=True)
        for left in path.rglob(_PARTIAL):
            left.unlink(missing_ok=True)
        folder._warn_of_others(names)
        folder._write_list()
        return folder

    def find_rows(self, name: str, source: Path) -> int | None:
        """How many rows a part has; None if it is not complete, or its file has changed since."""
        part, path = self.parts.get(name), self.path / name
        if part is None or not path.is_file() or part.source != self._name(source):
            return None
        unchanged = look_at(source) == part.read and look_at(path) == part.written
        return part.rows if unchanged else None

    def prepare(self, name: str) -> Path:
        """Where a part is written; until it is complete, the list does not have it."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.parts.pop(name, None) is not None:
            self._write_list()
        return path

    def finish(self, name: str, source: Path, read: FileState, rows: int) -> None:
        """Note that a part is complete."""
        self.parts[name] = _Part(self._name(source), read, look_at(self.path / name), rows)
        self._write_list()

    def count_rows(self, names: Iterable[str]) -> int:
        """Of parts that are complete."""
        return sum(self.parts[name].rows for name in names)

    def _name(self, source: Path) -> str:
        return source.relative_to(self.root).as_posix()

    def _warn_of_others(self, names: Sequence[str]) -> None:
        others = [name for name in self.parts if name not in set(names) and (self.path / name).exists()]
        if others:
            warn(
                f"{self.path} has {len(others):,} parts of files that are no longer there, such as "
                f"{others[0]}: remove them, or pass --overwrite to begin anew"
            )

    def _write_list(self) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "salt": self.salt, "settings": self.settings}
        parts = {name: part.to_dict() for name, part in self.parts.items()}
        write_json({**content, "parts": parts}, self.path / LIST)


def _read_list(path: Path, overwrite: bool) -> _List | None:
    """That of an earlier run, if there is one."""
    if not (path / LIST).exists():
        return None
    try:
        return read_json(path / LIST, "a list of decisions", _List.from_node)
    except PolicyFileError as problem:
        if overwrite:
            return None
        raise OptionError(f"{problem.message}; {_HELP}") from None


def _check_list(
    path: Path, found: _List | None, names: Sequence[str], settings: Settings, overwrite: bool
) -> None:
    """An error where decisions of other settings, or other files, would be mixed with these."""
    if overwrite:
        return
    if found is None:
        if there := [name for name in names if (path / name).exists()]:
            raise OptionError(f"{path / there[0]} is there already, and not by `bylaw decide`; {_HELP}")
        return
    wanted = settings.to_dict(found.salt)
    if different := [name for name, value in wanted.items() if found.settings.get(name) != value]:
        raise OptionError(f"the decisions in {path} are of another run: {_OTHER[different[0]]}; {_HELP}")


def _remove(path: Path, names: Iterable[str]) -> None:
    """Parts of another run: no reader takes them for those of this one."""
    for name in names:
        if (path / name).resolve().is_relative_to(path.resolve()):  # whoever wrote the list
            (path / name).unlink(missing_ok=True)
