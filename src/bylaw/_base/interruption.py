"""Long computations that end between two passes over the rows, where whoever waits for them has left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interrupting(check: Callable[[], None]) -> Iterator[None]:
    """Within this, every pass over rows calls `check` first, which may raise. Other threads do not.

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
    """Where a computation may end."""
    check = _CHECK.get()
    if check is not None:
        check()
