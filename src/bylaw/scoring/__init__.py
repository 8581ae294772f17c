"""Scores and decisions as an expression over the columns of a row, and its SQL."""

from bylaw.scoring._dialects import DIALECTS, Dialect, DialectName, get_dialect
from bylaw.scoring._program import (
    UNDERFLOW,
    Cell,
    Features,
    compute_probabilities,
    describe_policy,
    normalize,
)
from bylaw.scoring._sql import SqlPrinter
from bylaw.scoring._statement import name_results, to_sql
from bylaw.scoring._text import TextPrinter, write_comment
from bylaw.scoring._vectors import Vector, apply, case, columns_of, constant, join, linear, read

__all__ = [
    "DIALECTS",
    "UNDERFLOW",
    "Cell",
    "Dialect",
    "DialectName",
    "Features",
    "SqlPrinter",
    "TextPrinter",
    "Vector",
    "apply",
    "case",
    "columns_of",
    "compute_probabilities",
    "constant",
    "describe_policy",
    "get_dialect",
    "join",
    "linear",
    "name_results",
    "normalize",
    "read",
    "to_sql",
    "write_comment",
]
