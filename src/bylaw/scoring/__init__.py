"""Scores and decisions as an expression over the columns of a row, and its SQL."""

from bylaw.scoring._dialects import DIALECTS, Dialect, DialectName, get_dialect
from bylaw.scoring._program import Cell, Features, compute_probabilities, describe_policy, normalize
from bylaw.scoring._sql import SqlPrinter
from bylaw.scoring._statement import name_results, to_sql
from bylaw.scoring._text import TextPrinter, write_comment
from bylaw.scoring._vectors import Vector

__all__ = [
    "DIALECTS",
    "Cell",
    "Dialect",
    "DialectName",
    "Features",
    "SqlPrinter",
    "TextPrinter",
    "Vector",
    "compute_probabilities",
    "describe_policy",
    "get_dialect",
    "name_results",
    "normalize",
    "to_sql",
    "write_comment",
]
