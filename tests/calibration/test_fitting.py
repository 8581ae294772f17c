"""Fits: gradients by differences, optima against other ways to find them, monotone maps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_softmax, softmax

from bylaw.calibration import METHODS
from bylaw.calibration._maps import (
    Loss,
    fit_map,
    fit_slope,
    make_design,
    make_sample,
    place_knots,
    shrink_towards,
)


def generated(n=3000, K=3, factor=4.0, seed=0, weights=None):
    """Labels of the softmax of scores; probabilities of `factor` times the scores."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, K)) * 1.5
    labels = (softmax(scores, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return make_sample(softmax(factor * scores, axis=1), labels, np.ones(n) if weights is None else weights)


def parts(sample, method):
    slope = fit_slope(sample)
    design = make_design(method, sample, slope)
    return slope, design, Loss(sample, design, design.features(slope * sample.logs))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [2, 4])
def test_gradients_and_curvature_are_differences(method, K):
    rng = np.random.default_rng(1)
    sample = generated(200, K, weights=rng.uniform(0, 2, 200))
    _, design, loss = parts(sample, method)
    theta = design.center + rng.normal(size=len(design.center)) / 5
    _, gradient, shares = loss.at(theta)
    hessian = loss.hessian(shares)
    for j, unit in enumerate(np.eye(len(theta)) * 1e-6):
        (up, slopes_up, _), (down, slopes_down, _) = (loss.at(theta + s * unit) for s in (1, -1))
        assert gradient[j] == pytest.approx((up - down) / 2e-6, abs=1e-7)
        assert hessian[j] == pytest.approx((slopes_up - slopes_down) / 2e-6, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_the_objective_is_the_penalised_log_loss_of_the_map(method):
    rng = np.random.default_rng(2)
    sample = generated(150, 3, weights=rng.uniform(0, 2, 150))
    slope, design, loss = parts(sample, method)
    fitted = fit_map(sample, design, slope)
    value = loss.at(fitted.theta)[0]
    P = np.exp(sample.logs).T
    calibrated = fitted.make_map(sample.floor).apply(P)
    losses = -np.log(calibrated[np.arange(150), sample.codes])
    penalty = 0.5 * float(design.ridge @ (fitted.theta - design.center) ** 2)
    assert value == pytest.approx((sample.weights @ losses + penalty) / 150, rel=1e-9)
    assert sample.losses(fitted.scores(sample)) == pytest.approx(losses)


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0, 20.0])
def test_a_known_temperature_is_recovered(factor):
    assert 1 / fit_slope(generated(30_000, 4, factor)) == pytest.approx(factor, rel=0.03)


def test_the_temperature_is_the_best_one():
    sample = generated(500, 3)

    def loss(slope):
        return -log_softmax(slope * sample.logs, axis=0)[sample.codes, np.arange(500)].mean()

    best = optimize.minimize_scalar(loss, bounds=(1e-3, 10), method="bounded", options={"xatol": 1e-9})
    assert fit_slope(sample) == pytest.approx(best.x, rel=1e-5)


def test_scores_without_information_become_flat():
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.ones(2), 2000)
    slope = fit_slope(make_sample(P, rng.integers(0, 2, 2000), np.ones(2000)))
    assert 0 < slope < 0.1
    upside_down = make_sample(P, P.argmin(axis=1), np.ones(2000))
    assert 0 < fit_slope(upside_down) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_no_other_parameters_are_better(method):
    sample = generated(400, 3)
    slope, design, loss = parts(sample, method)
    fitted = fit_map(sample, design, slope)
    least = loss.at(fitted.theta)[0]
    rng = np.random.default_rng(4)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(30):
            other = np.maximum(fitted.theta + size * rng.normal(size=len(design.center)), design.lower)
            assert loss.at(other)[0] >= least - 2e-7


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [0.1, 1.0, 30.0])
def test_newton_and_descent_agree(method, factor, monkeypatch):
    sample = generated(2000, 4, factor)
    slope, design, loss = parts(sample, method)
    least = loss.at(fit_map(sample, design, slope).theta)[0]
    monkeypatch.setattr("bylaw.calibration._maps._MOST_CURVED", 0)
    assert least <= loss.at(fit_map(sample, design, slope).theta)[0] + 1e-8


def test_a_weight_of_two_is_a_row_twice():
    rng = np.random.default_rng(5)
    P, labels = rng.dirichlet(np.ones(3), 300), rng.integers(0, 3, 300)
    weights = rng.integers(1, 4, 300)
    twice = np.repeat(np.arange(300), weights)
    weighted = make_sample(P, labels, weights.astype(float))
    repeated = make_sample(P[twice], labels[twice], np.ones(len(twice)))
    assert fit_slope(weighted) == pytest.approx(fit_slope(repeated))
    slope = fit_slope(weighted)
    # Without the ridge, which counts rows.
    design = shrink_towards(make_design("vector", weighted, slope), np.array([0, 0, 0, 1.0, 1, 1]))
    free = type(design)(**{**vars(design), "ridge": np.zeros(6)})
    one, other = fit_map(weighted, free, slope), fit_map(repeated, free, slope)
    probe = make_sample(P, labels, np.ones(300))
    assert one.scores(probe) - one.scores(probe)[0] == pytest.approx(
        other.scores(probe) - other.scores(probe)[0], abs=1e-3
    )


@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_isotonic_maps_are_monotone_and_keep_the_order(factor):
    sample = generated(4000, 2, factor)
    slope, design, _ = parts(sample, "isotonic")
    one = fit_map(sample, design, slope).make_map(sample.floor)
    p = 1 / (1 + np.exp(-np.linspace(-12, 12, 500)))
    calibrated = one.apply(np.column_stack([1 - p, p]))[:, 1]
    assert (np.diff(calibrated) > 0).all()
    assert one.bends.any()


def test_knots_lie_where_the_rows_are():
    sample = generated(4000, 3)
    knots = place_knots(sample, 1.0)
    assert (np.diff(knots, axis=1) >= 0).all()
    for k in range(3):
        assert sample.logs[k].min() < knots[k, 0]
        assert knots[k, -1] < 0
    few = generated(100, 3)
    assert place_knots(few, 1.0).shape == (3, 1)


def test_a_group_of_few_rows_stays_near_the_map_of_all():
    pooled_rows, own = generated(5000, 2, 4.0), generated(4000, 2, 1.0, seed=1)
    slope = fit_slope(pooled_rows)
    design = make_design("vector", pooled_rows, slope)
    pooled = fit_map(pooled_rows, design, slope)

    def distance(rows):
        near = fit_map(own.rows(slice(rows)), shrink_towards(design, pooled.theta), slope)
        return np.abs(near.theta - pooled.theta).max()

    assert distance(5) < 0.5 < 2 < distance(4000)


def test_a_group_of_few_rows_stays_near_a_map_that_corrects_a_bias():
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(5000, 2))
    labels = (softmax(scores, axis=1)[:, 0] < rng.random(5000)).astype(int)
    rows = make_sample(softmax(scores + np.array([3.0, 0.0]), axis=1), labels, np.ones(5000))
    slope = fit_slope(rows)
    design = make_design("vector", rows, slope)
    pooled = fit_map(rows, design, slope)
    near = fit_map(rows.rows(slice(2)), shrink_towards(design, pooled.theta), slope)
    assert np.abs(pooled.theta - design.center).max() > 1
    assert np.abs(near.theta - pooled.theta).max() < 0.5
