"""A policy as one Python file that needs only the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from importlib.metadata import version
from typing import Any

from bylaw._base.typing import Value
from bylaw._base.visible_text import make_visible
from bylaw.calibration.maps import CalibrationMap
from bylaw.data.columns import Columns
from bylaw.errors import OptionError
from bylaw.formulation.formulas import Cell, Equals, Product, Terms, describe_policy, make_terms
from bylaw.formulation.layout import default_columns, get_column, is_complement
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
    """A policy as the source of a Python module that needs only the standard library.

    The module has `ACTIONS`, `probabilities(row)` and `decide(row, row_id)`, where a row is a dict from
    columns to values. Decisions are those of `policy.decide(evidence, ids=...)`. A row that the policy
    would refuse raises `ValueError`.

    Parameters
    ----------
    policy : Policy
        without Python functions in its rules.
    columns : Columns, optional
        the keys of a row. By default a probability is under the label, a known attribute or an earlier
        model's label under its name, and an unknown attribute's probability under "name=value"; `COLUMNS`
        in the module lists them all.

    Returns
    -------
    str
        the source, for Python 3.10 or later.

    Raises
    ------
    OptionError
        if the columns lack something that the policy reads, or two of them would have the same name.

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
    terms = make_terms(policy, roles)
    names = {cell: get_column(roles, *cell) for cell in terms.cells}
    others = {names[cell]: cell for cell in terms.cells if is_complement(roles, cell.part, cell.place)}
    names |= {cell: f"1 - {column}" for column, cell in others.items()}
    complements = {names[cell]: column for column, cell in others.items()}
    if columns is None and len(set(names.values())) < len(names):
        raise OptionError(
            f"several columns would have the same name: {_find_duplicates(names.values())}; pass columns="
        )
    results = _name_calibrated(terms, names)
    tables = "\n".join(
        [
            *_write_tables(policy, terms, names, complements),
            *_write_calibration(terms, names, results),
            _write_features(policy, terms, {**names, **results}),
        ]
    )
    return f"{_write_header(policy)}\n{_IMPORTS}{tables}\n{_read_runtime()}"


def _write_tables(
    policy: Policy, terms: Terms, names: dict[Cell, str], complements: dict[str, str]
) -> list[str]:
    """What the policy reads of a row, and what a row must satisfy."""
    read = dict.fromkeys(complements.get(name, name) for name in names.values())
    text_values = _list_text_values(terms.known, names)
    distributions = [[names[cell] for cell in cells] for cells in terms.distributions]
    return [
        f"DIGEST = {policy.digest!r}",
        f"ACTIONS = {policy.actions!r}",
        f"SETS = {not policy.action_space.exclusive}  # decisions are sets of labels",
        _write_table("COLUMNS", "what a row must have", list(read)),
        f"COMPLEMENTS = {complements!r}  # what is one less a column",
        _write_mapping("KNOWN", "columns of values, and the values of the fit", terms.known, names),
        f"TEXT_VALUES = {text_values!r}  # of columns of numbers that may be text",
        _write_table("DISTRIBUTIONS", "probabilities that together sum to one", distributions),
        _write_table("NUMBERS", "columns of other numbers", [names[cell] for cell in terms.numbers]),
    ]


def _name_calibrated(terms: Terms, names: dict[Cell, str]) -> dict[Cell, str]:
    """Names of the calibrated probabilities, which no column of a row has."""
    calibrated = [cell for part in terms.calibrated for cell in part.cells]
    calibrated += [cell for part in terms.rescaled for row in part.cells for cell in row]
    found: dict[Cell, str] = {}
    for cell in dict.fromkeys(calibrated):
        name = f"calibrated {names[cell]}"
        while name in {*names.values(), *found.values()}:
            name += "'"
        found[cell] = name
    return found


