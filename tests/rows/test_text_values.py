"""Values as text, and back."""

from __future__ import annotations

import pytest

from bylaw.rows import match_value, parse_values
from bylaw.rows._text_values import format_value


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["1", "02"], ["1", "02"]),
        (["-0", "1"], ["-0", "1"]),
        (["True", "false"], [True, False]),
        (["true", "maybe"], ["true", "maybe"]),
        (["1.0", "2"], ["1.0", "2"]),
    ],
)
def test_texts_are_numbers_or_truth_values_where_all_are(texts, values):
    found = parse_values(texts)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_values_are_written_as_columns_are_named():
    assert [format_value(value) for value in (True, 1, 1.5, "A")] == ["true", "1", "1.5", "A"]


@pytest.mark.parametrize(
    ("text", "values", "match"),
    [
        ("true", [True, False], True),
        ("TRUE", [True, False], True),
        ("True", ["True", "x"], "True"),
        ("2", [1.0, 2.0], 2.0),
        ("2.0", [1, 2], 2),
        ("1", [True, False], None),
        ("1", ["1", 1], "1"),
        ("a", [1, 2], None),
    ],
)
def test_a_cell_is_the_value_that_it_stands_for(text, values, match):
    found = match_value(text, values)
    assert found == match
    assert type(found) is type(match)


def test_a_truth_value_that_two_values_stand_for_is_none_of_them():
    assert match_value("TRUE", ["true", "True"]) is None
    assert match_value("true", ["true", "True"]) == "true"
