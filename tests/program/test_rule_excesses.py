"""How far rules are missed: by the policy's own expected rates, and by the spread over rows."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, demographic_parity, error, miscoverage, omits, rejected, size
from bylaw.policy import compute_probabilities
from bylaw.program import (
    Dual,
    compile_parts,
    compile_problem,
    make_blocks,
    measure_excesses,
    replace_frequencies,
)
from helpers.generated_rows import Rows

ROWS = Rows(n=2500, K=3, S=2)
WEIGHTS = np.random.default_rng(0).exponential(size=2500)
PROBLEMS = {
    "labels": Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1]),
    "sets": Problem(size(), [miscoverage() <= 0.1, omits("old") <= 0.2]),
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_excesses_and_their_errors_by_hand(kind, weights):
    evidence = ROWS.evidence() if weights is None else ROWS.evidence(weights=weights)
    form = compile_problem(PROBLEMS[kind], evidence)
    dual = Dual(form, make_blocks(form, evidence), 20.0)
    point = np.random.default_rng(1).exponential(0.2 if kind == "labels" else 2.0, dual.n_rules)
    found = measure_excesses(dual, point)
    value, gradient = dual.value_and_gradient(point)
    assert found.value / found.mass == pytest.approx(value)
    np.testing.assert_allclose(found.mean, -gradient, atol=1e-12)
    # Row by row, with the features as a plain matrix.
    (block,) = dual.blocks
    chances = compute_probabilities(form.feature_map, form.score_matrix(point), 20.0, evidence)
    couplings = form.couplings.toarray().reshape(dual.n_rules, *form.base.shape)
    costs = np.einsum("jka,kn,an->jn", couplings, block.features, chances) - form.bounds[:, None]
    w = block.row_weights
    centred = costs - np.average(costs, axis=1, weights=w)[:, None]
    np.testing.assert_allclose(found.standard_errors, np.sqrt(centred**2 @ w**2) / w.sum())


def test_parts_of_the_rows_add_up():
    evidence = ROWS.evidence()
    form = compile_problem(PROBLEMS["labels"], evidence)
    (block,) = make_blocks(form, evidence)
    point = np.full(len(form.bounds), 0.1)
    parts = [Dual(form, [block.rows(part)], 20.0) for part in (slice(0, 700), slice(700, 2500))]
    total = measure_excesses(parts[0], point) + measure_excesses(parts[1], point)
    whole = measure_excesses(Dual(form, [block], 20.0), point)
    np.testing.assert_allclose(total.mean, whole.mean)
    np.testing.assert_allclose(total.standard_errors, whole.standard_errors)


def test_errors_are_those_of_repeated_samples():
    """The spread of the mean over samples of 500 rows of 2,500, drawn with replacement."""
    evidence = ROWS.evidence()
    form = compile_problem(PROBLEMS["labels"], evidence)
    (block,) = make_blocks(form, evidence)
    point = np.full(len(form.bounds), 0.1)
    rng = np.random.default_rng(0)
    means = []
    for _ in range(300):
        drawn = rng.integers(2500, size=500)
        sample = Dual(form, [block.__class__(block.features[:, drawn], None)], 20.0)
        means.append(measure_excesses(sample, point).mean)
    stated = measure_excesses(Dual(form, [block], 20.0), point).standard_errors * np.sqrt(2500 / 500)
    np.testing.assert_allclose(np.std(means, axis=0), stated, rtol=0.2)


def test_other_frequencies_are_those_of_another_compilation():
    problem = Problem(error().given(known=0), [demographic_parity("known", tol=0.02), rejected() <= 0.1])
    evidence = ROWS.evidence()
    form = compile_problem(problem, evidence)
    parts = compile_parts(compile_problem(problem, evidence, dict.fromkeys(form.frequencies, 1.0)))
    told = {(("known", 0),): 0.2, (("known", 1),): 0.8}
    found, again = replace_frequencies(form, parts, told), compile_problem(problem, evidence, told)
    np.testing.assert_allclose(found.couplings.toarray(), again.couplings.toarray())
    assert found.frequencies == again.frequencies
    assert (found.base == form.base).all()
