"""How the CPU time of `solve` grows with rows, classes, groups and rules, on one BLAS thread.

Work is what a pass must do: rows x actions x columns, the features of a row. Prints a table, writes
it to benchmarks/results/growth.md and draws docs/images/growth.png. With --quick, fewer sizes, and nothing
is written.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded
sys.path.insert(0, str(Path(__file__).parents[1]))

from experiments.figures import FAINT, INK, TEAL, VIOLET, keep, panels, title
from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

from bylaw import Evidence, Problem, error, miscoverage, selected, size, solve
from bylaw.program import compile_problem
from cliffs import known, odds, parity
from core import seconds, show

ROOT = Path(__file__).parents[1]
RESULTS, FIGURE = ROOT / "benchmarks" / "results" / "growth.md", ROOT / "docs" / "images" / "growth.png"
TARGET = "<= 1: linear in the work"
SHORT = 0.5  # seconds, below which the best of several rounds is taken


@dataclass(frozen=True)
class Point:
    """One solve."""

    size: int  # what the panel is about
    work: int
    seconds: float
    steps: int


@dataclass(frozen=True)
class Curve:
    """Points of one kind of problem."""

    name: str
    points: list[Point]

    def find_steepest(self, measure: Callable[[Point], int]) -> tuple[float, Point, Point]:
        """The largest slope between neighbours, of time against a measure of them, and these."""
        pairs = [
            (a, b) for a, b in zip(self.points, self.points[1:], strict=False) if measure(b) > measure(a)
        ]
        slopes = [math.log(b.seconds / a.seconds) / math.log(measure(b) / measure(a)) for a, b in pairs]
        place = max(range(len(pairs)), key=slopes.__getitem__)
        return slopes[place], *pairs[place]


def measure(problem: Problem, evidence: Evidence, at: int | None = None) -> Point:
    """At a size, or at the number of rules."""
    start = time.process_time()
    policy = solve(problem, evidence)
    taken = time.process_time() - start
    if taken < SHORT:
        taken = min(taken, *seconds(lambda: solve(problem, evidence), rounds=4, clock=time.process_time))
    work = len(evidence) * compile_problem(problem, evidence).base.size
    point = Point(at or len(policy.multipliers), work, taken, policy.solution.steps)
    print(point, file=sys.stderr, flush=True)
    return point


def make_sets(n_classes: int) -> Evidence:
    return Evidence(known(10_000, n_classes).probabilities)


def grow(quick: bool) -> dict[str, list[Curve]]:
    """The curves of each panel, by what grows."""
    sets, one = Problem(size(), [miscoverage() <= 0.1]), Problem(error(), [selected(0).given(group=0) <= 0.1])
    rows = [10_000, 100_000, 1_000_000, 10_000_000][: 2 if quick else 4]
    classes = [2, 10, 30, 100, 300, 1000][: 3 if quick else 6]
    groups = [2, 5, 20, 50, 100, 200][: 3 if quick else 6]
    families = [(2, 2), (4, 4), (10, 2), (10, 5), (10, 20), (10, 50)][: 3 if quick else 6]
    return {
        "rows": [Curve("parity, 5 classes x 4 groups", [measure(parity(), known(n), n) for n in rows])],
        "classes": [
            Curve("parity, 4 groups", [measure(parity(), known(10_000, k), k) for k in classes]),
            Curve("sets, one rule", [measure(sets, make_sets(k), k) for k in classes]),
        ],
        "known groups": [
            Curve("parity, 5 classes", [measure(parity(), known(50_000, 5, k), k) for k in groups])
        ],
        "rules": [
            Curve(
                "one rule, then equalized odds",
                [measure(one, known(50_000, 2, 2))]
                + [measure(odds(), known(50_000, k, g)) for k, g in families],
            )
        ],
    }


ROWS = {"rows": "", "classes": ", 10k rows", "known groups": ", 50k rows", "rules": ", 50k rows"}


def tabulate(found: dict[str, list[Curve]]) -> list[tuple[str, str, str]]:
    lines = []
    for what, curves in found.items():
        for curve in curves:
            first, last = curve.points[0], curve.points[-1]
            slope, one, other = curve.find_steepest(lambda point: point.work)
            of_size = curve.find_steepest(lambda point: point.size)[0]
            ends = f"{first.seconds:.2g} s at {first.size:,}, {last.seconds:.2g} s at {last.size:,}"
            steps = f"{one.size:,} ({one.steps} steps) to {other.size:,} ({other.steps})"
            steep = f"steepest slope {slope:.2f} in the work, from {steps}; {of_size:.2f} in the {what}"
            lines.append((f"{what}: {curve.name}{ROWS[what]}", f"{ends}; {steep}", TARGET))
    return lines


def draw(found: dict[str, list[Curve]], path: Path) -> None:
    """Seconds against size, with what would be linear in the work."""
    figure, axes = panels(2, 2, width=5.2, height=3.6)
    for axis, (what, curves) in zip(axes, found.items(), strict=True):
        for curve, colour in zip(curves, (VIOLET, TEAL), strict=False):
            sizes = [point.size for point in curve.points]
            first = curve.points[0]
            linear = [first.seconds * point.work / first.work for point in curve.points]
            axis.loglog(
                sizes, [p.seconds for p in curve.points], "o-", color=colour, label=curve.name, zorder=3
            )
            axis.loglog(
                sizes, linear, "--", color=colour if len(curves) > 1 else FAINT, linewidth=1.2, alpha=0.6
            )
        axis.plot([], [], "--", color=FAINT, label="linear in the work")
        title(axis, f"{what.capitalize()}{ROWS[what]}")
        axis.set_xlabel(what, color=INK)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        for part in (axis.xaxis, axis.yaxis):
            part.set_minor_formatter(NullFormatter())
        most = max(point.seconds for curve in curves for point in curve.points)
        least = min(point.seconds for curve in curves for point in curve.points)
        axis.set_ylim(least / 2, most * 6)
        axis.legend(frameon=False, labelcolor=INK, fontsize=9, loc="upper left")
    for axis in axes[::2]:
        axis.set_ylabel("CPU seconds", color=INK)
    keep(figure, path)


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    solve(parity(), known(5_000))  # imports
    found = grow(quick)
    show(tabulate(found), None if quick else RESULTS)
    if not quick:
        draw(found, FIGURE)


if __name__ == "__main__":
    main(sys.argv[1:])
