"""Expressions over the columns of a row, which printers translate to SQL, Python and ONNX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from bylaw._base import Floats


@dataclass(frozen=True, eq=False)
class Vector:
    """An expression with `width` entries on each row, which are numbers, truth values or text.

    Operators compute entry by entry; an operand with one entry is combined with each entry of the other.

    Attributes
    ----------
    operator : str
        "read" (columns of the table, whose keys are in `detail`), "constant" (the values in `detail`), "step"
        (a named intermediate result, see `named`), "take" (the entries whose indices are in `detail`), "join"
        (the entries of all arguments), "linear" (see `linear`), "case" (see `case`), "in" (true if the
        argument is one of the values in `detail`), "greatest", "least" or "all" (over the entries), or an
        operation on each entry: "+", "-", "*", "/", "<", "<=", "=", "between", "and", "max", "min", "abs",
        "exp", "log", or a template such as "SHA2({}, 256)".
    arguments : tuple of Vector
        The vectors that the operator is applied to.
    width : int
        The number of entries.
    detail : object
        Further data of the operator, as above.
    """

    operator: str
    arguments: tuple[Vector, ...]
    width: int
    detail: Any = None

    def __add__(self, other: Operand) -> Vector:
        return apply("+", self, other)

    def __sub__(self, other: Operand) -> Vector:
        return apply("-", self, other)

    def __mul__(self, other: Operand) -> Vector:
        return apply("*", self, other)

    def __truediv__(self, other: Operand) -> Vector:
        return apply("/", self, other)

    def __lt__(self, other: Operand) -> Vector:
        return apply("<", self, other)

    def __le__(self, other: Operand) -> Vector:
        return apply("<=", self, other)

    def __gt__(self, other: Operand) -> Vector:
        return apply("<", other, self)

    def __ge__(self, other: Operand) -> Vector:
        return apply("<=", other, self)

    def __and__(self, other: Operand) -> Vector:
        return apply("and", self, other)

    def is_in(self, values: Iterable[Any]) -> Vector:
        """Return the condition that the entry is one of these values."""
        return Vector("in", (self,), 1, tuple(values))

    def greatest(self) -> Vector:
        """Return an expression for the largest entry."""
        return Vector("greatest", (self,), 1)

    def least(self) -> Vector:
        """Return an expression for the smallest entry."""
        return Vector("least", (self,), 1)

    def all(self) -> Vector:
        """Return the condition that all entries are true."""
        return Vector("all", (self,), 1)

    def sum(self) -> Vector:
        """Return an expression for the sum of the entries."""
        return linear(self, np.ones((self.width, 1)))

    def take(self, places: Iterable[int]) -> Vector:
        """Return a vector of the entries with these indices."""
        chosen = tuple(map(int, places))
        if self.operator == "take":
            return self.arguments[0].take(self.detail[i] for i in chosen)
        return self if chosen == tuple(range(self.width)) else Vector("take", (self,), len(chosen), chosen)

    def named(self, name: str, notes: Sequence[str] = ()) -> Vector:
        """Return the vector as a named step: an intermediate result that printers compute only once.

        `notes` are comments for the entries.
        """
        return Vector("step", (self,), self.width, (name, tuple(notes)))

    def find_entry(self, i: int) -> tuple[Vector, int]:
        """Return the vector that computes entry `i`, and the index of the entry in that vector.

        It follows "take" and "join".
        """
        vector, place = self, i if self.width > 1 else 0
        while vector.operator in ("take", "join"):
            if vector.operator == "take":
                vector, place = vector.arguments[0], vector.detail[place]
                continue
            for part in vector.arguments:
                if place < part.width:
                    vector = part
                    break
                place -= part.width
        return vector, place


Operand: TypeAlias = Vector | float


def read(*keys: Any) -> Vector:
    """Return a vector of columns of the table, given their keys in the `sources` of the printer."""
    return Vector("read", (), len(keys), keys)


def columns_of(name: str, width: int = 1) -> Vector:
    """Return a vector of columns that are named like the entries of a step with this name and width."""
    return Vector("step", (), width, (name, ()))


def constant(values: Any) -> Vector:
    """Return a vector with the same values on each row."""
    entries = tuple(np.atleast_1d(values).tolist())
    return Vector("constant", (), len(entries), entries)


def apply(operator: str, *arguments: Operand) -> Vector:
    """Return a vector that applies an operation to each entry of the arguments."""
    vectors = tuple(x if isinstance(x, Vector) else constant(x) for x in arguments)
    widths = [vector.width for vector in vectors]
    return Vector(operator, vectors, max(widths) if all(widths) else 0)


def join(parts: Iterable[Vector]) -> Vector:
    """Return a vector with the entries of all parts, in their order."""
    vectors = tuple(part for part in parts if part.width)
    if len(vectors) == 1:
        return vectors[0]
    taken = [(part.arguments[0], part.detail) for part in vectors if part.operator == "take"]
    if len(taken) == len(vectors) > 0 and len({source for source, _ in taken}) == 1:
        return taken[0][0].take(place for _, places in taken for place in places)
    return Vector("join", vectors, sum(part.width for part in vectors))


def linear(vector: Vector, weights: Floats, bias: ArrayLike = 0.0) -> Vector:
    """Return the vector bias + weights' vector, with weights (n, m) and bias (m,)."""
    width = weights.shape[1]
    offsets = np.broadcast_to(np.asarray(bias, dtype=np.float64), (width,))
    return Vector("linear", (vector,), width, (weights, offsets)) if vector.width else constant(offsets)


def case(*choices: tuple[Vector, Operand], otherwise: Operand | None) -> Vector:
    """Return an expression for the value of the first true condition, given pairs (condition, value).

    If no condition is true, the value is `otherwise`, or missing if that is None.
    """
    rest = [] if otherwise is None else [otherwise]
    return apply("case", *(part for pair in choices for part in pair), *rest)


def sort_steps(vectors: Iterable[Vector]) -> list[Vector]:
    """Return all steps that these vectors depend on, each after the steps that it refers to."""
    found: list[Vector] = []
    seen: set[Vector] = set()

    def visit(vector: Vector) -> None:
        if vector in seen:
            return
        seen.add(vector)
        for argument in vector.arguments:
            visit(argument)
        if vector.operator == "step":
            found.append(vector)

    for vector in vectors:
        visit(vector)
    return found
