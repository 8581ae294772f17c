"""One verdict for reports and audits, its tolerance, and the unit of a rule."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    Verdict,
    audit,
    custom,
    demographic_parity,
    error,
    rejected,
    solve,
)
from bylaw.report._context import bound_rates, make_report_rows
from bylaw.testing import TOLERANCE, describe_rule, find_worst, is_out_of_reach
from bylaw.testing._verdicts import measure_unit
from helpers.scored import people

EVIDENCE, LABELS, _ = people(2000, 0)
POLICY = solve(Problem(error(), [rejected() <= 0.1]), EVIDENCE)


def judge(policy, evidence, **options):
    """The verdicts of the report and of the audit on the only rule."""
    (reported,) = bound_rates(make_report_rows(policy, evidence, held_out=False), None)
    (audited,) = audit(policy, evidence, fitted_rows="estimate", **options).rules
    assert reported.track.estimate == pytest.approx(audited.estimate, abs=1e-9)
    return reported.verdict, audited.verdict


def missed_by(excess):
    """The policy, with a rule that it misses by this much more than the solver answers for."""
    level = POLICY.expected(rejected(), EVIDENCE) - POLICY.guarantee.violation - excess
    return replace(POLICY, problem=Problem(error(), [rejected() <= level]))


@pytest.mark.parametrize("excess", [-1e-3, 0.0, 1e-8, 5e-7, 9e-7])
def test_report_and_audit_agree_that_a_rule_holds(excess):
    assert judge(missed_by(excess), EVIDENCE) == (Verdict.HOLDS, Verdict.HOLDS)


@pytest.mark.parametrize("excess", [1.1e-6, 2e-6, 1e-5, 1e-4, 5e-3, 0.02])
def test_report_and_audit_agree_that_a_rule_is_broken(excess):
    """The tolerance is a millionth, and does not grow unnoticed."""
    assert judge(missed_by(excess), EVIDENCE) == (Verdict.BROKEN, Verdict.BROKEN)


def test_what_the_solver_answers_for_is_no_violation():
    """A coarse solution misses its rule by up to its gradient mapping, which the policy states."""
    policy = solve(Problem(error(), [rejected() <= 0.1]), EVIDENCE, tol=1e-3)
    coarse = replace(policy, guarantee=replace(policy.guarantee, gradient_mapping=1e-3))
    at = replace(
        coarse, problem=Problem(error(), [rejected() <= policy.expected(rejected(), EVIDENCE) - 9e-4])
    )
    assert judge(at, EVIDENCE) == (Verdict.HOLDS, Verdict.HOLDS)
    at = replace(
        coarse, problem=Problem(error(), [rejected() <= policy.expected(rejected(), EVIDENCE) - 2e-3])
    )
    assert judge(at, EVIDENCE) == (Verdict.BROKEN, Verdict.BROKEN)


@pytest.mark.parametrize("unit", [1e6, 1.0, 1e-5])
def test_rules_are_judged_in_their_own_unit(unit):
    """The same cost in cents or in millions: missed by 2e-8 of its size it holds, by 1e-3 it is broken."""
    size = np.random.default_rng(0).uniform(1, 2, 2000)
    evidence = Evidence(EVIDENCE.probabilities, costs={"fee": unit * np.outer(size, [0, 1])})
    policy = solve(Problem(error(), [custom("fee") <= 0.5 * unit]), evidence)
    known = {"limits": {"fee": (0, 2 * unit)}, "outcomes": {"fee": "known"}}
    assert judge(policy, evidence, **known) == (Verdict.HOLDS, Verdict.HOLDS)
    rate = policy.expected(custom("fee"), evidence)
    for missed, verdict in ((2e-8, Verdict.HOLDS), (1e-3, Verdict.BROKEN)):
        moved = replace(policy, problem=Problem(error(), [custom("fee") <= rate - missed * unit]))
        assert judge(moved, evidence, **known) == (verdict, verdict)


def test_the_unit_of_shares_is_one():
    space = POLICY.action_space
    for rule in (rejected() <= 0.1, *demographic_parity("sex", tol=0.1).expand((0, 1), {"sex": ("F", "M")})):
        assert measure_unit(rule, EVIDENCE, space) == 1.0
    assert measure_unit(2000 * rejected() <= 100, EVIDENCE, space) == pytest.approx(2000)
    assert TOLERANCE == 1e-6


@pytest.mark.parametrize(
    ("rule", "target", "estimate"),
    [(rejected() <= 0.1, 0.1, 0.13), (rejected() >= 0.1, 0.1, 0.07), (0.3 - rejected() <= 0.1, -0.2, -0.17)],
)
def test_a_rule_is_described_by_its_target_and_estimate(rule, target, estimate):
    described = describe_rule(rule, excess=0.03, rows=7.0)
    assert (described.target, described.estimate) == pytest.approx((target, estimate))
    assert described.excess == pytest.approx(0.03)
    assert (described.rule, described.rows, described.verdict) == (str(rule), 7.0, "not judged")
    assert math.isnan(describe_rule(rule).estimate)


def test_the_worst_verdict_counts():
    order = [
        Verdict.VIOLATED,
        Verdict.BROKEN,
        Verdict.UNDECIDED,
        Verdict.UNJUDGED,
        Verdict.CERTIFIED,
        Verdict.HOLDS,
    ]
    assert list(Verdict) == order
    for i, worse in enumerate(order):
        for better in order[i:]:
            assert find_worst([better, worse, better]) is worse
    assert find_worst([]) is Verdict.UNJUDGED


def test_more_rows_are_advised_within_reason():
    assert not is_out_of_reach(900 * 1000, 1000)
    assert is_out_of_reach(1100 * 1000, 1000)
