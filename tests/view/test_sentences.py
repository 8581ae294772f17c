from __future__ import annotations

import pytest

from bylaw import (
    accepted,
    balanced_error,
    cost,
    coverage_parity,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error,
    error_parity,
    f1,
    g_mean,
    miscoverage,
    omits,
    precision,
    predictive_parity,
    recall,
    rejected,
    rejection_parity,
    selected,
    size,
)
from bylaw.language import DEFINITIONS
from bylaw.language._families import FAMILIES
from bylaw.view import describe_rate, format_beside, write_price, write_sentence
from bylaw.view._sentences import name_saving


def said(statement, kind="labels"):
    return write_sentence(statement, kind).replace("\N{NO-BREAK SPACE}", " ")


FAMILY_SENTENCES = [
    (
        demographic_parity("sex", tol=0.02),
        "Each decision is given to every sex at a rate within 2 points of the overall rate.",
    ),
    (
        demographic_parity(["sex", "race"], tol=0.015, labels=["yes"]),
        "The decision “yes” is given to every sex and every race at a rate within 1.5 points of the overall "
        "rate.",
    ),
    (
        demographic_parity(("sex", "race"), tol=0.01, between="groups"),
        "Each decision is given to every combination of sex and race at a rate within 1 point of that of any "
        "other group.",
    ),
    (
        equalized_odds("sex", tol={"F": 0.01, "M": 0.02}),
        "Among cases with the same true label, each decision is given to every sex at a rate within 1 point "
        "(for “F”) and 2 points (for “M”) of the overall rate.",
    ),
    (
        equal_opportunity("sex", tol=0.05),
        "For each true label, every sex gets that label as its decision at a rate within 5 points of the "
        "overall rate.",
    ),
    (
        equal_opportunity("sex", tol=0.05, labels=["yes"]),
        "For the true label “yes”, every sex gets that label as its decision at a rate within 5 points of "
        "the overall rate.",
    ),
    (
        disparate_impact("sex"),
        "Each decision is given to every sex at no less than 80 % of the rate of any other group.",
    ),
    (
        disparate_impact("sex", ratio=0.9, between="overall"),
        "Each decision is given to every sex at no less than 90 % of the overall rate.",
    ),
    (
        error_parity("sex", tol=0.005),
        "Every sex is answered wrongly at a rate within 0.5 points of the overall rate.",
    ),
    (
        predictive_parity("sex", tol=0.05),
        "Among cases with the same decision, every sex has that label as its true one at a rate within 5 "
        "points of the overall rate.",
    ),
    (
        predictive_parity("sex", tol=0.05, between="groups", labels=["yes"]),
        "Among cases that get the decision “yes”, every sex has that label as its true one at a "
        "rate within 5 "
        "points of that of any other group.",
    ),
    (
        rejection_parity("sex", tol=0.02),
        "Every sex is referred at a rate within 2 points of the overall rate.",
    ),
    (
        coverage_parity("sex", tol=0.02),
        "Every sex gets sets that miss the true label at a rate within 2 points of the overall rate.",
    ),
]
F, ALL = selected("yes").given(sex="F"), selected("yes")
RULE_SENTENCES = [
    (error() <= 0.05, "At most 5 % of all cases are answered wrongly."),
    (rejected() <= 0.1, "At most 10 % of all cases are referred."),
    (accepted() >= 0.875, "At least 87.5 % of all cases get an answer."),
    (selected("yes") >= 0.123456, "At least 12.3456 % of all cases get the decision “yes”."),
    (disagreement("old") <= 0.05, "At most 5 % of all cases get another decision than from “old”."),
    (omits("old") <= 0.2, "At most 20 % of all cases get a set without the answer of “old”."),
    (miscoverage() <= 0.1, "At most 10 % of all cases get a set that misses the true label."),
    (size() <= 2, "The average number of labels in a set is at most 2."),
    (
        size().given(sex="F") <= 2.5,
        "The average number of labels in a set among cases with sex “F” is at most 2.5.",
    ),
    (cost([[0, 1], [5, 0]]) <= 0.2, "The average cost by the given table of costs is at most 0.2."),
    (custom("visit") <= 10, "The average “visit” is at most 10."),
    (
        error().given(sex="F", label=1) <= 0.1,
        "At most 10 % of cases with sex “F” and true label “1” are answered wrongly.",
    ),
    (
        error().given(decision="yes", sex="F") <= 0.1,
        "At most 10 % of cases with sex “F” that get the decision “yes” are answered wrongly.",
    ),
    (
        precision("yes") >= 0.9,
        "At least 90 % of cases that get the decision “yes” have the true label “yes”.",
    ),
    (
        recall("yes") >= 0.8,
        "At least 80 % of cases with true label “yes” get the decision “yes”.",
    ),
    (f1("yes") >= 0.6, "The F1 score of “yes” is at least 0.6."),
    (
        balanced_error() <= 0.2,
        "The average over the classes of the share of cases that are answered wrongly is at most 0.2.",
    ),
    (error() <= 0.05 * accepted(), "Of all cases that get an answer, at most 5 % get a wrong one."),
    (
        F >= 0.8 * selected("yes").given(sex="M"),
        "The share of cases with sex “F” that get the decision “yes” is at least 80 % of that of cases with "
        "sex “M”.",
    ),
    (
        abs(F - ALL) <= 0.02,
        "The share of cases with sex “F” that get the decision “yes” differs from that of all cases by "
        "at most 2 "
        "points.",
    ),
    (
        F - ALL <= 0.02,
        "The share of cases with sex “F” that get the decision “yes” exceeds that of all cases by at most 2 "
        "points.",
    ),
    (
        F - ALL >= -0.02,
        "The share of cases with sex “F” that get the decision “yes” falls short of that of all cases by at "
        "most 2 points.",
    ),
    (
        F - ALL >= 0.02,
        "The share of cases with sex “F” that get the decision “yes” exceeds that of all cases by at least 2 "
        "points.",
    ),
]


