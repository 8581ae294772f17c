"""Colors of pages in light and dark themes, and of notebook cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Tone = Literal["good", "bad", "open"]

# Accents of notebook cards: each has a contrast of at least 3 to 1 with white and with black.
ACCENT = "#3b82f6"
TONE_COLORS: Mapping[Tone, str] = {"good": "#2a9d5c", "bad": "#e0483e", "open": "#c07a00"}
FAINT = "rgba(128,128,128,.35)"

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "line": "#d9dde3",
    "ink": "#1b1f24",
    "quiet": "#545d69",
    "accent": "#1f4f8f",
    "before": "#6b7482",
    "allowed": "#dfeaf7",
    "good": "#17663a",
    "good-panel": "#e6f4ea",
    "bad": "#a3211b",
    "bad-panel": "#fdecea",
    "open": "#7a4d00",
    "open-panel": "#fdf3dc",
}
DARK: Mapping[str, str] = {
    "paper": "#14171b",
    "panel": "#1d2127",
    "line": "#3a414b",
    "ink": "#e8eaed",
    "quiet": "#a9b1bc",
    "accent": "#8db8f2",
    "before": "#97a0ac",
    "allowed": "#24364d",
    "good": "#7fd49b",
    "good-panel": "#15301f",
    "bad": "#f5a39d",
    "bad-panel": "#3a1b19",
    "open": "#eac26a",
    "open-panel": "#33290f",
}


def write_color_variables() -> str:
    """Return CSS custom properties: by the reader's setting, by the theme button, and light on paper."""
    day, night = ("".join(f"--{name}:{color};" for name, color in theme.items()) for theme in (LIGHT, DARK))
    return (
        f":root{{color-scheme:light;{day}}}"
        f"@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{night}}}}}"
        f":root[data-theme=light]{{color-scheme:light;{day}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{night}}}"
        f"@media print{{:root,:root[data-theme]{{color-scheme:light;{day}}}}}"
    )
