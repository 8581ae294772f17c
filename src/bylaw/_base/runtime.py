"""The running process: threads of BLAS, interruption, the caller's frame, and installed versions."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_limits: list[Any] = []  # one entry for each caller inside; the first one can restore the number of threads
if hasattr(os, "register_at_fork"):  # a child process must not inherit a lock that is held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@cache
def _find_libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def limit_blas_threads() -> Iterator[None]:
    """Limit products of matrices to one thread.

    Blocks of rows are small: with several threads, a product mostly waits for its threads, and very long on
    a busy machine. The first caller to enter sets the limit, and the last one to leave restores the number
    of threads.
    """
    with _lock:
        _limits.append(None if _limits else _find_libraries().limit(limits=1, user_api="blas"))
        _release_control()
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()  # that of the first caller is at the bottom
            if limit is not None:
                limit.restore_original_limits()
                _release_control()


def _release_control() -> None:
    """Let other threads of Python change the number of threads, which threadpoolctl 3.8 or later forbids."""
    for library in _find_libraries().lib_controllers:
        getattr(library, "clear_controlling_thread", lambda: None)()


_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interrupting(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` before every pass over rows within the context; it may raise.

    Other threads are not affected.

    >>> with interrupting(lambda: print("a pass")):
    ...     checkpoint()
    a pass
    >>> checkpoint()
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def checkpoint() -> None:
    """Call the check of `interrupting`, if there is one: a computation may end here."""
    check = _CHECK.get()
    if check is not None:
        check()


_LIBRARY = str(Path(__file__).parents[1])


def find_stack_level() -> int:
    """Return the `stacklevel` of `warnings.warn` for the first caller outside the library."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame, level = frame.f_back, level + 1
    return level


_OWN = "bylaw"
_DEVELOPMENT = ("test", "docs", "peers")  # extras of those who work on the library


def show_versions() -> None:
    """Print the versions of Python, the platform, bylaw, its dependencies and its extras.

    Reports of problems should contain them.

    Examples
    --------
    >>> import bylaw
    >>> bylaw.show_versions()  # doctest: +ELLIPSIS
    System
      python      3...
      ...
    """
    needed = {name: find_version(name) for name in (_OWN, *_list_packages(optional=False))}
    extras = {name: find_version(name) for name in _list_packages(optional=True)}
    parts = {"System": _describe_system(), "Needed": needed, "Optional": extras}
    print("\n\n".join(_format(title, facts) for title, facts in parts.items()))  # noqa: T201, its purpose


def find_version(package: str, otherwise: str = "not installed") -> str:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


def _describe_system() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }


def _list_packages(optional: bool) -> Iterator[str]:
    """Yield the packages that every installation needs, or that only extras do, in order."""
    needed: dict[bool, set[str]] = {False: set(), True: set()}
    for line in _read_requirements():
        found = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if found and found[0] != _OWN and (extra is None or extra[1] not in _DEVELOPMENT):
            needed[extra is not None].add(found[0])
    return iter(sorted(needed[True] - needed[False] if optional else needed[False]))


def _read_requirements() -> list[str]:
    """Return the requirements of the installed package; none if it is not installed."""
    try:
        return requires(_OWN) or []
    except PackageNotFoundError:
        return []


def _format(title: str, facts: dict[str, str]) -> str:
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())])
