"""Calibration by hand: bins, standard errors, and what is notable."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from bylaw import Evidence, Problem, audit, error, rejected, solve
from bylaw.rows import observe
from bylaw.testing import bin_confidence, compute_reliability
from bylaw.testing._reliability import bin_probabilities
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


def test_the_standard_error_of_a_weighted_share_is_that_of_a_sum_of_independent_rows():
    rng = np.random.default_rng(3)
    chance, weights = np.linspace(0.05, 0.95, 40), rng.uniform(0.2, 5.0, 40)
    bins = bin_probabilities(chance, np.zeros(40), weights)
    shares = (rng.random((20_000, 40)) < chance) * weights
    for i, one in enumerate(bins):
        rows = slice(4 * i, 4 * i + 4)
        simulated = (shares[:, rows].sum(axis=1) / weights[rows].sum()).std()
        assert one.standard_error == pytest.approx(simulated, rel=0.03)  # six times the error of 20,000 draws
        assert one.deviations == pytest.approx(-one.predicted / one.standard_error)


def test_certain_probabilities_that_are_wrong_are_notable():
    one, other = bin_probabilities(np.array([0.0, 1.0]), np.array([0.0, 0.0]), np.ones(2))
    assert (one.deviations, one.is_notable) == (0.0, False)
    assert (other.deviations, other.is_notable) == (-math.inf, True)


def test_confidence_is_that_of_the_best_label():
    chances = np.array([[0.6, 0.4], [0.1, 0.9], [0.7, 0.3]])
    evidence = Evidence(chances)
    bins = bin_confidence(evidence, observe(evidence.with_observed(labels=[0, 0, 0])))
    assert [(one.predicted, one.observed) for one in bins] == [(0.6, 1), (0.7, 1), (0.9, 0)]


def test_unevenness_is_the_mean_distance_over_bins():
    evidence, labels, sex = people(1000, 5, tilt=0.5)
    line = next(
        one
        for one in compute_reliability(evidence, observe(evidence.with_observed(labels=labels)), True)
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


def oversure(n, seed, sharpness):
    """One class whose mean probability is right, and whose probabilities are too near 0 and 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    labels = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    stated = 1 / (1 + np.exp(-sharpness * x))
    return Evidence(np.column_stack([1 - stated, stated])), labels


def audit_oversure(n, sharpness):
    policy = solve(Problem(error(), [rejected() <= 0.1]), oversure(1000, 0, sharpness)[0])
    evidence, labels = oversure(n, 1, sharpness)
    return audit(policy, evidence, labels=labels)


def test_probabilities_that_are_right_on_average_and_wrong_in_bins_do_not_agree():
    found = audit_oversure(3000, 3.0)
    line = found.reliability[1]
    assert abs(line.deviations) < 3
    assert line.unevenness > 0.13
    assert line.uneven_deviations > 10
    assert line.is_notable
    assert "agree" not in str(found)
    assert "not calibrated" in str(found)
    assert f"off by {100 * line.unevenness:.3g} points on average over ten bins" in str(found)
    assert found.to_dict()["reliability"][1]["expected_unevenness"] == line.expected_unevenness


def test_of_many_disagreements_the_worst_are_printed():
    policy = solve(Problem(error(), [rejected() <= 0.1]), people(1000, 0)[0])
    evidence, labels, sex = people(4000, 6, tilt=0.4)
    labels = np.where(sex == "M", people(4000, 6, tilt=1.5)[1], labels)  # worse among men
    found = audit(policy, evidence, labels=labels)
    sizes = sorted((abs(line.deviations) for line in found.reliability if line.is_notable), reverse=True)
    assert len(sizes) == 6
    printed = re.findall(r"observed \(([+-][\d.]+) standard errors\)", str(found))
    assert [abs(float(text)) for text in printed] == pytest.approx(sizes[:3], abs=0.05)


def test_agreement_is_stated_with_its_precision_and_not_where_rows_are_few():
    many = audit_oversure(20_000, 1.0)
    most = max(line.most_unevenness for line in many.reliability if not line.among)
    assert most < 0.05
    assert f"agree with what was observed, within {100 * most:.2g} points" in str(many)
    few = audit_oversure(100, 1.0)
    assert not any(line.is_notable for line in few.reliability)
    assert "too few rows to decide whether the probabilities agree" in str(few)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [(0.3, 0.3), (1.0, 1.0), (0.05, 20.0)])
@pytest.mark.parametrize("n", [50, 1000])
def test_calibrated_probabilities_are_hardly_ever_called_uneven(spread, n):
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(300):
        chance = np.clip(rng.beta(*spread, n), 1e-9, 1 - 1e-9)
        labels = (rng.random(n) < chance).astype(int)
        evidence = Evidence(np.column_stack([1 - chance, chance]))
        called += compute_reliability(evidence, observe(evidence.with_observed(labels=labels)), True)[
            1
        ].is_uneven
    assert called <= 5
