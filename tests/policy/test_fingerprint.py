"""Rows are recognised whole, in part, in any order; others are not."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, PolicyFileError, Problem, Stream, error, rejected, solve
from bylaw.policy.fingerprint import NO_ROWS, fingerprint_evidence, make_fingerprint, shares_rows
from bylaw.policy.policy import Policy

RNG = np.random.default_rng(0)
ROWS = RNG.random((3, 5000))
OTHERS = RNG.random((3, 5000))


def shares(one, other):
    found = make_fingerprint([one]).shares_rows_with(make_fingerprint([other]))
    assert found == make_fingerprint([other]).shares_rows_with(make_fingerprint([one]))
    return found


def test_the_order_and_the_pieces_do_not_matter():
    whole = make_fingerprint([ROWS])
    shuffled = ROWS[:, RNG.permutation(5000)]
    assert make_fingerprint([shuffled[:, :100], shuffled[:, 100:3000], shuffled[:, 3000:]]) == whole
    assert whole.rows == 5000


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (ROWS, True),
        (ROWS[:, :300], True),
        (ROWS[:, ::7], True),
        (np.hstack([ROWS, OTHERS]), True),
        (np.hstack([ROWS[:, :1000], OTHERS[:, :4000]]), True),
        (OTHERS, False),
        (OTHERS[:, :20], False),
        (ROWS[::-1], False),
        (ROWS + 1e-16, False),
    ],
    ids=["same", "start", "spread", "within", "fifth", "others", "few others", "columns swapped", "rounded"],
)
def test_common_rows_are_recognised(other, shared):
    if other is not ROWS and np.array_equal(other, ROWS):
        pytest.skip("rounding changed nothing")
    assert shares(ROWS, other) is shared


def test_rows_that_look_alike_by_accident_are_no_proof():
    """Scores on a grid: independent rows repeat each other; only the very same ones are recognised."""
    grid, later = (np.round(RNG.random((1, 5000)), 2) for _ in range(2))
    assert not shares(grid, later)
    assert shares(grid, grid[:, ::-1])


def test_a_single_row_that_looks_alike_is_no_proof():
    mixed = OTHERS.copy()
    mixed[:, 0] = ROWS[:, np.argmin(ROWS[0])]
    assert not shares(ROWS, mixed)


def test_minus_zero_is_zero():
    assert make_fingerprint([np.array([[0.0]])]) == make_fingerprint([np.array([[-0.0]])])


def test_nobody_shares_rows_with_no_rows():
    assert not make_fingerprint([ROWS]).shares_rows_with(NO_ROWS)


def evidence(seed, n=400):
    chance = np.random.default_rng(seed).random(n)
    return Evidence(np.column_stack([chance, 1 - chance]))


PROBLEM = Problem(error(), [rejected() <= 0.1])


def test_a_policy_knows_its_rows_also_from_a_file(tmp_path):
    policy = solve(PROBLEM, evidence(0))
    policy.save(tmp_path / "p.json")
    for known in (policy, Policy.load(tmp_path / "p.json")):
        for seed, shared in ((0, True), (1, False)):
            assert (
                shares_rows(fingerprint_evidence(known.feature_map, evidence(seed)), known.fingerprints)
                is shared
            )


def test_a_damaged_fingerprint_is_refused(tmp_path):
    path = tmp_path / "p.json"
    solve(PROBLEM, evidence(0)).save(path)
    text = path.read_text()
    place = text.index('"sketch"') + 20
    path.write_text(text[:place] + "zz" + text[place + 2 :])
    with pytest.raises(PolicyFileError, match="hexadecimal"):
        Policy.load(path)


def test_streams_add_up(tmp_path):
    whole = evidence(3, 1200)
    stream = Stream(PROBLEM, 1200, warm_up=100)
    for start in range(0, 1200, 300):
        stream.partial_fit(whole.rows(slice(start, start + 300)))
        stream.save(tmp_path / "s.json")
        stream = Stream.load(tmp_path / "s.json")
    policy = stream.policy()
    assert policy.fingerprints == (fingerprint_evidence(policy.feature_map, whole),)


def test_parts_are_recognised_by_themselves_and_together():
    """Coarse scores, where only exact sets are recognised, and a small part beside a large one."""
    coarse = [np.round(RNG.random((1, 500)), 1) for _ in range(3)]
    parts = tuple(make_fingerprint([piece]) for piece in coarse)
    for chosen in ([0], [2], [0, 1], [1, 2], [0, 1, 2]):
        together = make_fingerprint([np.hstack([coarse[i] for i in chosen])])
        assert shares_rows(together, parts)
    assert not shares_rows(make_fingerprint([np.round(RNG.random((1, 500)), 1)]), parts)
    large, small = RNG.random((3, 100_000)), RNG.random((3, 1000))
    parts = make_fingerprint([large]), make_fingerprint([small])
    assert shares_rows(make_fingerprint([small[:, :300]]), parts)
    assert shares_rows(make_fingerprint([large[:, ::50]]), parts)
