from __future__ import annotations

import math

import numpy as np
import pandas
import polars
import pytest

from bylaw import (
    InfeasibleRulesError,
    OptionError,
    Problem,
    accepted,
    demographic_parity,
    disparate_impact,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.fitting._sensitivity import sensitivity
from helpers.generated_rows import Rows

PARITY = demographic_parity("hidden", tol=0.05)
BUDGET = rejected() <= 0.1
FOUR_FIFTHS = disparate_impact("known", labels=[0], ratio=0.8)
SELECTIVE = error() <= 0.1 * accepted()
FLOOR = selected(1) >= 0.5
PROBLEMS = {
    "parity and budget": Problem(error(), [PARITY, BUDGET]),
    "ratio": Problem(error(), [FOUR_FIFTHS]),
    "coefficient": Problem(rejected(), [SELECTIVE]),
    "floor": Problem(error(), [FLOOR, BUDGET]),
}


@pytest.fixture(scope="module")
def rows():
    return Rows(n=4000, K=3, S=3)


def solved(problem, rule, level, rows):
    rules = [r.at(level) if r == rule else r for r in problem.rules]
    return solve(Problem(problem.minimize, rules), rows.evidence(), tol=1e-8)


def price_at(problem, rule, level, rows):
    """By differences of the regularised optimum, which cold solves give: no multiplier is read."""
    h = 1e-4
    high, low = (solved(problem, rule, level + d, rows).solution.value for d in (h, -h))
    return abs(high - low) / (2 * h)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_prices_ranges_and_steps_are_those_of_cold_solves(rows, name):
    problem = PROBLEMS[name]
    found = sensitivity(problem, rows.evidence(), step=0.01, within=0.1)
    now = solve(problem, rows.evidence()).expected(problem.minimize, rows.evidence())
    assert found.cost == pytest.approx(now, abs=1e-5)
    for rule, reach in zip(problem.rules, found.statements, strict=True):
        assert (reach.statement, reach.level) == (str(rule), rule.level)
        assert reach.status == "binds"
        assert reach.price == pytest.approx(price_at(problem, rule, rule.level, rows), rel=0.02)
        tighter = -0.01 if rule in (PARITY, BUDGET, SELECTIVE) else 0.01
        policy = solved(problem, rule, rule.level + tighter, rows)
        change = policy.expected(problem.minimize, rows.evidence()) - found.cost
        assert reach.cost_of_step == pytest.approx(change, rel=0.005)
        assert reach.cost_of_step == pytest.approx(reach.price * 0.01, rel=0.2)
        assert reach.lower <= rule.level <= reach.upper
        for end, outwards in ((reach.lower, -1), (reach.upper, 1)):
            if end == 0.0:
                continue
            inside, outside = (
                abs(price_at(problem, rule, level, rows) / reach.price - 1)
                for level in (end - outwards * 4e-4, end + outwards * 8e-4)
            )
            assert inside <= 0.1 + 0.02
            assert outside >= 0.1 - 0.02


@pytest.mark.slow
def test_a_rule_that_does_not_bind_is_free_until_it_does(rows):
    evidence = rows.evidence()
    free = [demographic_parity("hidden", tol=0.5), selected(1) >= 0.01, error() <= 0.9 * accepted()]
    problem = Problem(error(), [BUDGET, *free, disparate_impact("known", labels=[0], ratio=0.2)])
    policy = solve(problem, evidence)
    _, gap, floor, selective, ratio = sensitivity(problem, evidence).statements
    for reach in (gap, floor, selective, ratio):
        assert (reach.price, reach.cost_of_step, reach.status) == (0.0, 0.0, "slack")
    rate = policy.expected(selected(1), evidence)
    assert (floor.lower, floor.upper) == (-math.inf, pytest.approx(rate, abs=1e-5))
    share = policy.expected(error(), evidence) / policy.expected(accepted(), evidence)
    assert (selective.lower, selective.upper) == (pytest.approx(share, abs=1e-5), math.inf)
    overall = [policy.expected(selected(y), evidence) for y in range(3)]
    gaps = [
        abs(policy.expected(selected(y).given(hidden=s), evidence) - overall[y])
        for y in range(3)
        for s in range(3)
    ]
    assert (gap.lower, gap.upper) == (pytest.approx(max(gaps), abs=1e-5), math.inf)
    shares = [policy.expected(selected(0).given(known=s), evidence) for s in range(3)]
    assert (ratio.lower, ratio.upper) == (-math.inf, pytest.approx(min(shares) / max(shares), abs=1e-5))
    for rule, level in ((free[0], gap.lower), (free[1], floor.upper)):
        inward = 1 if rule is free[0] else -1
        assert not solved(problem, rule, level + inward * 1e-3, rows).prices[
            str(rule.at(level + inward * 1e-3))
        ]
        assert solved(problem, rule, level - inward * 1e-3, rows).prices[str(rule.at(level - inward * 1e-3))]


@pytest.mark.slow
def test_a_step_into_conflict_and_a_step_below_nothing(rows):
    problem = Problem(error(), [FLOOR, selected(0) >= 0.495, demographic_parity("hidden", tol=0.004)])
    floor, other, parity = sensitivity(problem, rows.evidence()).statements
    assert floor.status == other.status == "conflict"
    assert math.isnan(floor.cost_of_step)
    assert floor.upper <= 0.505 + 1e-4
    assert parity.status == "no tighter level"
    assert math.isnan(parity.cost_of_step)
    assert parity.lower >= 0.0


@pytest.mark.slow
def test_statements_without_a_level_have_a_price(rows):
    tolerances = demographic_parity("known", tol={0: 0.01, 1: 0.02, 2: 0.03})
    problem = Problem(error(), [tolerances, BUDGET])
    reach, budget = sensitivity(problem, rows.evidence()).statements
    assert reach.status == "no level"
    assert reach.price == pytest.approx(solve(problem, rows.evidence()).prices[str(tolerances)], rel=1e-2)
    assert np.isnan([reach.level, reach.lower, reach.upper, reach.cost_of_step]).all()
    assert budget.status == "binds"


@pytest.mark.slow
def test_frames_and_words(rows):
    found = sensitivity(PROBLEMS["parity and budget"], rows.evidence(), step=0.01)
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["statement", "level", "price", "lower", "upper", "cost_of_step", "status"]
    assert frame["statement"].tolist() == [str(PARITY), str(BUDGET)]
    assert isinstance(found.to_frame(polars.DataFrame()), polars.DataFrame)
    shown = repr(found)
    assert shown.startswith("error() is 0.")
    assert f"one step tighter costs {found.statements[0].cost_of_step:.4g}" in shown
    assert "right to 10% from" in shown
    assert len(sensitivity(Problem(error()), rows.evidence()).to_frame()) == 0


def test_bad_settings_are_refused(rows):
    problem = PROBLEMS["ratio"]
    with pytest.raises(OptionError, match="step must be a positive number"):
        sensitivity(problem, rows.evidence(), step=0)
    with pytest.raises(OptionError, match="within must be a positive number"):
        sensitivity(problem, rows.evidence(), within=-1)
    with pytest.raises(OptionError, match=r"solver must be one of .* got 'magic'"):
        sensitivity(problem, rows.evidence(), solver="magic")
    with pytest.raises(OptionError, match="must be a Problem, got"):
        sensitivity(rows.evidence(), problem)
    with pytest.raises(InfeasibleRulesError):
        sensitivity(Problem(error(), [error() <= 0.01]), rows.evidence())
