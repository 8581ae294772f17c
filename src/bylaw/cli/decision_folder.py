"""A folder of decisions with one part for each file of a table, which can be resumed.

A list in the folder has the policy and the options of its parts, and the state of the file of each part. A
part is in the list when it is complete: a run that is killed loses one part at most.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
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
_FLAGS = ("probabilities", "keep", "format", "unseen")  # settings that are options of the command
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

        The settings are all that decisions and their columns depend on beside the rows: the policy, its
        columns, the key, and `_FLAGS`. The list has a hash of the key. If `overwrite`, the parts of another
        run are removed.
        """
        for name in names:
            if would_read(table, path / name):
                raise OptionError(f"{path / name} is among the files of {table}; choose another folder")
        if path.exists() and not path.is_dir():
            raise OptionError(f"{path} must be a folder, for the parts of {table}, and it is a file")
        folder = earlier = cls(path, find_root(table), secrets.token_hex(16), {}, {})
        if (path / LIST).exists():
            try:
                folder = read_json(path / LIST, "a list of decisions", earlier._read)
            except PolicyFileError as problem:
                if not overwrite:
                    raise OptionError(f"{problem.message}; {_HELP}") from None
        elif not overwrite and (there := [name for name in names if (path / name).exists()]):
            raise OptionError(f"{path / there[0]} exists already, and not from `bylaw decide`; {_HELP}")
        if overwrite:
            for part in folder.parts:  # the list is untrusted
                if (path / part).resolve().is_relative_to(path.resolve()):
                    (path / part).unlink(missing_ok=True)
            folder = earlier
        hashed = settings["key"]
        if hashed is not None:
            salt = bytes.fromhex(folder.salt)
            hashed = hashlib.pbkdf2_hmac("sha256", hashed.encode(), salt, _ROUNDS).hex()
        wanted = json.loads(json.dumps({**settings, "key": hashed}))  # plain values, as in the list
        for name, value in wanted.items() if folder is not earlier else ():
            if folder.settings.get(name) != value:
                differs = f"it differs in {'--' if name in _FLAGS else 'the '}{name}"
                raise OptionError(f"the decisions in {path} are from another run: {differs}; {_HELP}")
        folder = replace(folder, settings=wanted)
        path.mkdir(exist_ok=True)
        for left in path.rglob(".bylaw-*.partial"):  # of a run that was killed
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
        advance: Callable[[int], None] | None,
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
                if advance is not None:
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

    def _name(self, source: Path) -> str:
        return source.relative_to(self.root).as_posix()

    def _read(self, node: Node) -> DecisionFolder:
        """Return this folder as the list of an earlier run has it."""
        node.check_version(_FORMAT, _VERSION)
        salt = node["salt"].text()
        try:
            bytes.fromhex(salt)
        except ValueError:
            node["salt"].fail("hexadecimal")
        parts = {}
        for name, part in node["parts"].items():
            read, written = (
                FileState(part[state]["size"].count(), part[state]["modified"].count())
                for state in ("read", "written")
            )
            parts[name] = _Part(part["source"].text(), read, written, part["rows"].count())
        settings = {name: value.value for name, value in node["settings"].items()}
        return replace(self, salt=salt, settings=settings, parts=parts)

    def _write_list(self) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "salt": self.salt, "settings": self.settings}
        parts = {
            name: {**part._asdict(), "read": part.read._asdict(), "written": part.written._asdict()}
            for name, part in self.parts.items()
        }
        write_json({**content, "parts": parts}, self.path / LIST)
