from __future__ import annotations

import errno
import threading
import time

import pytest

from bylaw.rows import read_ahead, write_behind


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("bylaw-")] == []


def give(count, read, fails=None):
    try:
        for i in range(count):
            if i == fails:
                raise ValueError(f"batch {i}")
            read.append(i)
            yield i
    finally:
        read.append("closed")


def test_batches_come_in_order_and_few_are_read_ahead():
    read = []
    with read_ahead(give(50, read)) as batches:
        for i, batch in enumerate(batches):
            assert batch == i
            time.sleep(0.001)
            assert len(read) <= i + 4
    assert read == [*range(50), "closed"]


def test_they_are_read_in_another_thread():
    names = []
    with read_ahead(names.append(threading.current_thread().name) or i for i in range(3)) as batches:
        assert list(batches) == [0, 1, 2]
    assert {name.startswith("bylaw-read") for name in names} == {True}


def test_trouble_in_reading_comes_after_the_batches_before_it():
    read, got = [], []
    with pytest.raises(ValueError, match="batch 3"), read_ahead(give(9, read, fails=3)) as batches:
        got.extend(batches)
    with pytest.raises(ValueError, match="batch 3"), read_ahead(give(9, [], fails=3)) as batches:
        got.extend(batch for batch in batches if got.append(batch) is None)
    assert got[:3] == [0, 1, 2]
    assert read[-1] == "closed"


@pytest.mark.parametrize("trouble", [ValueError, KeyboardInterrupt])
def test_trouble_in_between_stops_reading_and_closes(trouble):
    read = []
    with pytest.raises(trouble), read_ahead(give(1000, read)) as batches:  # noqa: PT012
        for batch in batches:
            if batch == 5:
                raise trouble
    assert read[-1] == "closed"
    assert len(read) < 12


def test_batches_are_written_in_order_and_all_of_them():
    written = []

    def write(batch):
        time.sleep(0.001)
        written.append(batch)

    with write_behind(write) as submit:
        for i in range(20):
            submit(i)
            assert len(written) >= i - 2
    assert written == list(range(20))


@pytest.mark.parametrize("fails", [0, 3, 9])
def test_trouble_in_writing_is_raised_wherever_it_is(fails):
    written = []

    def write(batch):
        if batch == fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(batch)

    with pytest.raises(OSError, match="No space"), write_behind(write) as submit:  # noqa: PT012
        for i in range(10):
            submit(i)
    assert written[:fails] == list(range(fails))


@pytest.mark.parametrize("trouble", [ValueError, KeyboardInterrupt])
def test_trouble_in_between_ends_writing_before_the_file_is_closed(trouble):
    written = []

    def write(batch):
        time.sleep(0.01)
        written.append(batch)

    with pytest.raises(trouble), write_behind(write) as submit:  # noqa: PT012
        for i in range(3):
            submit(i)
        raise trouble
    count = len(written)
    time.sleep(0.05)
    assert len(written) == count
