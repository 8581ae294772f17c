"""A printer of vectors as SQL: SELECT lists, each over the rows of the one before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from bylaw.data.evidence import REJECTED
from bylaw.formulation.layout import get_column, is_complement
from bylaw.scoring._dialects import Dialect
from bylaw.scoring._program import Cell, Features
from bylaw.scoring._text import TextPrinter, join_lines, write_comment
from bylaw.scoring._vectors import Vector


class Layer(NamedTuple):
    """A SELECT of steps, over the rows of the layer before."""

    name: str
    columns: list[str]


class SqlPrinter(TextPrinter):
    """Writes vectors in the SQL of a database.

    Parameters
    ----------
    dialect : Dialect
    sources : dict
        the expression of each column that is read, by its key.
    texts : set, default=()
        keys of columns that hold values as text.
    """

    templates: ClassVar[Mapping[str, str]] = {
        "+": "{} + {}",
        "-": "{} - {}",
        "*": "{} * {}",
        "/": "{} / {}",
        "<": "{} < {}",
        "<=": "{} <= {}",
        "=": "{} = {}",
        "between": "{} BETWEEN {} AND {}",
        "and": "{} AND {}",
        "max": "GREATEST({}, {})",
        "min": "LEAST({}, {})",
        "abs": "ABS({})",
        "exp": "EXP({})",
        "log": "LN({})",
        "greatest": "GREATEST({})",
        "least": "LEAST({})",
        "all": "{}",
    }
    joiners: ClassVar[Mapping[str, str]] = {"greatest": ", ", "least": ", ", "all": "\n      AND "}

    def __init__(self, dialect: Dialect, sources: Mapping[Any, str], texts: Collection[Any] = ()) -> None:
        self.dialect, self.sources, self.texts = dialect, sources, texts
        super().__init__()

    def write_constant(self, value: Any) -> str:
        return self.dialect.write_literal(value)

    def write_column(self, key: Any) -> str:
        return self.sources[key]

    def write_case(self, conditions: list[str], values: list[str]) -> str:
        cases = [f"WHEN {c} THEN {value}" for c, value in zip(conditions, values, strict=False)]
        lines = [*cases, " ".join([*(f"ELSE {value}" for value in values[len(cases) :]), "END"])]
        return f"CASE {' '.join(lines)}" if len(cases) == 1 else join_lines("CASE", *lines)

    def write_membership(self, vector: Vector, i: int) -> str:
        source, place = vector.arguments[0].find_entry(i)
        key = source.arguments[0].detail[place] if source.arguments else source.detail[place]
        values = vector.detail
        if key in self.texts:
            whole = [f"{value}.0" for value in values if type(value) is int]  # as in a column of floats
            values = [*map(str, values), *whole]
        elif not all(isinstance(value, str) for value in values):
            values = [value for value in values if value != REJECTED]  # which these columns cannot hold
        texts = ", ".join(map(self.dialect.write_literal, values))
        return f"{self.write(vector.arguments[0], i)} IN ({texts})"

    def lay_out(self, results: Sequence[Vector]) -> tuple[list[str], list[Layer]]:
        """Return the expressions of all entries of the results, and the layers that define the steps that
        these refer to: each column is computed once, as early as it can be, and kept as long as it is
        used."""
        texts, written = self.write_steps(results)
        depths: dict[Vector | None, int] = {step: 0 for step, _ in self._users if not step.arguments}
        for step in dict.fromkeys(step for step, _ in written):
            inner = [depths[other] for (other, _), users in self._users.items() if step in users]
            depths[step] = max(inner, default=0) + 1
        depths[None] = max(depths.values(), default=0) + 1
        ends = {entry: max(depths[user] for user in users) for entry, users in self._users.items()}
        entries = [*(entry for entry in self._users if entry not in written), *written]
        layers = []
        for depth in range(1, depths[None]):
            kept = [self.name_entry(*e) for e in entries if depths[e[0]] < depth < ends[e]]
            new = [entry for entry in entries if depths[entry[0]] == depth]
            columns = [self._define(*entry, written[entry]) for entry in new]
            layers.append(Layer(f"bylaw_{self._names[new[0][0]]}", [*kept, *columns]))
        return texts, layers

    def _define(self, step: Vector, i: int, text: str) -> str:
        """Write the definition of an entry, under a comment if it has a note."""
        notes = step.detail[1]
        line = f"{text} AS {self.name_entry(step, i)}"
        return join_lines(write_comment(notes[i]), line, indent="") if notes else line

    def write_statement(self, results: Sequence[Vector], names: Sequence[str], source: str) -> str:
        """Return a statement of results with these names, WITH a part for each layer, to be read."""
        texts, layers = self.lay_out(results)
        parts = []
        for layer in layers:
            parts.append(
                f"{layer.name} AS (\n{_write_select(layer.columns, source, '  ', self.dialect.fence)}\n)"
            )
            source = layer.name
        columns = [
            f"{text} AS {self.dialect.quote_name(name)}" for text, name in zip(texts, names, strict=True)
        ]
        return f"WITH {', '.join(parts)}\n{_write_select(columns, source)}"


def _write_select(columns: Sequence[str], source: str, indent: str = "", fence: str = "") -> str:
    inner = f",\n{indent}  ".join(columns)
    end = f"\n{indent}{fence}" if fence else ""
    return f"{indent}SELECT\n{indent}  {inner}\n{indent}FROM {source}{end}"


def read_cell(features: Features, cell: Cell, dialect: Dialect) -> str:
    """Write a column of the table: numbers as 64-bit floats, and values as text if they are compared so."""
    column = dialect.quote_name(get_column(features.columns, *cell))
    if cell in features.texts:
        return dialect.cast(column, dialect.text)
    if cell in features.known:
        return column
    number = dialect.cast(column, dialect.double)
    if is_complement(features.columns, cell.part, cell.place):
        return f"{dialect.write_float(1.0)} - {number}"
    return number
