"""Options: decisions that are no labels. Each rate by hand, texts both ways, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    RuleError,
    accepted,
    cost,
    custom,
    demographic_parity,
    disagreement,
    equal_opportunity,
    equalized_odds,
    error,
    error_parity,
    parse,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.language import OptionSpace, RejectSpace, make_action_space
from bylaw.program import bound_rate, compute_row_rates

EXPERTS = ["a", "b", "junior", "senior"]
P = np.array([[0.7, 0.3], [0.2, 0.8]])
EVIDENCE = Evidence(
    P,
    classes=["a", "b"],
    groups={"g": ["u", "v"]},
    references={"old": ["senior", "b"], "soft": np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0]])},
    costs={"visit": [[1, 2, 3, 4], [5, 6, 7, 8]]},
    options=["junior", "senior"],
)
TAKEN = np.array([[0.5, 0.2, 0.2, 0.1], [0.0, 0.4, 0.0, 0.6]])


def measure(rate, space=None, taken=TAKEN, evidence=EVIDENCE):
    space = space or make_action_space("options", evidence.classes, "reject", evidence.options)
    return compute_row_rates(rate, evidence, taken, space).mean()


@pytest.mark.parametrize(
    ("rate", "by_hand"),
    [
        (error(), (0.5 * 0.3 + 0.2 * 0.7 + 0.4 * 0.2) / 2),
        (selected("junior"), 0.2 / 2),
        (selected("b"), (0.2 + 0.4) / 2),
        (accepted(), (0.7 + 0.4) / 2),
        (cost([[0, 1], [5, 0]]), (0.2 * 0.7 + 5 * 0.5 * 0.3 + 0.4 * 0.2) / 2),
        (cost([[0, 1, 2, 3], [5, 0, 2, 4]]), (0.97 + 2 * 0.2 + 0.1 * (2.1 + 1.2) + 0.6 * (0.6 + 3.2)) / 2),
        (disagreement("old"), 1 - (0.1 + 0.4) / 2),
        (disagreement("soft"), 1 - (0.05 + 0.04 + 0.06 + 0.04 + 0.2) / 2),
        (custom("visit"), (0.5 + 0.4 + 0.6 + 0.4 + 2.4 + 4.8) / 2),
        (selected("senior").given(g="v"), 0.6),
        (selected("senior").given(label="b"), (0.3 * 0.1 + 0.8 * 0.6) / 1.1),
        (selected("senior").given(g="u") - selected("senior"), 0.1 - 0.35),
    ],
)
def test_rates_by_hand(rate, by_hand):
    assert measure(rate) == pytest.approx(by_hand, abs=1e-12)


def test_a_rejection_is_the_simplest_option():
    listed = Problem(error(), [rejected() <= 0.1], decisions=[1, "reject", 0]).action_space((0, 1))
    assert listed == RejectSpace((0, 1)) == Problem(error(), decisions="reject").action_space((0, 1))
    assert isinstance(listed, OptionSpace)
    assert listed.options == ("reject",)
    beside = Problem(error(), decisions=["a", "b", "junior", "later"], reject="later").action_space(
        ("a", "b")
    )
    assert beside.reject_position == 3
    assert measure(rejected(), beside) == pytest.approx(0.35)
    assert measure(accepted(), beside) == pytest.approx(0.55)
    evidence = Evidence(
        P, classes=["a", "b"], references={"old": ["later", "b"]}, options=["junior", "later"]
    )
    assert (
        measure(disagreement("old"), beside, evidence=evidence) == 1 - 0.4 / 2
    )  # "later" agrees with nothing


def test_ranges_without_labels():
    space = make_action_space("options", (), "reject", ("small", "large"))
    assert bound_rate(selected("small") - selected("large"), space) == (-1.0, 1.0)
    assert bound_rate(custom("usd"), space, limits={"usd": (0.5, 2.0)}) == (0.5, 2.0)


@pytest.mark.parametrize(
    "text",
    [
        "selected('senior') <= 0.05",
        "error() + 0.1 * selected('junior') + 0.3 * selected('senior')",
        "custom('usd') <= 0.002",
        "abs(selected('large').given(lang='fr') - selected('large')) <= 0.02",
        "demographic_parity('lang', tol=0.02, labels=['large'])",
        "cost([[0, 1, 2, 3], [5, 0, 2, 4]])",
        "disagreement('old').given(lang='fr') <= 0.1",
    ],
)
def test_text_both_ways(text):
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_families_range_over_labels_and_without_labels_over_options():
    groups = {"g": ("u", "v")}
    family = demographic_parity("g", tol=0.1)
    beside = family.expand(("a", "b"), groups, ("junior",))
    assert {atom.arguments[0] for rule in beside for atom in rule.atoms()} == {"a", "b"}
    alone = family.expand((), groups, ("small", "large"))
    assert {atom.arguments[0] for rule in alone for atom in rule.atoms()} == {"small", "large"}
    named = demographic_parity("g", tol=0.1, labels=["junior"]).expand(("a", "b"), groups, ("junior",))
    assert {atom.arguments[0] for rule in named for atom in rule.atoms()} == {"junior"}
    with pytest.raises(RuleError, match=r"and options \['junior'\], got \['senior'\]"):
        demographic_parity("g", tol=0.1, labels=["senior"]).expand(("a", "b"), groups, ("junior",))


ROUTES = Evidence(
    costs={"wrong": [[0.5, 0.1], [0.3, 0.2]]}, options=["small", "large"], groups={"g": ["u", "v"]}
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Problem(error(), decisions=["a", "b", "a"]), "'a' occurs twice"),
        (lambda: Problem(error(), decisions=["a"]), "must list two or more"),
        (lambda: Problem(error(), decisions="options"), "list the labels and the options"),
        (lambda: Problem(error(), decisions=3), "or a list of labels and options, got 3"),
        (lambda: Problem(error(), decisions={"a", "b"}), "or a list of labels and options, got {"),
        (lambda: Problem(error(), classes=["a", "b"], decisions=["a", "x"]), r"without 'b'"),
        (lambda: Problem(error(), decisions=[0, 1, "1"]), "'1' occurs twice"),
        (lambda: make_action_space("options", (0, 1), "reject", ("1",)), "'1' is also a class"),
        (lambda: solve(Problem(error(), decisions=["a", "x"]), EVIDENCE), "selected\\('b'\\) <= 0"),
        (
            lambda: solve(Problem(error(), decisions=[*EXPERTS, "x"]), EVIDENCE),
            "the options of the evidence must be",
        ),
        (
            lambda: solve(Problem(custom("wrong"), decisions=["large", "small"]), ROUTES),
            r"decisions, \['large', 'small'\], in this order, got \['small', 'large'\]",
        ),
        (lambda: solve(Problem(error(), decisions="labels"), EVIDENCE), "contradicts the options"),
        (lambda: solve(Problem(error()), EVIDENCE), "'junior' costs nothing and no rule limits it"),
        (lambda: solve(Problem(error(), [selected("x") <= 0.1]), EVIDENCE), "and the options"),
        (lambda: solve(Problem(error(), [rejected() <= 0.1]), EVIDENCE), "options must contain 'reject'"),
        (lambda: solve(Problem(cost([[0, 1, 2], [1, 0, 2]])), EVIDENCE), "got 3 columns"),
        (lambda: solve(Problem(size()), EVIDENCE), "is not defined if a decision is one label per row, or"),
        (lambda: solve(Problem(error()), ROUTES), "error\\(\\) requires classes"),
        (lambda: solve(Problem(cost([[0, 1], [1, 0]])), ROUTES), "cost\\(\\) requires classes"),
        (
            lambda: solve(Problem(custom("wrong"), [accepted() >= 0.5]), ROUTES),
            "accepted\\(\\) requires classes",
        ),
        (lambda: solve(Problem(custom("wrong"), [equalized_odds("g", tol=0.1)]), ROUTES), "same true label"),
        (
            lambda: solve(Problem(custom("wrong"), [error_parity("g", tol=0.1)]), ROUTES),
            "has only the options",
        ),
    ],
)
def test_bad_problems_are_refused(build, message):
    with pytest.raises(RuleError, match=message):
        build()


def test_an_option_is_no_true_label():
    problem = Problem(error() + selected("junior"), [equal_opportunity("g", tol=0.1, labels=["senior"])])
    with pytest.raises(ValueError, match="label='senior', which is not a class"):
        solve(problem, EVIDENCE)
