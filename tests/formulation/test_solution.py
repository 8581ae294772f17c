"""How a solver ended, and what to do about it."""

from __future__ import annotations

import pytest

from bylaw.errors import Remedy
from bylaw.formulation.solution import Status


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
