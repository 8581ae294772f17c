"""Reading ahead and writing behind: pyarrow works in threads of its own while Python computes.

There is one thread for each, so that batches stay in order, and a few batches wait, so that memory stays
bounded. Errors in a thread are raised where its results are used.
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
    """Give the same batches, and read the next ones while one is in use."""
    with contextlib.closing(batches), _start_thread("bylaw-read") as thread:
        waiting = deque(thread.submit(next, batches, _END) for _ in range(_WAITING))

        def take() -> Iterator[T]:
            while (batch := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, batches, _END))
                yield batch

        yield take()


@contextlib.contextmanager
def write_behind(write: Callable[[T], None]) -> Iterator[Callable[[T], None]]:
    """Give a function that returns before a batch is written; all are written when the context ends."""
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
    """Start a thread that ends with the context, so that its files can be closed after that."""
    thread = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        yield thread
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
