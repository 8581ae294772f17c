"""Rules on ratios, judged as ratios: by hand, by the delta method, by simulation with known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from bylaw import Evidence, Problem, accepted, audit, disparate_impact, error, rejected, selected, solve
from bylaw.testing._verdicts import bound_ratio

FOUR_FIFTHS = selected(1).given(sex="F") >= 0.8 * selected(1).given(sex="M")


def make_rows(n, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n)
    chance = rng.beta(2, 2, n)
    return Evidence(np.column_stack([1 - chance, chance]), groups={"sex": sex}), sex, chance


# So soft that any decision is one that it can take.
POLICY = solve(Problem(error(), [rejected() <= 0.9]), make_rows(300, 0)[0], beta=3.0)


def decide(sex, seed, women=0.4, men=0.5):
    """Label 1 with these probabilities, which makes the ratio of both groups known."""
    return (np.random.default_rng(seed).random(len(sex)) < np.where(sex == "F", women, men)).astype(int)


def judge(rows, decisions, rule=FOUR_FIFTHS, **options):
    (found,) = audit(POLICY, rows, rules=[rule], decisions=decisions, **options).rules
    return found


@pytest.mark.slow
def test_the_four_fifths_rule_is_about_a_ratio():
    rows, sex, _ = make_rows(4000, 1)
    decisions = decide(sex, 2)
    found = judge(rows, decisions)
    women, men = (decisions[sex == one].mean() for one in "FM")
    assert (found.sense, found.target) == (">=", 0.8)
    assert found.estimate == pytest.approx(women / men)
    assert found.excess == pytest.approx(0.8 - women / men)
    # The delta method: the standard error of a logarithm of a ratio of two shares.
    spread = math.sqrt(sum((1 - p) / (p * np.sum(sex == one)) for p, one in ((women, "F"), (men, "M"))))
    low, high = (found.estimate * math.exp(sign * 1.645 * spread) for sign in (-1, 1))
    assert found.lower == pytest.approx(low, abs=0.35 * (found.estimate - low))
    assert found.upper == pytest.approx(high, abs=0.35 * (high - found.estimate))
    assert found.lower <= low
    assert found.upper >= high


def test_selective_error_is_a_share_of_the_answers():
    rows, _, chance = make_rows(4000, 3)
    rng = np.random.default_rng(4)
    labels = (rng.random(4000) < chance).astype(int)
    decisions = np.where(abs(chance - 0.5) < 0.1, "reject", (chance > 0.5).astype(int).astype(object))
    answered = decisions != "reject"
    wrong = int((decisions[answered] != labels[answered]).sum())
    found = judge(rows, decisions, error() <= 0.3 * accepted(), labels=labels)
    assert found.target == 0.3
    assert found.estimate == pytest.approx(wrong / answered.sum())
    low, high = (
        beta.ppf(0.05, wrong, answered.sum() - wrong + 1),
        beta.ppf(0.95, wrong + 1, answered.sum() - wrong),
    )
    assert found.lower == pytest.approx(low, abs=0.25 * (found.estimate - low))
    assert found.upper == pytest.approx(high, abs=0.25 * (high - found.estimate))


@pytest.mark.slow
@pytest.mark.parametrize("sense", ["<=", ">="])
def test_a_bound_is_at_the_target_where_the_rule_is_just_certified(sense):
    rows, sex, _ = make_rows(2000, 5)
    decisions, left, right = decide(sex, 6), selected(1).given(sex="F"), selected(1).given(sex="M")
    first = judge(rows, decisions, left <= 0.7 * right if sense == "<=" else left >= 0.7 * right)
    at = first.upper if sense == "<=" else first.lower
    for inside, level in ((True, 1.01 * at), (False, 0.99 * at)):
        rule = left <= level * right if sense == "<=" else left >= level * right
        again = judge(rows, decisions, rule)
        assert (again.p_value <= 0.05) == (inside if sense == "<=" else not inside)
        assert (again.lower, again.upper) == pytest.approx((first.lower, first.upper), rel=5e-3)


@pytest.mark.slow
def test_bounds_are_as_often_right_as_they_say():
    wrong, runs = np.zeros(2), 12
    for seed in range(runs):
        rows, sex, _ = make_rows(250, 100 + seed)
        found = judge(rows, decide(sex, 500 + seed))
        wrong += (found.lower > 0.8, found.upper < 0.8)
    assert (wrong <= 0.05 * runs + 3 * math.sqrt(runs * 0.05 * 0.95)).all()
    # And they are no wider than they must be.
    rows, sex, _ = make_rows(400, 1)
    found = judge(rows, decide(sex, 1))
    assert found.upper - found.lower < 0.6


def test_a_group_that_gets_nothing_has_no_ratio():
    rows, sex, _ = make_rows(500, 7)
    decisions = np.where(sex == "M", 0, decide(sex, 8))
    found = judge(rows, decisions)
    assert math.isnan(found.estimate)
    assert (found.lower, found.upper) == (0.0, math.inf)
    assert found.verdict == "certified"  # 0.4 >= 0.8 * 0
    assert "nan" not in str(audit(POLICY, rows, rules=[FOUR_FIFTHS], decisions=decisions))


def test_without_an_upper_bound():
    rule = selected(1).given(sex="F") >= 0.8 * selected(1).given(sex="M")
    # Bounds of level * b - a for b within 0 and 0.2, a within 0.1 and 0.3.
    found = bound_ratio(rule, 2.0, 0.1, lambda moved: (-0.3, max(moved.level, 0.0) * 0.2 - 0.1))
    assert found[1] == math.inf
    assert found[0] == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_families_of_ratios_in_text():
    rows, sex, _ = make_rows(3000, 9)
    found = audit(POLICY, rows, rules=[disparate_impact("sex", labels=[1])], decisions=decide(sex, 10))
    assert [rule.target for rule in found.rules] == [0.8, 0.8]
    assert math.prod(rule.estimate for rule in found.rules) == pytest.approx(1)
    assert f"{found.rules[0].estimate:.4g} [" in str(found)