def _write_calibration(terms: Terms, names: dict[Cell, str], results: dict[Cell, str]) -> list[str]:
    """The maps of a calibrated policy, and the joint probabilities that add up to the labels'."""
    maps = [
        (
            [names[cell] for cell in part.cells],
            [results[cell] for cell in part.cells],
            part.otherwise.floor,
            None if part.by is None else names[part.by],
            {value: _list_numbers(one) for value, one in part.maps},
            _list_numbers(part.otherwise),
        )
        for part in terms.calibrated
    ]
    calibrated = {cell for part in terms.calibrated for cell in part.cells}
    joints = [
        (
            [[(results if cell in calibrated else names)[cell] for cell in row] for row in part.cells],
            [[results[cell] for cell in row] for row in part.cells],
            [(results if cell in calibrated else names)[cell] for cell in part.labels],
        )
        for part in terms.rescaled
    ]
    return [
        _write_table(
            "MAPS", "columns, results, floor, column that chooses, maps by its value, other map", maps
        ),
        _write_table("JOINTS", "columns by value and label, results, columns of the labels", joints),
    ]


def _list_numbers(one: CalibrationMap) -> list[Any]:
    """For each cell its bias, its weights by position, and its (knot, bend) pairs."""
    return [
        (
            float(one.bias[k]),
            {j: w for j, w in enumerate(one.weights[k].tolist()) if w},
            list(zip(one.knots[k].tolist(), one.bends[k].tolist(), strict=True)),
        )
        for k in range(one.n_cells)
    ]


def _write_features(policy: Policy, terms: Terms, names: dict[Cell, str]) -> str:
    """Each feature's factors, and its weight in the score of each action."""

    def write_product(factors: Product) -> list[Any]:
        return [
            (names[f.cell], f.value) if isinstance(f, Equals) else [names[c] for c in f.cells]
            for f in factors
        ]

    def select_weights(k: int) -> dict[Value, float]:
        return {a: w for a, w in zip(policy.actions, terms.scale[k].tolist(), strict=True) if w}

    return _write_table(
        "FEATURES",
        "products of (column, value), one if they agree, and of [sums of columns]; weight by action",
        [(write_product(terms.features[k]), select_weights(k)) for k in terms.weighted],
        [terms.names[k] for k in terms.weighted],
    )


def _write_header(policy: Policy) -> str:
    lines = [f"Written by bylaw {version('bylaw')}.", *describe_policy(policy)]
    return "\n".join(
        [
            '"""A policy: how to decide on a row, with only the standard library."""',
            *map(_write_comment, lines),
        ]
    )


def _read_runtime() -> str:
    source = resources.files("bylaw.export").joinpath("python_runtime.py").read_text(encoding="utf-8")
    return source.partition(_LINE)[2]


def _write_comment(text: str) -> str:
    return f"# {make_visible(' '.join(text.replace(chr(0), ' ').split()))}"


def _write_table(name: str, meaning: str, rows: Iterable[Any], comments: Iterable[str] = ()) -> str:
    notes = [f"  {_write_comment(text)}" for text in comments]
    lines = [f"    {row!r},{notes[i] if notes else ''}" for i, row in enumerate(rows)]
    return "\n".join([f"{name} = [  # {meaning}", *lines, "]"])


def _list_text_values(known: Any, names: dict[Cell, str]) -> dict[str, dict[str, Value]]:
    """Of earlier models, as in Evidence: a column that has "reject" has numbers as text."""
    return {
        names[cell]: {str(value): value for value in values if isinstance(value, int)}
        for cell, values in known.items()
        if cell.part == "references" and any(isinstance(value, int) for value in values)
    }


def _write_mapping(name: str, meaning: str, known: Any, names: dict[Cell, str]) -> str:
    both: dict[str, tuple[Value, ...]] = {}  # of a column in two roles, the values that both have
    for cell, values in known.items():
        both[names[cell]] = tuple(v for v in values if v in both.get(names[cell], values))
    lines = [f"    {column!r}: {values!r}," for column, values in both.items()]
    return "\n".join([f"{name} = {{  # {meaning}", *lines, "}"])


def _find_duplicates(names: Iterable[str]) -> list[str]:
    seen = list(names)
    return sorted({name for name in seen if seen.count(name) > 1})
