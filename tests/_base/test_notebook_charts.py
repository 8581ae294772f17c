"""Charts of notebooks: what is more stands higher, further to the right, or darker."""

from __future__ import annotations

import re

from bylaw._base.notebook import _BAR, draw_interval
from bylaw._base.notebook_charts import draw_curve, draw_grid


def read_places(markup, shape):
    pairs = re.findall(rf'<{shape}\b[^>]*? c?x="([\d.]+)" c?y="([\d.]+)"', str(markup))
    return [(float(x), float(y)) for x, y in pairs]


def test_larger_values_stand_higher_and_larger_levels_further_right():
    drawn = draw_curve("cost", "level", [(0.3, 5.0), (0.1, 9.0), (0.2, 7.0)], conflicts=[0.05])
    points = read_places(drawn, "circle")
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    heights = [-y for _, y in points]  # y goes down in SVG
    assert heights == sorted(heights, reverse=True)
    assert (heights[0] - heights[1]) - (heights[1] - heights[2]) < 0.2  # to a tenth of a pixel
    words = re.findall(r">([^<>]*)</text>", str(drawn))
    cross, _ = read_places(drawn, "text")[words.index("×")]
    assert cross < points[0][0]


def test_each_axis_has_numbers_of_its_own():
    drawn = draw_curve("cost", "level", [(0.1, 50.0), (0.2, 60.0), (0.3, 90.0)], conflicts=[])
    anchored = re.findall(r'text-anchor="(\w+)"[^>]*>([\d.]+)</text>', str(drawn))
    numbers = {
        side: [float(value) for anchor, value in anchored if anchor == side] for side in ("middle", "end")
    }
    assert len(numbers["middle"]) > 1
    assert all(0 <= level <= 0.5 for level in numbers["middle"])
    assert len(numbers["end"]) > 1
    assert all(40 <= cost <= 100 for cost in numbers["end"])


def test_larger_values_are_darker():
    drawn = str(draw_grid("a", [1.0], [1.0, 2.0, 3.0], [[0.4, 0.8, float("nan")]]))
    light, dark = map(float, re.findall(r"rgba\(59,130,246,([\d.]+)\)", drawn))
    assert light < dark
    assert drawn.count("×") == 1


def test_an_interval_is_drawn_on_an_axis_from_its_low_to_its_high_end():
    """Ends, middle and a quarter of the axis, as far apart as their values."""
    drawn = str(draw_interval(10.0, 12.0, 14.0, 11.0, low=10.0, high=14.0, tone="bad"))
    (line,) = re.findall(r'x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*stroke-width="3"', drawn)
    first, last = map(float, line)
    assert (first, last) == (5, _BAR - 5)
    (middle,) = map(float, re.findall(r'cx="([\d.]+)"', drawn))
    (bound,) = map(float, re.findall(r'x1="([\d.]+)"[^>]*stroke="currentColor"', drawn))
    assert abs(middle - (first + last) / 2) < 0.2
    assert abs(bound - (3 * first + last) / 4) < 0.2
