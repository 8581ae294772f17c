"""States with numbers that no rows lead to are refused by name, though their checksums are right."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest

from bylaw import Monitor, PolicyFileError
from bylaw.policy import compute_digest
from bylaw.testing import _state_files as state_files
from helpers.monitored import draw_rows, fit_rejecting

_RULES = ["rejected() <= 0.3", "error().given(sex='F') <= 0.4", "disagreement('old') <= 0.5"]
_RULES.append("rejected() - rejected().given(label='yes') <= 0.5")


@pytest.fixture(scope="module")
def policy():
    return fit_rejecting()


@pytest.fixture
def saved(tmp_path, policy):
    path, rows = tmp_path / "state.json", draw_rows(203, 5)
    monitor = Monitor(policy, rules=_RULES, groups={"sex": ["F", "M"]})
    monitor.update(rows.evidence, labels=np.where(np.arange(203) % 2, rows.labels, None), ids=np.arange(203))
    monitor.save(path)
    return path


def _change(path, place, value):
    content = json.loads(path.read_text())
    del content["checksum"]
    *folders, last = place
    node = content
    for name in folders:
        node = node[name]
    node[last] = value
    # 1e400 is read as infinite, and written as it was meant.
    text = json.dumps({**content, "checksum": compute_digest(content)})
    path.write_text(text.replace("Infinity", "1e400"))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["rows"], 10**400, "rows must be a finite number"),
        (["rows"], 2**62, "rows must be a whole number below"),
        (["rows"], -1, "rows must be a whole number"),
        (["rows"], 5, "at most 5, the number of rows that the monitor has seen"),
        (["run_length"], float("inf"), "must be a finite number"),
        (["log", 0, 1], 204, "at most 203"),
        (["watched", 0, "rows"], 204, "at most 203"),
        (["watched", 0, "rows"], float("inf"), "must be a finite number"),
        (["watched", 0, "broken_at"], 204, "at most 203"),
        (["watched", 0, "every"], 0.5, "every must be a whole number"),
        (["watched", 0, "every"], 2**70, "every must be a whole number below"),
        (["watched", 0, "sums", 0], -1.0, "must not be negative"),
        (["watched", 0, "sums", 1], 1e308, "a finite number of at most 1e"),
        (["watched", 0, "totals", 0], -1.0, "must not be negative"),
        (["watched", 0, "product", 0], -1e308, "a finite number of at most 1e"),
        (["watched", 0, "product", 0], -1.0, "its wealth must not be negative"),
        (["watched", 3, "waiting", 0, 0], -1.0, "must not be negative"),
        (["watched", 3, "waiting", 0, 0], 2.0**63, "at most 1"),
        (["watched", 3, "waiting", 2, 0], 1e30, "values of its incomplete rows must be within the limits"),
        (["watched", 3, "waiting", 2, 0], -1e30, "values of its incomplete rows must be within the limits"),
        (["watched", 0, "history", 0, 0], 204, "at most 203"),
        (["watched", 0, "history", 0, 2], 10**400, "a finite number"),
    ],
)
def test_hostile_numbers_are_refused(saved, policy, place, value, message):
    _change(saved, place, value)
    with pytest.raises(PolicyFileError, match=message) as refused:
        Monitor.load(saved, policy)
    assert len(str(refused.value)) < 400


def _replace_rows(path, content):
    """Put another file of rows in the place of the saved one, with the right checksums."""
    (old,) = path.parent.glob("*.npz")
    old.unlink()
    digest = hashlib.sha256(content).hexdigest()
    state_files._name_rows(path, digest).write_bytes(content)
    _change(path, ["row_file"], digest)


def _make_zip(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, content)
    return buffer.getvalue()


def _make_object() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, seen=np.array([{}], dtype=object))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"\x93NUMPY", _make_zip("seen.npy", b"x"), _make_zip("x", b"x"), _make_object()],
    ids=["empty", "half a zip", "half an array", "no array", "no name", "objects"],
)
def test_row_files_without_arrays_are_refused(saved, policy, content):
    _replace_rows(saved, content)
    with pytest.raises(PolicyFileError, match=r"\.npz is damaged: .* Restore this file"):
        Monitor.load(saved, policy)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seen", lambda a: a[::-1]),
        ("seen", lambda a: a.astype(float)),
        ("seen", lambda a: np.array(3, np.uint64)),
        ("waiting_ids", lambda a: np.column_stack([a, a])),
        ("labels", lambda a: a + 100),
        ("labels", lambda a: a - 100),
        ("labels", lambda a: a.astype(float)),
        ("groups/sex", lambda a: a + 2 + 1),
        ("decisions", lambda a: a * np.nan),
        ("decisions", lambda a: a - 5.0),
        ("decisions", lambda a: a[:, :1]),
        ("decisions", lambda a: a.astype("U8")),
        ("references/old", lambda a: a.astype("U8")),
    ],
)
def test_row_files_with_impossible_values_are_refused(saved, policy, name, change):
    (rows,) = saved.parent.glob("*.npz")
    with np.load(rows) as file:
        arrays = {key: file[key] for key in file.files}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, name: change(arrays[name])})
    _replace_rows(saved, buffer.getvalue())
    with pytest.raises(
        PolicyFileError, match=r"is damaged: (its column|it must have the columns|its columns must)"
    ):
        Monitor.load(saved, policy)


def test_states_are_readable_by_their_owner_alone(saved, policy):
    assert {path.stat().st_mode & 0o777 for path in saved.parent.iterdir()} == {0o600}
    saved.chmod(0o640)  # as somebody chose
    Monitor.load(saved, policy).save(saved)
    assert saved.stat().st_mode & 0o777 == 0o640
