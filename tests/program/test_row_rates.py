from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, disagreement, error, precision, rejected, selected
from bylaw.language import make_action_space
from bylaw.program import compute_row_rates, has_rows, standard_error
from bylaw.rows import observe
from helpers.reference import softmax

N = 400


def draw_rows():
    """Return probabilities, groups, labels, weights, a policy's distribution and an old model's decisions."""
    rng = np.random.default_rng(5)
    P = softmax(rng.normal(size=(N, 3)))
    group = np.where(rng.random(N) < 0.2, "a", "b")
    labels = (rng.random(N)[:, None] > P.cumsum(axis=1)).sum(axis=1)
    return (
        P,
        group,
        labels,
        rng.uniform(0.5, 2, N),
        softmax(rng.normal(size=(N, 4)) * 2),
        rng.integers(0, 3, N),
    )


P, GROUP, LABELS, WEIGHTS, LAW, OLD = draw_rows()
DECISIONS = make_action_space("reject", (0, 1, 2), "reject")
SEEN = observe(Evidence(P, groups={"g": GROUP}, references={"old": OLD}, weights=WEIGHTS, labels=LABELS))

# Each rate with the same written out for rows i, of which some may be drawn several times.
RATES = {
    "error": (error(), lambda i: np.average(1 - LAW[i, 3] - LAW[i, LABELS[i]], weights=WEIGHTS[i])),
    "precision": (
        precision(1),
        lambda i: np.sum(WEIGHTS[i] * LAW[i, 1] * (LABELS[i] == 1)) / np.sum(WEIGHTS[i] * LAW[i, 1]),
    ),
    "group": (selected(1).given(g="a"), lambda i: mean(i, LAW[:, 1], GROUP == "a")),
    "gap": (
        selected(1).given(g="a") - selected(1),
        lambda i: mean(i, LAW[:, 1], GROUP == "a") - mean(i, LAW[:, 1], GROUP != ""),
    ),
    "odds": (
        selected(1).given(g="a", label=1) - selected(1).given(g="b", label=1),
        lambda i: (
            mean(i, LAW[:, 1], (GROUP == "a") & (LABELS == 1))
            - mean(i, LAW[:, 1], (GROUP == "b") & (LABELS == 1))
        ),
    ),
    "disagreement": (
        disagreement("old").given(g="a") - disagreement("old"),
        lambda i: (
            mean(i, 1 - LAW[np.arange(N), OLD], GROUP == "a")
            - mean(i, 1 - LAW[np.arange(N), OLD], GROUP != "")
        ),
    ),
    "mixed": (
        0.5 * error().given(g="b") - 2 * rejected() + 0.25,
        lambda i: (
            0.5 * mean(i, 1 - LAW[:, 3] - LAW[np.arange(N), LABELS], GROUP == "b")
            - 2 * np.average(LAW[i, 3], weights=WEIGHTS[i])
            + 0.25
        ),
    ),
}


def mean(i, column, among):
    here = i[among[i]]
    return np.average(column[here], weights=WEIGHTS[here])


@pytest.mark.parametrize("name", RATES)
def test_contributions_average_to_the_observed_rate(name):
    rate, written_out = RATES[name]
    rows = compute_row_rates(rate, SEEN, LAW, DECISIONS)
    assert np.average(rows, weights=WEIGHTS) == pytest.approx(written_out(np.arange(N)), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_standard_errors_are_those_of_a_bootstrap(name):
    rate, written_out = RATES[name]
    draws = np.random.default_rng(0)
    spread = np.std([written_out(draws.integers(0, N, N)) for _ in range(1000)])
    assert standard_error(rate, SEEN, LAW, DECISIONS) == pytest.approx(spread, rel=0.1)


def test_rows_for_every_condition():
    rate = selected(1).given(g="a") - selected(1).given(label=2)
    assert has_rows(rate, SEEN)
    assert not has_rows(rate, SEEN.rows(np.flatnonzero(GROUP == "b")))
