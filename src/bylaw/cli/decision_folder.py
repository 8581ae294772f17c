"""A folder of decisions with one part per file of a table, which a later run can complete.

A list in the folder contains the policy and options of the run, and the size and time of the file of each
complete part. A run that is interrupted loses at most one part.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bylaw._base import Node, read_json, write_json
from bylaw.cli.console import warn
from bylaw.cli.decisions import Decider, write_decisions
from bylaw.errors import OptionError, PolicyFileError
from bylaw.rows import FileState, TableFile, find_files, find_root, find_suffix, look_at, would_read

LIST = "_bylaw.json"  # readers of tables skip files with this name
_FORMAT, _VERSION = "bylaw-decisions", 1
_HELP = "choose another folder, or pass --overwrite to start again"
_FLAGS = ("probabilities", "keep", "format", "unseen")  # settings that are options of the command
_ROUNDS = 100_000  # rounds of the hash of a key, so that keys cannot be guessed from the list


def name_parts(table: Path, format_: str | None) -> dict[str, Path]:
    """Return {name of a part: its file}. The name is the path of the file inside the table's folder."""
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
    """A complete part of a folder of decisions."""

    source: str  # the name of the file that was decided
    read: FileState  # state of that file
    written: FileState  # state of the part
    rows: int


@dataclass(frozen=True)
class DecisionFolder:
    """A folder of decisions, some parts of which are complete."""

    path: Path
    root: Path  # the folder of the table
    salt: str
    settings: Mapping[str, Any]
    parts: dict[str, _Part]

    @classmethod
    def open(
        cls, path: Path, table: Path, names: Sequence[str], settings: Mapping[str, Any], overwrite: bool
    ) -> DecisionFolder:
        """Open a folder for parts with these names, which an earlier run with these settings may have begun.

        The settings contain everything on which decisions and their columns depend besides the rows: the
        policy, its columns, the key, and the options in `_FLAGS`. The list contains only a hash of the key.
        With
        `overwrite`, the parts of another run are removed.
        """
        for name in names:
            if would_read(table, path / name):
                raise OptionError(f"{path / name} is among the files of {table}; choose another folder")
        if path.exists() and not path.is_dir():
            raise OptionError(
                f"{path} must be a folder, because {table} has several files, got a file; choose another name"
            )
        folder = earlier = cls(path, find_root(table), secrets.token_hex(16), {}, {})
        if (path / LIST).exists():
            try:
                folder = read_json(path / LIST, "a list of decisions", earlier._read)
            except PolicyFileError as problem:
                if not overwrite:
                    raise OptionError(f"{problem.message}; {_HELP}") from None
        elif not overwrite and (there := [name for name in names if (path / name).exists()]):
            raise OptionError(
                f"{path / there[0]} exists already and was not written by `bylaw decide`; {_HELP}"
            )
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
        for left in path.rglob(".bylaw-*.partial"):  # left over by an interrupted run
            left.unlink(missing_ok=True)
        others = [name for name in folder.parts if name not in set(names) and (path / name).exists()]
        if others:
            warn(
                f"{path} has {len(others):,} parts whose files no longer exist, such as {others[0]}; remove "
                "them, or pass --overwrite to start again"
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
        """Write the missing parts, and return the number of parts that were already complete.

        `targets` maps the name of each part to its file.
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
        """Record in the list that a part is complete."""
        self.parts[name] = _Part(self._name(source), read, look_at(self.path / name), rows)
        self._write_list()

    def _name(self, source: Path) -> str:
        return source.relative_to(self.root).as_posix()

    def _read(self, node: Node) -> DecisionFolder:
        """Return this folder with the content of the list of an earlier run."""
        node.check_version(_FORMAT, _VERSION)
        salt = node["salt"].text()
        try:
            bytes.fromhex(salt)
        except ValueError:
            node["salt"].fail("a hexadecimal number")
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
