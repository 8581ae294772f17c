"""Calibration by hand: bins, standard errors, and what is notable."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bylaw import Evidence
from bylaw.auditing.reliability import bin_confidence, bin_probabilities, compute_reliability
from bylaw.data.outcomes import observe
from helpers.scored import people


def test_bins_are_tenths_of_the_rows_by_rising_probability():
    rng = np.random.default_rng(0)
    chance = rng.permutation(np.linspace(0.01, 0.99, 200))
    hit = (rng.random(200) < chance).astype(float)
    bins = bin_probabilities(chance, hit, np.ones(200))
    order = np.argsort(chance)
    for i, one in enumerate(bins):
        rows = order[20 * i : 20 * i + 20]
        assert one.predicted == pytest.approx(chance[rows].mean())
        assert one.observed == pytest.approx(hit[rows].mean())
        assert one.share == pytest.approx(0.1)
        error = math.sqrt((chance[rows] * (1 - chance[rows])).sum()) / 20
        assert one.deviations == pytest.approx((one.observed - one.predicted) / error)
    assert len(bins) == 10


def test_weights_count_and_rows_without_weight_do_not():
    chance, hit = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0.0, 1.0, 0.0, 1.0])
    bins = bin_probabilities(chance, hit, np.array([3.0, 0.0, 1.0, 4.0]))
    assert [one.predicted for one in bins] == pytest.approx([0.2, 0.6, 0.8])
    assert [one.observed for one in bins] == [0, 0, 1]
    assert [one.share for one in bins] == [0.375, 0.125, 0.5]


def test_certain_probabilities_that_are_wrong_are_notable():
    one, other = bin_probabilities(np.array([0.0, 1.0]), np.array([0.0, 0.0]), np.ones(2))
    assert (one.deviations, one.is_notable) == (0.0, False)
    assert (other.deviations, other.is_notable) == (-math.inf, True)


def test_confidence_is_that_of_the_best_label():
    chances = np.array([[0.6, 0.4], [0.1, 0.9], [0.7, 0.3]])
    evidence = Evidence(chances)
    bins = bin_confidence(evidence, observe(evidence, [0, 0, 0]))
    assert [(one.predicted, one.observed) for one in bins] == [(0.6, 1), (0.7, 1), (0.9, 0)]


def test_unevenness_is_the_mean_distance_over_bins():
    evidence, labels, sex = people(1000, 5, tilt=0.5)
    line = next(
        one
        for one in compute_reliability(evidence, observe(evidence, labels), True)
        if one.value == 1 and one.among == "sex='F'"
    )
    women = sex == "F"
    chance, hit = evidence.probabilities[women, 1], labels[women]
    parts = np.array_split(np.argsort(chance), 10)
    assert line.unevenness == pytest.approx(
        sum(abs(hit[part].sum() - chance[part].sum()) for part in parts) / women.sum()
    )
    assert line.is_notable == (abs(line.deviations) > 3)
    assert line.predicted == pytest.approx(chance.mean())
