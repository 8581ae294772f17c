"""Confidence sequences: the bound written out, and how often they miss a known rate at some time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bylaw.monitoring.confidence_sequences import bound_total, estimate_rates, find_interval
from bylaw.monitoring.rounds import Events, RateSums

MEAN = Events(1, True, False, 0.0, 1.0)
GAP = Events(2, True, False, -1.0, 1.0)
NESTED = Events(2, False, True, -1.0, 1.0)


def test_the_bound_by_hand():
    """V = 32 is nine doublings above a quarter of the squared scale of 1/2."""
    tail = 1 / (0.4 * 1_000_000**0.4)  # of the sum that is zeta(1.4)
    effort = 1.4 * math.log(10) + math.log((sum(k**-1.4 for k in range(1, 1_000_000)) + tail) / 0.01)
    k1, k2 = (2**0.25 + 2**-0.25) / math.sqrt(2), (math.sqrt(2) + 1) / 2
    behind = k2 * 0.5 * effort
    expected = math.sqrt(k1**2 * 32 * effort + behind**2) + behind
    assert bound_total(np.array([32.0]), np.array([0.5]), 0.01)[0] == pytest.approx(expected, rel=1e-5)


def test_the_bound_has_a_floor_and_grows():
    """Before V has reached a quarter of the squared scale nothing changes; then it grows with V."""
    scale = np.full(5, 2.0)
    found = bound_total(np.array([0.0, 0.5, 1.0, 10.0, 1000.0]), scale, 0.05)
    assert found[0] == found[1] == found[2] < found[3] < found[4]
    assert bound_total(np.array([10.0]), scale[:1], 0.001) > found[3]
    assert bound_total(np.array([10.0]), 2 * scale[:1], 0.05) > found[3]


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
    return RateSums().follow(sums, events.most_tuples)[:, 1:], truth


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
    sums, _ = draw_sums(MEAN, 500, 3)
    lower, upper = find_interval(sums[:, -1:], MEAN, 0.01)
    w, u, uu, uw, ww = sums[:, -1]
    for end, sign, scale in ((lower[0], 1, lower[0]), (upper[0], -1, 1 - upper[0])):
        variance = uu - 2 * end * uw + end**2 * ww
        limit = bound_total(np.array([variance]), np.array([scale]), 0.01)[0]
        assert sign * (u - end * w) == pytest.approx(limit, rel=1e-6)


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
