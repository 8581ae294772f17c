"""Real data sets, which stand beside the project and are no part of it."""

from __future__ import annotations

from pathlib import Path

from helpers.absent import skip_for_want_of

DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(name: str) -> Path:
    """Return the path of a data set; the test is skipped where it is absent."""
    path = DATA / name
    if not path.exists():
        skip_for_want_of(f"the data set {name}", f"put it into {DATA}")
    return path
