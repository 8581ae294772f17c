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
_limits: list[Any] = []  # one entry per active caller; the first can restore the number of threads
if hasattr(os, "register_at_fork"):  # a child process must not inherit a lock that is held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@cache
def _find_libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def limit_blas_threads() -> Iterator[None]:
    """Limit matrix products to one thread.

    Blocks of rows are small, so that several threads mostly wait for each other, very long on a busy machine.
    The first caller to enter sets the limit, and the last one to leave restores the number of threads.
    """
    with _lock:
        _limits.append(None if _limits else _find_libraries().limit(limits=1, user_api="blas"))
        _release_control()
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()  # the first entry, which restores, is the last to be removed
            if limit is not None:
                limit.restore_original_limits()
                _release_control()


def _release_control() -> None:
    """Let other Python threads change the number of threads, which threadpoolctl 3.8 or later prevents."""
    for library in _find_libraries().lib_controllers:
        getattr(library, "clear_controlling_thread", lambda: None)()


_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interrupting(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` before every pass over rows within the context; it may raise to stop the computation.

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
    """Call the check that `interrupting` has set, if any. It may raise to stop the computation."""
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


def show_versions() -> None:
    """Print the versions of Python, the platform, bylaw, its dependencies and its extras.

    Include this output in bug reports.

    Examples
    --------
    >>> import bylaw
    >>> bylaw.show_versions()  # doctest: +ELLIPSIS
    System
      python      3...
      ...
    """
    try:
        requirements = requires("bylaw") or []
    except PackageNotFoundError:
        requirements = []
    needed, optional = set[str](), set[str]()
    for line in requirements:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        # Leave out extras that only development needs, and extras that consist of others.
        if package and package[0] != "bylaw" and (extra is None or extra[1] not in ("test", "docs", "peers")):
            (needed if extra is None else optional).add(package[0])
    parts = {
        "System": {
            "python": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        "Needed": {name: find_version(name) for name in ("bylaw", *sorted(needed))},
        "Optional": {name: find_version(name) for name in sorted(optional - needed)},
    }
    texts = []
    for title, facts in parts.items():
        width = max(map(len, facts), default=0)
        texts.append("\n".join([title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]))
    print("\n\n".join(texts))  # noqa: T201, its purpose


def find_version(package: str, otherwise: str = "not installed") -> str:
    """Return the version of an installed package, or `otherwise` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise
