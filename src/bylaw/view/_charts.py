"""Charts as inline SVG, for pages and notebooks.

Horizontal positions are percentages, so that charts fill any width while text keeps its size. Every shape has
a class for the style sheet of a page, and color attributes for notebooks, which a style sheet overrides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bylaw.view._colors import ACCENT, FAINT, TONE_COLORS, Tone
from bylaw.view._html import Content, Html, tag
from bylaw.view._numbers import Unit, format_amount, format_percent, format_range

_EDGE = 3.0  # percent of the width left free on both sides
_LETTER, _GAP = 6.5, 8.0  # pixels: the widest character of a tick, and the space between two ticks
_NARROW_ROW, NARROW_PLOT, _NARROW_TRACK = 140.0, 240.0, 330.0  # pixels: widths of charts on a phone
_NARROW_LABEL = 7  # characters at the side of a plot that fit into a narrow column
_LOOKS: Mapping[str, Mapping[str, object]] = {
    "grid": {"stroke": FAINT},
    "rail": {"stroke": FAINT},
    "allowed": {"fill": "rgba(59,130,246,.15)"},
    "target": {"stroke": "currentColor", "stroke_width": 1.5},
    "interval": {"stroke": ACCENT, "stroke_width": 2.5},
    "after": {"fill": ACCENT},
    "bar": {"fill": ACCENT},
    "curve-line": {"stroke": ACCENT, "stroke_width": 2},
    "point": {"fill": ACCENT},
    "conflict": {"fill": "none", "stroke": TONE_COLORS["bad"], "stroke_width": 2},
    "tick": {"fill": "currentColor", "font_size": 12},
}


@dataclass(frozen=True)
class Scale:
    """The range of values along an axis."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Return the relative position of a value, from 0 (low) to 1 (high); other values are clipped."""
        return (
            min(max((value - self.low) / (self.high - self.low), 0.0), 1.0) if self.high > self.low else 0.5
        )

    def place(self, value: float) -> float:
        """Return the horizontal position of a value, in percent of the width."""
        return _EDGE + (100 - 2 * _EDGE) * self.share(value)

    def at(self, value: float) -> str:
        """Return the horizontal position of a value as an SVG attribute, such as "42.00%"."""
        return f"{self.place(value):.2f}%"

    def ticks(self, most: int = 5) -> list[float]:
        """Return round numbers within the range, at most `most` of them."""
        width = self.high - self.low
        if not (0 < width < math.inf):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(width / most))
        step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if width / (s * power) <= most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]

    def few_ticks(self) -> list[float]:
        """Return a few round numbers within the range, at least two if possible."""
        few = self.ticks(3)
        return few if len(few) > 1 else self.ticks(5)


def fit_scale(values: Iterable[float], around_zero: bool = False) -> Scale:
    """Return a scale slightly wider than the range of all values, including zero if `around_zero`."""
    finite = [value for value in values if math.isfinite(value)]
    finite += [0.0] if around_zero or not finite else []
    low, high = min(finite), max(finite)
    margin = 0.06 * (high - low) or 0.05 * (abs(high) or 1.0)
    low_end = 0.0 if low == 0 and around_zero else low - margin
    return Scale(low_end, high + margin if high or not around_zero else 0.0 if low < 0 else margin)


def draw_shape(shape: str, look: str, *content: Content, **attributes: object) -> Html:
    """Return an SVG shape with a class, and with colors that apply without a style sheet."""
    named = {name: f"{v:.2f}" if isinstance(v, float) else v for name, v in attributes.items()}
    return tag(shape, *content, **{**_LOOKS.get(look, {}), **named}, class_=look)


def draw_line(x1: str, x2: str, y1: float, y2: float, look: str, **attributes: object) -> Html:
    """Return a straight line from (x1, y1) to (x2, y2)."""
    return draw_shape("line", look, x1=x1, x2=x2, y1=float(y1), y2=float(y2), **attributes)


