"""Ratio rules under a guarantee: their levels are tightened, in the coefficients and in what is reported."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    accepted,
    disparate_impact,
    error,
    precision,
    rejected,
    selected,
    solve,
)
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.reductions._observe import Correction
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.rows import observe
from bylaw.solvers import FullBatch
from helpers.scored import people

SELECTIVE = error() <= 0.1 * accepted()


def scored(n, seed, sharpness=1.0):
    """Rows of two classes; with a sharpness above one, probabilities are too sure."""
    rng = np.random.default_rng(seed)
    x = 2 * rng.normal(size=n)
    y = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    stated = 1 / (1 + np.exp(-sharpness * x))
    return Evidence(np.column_stack([1 - stated, stated])), y


def make_correction(problem, evidence, labels):
    form = compile_problem(problem, evidence)
    dual = Dual(form, make_blocks(form, evidence), beta=20.0)
    options = {"rng": None, "callback": None, "run": partial(FullBatch(), tol=1e-6)}
    rows = observe(evidence.with_observed(labels=labels))
    return Correction.prepare(problem, evidence, dual, rows, tol=1e-6, polish=False, **options)


@pytest.mark.parametrize(
    ("seed", "sharpness"),
    [(3, 1.0), pytest.param(0, 2.0, marks=pytest.mark.slow)],
)
def test_selective_error_is_certified_where_a_threshold_search_is(seed, sharpness):
    fit, labels = scored(5000, seed, sharpness)
    held, held_labels = scored(2000, 1000 + seed, sharpness)
    policy = solve(
        Problem(rejected(), [SELECTIVE]),
        fit,
        labels=labels,
        guarantee="high_probability",
        held_out=held.with_observed(labels=held_labels),
    )
    assert policy.certificate.p_value <= 0.05
    many, truth = scored(50_000, 7, sharpness)
    rows, chances = observe(many.with_observed(labels=truth)), policy.probabilities(many)
    assert policy.expected(SELECTIVE.excess, rows, probabilities=chances) <= 0
    assert policy.expected(accepted(), many) > 0.2  # the rule is not satisfied by deciding nothing


@pytest.mark.slow
def test_what_is_reported_is_in_terms_of_the_stated_rule():
    fit, labels = scored(3000, 1)
    held, held_labels = scored(1000, 2)  # few: without a margin they certify nothing
    options = {"guarantee": "high_probability", "held_out": held.with_observed(labels=held_labels)}
    policy = solve(Problem(rejected(), [SELECTIVE]), fit, labels=labels, **options)
    rows, chances = observe(fit.with_observed(labels=labels)), policy.probabilities(fit)
    observed = policy.expected(SELECTIVE.excess, rows, probabilities=chances)
    assert policy.observed[str(SELECTIVE)] == pytest.approx(observed, abs=1e-9)
    assert observed < -0.001
    predicted = policy.expected(SELECTIVE.excess, fit)
    assert policy.tightened[str(SELECTIVE)] == pytest.approx(-predicted, abs=2e-3)
    assert str(policy.solution.status) == "Status.CONVERGED"


def test_coefficients_are_those_of_the_rule_at_the_tightened_level():
    evidence, labels, _ = people(500, 0)
    rules = [SELECTIVE, disparate_impact("sex", labels=[1], ratio=0.6), rejected() <= 0.3]
    problem = Problem(error(), rules)
    correction = make_correction(problem, evidence, labels)
    ratios = RatioRules.find(correction.facts)
    assert ratios.chosen.tolist() == [True, True, True, False]
    shares = np.array([0.2, 0.25, 0.25, 0.0])
    tightened = ratios.tighten(correction, shares)
    levels = [error() <= 0.08 * accepted(), disparate_impact("sex", labels=[1], ratio=0.8), rejected() <= 0.3]
    other = make_correction(Problem(error(), levels), evidence, labels)
    for mine, theirs in (
        (tightened.dual.form.couplings, other.dual.form.couplings),
        (tightened.rates.couplings, other.rates.couplings),
    ):
        scale = np.array([1, 0.75, 0.75, 1])[:, None]  # .6 M <= .75 F is .8 M <= F
        assert mine.toarray() == pytest.approx(scale * theirs.toarray())
    assert tightened.dual.form.names == correction.dual.form.names


@pytest.mark.parametrize(
    "rules",
    [
        [rejected() <= 0.1],
        [error() <= 0.1 * accepted() + 0.01],
        [
            selected(1).given(sex="F") >= selected(1).given(sex="M"),
            selected(1).given(sex="F") <= selected(1).given(sex="M"),
        ],
    ],
)
def test_other_rules_keep_their_margins(rules):
    evidence, labels, _ = people(500, 0)
    assert (
        RatioRules.find(make_correction(Problem(error() + 0.2 * rejected(), rules), evidence, labels).facts)
        is None
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "guarantee"),
    [
        ([precision(1) >= 0.9], "high_probability"),
        ([error().given(decision=1) <= 0.1], None),
        ([SELECTIVE, rejected() <= 0.9], None),
    ],
    ids=["precision", "error given the decision", "selective error"],
)
def test_deterministic_decisions_hold_ratios_by_hand_count(rules, guarantee):
    """Also where the objective does not begin with the feature that breaks ties."""
    fit, labels = scored(3000, 0, sharpness=2.0)
    held, held_labels = scored(3000, 1, sharpness=2.0)
    options = (
        {}
        if guarantee is None
        else {"held_out": held.with_observed(labels=held_labels), "guarantee": guarantee}
    )
    problem = Problem(error().given(label=1) + 0.3 * rejected(), rules)
    policy = solve(problem, fit, labels=labels, deterministic=True, **options)
    decisions = policy.probabilities(fit)
    assert set(decisions.ravel()) == {0.0, 1.0}
    actions = decisions.argmax(axis=1)
    judged = actions < 2 if SELECTIVE in rules else actions == 1
    assert judged.sum() > 300
    excess = (actions != labels)[judged].mean() - 0.1
    assert excess <= 1e-6
    unit = judged.mean() if SELECTIVE in rules else 1.0
    assert policy.fitted_rates.rules[0].excess == pytest.approx(excess * unit, abs=1e-9)
