"""The colors of pages in light and dark themes, and of notebook cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Tone = Literal["good", "bad", "open"]

# Accents of notebook cards: each has a contrast of at least 3 to 1 with white and with black.
ACCENT = "#3b82f6"
TONE_COLORS: Mapping[Tone, str] = {"good": "#2a9d5c", "bad": "#e0483e", "open": "#c07a00"}
FAINT = "rgba(128,128,128,.35)"

# The colors of pages, in light and in dark themes.
_PAGE_COLORS = {
    "paper": ("#ffffff", "#14171b"),
    "panel": ("#f6f7f9", "#1d2127"),
    "line": ("#d9dde3", "#3a414b"),
    "ink": ("#1b1f24", "#e8eaed"),
    "quiet": ("#545d69", "#a9b1bc"),
    "accent": ("#1f4f8f", "#8db8f2"),
    "before": ("#6b7482", "#97a0ac"),
    "allowed": ("#dfeaf7", "#24364d"),
    "good": ("#17663a", "#7fd49b"),
    "good-panel": ("#e6f4ea", "#15301f"),
    "bad": ("#a3211b", "#f5a39d"),
    "bad-panel": ("#fdecea", "#3a1b19"),
    "open": ("#7a4d00", "#eac26a"),
    "open-panel": ("#fdf3dc", "#33290f"),
}
LIGHT, DARK = ({name: pair[i] for name, pair in _PAGE_COLORS.items()} for i in (0, 1))


def write_color_variables() -> str:
    """Return CSS variables for light and dark themes; printed pages always use the light theme."""
    day, night = ("".join(f"--{name}:{color};" for name, color in theme.items()) for theme in (LIGHT, DARK))
    return (
        f":root{{color-scheme:light;{day}}}"
        f"@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{night}}}}}"
        f":root[data-theme=light]{{color-scheme:light;{day}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{night}}}"
        f"@media print{{:root,:root[data-theme]{{color-scheme:light;{day}}}}}"
    )