def make_svg(title: str, *content: Content, height: float, class_: str = "", **attributes: object) -> Html:
    """Return a chart that fills the available width, with a title for screen readers."""
    size = {"width": "100%", "height": f"{height:g}", "overflow": "visible", **attributes}
    return tag(
        "svg", tag("title", title), *content, role="img", focusable="false", class_=class_ or None, **size
    )


def _draw_text(x: str, y: float, words: str, anchor: str = "middle", look: str = "tick") -> Html:
    return draw_shape("text", look, words, x=x, y=float(y), text_anchor=anchor)


def _choose_anchor(place: float) -> str:
    return "start" if place < 8 else "end" if place > 92 else "middle"


def _draw_labels(labels: Iterable[tuple[float, str]]) -> Html:
    """Return the numbers below a chart, hidden from screen readers, which read the rows instead."""
    texts = [_draw_text(f"{place:.2f}%", 12, text, _choose_anchor(place)) for place, text in labels]
    size = {"width": "100%", "height": 16, "overflow": "visible"}
    return tag("svg", *texts, aria_hidden="true", class_="axis", focusable="false", **size)


def _drop_touching(labels: Iterable[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """Return the labels from left to right, without those that would touch the previous one."""
    kept, end = [], -math.inf
    for place, text in sorted(labels):
        size = _LETTER * len(text)
        start = place * width / 100 - size * {"start": 0, "middle": 0.5, "end": 1}[_choose_anchor(place)]
        if start >= end:
            kept.append((place, text))
            end = start + size + _GAP
    return kept


def draw_axis(
    scale: Scale, unit: Unit, ticks: Sequence[float] | None = None, width: float = _NARROW_ROW
) -> Html:
    """Return the numbers below a chart, without those that would touch at a width of `width` pixels."""
    values = scale.few_ticks() if ticks is None else ticks
    return _draw_labels(_drop_touching(_label(values, scale, unit), width))


def _label(values: Iterable[float], scale: Scale, unit: Unit) -> list[tuple[float, str]]:
    return [(scale.place(value), format_amount(round(value, 12) + 0.0, unit)) for value in values]


class Track(NamedTuple):
    """A rate and its bounds: the allowed range from low to high, the estimate, and its interval."""

    low: float = -math.inf
    high: float = math.inf
    estimate: float = math.nan
    lower: float = math.nan
    upper: float = math.nan

    @property
    def bounds(self) -> list[float]:
        """The bounds of the rate that are finite: none, one or two."""
        return [bound for bound in (self.low, self.high) if math.isfinite(bound)]


def draw_track(
    title: str, track: Track, scale: Scale, height: int = 40, tone: Tone | None = None, **attributes: object
) -> Html:
    """Draw the allowed range (shaded), the confidence interval (line) and the estimate (dot) of a rate."""
    middle, color = height / 2, TONE_COLORS[tone] if tone else ACCENT
    left = 0.0 if track.low < scale.low else scale.place(track.low)
    right = 100.0 if track.high > scale.high else scale.place(track.high)
    width = f"{max(right - left, 0):.2f}%"
    parts = [
        draw_line("0%", "100%", middle, middle, "rail"),
        draw_shape("rect", "allowed", x=f"{left:.2f}%", y=0.2 * height, width=width, height=0.6 * height),
    ]
    parts += [
        draw_line(scale.at(bound), scale.at(bound), 0.1 * height, 0.9 * height, "target")
        for bound in track.bounds
    ]
    if not math.isnan(track.lower + track.upper):
        ends = scale.at(track.lower), scale.at(track.upper)
        parts.append(draw_line(*ends, middle, middle, "interval", stroke=color))
        parts += [
            draw_line(end, end, 0.375 * height, 0.625 * height, "interval", stroke=color) for end in ends
        ]
    if math.isfinite(track.estimate):
        place = {"cx": scale.at(track.estimate), "cy": middle, "r": 0.07 * height + 2.7}
        parts.append(draw_shape("circle", "after", **place, fill=color))
    return make_svg(title, *parts, height=height, class_="track", **attributes)


def draw_track_axis(track: Track, scale: Scale, unit: Unit) -> Html:
    """Return the bounds below a track, and zero if there is room; close bounds share one label."""
    bounds = track.bounds
    crowded = any(abs(scale.place(0.0) - scale.place(bound)) < 12 for bound in bounds)
    ticks = bounds if crowded or not scale.low <= 0 <= scale.high else sorted([*bounds, 0.0])
    labels = _label(ticks, scale, unit)
    if len(_drop_touching(labels, _NARROW_TRACK)) < len(labels):
        middle = sum(scale.place(bound) for bound in bounds) / len(bounds)
        labels = [(middle, format_range(bounds, unit))]
    return _draw_labels(labels)


def draw_bar(title: str, share: float, width: str = "100%", tone: Tone | None = None) -> Html:
    """Draw a horizontal bar whose length is a share of the width."""
    share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    color = {"fill": TONE_COLORS[tone]} if tone else {}
    rect = draw_shape("rect", "bar", x=0, y=5, width=f"{100 * share:.2f}%", height=14, rx=2, **color)
    return make_svg(title, rect, height=24, class_="row", width=width)


def draw_stack(title: str, parts: Sequence[tuple[str, float]]) -> Html:
    """Draw shares of a total side by side; each part is a tuple of a class and a share."""
    starts = itertools.accumulate((share for _, share in parts), initial=0.0)
    pieces = [
        draw_shape("rect", look, x=f"{100 * start:.2f}%", y=0, width=f"{100 * share:.2f}%", height=22)
        for start, (look, share) in zip(starts, parts, strict=False)
    ]
    return make_svg(title, *pieces, height=22, class_="stack")


def draw_dots(title: str, before: float, after: float, scale: Scale) -> Html:
    """Draw a row with an open circle (before), a full circle (after) and a line between them."""
    return make_svg(
        title,
        *(draw_line(scale.at(tick), scale.at(tick), 0, 28, "grid") for tick in scale.few_ticks()),
        draw_line(scale.at(before), scale.at(after), 14, 14, "way"),
        draw_shape("circle", "before", cx=scale.at(before), cy=14, r=5),
        draw_shape("circle", "after", cx=scale.at(after), cy=14, r=5.5),
        height=28,
        class_="row",
    )


class Point(NamedTuple):
    """A point of a curve; `up` is nan if the rules conflict."""

    across: float
    up: float
    words: str
    attributes: Mapping[str, object] = {}


@dataclass(frozen=True)
class Field:
    """The area of a plot: its horizontal and vertical axes, and its margins in pixels."""

    across: Scale
    up: Scale
    height: float
    top: float = 10.0
    bottom: float = 12.0

    def y(self, value: float) -> float:
        """Return the vertical position of a value, in pixels from the top."""
        return self.height - self.bottom - (self.height - self.bottom - self.top) * self.up.share(value)

    def draw_path(self, points: Sequence[tuple[float, float]], look: str) -> list[Html]:
        """Draw lines between successive points, with gaps at missing values."""
        return [
            draw_line(self.across.at(x1), self.across.at(x2), self.y(y1), self.y(y2), look)
            for (x1, y1), (x2, y2) in itertools.pairwise(points)
            if math.isfinite(y1 + y2)
        ]

    def draw_level(self, value: float, look: str) -> Html:
        """Draw a horizontal line at a value."""
        return draw_line("0%", "100%", self.y(value), self.y(value), look)

    def draw_grid(self, most: int) -> list[Html]:
        """Draw horizontal lines at round numbers."""
        return [self.draw_level(tick, "grid") for tick in self.up.ticks(most)]

    def frame(
        self,
        labels: Sequence[tuple[float, str]],
        *content: Content,
        wide: bool = False,
        style: str | None = None,
    ) -> Html:
        """Return the plot with labels, tuples of value and text, at its left."""
        texts = [_draw_text("100%", self.y(value) + 4, text, "end") for value, text in labels]
        size = {"width": "100%", "height": f"{self.height:g}", "overflow": "visible"}
        side = tag("svg", *texts, aria_hidden="true", focusable="false", **size)
        wide = wide or any(len(text) > _NARROW_LABEL for _, text in labels)
        return tag("div", side, tag("div", *content), class_="framed wide" if wide else "framed", style=style)

    def label_ticks(self, unit: Unit, most: int) -> list[tuple[float, str]]:
        """Return round numbers of the vertical axis with their texts."""
        return [(tick, format_amount(tick, unit)) for tick in self.up.ticks(most)]


def draw_curve(
    title: str,
    points: Sequence[Point],
    units: tuple[Unit, Unit] = ("plain", "plain"),
    *,
    up: Scale | None = None,
    now: int | None = None,
    description: str = "",
    control: Content = None,
    style: str | None = None,
) -> Html:
    """Draw a curve of costs over the levels of a rule, with its axes.

    Parameters
    ----------
    title : str
        The title for screen readers.
    points : sequence of Point
        The points from left to right; those without a value are drawn as circles at the bottom.
    units : tuple
        The units of the horizontal and of the vertical axis.
    up : Scale, optional
        The vertical scale; by default, one that fits the points.
    now : int, optional
        The index of the point at the present level, which is marked.
    description : str
        A description for screen readers.
    control : Html, optional
        Content below the axis, such as a slider.
    style : str, optional
        Inline style of the frame, for pages without a style sheet.
    """
    xs = [point.across for point in points]
    across = Scale(min(xs), max(xs))
    field = Field(across, up or fit_scale(point.up for point in points), 240)
    parts = [*field.draw_grid(6), *field.draw_path([point[:2] for point in points], "curve-line")]
    for i, point in enumerate(points):
        conflict = math.isnan(point.up)
        look = "conflict" if conflict else "point now" if i == now else "point"
        size = {"cx": across.at(point.across), "cy": 228.0 if conflict else field.y(point.up)}
        colors = _LOOKS["conflict" if conflict else "point"]
        words = tag("title", point.words)
        circle = {**colors, **size, "r": 5 if i == now else 3, **point.attributes}
        parts.append(draw_shape("circle", look, words, **circle))
    if now is not None and not math.isnan(points[now].up):
        x, y = across.at(points[now].across), field.y(points[now].up)
        parts.append(draw_line(x, x, y, 228, "now-line"))
        parts.append(draw_shape("circle", "marker", cx=x, cy=y, r=8))
    if description:
        parts.insert(0, tag("desc", description))
    plot = make_svg(title, *parts, height=240, class_="plot")
    axis = draw_axis(across, units[0], width=NARROW_PLOT)
    return field.frame(field.label_ticks(units[1], 6), plot, axis, control, style=style)


def draw_reliability(
    title: str,
    bins: Sequence[tuple[float, float, float]],
    before: Sequence[tuple[float, float, float]] = (),
) -> Html:
    """Draw a reliability diagram; on its diagonal, confidence and accuracy agree.

    Each bin is a tuple of confidence, accuracy and share of the rows. Open circles are bins before
    calibration.
    """
    points = [*before, *bins]
    # The axes start at the largest quarter below all points, with round steps from there to one.
    steps = {0.0: 0.25, 0.25: 0.25, 0.5: 0.1, 0.75: 0.05}
    low = min((low for low in steps if any(min(s, o) < low + 0.25 for s, o, _ in points)), default=0.0)
    ticks = [low + i * steps[low] for i in range(round((1 - low) / steps[low]) + 1)]
    scale, most = Scale(low, 1.0), max((share for *_, share in points), default=1.0)
    field = Field(scale, scale, 220)
    looks = ["before"] * len(before) + ["after"] * len(bins)
    circles = [
        draw_shape(
            "circle", look, cx=scale.at(stated), cy=field.y(observed), r=3 + 3 * math.sqrt(share / most)
        )
        for (stated, observed, share), look in zip(points, looks, strict=True)
    ]
    diagonal = field.draw_path([(low, low), (1.0, 1.0)], "diagonal")
    grid = [field.draw_level(tick, "grid") for tick in ticks]
    plot = make_svg(title, *grid, *diagonal, *circles, height=field.height)
    axis = draw_axis(scale, "share", width=NARROW_PLOT)
    return field.frame([(tick, format_percent(tick)) for tick in ticks], plot, axis)
