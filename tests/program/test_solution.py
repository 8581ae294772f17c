"""How a solver ended, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bylaw import Evidence, Problem, error, rejected, solve
from bylaw.errors import Remedy
from bylaw.program import HardDecisions, Status


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


def test_what_decisions_without_chance_cost_comes_on_top_of_the_bounds():
    rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    terms = solve(Problem(error(), [rejected() <= 0.4]), rows).guarantee
    dearer = replace(terms, chance=0.25)
    for name in ("excess_cost", "excess_cost_on_new_rows"):
        assert getattr(dearer, name) == pytest.approx(getattr(terms, name) + 0.25)
    assert dearer.violation == terms.violation


def test_a_guarantee_prints_the_slack_of_the_rules():
    rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    terms = solve(Problem(error(), [rejected() <= 0.4]), rows).guarantee
    assert "slack <= 0.123;" in str(replace(terms, most_slack=0.123))
