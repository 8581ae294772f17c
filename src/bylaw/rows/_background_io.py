"""Threads that read batches ahead and write them behind, while Python computes.

Reading has one thread, and so has writing, so that batches stay in order. Only a few batches wait, so that
memory stays bounded. Errors in a thread are raised where its results are used.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_WAITING = 2  # batches that are read before they are used, or wait to be written
_END: Any = object()


@contextlib.contextmanager
def read_ahead(batches: Generator[T, None, None]) -> Iterator[Iterator[T]]:
    """Return a context with an iterator over the batches, whose next batches a thread reads in advance."""
    with contextlib.closing(batches), _start_thread("bylaw-read") as thread:
        waiting = deque(thread.submit(next, batches, _END) for _ in range(_WAITING))

        def take() -> Iterator[T]:
            while (batch := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, batches, _END))
                yield batch

        yield take()


@contextlib.contextmanager
def write_behind(write: Callable[[T], None]) -> Iterator[Callable[[T], None]]:
    """Return a context with a function that passes a batch to `write` in a thread, and returns at once.

    All batches are written when the context ends.
    """
    with _start_thread("bylaw-write") as thread:
        waiting: deque[Future[None]] = deque()

        def submit(batch: T) -> None:
            waiting.append(thread.submit(write, batch))
            if len(waiting) > _WAITING:
                waiting.popleft().result()

        yield submit
        for written in waiting:
            written.result()


@contextlib.contextmanager
def _start_thread(name: str) -> Iterator[ThreadPoolExecutor]:
    """Return a context with a thread that ends with it, so that files can be closed afterwards."""
    thread = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        yield thread
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