@pytest.mark.parametrize(("statement", "expected"), FAMILY_SENTENCES + RULE_SENTENCES, ids=str)
def test_sentences(statement, expected):
    assert said(statement) == expected


def test_every_family_and_every_rate_has_a_sentence():
    assert {family.name for family, _ in FAMILY_SENTENCES} == set(FAMILIES)
    named = {atom.name for rule, _ in RULE_SENTENCES for atom in rule.atoms()}
    assert named == set(DEFINITIONS) - {"g_mean"}  # which no rule bounds


def test_sets_have_their_own_words():
    assert said(precision("a") >= 0.5, "sets") == (
        "At least 50 % of cases that get a set that contains “a” have the true label “a”."
    )
    assert said(selected("a") <= 0.5, "sets") == "At most 50 % of all cases get a set that contains “a”."
    assert said(demographic_parity("sex", tol=0.02), "sets") == (
        "Each label is in the sets of every sex at a rate within 2 points of the overall rate."
    )


@pytest.mark.parametrize(
    "rule", [error() + 0.2 * rejected() <= 0.3, 2 * error() <= 0.1, abs(error() - 0.1) <= 0.05], ids=str
)
def test_what_has_no_sentence_keeps_its_text(rule):
    assert write_sentence(rule) == str(rule)


def test_rates_as_nouns():
    assert describe_rate(F - ALL) == (
        "the share of cases with sex “F” that get the decision “yes”, minus that of all cases"
    )
    noun = describe_rate(F - 0.8 * selected("yes").given(sex="M")).replace("\N{NO-BREAK SPACE}", " ")
    assert noun == (
        "the share of cases with sex “F” that get the decision “yes”, minus 80 % of that of cases "
        "with sex “M”"
    )
    ratio = describe_rate(F / selected("yes").given(sex="M"))
    assert ratio == (
        "the ratio of the share of cases with sex “F” that get the decision “yes” to that of cases "
        "with sex “M”"
    )
    assert describe_rate(1 - g_mean()) == "one minus the geometric mean of the recalls of all classes"
    assert describe_rate(1 - f1("yes")) == "one minus the F1 score of “yes”"
    assert describe_rate(error() / accepted()) == (
        "the share, among all cases that get an answer, of those that get a wrong one"
    )
    assert describe_rate(error() + 0.2 * rejected()) == "error() + 0.2 * rejected()"


def test_savings_are_named():
    assert name_saving(error()) == "of error"
    assert name_saving(size()) == "labels per set"
    assert name_saving(error() + 0.2 * rejected()) == "of error() + 0.2 * rejected()"


@pytest.mark.parametrize(
    ("value", "limits", "unit", "text"),
    [
        (0.1002, (0.1,), "share", "10.02 %"),
        (0.1, (0.1,), "share", "10 %"),
        (0.1 + 1e-9, (0.1,), "share", "10 %"),
        (0.083, (0.1,), "share", "8.3 %"),
        (-0.0196, (-0.02, 0.02), "points", "−1.96 points"),
        (0.02003, (-0.02, 0.02), "points", "2.003 points"),
        (1.5004, (1.5,), "plain", "1.5004"),
    ],
)
def test_an_estimate_is_told_from_its_limit(value, limits, unit, text):
    assert format_beside(value, limits, unit).replace("\N{NO-BREAK SPACE}", " ") == text


def test_long_names_are_cut():
    assert "…" in said(selected("y" * 500) <= 0.5)


def test_what_the_whole_rule_costs_is_written_where_a_small_step_saves_nothing():
    rule = rejected() <= 0.1
    assert write_price(0.5, rule, error(), without=0.02) == write_price(0.5, rule, error())
    costly = write_price(0.0, rule, error(), without=0.02)
    assert costly.endswith("Without it, 2\N{NO-BREAK SPACE}points of error would be saved.")
    assert "It costs nothing" in write_price(0.0, rule, error(), without=0.0)
