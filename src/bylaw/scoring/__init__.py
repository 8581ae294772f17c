"""Probabilities and decisions of a policy as expressions over the columns of a table, and as SQL."""

from bylaw.scoring._columns import (
    NORMALIZED,
    ReferenceForm,
    default_columns,
    get_column,
    is_complement,
)
from bylaw.scoring._printers import (
    DIALECTS,
    Dialect,
    DialectName,
    SqlPrinter,
    TextPrinter,
    get_dialect,
    write_comment,
)
from bylaw.scoring._program import (
    UNDERFLOW,
    Cell,
    Features,
    compute_probabilities,
    describe_policy,
    normalize,
)
from bylaw.scoring._statement import name_results, to_sql
from bylaw.scoring._vectors import Vector, apply, case, columns_of, constant, join, linear, read

__all__ = [
    "DIALECTS",
    "NORMALIZED",
    "UNDERFLOW",
    "Cell",
    "Dialect",
    "DialectName",
    "Features",
    "ReferenceForm",
    "SqlPrinter",
    "TextPrinter",
    "Vector",
    "apply",
    "case",
    "columns_of",
    "compute_probabilities",
    "constant",
    "default_columns",
    "describe_policy",
    "get_column",
    "get_dialect",
    "is_complement",
    "join",
    "linear",
    "name_results",
    "normalize",
    "read",
    "to_sql",
    "write_comment",
]
