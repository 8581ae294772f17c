"""Charts as inline SVG. Places along a row are percentages, so that a chart fills any width and its letters
keep their size; colours are classes of the style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bylaw._base.scales import Scale
from bylaw.report.bounded_rates import BoundedRate
from bylaw.report.markup import Content, Html, tag
from bylaw.report.number_format import Unit, format_amount, format_percent, format_range

_ROW = 28  # height of a row of dots
_CROWDED = 12.0  # percent: closer numbers would touch
_LETTER, _GAP = 6.5, 8.0  # pixels that a character of a tick takes at most, and between two ticks
_NARROW_ROW, _NARROW_TRACK = 140.0, 330.0  # pixels: the least widths of charts, on a phone
_NARROW_LABEL = 7  # characters at the side of a plot that fit into a narrow column
_SIDE, _LEFT, _TOP = 220, 52, 28  # of the square plot and its margins
_QUARTERS = {0.0: 0.25, 0.25: 0.25, 0.5: 0.1, 0.75: 0.05}  # where it may start, and its steps


def make_svg(title: str, *content: Content, height: int, class_: str = "", **more: object) -> Html:
    return tag(
        "svg",
        tag("title", title),
        *content,
        role="img",
        width="100%",
        height=height,
        class_=class_ or None,
        focusable="false",
        **more,
    )


def _draw_line(x1: str, x2: str, y1: float, y2: float, class_: str) -> Html:
    return tag("line", x1=x1, x2=x2, y1=f"{y1:g}", y2=f"{y2:g}", class_=class_)


def _draw_text(x: str, y: float, words: str, anchor: str = "middle", class_: str = "tick") -> Html:
    return tag("text", words, x=x, y=f"{y:g}", text_anchor=anchor, class_=class_)


def _choose_anchor(place: float) -> str:
    return "start" if place < 8 else "end" if place > 92 else "middle"


def draw_axis(
    scale: Scale, unit: Unit, ticks: Sequence[float] | None = None, width: float = _NARROW_ROW
) -> Html:
    """The numbers below a chart, as far as they do not touch where it is `width` pixels wide; screen readers
    have them in the rows."""
    shown = [
        (scale.place(v), _format_tick(v, unit)) for v in (_list_ticks(scale) if ticks is None else ticks)
    ]
    return _draw_labels(_drop_touching(shown, width))


def _list_ticks(scale: Scale) -> list[float]:
    """Few, but two at least: a single number is no scale."""
    few = scale.ticks(3)
    return few if len(few) > 1 else scale.ticks(5)


def draw_track_axis(bounded: BoundedRate, scale: Scale) -> Html:
    """The numbers below a track: its bounds in one label where they are close to each other."""
    ticks = choose_ticks(bounded, scale)
    shown = [(scale.place(value), _format_tick(value, bounded.unit)) for value in ticks]
    if len(_drop_touching(shown, _NARROW_TRACK)) == len(shown):
        return _draw_labels(shown)
    ends = [(scale.place(end), end) for end in (bounded.low, bounded.high) if math.isfinite(end)]
    middle = sum(place for place, _ in ends) / len(ends)
    return _draw_labels([(middle, format_range([end for _, end in ends], bounded.unit))])


def _drop_touching(labels: Sequence[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """From left to right, those that do not touch the one before."""
    kept, end = [], -math.inf
    for place, text in sorted(labels):
        size, at = _LETTER * len(text), place * width / 100
        start = at - size * {"start": 0.0, "middle": 0.5, "end": 1.0}[_choose_anchor(place)]
        if start >= end:
            kept.append((place, text))
            end = start + size + _GAP
    return kept


def _draw_labels(labels: Iterable[tuple[float, str]]) -> Html:
    texts = [_draw_text(f"{place:.2f}%", 12, text, _choose_anchor(place)) for place, text in labels]
    return tag("svg", *texts, width="100%", height=16, aria_hidden="true", class_="axis", focusable="false")


def make_framed(
    labels: Sequence[tuple[float, str]], height: int, *field: Content, wide: bool = False
) -> Html:
    """A plot with its numbers, (y, text), in a column of their own at the left."""
    texts = [_draw_text("100%", y + 4, text, "end") for y, text in labels]
    side = tag("svg", *texts, width="100%", height=height, aria_hidden="true", focusable="false")
    return tag("div", side, tag("div", *field), class_="framed wide" if wide else "framed")


def is_wide(labels: Iterable[str]) -> bool:
    """Whether numbers at the side of a plot need a wide column."""
    return any(len(label) > _NARROW_LABEL for label in labels)


def _format_tick(value: float, unit: Unit) -> str:
    return format_amount(round(value, 12) + 0.0, unit)


def draw_dots(title: str, before: float, after: float, scale: Scale) -> Html:
    """An open circle before, a full one after, and the way between."""
    middle = _ROW / 2
    return make_svg(
        title,
        *(_draw_line(scale.at(v), scale.at(v), 0, _ROW, "grid") for v in _list_ticks(scale)),
        _draw_line(scale.at(before), scale.at(after), middle, middle, "way"),
        tag("circle", cx=scale.at(before), cy=f"{middle:g}", r=5, class_="before"),
        tag("circle", cx=scale.at(after), cy=f"{middle:g}", r=5.5, class_="after"),
        height=_ROW,
        class_="row",
    )


def draw_track(bounded: BoundedRate, scale: Scale, title: str) -> Html:
    """Where a rate may be (shaded), its interval (line) and estimate (diamond)."""
    low = max(bounded.low, scale.low)
    high = min(bounded.high, scale.high)
    left, right = (0.0 if bounded.low < scale.low else scale.place(low)), scale.place(high)
    right = 100.0 if bounded.high > scale.high else right
    parts = [
        _draw_line("0%", "100%", 20, 20, "rail"),
        tag("rect", x=f"{left:.2f}%", y=8, width=f"{max(right - left, 0):.2f}%", height=24, class_="allowed"),
    ]
    parts += [
        _draw_line(scale.at(end), scale.at(end), 4, 36, "target")
        for end in (bounded.low, bounded.high)
        if math.isfinite(end)
    ]
    if math.isfinite(bounded.lower) and math.isfinite(bounded.upper):
        parts.append(_draw_line(scale.at(bounded.lower), scale.at(bounded.upper), 20, 20, "interval"))
        parts += [
            _draw_line(scale.at(v), scale.at(v), 15, 25, "interval") for v in (bounded.lower, bounded.upper)
        ]
    if math.isfinite(bounded.estimate):
        parts.append(tag("circle", cx=scale.at(bounded.estimate), cy=20, r=5.5, class_="after"))
    return make_svg(title, *parts, height=40, class_="track")


def choose_ticks(bounded: BoundedRate, scale: Scale) -> list[float]:
    """The numbers worth a tick below a track: its bounds, and zero where there is room for it."""
    ends = [end for end in (bounded.low, bounded.high) if math.isfinite(end)]
    crowded = any(abs(scale.place(0.0) - scale.place(end)) < _CROWDED for end in ends)
    return ends if crowded or not scale.low <= 0 <= scale.high else sorted([*ends, 0.0])


def draw_stack(title: str, parts: Sequence[tuple[str, float]]) -> Html:
    """Shares of a whole, side by side: (class, share)."""
    pieces, start = [], 0.0
    for class_, share in parts:
        pieces.append(
            tag("rect", x=f"{100 * start:.2f}%", y=0, width=f"{100 * share:.2f}%", height=22, class_=class_)
        )
        start += share
    return make_svg(title, *pieces, height=22, class_="stack")


def draw_column(title: str, share: float, most: float) -> Html:
    """One horizontal bounded."""
    width = 100 * share / most if most > 0 else 0.0
    return make_svg(
        title,
        tag("rect", x=0, y=5, width=f"{width:.2f}%", height=14, rx=2, class_="bar"),
        height=24,
        class_="row",
    )


def draw_reliability(
    title: str,
    bins: Sequence[tuple[float, float, float]],
    before: Sequence[tuple[float, float, float]] = (),
) -> Html:
    """A reliability diagram, of (confidence, accuracy, share of rows); on the diagonal they agree. Open
    circles are those before calibration."""
    points = [*before, *bins]
    low = min((low for low in _QUARTERS if any(min(s, o) < low + 0.25 for s, o, _ in points)), default=0.0)
    most = max((share for *_, share in points), default=1.0)
    parts: list[Html] = []
    step = _QUARTERS[low]
    for tick in (low + i * step for i in range(round((1 - low) / step) + 1)):
        place = _place_in_square(tick, low)
        y = _TOP + _SIDE - place
        parts.append(_draw_line(f"{_LEFT}", f"{_LEFT + _SIDE}", y, y, "grid"))
        parts.append(_draw_text(f"{_LEFT + place:g}", _TOP + _SIDE + 18, format_percent(tick)))
        parts.append(_draw_text(f"{_LEFT - 6}", y + 4, format_percent(tick), "end"))
    parts.append(_draw_line(f"{_LEFT}", f"{_LEFT + _SIDE}", _TOP + _SIDE, _TOP, "diagonal"))
    looks = ["before"] * len(before) + ["after"] * len(bins)
    for (stated, seen, share), look in zip(points, looks, strict=True):
        x, y = _LEFT + _place_in_square(stated, low), _TOP + _SIDE - _place_in_square(seen, low)
        radius = 3 + 3 * math.sqrt(share / most)
        parts.append(tag("circle", cx=f"{x:.2f}", cy=f"{y:.2f}", r=f"{radius:.1f}", class_=look))
    parts.append(_draw_text("0", 12, "accuracy", "start", "name"))
    parts.append(_draw_text(f"{_LEFT + _SIDE}", _TOP + _SIDE + 38, "confidence", "end", "name"))
    width, height = _LEFT + _SIDE + 24, _TOP + _SIDE + 44
    return tag(
        "svg",
        tag("title", title),
        *parts,
        role="img",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="square",
        focusable="false",
    )


def _place_in_square(value: float, low: float) -> float:
    return _SIDE * (value - low) / (1 - low)
