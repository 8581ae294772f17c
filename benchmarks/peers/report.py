"""Tables and a figure of what the contests showed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import sets
from benchmarks.peers.parity import CONTESTS, OURS
from experiments.figures import AMBER, BLUE, GREEN, INK, RUST, TEAL, VIOLET, keep, panels, title
from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

Found = Sequence[dict[str, Any]]  # one measurement each: contest, contestant, rows, and what was measured
TRAINED = f"{OURS}, models trained too"
STYLES = {  # of a line: colour and dashes; the same family, the same colour
    OURS: (VIOLET, "-"),
    f"{OURS}, as predicted": (VIOLET, "--"),
    TRAINED: (VIOLET, ":"),
    "SciPy, HiGHS": (BLUE, "-"),
    "cvxpy, Clarabel": (TEAL, "-"),
    "fairlearn, ThresholdOptimizer": (RUST, "-"),
    "fairlearn, ExponentiatedGradient": (RUST, "--"),
    "error-parity": (AMBER, "-"),
    "OxonFair": (GREEN, "-"),
}


def text_of(found: Found, sizes: Sequence[int], how: str) -> str:
    """Every table, with a line on how it was measured."""
    parts = [how]
    for name, contest in CONTESTS.items():
        rows, points = [row for row in found if row["contest"] == name], 100 * contest.rule.tol
        bound = f"gaps of at most {points:g} point{'' if points == 1 else 's'}"
        parts += [f"**{contest.title}; {bound}**", parity_table(rows, sizes)]
    parts += [f"**Sets of labels at {100 * sets.COVERAGE:g} % coverage**", sets_table(found)]
    return "\n\n".join(parts) + "\n"


def parity_table(found: Found, sizes: Sequence[int]) -> str:
    """Time and memory by number of rows; quality where everyone took part and at the next size."""
    judged = sizes[:2]
    heads = [f"{size:,} rows" for size in sizes] + [f"error, gap after {size:,}" for size in judged]
    lines = [line_of(["", *heads]), line_of(["---"] * (1 + len(heads)))]
    cells = {(row["contestant"], row["rows"]): row for row in found}
    for name in dict.fromkeys(row["contestant"] for row in found):
        # Who trains models is compared with us when we do.
        against = TRAINED if "ExponentiatedGradient" in name else OURS
        speeds = [speed(cells[name, size], cells[against, size]) for size in sizes]
        lines.append(line_of([name, *speeds, *(quality(cells[name, size]) for size in judged)]))
    return "\n".join(lines)


def line_of(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def speed(row: dict[str, Any], ours: dict[str, Any]) -> str:
    if row.get("failed"):
        return row["failed"]
    megabytes = row["megabytes"]
    memory = "" if megabytes is None else f", {megabytes:.0f} MB" if megabytes >= 1 else ", under 1 MB"
    times = math.nan if row is ours or ours.get("failed") else row["seconds"] / ours["seconds"]
    ratio = "" if math.isnan(times) else f" ({times:.0f} x)" if times >= 10 else f" ({times:.2g} x)"
    return f"{row['seconds']:.2g} s{ratio}{memory}"


def quality(row: dict[str, Any]) -> str:
    return "" if row.get("failed") else f"{100 * row['error']:.2f} %, {100 * row['gap']:.2f}"


def sets_table(found: Found) -> str:
    heads = ["", "", "size at equal coverage", "asked for: coverage", "asked for: size", "seconds"]
    lines = [line_of(heads), line_of(["---"] * len(heads))]
    for row in (row for row in found if row["contest"] in sets.CONTESTS):
        named = [sets.CONTESTS[row["contest"]], row["contestant"]]
        if row.get("failed"):
            lines.append(line_of([*named, row["failed"], "", "", ""]))
            continue
        fair = f"{row['fair size']:.3f} ± {row['spread']:.3f}"
        asked = [f"{100 * row['coverage']:.2f} %", f"{row['size']:.3f}"]
        lines.append(line_of([*named, fair, *asked, f"{row['seconds']:.2g}"]))
    return "\n".join(lines)


def draw(found: Found, path: Path) -> None:
    """Seconds against rows, one panel for each contest on parity."""
    figure, axes = panels(2, 2, width=5.4, height=3.6, sharex=True, sharey=True)
    shown: dict[str, Any] = {}
    for axis, (key, contest) in zip(axes, CONTESTS.items(), strict=True):
        rows = [row for row in found if row["contest"] == key and not row.get("failed")]
        for name in (name for name in contest.contestants if name in {row["contestant"] for row in rows}):
            points = [(row["rows"], row["seconds"]) for row in rows if row["contestant"] == name]
            colour, dashes = STYLES[name]
            width = 2.6 if name == OURS else 1.5
            (shown[name],) = axis.loglog(
                *zip(*points, strict=True), dashes, color=colour, linewidth=width, marker="o", markersize=4
            )
        title(axis, contest.short)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in axes[::2]:
        axis.set_ylabel("seconds", color=INK)
    for axis in axes[2:]:
        axis.set_xlabel("rows", color=INK)
    order = [name for name in STYLES if name in shown]
    figure.legend(
        [shown[name] for name in order],
        order,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        labelcolor=INK,
    )
    keep(figure, path)
