"""Counts of rows with noise: the same for the same rows, and no more of a single row than epsilon allows."""

from __future__ import annotations

import base64
import json
import math

import numpy as np
import pytest

from bylaw import Evidence, PolicyFileError, Problem, Stream, error, rejected, solve
from bylaw._base.json_reader import Node
from bylaw.policy import fingerprint
from bylaw.policy.fingerprint import (
    BUCKETS,
    EPSILON,
    NO_ROWS,
    Fingerprint,
    count_rows,
    hash_features,
    make_fingerprint,
    noise_distribution,
    noise_variance,
)
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import hash_evidence, shares_rows

ROWS = np.random.default_rng(0).random((3, 5000))
PROBLEM = Problem(error(), [rejected() <= 0.1])


def evidence(seed, n=400, decimals=16):
    chance = np.round(np.random.default_rng(seed).random(n), decimals)
    return Evidence(np.column_stack([chance, 1 - chance]))


@pytest.fixture
def other_noise(monkeypatch):
    """As in another process, by its number."""
    return lambda number: monkeypatch.setattr(fingerprint, "_SECRET", number.to_bytes(32, "little"))


def test_the_order_and_the_pieces_do_not_matter():
    whole = make_fingerprint([ROWS])
    shuffled = ROWS[:, np.random.default_rng(1).permutation(5000)]
    pieces = [shuffled[:, :100], shuffled[:, 100:3000], shuffled[:, 3000:]]
    assert make_fingerprint(pieces) == whole
    assert sum((count_rows([piece]) for piece in pieces), NO_ROWS).release() == whole
    assert hash(make_fingerprint(pieces)) == hash(whole)
    assert (whole.rows, whole.draws) == (5000, 1)
    assert count_rows([ROWS]).counts.sum() == 5000


def test_minus_zero_is_zero():
    assert make_fingerprint([np.array([[0.0]])]) == make_fingerprint([np.array([[-0.0]])])


def test_buckets_are_equally_likely():
    counts = count_rows([np.arange(200_000.0)[None] / 7]).counts
    squares = np.square(counts - 200_000 / BUCKETS).sum() / (200_000 / BUCKETS)
    assert abs(squares - BUCKETS) < 5 * math.sqrt(2 * BUCKETS)


