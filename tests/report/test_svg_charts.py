from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bylaw import rejected, selected
from bylaw._base.scales import Scale, fit_scale
from bylaw.report.bounded_rates import BoundedRate
from bylaw.report.colors import DARK, LIGHT
from bylaw.report.cost_curves import Curve
from bylaw.report.sections import frontier
from bylaw.report.svg_charts import (
    choose_ticks,
    draw_axis,
    draw_column,
    draw_dots,
    draw_reliability,
    draw_stack,
    draw_track,
    draw_track_axis,
)
from bylaw.testing import Verdict
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
    bar = BoundedRate(
        "s", rejected(), ("r",), high=0.1, estimate=0.08, lower=0.06, upper=0.12, verdict=Verdict.UNDECIDED
    )
    scale = Scale(0.0, 0.15)
    tree = parsed(draw_track(bar, scale, "t"))
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
    tree = parsed(draw_track(BoundedRate("s", rejected(), ("r",), high=0.1), Scale(0, 1), "t"))
    assert not tree.all("circle")
    assert not tree.all("line", class_="interval")


def test_a_tracks_ticks_are_its_bounds():
    gap = BoundedRate("s", rejected() - selected(1), ("r",), low=-0.02, high=0.02)
    assert choose_ticks(gap, Scale(-0.04, 0.04)) == [-0.02, 0, 0.02]
    assert choose_ticks(gap, Scale(-1.0, 1.0)) == [-0.02, 0.02]
    assert said(draw_axis(Scale(-0.04, 0.04), "points", [-0.02, 0.0], width=400)) == ["−2 points", "0 points"]
    assert said(draw_track_axis(gap, Scale(-0.04, 0.04))) == ["−2 points", "0 points", "2 points"]


def test_numbers_of_an_axis_do_not_touch():
    """Bounds that are close to each other are one label; of other numbers, some are left out."""
    gap = BoundedRate("s", rejected() - selected(1), ("r",), low=-0.02, high=0.02)
    assert said(draw_track_axis(gap, Scale(-0.5, 0.5))) == ["−2 to 2 points"]
    many = [0.1, 0.125, 0.15]
    assert said(draw_axis(Scale(0.1, 0.15), "share", many, width=600)) == ["10 %", "12.5 %", "15 %"]
    assert said(draw_axis(Scale(0.1, 0.15), "share", many, width=110)) == ["10 %", "15 %"]


def test_bars_are_as_long_as_their_shares():
    assert number(parsed(draw_column("t", 0.2, 0.8)).all("rect")[0].attributes["width"]) == 25
    pieces = [r.attributes for r in parsed(draw_stack("t", [("a", 0.5), ("b", 0.3), ("c", 0.2)])).all("rect")]
    assert [number(p["width"]) for p in pieces] == [50, 30, 20]
    assert [number(p["x"]) for p in pieces] == [0, 50, 80]


def test_the_calibration_plot_has_agreement_on_its_diagonal():
    tree = parsed(draw_reliability("t", [(0.6, 0.6, 0.1), (0.9, 0.9, 0.1), (0.8, 0.55, 0.1)]))
    (line,) = tree.all("line", class_="diagonal")
    x1, x2, y1, y2 = (float(line.attributes[k]) for k in ("x1", "x2", "y1", "y2"))
    places = [(float(c.attributes["cx"]), float(c.attributes["cy"])) for c in tree.all("circle")]
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
    levels = np.array([0.2, 0.25, 0.4])
    curve = Curve(rejected() <= 0.25, 0.25, "rate", levels, 1 - levels, 0 * levels, (False,) * 3)
    places = [frontier._place_on_slider(curve, i) for i in range(3)]
    assert places[0] == 0
    assert places[1] / places[2] == pytest.approx(0.25, abs=0.001)
