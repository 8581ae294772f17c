"""Pieces of SQL statements: steps, long sums, expressions on several lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_PER_SUM = 100  # terms; databases limit how deep an expression may be nested
_PER_LINE = 4


class SelectStep(NamedTuple):
    """SELECT columns FROM the step before."""

    name: str
    columns: list[str]


def write_sum(terms: Sequence[str]) -> str:
    """The sum, in brackets where it is long, a few terms per line."""
    if len(terms) > _PER_SUM:
        parts = [terms[i : i + _PER_SUM] for i in range(0, len(terms), _PER_SUM)]
        return write_sum([f"({write_sum(part)})" for part in parts])
    lines = [" + ".join(terms[i : i + _PER_LINE]) for i in range(0, len(terms), _PER_LINE)]
    return join_lines(lines[0], *(f"+ {line}" for line in lines[1:])) if lines else ""


def join_lines(*lines: str, indent: str = "  ") -> str:
    """One expression on several lines. Nothing else breaks lines: names and texts may hold such breaks."""
    return f"\n    {indent}".join(lines)