def test_noise_is_that_of_the_discrete_laplace_distribution(other_noise):
    found = []
    for number in range(60):
        other_noise(number)
        found.append(NO_ROWS.release().counts)
    noise = np.concatenate(found)
    chances = noise_distribution(1)
    for value in range(-6, 7):
        expected = chances[len(chances) // 2 + value]
        assert expected == pytest.approx(math.tanh(EPSILON / 2) * math.exp(-EPSILON * abs(value)), rel=1e-9)
        assert (noise == value).mean() == pytest.approx(expected, abs=5 * math.sqrt(expected / len(noise)))
    assert noise.var() == pytest.approx(noise_variance(), rel=0.03)
    pairs = noise.reshape(-1, BUCKETS)
    assert abs(np.corrcoef(pairs[0], pairs[1])[0, 1]) < 5 / math.sqrt(BUCKETS)


@pytest.mark.parametrize("draws", [0, 1, 2, 5, 30, 31, 1000])
def test_sums_of_noise_have_their_variance(draws):
    chances = noise_distribution(draws)
    values = np.arange(len(chances)) - len(chances) // 2
    assert chances.sum() == pytest.approx(1)
    assert chances @ np.square(values) == pytest.approx(draws * noise_variance(), rel=1e-6)


def test_the_same_rows_have_other_noise_in_another_process(other_noise):
    other_noise(1)
    one = make_fingerprint([ROWS])
    other_noise(2)
    assert make_fingerprint([ROWS]) != one


def test_the_secret_is_not_in_what_is_saved(tmp_path, monkeypatch):
    secret = bytes(range(32))
    monkeypatch.setattr(fingerprint, "_SECRET", secret)
    solve(PROBLEM, evidence(0)).save(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    assert secret.hex() not in text
    assert base64.b64encode(secret).decode().rstrip("=") not in text


def test_exact_counts_cannot_be_saved():
    with pytest.raises(ValueError, match="release"):
        count_rows([ROWS]).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("exchanged", [False, True], ids=["left out", "exchanged"])
def test_membership_of_a_row_is_told_no_better_than_epsilon_allows(tmp_path, other_noise, exchanged):
    """The best attack: all other rows are known, and the row is guessed exactly. The likelihood ratio of the
    two sets is bounded by exp(epsilon) in every file, and its test has the power that theory gives."""
    most = EPSILON * (2 if exchanged else 1)
    rng = np.random.default_rng(1)
    rows = rng.random((2, 300))
    row, without = rows[:, :1], rows[:, 1:]
    other = np.hstack([without, rng.random((2, 1))]) if exchanged else without
    sides = [count_rows([rows]), count_rows([other])]
    assert np.abs(sides[0].counts - sides[1].counts).sum() == (2 if exchanged else 1)
    assert count_rows([row]).counts.sum() == 1
    guessed, draws = np.zeros(2), 800
    for number in range(draws):
        other_noise(number)
        for truth, side in enumerate(sides):
            seen = Fingerprint.from_node(Node(side.release().to_dict(), "part"))
            apart = [np.abs(seen.counts - side.counts).sum() for side in sides]
            log_ratio = EPSILON * (apart[1] - apart[0])
            assert abs(log_ratio) <= most + 1e-9
            guessed[truth] += log_ratio > 0 if truth == 0 else log_ratio <= 0
    advantage = guessed.sum() / draws - 1
    assert advantage <= math.tanh(most / 2) + 4 / math.sqrt(2 * draws)
    if not exchanged:  # the bound is reached: there is no more noise than needed
        assert advantage == pytest.approx(math.tanh(EPSILON / 2), abs=4 / math.sqrt(2 * draws))


def test_rows_are_not_recovered_by_guessing(tmp_path):
    """Scores with two decimals: every row that there can be is tried on the saved file. What could be told
    of each is the count of its bucket, and that of rows in the set is hardly above that of the others."""
    rows = evidence(0, 60, decimals=2)
    policy = solve(PROBLEM, rows)
    policy.save(tmp_path / "p.json")
    (saved,) = json.loads((tmp_path / "p.json").read_text())["fingerprints"]
    counts = Fingerprint.from_node(Node(saved, "part")).counts
    grid = np.arange(101) / 100
    guesses = Evidence(np.column_stack([grid, 1 - grid]))
    features = policy.feature_map.columns(
        policy.feature_map.admit(guesses), slice(0, 101), np.empty((len(policy.feature_map.features), 101))
    )
    buckets = hash_features(features) >> np.uint64(51)
    present = np.isin(grid, rows.probabilities[:, 0])
    found = counts[buckets.astype(int)] > 0
    assert found[present].mean() < 0.9  # with hashes, all were found
    assert found[~present].mean() > 0.1  # and no others


def test_a_policy_knows_its_rows_also_from_a_file(tmp_path):
    policy = solve(PROBLEM, evidence(0))
    policy.save(tmp_path / "p.json")
    for known in (policy, Policy.load(tmp_path / "p.json")):
        assert known.fingerprints == policy.fingerprints
        for seed, shared in ((0, True), (1, False)):
            found = shares_rows(hash_evidence(known.feature_map, evidence(seed)), known.fingerprints)
            assert found is shared


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"rows": 400, "draws": 1, "counts": "zz!"}, "base64"),
        ({"rows": 400, "draws": 1, "counts": "AAAA"}, "8,192 counts"),
        ({"rows": 400, "draws": 0, "counts": ""}, "draws must be from 1"),
        ({"rows": 400, "draws": 1}, "no 'counts'"),
        ({"rows": 4, "draws": 1, "counts": base64.b64encode(b"\x7f" * BUCKETS).decode()}, "counts of 4 rows"),
        ({"rows": 2, "total": "00", "sketch": "00"}, "2 smallest hashes"),
    ],
)
def test_a_damaged_fingerprint_is_refused(tmp_path, part, message):
    path = tmp_path / "p.json"
    solve(PROBLEM, evidence(0)).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprints": [part]}))
    with pytest.raises(PolicyFileError, match=message):
        Policy.load(path)


@pytest.mark.parametrize("rows", [3, 100_000, 10_000_000])
def test_counts_of_any_size_are_saved(rows):
    counts = np.full(BUCKETS, rows // BUCKETS)
    counts[0] = rows
    found = Fingerprint(2 * rows, counts, 1)
    assert Fingerprint.from_node(Node(json.loads(json.dumps(found.to_dict())), "part")) == found


def test_streams_add_up(tmp_path):
    """Without a break, to the last bit; rows before and after a break have noise of their own."""
    whole = evidence(3, 1200)
    batches = [whole.rows(slice(start, start + 300)) for start in range(0, 1200, 300)]
    stream = Stream(PROBLEM, 1200, warm_up=100)
    for batch in batches:
        stream.partial_fit(batch)
    policy = stream.policy()
    hashed = hash_evidence(policy.feature_map, whole)
    assert policy.fingerprints == (hashed.make_fingerprint(),)
    stream = Stream(PROBLEM, 1200, warm_up=100)
    for batch in batches:
        stream.partial_fit(batch)
        stream.save(tmp_path / "s.json")
        stream = Stream.load(tmp_path / "s.json")
    (found,) = stream.policy().fingerprints
    assert (found.rows, found.draws) == (1200, 4)
    assert shares_rows(hashed, (found,))
    assert not shares_rows(hash_evidence(policy.feature_map, evidence(4, 1200)), (found,))
