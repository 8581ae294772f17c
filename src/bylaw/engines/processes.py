"""Partitions in several processes of this machine, by joblib.

Its processes start without the main module, so that scripts need no guard, and serve one walk after the
other. Without joblib, or where there is one core, there is but this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")


def count_processes() -> int:
    """How many of them can work at once."""
    try:
        import joblib  # comes with the command line and with scikit-learn
    except ModuleNotFoundError:
        return 1
    return int(joblib.cpu_count())


def run_apart(work: Callable[[int], T], n_parts: int) -> Iterator[T]:
    """The results of `work(i)` for each part i, in order. They end early where a process was killed."""
    import joblib

    parallel = joblib.Parallel(min(count_processes(), n_parts), return_as="generator", max_nbytes=None)
    try:
        yield from parallel(joblib.delayed(work)(i) for i in range(n_parts))  # type: ignore[misc]
    except BrokenProcessPool:  # such as for want of memory: whoever has the rest to do may have more of it
        return
