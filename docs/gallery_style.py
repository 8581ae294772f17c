"""How figures of the gallery look: the report's colors, no clutter. A downloaded notebook does without."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import matplotlib as mpl
from cycler import cycler

from bylaw.view._colors import LIGHT

# C0 with rules, C1 what it is compared with, C2 the baseline; told apart by all kinds of color vision.
COLOURS = [LIGHT["accent"], "#d97706", LIGHT["before"], "#6fb1e4", LIGHT["ink"]]
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": LIGHT["before"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": LIGHT["ink"],
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.figsize": (7.0, 4.2),
    "font.size": 11,
    "grid.color": LIGHT["line"],
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["quiet"],
    "ytick.color": LIGHT["quiet"],
}


_strict = ExitStack()


def reset(_settings: Any, _example: Any, when: str) -> None:
    """Called before and after each example; a warning in one is an error of the build."""
    _strict.close()
    if when == "before":
        mpl.rcParams.update(STYLE)
        _strict.enter_context(warnings.catch_warnings(action="error"))
