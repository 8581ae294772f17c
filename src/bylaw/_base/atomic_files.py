"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_PRIVATE = 0o600  # read and written by its owner
_STALE = 86_400  # seconds without a write


@contextlib.contextmanager
def write_atomically(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` once it is whole and on the disk.

    Where the system can, what is written has no name until then, so that nothing is left of it even when the
    process is killed; elsewhere, what killed processes left is removed after a day. A new `private` file can
    be read by its owner alone; one that is replaced keeps its permissions.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    if path.absolute().parts[1:2] in (("dev",), ("proc",)):  # which may lead to a file that others write
        raise IsADirectoryError(f"cannot write {path}: it is no ordinary file")
    if path.exists() and not path.is_file():
        raise IsADirectoryError(
            f"cannot write {path}: it is {'a folder' if path.is_dir() else 'no ordinary file'}"
        )
    path = path.resolve()  # a link stays, and what it leads to is replaced
    _remove_stale(path.parent)
    partial = path.with_name(f".bylaw-{secrets.token_hex(8)}.partial")  # of this call alone
    unnamed = _unnamed_file(path.parent)
    try:
        if private:
            _make_private(partial, unnamed)
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
    """While others wait who lock the same folder; nothing is left of it when a process ends. Systems without
    such locks have none."""
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


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    with write_atomically(path, private=private) as partial:
        partial.write_text(text, encoding="utf-8")


def _flush(file: Path | int) -> None:
    """Wait until the content of a file or a folder is on the disk, so that a crash does not lose it."""
    opened = file if isinstance(file, int) else os.open(file, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        if not isinstance(file, int):
            os.close(opened)


def _make_private(partial: Path, unnamed: int | None) -> None:
    if unnamed is not None:
        os.fchmod(unnamed, _PRIVATE)
    else:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))


def _remove_stale(folder: Path) -> None:
    """Remove files that were never finished and have not been written to for so long that nobody will."""
    for old in folder.glob(".bylaw-*.partial"):
        with contextlib.suppress(OSError):  # others remove them, too
            if time.time() - old.stat().st_mtime > _STALE:
                old.unlink()


def _unnamed_file(folder: Path) -> int | None:
    """A file descriptor, on Linux file systems that have such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:
        return None
