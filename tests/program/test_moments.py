"""With many labels, moments are computed only at the entries that the objective and the rules use."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, miscoverage, size
from bylaw.program import Block, Dual, _dual as dual_module, compile_problem, make_blocks
from helpers.generated_rows import Rows


@pytest.mark.parametrize("order", ["ordered", "shuffled"])
def test_places_are_those_of_the_product_and_zero_elsewhere(order):
    rng = np.random.default_rng(0)
    features, probabilities = rng.random((41, 700)), rng.random((40, 700))
    actions = np.arange(40) if order == "ordered" else rng.permutation(40)
    wanted = np.zeros((41, 40), dtype=bool)
    wanted[0] = wanted[np.arange(1, 41), actions] = True
    found = Block(features, None).moments(probabilities, wanted=wanted)
    np.testing.assert_allclose(found, np.where(wanted, features @ probabilities.T, 0.0), rtol=1e-12)


def test_many_labels_have_the_same_gradient_either_way(monkeypatch):
    evidence = Rows(n=300, K=40, S=2).evidence()
    form = compile_problem(Problem(size(), [miscoverage() <= 0.2, size() <= 3.0]), evidence)
    whole = Dual(form, make_blocks(form, evidence), 20.0)
    assert whole.rules.wanted is None
    monkeypatch.setattr(dual_module, "_MANY_ENTRIES", 0)
    dual = Dual(form, whole.blocks, 20.0)
    assert dual.rules.wanted is not None
    point = np.array([20.0, 0.3])
    for one, other in zip(dual.value_and_gradient(point), whole.value_and_gradient(point), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
