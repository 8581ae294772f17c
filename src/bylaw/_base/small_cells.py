"""Which cells of a table are too small to be shown: counts and rates of a few people would give them away."""

from __future__ import annotations




MIN_CELL = 10  # rows: smaller cells are not shown, unless a caller asks for them
