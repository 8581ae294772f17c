"""The comparison of optimizers on a population whose optimum is known, on few rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.streams import run


@pytest.mark.slow
def test_every_optimiser_is_judged_on_every_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--out", str(tmp_path)])
    run.main()
    lines = (tmp_path / "streams.md").read_text().splitlines()
    assert len(lines) == 2 + len(run.CASES) * len(run.OPTIMIZERS)
    assert capsys.readouterr().out.splitlines() == lines
    measured = (tmp_path / "streams.csv").read_text().splitlines()
    assert len(measured) == 1 + 2 * len(run.CASES) * len(run.OPTIMIZERS)


@pytest.mark.slow
def test_the_population_is_its_own_judge():
    """The optimum of the rows themselves costs no more than randomisation and misses no rule."""
    case = run.CASES[0]
    (row,) = (row for row in run.measure(case, {2000: 1}, points=2000) if row["optimizer"] == "full batch")
    whole = case.generate(2000, run.np.random.default_rng(0))
    judged = run.judge(case, run.solve(case.problem, whole), whole, row["optimum"])
    assert judged["violation"] < 1e-5
    assert 0 <= judged["excess"] < 1e-3


def test_means_come_with_standard_errors():
    assert run.show([0.01, 0.03]) == "0.0200 (100)"
    assert run.show([0.5]) == "0.5000"
