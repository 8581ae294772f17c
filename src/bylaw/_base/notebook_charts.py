"""A curve and a grid for notebooks, as inline SVG in the notebook's own colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bylaw._base.markup import Html, tag
from bylaw._base.notebook import ACCENT, COLOURS, make_table
from bylaw._base.scales import Scale, fit_scale

_WIDTH, _HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 40
_FAINT = "rgba(128,128,128,.3)"


def draw_curve(
    title: str, across: str, points: Sequence[tuple[float, float]], conflicts: Sequence[float]
) -> Html:
    """A line through the points (x, y), in the order of x, and crosses below where there is none."""
    xs = [x for x, _ in points] + list(conflicts)
    ends, up = fit_scale(xs), fit_scale([y for _, y in points])
    parts = [*_draw_axes(ends, up), _write(_LEFT, _HEIGHT - 4, across, "start")]
    places = [(_place_across(x, ends), _place_up(y, up)) for x, y in sorted(points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(tag("polyline", points=path, fill="none", stroke=ACCENT, stroke_width=2))
    for (x, y), (level, value) in zip(places, sorted(points), strict=True):
        told = tag("title", f"{level:g}: {value:.4g}")
        parts.append(tag("circle", told, cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.2, fill=ACCENT))
    for level in conflicts:
        told = tag("title", f"{level:g}: the rules conflict")
        place = {"x": f"{_place_across(level, ends):.1f}", "y": f"{_HEIGHT - _BOTTOM - 4:g}"}
        parts.append(tag("text", told, "×", **place, fill=COLOURS["bad"], text_anchor="middle", font_size=15))
    look = "max-width:100%;height:auto;background:transparent;display:block"
    size = {"width": _WIDTH, "height": _HEIGHT, "viewBox": f"0 0 {_WIDTH} {_HEIGHT}"}
    return tag("svg", tag("title", title), *parts, role="img", style=look, **size)


def _place_across(value: float, scale: Scale) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * scale.place(value) / 100


def _place_up(value: float, scale: Scale) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * scale.place(value) / 100


def _draw_axes(across: Scale, up: Scale) -> list[Html]:
    """Lines at round numbers, and the numbers."""
    parts = []
    for value in up.ticks(4):
        y = f"{_place_up(value, up):.1f}"
        parts.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke=_FAINT))
        parts.append(_write(_LEFT - 8, float(y) + 4, f"{value:.4g}", "end"))
    for value in across.ticks(6):
        parts.append(_write(_place_across(value, across), _HEIGHT - _BOTTOM + 16, f"{value:.4g}", "middle"))
    return parts


def _write(x: float, y: float, words: str, anchor: str) -> Html:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return tag("text", words, **place, fill="currentColor", font_size=12, opacity=0.85)


def draw_grid(
    corner: str, rows: Sequence[float], columns: Sequence[float], values: Sequence[Sequence[float]]
) -> Html:
    """Values over two levels, the darker the larger; a cross where there is none."""
    known = [value for line in values for value in line if math.isfinite(value)]
    low, high = min(known), max(known)

    def shade(value: float) -> Html:
        if not math.isfinite(value):
            return tag("span", "×", style=f"color:{COLOURS['bad']}", title="the rules conflict")
        share = (value - low) / (high - low) if high > low else 0.0
        look = f"background:rgba(59,130,246,{0.05 + 0.4 * share:.2f});padding:.1em .5em;border-radius:3px"
        return tag("span", f"{value:.4g}", style=look)

    body = [[f"{level:g}", *map(shade, line)] for level, line in zip(rows, values, strict=True)]
    heads = [corner, *(f"{level:g}" for level in columns)]
    return make_table(heads, body, numbers=range(1, len(heads)))
