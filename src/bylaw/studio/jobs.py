"""What the tabs of a browser have asked for: the newest question of a tab ends its older ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from bylaw.program.solution import Step

Purpose = Literal["solve", "frontier", "save"]
_LOOK = 0.05  # seconds between two looks at whether a waiting job was cancelled


class CancelledError(Exception):
    """Somebody asked something else meanwhile."""


@dataclass(eq=False)
class Job:
    """One question of a tab, and how far its answer is."""

    purpose: Purpose
    number: int
    cancelled: bool = False
    step: int = 0  # passes over the rows
    off_by: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since it was asked."""
        return time.perf_counter() - self.started

    def check(self) -> None:
        """Raises if it was cancelled."""
        if self.cancelled:
            raise CancelledError

    @contextmanager
    def hold(self, lock: threading.Lock) -> Iterator[None]:
        """Wait for a lock, unless this is cancelled meanwhile."""
        while not lock.acquire(timeout=_LOOK):
            self.check()
        try:
            self.check()
            yield
        finally:
            lock.release()

    def advance(self) -> None:
        """One more pass over the rows begins."""
        self.check()
        self.step += 1

    def watch(self, step: Step | Any) -> None:
        """A callback of solvers and frontiers."""
        self.check()
        if isinstance(step, Step):
            self.off_by = step.gradient_mapping


class Jobs:
    """The questions that are being answered, tab by tab."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, list[Job]] = {}
        self._newest: dict[tuple[str, Purpose], int] = {}

    def begin(self, tab: str, purpose: Purpose, number: int) -> Job:
        """A new question; it ends older ones of its purpose, and a new problem ends older frontiers, too."""
        with self._lock:
            job = Job(purpose, number)
            newest = max(number, self._newest.get((tab, purpose), number))
            job.cancelled = number < newest
            self._newest[tab, purpose] = newest
            for other in self._running.get(tab, ()):
                if other.number < number and purpose in ("solve", other.purpose):
                    other.cancelled = True
            self._running.setdefault(tab, []).append(job)
            return job

    def end(self, tab: str, job: Job) -> None:
        """It was answered."""
        with self._lock:
            self._running[tab].remove(job)
            if not self._running[tab]:
                del self._running[tab]

    def cancel(self, tab: str | None = None) -> None:
        """All questions of a tab, or of all tabs."""
        with self._lock:
            for name, jobs in self._running.items():
                for job in jobs if tab in (None, name) else ():
                    job.cancelled = True

    def describe(self, tab: str) -> dict[str, Any]:
        """How far the newest question of a tab is."""
        with self._lock:
            running = self._running.get(tab)
            if not running:
                return {"busy": False, "step": 0, "off_by": None, "seconds": 0.0}
            job = running[-1]
            return {"busy": True, "step": job.step, "off_by": job.off_by, "seconds": job.seconds}
