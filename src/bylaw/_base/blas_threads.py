"""A limit on the threads of BLAS that several threads of Python may ask for at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
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
    """Let products of matrices take one thread. Blocks of rows are small: with several threads, a product
    mostly waits for its threads, and very long on a busy machine.

    The first caller to enter sets the limit, and the last one to leave restores the number of threads."""
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
