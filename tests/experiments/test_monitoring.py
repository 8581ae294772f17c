"""The simulations of monitors: what they draw is exactly at its bound, and their yardsticks by hand."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from experiments.monitoring import delay, validity


@pytest.mark.slow
def test_every_kind_is_judged(tmp_path, monkeypatch, capsys):
    """The first year of each also goes through a monitor, day by day."""
    monkeypatch.setattr(sys, "argv", ["validity.py", "--quick", "--workers", "1", "--out", str(tmp_path)])
    validity.main()
    lines = (tmp_path / "validity.md").read_text().splitlines()
    assert len(lines) == 4 + len(validity.KINDS)
    assert capsys.readouterr().out.splitlines() == lines
    assert len((tmp_path / "validity.csv").read_text().splitlines()) == 1 + len(validity.KINDS)


@pytest.mark.slow
def test_every_delay_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["delay.py", "--quick", "--workers", "1", "--out", str(tmp_path)])
    delay.main()
    assert len((tmp_path / "delay.md").read_text().splitlines()) == 4 + 24
    assert len((tmp_path / "delay.csv").read_text().splitlines()) == 1 + 3 * 24
    assert len((tmp_path / "cost.md").read_text().splitlines()) == 4 + 3


@pytest.mark.slow
@pytest.mark.parametrize("name", validity.KINDS)
def test_rates_are_exactly_at_their_bounds(name):
    """On twenty years of rows, the excess of every rule is zero but for a few standard errors."""
    kind, day = validity.KINDS[name], np.repeat(np.arange(365), 4000)
    monitor = validity.begin(kind)
    drawn = kind.draw(np.random.default_rng(0), day)
    for rule, course in zip(monitor.watched, validity.read(monitor, kind, drawn, day), strict=True):
        payments, _ = validity.find_payments(rule, *course)
        assert abs(payments.mean()) < 4 * payments.std() / math.sqrt(len(payments))
        assert payments.min() >= -1 - 1e-9


def judge(rate, seeds):
    """(n_seeds, 2): whether the rule was called broken within 40 days, and whether its rate was missed."""
    kind, day = validity.KINDS["rate"], np.repeat(np.arange(40), 500)
    monitor, found = validity.begin(kind), []
    for seed in range(seeds):
        rejected = np.random.default_rng(seed).random(len(day)) < rate
        drawn = validity.Drawn(np.where(rejected, validity.REJECT, validity.YES))
        _, year = validity.judge_year(monitor, validity.read(monitor, kind, drawn, day))
        found.append((year["broken"], year["missed"]))
    return np.array(found)


@pytest.mark.slow
def test_what_is_beyond_its_bound_is_noticed():
    """A rate that is not what it is taken for is called broken where it is above, and missed in any case."""
    assert judge(0.3, 5).all()
    assert judge(0.1, 5).tolist() == [[False, True]] * 5
    at_its_bound = judge(0.2, 200).sum(axis=0)
    assert (at_its_bound <= 10 + 3 * math.sqrt(200 * 0.05 * 0.95)).all()


def test_run_lengths_by_hand():
    """Rounds that always win: alarms come at equal distances, across years, and nothing is counted twice."""
    monitor = validity.begin(validity.KINDS["rate"])
    detector = validity.Detector(monitor)
    n = 4000
    course = validity.Course(np.ones((2, n)), 1 + np.arange(n))
    for _ in range(3):
        detector.run([course], n)
    first = detector.lengths[0]
    assert first % 8 == 0
    assert detector.before == 3 * n
    assert set(detector.lengths) == {first}
    assert len(detector.lengths) == 3 * n // first


def test_a_single_deposit_by_hand():
    found = delay.play_once(np.array([1.0, -0.5]))
    stakes = np.array([0.95, 0.3, 0.1, 0.03])
    assert np.exp(found) == pytest.approx([np.mean(1 + stakes), np.mean((1 + stakes) * (1 - stakes / 2))])


def test_days_until_an_alarm():
    ends = np.arange(8, 40_000, 8)
    quiet = delay.QUIET_DAYS * delay.ROWS_PER_DAY
    assert delay.find_days(ends, ends >= quiet + 1000) == 2.0
    assert delay.find_days(ends, ends < 0) == math.inf
    assert math.isnan(delay.find_days(ends, ends > 100))
    days = np.array([1.0, 2.0, 3.0, math.inf, math.nan])
    assert delay.format_days(days, 0.5) == "2.0"
    assert delay.format_days(days, 0.9) == "> 365"
