"""The digest of a table of rows: the same in any order and in pieces, and all that a file keeps of the
rows."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    Policy,
    PolicyFileError,
    Problem,
    Stream,
    audit,
    error,
    rejected,
    solve,
)
from bylaw.policy import Fingerprint, TableSum, hash_evidence, hash_features, shares_rows

ROWS = np.random.default_rng(0).random((3, 5000))
PROBLEM = Problem(error(), [rejected() <= 0.1])


def evidence(seed, n=400, decimals=16):
    chance = np.round(np.random.default_rng(seed).random(n), decimals)
    return Evidence(np.column_stack([chance, 1 - chance]))


def digest(rows):
    return TableSum.from_hashes(hash_features(rows)).make_fingerprint()


def test_the_order_and_the_pieces_do_not_matter():
    whole = digest(ROWS)
    shuffled = ROWS[:, np.random.default_rng(1).permutation(5000)]
    pieces = [shuffled[:, :100], shuffled[:, 100:3000], shuffled[:, 3000:]]
    assert digest(shuffled) == whole
    total = sum((TableSum.from_hashes(hash_features(piece)) for piece in pieces), TableSum())
    assert total.make_fingerprint() == whole
    assert hash(total.make_fingerprint()) == hash(whole)
    assert Fingerprint.from_hashes(hash_features(ROWS)) == whole
    assert whole.rows == 5000


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:, 1:],
        np.hstack([ROWS, ROWS[:, :1]]),
        np.hstack([ROWS[:, :1], ROWS[:, :-1]]),
        ROWS[::-1],
        ROWS + 1e-3,
    ],
    ids=["left out", "added", "exchanged", "columns swapped", "moved"],
)
def test_any_other_table_has_another_digest(other):
    assert set(digest(ROWS).digests).isdisjoint(digest(other).digests)


def test_minus_zero_is_zero():
    assert digest(np.array([[0.0]])) == digest(np.array([[-0.0]]))


def test_files_keep_one_digest_and_the_number_of_rows(tmp_path):
    """It tells nothing of single rows to those who do not know all of them."""
    policy = solve(PROBLEM, evidence(0, 60, decimals=2))
    policy.save(tmp_path / "p.json")
    (saved,) = json.loads((tmp_path / "p.json").read_text())["fingerprints"]
    assert set(saved) == {"rows", "digests"}
    assert saved["rows"] == 60
    (text,) = saved["digests"]
    assert len(text) == 64
    assert f"{int(policy.fingerprints[0].hashes.sum()):x}" not in (tmp_path / "p.json").read_text()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_hashes_of_rows_are_not_pickled(copied):
    policy = solve(PROBLEM, evidence(0))
    assert policy.fingerprints[0].hashes is not None
    (kept,) = copied(policy).fingerprints
    assert kept.hashes is None
    assert kept == policy.fingerprints[0]


def test_a_policy_knows_its_rows_also_from_a_file(tmp_path):
    policy = solve(PROBLEM, evidence(0))
    policy.save(tmp_path / "p.json")
    for known in (policy, Policy.load(tmp_path / "p.json")):
        assert known.fingerprints == policy.fingerprints
        for seed, shared in ((0, True), (1, False)):
            found = shares_rows(hash_evidence(known.feature_map, evidence(seed)), known.fingerprints)
            assert found is shared


def test_a_part_is_refused_in_the_same_process_and_the_whole_table_from_a_file(tmp_path):
    """As the page on audits states it."""
    rows, rule = evidence(0), rejected() <= 0.4
    policy = solve(PROBLEM, rows)
    policy.save(tmp_path / "p.json")
    loaded, part = Policy.load(tmp_path / "p.json"), rows.rows(np.arange(300))
    for known, judged in ((policy, rows), (policy, part), (loaded, rows.rows(np.arange(400)[::-1]))):
        with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
            audit(known, judged, rules=rule)
    assert audit(loaded, part, rules=rule).certificate


def test_held_out_rows_are_refused_with_and_without_the_fitted_ones(tmp_path):
    fit, held = evidence(0), evidence(1, 3000)
    rules = Problem(error(), [rejected() <= 0.4])
    policy = solve(rules, fit, guarantee="high_probability", held_out=held)
    policy.save(tmp_path / "p.json")
    whole = Evidence(np.vstack([held.probabilities, fit.probabilities]))
    loaded = Policy.load(tmp_path / "p.json")
    for judged in (fit, held, whole):
        with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
            audit(loaded, judged)
    assert audit(loaded, evidence(2, 3000)).certificate


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"rows": 400}, "no 'digests'"),
        ({"rows": 400, "digests": DIGEST}, "a list"),
        ({"rows": 400, "digests": ["zz"]}, "hexadecimal numbers of 64 digits"),
        ({"rows": 400, "digests": [DIGEST, DIGEST.replace("0", "X")]}, "hexadecimal numbers of 64 digits"),
        ({"rows": -4, "digests": [DIGEST]}, "whole number"),
    ],
)
def test_a_damaged_fingerprint_is_refused(tmp_path, part, message):
    path = tmp_path / "p.json"
    solve(PROBLEM, evidence(0)).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprints": [part]}))
    with pytest.raises(PolicyFileError, match=message):
        Policy.load(path)


@pytest.mark.parametrize("interrupted", [False, True])
def test_streams_add_up(tmp_path, interrupted):
    whole = evidence(3, 1200)
    stream = Stream(PROBLEM, 1200, warm_up=100)
    for start in range(0, 1200, 300):
        stream.partial_fit(whole.rows(slice(start, start + 300)))
        if interrupted:
            stream.save(tmp_path / "s.json")
            stream = Stream.load(tmp_path / "s.json")
    policy = stream.policy()
    hashed = hash_evidence(policy.feature_map, whole)
    assert policy.fingerprints == (hashed,)
    assert shares_rows(hashed, policy.fingerprints)
    assert not shares_rows(hash_evidence(policy.feature_map, evidence(4, 1200)), policy.fingerprints)
