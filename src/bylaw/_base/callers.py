"""Who called the library, so that a warning points to the caller's own line."""

from __future__ import annotations

import sys
from pathlib import Path

_LIBRARY = str(Path(__file__).parents[1])


def find_stack_level() -> int:
    """What `warnings.warn` takes as its `stacklevel`: how far up the first caller outside the library is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame, level = frame.f_back, level + 1
    return level
