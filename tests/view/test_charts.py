from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from bylaw.report._prices import place_on_slider
from bylaw.view import (
    Point,
    Scale,
    Track,
    draw_axis,
    draw_bar,
    draw_curve,
    draw_dots,
    draw_grid,
    draw_reliability,
    draw_stack,
    draw_track,
    draw_track_axis,
    fit_scale,
)
from bylaw.view._colors import DARK, LIGHT
from helpers.reported import parsed


def number(text):
    return float(text.removesuffix("%"))


def said(markup):
    return [text.text.replace("\N{NO-BREAK SPACE}", " ") for text in parsed(markup).all("text")]


def value_at(place, scale):
    """What a place on a row stands for: the way back, written by itself."""
    return scale.low + (place - 3) / 94 * (scale.high - scale.low)


def test_places_run_from_edge_to_edge():
    scale = Scale(-1.0, 3.0)
    assert [scale.place(v) for v in (-1, 1, 3)] == [3, 50, 97]
    assert scale.place(99) == 97
    assert math.isfinite(Scale(1.0, 1.0).place(1.0))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.03, 0.021), (0.2, 0.9), (3, 4000), (0, 1e-6)])
def test_ticks_are_round_and_inside(low, high):
    ticks = Scale(low, high).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-12 <= t <= high + 1e-12 for t in ticks)
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[0])


def test_scales_hold_all_values():
    scale = fit_scale([0.2, 0.5, math.inf, math.nan])
    assert scale.low < 0.2
    assert scale.high > 0.5
    assert fit_scale([0.1], around_zero=True).low == 0
    assert fit_scale([0.0, 0.0], around_zero=True).high > 0
    assert fit_scale([]).high > fit_scale([]).low


def test_dots_stand_where_their_values_are():
    scale = Scale(0.1, 0.9)
    tree = parsed(draw_dots("t", 0.31, 0.72, scale))
    (before,), (after,) = tree.all("circle", class_="before"), tree.all("circle", class_="after")
    assert value_at(number(before.attributes["cx"]), scale) == pytest.approx(0.31, abs=1e-4)
    assert value_at(number(after.attributes["cx"]), scale) == pytest.approx(0.72, abs=1e-4)
    way = tree.all("line", class_="way")[0].attributes
    assert (way["x1"], way["x2"]) == (before.attributes["cx"], after.attributes["cx"])


def test_a_track_shows_bound_estimate_and_interval():
    scale = Scale(0.0, 0.15)
    tree = parsed(draw_track("t", Track(high=0.1, estimate=0.08, lower=0.06, upper=0.12), scale))
    assert value_at(number(tree.all("circle")[0].attributes["cx"]), scale) == pytest.approx(0.08, abs=1e-4)
    wide = tree.all("line", class_="interval")[0].attributes
    ends = [value_at(number(wide[x]), scale) for x in ("x1", "x2")]
    assert ends == pytest.approx([0.06, 0.12], abs=1e-4)
    (target,) = tree.all("line", class_="target")
    assert value_at(number(target.attributes["x1"]), scale) == pytest.approx(0.1, abs=1e-4)
    (shaded,) = tree.all("rect", class_="allowed")
    right = number(shaded.attributes["x"]) + number(shaded.attributes["width"])
    assert value_at(right, scale) == pytest.approx(0.1, abs=1e-4)


def test_a_track_without_a_number_has_no_dot():
    tree = parsed(draw_track("t", Track(high=0.1), Scale(0, 1)))
    assert not tree.all("circle")
    assert not tree.all("line", class_="interval")


def test_a_tracks_ticks_are_its_bounds():
    gap = Track(low=-0.02, high=0.02)
    assert said(draw_track_axis(gap, Scale(-0.04, 0.04), "points")) == ["−2 points", "0 points", "2 points"]
    assert said(draw_track_axis(gap, Scale(-0.2, 0.2), "points")) == ["−2 to 2 points"]
    assert said(draw_axis(Scale(-0.04, 0.04), "points", [-0.02, 0.0], width=400)) == ["−2 points", "0 points"]


def test_numbers_of_an_axis_do_not_touch():
    many = [0.1, 0.125, 0.15]
    assert said(draw_axis(Scale(0.1, 0.15), "share", many, width=600)) == ["10 %", "12.5 %", "15 %"]
    assert said(draw_axis(Scale(0.1, 0.15), "share", many, width=110)) == ["10 %", "15 %"]


