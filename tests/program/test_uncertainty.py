"""Standard errors of all rules at once, beside those of one rule at a time."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, Problem, demographic_parity, equalized_odds, error, rejected
from bylaw.policy import compute_probabilities
from bylaw.program import (
    Dual,
    RateUncertainty,
    attach_observed,
    compile_observed,
    compile_problem,
    make_blocks,
    standard_error,
)
from bylaw.rows import observe
from helpers.generated_rows import Rows


def test_all_rules_at_once_as_one_at_a_time():
    rows, rng = Rows(n=700, K=3, S=2), np.random.default_rng(0)
    evidence = rows.evidence(weights=rng.exponential(size=700))
    seen = observe(
        evidence.with_observed(
            labels=rng.integers(0, 3, 700), true_groups={"hidden": rng.integers(0, 2, 700)}
        )
    )
    rules = [demographic_parity("hidden", tol=0.05), equalized_odds("known", tol=0.1), rejected() <= 0.1]
    problem = Problem(error(), [*rules, error().given(known=0) <= 0.4])
    form = compile_problem(problem, evidence)
    rates = compile_observed(problem, form, seen)
    dual = attach_observed(Dual(form, make_blocks(form, evidence), 30.0), rates, seen)
    multipliers = rng.exponential(0.1, len(form.bounds))
    uncertainty = RateUncertainty.of(dual, rates, evidence, seen)
    found = uncertainty.standard_errors(multipliers, 30.0)
    matrix = form.score_matrix(multipliers)
    chances = compute_probabilities(form.feature_map, matrix, 30.0, evidence).T
    for view, where in ((found.predicted, evidence), (found.observed, seen)):
        alone = [standard_error(one.rule.excess, where, chances, form.action_space) for one in form.rules]
        assert view * form.scales == pytest.approx(np.array(alone), rel=1e-9)
    covariance = uncertainty.covariance(multipliers, 30.0, np.arange(4))
    assert np.sqrt(np.diag(covariance)) == pytest.approx(found.observed[:4], rel=1e-9)


@pytest.mark.slow
def test_the_spread_over_samples_is_the_standard_error():
    """Of a difference between groups, over many samples of rows whose labels do not matter."""
    gaps, errors = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        groups, scores = rng.integers(0, 2, 400), rng.random(400)
        evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
        problem = Problem(error(), [demographic_parity("g", tol=0.5, labels=[1])])
        form = compile_problem(problem, evidence)
        seen = observe(evidence)
        rates = compile_observed(problem, form, seen)
        dual = attach_observed(Dual(form, make_blocks(form, evidence), 1e4), rates, seen)
        none = np.zeros(len(form.bounds))
        errors.append(RateUncertainty.of(dual, rates, evidence, seen).standard_errors(none, 1e4).observed[0])
        gaps.append(rates.measure(dual, dual.tally(none)).observed[0])
    assert np.std(gaps) == pytest.approx(np.mean(errors), rel=0.2)  # about three standard errors
