"""Files are read by a reader that trusts nothing."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from bylaw import (
    Evidence,
    EvidenceError,
    Policy,
    PolicyFileError,
    Problem,
    demographic_parity,
    disagreement,
    error,
    rejected,
    solve,
)
from bylaw.policy import compute_digest
from helpers.generated_rows import Rows

ROWS = Rows(n=50)
PROBLEM = Problem(
    error(), [demographic_parity("known", tol=0.1), disagreement("old") <= 0.5, rejected() <= 0.1]
)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "p.json"
    solve(PROBLEM, ROWS.evidence()).save(path)
    return json.loads(path.read_text())


def load(tmp_path, content):
    path = tmp_path / "p.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return Policy.load(path)


def changed(content, path, value):
    content = copy.deepcopy(content)
    node = content
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "pickle", "policy.format must be one of"),
        (["version"], 4, "schema version must be .* got 4; upgrade bylaw"),
        (["version"], "1", "schema version must be .*, got '1'"),
        (["beta"], -1, "policy.beta must be a positive number"),
        (["beta"], "hot", "policy.beta must be a number"),
        (["beta"], 10**400, "policy.beta must be a finite number"),
        (["version"], True, "schema version must be .*, got True"),
        (["features", 0, "source"], {"kind": "cost", "name": "x", "item": True}, "item must be one of"),
        (["weights"], [[1.0]], "must be a matrix of"),
        (["weights", 0, 0], None, r"policy.weights\[0\]\[0\] must be a number"),
        (["decisions", "kind"], "anything", "policy.decisions.kind must be one of"),
        (["decisions", "classes"], [0, 0], "must be at least 2 different labels"),
        (["decisions", "classes"], [], "different labels|must be one of"),
        (["decisions", "classes"], [[0], 1], r"classes\[0\] must be text or a finite number"),
        (["decisions", "reject"], 0, "must differ from all classes"),
        (["features", 0, "event"], {"planet": 1}, "unknown attribute 'planet'"),
        (["features", 0, "source"], {"kind": "file", "name": "x", "item": 0}, "kind must be one of"),
        (["features", 0, "source"], {"kind": "cost", "name": "x", "item": 99}, "item must be one of"),
        (["attributes", "known", "known"], "yes", "must be one of"),
        (["rules", 0], "__import__('os').system('true')", "only rates, families"),
        (["minimize"], "error() <= 1", "minimize must be a rate"),
        (["multipliers", 0, "multiplier"], -5, "must be a positive number"),
        (["solution", "status"], "EXCELLENT", "status must be one of"),
        (["solution", "steps"], 1.5, "must be a whole number"),
        (["frequencies", 0, "frequency"], 0, "must be a positive number"),
    ],
)
def test_damage_is_named(tmp_path, content, path, value, message):
    with pytest.raises(PolicyFileError, match=message):
        load(tmp_path, changed(content, path, value))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        '{"format": "bylaw-policy"}',
        "[" * 100_000,
        '{"beta": NaN}',
        "1" * 5000,
        "\x00",
    ],
)
def test_what_is_no_policy_is_refused(tmp_path, text):
    with pytest.raises(PolicyFileError, match=r"p\.json"):
        load(tmp_path, text)


def test_scores_that_overflow_are_refused(tmp_path, content):
    hot = changed(changed(content, ["beta"], 1e308), ["weights", 0, 0], 1e10)
    with pytest.raises(PolicyFileError, match="must be finite"):
        load(tmp_path, hot)


def test_features_stated_twice_are_refused(tmp_path, content):
    twice = copy.deepcopy(content)
    twice["features"].append(twice["features"][0])
    twice["weights"].append(twice["weights"][0])
    with pytest.raises(PolicyFileError, match="features must be all different"):
        load(tmp_path, twice)


def test_a_hash_that_is_not_that_of_the_law_is_refused(tmp_path, content):
    """Even where somebody has computed the checksum again."""
    other = {**content, "hash": "0" * 64}
    other["checksum"] = compute_digest({name: value for name, value in other.items() if name != "checksum"})
    with pytest.raises(PolicyFileError, match="the hash does not match the decision rule"):
        load(tmp_path, other)


def test_binary_and_truncated_files_are_refused(tmp_path, content):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x80pickle")
    with pytest.raises(PolicyFileError, match="valid JSON"):
        Policy.load(tmp_path / "b.json")
    text = json.dumps(content)
    with pytest.raises(PolicyFileError, match="valid JSON"):
        load(tmp_path, text[: len(text) // 2])


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        solve(PROBLEM, ROWS.evidence()).save(tmp_path / "none" / "p.json")


def test_a_missing_file_is_just_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / "none.json")


def places(node, path=()):
    """Every place in the file."""
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_is_refused_or_gives_a_working_policy(tmp_path, content, data):
    path = data.draw(st.sampled_from(list(places(content))[1:]))
    try:
        policy = load(tmp_path, changed(content, path, data.draw(junk)))
    except PolicyFileError:
        return
    try:
        distribution = policy.probabilities(ROWS.evidence())
    except EvidenceError:  # it asks for other columns now, and says so
        return
    assert np.isfinite(distribution).all()
    np.testing.assert_allclose(distribution.sum(axis=1), 1)


def test_saving_leaves_the_old_file_until_the_new_one_is_whole(tmp_path, monkeypatch):
    policy = solve(PROBLEM, ROWS.evidence())
    policy.save(tmp_path / "p.json")
    before = (tmp_path / "p.json").read_text()
    monkeypatch.setattr("pathlib.Path.replace", lambda *paths: (_ for _ in ()).throw(OSError("disk on fire")))
    with pytest.raises(OSError, match="disk on fire"):
        policy.save(tmp_path / "p.json")
    assert (tmp_path / "p.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    "rule",
    ["selected(0).given(g=2) <= 0.5", "selected(0).given(flag=1) <= 0.5", "error().given(label=True) <= 0.9"],
)
def test_values_are_kept_as_the_rows_have_them(tmp_path, rule):
    """2 is 2.0 and 1 is True, but not in a file."""
    groups = {"g": np.resize([1.5, 2.0], 50), "flag": np.resize([True, False], 50)}
    evidence = Evidence(np.random.default_rng(0).dirichlet([1, 1], 50), groups=groups)
    policy = solve(Problem(error(), [rule]), evidence)
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert np.array_equal(again.probabilities(evidence), policy.probabilities(evidence))


def test_what_does_not_decide_is_covered_by_the_checksum(tmp_path, content):
    """A certificate, a price or a date that was changed leaves the hash of the decision rule as it is."""
    for change in (
        {"card": {**content["card"], "created": "2001-01-01T00:00:00+00:00"}},
        {"multipliers": [{**content["multipliers"][0], "multiplier": 9.0}, *content["multipliers"][1:]]},
    ):
        with pytest.raises(PolicyFileError, match="the file was changed after it was saved"):
            load(tmp_path, {**content, **change})
