"""Softmax and sigmoid in place, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from bylaw._base import _numeric as module, normalize, separate, sigmoid, softmax

SHARPNESS = [0.3, 30.0, 3000.0]  # no row decided, some, almost all


def make_scores(sharpness, n_actions=7, n_rows=400):
    return sharpness * np.random.default_rng(0).normal(size=(n_actions, n_rows))


@pytest.mark.parametrize("sharpness", SHARPNESS)
def test_softmax_and_its_potential(sharpness):
    scores = make_scores(sharpness)
    expected, potential = special.softmax(scores, axis=0), special.logsumexp(scores, axis=0)
    np.testing.assert_allclose(softmax(scores), potential, rtol=1e-14)
    np.testing.assert_allclose(scores, expected, rtol=1e-13, atol=1e-17)


def test_scores_that_are_no_numbers_make_the_probabilities_of_their_row_no_numbers():
    scores = make_scores(3000.0, n_actions=60)
    scores[3, 5] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        softmax(scores)
    assert np.isnan(scores[:, 5]).all()


@pytest.mark.parametrize("tile", [2**8, 2**18])
@pytest.mark.parametrize("n_labels", [7, 2300])
@pytest.mark.parametrize("sharpness", SHARPNESS)
def test_sigmoid_and_its_potential(sharpness, n_labels, tile, monkeypatch):
    monkeypatch.setattr(module, "_TILE", tile)
    scores = make_scores(sharpness, n_labels, 30)
    expected, potential = special.expit(scores), np.logaddexp(0, scores).sum(axis=0)
    np.testing.assert_allclose(sigmoid(scores), potential, rtol=1e-13)
    np.testing.assert_allclose(scores, expected, rtol=1e-13, atol=1e-17)


@pytest.mark.parametrize("write", [normalize, separate])
@pytest.mark.parametrize("sharpness", SHARPNESS)
def test_parts_of_wider_arrays_have_the_same_bits(sharpness, write):
    wide = make_scores(sharpness)
    whole, part = np.empty((7, 300)), np.empty((7, 400))
    write(wide[:, :300].copy(), whole)
    write(wide[:, :300], part[:, :300])
    np.testing.assert_array_equal(part[:, :300], whole)
