from __future__ import annotations

import re

import pytest

from bylaw import error, rejected, size
from bylaw.view import (
    Html,
    find_unit,
    format_amount,
    format_count,
    format_percent,
    format_points,
    join,
    make_page_table,
    pluralize,
    round_number,
    shorten,
    tag,
)
from bylaw.view._html import escape
from helpers.reported import HOSTILE, attacking, page_of, parsed


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "<b>&\"'") == "<p>&lt;b&gt;&amp;&quot;&#x27;</p>"
    assert tag("p", tag("b", "x")) == "<p><b>x</b></p>"
    assert escape(Html("<b>")) == "<b>"
    assert join(["<", Html("<i>")], "&") == "&lt;&amp;<i>"


def test_attributes_are_always_escaped():
    assert tag("a", href=Html('"><script>')) == '<a href="&quot;&gt;&lt;script&gt;"></a>'
    assert tag("input", class_="x", aria_label="a b", hidden=True, id=None, open=False) == (
        '<input class="x" aria-label="a b" hidden>'
    )


def test_joining_plain_strings_gives_no_markup():
    assert not isinstance(Html("a") + "b", Html)


def test_tables_have_captions_and_scopes():
    tree = parsed(make_page_table("C", ["a", "b"], [["x", "<y>"]]))
    assert [th.attributes["scope"] for th in tree.all("th")] == ["col", "col", "row"]
    assert tree.all("caption")[0].text == "C"
    assert tree.all("td")[0].text == "<y>"


def test_hostile_names_stay_text():
    html = page_of("attacking")
    tree = parsed(html)
    assert len(tree.all("script")) == 1  # our own
    assert not tree.all("img")
    assert not tree.all("b")
    assert tree.all("h1")[0].text == HOSTILE
    assert tree.all("title")[0].text == HOSTILE
    assert not re.findall(r"<[^>]*\son\w+=", re.sub(r'"[^"]*"', "", html))  # no handler
    group_names = {th.text for th in tree.all("th", scope="row")}
    policy, _ = attacking()
    assert any("x' onload='alert(2)" in name for name in group_names)
    assert str(policy.problem.rules[0]) in {code.text for code in tree.all("code")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_percent(0.1), "10 %"),
        (format_percent(0.1234), "12.3 %"),
        (format_percent(0.00321), "0.32 %"),
        (format_percent(0.00001), "under 0.01 %"),
        (format_amount(0.123456, "share", exactly=True), "12.3456 %"),
        (format_percent(1 - 1e-9), "100 %"),
        (format_points(-0.01), "−1 point"),
        (format_points(0.1 + 0.2 - 0.3), "under 0.01 points"),
        (format_amount(0.07, "points", exactly=True), "7 points"),
        (round_number(1234567.0), "1,234,567"),
        (round_number(0.012345), "0.0123"),
        (round_number(float("inf")), "unlimited"),
        (round_number(-0.0), "0"),
        (format_amount(2.5, "plain"), "2.5"),
        (format_count(1234.4), "1,234"),
        (pluralize(1, "rule"), "1 rule"),
        (pluralize(2, "case"), "2 cases"),
        (shorten("x" * 50, 10), "xxxxxxxxx…"),
    ],
)
def test_amounts(text, expected):
    assert text.replace("\N{NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("rate", "unit"),
    [
        (rejected(), "share"),
        (rejected().given(sex="F"), "share"),
        (0.5 * rejected(), "points"),
        (error() - rejected(), "points"),
        (size(), "plain"),
        (error() - size(), "plain"),
    ],
    ids=str,
)
def test_units_of_rates(rate, unit):
    assert find_unit(rate) == unit
