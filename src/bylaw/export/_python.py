"""Export of a policy as one Python file that needs only the standard library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.metadata import version
from typing import Any, ClassVar

from bylaw._base import Value
from bylaw.errors import OptionError
from bylaw.policy import Policy
from bylaw.rows import Columns
from bylaw.scoring import (
    Cell,
    Features,
    TextPrinter,
    Vector,
    compute_probabilities,
    default_columns,
    describe_policy,
    get_column,
    is_complement,
    write_comment,
)

_LINE = f"# {'-' * 100}\n"  # the line in _python_runtime.py above the part that is copied
_IMPORTS = """
from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

"""


def to_python(policy: Policy, columns: Columns | None = None) -> str:
    """Return the source of a Python module that computes the decisions of a policy.

    The module needs only the standard library. It has `ACTIONS`, `probabilities(row)` and
    `decide(row, row_id)`, where a row is a dict {column: value}. Its decisions equal those of
    `policy.decide(evidence, ids=...)`. A row with a missing or unknown value raises a `ValueError`.

    Parameters
    ----------
    policy : Policy
        The policy; its rules must not contain Python functions.
    columns : Columns, optional
        The keys of a row. By default, the key of a probability is its label, the key of a known attribute or
        of an earlier model's label is its name, and the key of an unknown attribute's probability is
        "name=value"; `COLUMNS` in the module lists them all.

    Returns
    -------
    str
        The source, for Python 3.10 or later.

    Raises
    ------
    OptionError
        If a column that the policy reads is missing, or two columns would have the same name.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.export import to_python
    >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], classes=["no", "yes"])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    >>> module = {}
    >>> exec(to_python(policy), module)
    >>> module["ACTIONS"]
    ('no', 'yes', 'reject')
    >>> module["decide"]({"no": 0.9, "yes": 0.1}, "row 17")
    'no'
    """
    roles = columns or default_columns(policy.feature_map)
    features = Features(policy.feature_map, roles, policy.calibration)
    # The key of each cell in a row; a cell that is one minus a column has the key "1 - column".
    names = {cell: get_column(roles, *cell) for cell in features.cells}
    complements = {}
    for cell in features.cells:
        if is_complement(roles, cell.part, cell.place):
            names[cell], column = f"1 - {names[cell]}", names[cell]
            complements[names[cell]] = column
    if columns is None and len(set(names.values())) < len(names):
        twice = sorted(name for name, count in Counter(names.values()).items() if count > 1)
        raise OptionError(
            f"the default names of columns must differ, got several columns {twice}: pass columns="
        )
    header = [f"Written by bylaw {version('bylaw')}.", *describe_policy(policy)]
    printer = PythonPrinter({cell: f"cells[{name!r}]" for cell, name in names.items()})
    texts, steps = printer.write_steps([compute_probabilities(policy, features)])
    lines = ["def _compute(cells: dict[str, Any]) -> list[Any]:"]
    for (step, i), text in steps.items():
        lines += [f"    {write_comment(note, '#')}" for note in step.detail[1][i : i + 1]]
        lines.append(f"    {printer.name_entry(step, i)} = {f'({text})' if chr(10) in text else text}")
    runtime = resources.files("bylaw.export").joinpath("_python_runtime.py").read_text(encoding="utf-8")
    parts = [
        '"""A policy: how to decide on a row, with only the standard library."""',
        *(write_comment(line, "#") for line in header),
        _IMPORTS.rstrip("\n") + "\n",
        *_write_tables(policy, features, names, complements),
        "",
        "",
        *lines,
        f"    return [{', '.join(texts)}]",
        "",
        "",
        runtime.partition(_LINE)[2].lstrip("\n"),
    ]
    return "\n".join(parts)


class PythonPrinter(TextPrinter):
    """A printer that writes vectors as Python expressions."""

    templates: ClassVar[dict[str, str]] = TextPrinter.templates | {
        "between": "{1} <= {0} <= {2}",
        "and": "{} and {}",
        "max": "max({}, {})",
        "abs": "abs({})",
        "exp": "math.exp({})",
        "log": "math.log({})",
        "greatest": "max({})",
    }
    joiners: ClassVar[Mapping[str, str]] = {"greatest": ", ", "all": " and "}

    def write_constant(self, value: Any) -> str:
        return repr(value)

    def write_case(self, conditions: list[str], values: list[str]) -> str:
        rest = values[-1] if len(values) > len(conditions) else "None"
        choices = [f"{value} if {c} else " for c, value in zip(conditions, values, strict=False)]
        return f"{''.join(choices)}{rest}"

    def write_membership(self, vector: Vector, i: int) -> str:
        found, values = self.write(vector.arguments[0], i), vector.detail
        return f"{found} == {values[0]!r}" if len(values) == 1 else f"{found} in {values!r}"


def _write_tables(
    policy: Policy, features: Features, names: dict[Cell, str], complements: dict[str, str]
) -> list[str]:
    """Return the constants of the module: its columns and the values that they may have."""
    read = dict.fromkeys(complements.get(name, name) for name in names.values())
    known: dict[str, tuple[Value, ...]] = {}  # of a column in two roles, the values that both have
    for cell, values in features.known.items():
        known[names[cell]] = tuple(v for v in values if v in known.get(names[cell], values))
    text_values = {  # as in Evidence: a column that has "reject" has numbers as text
        names[cell]: {str(value): value for value in features.known[cell] if isinstance(value, int)}
        for cell in features.known
        if cell.part == "references" and any(isinstance(value, int) for value in features.known[cell])
    }
    lines = [f"    {column!r}: {values!r}," for column, values in known.items()]
    distributions = [[names[cell] for cell in cells] for cells in features.distributions]
    return [
        f"DIGEST = {policy.digest!r}",
        f"ACTIONS = {policy.actions!r}",
        f"SETS = {not policy.action_space.exclusive}  # decisions are sets of labels",
        _write_table("COLUMNS", "the columns that a row must have", read),
        f"COMPLEMENTS = {complements!r}  # probabilities that are one minus a column",
        "\n".join(
            ["KNOWN = {  # columns of values, and the values that the policy was fitted on", *lines, "}"]
        ),
        f"TEXT_VALUES = {text_values!r}  # numbers that a column may hold as text",
        _write_table("DISTRIBUTIONS", "columns of probabilities that sum to one", distributions),
        _write_table("NUMBERS", "columns of other numbers", [names[cell] for cell in features.numbers]),
    ]


def _write_table(name: str, meaning: str, rows: Iterable[Any]) -> str:
    return "\n".join([f"{name} = [  # {meaning}", *(f"    {row!r}," for row in rows), "]"])