def test_bars_are_as_long_as_their_shares():
    assert number(parsed(draw_bar("t", 0.25)).all("rect")[0].attributes["width"]) == 25
    assert number(parsed(draw_bar("t", math.nan)).all("rect")[0].attributes["width"]) == 0
    pieces = [r.attributes for r in parsed(draw_stack("t", [("a", 0.5), ("b", 0.3), ("c", 0.2)])).all("rect")]
    assert [number(p["width"]) for p in pieces] == [50, 30, 20]
    assert [number(p["x"]) for p in pieces] == [0, 50, 80]


def test_larger_values_stand_higher_and_larger_levels_further_right():
    drawn = draw_curve(
        "t", [Point(x, y, f"{x}") for x, y in ((0.1, 9.0), (0.2, 7.0), (0.3, 5.0), (0.5, math.nan))]
    )
    *points, conflict = parsed(drawn).all("circle")
    places = [(number(point.attributes["cx"]), float(point.attributes["cy"])) for point in points]
    assert np.diff([x for x, _ in places]) == pytest.approx([23.5, 23.5])  # of 94 % of the width
    heights = np.diff([-y for _, y in places])  # y goes down in SVG
    assert heights[0] < 0
    assert heights[0] == pytest.approx(heights[1], abs=0.02)
    assert conflict.attributes["class"] == "conflict"
    assert number(conflict.attributes["cx"]) == 97
    assert [point.all("title")[0].text for point in points] == ["0.1", "0.2", "0.3"]


def test_a_line_has_a_gap_where_rules_conflict():
    drawn = draw_curve(
        "t", [Point(x, y, "") for x, y in ((1.0, 1.0), (2.0, math.nan), (3.0, 2.0), (4.0, 3.0))]
    )
    assert len(parsed(drawn).all("line", class_="curve-line")) == 1


def test_each_axis_has_numbers_of_its_own():
    drawn = draw_curve("t", [Point(0.1, 50.0, ""), Point(0.2, 60.0, ""), Point(0.3, 90.0, "")])
    side, _, below = parsed(drawn).all("svg")
    costs, levels = ([float(text.text) for text in axis.all("text")] for axis in (side, below))
    assert len(costs) > 1
    assert all(40 <= cost <= 100 for cost in costs)
    assert len(levels) > 1
    assert all(0.1 <= level <= 0.3 for level in levels)


def test_larger_values_are_darker():
    grid = draw_grid("a", [1.0], [1.0, 2.0, 3.0], [[0.4, 0.8, float("nan")]])
    light, dark = map(float, re.findall(r"rgba\(59,130,246,([\d.]+)\)", grid.to_html()))
    assert light < dark
    assert grid.to_lines(heads=True) == ["a    1    2  3", "1  0.4  0.8  ×"]


def test_the_calibration_plot_has_agreement_on_its_diagonal():
    tree = parsed(draw_reliability("t", [(0.6, 0.6, 0.1), (0.9, 0.9, 0.1), (0.8, 0.55, 0.1)]))
    (line,) = tree.all("line", class_="diagonal")
    x1, x2, y1, y2 = (number(line.attributes[k]) for k in ("x1", "x2", "y1", "y2"))
    places = [(number(c.attributes["cx"]), number(c.attributes["cy"])) for c in tree.all("circle")]
    on = [y1 + (y2 - y1) * (x - x1) / (x2 - x1) for x, _ in places]
    assert [y for _, y in places[:2]] == pytest.approx(on[:2], abs=0.02)
    assert places[2][1] > on[2] + 10  # below the line: too sure of itself


def luminance(colour):
    """Relative luminance, as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXTS = [
    *itertools.product(("ink", "quiet", "accent"), ("paper", "panel")),
    *((look, f"{look}-panel") for look in ("good", "bad", "open")),
    ("good", "paper"),
    ("bad", "paper"),
]
SHAPES = [
    ("before", "paper"),
    ("accent", "paper"),
    ("accent", "allowed"),
    ("ink", "allowed"),
    ("before", "allowed"),
]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(palette):
    """WCAG AA: 4.5 for letters, 3 for shapes."""
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert {pair: round(c, 2) for pair in TEXTS if (c := contrast(*(palette[p] for p in pair))) < 4.5} == {}
    assert {pair: round(c, 2) for pair in SHAPES if (c := contrast(*(palette[p] for p in pair))) < 3} == {}


def test_both_palettes_name_the_same_colours():
    assert list(LIGHT) == list(DARK)


def test_points_of_a_curve_are_on_the_slider_as_far_along_as_their_levels():
    places = [place_on_slider(Scale(0.2, 0.4), level) for level in (0.2, 0.25, 0.4)]
    assert places[0] == 0
    assert places[1] / places[2] == pytest.approx(0.25, abs=0.001)
