"""Moments at the places that are wanted are those of the whole product of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Problem, miscoverage, size
from bylaw.formulation.blocks import make_blocks
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import compile_problem
from bylaw.formulation.moments import Places
from helpers.generated_rows import Rows


@pytest.mark.parametrize("order", ["ordered", "shuffled"])
def test_places_are_those_of_the_product_and_zero_elsewhere(order):
    rng = np.random.default_rng(0)
    features, probabilities = rng.random((41, 700)), rng.random((40, 700))
    actions = np.arange(40) if order == "ordered" else rng.permutation(40)
    wanted = np.zeros((41, 40), dtype=bool)
    wanted[0] = wanted[np.arange(1, 41), actions] = True
    places = Places.choose(np.flatnonzero(wanted), wanted.shape)
    assert places is not None
    assert places.wide.tolist() == [0]
    found = places.compute(features, probabilities)
    np.testing.assert_allclose(found, np.where(wanted, features @ probabilities.T, 0.0), rtol=1e-12)


def test_a_product_of_small_or_full_matrices_is_left_as_it_is():
    assert Places.choose(np.arange(12), (3, 4)) is None
    assert Places.choose(np.arange(2500), (50, 50)) is None


def test_many_labels_have_the_same_gradient_either_way():
    evidence = Rows(n=300, K=40, S=2).evidence()
    form = compile_problem(Problem(size(), [miscoverage() <= 0.2, size() <= 3.0]), evidence)
    dual = Dual(form, make_blocks(form, evidence), 20.0)
    whole = Dual(form, dual.blocks, 20.0, all_moments=True)
    assert dual.places is not None
    assert whole.places is None
    point = np.array([20.0, 0.3])
    for one, other in zip(dual.value_and_gradient(point), whole.value_and_gradient(point), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_no_place_is_left_out_where_many_rows_make_each_a_tile_of_its_own():
    rng = np.random.default_rng(3)
    features, probabilities = rng.random((20, 40_000)), rng.random((20, 40_000))
    wanted = np.zeros((20, 20), dtype=bool)
    wanted[np.arange(20), rng.permutation(20)] = True
    places = Places.choose(np.flatnonzero(wanted), wanted.shape)
    assert places is not None
    found = places.compute(features, probabilities)
    np.testing.assert_allclose(found, np.where(wanted, features @ probabilities.T, 0.0), rtol=1e-12)
