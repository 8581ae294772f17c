"""Files that are replaced atomically, and JSON files whose content is checked while it is read."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

import numpy as np

from bylaw._base._numeric import Floats
from bylaw.errors import PolicyFileError, RuleError

_PRIVATE = 0o600  # permissions of private files: only the owner may read and write


def format_json(content: dict[str, Any]) -> str:
    """Return the text of a JSON file. Floats keep all their digits."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def write_json(content: dict[str, Any], path: Path, *, private: bool = False) -> None:
    """Write a JSON file. An older file stays until the new one is complete."""
    write_text(path, format_json(content), private=private)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text file. An older file stays until the new one is complete."""
    with write_atomically(path, private=private) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def write_atomically(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Lend a path to write to; the file replaces `path` once it is complete and flushed to the disk.

    If the system supports it, the file has no name until then, so that no part of it remains even if the
    process is killed. On other systems, files left by killed processes are removed after a day. With
    `private`, a new file can be read only by its owner; a file that is replaced keeps its permissions.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it")
    if path.absolute().parts[1:2] in (("dev",), ("proc",)):  # these may lead to a file of another program
        raise IsADirectoryError(f"cannot write {path}: it is not a regular file; choose another path")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise IsADirectoryError(f"cannot write {path}: it is {what}; choose another path")
    path = path.resolve()  # a link stays, and what it leads to is replaced
    for old in path.parent.glob(".bylaw-*.partial"):
        with contextlib.suppress(OSError):  # other processes remove such files, too
            if time.time() - old.stat().st_mtime > 86_400:  # no process writes for a whole day
                old.unlink()
    partial = path.with_name(f".bylaw-{secrets.token_hex(8)}.partial")  # of this call alone
    unnamed = _unnamed_file(path.parent)
    try:
        if private and unnamed is not None:
            os.fchmod(unnamed, _PRIVATE)
        elif private:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
        yield partial if unnamed is None else Path(f"/proc/self/fd/{unnamed}")
        _flush(partial if unnamed is None else unnamed)
        if unnamed is not None:
            # Python follows the link to the file only if a folder is given, which a full path ignores.
            os.link(f"/proc/self/fd/{unnamed}", partial, src_dir_fd=unnamed)
        if path.exists():
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        partial.replace(path)
        with contextlib.suppress(OSError):  # not every system can open a folder
            _flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)
        if unnamed is not None:
            os.close(unnamed)


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder. Other processes wait until it is released.

    The lock is released if the process ends. On systems without such locks, nothing happens.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _flush(file: Path | int) -> None:
    """Wait until the content of a file or a folder is on the disk, so that a crash does not lose it."""
    opened = file if isinstance(file, int) else os.open(file, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        if not isinstance(file, int):
            os.close(opened)


def _unnamed_file(folder: Path) -> int | None:
    """Open a file without a name in the folder, or return None if the system does not support this."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:
        return None


T = TypeVar("T")
_MOST_COUNTED = 2**62  # limit of whole numbers: nanoseconds since 1970 are less, and two add up in 64 bits
_MOST_SIZE = 1e100  # limit of numbers, so that products and sums of them do not overflow


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a whole file, as `sha256sum` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_json(path: Path, what: str, reader: Callable[[Node], T]) -> T:
    """Return `reader(root)` for a JSON file that is `what`; raise a `PolicyFileError` if it fails."""

    def refuse(name: str) -> NoReturn:
        raise BadValueError(f"numbers must be finite, got {name}")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError, BadValueError) as problem:
        raise PolicyFileError(f"{path} is not {what}: it must contain valid JSON ({problem})") from None
    try:
        return reader(Node(content, what.split()[-1]))
    except (BadValueError, RuleError) as problem:
        raise PolicyFileError(f"{path} is damaged: {problem}. Save {what} again") from None


class BadValueError(Exception):
    """An error for a value in a file that is not of the required type or size."""


