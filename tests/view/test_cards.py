"""Cards: the same facts as text and as HTML."""

from __future__ import annotations

from bylaw.view import Card, Table, bar, code, status
from helpers.reported import parsed


def make_card(n_rows=2):
    rows = [[status("broken", "bad"), code(f"error() <= 0.{i}"), bar(i, 9), f"{i}"] for i in range(n_rows)]
    table = Table(("status", "rule", "", "rows"), rows, numbers=(3,))
    folded = Table(("more",), [["hidden"]], summary="1 line")
    return Card("a title", [table, folded, None], ["a remark"], ["a line"])


def test_text_has_titles_rows_and_remarks_but_no_bars_and_no_folded_tables():
    assert make_card().to_text().splitlines() == [
        "a title",
        "",
        "a line",
        "  broken  error() <= 0.0  0",
        "  broken  error() <= 0.1  1",
        "",
        "a remark",
    ]


def test_html_has_the_same_words_and_folds_long_tables():
    page = parsed(make_card(12).to_html())
    words = page.words()
    for expected in ("a title", "a line", "broken", "error() <= 0.11", "a remark", "4 more", "hidden"):
        assert expected in words
    assert len(page.all("table")[0].all("tbody")[0].all("tr")) == 8
    widths = [float(rect.attributes["width"].rstrip("%")) for rect in page.all("rect")]
    assert widths[:3] == [0, 11.11, 22.22]


def test_text_cannot_steer_a_terminal():
    assert "\x1b" not in Card("red \x1b[31m").to_text()
