from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    RuleError,
    cost,
    demographic_parity,
    disagreement,
    error,
    miscoverage,
    omits,
    rejected,
    rejection_parity,
    selected,
    size,
    solve,
)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (Problem(error()), "labels"),
        (Problem(error(), [rejected() <= 0.1]), "reject"),
        (Problem(error(), [rejection_parity("sex", tol=0.1)]), "reject"),
        (Problem(error() + 0.2 * rejected()), "reject"),
        (Problem(cost([[0, 1, 0.5], [1, 0, 0.5]])), "reject"),
        (Problem(cost([[0, 1], [1, 0]])), "labels"),
        (Problem(miscoverage(), [size() <= 2]), "sets"),
        (Problem(selected(1), decisions="sets"), "sets"),
    ],
)
def test_the_kind_of_decisions_is_inferred(problem, kind):
    assert problem.kind == kind


def test_texts_serve_as_rules():
    words = Problem("error()", ["rejected() <= 0.1", "demographic_parity('sex', tol=0.02)"])
    assert words == Problem(error(), [rejected() <= 0.1, demographic_parity("sex", tol=0.02)])
    assert Problem(error(), rejected() <= 0.1) == Problem(error(), "rejected() <= 0.1")
    assert str(words) == (
        "minimize error()\nsubject to\n  rejected() <= 0.1\n  demographic_parity('sex', tol=0.02)"
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Problem(error(), [rejected() <= 0.1, size() <= 2]), "one kind of decisions"),
        (lambda: Problem(error(), [rejected() == 0.1]), "== is not allowed"),
        (lambda: Problem(error(), [0.1]), r"rules\[0\] must be a rule .* got 0.1"),
        (lambda: Problem(error(), [error()]), r"must be a rule .* got error\(\)"),
        (lambda: Problem(error() <= 0.1), "minimize must be a rate"),
        (lambda: Problem(error(), decisions="guess"), "'labels', 'reject' or 'sets'"),
        (lambda: Problem(error(), reject=None), "the label of a rejection"),
    ],
)
def test_bad_problems_are_refused(build, message):
    with pytest.raises(RuleError, match=message):
        build()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([rejected() <= 0.1, rejected() <= 0.1], r"got rejected\(\) <= 0.1 twice"),
        (
            [
                demographic_parity("sex", tol=0.1),
                selected(0).given(sex="F") - selected(0) <= 0.1,
            ],
            "twice; remove one",
        ),
        ([selected(7) <= 0.1], "one of the classes"),
        ([rejected() <= 10], r"can never be violated: rates are fractions, so write 0.1 for 10 %"),
        ([demographic_parity("age", tol=0.1)], "no group column 'age'; the evidence has"),
    ],
)
def test_rules_that_do_not_fit_the_evidence(rules, message):
    evidence = Evidence([[0.5, 0.5], [0.1, 0.9]], groups={"sex": ["F", "M"]})
    with pytest.raises(RuleError, match=message):
        solve(Problem(error(), rules), evidence)


def test_classes_are_checked_when_given():
    evidence = Evidence(np.full((3, 2), 0.5), classes=["a", "b"])
    assert solve(Problem(error(), classes=["a", "b"]), evidence).actions == ("a", "b")
    with pytest.raises(RuleError, match="classes of the evidence must be"):
        solve(Problem(error(), classes=["b", "a"]), evidence)


def test_what_a_problem_speaks_of():
    problem = Problem(
        error() + 0.1 * disagreement("old"),
        [
            demographic_parity(["sex", ("race", "age")], tol=0.1),
            selected(1).given(dept="a", label=1) <= 0.5,
            disagreement("older") <= 0.1,
        ],
    )
    assert problem.attributes == ("sex", "race", "age", "dept")
    assert problem.references == ("old", "older")
    assert Problem(miscoverage(), [omits("old") <= 0.1]).references == ("old",)
    assert Problem(error()).attributes == Problem(error()).references == ()


@pytest.mark.parametrize("rule", ["rejected() <= 1.5", "error() <= 5", "selected(0) >= -0.1"])
def test_a_rule_that_can_never_be_broken_is_refused(rule):
    with pytest.raises(RuleError, match="can never be violated: rates are fractions"):
        Problem("error()", [rule]).expand([0, 1], {})
