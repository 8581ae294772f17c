"""A policy as one Python file that needs only the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from importlib.metadata import version
from typing import Any

from bylaw._base.typing import Value
from bylaw.data.columns import Columns
from bylaw.errors import OptionError
from bylaw.export.formulas import Cell, Equals, Product, make_terms, statements
from bylaw.export.layout import column_of, default_columns
from bylaw.policy.policy import Policy

_LINE = f"# {'-' * 100}\n"  # in python_runtime.py, above what is copied
_IMPORTS = """
from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

"""


def to_python(policy: Policy, columns: Columns | None = None) -> str:
    """The source of a module with `ACTIONS`, `probabilities(row)` and `decide(row, id)`.

    A row is a dict from columns to values. By default a probability is under the label, a known
    attribute or an earlier model's label under its name, and an unknown attribute's probability
    under "name=value"; `COLUMNS` in the file lists them all. Decisions are those of
    `policy.decide(evidence, ids=...)`. A row that the policy would refuse raises `ValueError`.
    """
    roles = columns or default_columns(policy.feature_map)
    terms = make_terms(policy, roles)
    names = {cell: column_of(roles, *cell) for cell in terms.cells}
    if columns is None and len(set(names.values())) < len(names):
        raise OptionError(
            f"several things would be under one name in a row: {_repeated(names.values())}; pass columns="
        )

    def product(factors: Product) -> list[Any]:
        return [
            (names[f.cell], f.value) if isinstance(f, Equals) else [names[c] for c in f.cells]
            for f in factors
        ]

    def weights(k: int) -> dict[Value, float]:
        return {a: w for a, w in zip(policy.actions, terms.scale[k].tolist(), strict=True) if w}

    tables = [
        f"DIGEST = {policy.digest!r}",
        f"ACTIONS = {policy.actions!r}",
        f"SETS = {not policy.action_space.exclusive}  # decisions are sets of labels",
        _table("COLUMNS", "what a row must have", list(dict.fromkeys(names.values()))),
        _mapping("KNOWN", "columns of values, and the values that the policy knows", terms.known, names),
        f"SPELLED = {_spelled(terms.known, names)!r}  # columns of numbers that may be text",
        _table(
            "DISTRIBUTIONS",
            "columns that together are probabilities and sum to one",
            [[names[cell] for cell in cells] for cells in terms.distributions],
        ),
        _table("NUMBERS", "columns of other numbers", [names[cell] for cell in terms.numbers]),
        _table(
            "FEATURES",
            "products of (column, value), one if they agree, and of [sums of columns]; weight by action",
            [(product(terms.features[k]), weights(k)) for k in terms.weighted],
            [terms.names[k] for k in terms.weighted],
        ),
    ]
    return f"{_header(policy)}\n{_IMPORTS}{chr(10).join(tables)}\n{_body()}"


def _header(policy: Policy) -> str:
    lines = [f"Written by bylaw {version('bylaw')}.", *statements(policy)]
    return "\n".join(
        ['"""A policy: how to decide on a row, with the standard library alone."""', *map(_comment, lines)]
    )


def _body() -> str:
    source = resources.files("bylaw.export").joinpath("python_runtime.py").read_text(encoding="utf-8")
    return source.partition(_LINE)[2]


def _comment(text: str) -> str:
    return f"# {' '.join(text.replace(chr(0), ' ').split())}"


def _table(name: str, meaning: str, rows: Iterable[Any], comments: Iterable[str] = ()) -> str:
    notes = [f"  {_comment(text)}" for text in comments]
    lines = [f"    {row!r},{notes[i] if notes else ''}" for i, row in enumerate(rows)]
    return "\n".join([f"{name} = [  # {meaning}", *lines, "]"])


def _spelled(known: Any, names: dict[Cell, str]) -> dict[str, dict[str, Value]]:
    """Of earlier models, as in Evidence: a column that says "reject" has numbers as text."""
    return {
        names[cell]: {str(value): value for value in values if isinstance(value, int)}
        for cell, values in known.items()
        if cell.part == "references" and any(isinstance(value, int) for value in values)
    }


def _mapping(name: str, meaning: str, known: Any, names: dict[Cell, str]) -> str:
    both: dict[str, tuple[Value, ...]] = {}  # of one column in two roles, the values that serve in both
    for cell, values in known.items():
        both[names[cell]] = tuple(v for v in values if v in both.get(names[cell], values))
    lines = [f"    {column!r}: {values!r}," for column, values in both.items()]
    return "\n".join([f"{name} = {{  # {meaning}", *lines, "}"])


def _repeated(names: Iterable[str]) -> list[str]:
    seen = list(names)
    return sorted({name for name in seen if seen.count(name) > 1})
