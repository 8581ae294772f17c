"""The simulations of monitors: what they draw is exactly at its bound, and their yardsticks by hand."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from experiments.monitoring import delay, validity, widths


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
    assert len((tmp_path / "delay.md").read_text().splitlines()) == 4 + 2
    assert len((tmp_path / "delay.csv").read_text().splitlines()) == 1 + 2
    assert len((tmp_path / "cost.md").read_text().splitlines()) == 4 + 3


@pytest.mark.slow
def test_widths_and_first_days_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["widths.py", "--quick", "--workers", "1", "--out", str(tmp_path)])
    widths.main()
    assert len((tmp_path / "widths.md").read_text().splitlines()) == 4 + len(widths.RATES)
    assert len((tmp_path / "days.md").read_text().splitlines()) == 4 + len(widths.STREAMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", validity.KINDS)
def test_rates_are_exactly_at_their_bounds(name):
    """On twenty years of rows, the excess of every rule is zero but for a few standard errors."""
    kind, day = validity.KINDS[name], np.repeat(np.arange(365), 4000)
    monitor = validity.begin(kind)
    drawn = kind.draw(np.random.default_rng(0), day)
    for rule, course in zip(monitor.watched, validity.read(monitor, kind, drawn, day), strict=True):
        whole = course.columns.shape[1] // rule.events.rows * rule.events.rows
        sums = rule.events.sum_rounds(course.columns[:, :whole])
        excess = sums[1] + rule.hypothesis.constant * sums[0]
        assert abs(excess.mean()) < 4 * excess.std() / math.sqrt(len(excess))
        factors, _ = validity.find_factors(rule, *course)
        assert (factors.mean(axis=1) < 1 + 4 * factors.std(axis=1) / math.sqrt(len(excess))).all()
        assert factors.min() > 0


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
    assert detector.before == 3 * n
    assert set(detector.lengths) == {first}
    assert len(detector.lengths) == 3 * n // first


def test_the_oracle_alarms_as_rarely_as_the_monitor_promises(monkeypatch):
    """At its null hypothesis, with a run length of 500 rows: the mean of the first passages is about that. By
    then they are nearly exponential; 300 of them have a standard error of 6 %."""
    monkeypatch.setattr(delay, "RUN_LENGTH", 500)
    monkeypatch.setattr(delay, "CALIBRATED", (500, 200))
    case = delay.Case(0.2, (0.2,), (0.4,), runs=300)
    rng = np.random.default_rng(0)
    assert delay.measure_oracle(case, rng).mean() < 60
    null = delay.Case(0.2, (0.2,), (0.4,), runs=300)
    monkeypatch.setattr(delay, "draw", lambda c, r, n, g, draw=delay.draw: draw(c, (0.2,), n, g))
    assert delay.measure_oracle(null, rng).mean() == pytest.approx(500, rel=0.25)


def test_the_closest_null_hypothesis_of_a_gap():
    """Of equal groups it moves both rates toward each other, and of a small group mostly that one."""
    half = delay.Case(0.05, (0.32, 0.3), (0.45, 0.3), 0.5).null
    small = delay.Case(0.05, (0.32, 0.3), (0.45, 0.3), 0.05).null
    assert half[0] - half[1] == pytest.approx(small[0] - small[1]) == pytest.approx(0.05)
    assert 0.39 < half[0] < 0.41
    assert 0.35 < small[0] < 0.36
