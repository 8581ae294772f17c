"""A monitor that threads share counts every row."""

from __future__ import annotations

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from bylaw import Evidence, Monitor, Problem, error, rejected, solve
from helpers.monitored import describe

_THREADS, _UPDATES, _ROWS = 8, 8, 10


def _make_monitor() -> Monitor:
    chance = np.linspace(0.01, 0.99, 200)
    policy = solve(Problem(error(), [rejected() <= 0.2]), Evidence(np.column_stack([1 - chance, chance])))
    return Monitor(policy, rules=["rejected() <= 0.3", "error() <= 0.4"])


def _make_rows(seed: int) -> tuple[Evidence, np.ndarray]:
    rng = np.random.default_rng(seed)
    chance = rng.uniform(size=_ROWS)
    return Evidence(np.column_stack([1 - chance, chance])), (rng.random(_ROWS) < chance).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("with_ids", [False, True])
def test_threads_count_every_row(with_ids):
    monitor, failures = _make_monitor(), []
    start = threading.Barrier(_THREADS)

    def work(number: int) -> None:
        try:
            start.wait()
            for update in range(_UPDATES):
                place = number * _UPDATES + update
                evidence, labels = _make_rows(place)
                ids = np.arange(_ROWS) + place * _ROWS if with_ids else None
                monitor.update(evidence, labels=labels, ids=ids, batch=f"{place}")
                if update % 4 == 0:
                    assert monitor.status
                    assert monitor.to_dict()["rows"] > 0
        except Exception as problem:
            failures.append(problem)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads are interrupted within an update
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures
    total = _THREADS * _UPDATES * _ROWS
    assert monitor.rows == total
    assert [one.rows for one in monitor.status] == [total, total]
    assert len(monitor.batches) == _THREADS * _UPDATES
    evidence_of = [_make_rows(place) for place in range(_THREADS * _UPDATES)]
    alone = _make_monitor()
    for evidence, labels in evidence_of:
        alone.update(evidence, labels=labels)
    assert [one.estimate for one in monitor.status] == pytest.approx([one.estimate for one in alone.status])


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_have_locks_of_their_own(clone):
    monitor = _make_monitor()
    evidence, labels = _make_rows(0)
    monitor.update(evidence, labels=labels)
    before = describe(monitor)
    other = clone(monitor)
    assert describe(other) == before
    with monitor._lock:
        thread = threading.Thread(target=other.update, args=(evidence,))
        thread.start()
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert other.rows == 2 * _ROWS
    assert describe(monitor) == before
