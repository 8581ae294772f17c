"""Policies whose rules hold as observed, where only some rows show labels or groups."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    demographic_parity,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.rows import observe
from helpers.scored import people

CLOSE = 2e-3


def excess(policy, rule, rows):
    """Of the worst single rule, as observed or prediction-powered."""
    problem = Problem(error(), [rule])
    rates = [found.rule.excess for found in problem.expand(rows.classes, rows.group_values)]
    chances = policy.probabilities(rows.predicted)
    return max(policy.expected(rate, rows, probabilities=chances) for rate in rates)


def test_a_rule_on_labels_holds_by_prediction_powered_rates():
    evidence, labels, _ = people(4000, 0, tilt=0.8)
    partly = np.where(np.random.default_rng(100).random(4000) < 0.2, labels, np.nan)
    rule = error() <= 0.2
    plain = solve(Problem(rejected(), [rule]), evidence)
    policy = solve(Problem(rejected(), [rule]), evidence, labels=partly, calibrate="none")
    rows = observe(evidence.with_observed(labels=partly))
    assert abs(excess(plain, rule, rows)) > 5 * CLOSE
    assert abs(excess(policy, rule, rows)) <= CLOSE
    everywhere = solve(Problem(rejected(), [rule]), evidence, labels=labels, calibrate="none")
    assert abs(excess(policy, rule, observe(evidence.with_observed(labels=labels)))) < abs(
        excess(plain, rule, observe(evidence.with_observed(labels=labels)))
    )
    assert policy.expected(rejected(), evidence) == pytest.approx(
        everywhere.expected(rejected(), evidence), abs=0.06
    )


def test_a_rule_on_a_hidden_group_holds_by_prediction_powered_rates():
    evidence, labels, sex = people(4000, 1, known=False)
    unsure = 0.4 + 0.3 * (evidence.groups["sex"].probabilities[:, 0] - 0.4)  # a bad model of groups
    evidence = Evidence(evidence.probabilities, groups={"sex": {"F": unsure, "M": 1 - unsure}})
    partly = {"sex": np.where(np.random.default_rng(100).random(4000) < 0.3, sex, None)}
    rule = demographic_parity("sex", tol=0.02)
    plain = solve(Problem(error(), [rule]), evidence)
    policy = solve(Problem(error(), [rule]), evidence, groups=partly, calibrate="none")
    rows = observe(evidence.with_observed(true_groups=partly))
    assert excess(plain, rule, rows) > 5 * CLOSE
    assert abs(excess(policy, rule, rows)) <= CLOSE
    nothing = {"sex": [None] * 4000}
    again = solve(Problem(error(), [rule]), evidence, labels=labels, groups=nothing, calibrate="none")
    assert again.multipliers == pytest.approx(plain.multipliers, abs=1e-6)


def test_margins_grow_where_less_is_seen():
    evidence, labels, _ = people(3000, 2)
    partly = np.where(np.random.default_rng(100).random(3000) < 0.1, labels, np.nan)
    problem = Problem(rejected(), [error() <= 0.2])
    kept = [
        -excess(
            solve(problem, evidence, labels=y, margin=1.0),
            error() <= 0.2,
            observe(evidence.with_observed(labels=y)),
        )
        for y in (labels, partly)
    ]
    assert kept[1] > 1.5 * kept[0] > 0


def test_what_has_no_effect_or_was_hardly_seen_is_refused():
    evidence, labels, _ = people(200, 3, known=False)
    with pytest.raises(OptionError, match="propensity_weights has no effect: no label or group is missing"):
        solve(Problem(error(), [rejected() <= 0.1]), evidence, propensity_weights=np.ones(200))
    with pytest.raises(OptionError, match="no label or group is missing"):
        solve(Problem(error(), [rejected() <= 0.1]), evidence, labels=labels, propensity_weights=np.ones(200))
    likeliest = np.argmax(evidence.groups["sex"].probabilities[:, 0])
    shown = {"sex": np.where(np.arange(200) == likeliest, "M", None)}  # the likeliest woman is a man
    with pytest.raises(EvidenceError, match="too few of them were observed"):
        solve(Problem(error(), [selected(1).given(sex="F") <= 0.3]), evidence, groups=shown)
