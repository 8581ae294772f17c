"""The streams have the gaps they are said to have, and contestants do what theory says of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.monitoring import contestants, peers, streams


def within(found: float, expected: float, error: float) -> bool:
    return abs(found - expected) < 4 * error


@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("gap", [0.02, 0.05, 0.15])
def test_streams_have_the_stated_gap(gap, share):
    days = streams.draw([gap] * 1000, share, np.random.default_rng(0))
    n = days.group.size
    a, b = (days.decision[days.group == group] for group in (0, 1))
    error = np.sqrt(0.3 * 0.7 * (1 / len(a) + 1 / len(b)))
    assert within(a.mean() - b.mean(), gap, error)
    assert within(days.decision.mean(), 0.3, np.sqrt(0.21 / n))
    assert within(len(b) / n, share, np.sqrt(share * (1 - share) / n))
    assert within(days.gaps.mean(), gap, days.gaps.std() / np.sqrt(1000))


def test_scores_are_the_chances_of_approval():
    days = streams.draw([0.15] * 400, 0.5, np.random.default_rng(0))
    for low in np.linspace(0, 0.9, 10):
        rows = (days.score >= low) & (days.score < low + 0.1)
        assert within(days.decision[rows].mean(), days.score[rows].mean(), 0.5 / np.sqrt(rows.sum()))


@pytest.mark.slow
def test_the_gap_changes_on_the_day_of_the_change():
    scenario = peers.Scenario(0.5, 0.15, True)
    gaps = np.mean([streams.make_stream(scenario.gaps, 0.5, seed).gaps for seed in range(75)], axis=0)
    error = np.sqrt(0.84 / 500 / 75)
    assert len(gaps) == peers.CHANGE + peers.LATER
    assert within(gaps[peers.CHANGE - 1], 0.02, error)
    assert within(gaps[peers.CHANGE], 0.15, error)


def test_z_tests_by_hand():
    (found,) = contestants.p_values(np.array([[100, 100]]), np.array([[40, 20]]))
    assert found == pytest.approx(0.00885, abs=5e-6)  # 0.15 / sqrt(0.0024 + 0.0016) = 2.3717


@pytest.mark.slow
def test_sixty_daily_tests_at_the_bound_are_sixty_chances_of_a_false_alarm():
    """1 - 0.95^60, and with a sixtieth of the level each at most about 5 %."""
    found = [streams.make_stream([streams.BOUND] * 60, 0.5, seed) for seed in range(400)]
    share = np.mean([contestants.z_test(stream) is not None for stream in found])
    expected = 1 - 0.95**60
    assert within(share, expected, np.sqrt(expected * (1 - expected) / 400))
    corrected = np.mean([contestants.CORRECTED(stream) is not None for stream in found])
    assert within(corrected, 0.05, np.sqrt(0.05 * 0.95 / 400))


@pytest.mark.parametrize("contestant", contestants.CONTESTANTS, ids=lambda contestant: contestant.name)
def test_nobody_looks_ahead(contestant):
    if not contestant.importable:
        pytest.skip(f"{contestant.package} is not installed")
    stream = streams.make_stream([0.02] * 20 + [0.3] * 40, 0.5, 1)
    day = contestant.watch(stream)
    ends = {60: day} if day is None else {day + 1: day, max(day, 1): day if day == 0 else None}
    for end, expected in ends.items():
        cut = replace(
            stream, group=stream.group[:end], decision=stream.decision[:end], score=stream.score[:end]
        )
        assert contestant.watch(cut) == expected


def test_contrasts_by_hand():
    """Each of the two rows of b with two of a: 1/2 - 1 and 1 - 0."""
    rows = np.array([[0, 0, 1, 0, 1, 0]]), np.array([[1, 0, 1, 1, 0, 1]])
    assert contestants.contrasts(streams.Days(*rows, np.zeros((1, 6))), 0).tolist() == [-0.5, 1.0]


@pytest.mark.slow
def test_contrasts_have_the_standard_error_of_the_difference():
    days = streams.draw([0.1] * 2000, 0.05, np.random.default_rng(0))
    values = [contestants.contrasts(days, day) for day in range(len(days))]
    errors = np.array([value.std(ddof=1) / np.sqrt(len(value)) for value in values])
    means = np.array([value.mean() for value in values])
    assert within(means.mean(), 0.1, means.std() / np.sqrt(2000))
    assert np.sqrt((errors**2).mean()) == pytest.approx(days.gaps.std(), rel=0.06)


def test_delays_are_of_streams_that_were_quiet_before_the_change():
    found = pandas.DataFrame({"first_alarm": [10, 60, 62, 63, 179, -1]})
    assert peers.delays(found) == ["17", "4", "> 120"]
    assert peers.delays(found[:5]) == ["20", "–", "–"]  # four are left
    assert peers.false_alarms(found) == ["17", "83"]


@pytest.mark.slow
def test_what_is_not_installed_is_named(monkeypatch):
    plain = contestants.CONTESTANTS[:4]
    absent = contestants.Contestant("somebody", contestants.monitor, "not_a_package")
    monkeypatch.setattr(peers, "CONTESTANTS", (*plain, absent))
    found = [row for case in peers.cases(quick=True) for row in peers.measure(case)]
    table = peers.table_of(peers.tally(found))
    assert sum(row["streams"] for row in peers.tally(found)) == len(found) == 2 * 4 * len(peers.SCENARIOS)
    assert table.count("| z-test of the day |") == len(peers.SHARES)
    assert "somebody" not in table
    assert "Not installed, and left out: not_a_package." in table
