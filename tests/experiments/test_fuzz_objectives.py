"""A few of the fuzzer's problems with worst groups, and without chance."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.fuzz.objectives import JUDGES
from experiments.fuzz.run import FAILED, report, run


@pytest.mark.slow
@pytest.mark.parametrize("kind", JUDGES)
def test_random_problems_end_as_they_must(kind):
    outcomes = run(6_000_000, 25, processes=1, judge=JUDGES[kind])
    assert not [outcome for outcome in outcomes if outcome.kind in FAILED], report(outcomes)
    assert any(outcome.kind == "solved" for outcome in outcomes)
