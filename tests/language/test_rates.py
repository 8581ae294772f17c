"""Each word against an answer worked out by hand, on two rows and two classes."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from bylaw import (
    Evidence,
    Problem,
    RuleError,
    accepted,
    balanced_error,
    cost,
    custom,
    disagreement,
    error,
    f1,
    g_mean,
    miscoverage,
    omits,
    precision,
    recall,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.errors import Remedy

P = np.array([[0.7, 0.3], [0.2, 0.8]])
EVIDENCE = Evidence(
    P,
    classes=["a", "b"],
    groups={"g": ["u", "v"]},
    references={"old": ["b", "b"]},
    costs={"visit": [[1, 2, 3], [4, 5, 6]], "pick": [[1, 2], [4, 5]]},
)


class Fixed:
    """Rates under a distribution of our choice."""

    def __init__(self, distribution, kind):
        self.distribution = np.array(distribution)
        self.policy = solve(Problem(selected("a") + 2 * selected("b"), decisions=kind), EVIDENCE)

    def __call__(self, rate):
        return self.policy.expected(rate, EVIDENCE, probabilities=self.distribution)


REJECT = Fixed([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]], "reject")
SETS = Fixed([[1.0, 0.5], [0.25, 1.0]], "sets")


@pytest.mark.parametrize(
    ("rate", "by_hand"),
    [
        (error(), (0.5 * 0.3 + 0.25 * 0.7 + 0.5 * 0.2) / 2),
        (rejected(), (0.25 + 0.5) / 2),
        (accepted(), (0.75 + 0.5) / 2),
        (selected("b"), (0.25 + 0.5) / 2),
        # "a" is decided on half of the first row, "b" on a quarter of it and half of the second.
        (precision("a"), 0.7),
        (precision("b"), (0.25 * 0.3 + 0.5 * 0.8) / 0.75),
        (precision("b").given(g="v"), 0.8),
        (error().given(decision="b"), (0.25 * 0.7 + 0.5 * 0.2) / 0.75),
        (error().given(decision="b", g="u"), 0.7),
        (disagreement("old").given(decision="b"), 0.0),
        (disagreement("old").given(decision="a"), 1.0),
        (custom("visit").given(decision="b"), (0.25 * 2 + 0.5 * 5) / 0.75),
        (custom("visit").given(decision="reject"), (0.25 * 3 + 0.5 * 6) / 0.75),
        (cost([[0, 1], [5, 0]]).given(decision="b"), (0.25 * 0.7 + 0.5 * 0.2) / 0.75),
        (recall("a"), 0.5 * 0.7 / 0.9),
        (f1("a"), 2 * 0.35 / (0.9 + 0.5)),
        (f1("a").given(g="u"), 2 * 0.35 / (0.7 + 0.5)),
        (balanced_error(), (0.25 * 0.7 + 0.5 * 0.2) / 0.9 / 2 + 0.5 * 0.3 / 1.1 / 2),
        (g_mean(), (0.35 / 0.9 * (0.25 * 0.3 + 0.5 * 0.8) / 1.1) ** 0.5),
        (1 - g_mean().given(g="u"), 1 - (0.5 * 0.25) ** 0.5),
        (error() / accepted(), (0.15 + 0.175 + 0.1) / 1.25),
        (cost([[0, 1], [5, 0]]), (0.25 * 0.7 * 1 + 0.5 * 0.3 * 5 + 0.5 * 0.2 * 1) / 2),
        (cost([[0, 1, 2], [5, 0, 2]]), (0.175 + 0.75 + 0.1 + 2 * 0.75) / 2),
        (disagreement("old"), 1 - (0.25 + 0.5) / 2),
        (custom("visit"), (0.5 * 1 + 0.25 * 2 + 0.25 * 3 + 0.5 * 5 + 0.5 * 6) / 2),
        (rejected().given(g="v"), 0.5),
        (error().given(g="u"), 0.5 * 0.3 + 0.25 * 0.7),
        (error().given(label="a"), (0.7 * 0.25 + 0.2 * 0.5) / 0.9),
        (selected("a").given(g="u", label="b"), 0.5),
        (selected("b").given(label="b"), (0.3 * 0.25 + 0.8 * 0.5) / 1.1),
        (disagreement("old").given(label="b"), 1 - (0.3 * 0.25 + 0.8 * 0.5) / 1.1),
        (2 * rejected() - selected("b") + 1, (0.25 + 0.5) / 2 + 1),
    ],
)
def test_rates_of_labels_and_rejections(rate, by_hand):
    assert REJECT(rate) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    ("rate", "by_hand"),
    [
        (miscoverage(), 1 - (0.7 + 0.15 + 0.05 + 0.8) / 2),
        (size(), (1.5 + 1.25) / 2),
        (omits("old"), 1 - (0.5 + 1.0) / 2),
        (selected("a"), (1.0 + 0.25) / 2),
        (cost([[0, 1], [5, 0]]), (0.5 * 0.7 * 1 + 1.0 * 0.3 * 5 + 1.0 * 0.2 * 1 + 0.25 * 0.8 * 5) / 2),
        (custom("pick"), (1 + 1 + 1 + 5) / 2),
        (miscoverage().given(g="u"), 1 - (0.7 + 0.15)),
        (miscoverage().given(label="a"), 1 - (0.7 + 0.05) / 0.9),
        (size().given(g="v"), 1.25),
    ],
)
def test_rates_of_sets(rate, by_hand):
    assert SETS(rate) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    ("rate", "kind", "message"),
    [
        (size(), "labels", r"size\(\) is not defined.*accepted\(\) or rejected\(\)"),
        (size(), "reject", r"size\(\) is not defined"),
        (error(), "sets", r"use miscoverage\(\)"),
        (miscoverage(), "labels", r"use error\(\)"),
        (disagreement("old"), "sets", r"use omits"),
        (omits("old"), "labels", r"use disagreement"),
        (rejected(), "labels", "decisions='reject'"),
        (accepted(), "sets", r"size\(\) for sets"),
        (cost([[0, 1, 2], [5, 0, 2]]), "labels", "drop the last column"),
        (cost([[0, 1, 2], [1, 0, 2], [1, 1, 0]]), "labels", "each of the 2 classes, got 3"),
        (selected("c"), "labels", "one of the classes"),
        (selected("reject"), "reject", r"For rejections use rejected\(\)"),
    ],
)
def test_a_rate_out_of_place_says_what_to_use(rate, kind, message):
    with pytest.raises(RuleError, match=message):
        solve(Problem(rate, decisions=kind), EVIDENCE)


@pytest.mark.parametrize(
    ("rate", "kind", "needed"),
    [
        (size(), "labels", "sets"),
        (rejected(), "sets", "reject"),
        (cost([[0, 1, 2], [5, 0, 2]]), "labels", "reject"),
        (error(), "sets", None),
    ],
)
def test_a_rate_out_of_place_names_the_decisions_that_it_needs(rate, kind, needed):
    with pytest.raises(RuleError) as caught:
        solve(Problem(rate, decisions=kind), EVIDENCE)
    assert caught.value.remedy == (needed and Remedy("choose_decisions", needed))
    advice = f"; for other decisions use Problem(decisions={needed!r})"
    assert str(caught.value).endswith(advice) == (needed is not None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cost([[1, 2], [3]]), "one row per class"),
        (lambda: cost([[1]] * 3), "one row per class"),
        (lambda: cost([[0, float("nan")], [1, 0]]), "must be finite"),
        (lambda: disagreement(3), "name of a column"),
        (lambda: custom(3), "name of a cost or a function"),
        (lambda: custom(lambda e: e), "must have a name"),
        (lambda: custom("a", name="b"), "name in custom"),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(RuleError, match=message):
        build()


def test_a_cost_matrix_may_be_a_frame():
    assert cost(pandas.DataFrame([[0, 1], [5, 0]], columns=["a", "b"])) == cost([[0, 1], [5, 0]])


def test_two_functions_cannot_share_a_name():
    def one(evidence):
        return np.zeros((2, 2))

    def other(evidence):
        return np.ones((2, 2))

    rules = [custom(one, name="f") <= 1, custom(other, name="f") <= 2]
    with pytest.raises(RuleError, match="must have the same function in all rules"):
        solve(Problem(error(), rules), EVIDENCE)
