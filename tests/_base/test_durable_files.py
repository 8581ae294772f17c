"""Files are on the disk before they have a name, and nothing is left of those that were not finished."""

from __future__ import annotations

import os
import stat
import time

import pytest

from bylaw._base import write_atomically, write_text


@pytest.fixture(params=[False, True], ids=["unnamed", "named"])
def named(request, monkeypatch):
    if request.param:  # as on systems without files that have no name
        monkeypatch.setattr("bylaw._base._files._unnamed_file", lambda folder: None)
    return request.param


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_interrupts_a_write_leaves_the_old_file_alone(tmp_path, named, problem):
    path = tmp_path / "text"
    write_text(path, "old")
    with pytest.raises(problem), write_atomically(path) as partial:  # noqa: PT012
        partial.write_text("half")
        raise problem
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_flushed_before_the_file_gets_its_name_and_the_folder_after(tmp_path, named, monkeypatch):
    steps, fsync, replace = [], os.fsync, type(tmp_path).replace

    def record(opened):
        mode = os.fstat(opened).st_mode
        steps.append("folder" if stat.S_ISDIR(mode) else f"file of {os.fstat(opened).st_size}")
        fsync(opened)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(type(tmp_path), "replace", lambda *paths: (steps.append("name"), replace(*paths))[1])
    write_text(tmp_path / "text", "whole")
    assert steps == ["file of 5", "name", "folder"]


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path):
    old, young, other = (tmp_path / name for name in (".bylaw-01.partial", ".bylaw-02.partial", "x.partial"))
    for path in (old, young, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (time.time() - 90_000,) * 2)
    write_text(tmp_path / "text", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bylaw-02.partial", "text", "x.partial"]


def test_private_files_are_private_from_the_beginning(tmp_path, named):
    with write_atomically(tmp_path / "text", private=True) as partial:
        partial.write_text("secret")
        assert partial.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o600
    write_text(tmp_path / "other", "shown")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o666 & ~umask
