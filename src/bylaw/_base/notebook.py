"""Small tables and charts for notebooks: markup without a style sheet, which notebooks may drop. Letters have
the notebook's own colour, backgrounds are transparent, and accents can be told on white and on black."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from bylaw._base.markup import Content, Html, join, tag

Tone = Literal["good", "bad", "open"]
Cell = Content

ACCENT = "#3b82f6"
COLOURS: Mapping[Tone, str] = {"good": "#2a9d5c", "bad": "#e0483e", "open": "#c07a00"}
_SIGNS: Mapping[Tone, str] = {"good": "✓", "bad": "✗", "open": "?"}
_FAINT = "rgba(128,128,128,.35)"
_CELL = f"padding:.25em .8em .25em 0;border:0;border-bottom:1px solid {_FAINT};vertical-align:middle;"
_TABLE = "border-collapse:collapse;border:0;margin:0;font-size:.95em;font-variant-numeric:tabular-nums"
_BAR, _HEIGHT = 120, 14  # pixels
_UNFOLDED = 8  # lines of a long table


def make_card(title: Content, *content: Content, remarks: Iterable[Content] = ()) -> Html:
    """What is shown of one object: a title, its content, and remarks in smaller letters."""
    head = tag("div", title, style="font-weight:600;margin:.2em 0 .4em")
    small = [tag("div", remark, style="font-size:.9em;opacity:.8;margin-top:.3em") for remark in remarks]
    style = "color:inherit;background:transparent;max-width:64em;line-height:1.4"
    return tag("div", head, *content, *small, class_="bylaw", style=style)


def make_table(
    heads: Sequence[Content], rows: Iterable[Sequence[Cell]], *, numbers: Collection[int] = ()
) -> Html:
    """One line per row; the columns at the places in `numbers` are aligned to the right."""

    def style(place: int) -> str:
        side = "right" if place in numbers else "left"
        return f"{_CELL}text-align:{side};{'white-space:nowrap;' if place in numbers else ''}"

    top = [tag("th", head, style=f"{style(i)}font-weight:500;opacity:.75") for i, head in enumerate(heads)]
    body = [
        tag(
            "tr",
            *(tag("td", cell, style=style(i)) for i, cell in enumerate(row)),
            style="background:transparent",
        )
        for row in rows
    ]
    whole = tag("table", tag("thead", tag("tr", *top)), tag("tbody", *body), style=_TABLE)
    return tag("div", whole, style="overflow-x:auto")


def make_long_table(
    heads: Sequence[Content], rows: Sequence[Sequence[Cell]], *, numbers: Collection[int] = ()
) -> Html:
    """The same; of many lines, those after the first are folded."""
    first, rest = rows[:_UNFOLDED], rows[_UNFOLDED:]
    more = fold(f"{len(rest)} more", make_table(heads, rest, numbers=numbers)) if rest else None
    return join([make_table(heads, first, numbers=numbers), more])


def fold(summary: Content, *content: Content) -> Html:
    """Closed at first."""
    return tag("details", tag("summary", summary, style="cursor:pointer;margin:.3em 0"), *content)


def make_code(text: Content) -> Html:
    """A rule, in the letters of code."""
    return tag("code", text, style="background:transparent;color:inherit;padding:0;white-space:pre-wrap")


def make_status(words: str, tone: Tone) -> Html:
    """Words with a sign before them, in a colour that does not carry the meaning alone."""
    sign = tag("span", _SIGNS[tone], style=f"color:{COLOURS[tone]};font-weight:700;margin-right:.4em")
    return tag("span", sign, words, style="white-space:nowrap")


def draw_bar(value: float, most: float, colour: str = ACCENT) -> Html:
    """A share of the longest bar; nothing for what is no number."""
    share = value / most if most > 0 and math.isfinite(value) else 0.0
    width = _BAR * min(max(share, 0.0), 1.0)
    rect = tag("rect", x=0, y=3, width=f"{width:.1f}", height=8, rx=2, fill=colour)
    return _make_svg(f"{share:.0%} of the largest", rect)


def draw_interval(
    lower: float, estimate: float, upper: float, target: float, low: float, high: float, tone: Tone
) -> Html:
    """An interval with its estimate, and the bound as an upright line, on an axis from `low` to `high`."""

    def place(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return 5 + (_BAR - 10) * min(max(share, 0.0), 1.0)

    middle, colour, parts = _HEIGHT / 2, COLOURS[tone], []
    if math.isfinite(lower) and math.isfinite(upper):
        parts.append(_draw_line(place(lower), middle, place(upper), middle, colour, 3))
    bound = place(target)
    parts.append(_draw_line(bound, 0, bound, _HEIGHT, "currentColor", 1.5))
    if math.isfinite(estimate):
        parts.append(tag("circle", cx=f"{place(estimate):.1f}", cy=f"{middle:g}", r=4, fill=colour))
    return _make_svg(f"{estimate:.4g} beside {target:.4g}", *parts)


def _make_svg(title: str, *content: Content, width: float = _BAR, height: float = _HEIGHT) -> Html:
    look = "vertical-align:middle;max-width:100%;overflow:visible;background:transparent"
    size = {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}"}
    return tag("svg", tag("title", title), *content, role="img", style=look, **size)


def _draw_line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> Html:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return tag("line", **ends, stroke=colour, stroke_width=f"{width:g}")


def list_remarks(lines: Iterable[Content]) -> Html:
    """Lines under each other."""
    return join(tag("div", line) for line in lines)
