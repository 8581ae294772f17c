"""The vocabulary of rates. Each word is a public function and, below it, its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bylaw._base.typing import Value
from bylaw._base.validation import as_scalar, check_number
from bylaw.errors import RuleError
from bylaw.language.expressions import (
    DEFINITIONS,
    KIND_IN_WORDS,
    REJECT,
    Atom,
    Definition,
    Kind,
    Meaning,
    Rate,
    Source,
    Term,
)


def _means(
    name: str,
    *,
    kinds: tuple[Kind, ...],
    instead: str = "",
    implies: Kind | Callable[..., Kind | None] | None = None,
    probability: bool = True,
) -> Callable[[Callable[..., Meaning]], Callable[..., Meaning]]:
    def register(meaning: Callable[..., Meaning]) -> Callable[..., Meaning]:
        def implied(*arguments: Any) -> Kind | None:
            return implies(*arguments) if callable(implies) else implies

        DEFINITIONS[name] = Definition(meaning, kinds, implied, instead, probability)
        return meaning

    return register


def _rate(name: str, *arguments: Any, function: Callable[..., Any] | None = None) -> Rate:
    return Rate(((Atom(name, arguments, function=function), 1.0),))


def error() -> Rate:
    """P(decision != Y and not rejected)."""
    return _rate("error")


@_means("error", kinds=("labels", "reject"), instead="use miscoverage(), the chance that the set misses Y")
def _error(*, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([t for a in classes for t in (Term(a, 1.0), Term(a, -1.0, label=a))])


def rejected() -> Rate:
    """P(decision is a rejection)."""
    return _rate("rejected")


@_means(
    "rejected",
    kinds=("reject",),
    implies="reject",
    instead="use Problem(decisions='reject'), or size() for sets",
)
def _rejected(*, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([Term(REJECT, 1.0)])


def accepted() -> Rate:
    """P(decision is a label)."""
    return _rate("accepted")


@_means(
    "accepted",
    kinds=("reject",),
    implies="reject",
    instead="use Problem(decisions='reject'), or size() for sets",
)
def _accepted(*, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([Term(a, 1.0) for a in classes])


def selected(label: Value) -> Rate:
    """P(decision == label); for sets, P(label in the set)."""
    return _rate("selected", as_scalar(label, "the label of selected()"))


@_means("selected", kinds=("labels", "reject", "sets"))
def _selected(label: Value, *, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    if label not in classes:
        raise RuleError(
            f"selected({label!r}): there is no such class; the classes are {list(classes)}. "
            "For rejections use rejected()"
        )
    return Meaning([Term(label, 1.0)])


def cost(matrix: Sequence[Sequence[float]]) -> Rate:
    """E[matrix[Y, decision]]: one row per true class, one column per action.

    A matrix without a column for "reject" makes rejections free; for sets, each label in the
    set pays its own entry.
    """
    if hasattr(matrix, "to_numpy"):  # a frame iterates over its columns' names
        matrix = matrix.to_numpy()  # type: ignore[attr-defined]
    rows = tuple(
        tuple(check_number(entry, "an entry of cost()", RuleError) for entry in row) for row in matrix
    )
    if len({len(row) for row in rows}) != 1 or len(rows[0]) not in (len(rows), len(rows) + 1):
        raise RuleError(
            "cost() needs a matrix with one row per class and one column per class, "
            "plus one for 'reject' if you like"
        )
    return _rate("cost", rows)


@_means(
    "cost",
    kinds=("labels", "reject", "sets"),
    implies=lambda matrix: "reject" if len(matrix[0]) > len(matrix) else None,
    probability=False,
)
def _cost(matrix: tuple[tuple[float, ...], ...], *, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    if len(matrix) != len(classes):
        raise RuleError(f"cost() has {len(matrix)} rows but there are {len(classes)} classes")
    actions = (*classes, REJECT)
    if len(matrix[0]) == len(actions) and kind != "reject":
        raise RuleError(
            f"cost() has a column for 'reject', but a decision is {KIND_IN_WORDS[kind]}: "
            "drop the last column, or use Problem(decisions='reject')"
        )
    return Meaning(
        [
            Term(action, entry, label=label)
            for label, row in zip(classes, matrix, strict=True)
            for action, entry in zip(actions, row, strict=False)
            if entry
        ]
    )


def disagreement(reference: str) -> Rate:
    """P(decision != the reference model's); a rejection disagrees."""
    return _rate("disagreement", _column_name(reference, "disagreement"))


def omits(reference: str) -> Rate:
    """P(the reference model's label is not in the set)."""
    return _rate("omits", _column_name(reference, "omits"))


@_means(
    "disagreement",
    kinds=("labels", "reject"),
    instead="use omits(reference), the chance that the set leaves out the reference's label",
)
@_means("omits", kinds=("sets",), implies="sets", instead="use disagreement(reference)")
def _disagreement(reference: str, *, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([Term(a, -1.0, source=Source("reference", reference, a)) for a in classes], 1.0)


def miscoverage() -> Rate:
    """P(Y not in the set)."""
    return _rate("miscoverage")


@_means("miscoverage", kinds=("sets",), implies="sets", instead="use error(), or Problem(decisions='sets')")
def _miscoverage(*, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([Term(a, -1.0, label=a) for a in classes], 1.0)


def size() -> Rate:
    """E[number of labels in the set]."""
    return _rate("size")


@_means(
    "size",
    kinds=("sets",),
    implies="sets",
    probability=False,
    instead="use accepted() or rejected() to say how often it answers, or Problem(decisions='sets')",
)
def _size(*, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    return Meaning([Term(a, 1.0) for a in classes])


def custom(column: str | Callable[..., Any], name: str | None = None) -> Rate:
    """E[c(x, decision)] for any c: an (n, actions) array named in `Evidence(costs=...)`, or a
    function of the evidence that returns one.

    A function goes by its own name, or `name`. It is not written to files: a policy that was
    loaded, or a rule that was parsed, reads the array `costs[name]` instead.
    """
    if isinstance(column, str):
        if name is not None:
            raise RuleError("custom('column') takes no name=; that is for functions")
        return _rate("custom", _column_name(column, "custom"))
    if not callable(column):
        raise RuleError(f"custom() takes the name of a cost or a function, not {column!r}")
    name = name or getattr(column, "__name__", None)
    if name is None or name == "<lambda>":
        raise RuleError("custom(function) needs a name for reports and files: custom(f, name='visit')")
    return _rate("custom", _column_name(name, "custom"), function=column)


@_means("custom", kinds=("labels", "reject", "sets"), probability=False)
def _custom(name: str, *, classes: tuple[Value, ...], kind: Kind) -> Meaning:
    actions = (*classes, REJECT) if kind == "reject" else classes
    return Meaning([Term(a, 1.0, source=Source("cost", name, i)) for i, a in enumerate(actions)])


def _column_name(name: Any, word: str) -> str:
    if not isinstance(name, str) or not name:
        raise RuleError(f"{word}() takes the name of a column as a string, not {name!r}")
    return name
