"""Derivatives of observed and predicted rates, by finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, Problem, demographic_parity, equalized_odds, error, miscoverage, rejected, size
from bylaw.data.outcomes import observe
from bylaw.formulation import blocks as blocks_module
from bylaw.formulation.blocks import make_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import compile_problem
from bylaw.formulation.observed_rates import attach_observed, compile_observed
from bylaw.formulation.rate_response import RateResponse
from helpers.generated_rows import Rows

PROBLEMS = {
    "odds of one label, known groups": Problem(error(), [equalized_odds("known", tol=0.05, labels=[1])]),
    "odds and rejections": Problem(
        error() + 0.2 * rejected(), [equalized_odds("known", tol=0.05), rejected() <= 0.2]
    ),
    "hidden groups": Problem(error(), [demographic_parity("hidden", tol=0.05), error() <= 0.3]),
    "sets": Problem(size(), [miscoverage().given(label=k) <= 0.2 for k in range(3)]),
}


@pytest.mark.parametrize("beta", [2.0, 30.0])
@pytest.mark.parametrize("name", PROBLEMS)
def test_slopes_are_differences_of_rates(name, beta):
    rows, problem = Rows(n=400, K=3, S=2), PROBLEMS[name]
    rng = np.random.default_rng(0)
    evidence = rows.evidence(weights=rng.exponential(size=400))
    seen = observe(evidence, rng.integers(0, 3, 400), {"hidden": rng.integers(0, 2, 400)})
    form = compile_problem(problem, evidence)
    rates = compile_observed(problem, form, seen)
    dual = attach_observed(Dual(form, make_blocks(form, evidence), beta), rates, seen)
    response = RateResponse.of(dual, rates)
    here = rng.exponential(0.1, size=dual.n_rules)
    slopes = response.differentiate(dual.tally(here, curvature=True, seen_support=response.support))

    def measure(multipliers):
        return np.array(rates.measure(dual, dual.tally(multipliers)))

    step = 1e-6
    for k, unit in enumerate(step * np.eye(dual.n_rules)):
        differences = (measure(here + unit) - measure(here - unit)) / (2 * step)
        for slope, difference in zip(slopes, differences, strict=True):
            assert slope[:, k] == pytest.approx(difference, abs=1e-6 * abs(difference).max() + 1e-7)


def test_twins_have_the_same_rows_in_the_same_order(monkeypatch):
    """Whatever is known of rows, block by block: here the number of the row itself."""
    monkeypatch.setattr(blocks_module, "_SORTED_VALUES", 0)
    n = 20_000
    numbers = np.arange(n) / n
    evidence = Evidence(np.column_stack([numbers, 1 - numbers]), groups={"g": np.arange(n) % 3})
    form = compile_problem(Problem(error(), [demographic_parity("g", tol=0.1)]), evidence)
    blocks = make_blocks(form, evidence)
    twins = make_blocks(form, evidence, most=2, like=blocks)
    assert len(twins) == 2 < len(blocks)
    for block, twin in zip(blocks, twins, strict=False):
        assert (twin.columns == block.columns).all()
        assert (twin.starts == block.starts).all()
