"""The steps from the columns of a table to decisions, each a list of SQL expressions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bylaw._base.softmax import NEGLIGIBLE
from bylaw._base.typing import Value
from bylaw.data.columns import Columns
from bylaw.data.probabilities import SUM_TOLERANCE
from bylaw.export.formulas import (
    DUST,
    HIGHEST,
    LOWEST,
    Cell,
    Equals,
    Product,
    Terms,
)
from bylaw.export.layout import column_of
from bylaw.export.sql_dialects import Dialect, comment
from bylaw.policy.policy import Policy
from bylaw.policy.sampling import HEX_DIGITS, PER_DIGEST

_PER_SUM = 100  # terms; databases limit how deep an expression may be nested
_PER_LINE = 4


class Step(NamedTuple):
    """SELECT columns FROM the step before."""

    name: str
    columns: list[str]


class Steps:
    """given -> checked -> features -> scores -> weights -> probabilities -> draws.

    Within the statement columns are named by numbers, so that no name of the table can clash.
    """

    def __init__(
        self, policy: Policy, columns: Columns, terms: Terms, dialect: Dialect, carried: Sequence[str]
    ) -> None:
        self.policy = policy
        self.columns = columns
        self.terms = terms
        self.dialect = dialect
        self.carried = carried  # columns of the table
        self.kept = [f"kept_{i}" for i in range(len(carried))]
        self.actions = range(len(policy.actions))
        self.given = {cell: f"given_{i}" for i, cell in enumerate(terms.cells)}
        self.clean = {cell: f"clean_{i}" for i, cell in enumerate(terms.cells)}

    def probabilities(self) -> list[Step]:
        """The steps to probability_0, probability_1, ..., one for each action."""
        return [self._given(), self._checked(), self._features(), self._scores(), *self._normalize()]

    def draws(self, key: str) -> list[Step]:
        """The steps from the probabilities to uniform numbers by id, the first column that is kept."""
        message = f"{self.dialect.literal(f'{key}/')} || {self.dialect.cast('kept_0', self.dialect.text)}"
        probabilities = self._numbered("probability")
        hashed = [self.dialect.sha256.format(text) for text in self._messages(message)]
        hashes = [f"{text} AS hash_{i}" for i, text in enumerate(hashed)]
        return [
            Step("hashes", [*self.kept, *probabilities, *hashes]),
            Step("draws", [*self.kept, *probabilities, *self._uniforms()]),
        ]

    def decisions(self) -> list[str]:
        """The decision."""
        same = len({type(action) for action in self.policy.actions}) == 1
        literals = [self.dialect.literal(a if same else str(a)) for a in self.policy.actions]
        heights = itertools.accumulate(self._numbered("probability"), "{} + {}".format)
        steps = zip(list(heights)[:-1], literals, strict=False)
        cases = [f"WHEN {height} > threshold THEN {literal}" for height, literal in steps]
        return [_lines("CASE", "WHEN threshold IS NULL THEN NULL", *cases, f"ELSE {literals[-1]}", "END")]

    def decision_names(self) -> list[str]:
        return ["decision"]

    def _messages(self, message: str) -> list[str]:
        """What is hashed."""
        return [message]

    def _uniforms(self) -> list[str]:
        """One uniform number a row, times the sum of the probabilities."""
        return [f"{self._uniform(0)} * ({_added(self._numbered('probability'))}) AS threshold"]

    def _numbered(self, name: str) -> list[str]:
        return [f"{name}_{a}" for a in self.actions]

    def _given(self) -> Step:
        """The columns of the table, numbers as 64-bit floats."""
        quoted = self.dialect.name
        lines = [f"{quoted(column)} AS {name}" for column, name in zip(self.carried, self.kept, strict=True)]
        for cell, name in self.given.items():
            column = quoted(column_of(self.columns, *cell))
            if cell not in self.terms.known:
                column = self.dialect.cast(column, self.dialect.double)
            elif self._as_text(cell):
                column = self.dialect.cast(column, self.dialect.text)
            lines.append(f"{column} AS {name}")
        return Step("given", lines)

    def _values(self, cell: Cell) -> dict[Value, list[str]]:
        """The values that a cell may hold, as they are written."""
        values = self.terms.known[cell]
        if self._as_text(cell):
            return {value: list(map(self.dialect.literal, _texts(value))) for value in values}
        if cell.part == "references" and not isinstance(values[0], str):
            values = values[:-1]  # a column of floats or of truths cannot hold a rejection
        return {value: [self.dialect.literal(value)] for value in values}

    def _as_text(self, cell: Cell) -> bool:
        """Labels of an earlier model that are whole numbers: its column is of text if it rejects."""
        kinds = {type(label) for label in self.policy.action_space.classes}
        return cell.part == "references" and (int in kinds or len(kinds) > 1)

    def _checked(self) -> Step:
        """Whether the row can be decided, and its numbers without dust."""
        conditions = list(self._conditions())
        lines = [*self.kept, _lines(conditions[0], *(f"AND {c}" for c in conditions[1:]), "AS valid")]
        zero, dust, highest = map(self.dialect.float, (0.0, DUST, HIGHEST))
        for cell, name in self.given.items():
            number = (
                f"ABS({name}) > {dust}"
                if cell in self.terms.numbers
                else f"{name} BETWEEN {dust} AND {highest}"
            )
            clean = name if cell in self.terms.known else f"CASE WHEN {number} THEN {name} ELSE {zero} END"
            lines.append(f"{clean} AS {self.clean[cell]}")
        return Step("checked", lines)

    def _conditions(self) -> Iterator[str]:
        number = self.dialect.float
        for cells in self.terms.distributions:
            names = [self.given[cell] for cell in cells]
            for name in names:
                yield f"{name} BETWEEN {number(LOWEST)} AND {number(HIGHEST)}"
            yield f"ABS({_added(names)} - {number(1.0)}) <= {number(SUM_TOLERANCE)}"
        for cell in self.terms.known:
            yield f"{self.given[cell]} IN ({', '.join(itertools.chain(*self._values(cell).values()))})"
        for cell in self.terms.numbers:
            yield f"ABS({self.given[cell]}) <= {number(sys.float_info.max)}"

    def _features(self) -> Step:
        """Those that have a weight; one of them may be the constant."""
        features = [
            _lines(comment(self.terms.names[k]), f"{self._product(product)} AS feature_{k}", indent="")
            for k in self.terms.weighted
            if (product := self.terms.features[k])
        ]
        return Step("features", [*self.kept, "valid", *features])

    def _product(self, product: Product) -> str:
        one, zero = self.dialect.float(1.0), self.dialect.float(0.0)
        factors = [
            f"CASE WHEN {self.clean[f.cell]} IN ({', '.join(self._values(f.cell)[f.value])}) "
            f"THEN {one} ELSE {zero} END"
            if isinstance(f, Equals)
            else _in_brackets([self.clean[cell] for cell in f.cells])
            for f in product
        ]
        return " * ".join(factors)

    def _scores(self) -> Step:
        lines = []
        for a in self.actions:
            score = _added(list(self._summands(a))) or self.dialect.float(0.0)
            lines.append(_lines("CASE WHEN valid THEN", score, f"END AS score_{a}"))
        return Step("scores", [*self.kept, *lines])

    def _summands(self, action: int) -> Iterator[str]:
        for k, product in enumerate(self.terms.features):
            if weight := float(self.terms.scale[k, action]):
                yield self.dialect.float(weight) + (f" * feature_{k}" if product else "")

    def _normalize(self) -> list[Step]:
        """Softmax."""
        number, scores, weights = self.dialect.float, self._numbered("score"), self._numbered("weight")
        exps = [
            f"CASE WHEN {score} - peak > {number(NEGLIGIBLE)} THEN EXP({score} - peak) "
            f"WHEN {score} - peak <= {number(NEGLIGIBLE)} THEN {number(0.0)} END AS {weight}"
            for score, weight in zip(scores, weights, strict=True)
        ]
        highest = number(len(weights) + 1.0)  # more, or no number, where scores overflow
        probabilities = [
            f"CASE WHEN total <= {highest} THEN {w} / total END AS probability_{a}"
            for a, w in enumerate(weights)
        ]
        return [
            Step("peaks", [*self.kept, *scores, f"GREATEST({', '.join(scores)}) AS peak"]),
            Step("weights", [*self.kept, *exps]),
            Step("totals", [*self.kept, *weights, f"{_added(weights)} AS total"]),
            Step("probabilities", [*self.kept, *probabilities]),
        ]

    def _uniform(self, position: int) -> str:
        """The number that an id draws: hex digits of its hash as a fraction."""
        place, start = position // PER_DIGEST, HEX_DIGITS * (position % PER_DIGEST) + 1
        digits = f"SUBSTR(hash_{place}, {start}, {HEX_DIGITS})"
        return f"{self.dialect.integer.format(digits)} / {self.dialect.float(16.0**HEX_DIGITS)}"


class SetSteps(Steps):
    """The same for sets: every label by itself."""

    def decisions(self) -> list[str]:
        """For each label whether it is in."""
        return [
            f"probability_{a} > uniform_{a} * (probability_{a} + (1 - probability_{a}))" for a in self.actions
        ]

    def decision_names(self) -> list[str]:
        return [f"in_{label}" for label in self.policy.actions]

    def _messages(self, message: str) -> list[str]:
        count = -(-len(self.actions) // PER_DIGEST)
        return [f"{message} || {self.dialect.literal(f'/{i}')}" for i in range(count)]

    def _uniforms(self) -> list[str]:
        """One uniform number a label."""
        return [f"{self._uniform(a)} AS uniform_{a}" for a in self.actions]

    def _normalize(self) -> list[Step]:
        """A sigmoid for each label."""
        number, scores, weights = self.dialect.float, self._numbered("score"), self._numbered("weight")
        exps = [
            f"CASE WHEN ABS({score}) < {number(-NEGLIGIBLE)} THEN EXP(-ABS({score})) "
            f"WHEN ABS({score}) <= {number(sys.float_info.max)} THEN {number(0.0)} END AS {weight}"
            for score, weight in zip(scores, weights, strict=True)
        ]
        one, zero = number(1.0), number(0.0)
        probabilities = [
            f"CASE WHEN {s} > {zero} THEN {one} ELSE {w} END / ({one} + {w}) AS probability_{a}"
            for a, (s, w) in enumerate(zip(scores, weights, strict=True))
        ]
        return [
            Step("weights", [*self.kept, *scores, *exps]),
            Step("probabilities", [*self.kept, *probabilities]),
        ]


def _texts(value: Value) -> list[str]:
    """How databases write a value as text; a whole number also as if it came from a column of floats."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return [str(value), f"{value}.0"] if whole else [str(value)]


def _in_brackets(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({_added(terms)})"


def _added(terms: Sequence[str]) -> str:
    """The sum, in brackets where it is long, a few terms per line."""
    if len(terms) > _PER_SUM:
        parts = [terms[i : i + _PER_SUM] for i in range(0, len(terms), _PER_SUM)]
        return _added([f"({_added(part)})" for part in parts])
    lines = [" + ".join(terms[i : i + _PER_LINE]) for i in range(0, len(terms), _PER_LINE)]
    return _lines(lines[0], *(f"+ {line}" for line in lines[1:])) if lines else ""


def _lines(*lines: str, indent: str = "  ") -> str:
    """One expression on several lines. Nothing else breaks lines: names and texts may hold such breaks."""
    return f"\n    {indent}".join(lines)
