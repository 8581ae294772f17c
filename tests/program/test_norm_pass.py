"""Norms of costs, against the costs of every rule and action written out."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, demographic_parity, error, miscoverage, rejected, size
from bylaw.program import NormPass, compile_problem, make_blocks
from helpers.generated_rows import Rows

PROBLEMS = {
    "labels, few rules": Problem(error(), [rejected() <= 0.1, error() <= 0.3]),
    "labels, many rules": Problem(error(), [demographic_parity("known", tol=0.03), rejected() <= 0.1]),
    "sets, few rules": Problem(size(), [miscoverage() <= 0.2, size() <= 2.0]),
    "sets, many rules": Problem(size(), [miscoverage() <= 0.2, demographic_parity("hidden", tol=0.05)]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_norms_are_those_of_the_costs(name):
    evidence = Rows(n=200, K=3, S=3).evidence()
    form = compile_problem(PROBLEMS[name], evidence)
    (block,) = make_blocks(form, evidence)
    couplings = form.couplings.toarray().reshape(-1, *form.base.shape)
    costs = np.einsum("jfa,fn->jan", couplings, block.features)  # (M, A, n_rows)
    if form.action_space.exclusive:
        expected = np.linalg.norm(costs - form.bounds[:, None, None], axis=0).max(axis=0)
    else:
        expected = np.linalg.norm(costs, axis=0).sum(axis=0) + np.linalg.norm(form.bounds)
    np.testing.assert_allclose(NormPass(form).measure(block.features), expected, rtol=1e-10)
