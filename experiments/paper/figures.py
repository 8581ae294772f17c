"""The figures of the paper's appendix: risk against rejection, and against unfairness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
from experiments.figures import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    INK,
    RUST,
    TEAL,
    VIOLET,
    keep,
    panels,
    percent,
    title,
)
from experiments.paper import parity, rejection
from experiments.paper.tables import Found, means

REJECTIONS = {
    rejection.FULL: (VIOLET, "o", "-"),
    rejection.COPT_800: (TEAL, "s", "--"),
    rejection.COPT_100: (RUST, "^", "--"),
    rejection.ARGMAX: (AMBER, "v", ":"),
    rejection.BASELINE: (BLUE, "x", "--"),
    rejection.NO_BETA: (FAINT, "P", ""),
    rejection.BASE: (INK, "*", ""),
}
PARITIES = {
    parity.FULL: (VIOLET, "o", "-"),
    parity.ALL_ROWS: (GREEN, "D", "-"),
    parity.COPT: (TEAL, "s", "--"),
    parity.FAIRLEARN[0]: (RUST, "^", "--"),
    parity.FAIRLEARN[1]: (AMBER, "v", "--"),
    parity.BASE: (INK, "*", ""),
}


def of_rejections(found: Found, path: Path) -> None:
    mean = means(found, ["table", "method", "threshold"])
    figure, axes = panels(2, height=4.4)
    for axis, (name, rows) in zip(axes, mean.groupby("table", sort=False), strict=True):
        draw(axis, rows, REJECTIONS, "rejected")
        for threshold in rows["threshold"].unique():
            axis.axvline(threshold, color=FAINT, linewidth=0.6, zorder=0)
        axis.set_xlabel("rejected, test rows (thin lines: the thresholds)")
        axis.set_ylabel("risk")
        title(axis, name)
    axes[0].legend(frameon=False, fontsize=8)
    keep(figure, path)


def of_parities(found: Found, path: Path) -> None:
    mean = means(found, ["table", "method", "exponent"])
    groups = {"Communities and Crime": ("not white", "white"), "Adult": ("women", "men")}
    figure, axes = panels(2, 2, height=4.0)
    for row, (name, rows) in enumerate(mean.groupby("table", sort=False)):
        for group in (0, 1):
            axis = axes[2 * row + group]
            draw(axis, rows, PARITIES, f"unfairness {group}")
            axis.set_xlabel(f"unfairness towards {groups[name][group]}: distance to all, test rows")
            axis.set_ylabel("risk")
            title(axis, name)
    axes[0].legend(frameon=False, fontsize=8)
    keep(figure, path)


def draw(axis: Any, rows: pandas.DataFrame, styles: dict[str, tuple[str, str, str]], across: str) -> None:
    """One line for each method, with deviations over the splits in faint."""
    for method, (colour, marker, line) in styles.items():
        mine = rows[rows["method"] == method].sort_values(f"{across}, mean")
        x, y = mine[f"{across}, mean"], mine["risk, mean"]
        style = {"color": colour, "marker": marker, "linestyle": line, "markersize": 6, "label": method}
        axis.plot(x, y, **style)
        axis.errorbar(
            x,
            y,
            mine["risk, deviation"],
            mine[f"{across}, deviation"],
            color=colour,
            alpha=0.15,
            linestyle="",
        )
    percent(axis.xaxis)
    percent(axis.yaxis, None)
