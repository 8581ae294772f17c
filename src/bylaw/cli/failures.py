"""Failures for machines: the error, its kind and the exit code as one JSON object."""

from __future__ import annotations

import math
from typing import Any

from bylaw.cli.console import show_json
from bylaw.errors import InfeasibleRulesError, UncertifiedError


def show_failure(problem: Exception, text: str, code: int) -> None:
    """On standard output, where the result would have been."""
    content = {"error": text, "kind": type(problem).__name__, "exit_code": int(code)}
    show_json({**content, **_list_details(problem)})


def _list_details(problem: Exception) -> dict[str, Any]:
    """Of rules that conflict or cannot be certified."""
    if isinstance(problem, InfeasibleRulesError):
        names = ("conflict", "least", "violations", "relaxation", "small_cells", "least_violation")
        return {name: getattr(problem, name) for name in names}
    if isinstance(problem, UncertifiedError):
        needed = problem.rows_needed if math.isfinite(problem.rows_needed) else None
        names = ("rule", "conflict", "p_value", "rows", "confidence")
        return {**{name: getattr(problem, name) for name in names}, "rows_needed": needed}
    return {}
