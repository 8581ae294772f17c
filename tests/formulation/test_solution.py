"""How a solver ended, and what to do about it."""

from __future__ import annotations

import pytest

from bylaw.errors import Remedy
from bylaw.formulation.solution import HardDecisions, Status


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (Status.CONVERGED, None),
        (Status.MAX_STEPS, Remedy("add_steps")),
        (Status.STALLED, Remedy("loosen_tolerance")),
        (Status.SAMPLED, Remedy("choose_solver", "full_batch")),
        (Status.INFEASIBLE, None),
    ],
)
def test_each_status_has_its_remedy(status, remedy):
    assert status.remedy == remedy


def test_decisions_without_chance_that_cost_less_lower_no_bound():
    cheaper, dearer = HardDecisions(0.10, 0.12, 0.01), HardDecisions(0.15, 0.12, 0.01)
    assert cheaper.excess == 0.01
    assert dearer.excess == pytest.approx(0.04)
