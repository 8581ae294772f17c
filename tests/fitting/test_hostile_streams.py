"""Saved streams: changes are noticed, numbers that no rows lead to are refused, files are private."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bylaw import Evidence, PolicyFileError, Problem, Stream, error, rejected
from bylaw.policy import compute_digest


def _draw(n, seed):
    chance = np.random.default_rng(seed).random(n)
    return Evidence(np.column_stack([1 - chance, chance]))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "stream.json"
    stream = Stream(Problem(error(), [rejected() <= 0.2]), rows=2000, warm_up=200)
    stream.partial_fit(_draw(300, 0)).save(path)
    return path


def test_a_changed_number_does_not_match_the_checksum(saved):
    content = json.loads(saved.read_text())
    content["waiting"][0][0] += 1e-9
    saved.write_text(json.dumps(content))
    with pytest.raises(PolicyFileError, match="its content does not match its checksum"):
        Stream.load(saved)


def test_a_stream_of_an_earlier_version_has_no_checksum(saved):
    wanted = Stream.load(saved).partial_fit(_draw(900, 1)).policy()
    content = json.loads(saved.read_text())
    del content["checksum"]
    saved.write_text(json.dumps(content))
    assert Stream.load(saved).partial_fit(_draw(900, 1)).policy().digest == wanted.digest


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["rows"], 10**400),
        (["rows"], -5),
        (["tiles"], 2**70),
        (["beta"], 1e308),
        (["beta"], float("inf")),
        (["base", 0, 0], 1e308),
        (["mean_weight"], 1e-320),
        (["waiting", 0, 0], -1e308),
        (["waiting", -1, 0], -1.0),
        (["walk", "mass"], 1.0),
        (["walk", "mass"], float("inf")),
        (["bounds", 0], 10**400),
    ],
)
def test_hostile_numbers_are_refused(saved, place, value):
    content = json.loads(saved.read_text())
    del content["checksum"]
    node = content
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    text = json.dumps({**content, "checksum": compute_digest(content)})
    saved.write_text(text.replace("Infinity", "1e400"))
    with pytest.raises(PolicyFileError, match="is damaged") as refused:
        Stream.load(saved)
    assert "checksum" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_more_rows_that_wait_than_a_tile_are_refused(saved):
    content = json.loads(saved.read_text())
    del content["checksum"]
    content["waiting"] = [row * 4 for row in content["waiting"]]
    saved.write_text(json.dumps(content))
    with pytest.raises(PolicyFileError, match="must be fewer than 1024"):
        Stream.load(saved)


def test_a_saved_stream_is_readable_by_its_owner_alone(saved):
    assert saved.stat().st_mode & 0o777 == 0o600
