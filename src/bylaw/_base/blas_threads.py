"""One limit on the threads of BLAS, however many callers ask for it at once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _find_libraries() -> list[Any]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


class _SharedLimit:
    """A library mostly has one number of threads for the whole process. So callers in several threads share
    one limit: the first to come saves the number, the last to go restores it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0  # how many callers there are now
        self.saved: list[int] = []

    def enter(self) -> list[int]:
        """What this thread had before."""
        with self.lock:
            found = [library.get_num_threads() for library in _find_libraries()]
            if not self.inside:
                self.saved = found
            self.inside += 1
            for library, own in zip(_find_libraries(), found, strict=True):
                if own != 1:
                    library.set_num_threads(1)
            return found

    def leave(self, found: list[int]) -> None:
        with self.lock:
            self.inside -= 1
            for library, own, first in zip(_find_libraries(), found, self.saved, strict=True):
                apart = _is_per_thread(library)
                before = own if apart else first
                if before != 1 and (apart or not self.inside):
                    library.set_num_threads(before)
                if own != 1 or before != 1:
                    _give_up_control(library)


def _is_per_thread(library: Any) -> bool:
    """From threadpoolctl 3.8 on, OpenBLAS over OpenMP has a number of its own in each thread."""
    controlled = hasattr(library, "clear_controlling_thread")
    return controlled and getattr(library, "threading_layer", "") == "openmp"


def _give_up_control(library: Any) -> None:
    """From threadpoolctl 3.8 on, no other thread can change the number before this one lets go."""
    getattr(library, "clear_controlling_thread", lambda: None)()


_shared = _SharedLimit()
if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that no one will open
    os.register_at_fork(
        before=_shared.lock.acquire,
        after_in_parent=_shared.lock.release,
        after_in_child=_shared.lock.release,
    )


@contextlib.contextmanager
def limit_blas_threads() -> Iterator[None]:
    """Blocks are small: threads within one product of matrices mostly wait for each other, and on
    a busy machine they wait very long."""
    found = _shared.enter()
    try:
        yield
    finally:
        _shared.leave(found)
