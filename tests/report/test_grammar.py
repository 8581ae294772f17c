"""Many small reports, searched for mistakes of grammar that come from filling in numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Monitor,
    Problem,
    custom,
    demographic_parity,
    disparate_impact,
    error,
    error_parity,
    miscoverage,
    precision,
    rejected,
    selected,
    size,
    solve,
    worst,
)
from bylaw.report import report
from bylaw.view import count_of, pluralize
from helpers.reported import page_of, parsed
from helpers.scored import people

THINGS = "case|rule|rate|label|group|option|decision|comparison|level|change"
MISTAKES = [
    rf"\b1 (?:[a-z-]+ ){{0,2}}?(?:{THINGS})s\b",
    r"(?<![\d.,])1 (?:percentage )?points\b",
    rf"(?<![\d.,])(?!1 )\d[\d,]* (?:single |held-out |more |smaller |further )?(?:{THINGS})\b",
    rf"\bof 1 (?:[a-z-]+ )?(?:{THINGS})",
    r"(?<![\d.,])1 (?:[a-z-]+ ){0,2}are\b",
    r"(?<!\b1 of \d )\b(?:rules|rates|cases|groups) (?:is|was|has|waits|holds)\b",
    r"\b(?:rule|rate|case|group) (?:are|were|have|wait)\b(?! not)",
    r"\ba (?:error|estimate|alarm|interval|audit|option|upper|average|earlier)\b",
    r"\ban (?:rule|rate|case|policy|share|lower)\b",
    r"\b(\w+) \1\b",
    r" [,.;:](?!\d)",
    r"\.\.(?!\.)|,,|;;|\(\)|“”",
    r"[a-z]\.[A-Z]",
    r"\{|\}",
]
ALLOWED = re.compile(r"\bthat that\b|\bhad had\b")


def read(html):
    """Each paragraph, cell, item and title by itself, without code."""
    body = html.split("<main")[1].split("</main>")[0]
    body = re.sub(r"<code.*?</code>", "X", body)
    body = re.sub(r"</?(?:span|b|i)\b[^>]*>", "", body)
    texts = [re.sub(r"\s+", " ", text) for text in re.split(r"<[^>]+>", body)]
    unescape = {"&quot;": '"', "&#x27;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
    for text in filter(str.strip, texts):
        for name, sign in unescape.items():
            text = text.replace(name, sign)
        yield text.strip()


def find_mistakes(html):
    return [
        (mistake, text)
        for text in read(html)
        for mistake in MISTAKES
        if re.search(mistake, re.sub(r"“[^”]*”", "“x”", ALLOWED.sub("", text)))
    ]


def make_rows(n, seed):
    evidence, labels, _ = people(n, seed=seed)
    return evidence, labels


RULES = [
    [],
    [rejected() <= 0.1],
    [error() <= 0.35],
    [demographic_parity("sex", tol=0.01)],
    [demographic_parity("sex", tol=0.05), rejected() <= 0.01],
    [error_parity("sex", tol=0.01), rejected() <= 0.01],
    [disparate_impact("sex", ratio=0.99)],
    [selected(1).given(sex="F") >= 0.5],
    [precision(1) >= 0.6],
    [custom("visit") <= 0.5, rejected() <= 0.5],
]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_small_reports_are_in_good_english(rules):
    evidence, labels = make_rows(60, 1)
    policy = solve(Problem(error(), rules), evidence)
    for held, labelled in ((None, True), (1, True), (1, False), (40, True)):
        rows = None
        if held is not None:
            new, seen = make_rows(held, 3)
            rows = new.with_observed(labels=seen if labelled else None)
        made = report(policy, evidence, labels=labels if labelled else None, held_out=rows, levels=2)
        assert find_mistakes(made.html) == [], (held, labelled)


@pytest.mark.slow
def test_reports_of_other_kinds_are_in_good_english():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet([1, 1, 1], size=80)
    one = Evidence(chances, classes=["a", "b", "c"], groups={"site": rng.choice(["A", "B"], 80)})
    labels = rng.choice(["a", "b", "c"], 80)
    problems = [
        Problem(size(), [miscoverage() <= 0.1]),
        Problem(miscoverage(), [size() <= 1]),
        Problem(worst(error(), by="site"), [rejected() <= 0.1]),
    ]
    for problem in problems:
        assert find_mistakes(report(solve(problem, one), one, labels=labels, levels=2).html) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["referring", "audited", "guessing", "sets", "crowded", "watched", "refitted"]
)
def test_whole_reports_are_in_good_english(name):
    assert find_mistakes(page_of(name)) == []


@pytest.mark.parametrize("rows", [1, 2])
def test_a_monitor_of_few_rows_is_in_good_english(rows):
    evidence, labels = make_rows(60, 1)
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    monitor = Monitor(policy, rules=["error() <= 0.4"])
    new, _ = make_rows(rows, 5)
    monitor.update(new, labels=[None] * rows, decisions=policy.decide(new, rng=0), ids=range(rows))
    assert find_mistakes(report(policy, evidence, labels=labels, levels=0, monitor=monitor).html) == []


def test_the_search_finds_what_it_is_for():
    for bad in (
        "1 of 1 rate are outside",
        "from 1 cases",
        "2 rule",
        "a error",
        "the rules is",
        "the the",
        "4 of 9 single rule",
        "Not judged: .",
        "1 points",
        "1 of them are",
    ):
        assert find_mistakes(f"<main><p>{bad}</p></main>"), bad
    for good in (
        "2 of 3 rates are outside the bounds",
        "1 case",
        "0.1 points",
        "−1 point",
        "21 cases",
        "1,001 cases",
    ):
        assert find_mistakes(f"<main><p>{good}</p></main>") == [], good


def test_numbers_of_things():
    said = [count_of(1, 1, "rate"), count_of(1, 2, "rate"), pluralize(1, "case"), pluralize(0, "case")]
    assert [one.replace("\N{NO-BREAK SPACE}", " ") for one in said] == [
        "the only rate",
        "1 of 2 rates",
        "1 case",
        "0 cases",
    ]
    assert parsed("<p>x</p>").words() == "x"
