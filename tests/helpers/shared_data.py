"""Real data sets, which stand beside the project and are no part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(name: str) -> Path:
    """The path of a data set. Tests skip where it is absent, but continuous integration must have all."""
    path = DATA / name
    if not path.exists():
        absent = f"needs the data set {name} in {DATA}"
        pytest.fail(absent) if "CI" in os.environ else pytest.skip(absent)
    return path
