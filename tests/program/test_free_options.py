"""An option that costs nothing and that no rule limits would get all rows: refused, and nothing else is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    RuleError,
    Stream,
    accepted,
    custom,
    demographic_parity,
    disagreement,
    error,
    f1,
    frontier,
    parse,
    selected,
    solve,
    worst,
)

P = np.random.default_rng(0).dirichlet([1, 1], 60)
EVIDENCE = Evidence(
    P, groups={"g": [0, 1] * 30}, references={"old": [0, 1, 1] * 20}, costs={"w": np.ones((60, 3))}
)
DECISIONS = [0, 1, "expert"]
SENIOR = selected("expert")


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [selected(1) <= 0.5],
        [demographic_parity("g", tol=0.1)],
        [SENIOR >= 0.1],
        [SENIOR <= 1],
        [error() <= 0.1],
        [demographic_parity("g", tol=0.1, labels=["expert"])],
    ],
)
@pytest.mark.parametrize("minimize", [error(), 3 * error() + selected(0)])
def test_a_free_option_is_refused(minimize, rules):
    with pytest.raises(RuleError, match=r"the option 'expert' costs nothing .* selected\('expert'\) <= 0.05"):
        solve(Problem(minimize, rules, decisions=DECISIONS), EVIDENCE)


@pytest.mark.parametrize(
    ("minimize", "rules"),
    [
        (error() + 0.1 * SENIOR, []),
        (error() + 0.1 * custom("w"), []),
        (error() - 0.5 * accepted(), []),
        (error(), [SENIOR <= 0.05]),
        (error(), [SENIOR.given(g=0) <= 0.05]),
        (error(), [accepted() >= 0.5]),
        (error(), [selected(1) >= 0.2]),
        (error(), [disagreement("old") <= 0.5]),
        (error(), [custom("w") <= 2]),
    ],
)
def test_an_option_with_a_cost_or_a_limit_is_not(minimize, rules):
    policy = solve(Problem(minimize, rules, decisions=DECISIONS), EVIDENCE)
    assert policy.actions == (0, 1, "expert")


def test_a_ratio_that_does_not_tell_an_option_from_a_label():
    told = r"the option 'expert' costs as little as a label in minimize=.*: minimize (.*) subject to"
    minimize = 1 - f1(1)
    with pytest.raises(RuleError, match=told) as caught:
        solve(Problem(minimize, decisions=DECISIONS), EVIDENCE)
    other = parse(re.search(told, str(caught.value))[1])
    policy = solve(Problem(other, [minimize <= 0.5], decisions=DECISIONS), EVIDENCE)
    assert policy.expected(minimize, EVIDENCE) <= 0.5 + 1e-6
    with pytest.raises(RuleError, match=r"a rejection costs as little as a label .* rejected\(\) <= 0.05"):
        solve(Problem(minimize, decisions="reject"), EVIDENCE)
    solve(Problem(error() / accepted(), [accepted() >= 0.2], decisions=DECISIONS), EVIDENCE)


def test_the_worst_group_is_named_as_stated():
    with pytest.raises(
        RuleError, match=r"as minimize=worst\(error\(\) \+ 0.1 \* selected\('expert'\), by='g'\), or"
    ):
        solve(Problem(worst(error(), by="g"), decisions=DECISIONS), EVIDENCE)
    solve(Problem(worst(error() + 0.1 * SENIOR, by="g"), decisions=DECISIONS), EVIDENCE)


def test_frontiers_and_streams_refuse_it_too():
    free = Problem(error(), [selected(1) <= 0.5], decisions=DECISIONS)
    with pytest.raises(RuleError, match="costs nothing"):
        frontier(free, EVIDENCE, {selected(1) <= 0.5: [0.1, 0.2]})
    with pytest.raises(RuleError, match="costs nothing"):
        Stream(free, 1000, warm_up=50).partial_fit(EVIDENCE)


def test_a_rejection_that_nothing_limits_stays_as_asked():
    policy = solve(Problem(error(), decisions="reject"), EVIDENCE)
    assert policy.probabilities(EVIDENCE)[:, 2].min() > 0.5
