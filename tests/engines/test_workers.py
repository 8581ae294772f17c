"""Workers fail: their errors arrive as they were raised, and one that dies changes nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from bylaw import EvidenceError, OptionError, scan
from bylaw.engines._workers import Outcome, receive
from helpers.clusters import need, read_each, write_parts
from helpers.partitioned_rows import CASES, COLUMNS, N, cut, expect_value, make_rows

WRONG = 1550  # the row, which is in partition 4 of 7


@pytest.mark.parametrize("change", [{"high": 2.0}, {"sex": None}], ids=["number", "missing"])
def test_errors_arrive_as_they_were_raised(kind, change):
    frame = make_rows().copy()
    for column, value in change.items():
        frame.loc[WRONG, column] = value
    with pytest.raises(EvidenceError) as found:
        CASES["parity"].solve(scan(kind.load(cut(frame, 7)), COLUMNS))
    assert len(str(found.value)) < 500
    assert kind.name == "polars" or "partition 4" in str(found.value) or "004.parquet" in str(found.value)


def test_rows_that_change_between_walks_are_refused():
    counts = {}
    assert list(receive([Outcome(0, 5, "a"), Outcome(1, 0, None)], counts, "")) == ["a", None]
    with pytest.raises(EvidenceError, match="partition 1 had 0 rows in the first pass and now has 3"):
        list(receive([Outcome(0, 5, "b"), Outcome(1, 3, "c")], counts, ""))


@pytest.mark.slow
def test_a_spark_frame_that_is_another_each_time_is_refused(spark, small, tmp_path):
    def leave_out_some(batches):
        import time

        for batch in batches:
            yield batch.slice(time.time_ns() // 1000 % 1000)

    source = spark.read.parquet(str(write_parts([make_rows()], tmp_path / "rows")))
    with pytest.raises(EvidenceError, match=r"cache\(\) it first"):
        CASES["parity"].solve(scan(source.mapInArrow(leave_out_some, source.schema), COLUMNS))


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("pyspark.sql.connect.dataframe", "DataFrame", "Spark Connect"),
        ("pyspark.rdd", "RDD", "must be a DataFrame"),
        ("dask.array", "Array", "must be a DataFrame"),
        ("polars.dataframe", "DataFrame", "must be a LazyFrame"),
    ],
)
def test_what_is_no_frame_of_rows_elsewhere_is_refused(module, name, words):
    need(module.split(".")[0])
    with pytest.raises(OptionError, match=words):
        scan(type(name, (), {"__module__": module})(), COLUMNS)


@pytest.mark.slow
def test_a_dask_worker_that_is_killed_changes_nothing(as_default, small):
    import dask.dataframe
    from dask.delayed import delayed

    def wait_a_little(rows):
        time.sleep(0.2)
        return rows

    parts = [delayed(part) for part in cut(make_rows(), 7)]
    empty = make_rows()[:0]
    slow = dask.dataframe.from_delayed(parts, meta=empty).map_partitions(wait_a_little, meta=empty)
    expected = CASES["odds"].solve(scan(slow, COLUMNS))
    pids, killed, walks = list(as_default.run(os.getpid).values()), [], {}

    def kill(progress):
        walks[progress.number] = progress.rows
        if progress.number == 2 and not killed:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    policy = CASES["odds"].solve(scan(slow, COLUMNS, progress=kill))
    assert killed
    assert policy.digest == expected.digest
    assert set(walks.values()) == {N}
    as_default.wait_for_workers(2, timeout=60)
    assert pids[0] not in as_default.run(os.getpid).values()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["python worker", "executor"])
def test_a_spark_process_that_is_killed_changes_nothing(spark, small, tmp_path, victim):
    folder = write_parts(cut(make_rows(), 7), tmp_path / "rows")
    armed, waiting, killed = tmp_path / "armed", tmp_path / "waiting", []

    def wait_to_be_killed(i):
        import os
        import time

        if i == 3 and armed.exists() and not waiting.exists():
            waiting.with_suffix(".new").write_text(f"{os.getpid()} {os.getppid()}")
            waiting.with_suffix(".new").rename(waiting)
            time.sleep(60)

    def kill():
        while not waiting.exists():
            time.sleep(0.05)
        worker, daemon = map(int, waiting.read_text().split())
        pid = worker if victim == "python worker" else find_parent(daemon)
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    walks = {}

    def watch(progress):
        walks[progress.number] = progress.rows
        if progress.rows == N and not killed and not armed.exists():
            armed.touch()  # in the walk after this
            threading.Thread(target=kill, daemon=True).start()

    frame = read_each(spark, folder, 7, before=wait_to_be_killed)
    policy = CASES["odds"].solve(scan(frame, COLUMNS, progress=watch))
    assert killed
    assert policy.solution.value == pytest.approx(expect_value("odds"), abs=1e-9)
    assert policy.digest == CASES["odds"].solve(scan(frame, COLUMNS)).digest
    assert set(walks.values()) == {N}


def find_parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
