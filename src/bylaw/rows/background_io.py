"""Reading ahead and writing behind: pyarrow works in threads of its own while Python computes.

One thread each, so that batches stay in order, and a few batches on the way, so that memory stays bounded.
What goes wrong in a thread is raised where its result is asked for.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_AHEAD = 2  # batches that are read before they are asked for
_BEHIND = 2  # batches that wait to be written
_END: Any = object()


@contextlib.contextmanager
def read_ahead(batches: Generator[T, None, None]) -> Iterator[Iterator[T]]:
    """The same batches, the next of which are read while one is worked on."""
    with contextlib.closing(batches), _start_thread("bylaw-read") as thread:
        waiting = deque(thread.submit(next, batches, _END) for _ in range(_AHEAD))

        def take() -> Iterator[T]:
            while (batch := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, batches, _END))
                yield batch

        yield take()


@contextlib.contextmanager
def write_behind(write: Callable[[T], None]) -> Iterator[Callable[[T], None]]:
    """A function that returns before a batch is written; all are when the block ends."""
    with _start_thread("bylaw-write") as thread:
        waiting: deque[Future[None]] = deque()

        def submit(batch: T) -> None:
            waiting.append(thread.submit(write, batch))
            if len(waiting) > _BEHIND:
                waiting.popleft().result()

        yield submit
        for written in waiting:
            written.result()


@contextlib.contextmanager
def _start_thread(name: str) -> Iterator[ThreadPoolExecutor]:
    """A thread that has ended when the block has, however it ends: what it works on is closed after that."""
    thread = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        yield thread
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
