"""A folder of decisions with one part for each file of a table, which can be resumed.

A list in the folder has the policy and the options of its parts, and the state of the file of each part. A
part is in the list when it is complete: a run that is killed loses one part at most.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bylaw._base.files import Node, read_json, write_json
from bylaw.cli.console import warn
from bylaw.cli.decisions import Decider, write_decisions
from bylaw.errors import OptionError, PolicyFileError
from bylaw.rows.table_files import (
    FileState,
    TableFile,
    find_files,
    find_root,
    find_suffix,
    look_at,
    would_read,
)

LIST = "_bylaw.json"  # a name that readers of tables skip
_FORMAT, _VERSION = "bylaw-decisions", 1
_HELP = "choose another folder, or pass --overwrite to start again"
_OTHER = {  # the difference to an earlier run, by the name of a setting
    "policy": "its policy differs",
    "columns": "it read other columns",
    "probabilities": "it differs in --probabilities",
    "keep": "it differs in --keep",
    "format": "it differs in --format",
    "key": "its key differs",
    "unseen": "it differs in --unseen",
}
_ROUNDS = 100_000  # of the hash of a key, so that a reader of the list cannot try many keys


def name_parts(table: Path, format_: str | None) -> dict[str, Path]:
    """Return the file of each part by the name of the part, which is that of the file in its subfolder."""
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


class _Part(NamedTuple):
    """A part that is complete."""

    source: str  # the name of its file
    read: FileState  # of that file
    written: FileState
    rows: int


@dataclass(frozen=True)
class DecisionFolder:
    """A folder of parts, some of which are complete."""

    path: Path
    root: Path  # of the table
    salt: str
    settings: Mapping[str, Any]
    parts: dict[str, _Part]

    @classmethod
    def open(
        cls, path: Path, table: Path, names: Sequence[str], settings: Mapping[str, Any], overwrite: bool
    ) -> DecisionFolder:
        """Return a folder for parts of these names: a new one, or that of a run with the same settings.

        The settings, by the names of `_OTHER`, are all that decisions and their columns depend on beside the
        rows. The list has a hash of the key. If `overwrite`, the parts of another run are removed.
        """
        for name in names:
            if would_read(table, path / name):
                raise OptionError(f"{path / name} is among the files of {table}; choose another folder")
        if path.exists() and not path.is_dir():
            raise OptionError(f"{path} must be a folder, for the parts of {table}, and it is a file")
        fresh = cls(path, find_root(table), secrets.token_hex(16), {}, {})
        earlier = fresh._read_list(overwrite)
        if overwrite:
            (earlier or fresh)._remove_parts()
            earlier = None
        elif earlier is None and (there := [name for name in names if (path / name).exists()]):
            raise OptionError(f"{path / there[0]} exists already, and not from `bylaw decide`; {_HELP}")
        wanted = _hash_key(settings, (earlier or fresh).salt)
        for name, value in wanted.items():
            if earlier is not None and earlier.settings.get(name) != value:
                raise OptionError(f"the decisions in {path} are from another run: {_OTHER[name]}; {_HELP}")
        folder = replace(earlier or fresh, settings=wanted)
        path.mkdir(exist_ok=True)
        # Remove partial files of a run that was killed.
        for left in path.rglob(".bylaw-*.partial"):
            left.unlink(missing_ok=True)
        others = [name for name in folder.parts if name not in set(names) and (path / name).exists()]
        if others:
            warn(
                f"{path} has {len(others):,} parts of files that no longer exist, such as {others[0]}: "
                "remove them, or pass --overwrite to start again"
            )
        folder._write_list()
        return folder

    def fill(
        self,
        decider: Decider,
        files: Sequence[TableFile],
        targets: Mapping[str, Path],
        advance: Callable[[int], None],
        *,
        repeated: bool,
    ) -> int:
        """Decide the files whose parts are not complete, and return how many parts were complete.

        `targets` are the paths of the files by the names of their parts.
        """
        by_path, complete = {file.path: file for file in files}, 0
        for name, source in targets.items():
            part, path, state = self.parts.get(name), self.path / name, look_at(source)
            if (
                part is not None
                and path.is_file()
                and (part.source, part.read) == (self._name(source), state)
                and look_at(path) == part.written
            ):
                complete += 1
                advance(part.rows)
                continue
            # Until the part is complete, the list does not have it.
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.parts.pop(name, None) is not None:
                self._write_list()
            rows = write_decisions(decider, [by_path[source]], path, advance, repeated=repeated, empty=True)
            self.finish(name, source, state, rows)
        return complete

    def finish(self, name: str, source: Path, read: FileState, rows: int) -> None:
        """Record that a part is complete."""
        self.parts[name] = _Part(self._name(source), read, look_at(self.path / name), rows)
        self._write_list()

    def count_rows(self, names: Iterable[str]) -> int:
        """Return the number of rows of parts that are complete."""
        return sum(self.parts[name].rows for name in names)

    def _name(self, source: Path) -> str:
        return source.relative_to(self.root).as_posix()

    def _read_list(self, overwrite: bool) -> DecisionFolder | None:
        """Return the folder of an earlier run, if there is one."""
        if not (self.path / LIST).exists():
            return None

        def read_part(node: Node) -> _Part:
            read, written = (
                FileState(node[name]["size"].count(), node[name]["modified"].count())
                for name in ("read", "written")
            )
            return _Part(node["source"].text(), read, written, node["rows"].count())

        def read(node: Node) -> DecisionFolder:
            node.check_version(_FORMAT, _VERSION)
            settings = {name: value.value for name, value in node["settings"].items()}
            salt = node["salt"].text()
            try:
                bytes.fromhex(salt)
            except ValueError:
                node["salt"].fail("hexadecimal")
            parts = {name: read_part(part) for name, part in node["parts"].items()}
            return DecisionFolder(self.path, self.root, salt, settings, parts)

        try:
            return read_json(self.path / LIST, "a list of decisions", read)
        except PolicyFileError as problem:
            if overwrite:
                return None
            raise OptionError(f"{problem.message}; {_HELP}") from None

    def _write_list(self) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "salt": self.salt, "settings": self.settings}
        parts = {
            name: {**part._asdict(), "read": part.read._asdict(), "written": part.written._asdict()}
            for name, part in self.parts.items()
        }
        write_json({**content, "parts": parts}, self.path / LIST)

    def _remove_parts(self) -> None:
        """Remove the parts of another run."""
        for name in self.parts:
            path = (self.path / name).resolve()
            if path.is_relative_to(self.path.resolve()):  # the list is untrusted
                (self.path / name).unlink(missing_ok=True)


def _hash_key(settings: Mapping[str, Any], salt: str) -> dict[str, Any]:
    """Return settings as plain values of JSON, with a hash of the key."""
    hashed = None
    if settings["key"] is not None:
        hashed = hashlib.pbkdf2_hmac("sha256", settings["key"].encode(), bytes.fromhex(salt), _ROUNDS).hex()
    return json.loads(json.dumps({**settings, "key": hashed}))
