"""How the figures of experiments look: one palette, no clutter, the title says what is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["axes.labelcolor"] = "#334155"
import matplotlib.pyplot as plt
from matplotlib.ticker import PercentFormatter

INK, FAINT, GRID = "#334155", "#94a3b8", "#e2e8f0"
TEAL, VIOLET, RUST, BLUE, AMBER, GREEN = "#0d9488", "#4c1d95", "#c2410c", "#1d4ed8", "#b45309", "#15803d"
COLOURS = (VIOLET, TEAL, RUST, BLUE, AMBER, GREEN)


def panels(
    columns: int = 1, rows: int = 1, *, width: float = 5.2, height: float = 4.0, **options: Any
) -> Any:
    """A figure and its axes, tidied."""
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        layout="constrained",
        squeeze=False,
        **options,
    )
    for axis in axes.flat:
        tidy(axis)
    return figure, axes.ravel()


def tidy(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(colors=INK)
    axis.grid(axis="y", color=GRID)
    axis.set_axisbelow(True)


def title(axis: Any, text: str) -> None:
    axis.set_title(text, loc="left", fontweight="bold", color=INK, fontsize=11)


def percent(axis: Any, decimals: int | None = 0) -> None:
    """Ticks of an axis.xaxis or axis.yaxis as per cent."""
    axis.set_major_formatter(PercentFormatter(1, decimals=decimals))


def keep(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
