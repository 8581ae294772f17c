"""What steers a terminal or reorders a line is shown as an escape, and nothing else is changed."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from bylaw._base import escape_json, make_visible
from helpers.hostile import CONTROLS, DIRECTIONS, SURROGATES, UNSEEN


@pytest.mark.parametrize("text", [*SURROGATES, *DIRECTIONS, *CONTROLS, *UNSEEN])
def test_what_nobody_sees_is_written_as_python_writes_it(text):
    shown = make_visible(f"a{text}b")
    assert shown.isascii()
    assert shown.encode().decode("unicode_escape") == f"a{text}b"


@pytest.mark.parametrize("text", ["plain", "naïve – 東京 العربية", "می‌خواهم", "👩‍👩‍👧", "C:\\new", "½ €"])
def test_other_text_stays(text):
    assert make_visible(text) == text
    assert escape_json(text) == text


@pytest.mark.slow
def test_every_character_that_unicode_calls_directional_or_a_control_is_shown():
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        steers = unicodedata.bidirectional(letter) in (
            ["LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"]
        ) or unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
        assert (make_visible(letter) != letter) >= steers


def test_breaks_of_lines_stay_where_the_caller_says_so():
    assert make_visible("a\n\tb\r", keep="\n\t") == "a\n\tb\\x0d"
    assert make_visible("a\nb") == "a\\x0ab"


@pytest.mark.parametrize("text", [*DIRECTIONS, *CONTROLS, *UNSEEN, *SURROGATES[:2]])
def test_json_keeps_its_value(text):
    content = {f"a{text}": [text, "\\", "ü"]}
    written = escape_json(json.dumps(content, indent=1, ensure_ascii=False))
    assert json.loads(written) == content
    assert text not in written
