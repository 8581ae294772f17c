"""Costs of your model and of the policy, from one function, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bylaw import Problem, audit, error, rejected, selected, solve
from bylaw.rows import observe
from bylaw.testing import compare_costs
from helpers.scored import people

EVIDENCE, LABELS, SEX = people(1500, 3)
POLICY = solve(Problem(error(), [rejected() <= 0.1]), EVIDENCE)
TAKEN = POLICY.probabilities(EVIDENCE)
BEST = EVIDENCE.probabilities.argmax(axis=1)


def test_costs_are_observed_where_labels_are_given():
    found = compare_costs(POLICY, observe(EVIDENCE.with_observed(labels=LABELS)))
    assert found.model == pytest.approx((BEST != LABELS).mean())
    assert found.policy == pytest.approx(TAKEN[np.arange(1500), 1 - LABELS].mean())


def test_and_predicted_otherwise():
    found = compare_costs(POLICY, observe(EVIDENCE))
    assert found.model == pytest.approx(1 - EVIDENCE.probabilities.max(axis=1).mean())
    assert found.policy == pytest.approx(POLICY.expected(error(), EVIDENCE))


def test_other_rates_and_other_decisions():
    rows = observe(EVIDENCE.with_observed(labels=LABELS))
    decided = np.eye(3)[np.ones(1500, dtype=int)]
    found = compare_costs(POLICY, rows, selected(1).given(sex="F"), probabilities=decided)
    assert found.model == pytest.approx((BEST[SEX == "F"] == 1).mean())
    assert found.policy == 1
    assert compare_costs(POLICY, rows, error(), model=decided).model == pytest.approx((LABELS == 0).mean())


def test_weights_count():
    weights = np.where(SEX == "F", 3.0, 1.0)
    found = compare_costs(
        POLICY, observe(EVIDENCE.with_columns(weights=weights).with_observed(labels=LABELS))
    )
    assert found.model == pytest.approx(np.average(BEST != LABELS, weights=weights))


def test_what_no_row_shows_is_not_known():
    men = EVIDENCE.rows(np.flatnonzero(SEX == "M"))
    found = compare_costs(POLICY, observe(men), error().given(sex="F"))
    assert math.isnan(found.model)
    assert math.isnan(found.policy)


def test_audits_have_the_same_costs():
    new, seen, _ = people(900, 4)
    found, costs = (
        audit(POLICY, new, labels=seen),
        compare_costs(POLICY, observe(new.with_observed(labels=seen))),
    )
    assert (found.cost_before, found.cost_after) == (costs.model, costs.policy)
