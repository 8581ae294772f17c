"""Confidence sequences: the bound written out, and how often they miss a known rate at some time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bylaw.testing._rounds import Events, follow_sums
from bylaw.testing._watched_rule import estimate_rates, find_interval, find_log_wealth

MEAN = Events(((0.0, 1.0),))
GAP = Events(((0.0, 1.0), (-1.0, 0.0)))
NESTED = Events(((0.0, 1.0), (-1.0, 0.0)), disjoint=False, cancels=True)
BATCHES = Events(((0.0, 1.0), (-1.0, 0.0)), batched=True)


def test_the_wealth_of_all_stakes_by_hand():
    stakes = [3e-4 * (0.98 / 3e-4) ** (k / 35) for k in range(36)]
    made = [math.exp(s * 30 / 2 + (math.log(1 - s) + s) * 50 / 4) for s in stakes]
    found = find_log_wealth(np.array([30.0]), np.array([50.0]), np.array([2.0]))[0]
    assert found == pytest.approx(math.log(sum(made) / 36))


@pytest.mark.parametrize("low", [-1.0, -0.05])
def test_the_mean_wealth_of_fair_rounds_is_at_most_one(low):
    """Over all courses of six fair rounds that lose at most one: the mean of the supermartingale."""
    values = np.array([low, 0.4, 6.0])
    chances = np.linalg.solve([[1, 1, 1], values, [0, 1, -9]], [1, 0, 0])
    assert (chances > 0).all()
    drawn = np.array(list(itertools.product(range(3), repeat=6)))
    logs = find_log_wealth(values[drawn].sum(axis=1), (values[drawn] ** 2).sum(axis=1), np.ones(len(drawn)))
    assert chances[drawn].prod(axis=1) @ np.exp(logs) <= 1 + 1e-12


def draw_sums(events, n_rounds, seed, rates=(0.3, 0.2), share=0.5, fractional=False):
    """(5, n_rounds): sums after each round; and the true sum of means. A mean is the first of the rates."""
    rng = np.random.default_rng(seed)
    n = n_rounds * events.rows
    inside = rng.random(n) < share
    accepted = (rng.random(n) < np.where(inside, *rates)) * 1.0
    if fractional:
        accepted = np.clip(accepted + rng.uniform(-0.2, 0.2, n), 0, 1)
    if events.number == 1:
        drawn = (rng.random(n) < rates[0]) * 1.0
        columns, truth = np.stack([np.ones(n), drawn]), rates[0]
    elif events.disjoint:
        columns = np.stack([inside, ~inside, inside * accepted, -accepted * ~inside])
        truth = rates[0] - rates[1]
    else:
        columns = np.stack([inside, np.ones(n), inside * accepted, -accepted])
        truth = (1 - share) * (rates[0] - rates[1])
    sums = events.sum_rounds(columns * 1.0)
    return follow_sums(np.zeros(5), sums)[:, 1:], truth


@pytest.mark.parametrize("events", [MEAN, GAP, NESTED], ids=["mean", "gap", "nested"])
def test_the_estimate_is_inside_and_the_interval_shrinks(events):
    sums, truth = draw_sums(events, 4000, 0)
    at = sums[:, [9, 99, 999, 3999]]
    lower, upper = find_interval(at, events, 0.025)
    estimate = estimate_rates(at)
    assert (lower <= estimate).all()
    assert (estimate <= upper).all()
    assert (np.diff(upper - lower) < 0).all()
    assert upper[-1] - lower[-1] < 0.1
    assert lower[-1] <= truth <= upper[-1]
    assert (lower >= events.lowest).all()
    assert (upper <= events.highest).all()


def test_without_rows_the_interval_is_everything():
    lower, upper = find_interval(np.zeros((5, 1)), GAP, 0.025)
    assert (lower[0], upper[0]) == (-1.0, 1.0)
    assert np.isnan(estimate_rates(np.zeros((5, 1))))[0]


def test_the_ends_are_where_the_bound_is_reached():
    """Of a mean, by hand: total and squares about the lower end meet the bound."""
    sums, _ = draw_sums(MEAN, 4000, 3)
    lower, upper = find_interval(sums[:, -1:], MEAN, 0.01)
    w, u, uu, uw, ww = sums[:, -1]
    for end, sign, scale in ((lower[0], 1, lower[0]), (upper[0], -1, 1 - upper[0])):
        variance = uu - 2 * end * uw + end**2 * ww
        total = np.array([sign * (u - end * w)])
        wealth = find_log_wealth(total, np.array([variance]), np.array([scale]))[0]
        assert wealth == pytest.approx(math.log(1 / 0.01), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "options"),
    [
        (MEAN, {"rates": (0.03, 0.0)}),
        (GAP, {}),
        (GAP, {"share": 0.05}),
        (GAP, {"fractional": True, "rates": (0.5, 0.5)}),
        (NESTED, {}),
    ],
    ids=["rare mean", "gap", "small group", "random decisions", "nested"],
)
def test_the_truth_is_inside_at_all_times(events, options):
    """At level 0.1 for each end, of 80 runs at most 16 and three standard errors miss it at some time."""
    missed = 0
    times = np.unique(np.geomspace(1, 1500, 60).astype(int)) - 1
    for seed in range(80):
        sums, truth = draw_sums(events, 1500, 1000 + seed, **options)
        if options.get("fractional"):
            truth = 0.0
        lower, upper = find_interval(sums[:, times], events, 0.1)
        missed += ((truth < lower) | (truth > upper)).any()
    assert missed <= 16 + 3 * math.sqrt(80 * 0.2 * 0.8)
