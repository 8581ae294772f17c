"""The yardsticks of the measurements on rules as observed, on cases whose answers are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from experiments.estimator import equal_terms, per_label, populations
from experiments.estimator.known_groups import error_at
from scipy.special import softmax


def test_a_classifier_that_always_says_no_treats_groups_alike():
    for population in populations.POPULATIONS:
        integral = populations.Integral(population, 4, log_points=8)
        never = SimpleNamespace(predict_proba=lambda X, **_: np.tile([1.0, 0.0], (len(X), 1)))
        excess, cost = integral.judge(never)
        assert excess == pytest.approx(-population.tol)
        assert cost == pytest.approx((integral.cells * integral.chances).sum(axis=1).mean())


@pytest.mark.slow
def test_integrals_are_what_many_rows_show():
    """Decisions by the first feature, on the population and on a large sample."""
    decide = SimpleNamespace(
        predict_proba=lambda X, **_: np.column_stack([X["first"] <= 0, X["first"] > 0]).astype(float)
    )
    for population in populations.POPULATIONS:
        X, y, groups = populations.draw(population, 2, 200_000, seed=0)
        excess, cost = populations.Integral(population, 2, log_points=13).judge(decide)
        chosen = (X["first"] > 0).to_numpy()
        strata = [y == 1, y == 0] if population.odds else [np.ones(len(y), bool)]
        gaps = [
            abs(chosen[stratum & (groups == group)].mean() - chosen[stratum].mean())
            for stratum in strata
            for group in (0, 1)
        ]
        assert excess == pytest.approx(max(gaps) - population.tol, abs=0.006)
        assert cost == pytest.approx((chosen != y).mean(), abs=0.004)


def test_a_quantile_of_each_class_covers_it_exactly():
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(5), 1003), rng.integers(0, 5, 1003)
    included = per_label.quantile_sets(probabilities, labels)
    missed = 1 - included[np.arange(1003), labels]
    for label in range(5):
        assert missed[labels == label].mean() == pytest.approx(per_label.LEVEL)
    assert included.min() >= 0
    assert included.max() <= 1


def test_the_program_over_bins_keeps_the_tolerance_and_beats_a_common_threshold():
    from benchmarks.peers.programs import Rule
    from benchmarks.peers.rows import Rows
    from experiments.estimator.binned_program import solve_binned

    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 4000)
    score = 1 / (1 + np.exp(-rng.normal(0.8 * groups, 1)))
    rows = Rows(np.column_stack([1 - score, score]), (rng.random(4000) < score).astype(int), groups)
    chosen = {tol: solve_binned(rows, Rule(tol))(rows)[:, 1] for tol in (0.0, 0.05, 1.0)}
    for tol, chance in chosen.items():
        assert abs(chance[groups == 1].mean() - chance[groups == 0].mean()) <= tol + 1e-9
    errors = [np.where(rows.labels == 1, 1 - chance, chance).mean() for chance in chosen.values()]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] <= ((score > 0.5) != rows.labels).mean() + 0.01


def test_errors_are_read_off_between_gaps_and_not_below():
    rows = pandas.DataFrame({"gap": [0.03, 0.01], "error": [0.1, 0.2]})
    assert error_at(rows, 0.02) == pytest.approx(0.15)
    assert error_at(rows, 0.04) == 0.1
    assert np.isnan(error_at(rows, 0.005))


def test_curves_are_compared_between_the_nearest_tolerances():
    """The peer has a gap of 2 points and 27 % errors; our curve is a line."""
    curve = [(0.10, 0.20), (0.00, 0.30), (0.05, 0.25)]
    found = equal_terms.compare(curve, (0.02, 0.27))
    assert found["error apart"] == pytest.approx(0.28 - 0.27)
    assert found["gap apart"] == pytest.approx(0.03 - 0.02)


def test_order_statistics_leave_out_as_few_rows_as_the_beta_distribution_demands():
    """One of n rows may be left out if .9^n + n * .1 * .9^(n - 1) <= 1 - .95^(1 / 2) = .025: not of 45 rows
    (.052), but of 60 (.014)."""
    for n, left_out in ((45, 0), (60, 1)):
        own = np.linspace(0.3, 0.9, n)
        logits = np.log(np.column_stack([own, 1 - own]))
        fitted = per_label.Scores(np.vstack([logits, logits[:, ::-1]]), np.repeat([0, 1], n))
        included = per_label.order_statistic_sets(fitted, softmax(logits, axis=1))
        assert (included[:, 0] == 0).sum() == left_out


def test_stated_chances_are_binned():
    rows = [
        {"population": "parity, groups known", "variant": variant, "excess": excess, "stated": stated}
        for variant, excess, stated in [
            ("default", -0.01, 0.95),
            ("default", 0.01, 0.95),
            ("margin=0", -0.01, 0.05),
            ("correction=False", 0.5, 0.0),
            ("default", np.nan, 0.0),
        ]
    ]
    bins = populations.bin_chances(rows)
    assert bins.fits.tolist() == [1, 2]
    assert bins.holds.tolist() == [1.0, 0.5]
    assert bins.brier.tolist() == pytest.approx([0.95**2, (0.95**2 + 0.05**2) / 2])
