"""One contestant in a process of its own: seconds and peak memory of its fit, quality on other rows.

    python -m benchmarks.peers.measure FOLDER SECONDS GIBIBYTES ROUNDS < jobs

reads jobs as JSON, a list of [contest, contestant, number of rows], and prints a line of JSON for each. A fit
that takes longer than the limit ends the process.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import sets
from benchmarks.peers.parity import CONTESTS
from benchmarks.peers.rows import Rows

ENOUGH = 3.0  # seconds after which a fit is not repeated
WARM_UP = 1000  # rows of a first fit, for imports, compilers and buffers


class Limits(NamedTuple):
    seconds: float  # of one fit and its repetitions
    gibibytes: float  # of the process
    rounds: int


def memory(field: str) -> int | None:
    """Bytes of this process, now ("VmRSS") or at most ("VmHWM"); None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(
        int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(field)
    )


def forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def timed(fit: Callable[[], Any], limits: Limits) -> tuple[Any, float, float | None]:
    """What the fit returns, its best time, and the memory that the first one took."""
    forget_peak()
    before, fitted, times = memory("VmRSS"), None, []
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # compiled code would not listen to Python
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    peak = None
    while len(times) < limits.rounds and sum(times) < ENOUGH:
        start = time.perf_counter()
        fitted = fit()
        times.append(time.perf_counter() - start)
        peak = peak or memory("VmHWM")
    signal.setitimer(signal.ITIMER_REAL, 0)
    return fitted, min(times), None if before is None or peak is None else max(0, peak - before) / 1e6


def parity(contest_name: str, name: str, size: int, folder: Path, limits: Limits) -> dict[str, Any]:
    contest = CONTESTS[contest_name]
    fit = contest.contestants[name]
    rows = Rows.load(folder / f"{contest.kind}-{size}.npz")
    if limits.rounds > 1:
        fit(rows.part(slice(WARM_UP)), contest.rule)
    distribution, seconds, megabytes = timed(lambda: fit(rows, contest.rule), limits)
    test = Rows.load(folder / f"{contest.kind}-test.npz")
    return {"seconds": seconds, "megabytes": megabytes, **contest.judged(distribution(test), test)}


def outcome(job: list[Any], folder: Path, limits: Limits) -> dict[str, Any]:
    """Measurements, or what went wrong."""
    contest, name, size = job
    try:
        if contest in CONTESTS:
            return parity(contest, name, size, folder, limits)
        return sets.compete(contest, name, folder)
    except MemoryError:
        return {"failed": "out of memory"}
    except Exception as problem:
        print(f"{contest}, {name}, {size}: {problem!r}", file=sys.stderr)
        return {"failed": "failed"}


def main() -> None:
    folder, limits = Path(sys.argv[1]), Limits(float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    most = int(limits.gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    warnings.simplefilter("ignore")  # of peers' own dependencies
    for job in json.load(sys.stdin):
        print(json.dumps(outcome(job, folder, limits)), flush=True)


if __name__ == "__main__":
    main()
