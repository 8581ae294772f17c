from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bylaw import EvidenceError
from bylaw.policy import hash_ids
from bylaw.policy._sampling import check_ids, sample_actions, sample_by_id, sample_pivotal, uniforms_by_id

LAW = np.random.default_rng(0).dirichlet(np.full(4, 0.4), size=20_000).T  # (4, 20000)


def test_draws_follow_the_law():
    drawn = sample_actions(LAW, np.random.default_rng(1).random(LAW.shape[1]))
    counts = np.bincount(drawn, minlength=4)
    spread = np.sqrt((LAW * (1 - LAW)).sum(axis=1))
    assert (np.abs(counts - LAW.sum(axis=1)) < 4 * spread).all()


def test_impossible_actions_are_never_drawn():
    distribution = np.array([[0.0], [1 - 2**-53], [0.0]])
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert sample_actions(distribution, np.array([uniform])).tolist() == [1]


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 400), st.floats(0.05, 3))
def test_balanced_counts_stay_near_their_expectation(seed, n_actions, n_rows, softness):
    rng = np.random.default_rng(seed)
    distribution = rng.dirichlet(np.full(n_actions, softness), size=n_rows).T
    counts = np.bincount(sample_pivotal(distribution, rng), minlength=n_actions)
    # At most one row stays undecided per pair of actions.
    assert (np.abs(counts - distribution.sum(axis=1)) <= n_actions * (n_actions - 1) / 2 + 1e-6).all()


@pytest.mark.slow
def test_balanced_draws_keep_each_rows_law():
    distribution = np.random.default_rng(1).dirichlet(np.ones(3), size=11).T
    rng = np.random.default_rng(2)
    seen = np.zeros_like(distribution)
    repeats = 1000
    for _ in range(repeats):
        seen[sample_pivotal(distribution, rng), np.arange(11)] += 1
    error = np.sqrt(distribution * (1 - distribution) / repeats)
    assert (np.abs(seen / repeats - distribution) < 4.5 * error).all()


def uniforms(ids, key="k"):
    return next(uniforms_by_id(check_ids(ids, len(ids)), key))


def draws(ids, key, count):
    """Columns of uniform numbers as a policy draws them, four from each digest."""
    for first in range(0, count, 4):
        yield from uniforms_by_id(np.array(ids), key, f"/{first // 4}", min(4, count - first))


def test_keyed_uniforms_are_the_hash_that_anyone_can_compute():
    assert uniforms(["ann"], "key")[0] == 0xE470B988E62A7 / 2**52  # printf key/ann | sha256sum
    columns = list(draws(["ann", "7"], "key", 6))
    for i, column in enumerate(columns):
        for row, name in enumerate(("ann", "7")):
            digest = hashlib.sha256(f"key/{name}/{i // 4}".encode()).hexdigest()
            assert column[row] == int(digest[13 * (i % 4) :][:13], 16) / 2**52


def test_ids_have_one_spelling():
    as_text = uniforms(["1", "2"])
    assert (uniforms([1, 2]) == as_text).all()
    assert (uniforms(np.array([1, 2], dtype=np.uint8)) == as_text).all()
    assert not (uniforms([1, 2], "other") == as_text).any()


WHOLE = [0, 1, 9, 10, 99, 100, 12_345_678, 10**15, 10**17 + 1, 2**53 + 1]


@pytest.mark.parametrize("ending", ["", "/3"])
@pytest.mark.parametrize(
    "ids",
    [
        np.array(WHOLE),
        np.array(WHOLE, dtype=np.uint64),
        np.array([*WHOLE, 2**63 - 1]),
        np.array([2**64 - 1, 3], dtype=np.uint64),
        np.array([5, -5, 0]),
        np.array([7], dtype=np.int8),
        np.array([], dtype=np.int64),
        np.array(["a", "ä", "12", "zero at the end\0", ""], dtype=object),
    ],
    ids=str,
)
def test_ids_are_spelled_as_python_spells_them(ids, ending):
    digests = [hashlib.sha256(f"k/{name}{ending}".encode()).digest() for name in ids.tolist()]
    hashes = hash_ids(ids, "k/", ending)
    assert hashes.dtype == np.uint64
    np.testing.assert_array_equal(hashes, np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4))


@pytest.mark.parametrize("count", [1, 7])
def test_only_open_rows_are_hashed_and_nothing_changes(count, monkeypatch):
    rng = np.random.default_rng(0)
    distributions = [rng.dirichlet(np.full(3, 0.3), size=500).T for _ in range(count)]
    for distribution in distributions:
        distribution[:, rng.random(500) < 0.7] = np.eye(3)[:, [1]]
    ids = [f"id {i}" for i in range(500)]
    plain = [
        sample_actions(distribution, column)
        for distribution, column in zip(distributions, draws(ids, "k", count), strict=True)
    ]
    hashed = []
    monkeypatch.setattr(
        "bylaw.policy._sampling.hash_ids",
        lambda ids, prefix, ending: hashed.append(len(ids)) or hash_ids(ids, prefix, ending),
    )
    for mine, theirs in zip(sample_by_id(distributions, ids, "k"), plain, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    open_rows = [
        np.any(
            [(distribution > 0).sum(axis=0) > 1 for distribution in distributions[i : i + 4]], axis=0
        ).sum()
        for i in range(0, count, 4)
    ]
    assert hashed == open_rows
    assert hashed[0] < 500 * (0.4 if count == 1 else 0.9)


def test_keyed_uniforms_are_uniform():
    for column in draws(np.arange(20_000), "key", 5):
        distance = np.abs(np.sort(column) - (np.arange(20_000) + 0.5) / 20_000).max()
        assert distance < 1.95 / np.sqrt(20_000)  # Kolmogorov-Smirnov at 0.1 %


@pytest.mark.parametrize("ids", [[1.5, 2.5], [True, False], [b"a", b"b"], [("a", 1), ("b", 2)]])
def test_ids_without_one_spelling_are_refused(ids):
    column = np.empty(2, dtype=object)
    column[:] = ids
    with pytest.raises(EvidenceError, match="strings or whole numbers"):
        uniforms(column)


def test_ids_of_another_length_are_refused():
    with pytest.raises(EvidenceError, match="ids has 3 rows"):
        check_ids([1, 2, 3], 2)


def test_half_a_character_is_refused():
    with pytest.raises(EvidenceError, match="lone surrogate"):
        hash_ids(np.array(["a\ud800"], object), "k/", "")
