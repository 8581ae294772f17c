"""Rows are recognised whole, in part, in any order, among others; unrelated ones are not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bylaw.policy.fingerprint import BUCKETS, NO_ROWS, Fingerprint, hash_features, make_fingerprint
from bylaw.policy.recognition import RowsAtHand, measure_sameness, measure_shared, shares_rows

ROWS, OTHERS = np.random.default_rng(0).random((2, 3, 5000))


def at_hand(rows):
    return RowsAtHand.from_hashes(hash_features(np.atleast_2d(rows)))


def saved(rows):
    return make_fingerprint([np.atleast_2d(rows)])


def shares(one, other):
    found = shares_rows(at_hand(one), (saved(other),))
    assert found == shares_rows(at_hand(other), (saved(one),))
    return found


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (ROWS, True),
        (ROWS[:, ::-1], True),
        (ROWS[:, ::7], True),
        (np.hstack([ROWS, OTHERS]), True),
        (np.hstack([ROWS[:, :1000], OTHERS[:, :4000]]), True),
        (OTHERS, False),
        (OTHERS[:, :20], False),
        (ROWS[::-1], False),
        (ROWS + 1e-9, True),
        (ROWS.round(3), False),
    ],
    ids=[
        "same",
        "backwards",
        "spread",
        "within",
        "fifth",
        "others",
        "few others",
        "columns swapped",
        "in the last digits",
        "rounded",
    ],
)
def test_common_rows_are_recognised(other, shared):
    assert shares(ROWS, other) is shared


@pytest.mark.parametrize("rows", [100, 240, 400])
def test_few_rows_are_recognised_as_well(rows):
    assert shares(ROWS[:, :rows], ROWS[:, :rows])
    assert not shares(ROWS[:, :rows], OTHERS[:, :rows])


def test_a_small_part_is_recognised_and_a_small_set_within_many_is_not():
    """300 of 5,000: their noise is less than that of 5,000 rows on 300."""
    assert shares_rows(at_hand(ROWS[:, :300]), (saved(ROWS),))
    assert not shares_rows(at_hand(np.hstack([ROWS, OTHERS])), (saved(ROWS[:, :100]),))


def test_a_single_row_is_never_recognised():
    """Neither by itself nor in its set; a handful is not, either."""
    for few in (1, 5):
        assert not shares_rows(at_hand(ROWS[:, :few]), (saved(ROWS[:, :few]),))
        assert not shares_rows(at_hand(ROWS[:, :few]), (saved(ROWS),))


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


POPULATIONS = [0, 2, 300, 30_000, "clipped", "zipf"]


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("fitted", "audited"), [(2000, 2000), (500, 20_000), (100_000, 3000)])
def test_independent_samples_of_one_population_are_not_taken_for_each_other(population, fitted, audited):
    """Evidence of 15 is needed; of four samples none comes near, however coarse the scores are."""
    rng = np.random.default_rng([fitted, audited])
    for _ in range(4):
        part, rows = saved(draw(population, fitted, rng)), at_hand(draw(population, audited, rng))
        assert measure_shared(rows, part) < 8
        assert fitted != audited or measure_sameness(rows, part) < 3


@pytest.mark.slow
@pytest.mark.parametrize("population", [p for p in POPULATIONS if p != 2])
def test_the_very_same_rows_are_recognised_however_coarse(population):
    rows = draw(population, 3000, np.random.default_rng(1))
    assert shares(rows, rows[::-1])


def test_two_values_say_too_little_of_the_very_same_rows():
    """One count that is free to vary: noise hides it, and there is no false alarm either."""
    rows = draw(2, 1000, np.random.default_rng(1))
    assert not shares(rows, rows)


def test_a_part_of_scores_that_are_partly_coarse_is_recognised():
    rows = draw("clipped", 5000, np.random.default_rng(1))
    assert shares(rows, rows[::3])


@pytest.mark.slow
def test_evidence_by_accident_is_as_rare_as_it_says():
    """For unrelated rows P(evidence >= x) <= exp(-x); also where counts happen to be more even than usual."""
    rng = np.random.default_rng(2)
    found = [measure_shared(at_hand(rng.random(60)), saved(rng.random(40))) for _ in range(1000)]
    for level in (1, 2, 3, 4):
        assert np.mean(np.array(found) >= level) <= 0.6 * np.exp(-level)


def test_nobody_shares_rows_with_no_rows():
    assert not shares_rows(at_hand(ROWS), (NO_ROWS, NO_ROWS.release()))
    assert not shares_rows(at_hand(ROWS[:, :0]), (saved(ROWS), saved(ROWS[:, :0])))
    assert not shares_rows(at_hand(ROWS), ())


def test_parts_are_recognised_by_themselves_and_together():
    """Coarse scores, where only exact sets are recognised, and a small part beside a large one."""
    rng = np.random.default_rng(1)
    coarse = [np.round(rng.random(1000), 2) for _ in range(3)]
    parts = tuple(saved(piece) for piece in coarse)
    for n in (1, 2, 3):
        for chosen in itertools.combinations(coarse, n):
            assert shares_rows(at_hand(np.hstack(chosen)), parts)
    assert not shares_rows(at_hand(np.round(rng.random(1000), 2)), parts)
    large, small = rng.random((3, 100_000)), rng.random((3, 1000))
    parts = saved(large), saved(small)
    assert shares_rows(at_hand(small[:, :300]), parts)
    assert shares_rows(at_hand(large[:, ::50]), parts)


def test_many_parts_are_compared_one_by_one_and_all_together():
    empty = (NO_ROWS.release(),) * 30
    assert shares_rows(at_hand(ROWS), (*empty, saved(ROWS)))
    parts = tuple(saved(piece) for piece in np.split(ROWS, 25, axis=1))
    assert shares_rows(at_hand(ROWS), parts)
    assert shares_rows(at_hand(ROWS[:, :200]), parts)
    assert not shares_rows(at_hand(OTHERS), parts)


@pytest.mark.parametrize("counts", [np.zeros(BUCKETS, np.int64), np.full(BUCKETS, 10**9)])
def test_any_counts_can_be_compared(counts):
    """A file may hold any: there is an answer, and no overflow."""
    for rows in (1, 5000, 10**15):
        for draws in (1, 10**6):
            shares_rows(at_hand(ROWS), (Fingerprint(rows, counts.copy(), draws),))


def test_copies_of_fitted_rows_are_recognised():
    """Repeated, sampled again, oversampled, or written as 32-bit numbers."""
    rng = np.random.default_rng(0)
    for n in (500, 4000):
        fitted = rng.random((3, n))
        known = (make_fingerprint([fitted]),)
        half = fitted[:, : n // 2]
        copies = [np.tile(fitted, 2), np.tile(fitted, 20), np.tile(half, 5), fitted.astype(np.float32)]
        copies.append(np.hstack([fitted, half]))
        if n == 4000:
            copies.append(fitted[:, rng.integers(0, n, n)])
        for copied in copies:
            at_hand = RowsAtHand.from_hashes(hash_features(copied.astype(np.float64)))
            assert shares_rows(at_hand, known)
        others = np.tile(rng.random((3, n)), 20)
        assert not shares_rows(RowsAtHand.from_hashes(hash_features(others)), known)


@pytest.mark.parametrize("values", [8, 100, 2000, 10**5])
def test_repeats_of_coarse_scores_are_no_copies(values):
    """Two samples of one population share many scores, which they also do after copies are dropped."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        fitted, others = (np.floor(values * rng.beta(0.7, 2.0, (1, 3000))) for _ in range(2))
        at_hand = RowsAtHand.from_hashes(hash_features(others))
        assert not at_hand.copied
        assert not shares_rows(at_hand, (make_fingerprint([fitted]),))


def test_copies_are_told_from_independent_rows():
    rng = np.random.default_rng(2)
    rows = rng.random((1, 400))

    def copied(rows):
        return RowsAtHand.from_hashes(hash_features(rows)).copied

    assert not copied(rows)
    assert not copied(np.hstack([rows, rows[:, :20]]))  # so few tell nothing
    assert copied(np.hstack([rows, rows[:, :200]]))
    assert copied(np.tile(rows, 10))


@pytest.mark.parametrize(("share", "copied"), [(0.3, False), (0.2, True)])
def test_rows_are_copied_if_far_fewer_occur_thrice_than_independent_ones_would(share, copied):
    """Of 10,000 independent rows that each occur a Poisson number of times, of mean one. The limit is a
    quarter of the number that occur three times."""
    repeats = [round(10_000 * math.exp(-1) / math.factorial(times)) for times in range(4)]
    hashes = np.repeat(np.arange(sum(repeats[1:]), dtype=np.uint64), np.repeat([1, 2, 3], repeats[1:]))
    thrice = round((1 - share) * repeats[3])  # of these, no row is left
    assert RowsAtHand.from_hashes(hashes[: len(hashes) - 3 * thrice]).copied == copied
