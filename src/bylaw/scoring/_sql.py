"""A printer of vectors as SQL: SELECT lists, each over the rows of the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from bylaw.program.layout import get_column, is_complement
from bylaw.rows.evidence import REJECTED
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
    features : Features, optional
        cells to read from a table, and "weight" if its columns have weights.
    sources : dict, optional
        the expressions of other columns, by their keys.
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
        "sqrt": "SQRT({})",
        "greatest": "GREATEST({})",
        "least": "LEAST({})",
        "all": "{}",
    }
    joiners: ClassVar[Mapping[str, str]] = {"greatest": ", ", "least": ", ", "all": "\n      AND "}

    def __init__(
        self, dialect: Dialect, features: Features | None = None, sources: Mapping[Any, str] | None = None
    ) -> None:
        super().__init__()
        self.dialect, self.sources = dialect, dict(sources or {})
        self.texts = set() if features is None else features.texts
        if features is not None:
            self.sources |= {cell: self._read_cell(features, cell) for cell in features.cells}
            if features.columns.weights is not None:
                self.sources["weight"] = self._read_number(features.columns.weights)

    def _read_cell(self, features: Features, cell: Cell) -> str:
        name = get_column(features.columns, *cell)
        if cell in features.known:
            column = self.dialect.quote_name(name)
            return self.dialect.cast(column, self.dialect.text) if cell in features.texts else column
        complement = is_complement(features.columns, cell.part, cell.place)
        return (
            f"{self.write_constant(1.0)} - {self._read_number(name)}"
            if complement
            else self._read_number(name)
        )

    def _read_number(self, name: str) -> str:
        return self.dialect.cast(self.dialect.quote_name(name), self.dialect.double)

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

    def nest(self, results: Iterable[Vector], source: str) -> tuple[list[str], str]:
        """Return the expressions of results, and the subselect that these are over."""
        texts, layers = self.lay_out(list(results))
        for layer in layers:
            source = f"({_write_select(layer.columns, source, '', self.dialect.fence)}) AS {layer.name}"
        return texts, source

    def sum_up(self, text: str) -> str:
        """Write the sum of an expression over rows."""
        return "COUNT(*)" if text == self.write_constant(1.0) else f"SUM({text})"


def _write_select(columns: Sequence[str], source: str, indent: str = "", fence: str = "") -> str:
    inner = f",\n{indent}  ".join(columns)
    end = f"\n{indent}{fence}" if fence else ""
    return f"{indent}SELECT\n{indent}  {inner}\n{indent}FROM {source}{end}"
