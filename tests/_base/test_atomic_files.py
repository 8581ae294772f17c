"""Files appear whole or not at all, however many write to one path."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, error, rejected, solve
from bylaw._base import write_atomically, write_text


@pytest.fixture(scope="module")
def policies():
    scores = np.linspace(0.05, 0.95, 19)
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    return [solve(Problem(error(), [rejected() <= 0.01 * (1 + i)]), evidence) for i in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_threads_that_save_to_one_path_never_collide(policies, tmp_path, monkeypatch, named):
    if named:  # as on systems without files that have no name
        monkeypatch.setattr("bylaw._base._files._unnamed_file", lambda folder: None)
    path = tmp_path / "policy.json"
    policies[0].save(path)
    digests = {policy.digest for policy in policies}
    done = threading.Event()

    def save(policy):
        for _ in range(30):
            policy.save(path)

    def load():
        found = set()
        while not done.is_set():
            found.add(Policy.load(path).digest)
        return found

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(load) for _ in range(2)]
        writers = [pool.submit(save, policy) for policy in policies]
        wait(writers)
        done.set()
        assert [writer.result() for writer in writers] == [None] * len(writers)
        assert set().union(*(reader.result() for reader in readers)) <= digests
    assert Policy.load(path).digest in digests
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import pathlib, sys
from bylaw._base._files import write_text
for i in range(50):
    write_text(pathlib.Path(sys.argv[1]), f"{i}\\n" * 1000)
"""


@pytest.mark.slow
def test_processes_that_write_to_one_path_never_collide(tmp_path):
    path = tmp_path / "text"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(set(path.read_text().splitlines())) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_that_vanishes_is_an_error_of_the_system_and_leaves_nothing(tmp_path, monkeypatch, named):
    if named:
        monkeypatch.setattr("bylaw._base._files._unnamed_file", lambda folder: None)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError), write_atomically(folder / "text") as partial:  # noqa: PT012
        partial.write_text("half")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_becomes_a_folder_meanwhile_leaves_nothing_else(tmp_path):
    path = tmp_path / "text"
    with pytest.raises(OSError, match="text"), write_atomically(path) as partial:  # noqa: PT012
        partial.write_text("new")
        path.mkdir()
    assert [found.name for found in tmp_path.iterdir()] == ["text"]


def test_the_longest_name_of_a_file_serves(tmp_path):
    path = tmp_path / ("n" * 255)
    write_text(path, "whole")
    assert path.read_text() == "whole"
