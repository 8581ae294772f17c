"""Rows are recognized as a table, in any order, and in the process that fitted them in part; others are
not."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest

from bylaw.policy import Fingerprint, TableSum, hash_features, shares_rows

ROWS, OTHERS = np.random.default_rng(0).random((2, 3, 5000))


def fitted(rows):
    """In the process that fitted these rows."""
    return Fingerprint.from_hashes(hash_features(np.atleast_2d(rows)))


def saved(rows):
    return pickle.loads(pickle.dumps(fitted(rows)))


def shares(one, other, make=fitted):
    found = shares_rows(fitted(one), (make(other),))
    assert found == shares_rows(fitted(other), (make(one),))
    return found


@pytest.mark.parametrize(
    ("other", "shared", "whole"),
    [
        (ROWS, True, True),
        (ROWS[:, ::-1], True, True),
        (ROWS + 1e-15, True, True),
        (ROWS[:, ::7], True, False),
        (np.hstack([ROWS, OTHERS]), True, False),
        (np.hstack([ROWS[:, :1000], OTHERS[:, :4000]]), True, False),
        (OTHERS, False, False),
        (OTHERS[:, :20], False, False),
        (ROWS[::-1], False, False),
        (ROWS + 1e-9, True, False),
        (ROWS.round(3), False, False),
    ],
    ids=[
        "same",
        "backwards",
        "in the last digits",
        "spread",
        "within",
        "fifth",
        "others",
        "few others",
        "columns swapped",
        "in the ninth digit",
        "rounded",
    ],
)
def test_common_rows_are_recognised(other, shared, whole):
    """In the same process, and as a whole from a file."""
    assert shares(ROWS, other) is shared
    assert shares(ROWS, other, saved) is whole


@pytest.mark.parametrize("make", [fitted, saved])
@pytest.mark.parametrize("rows", [12, 100, 240, 400])
def test_few_rows_are_recognised_as_well(rows, make):
    assert shares(ROWS[:, :rows], ROWS[:, :rows], make)
    assert not shares(ROWS[:, :rows], OTHERS[:, :rows], make)


def test_a_small_part_is_recognised_and_a_small_set_within_many_is_not():
    """Of 100 rows with no repetition, 28 at most are expected to be repeated, and so are 28 % of 10,000."""
    assert shares_rows(fitted(ROWS[:, :30]), (fitted(ROWS),))
    assert not shares_rows(fitted(np.hstack([ROWS, OTHERS])), (fitted(ROWS[:, :100]),))


def test_a_single_row_is_never_recognised():
    """Neither by itself nor in its set, since scores may agree by accident; a few rows of a set are."""
    assert not shares_rows(fitted(ROWS[:, :1]), (fitted(ROWS[:, :1]),))
    assert not shares_rows(fitted(ROWS[:, :1]), (fitted(ROWS),))
    assert shares_rows(fitted(ROWS[:, :5]), (fitted(ROWS),))


def test_rows_with_two_decimals_are_recognised_only_as_the_very_same():
    """Scores on a grid: independent samples repeat each other."""
    grid, later = np.round(np.random.default_rng(1).random((2, 5000)), 2)
    assert not shares(grid, later)
    assert shares(grid, grid[::-1])
    assert not shares(grid, grid[:2500])
    changed = np.hstack([grid[:2500], later[2500:]])
    assert not shares(grid, changed)


def draw(population, n, rng):
    if population == "clipped":  # a third of the scores is 0 or 1
        return np.clip(rng.normal(0.5, 0.5, n), 0, 1)
    if population == "zipf":
        weights = 1 / np.arange(1, 3001)
        return rng.choice(3000, n, p=weights / weights.sum()).astype(float)
    return rng.integers(population, size=n).astype(float) if population else rng.random(n)


POPULATIONS = [0, 2, 300, 30_000, 10**7, "clipped", "zipf"]


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("first", "second"), [(2000, 2000), (500, 20_000), (100_000, 3000)])
def test_independent_samples_of_one_population_are_not_taken_for_each_other(population, first, second):
    """However coarse the scores are."""
    rng = np.random.default_rng([first, second])
    for _ in range(20):
        assert not shares(draw(population, first, rng), draw(population, second, rng))


@pytest.mark.parametrize("make", [fitted, saved])
@pytest.mark.parametrize("population", [p for p in POPULATIONS if p != 2])
def test_the_very_same_rows_are_recognised_however_coarse(population, make):
    rows = draw(population, 3000, np.random.default_rng(1))
    assert shares(rows, rows[::-1], make)


def test_two_values_say_too_little_of_the_very_same_rows():
    """Two samples of them are the same table by accident."""
    rows = draw(2, 1000, np.random.default_rng(1))
    assert not shares(rows, rows)


def test_a_part_of_scores_that_are_partly_coarse_is_recognised():
    rows = draw("clipped", 5000, np.random.default_rng(1))
    assert shares(rows, rows[::3])


def test_nobody_shares_rows_with_no_rows():
    nothing = fitted(ROWS[:, :0])
    assert not shares_rows(fitted(ROWS), (nothing, TableSum().make_fingerprint(), Fingerprint(5000)))
    assert not shares_rows(nothing, (fitted(ROWS), nothing))
    assert not shares_rows(fitted(ROWS), ())


def test_parts_are_recognised_by_themselves_and_together():
    """Coarse scores, where only exact sets are recognized; also from a file."""
    rng = np.random.default_rng(1)
    coarse = [np.round(rng.random(1000), 2) for _ in range(3)]
    parts = ()
    for piece in coarse:
        parts = fitted(piece).join(parts)
    for known in (parts, pickle.loads(pickle.dumps(parts))):
        assert known == parts
        for n in (1, 2, 3):
            for chosen in itertools.combinations(coarse, n):
                assert shares_rows(fitted(np.hstack(chosen)), known)
        assert not shares_rows(fitted(np.round(rng.random(1000), 2)), known)


def test_a_part_of_each_part_is_recognised():
    rng = np.random.default_rng(1)
    large, small = rng.random((3, 100_000)), rng.random((3, 1000))
    parts = fitted(large), fitted(small)
    assert shares_rows(fitted(small[:, :300]), parts)
    assert shares_rows(fitted(large[:, ::50]), parts)


def test_many_parts_are_compared_one_by_one():
    parts = tuple(fitted(piece) for piece in np.split(ROWS, 25, axis=1))
    assert shares_rows(fitted(ROWS[:, :1000]), parts)
    assert shares_rows(fitted(ROWS[:, :200]), parts)
    assert not shares_rows(fitted(OTHERS), parts)


def test_copies_of_fitted_rows_are_recognised():
    """Repeated, sampled again, oversampled, or written as 32-bit numbers."""
    rng = np.random.default_rng(0)
    for n in (500, 4000):
        rows = rng.random((3, n))
        known = (fitted(rows),)
        half = rows[:, : n // 2]
        copies = [np.tile(rows, 2), np.tile(rows, 20), np.tile(half, 5), rows.astype(np.float32)]
        copies += [np.hstack([rows, half]), rows[:, rng.integers(0, n, n)]]
        for copied in copies:
            assert shares_rows(fitted(copied.astype(np.float64)), known)
        assert not shares_rows(fitted(np.tile(rng.random((3, n)), 20)), known)


@pytest.mark.parametrize("values", [8, 100, 2000, 10**5])
def test_repeats_of_coarse_scores_are_no_copies(values):
    """Two samples of one population share many scores."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows, others = (fitted(np.floor(values * rng.beta(0.7, 2.0, (1, 3000)))) for _ in range(2))
        assert not others.copied
        assert not shares_rows(others, (rows,))


def test_copies_are_told_from_independent_rows():
    rng = np.random.default_rng(2)
    rows = rng.random((1, 400))
    assert not fitted(rows).copied
    assert not fitted(np.hstack([rows, rows[:, :20]])).copied  # so few tell nothing
    assert fitted(np.hstack([rows, rows[:, :200]])).copied
    assert fitted(np.tile(rows, 10)).copied


@pytest.mark.parametrize(("share", "copied"), [(0.3, False), (0.2, True)])
def test_rows_are_copied_if_far_fewer_occur_thrice_than_independent_ones_would(share, copied):
    """Of 10,000 independent rows that each occur a Poisson number of times, of mean one. The limit is a
    quarter of the number that occur three times."""
    repeats = [round(10_000 * math.exp(-1) / math.factorial(times)) for times in range(4)]
    hashes = np.repeat(np.arange(sum(repeats[1:]), dtype=np.uint64), np.repeat([1, 2, 3], repeats[1:]))
    thrice = round((1 - share) * repeats[3])  # of these, no row is left
    assert Fingerprint.from_hashes(hashes[: len(hashes) - 3 * thrice]).copied == copied
