"""What notebooks show: tables and curves in the notebook's own colours, with every name escaped."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    Monitor,
    Problem,
    audit,
    demographic_parity,
    diagnose,
    error,
    explain,
    frontier,
    rejected,
    selected,
    sensitivity,
    solve,
    worst,
)
from bylaw.view._colors import ACCENT, TONE_COLORS
from helpers.reported import parsed

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
TAKEN = ("html", "head", "body", "script", "img", "style", "link", "iframe")


def make_rows(no, yes, attribute, values, n=400):
    rng = np.random.default_rng(0)
    scores = rng.random(n)
    groups = np.array(values, dtype=object)[(rng.random(n) < 0.3 + 0.3 * scores).astype(int)]
    labels = np.array([no, yes], dtype=object)[(rng.random(n) < scores).astype(int)]
    return Evidence(
        np.column_stack([1 - scores, scores]), classes=[no, yes], groups={attribute: groups}
    ), labels


def make_views(no="no", yes="yes", attribute="sex", values=("F", "M")):
    """Everything that notebooks show of one problem."""
    rows, labels = make_rows(no, yes, attribute, values)
    parity, budget = demographic_parity(attribute, tol=0.02), rejected() <= 0.1
    problem = Problem(error(), [parity, budget], reject=f"refer {no}")
    policy = solve(problem, rows)
    monitor = Monitor(policy)
    monitor.update(rows, labels=labels)
    impossible = Problem(error(), [selected(no) >= 0.8, selected(yes) >= 0.3])
    lowest = Problem(worst(error(), by=attribute), [budget])
    levels = {parity: [0.0, 0.05], budget: [0.05, 0.1, 0.2]}
    steep = {selected(yes) >= 0.3: [0.1, 0.3, 0.9]}
    return {
        "policy": policy,
        "worst": solve(lowest, rows),
        "audit": audit(policy, rows, labels=labels, fitted_rows="estimate"),
        "monitor": monitor,
        "explanation": explain(policy, rows),
        "curve": frontier(problem, rows, {budget: [0.0, 0.1, 0.3]}),
        "grid": frontier(problem, rows, levels),
        "conflicts": frontier(
            impossible.with_rules([selected(no) >= 0.2, selected(yes) >= 0.3]), rows, steep
        ),
        "sensitivity": sensitivity(problem, rows),
        "conflict": diagnose(impossible, rows),
        "feasible": diagnose(problem, rows),
    }


@pytest.fixture(scope="module")
def views():
    return make_views()


@pytest.fixture(scope="module")
def hostile_views():
    return make_views(SCRIPT, IMAGE, f"sex{SCRIPT}", (SCRIPT, IMAGE))


@pytest.mark.slow
def test_every_name_is_escaped(hostile_views):
    for name, view in hostile_views.items():
        page = parsed(view._repr_html_())  # every element is closed
        assert not [found for found in TAKEN if page.all(found)], name
    assert "&lt;script&gt;alert(1)" in hostile_views["policy"]._repr_html_()
    assert "&lt;script&gt;alert(1)" in hostile_views["explanation"]._repr_html_()


@pytest.mark.slow
def test_colours_are_the_notebooks_own(views):
    """No letters and no paper of our own; accents can be told on white and on black (3 to 1, WCAG 2)."""
    accents = {ACCENT, *TONE_COLORS.values()}
    for name, view in views.items():
        html = view._repr_html_()
        assert set(re.findall(r"#[0-9a-f]{6}", html)) <= accents, name
        papers = re.sub(r"rgba\(59,130,246,0\.\d+\)", "transparent", html)  # shades of a grid let it through
        assert set(re.findall(r"background:([^;\"]+)", papers)) == {"transparent"}, name
        assert "<style" not in html
        assert "http" not in html
    for colour in accents:
        assert min(contrast(colour, paper) for paper in ("#ffffff", "#111111")) >= 3, colour


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def read_cells(view, table=0):
    """The texts of a table, line by line."""
    rows = parsed(view._repr_html_()).all("table")[table].all("tbody")[0].all("tr")
    return [[cell.words() for cell in row.all("td")] for row in rows]


def test_a_policy_shows_statements_with_prices_and_bars(views):
    policy = views["policy"]
    cells = read_cells(policy)
    assert [line[0] for line in cells] == list(policy.prices)
    assert [line[1] for line in cells] == [f"{price:.4g}" for price in policy.prices.values()]
    page = parsed(policy._repr_html_())
    widths = [float(bar.attributes["width"].rstrip("%")) for bar in page.all("table")[0].all("rect")]
    prices = np.array(list(policy.prices.values()))
    assert widths == pytest.approx((100 * prices / prices.max()).tolist(), abs=0.006)
    singles = read_cells(policy, 1)
    assert {line[0] for line in singles} == {rule for rule, price in policy.multipliers.items() if price}
    assert "worst group" in views["worst"]._repr_html_()


def test_a_curve_goes_through_its_points(views):
    found = views["curve"]
    page = parsed(found._repr_html_())
    places = np.array(
        [[circle.attributes[at].rstrip("%") for at in ("cx", "cy")] for circle in page.all("circle")],
        dtype=float,
    )
    lines = page.all("line", class_="curve-line")
    assert [line.attributes["x2"] for line in lines] == [f"{x:.2f}%" for x in places[1:, 0]]
    assert (np.diff(places[:, 0]) > 0).all()
    slopes = np.diff(places[:, 1]) / np.diff(places[:, 0])  # downwards on the page is less
    costs = np.diff(found.cost) / np.diff(found.levels[:, 0])
    assert slopes / costs == pytest.approx([slopes[0] / costs[0]] * 2, rel=0.01)
    assert (slopes * costs < 0).all()
    told = [circle.all("title")[0].words() for circle in page.all("circle")]
    assert told == [f"{x:g}: {y:.4g}" for x, y in zip(found.levels[:, 0], found.cost, strict=True)]
    conflicts = views["conflicts"]._repr_html_()
    assert "0.9: the rules conflict" in conflicts


def test_a_grid_has_a_cell_for_each_pair_of_levels(views):
    found = views["grid"]
    cells = read_cells(found)
    assert [line[0] for line in cells] == ["0", "0.05"]
    assert [text for line in cells for text in line[1:]] == [f"{cost:.4g}" for cost in found.cost]


def test_conflicts_rules_and_changes_are_listed(views):
    found = views["conflict"]
    assert [line[0] for line in read_cells(found)] == list(found.conflict)
    assert read_cells(found, 1) == [[rule, f"{by:.4g}"] for rule, by in found.relaxation.items()]
    assert "can be satisfied together" in views["feasible"]._repr_html_()
    reached = read_cells(views["sensitivity"])
    assert [line[0] for line in reached] == [one.statement for one in views["sensitivity"].statements]


def test_changes_of_decisions_are_counted(views):
    found = views["explanation"]
    moves = [
        (found.actions[b], found.actions[a]) for b, a in zip(found.before, found.after, strict=True) if a != b
    ]
    cells = read_cells(found)
    assert {(line[0], line[1]): int(line[2]) for line in cells} == {
        move: moves.count(move) for move in set(moves)
    }
    assert f"{len(moves)} of 400 rows" in found._repr_html_()


def test_long_audits_are_folded_and_complete(views):
    found = views["audit"]
    rules = [line[1] for table in (0, 1) for line in read_cells(found, table)]
    assert sorted(rules) == sorted(rule.rule for rule in found.rules)
    assert len(read_cells(found)) == 8
    marks = parsed(found._repr_html_()).all("circle")
    assert len(marks) == len(found.rules)


def test_violations_and_the_classifier_show_their_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] + rng.normal(size=300) > 0, SCRIPT, "no")
    clf = ConstrainedClassifier(LogisticRegression(), [rejected() <= 0.1, selected(SCRIPT) <= 0.3], cv=2)
    found = clf.fit(X, y).violations(X, y)
    assert [line[0] for line in read_cells(found)] == [str(rule) for rule in clf.rules]
    for shown in (found._repr_html_(), clf._repr_html_()):
        assert SCRIPT not in shown
        assert "&lt;script&gt;alert(1)" in shown
