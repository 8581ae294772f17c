"""A printer of vectors as text, entry by entry, in a language with infix operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bylaw._base.visible_text import make_visible
from bylaw.scoring._vectors import Vector, sort_steps

_PER_SUM = 100  # terms; databases and Python limit how deep an expression may be nested
_PER_LINE = 4
# How tightly operators bind; whatever is not listed needs no brackets.
_LEVELS = {
    "case": 0,
    "all": 1,
    "and": 1,
    "in": 2,
    "between": 2,
    "<": 2,
    "<=": 2,
    "=": 2,
    "+": 3,
    "-": 3,
    "*": 4,
    "/": 4,
}
_ATOM = 5


class TextPrinter(ABC):
    """Writes entries of vectors as expressions of a language."""

    templates: ClassVar[Mapping[str, str]]  # of operations, with {} for the entry of each argument
    joiners: ClassVar[Mapping[str, str]]  # of "greatest", "least" and "all", between entries

    def __init__(self) -> None:
        self._names: dict[Vector, str] = {}
        self._users: dict[tuple[Vector, int], set[Vector | None]] = {}  # of each entry of a step
        self._writing: Vector | None = None

    @abstractmethod
    def write_constant(self, value: Any) -> str:
        """Write a value."""

    @abstractmethod
    def write_column(self, key: Any) -> str:
        """Write a column of the table."""

    @abstractmethod
    def write_case(self, conditions: list[str], values: list[str]) -> str:
        """Write the value of the first condition that is true; the last value may have no condition."""

    @abstractmethod
    def write_membership(self, vector: Vector, i: int) -> str:
        """Write whether an entry is one of some values."""

    def write(self, vector: Vector, i: int = 0, level: int = 0) -> str:
        """Write an entry, in brackets if it binds less tightly than `level`."""
        vector, i = vector.find_entry(i)
        operator, arguments = vector.operator, vector.arguments
        own = _LEVELS.get(operator, _ATOM)
        match operator:
            case "constant":
                text = self.write_constant(vector.detail[i])
            case "read":
                text = self.write_column(vector.detail[i])
            case "step":
                self._users.setdefault((vector, i), set()).add(self._writing)
                text = self.name_entry(vector, i)
            case "in":
                text = self.write_membership(vector, i)
            case "linear":
                terms = self._list_terms(vector, i)
                text, own = write_sum(terms), 3 if len(terms) > 1 else 4
            case "case":
                last = len(arguments) // 2 * 2  # behind it, the value where no condition is true
                values = [self.write(value, i, 1) for value in (*arguments[1:last:2], *arguments[last:])]
                if arguments[last:] and len(set(values)) == 1:  # as where groups have the same weights
                    return self.write(arguments[last], i, level)
                conditions = [self.write(condition, i) for condition in arguments[:last:2]]
                text = self.write_case(conditions, values)
            case "greatest" | "least" | "all":
                inner = 2 if operator == "all" else 0
                entries = [self.write(arguments[0], j, inner) for j in range(arguments[0].width)]
                joined = self.joiners[operator].join(entries)
                text = self.templates[operator].format(joined) if len(entries) > 1 else entries[0]
            case "*" if any(ones := [_is_one(argument, i) for argument in arguments]):
                return self.write(arguments[1 - ones.index(True)], i, level)
            case _:
                inner = (own, own + 1) if own < _ATOM else (0, 0)
                entries = [self.write(argument, i, inner[j > 0]) for j, argument in enumerate(arguments)]
                text = self.templates.get(operator, operator).format(*entries)
        return f"({text})" if own < level else text

    def name_entry(self, step: Vector, i: int) -> str:
        """Return the name of an entry of a step."""
        return f"{self._names[step]}_{i}" if step.width > 1 else self._names[step]

    def write_steps(self, results: Sequence[Vector]) -> tuple[list[str], dict[tuple[Vector, int], str]]:
        """Return the expressions of all entries of the results, and of all entries of steps that these lead
        to, each after those that it refers to."""
        steps = sorted(sort_steps(results), key=lambda step: bool(step.arguments))
        for step in steps:
            name, same = step.detail[0], sum(other.detail[0] == step.detail[0] for other in self._names)
            self._names[step] = f"{name}{same + 1}" if same and step.arguments else name
        texts = [self.write(vector, i) for vector in results for i in range(vector.width)]
        written = {}
        for step in reversed(steps):
            self._writing = step
            for i in reversed(range(step.width if step.arguments else 0)):
                if (step, i) in self._users:
                    written[step, i] = self.write(step.arguments[0], i)
        return texts, dict(reversed(written.items()))

    def _list_terms(self, vector: Vector, i: int) -> list[str]:
        """Write the terms of a sum that are not zero."""
        (entries,), (weights, bias) = vector.arguments, vector.detail
        terms = [self.write_constant(float(bias[i]))] if bias[i] else []
        for j in np.flatnonzero(weights[:, i]).tolist():
            weight = float(weights[j, i])
            if _is_one(entries, j):
                terms.append(self.write_constant(weight))
            elif weight == 1:
                terms.append(self.write(entries, j, 3))
            else:
                terms.append(f"{self.write_constant(weight)} * {self.write(entries, j, 5)}")
        return terms or [self.write_constant(0.0)]


def _is_one(vector: Vector, i: int) -> bool:
    """Return whether an entry is the number one on every row."""
    source, place = vector.find_entry(i)
    return source.operator == "constant" and source.detail[place] == 1


def write_sum(terms: Sequence[str]) -> str:
    """Write a sum, in brackets where it is long, a few terms per line."""
    if len(terms) > _PER_SUM:
        parts = [terms[i : i + _PER_SUM] for i in range(0, len(terms), _PER_SUM)]
        return write_sum([f"({write_sum(part)})" for part in parts])
    lines = [" + ".join(terms[i : i + _PER_LINE]) for i in range(0, len(terms), _PER_LINE)]
    return join_lines(lines[0], *(f"+ {line}" for line in lines[1:])) if lines else ""


def write_comment(text: str, mark: str = "--") -> str:
    """Write one line of comment, whatever is in the text."""
    line = make_visible(" ".join(text.replace("\0", " ").split())).replace("${", "$ {")
    return f"{mark} {line}".rstrip(" \\")  # Spark reads on after a backslash


def join_lines(*lines: str, indent: str = "  ") -> str:
    """Join the lines of one expression. Nothing else breaks lines: names and texts may hold such breaks."""
    return f"\n    {indent}".join(lines)
