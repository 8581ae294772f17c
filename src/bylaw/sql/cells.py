"""Cells of a row as SQL expressions: as they are given, what they must satisfy, and products of them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from bylaw._base.typing import Value
from bylaw.data.columns import Columns
from bylaw.data.probabilities import SUM_TOLERANCE
from bylaw.formulation.formulas import HIGHEST, LOWEST, UNDERFLOW, Cell, Equals, Product, Terms
from bylaw.formulation.layout import get_column, is_complement
from bylaw.sql.dialects import Dialect
from bylaw.sql.text import write_sum


class CellWriter:
    """Within a statement cells are named by numbers, so that no name of the table can clash: `given` as they
    are in the table, `clean` with the smallest numbers as zero."""

    def __init__(self, terms: Terms, columns: Columns, answers: Sequence[Value], dialect: Dialect) -> None:
        self.terms = terms
        self.columns = columns
        self.answers = answers  # what an earlier model may say, beside rejections
        self.dialect = dialect
        self.given = {cell: f"given_{i}" for i, cell in enumerate(terms.cells)}
        self.clean = {cell: f"clean_{i}" for i, cell in enumerate(terms.cells)}

    def list_given(self) -> list[str]:
        """The columns of the table, numbers as 64-bit floats."""
        lines = []
        for cell, name in self.given.items():
            column = self.dialect.quote_name(get_column(self.columns, *cell))
            if cell not in self.terms.known:
                column = self.dialect.cast(column, self.dialect.double)
                if is_complement(self.columns, cell.part, cell.place):
                    column = f"{self.dialect.write_float(1.0)} - {column}"
            elif self._is_text(cell):
                column = self.dialect.cast(column, self.dialect.text)
            lines.append(f"{column} AS {name}")
        return lines

    def list_clean(self) -> list[str]:
        """Their values, of which the smallest numbers are zero."""
        lines = []
        zero, underflow, highest = map(self.dialect.write_float, (0.0, UNDERFLOW, HIGHEST))
        for cell, name in self.given.items():
            number = (
                f"ABS({name}) > {underflow}"
                if cell in self.terms.numbers
                else f"{name} BETWEEN {underflow} AND {highest}"
            )
            clean = name if cell in self.terms.known else f"CASE WHEN {number} THEN {name} ELSE {zero} END"
            lines.append(f"{clean} AS {self.clean[cell]}")
        return lines

    def list_conditions(self) -> list[str]:
        """What a row must satisfy."""
        found = []
        for cells in self.terms.distributions:
            found += [*map(self.check_probability, cells), self.check_sum(cells)]
        found += map(self.check_value, self.terms.known)
        return found + list(map(self.check_number, self.terms.numbers))

    def check_probability(self, cell: Cell) -> str:
        number = self.dialect.write_float
        return f"{self.given[cell]} BETWEEN {number(LOWEST)} AND {number(HIGHEST)}"

    def check_sum(self, cells: Sequence[Cell]) -> str:
        """That these probabilities sum to one."""
        number = self.dialect.write_float
        total = write_sum([self.given[cell] for cell in cells])
        return f"ABS({total} - {number(1.0)}) <= {number(SUM_TOLERANCE)}"

    def check_value(self, cell: Cell) -> str:
        """That the value is one of those that are known."""
        return f"{self.given[cell]} IN ({', '.join(itertools.chain(*self._write_values(cell).values()))})"

    def check_number(self, cell: Cell) -> str:
        """That it is finite."""
        return f"ABS({self.given[cell]}) <= {self.dialect.write_float(sys.float_info.max)}"

    def compare_value(self, cell: Cell, value: Value) -> str:
        """The condition that a cell holds a value."""
        return f"{self.clean[cell]} IN ({', '.join(self._write_values(cell)[value])})"

    def write_product(self, product: Product) -> str:
        one, zero = self.dialect.write_float(1.0), self.dialect.write_float(0.0)
        factors = [
            f"CASE WHEN {self.compare_value(f.cell, f.value)} THEN {one} ELSE {zero} END"
            if isinstance(f, Equals)
            else _bracket_sum([self.clean[cell] for cell in f.cells])
            for f in product
        ]
        return " * ".join(factors)

    def _write_values(self, cell: Cell) -> dict[Value, list[str]]:
        """The values that a cell may hold, as they are written."""
        values = self.terms.known[cell]
        if self._is_text(cell):
            return {value: list(map(self.dialect.write_literal, _list_texts(value))) for value in values}
        if cell.part == "references" and not isinstance(values[0], str):
            values = values[:-1]  # a column of floats or of truths cannot hold a rejection
        return {value: [self.dialect.write_literal(value)] for value in values}

    def _is_text(self, cell: Cell) -> bool:
        """Whether a column is compared as text: labels that are whole numbers, of a model that may reject."""
        kinds = {type(label) for label in self.answers}
        return cell.part == "references" and (int in kinds or len(kinds) > 1)


def _list_texts(value: Value) -> list[str]:
    """How databases write a value as text; a whole number also as it is in a column of floats."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return [str(value), f"{value}.0"] if whole else [str(value)]


def _bracket_sum(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({write_sum(terms)})"
