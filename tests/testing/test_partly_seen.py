"""Audits of rows of which only some show their label or group: certificates go by those rows alone."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bylaw import (
    EvidenceError,
    OptionError,
    Problem,
    UncertifiedError,
    accepted,
    audit,
    demographic_parity,
    equalized_odds,
    error,
    rejected,
    solve,
)
from bylaw.report import report
from bylaw.rows import observe
from bylaw.testing import bin_confidence, compute_reliability
from helpers.scored import people

RULES = [
    rejected() <= 0.15,
    demographic_parity("sex", tol=0.06),
    error() <= 0.32 * accepted(),
    equalized_odds("sex", tol=0.2),
]
HELD, Y, SEX = people(6000, 1)
POLICY = solve(Problem(error(), RULES), people(4000, 0)[0])
SHOWN = np.random.default_rng(3).random(6000) < 0.3
ROWS = np.flatnonzero(SHOWN)
FIGURES = ("rule", "estimate", "lower", "upper", "p_value", "p_violated", "rows", "judged_rows")


def figures(rule):
    return {name: getattr(rule, name) for name in FIGURES}


def needs_label(rule):
    return "label" in rule.rule or "error" in rule.rule


@pytest.mark.slow
def test_each_rule_is_judged_on_the_rows_that_show_all_that_it_refers_to():
    found = audit(POLICY, HELD, labels=np.where(SHOWN, Y, np.nan))
    everywhere = audit(POLICY, HELD, labels=Y)
    alone = audit(POLICY, HELD.rows(ROWS), labels=Y[ROWS])
    assert found.seen_rows == {"label": len(ROWS)}
    for rule, of_all, of_few in zip(found.rules, everywhere.rules, alone.rules, strict=True):
        assert figures(rule) == figures(of_few if needs_label(rule) else of_all)
        assert rule.judged_rows == (len(ROWS) if needs_label(rule) else len(HELD))
    assert everywhere.seen_rows == {}
    assert found.reliability == alone.reliability[: len(found.reliability)]
    assert f"label was observed on {len(ROWS):,} of 6,000 rows" in repr(found)
    assert "as a random sample of all rows" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["seen_rows"] == {"label": len(ROWS)}


@pytest.mark.slow
def test_hidden_groups_that_some_rows_show():
    fitted = people(4000, 0, known=False)[0]
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.06)]), fitted)
    held, labels, sex = people(6000, 1, known=False)
    found = audit(policy, held, labels=labels, groups={"sex": np.where(SHOWN, sex, None)})
    alone = audit(policy, held.rows(ROWS), labels=labels[ROWS], groups={"sex": sex[ROWS]})
    assert [figures(rule) for rule in found.rules] == [figures(rule) for rule in alone.rules]
    of_sex = [line for line in found.reliability if line.of == "sex" or line.among]
    assert of_sex == [line for line in alone.reliability if line.of == "sex" or line.among]
    neither = audit(policy, held, labels=labels, groups={"sex": [None] * 6000})
    assert all(rule.reason for rule in neither.rules)


def test_groups_that_the_policy_knows_nothing_of():
    districts = np.where(np.arange(6000) % 2, "east", "west")
    rule = "error().given(district='east') <= 0.5"
    found = audit(POLICY, HELD, labels=Y, groups={"district": np.where(SHOWN, districts, None)}, rules=rule)
    alone = audit(POLICY, HELD.rows(ROWS), labels=Y[ROWS], groups={"district": districts[ROWS]}, rules=rule)
    assert figures(found.rules[0]) == figures(alone.rules[0])


@pytest.mark.slow
def test_weights_of_being_seen_multiply_sample_weights():
    weights = np.random.default_rng(0).integers(1, 3, 6000).astype(float)
    of_seeing = np.where(np.arange(6000) % 3, 1.0, 2.0)
    held = HELD.with_columns(weights=weights)
    labels = np.where(SHOWN, Y, np.nan)
    found = audit(POLICY, held, labels=labels, propensity_weights=of_seeing, largest_weight=4.0)
    product = HELD.rows(ROWS).with_columns(weights=(weights * of_seeing)[ROWS])
    alone = audit(POLICY, product, labels=Y[ROWS], largest_weight=4.0)
    for rule, other in zip(found.rules, alone.rules, strict=True):
        if needs_label(rule):
            assert figures(rule) == figures(other)
    assert "weighted by propensity_weights" in repr(found)
    with pytest.raises(EvidenceError, match="weights must be at most largest_weight=3, got 4"):
        audit(POLICY, held, labels=labels, propensity_weights=of_seeing, largest_weight=3.0)
    with pytest.raises(OptionError, match="propensity_weights has no effect"):
        audit(POLICY, held, labels=Y, propensity_weights=of_seeing)


def test_labels_and_groups_that_no_row_shows_together():
    policy = solve(Problem(error(), [rejected() <= 0.2]), people(4000, 0, known=False)[0])
    held, labels, sex = people(6000, 1, known=False)
    found = audit(
        policy,
        held,
        labels=np.where(SHOWN, labels, np.nan),
        groups={"sex": np.where(SHOWN, None, sex)},
        rules=["error().given(sex='F') <= 0.9", "error() <= 0.9"],
    )
    assert found.rules[0].reason == "it refers to label and sex, which were not observed together on any row"
    assert str(found.rules[1].verdict) == "certified"


@pytest.mark.slow
@pytest.mark.parametrize("by_x", [False, True])
def test_a_rule_at_its_limit_is_hardly_ever_certified(by_x):
    """Labels that are missing at random, or by x with weights: at most one false certificate in twenty."""
    many, labels, _ = people(100_000, 99)
    limit = POLICY.expected(
        error(), observe(many.with_observed(labels=labels)), probabilities=POLICY.probabilities(many)
    )
    wrong, audits = 0, 60  # of many more: make experiment NAME=certificates
    for seed in range(audits):
        held, y, _ = people(500, 1000 + seed)
        chance = 0.1 + 0.8 * held.probabilities[:, 1] if by_x else np.full(500, 0.3)
        shown = np.random.default_rng(seed).random(500) < chance
        found = audit(
            POLICY,
            held,
            labels=np.where(shown, y, np.nan),
            propensity_weights=1 / chance if by_x else None,
            largest_weight=10.0 if by_x else None,
            rules=f"error() <= {limit - 1e-9}",
        )
        wrong += str(found.verdict) == "certified"
    assert wrong <= audits * (0.05 + 3 * math.sqrt(0.05 * 0.95 / audits))


def test_an_estimate_on_fitted_rows_is_prediction_powered():
    evidence, labels, _ = people(3000, 5, tilt=0.5)
    partly = np.where(np.random.default_rng(0).random(3000) < 0.2, labels, np.nan)
    rule = error() <= 0.25 * accepted()
    policy = solve(Problem(rejected(), [rule]), evidence, labels=partly)
    found = audit(policy, evidence, labels=partly, fitted_rows="estimate")
    assert str(found.verdict) == "estimated to hold"
    rows = observe(evidence.with_observed(labels=partly))
    wrong, answered = (
        policy.expected(rate, rows, probabilities=policy.probabilities(evidence))
        for rate in (error(), accepted())
    )
    assert found.rules[0].estimate == pytest.approx(wrong / answered)
    assert "prediction-powered" in repr(found)


def test_reliability_is_that_of_the_rows_that_show_it():
    held, labels, _ = people(800, 2)
    shown = np.arange(800) % 4 == 0
    rows = np.flatnonzero(shown)
    partly = observe(held.with_observed(labels=np.where(shown, labels, np.nan)))
    few = observe(held.rows(rows).with_observed(labels=labels[rows]))
    assert compute_reliability(held, partly, True) == compute_reliability(held.rows(rows), few, True)
    assert bin_confidence(held, partly) == bin_confidence(held.rows(rows), few)


@pytest.mark.slow
def test_held_out_rows_of_which_some_are_labelled_certify_a_policy():
    fitted, labels, _ = people(2000, 0)
    problem = Problem(rejected(), [error() <= 0.25])
    held = HELD.with_observed(labels=np.where(SHOWN, Y, np.nan))
    policy = solve(problem, fitted, labels=labels, guarantee="high_probability", held_out=held)
    alone = HELD.rows(ROWS).with_observed(labels=Y[ROWS])
    other = solve(problem, fitted, labels=labels, guarantee="high_probability", held_out=alone)
    assert policy.certificate.p_value <= 0.05
    assert policy.expected(rejected(), HELD) <= other.expected(rejected(), HELD) + 0.02
    few = HELD.with_observed(labels=np.where(np.arange(6000) < 8, Y, np.nan))
    with pytest.raises(UncertifiedError):
        solve(problem, fitted, labels=labels, guarantee="high_probability", held_out=few)


@pytest.mark.slow
def test_a_report_states_on_how_many_cases_labels_were_observed():
    made = report(POLICY, HELD, labels=np.where(SHOWN, Y, np.nan), levels=0)
    assert f"as observed on {len(ROWS):,} of 6,000 cases".replace(",", " ") in made.html.replace(
        ",", " "
    ).replace("\u202f", " ").replace("\xa0", " ")
    judged = report(POLICY, HELD, held_out=HELD.with_observed(labels=np.where(SHOWN, Y, np.nan)), levels=0)
    assert "as observed on" in judged.html
