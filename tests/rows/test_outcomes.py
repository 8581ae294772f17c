"""Rows as they turned out."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, Problem, custom, error, solve
from bylaw.rows import observe

P = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])
T = {"F": [0.1, 0.5, 1.0], "M": [0.9, 0.5, 0.0]}
CELLS = {
    ("F", 0): [0.1, 0.2, 0.6],
    ("F", 1): [0.0, 0.3, 0.4],
    ("M", 0): [0.5, 0.1, 0.0],
    ("M", 1): [0.4, 0.4, 0.0],
}


def test_rows_as_they_turned_out():
    good = np.column_stack([T["F"], T["M"]])[:, :, None] * P[:, None, :]
    evidence = Evidence(
        P, groups={"s": T}, joint={"s": good}, references={"old": [0, 1, 1]}, weights=[1, 2, 3]
    )
    seen = observe(evidence.with_observed(labels=[1, 0, 1], true_groups={"s": ["M", "M", "F"]}))
    assert seen.event_probability((("label", 1), ("s", "M"))).tolist() == [1, 0, 0]
    assert seen.group_values == evidence.group_values
    assert seen.weights is evidence.weights
    assert seen.references == evidence.references
    assert observe(evidence).event_probability((("s", "F"),)) == pytest.approx(T["F"])
    assert seen.predicted.probabilities is evidence.probabilities


def test_what_was_not_seen_is_known_given_what_was():
    joint = np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.4, 0.1], [0.4, 0.1]], [[0.5, 0.0], [0.5, 0.0]]])
    shown = {"F": joint[:, 0].sum(axis=1), "M": joint[:, 1].sum(axis=1)}
    evidence = Evidence(joint.sum(axis=1), groups={"s": shown}, joint={"s": joint})
    seen = observe(evidence.with_observed(labels=[1, 0, 1]))
    assert seen.event_probability((("s", "F"),)) == pytest.approx(
        [0.2 / 0.6, 0.5, 0.5]
    )  # nothing known of the last
    assert seen.event_probability((("label", 1), ("s", "F"))) == pytest.approx([0.2 / 0.6, 0.0, 0.5])


def test_attributes_that_go_together_inform_each_other():
    evidence = Evidence(P, groups={("s", "r"): CELLS})
    seen = observe(evidence.with_observed(true_groups={"s": ["F", "M", "F"]}))
    assert seen.event_probability((("r", 1),)) == pytest.approx([0.0, 0.8, 0.4])
    assert seen.event_probability((("r", 1), ("s", "F"))) == pytest.approx([0.0, 0.0, 0.4])
    both = observe(evidence.with_observed(true_groups={"s": ["F", "M", "F"], "r": [1, 1, 0]}))
    assert both.event_probability((("r", 1), ("s", "F"))).tolist() == [1, 0, 0]


def test_labels_and_margins_are_known_given_what_was_seen():
    joint = np.zeros((4, 2, 2))
    joint[:, 0, 0] = joint[:, 1, 1] = 0.5  # the group determines the label
    even = np.full((4, 2), 0.5)
    evidence = Evidence(even, groups={"s": {"m": even[:, 0], "f": even[:, 1]}}, joint={"s": joint})
    seen = observe(evidence.with_observed(true_groups={"s": ["m", "m", "f", "f"]}))
    assert seen.probabilities[:, 0].tolist() == [1, 1, 0, 0]
    pairs = {("m", 0): [0.25] * 4, ("m", 1): [0.25] * 4, ("f", 0): [0.25] * 4, ("f", 1): [0.25] * 4}
    both = np.repeat(joint / 2, 2, axis=1)
    together = Evidence(even, groups={("s", "t"): pairs}, joint={("s", "t"): both})
    assert observe(together.with_observed(labels=[0, 0, 1, 1])).event_probability((("s", "m"),)).tolist() == [
        1,
        1,
        0,
        0,
    ]


def test_custom_functions_see_what_was_known_beforehand():
    def doubt(evidence):
        return np.outer(1 - evidence.probabilities.max(axis=1), [0, 1])

    rng = np.random.default_rng(0)
    P = rng.dirichlet([1, 1], 500)
    labels = (rng.random(500) < P[:, 1]).astype(int)
    problem = Problem(error(), [custom(doubt) <= 0.02])
    policy = solve(problem, Evidence(P), labels=labels)
    distribution = policy.probabilities(Evidence(P))
    assert ((1 - P.max(axis=1)) * distribution[:, 1]).mean() == pytest.approx(0.02, abs=1e-5)
    part = observe(Evidence(P, labels=labels)).rows(slice(7))
    assert policy.expected(custom(doubt), part, probabilities=distribution[:7]) == pytest.approx(
        ((1 - P.max(axis=1)) * distribution[:, 1])[:7].mean()
    )