class Node:
    """A value in a JSON file and its path from the root, which error messages show."""

    def __init__(self, value: Any, place: str) -> None:
        self.value, self.place = value, place

    def fail(self, wanted: str) -> NoReturn:
        """Raise a `BadValueError` with the path, the value, and a description of a valid value."""
        try:
            shown = repr(self.value)
        except ValueError:  # a whole number with thousands of digits
            shown = "a huge number"
        raise BadValueError(
            f"{self.place} must be {wanted}, got {shown if len(shown) < 60 else shown[:60] + '...'}"
        )

    def __getitem__(self, key: str) -> Node:
        if not isinstance(self.value, dict) or key not in self.value:
            raise BadValueError(f"{self.place} has no {key!r}")
        return Node(self.value[key], f"{self.place}.{key}")

    def items(self) -> list[tuple[str, Node]]:
        if not isinstance(self.value, dict):
            self.fail("an object")
        return [(key, self[key]) for key in self.value]

    def list(self) -> list[Node]:
        if not isinstance(self.value, list):
            self.fail("a list")
        return [Node(item, f"{self.place}[{i}]") for i, item in enumerate(self.value)]

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self.fail("text")

    def scalar(self) -> Any:
        value = self.value
        if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return self.fail("text or a finite number")

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail("a number")
        try:
            number = float(self.value)
        except OverflowError:
            number = math.inf
        return number if math.isfinite(number) else self.fail("a finite number")

    def one_of(self, choices: Any) -> Any:
        """Return the value if it equals one of the choices and has the same type: true is not 1."""
        if any(type(choice) is type(self.value) and choice == self.value for choice in choices):
            return self.value
        return self.fail(f"one of {list(choices)}")

    def positive(self, zero: bool = False) -> float:
        number = self.number()
        return number if number > 0 or (zero and number == 0) else self.fail("a positive number")

    def count(self) -> int:
        if type(self.value) is not int or self.value < 0:
            self.fail("a whole number")
        if self.value >= _MOST_COUNTED:
            self.fail(f"a whole number below {_MOST_COUNTED}")
        return self.value

    def vector(self, length: int) -> Floats:
        numbers = [node.number() for node in self.list()]
        if len(numbers) != length:
            self.fail(f"{length} numbers")
        return np.array(numbers, dtype=np.float64)

    def matrix(self, n_rows: int, n_columns: int) -> Floats:
        rows = [[entry.number() for entry in row.list()] for row in self.list()]
        if len(rows) != n_rows or any(len(row) != n_columns for row in rows):
            self.fail(f"a matrix of {n_rows} x {n_columns} numbers")
        return np.array(rows, dtype=np.float64).reshape(n_rows, n_columns)

    def fields(
        self,
        cls: type,
        *,
        signed: Collection[str] = (),
        without: Collection[str] = (),
        **readers: Callable[[Node], Any],
    ) -> dict[str, Any]:
        """Return the checked arguments of a dataclass or named tuple, from an object with one key per field.

        Parameters
        ----------
        cls : type
            the dataclass or named tuple. The annotations of its fields determine how values are read: as
            text, booleans, whole numbers or numbers. A field with a default may be missing, as in files of
            earlier versions.
        signed : collection of str
            the fields whose numbers may be negative.
        without : collection of str
            the fields that the file does not contain.
        **readers
            functions that read the other fields from their nodes.
        """
        by_type = {str: Node.text, int: Node.count, float: lambda node: node.positive(zero=True)}
        by_type[bool] = lambda node: node.one_of([True, False])
        optional = getattr(cls, "_field_defaults", ())  # of a named tuple
        if dataclasses.is_dataclass(cls):
            optional = {f.name for f in dataclasses.fields(cls) if f.default is not f.default_factory}
        found = {}
        for name, kind in get_type_hints(cls).items():
            if name in without or (
                name in optional and isinstance(self.value, dict) and name not in self.value
            ):
                continue
            read = readers.get(name) or (Node.number if name in signed else by_type[kind])
            found[name] = read(self[name])
        return found

    def check_sizes(self) -> None:
        """Raise unless all numbers in the value are finite and small enough to be added without overflow."""
        parts = self.items() if isinstance(self.value, dict) else []
        nodes = self.list() if isinstance(self.value, list) else [node for _, node in parts]
        for node in nodes:
            node.check_sizes()
        if isinstance(self.value, int | float) and not abs(self.value) <= _MOST_SIZE:
            self.fail(f"a finite number of at most {_MOST_SIZE:g}")

    def check_version(self, name: str, version: int, oldest: int | None = None) -> None:
        """Raise unless the file has this name as format and a version from `oldest` to `version`."""
        self["format"].one_of([name])
        found = self["version"].value
        if type(found) is not int or not (version if oldest is None else oldest) <= found <= version:
            advice = "; upgrade bylaw" if type(found) is int and found > version else ""
            raise BadValueError(
                f"its schema version must be {version} for this version of bylaw, got {found!r}{advice}"
            )
