"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` once it is whole.

    Where the system can, what is written has no name until then, so that nothing is left of it even when the
    process is killed.
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
    partial = path.with_name(f".bylaw-{secrets.token_hex(8)}.partial")  # of this call alone
    unnamed = _unnamed_file(path.parent)
    try:
        yield partial if unnamed is None else Path(f"/proc/self/fd/{unnamed}")
        if unnamed is not None:
            # Python follows the link to the file only if a folder is given, which a full path ignores.
            os.link(f"/proc/self/fd/{unnamed}", partial, src_dir_fd=unnamed)
        if path.exists():
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        partial.replace(path)
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


def write_text(path: Path, text: str) -> None:
    with write_atomically(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _unnamed_file(folder: Path) -> int | None:
    """A file descriptor, on Linux file systems that have such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:
        return None
