"""The steps from the columns of a table to decisions, each a list of SQL expressions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence

from bylaw._base.hashing import HEX_DIGITS, PER_DIGEST
from bylaw._base.softmax import NEGLIGIBLE
from bylaw._base.typing import Value
from bylaw.data.columns import Columns
from bylaw.data.probabilities import SUM_TOLERANCE
from bylaw.formulation.formulas import (
    HIGHEST,
    LOWEST,
    UNDERFLOW,
    Cell,
    DecisionRule,
    Equals,
    Product,
    Terms,
)
from bylaw.formulation.layout import get_column
from bylaw.sql.calibration_steps import CalibrationSteps
from bylaw.sql.dialects import Dialect, write_comment
from bylaw.sql.text import SelectStep, join_lines, write_sum


class StepBuilder:
    """given -> checked -> calibrated -> features -> scores -> weights -> probabilities -> draws.

    Within the statement columns are named by numbers, so that no name of the table can clash.
    """

    def __init__(
        self, policy: DecisionRule, columns: Columns, terms: Terms, dialect: Dialect, carried: Sequence[str]
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

    def build_probabilities(self) -> list[SelectStep]:
        """The steps to probability_0, probability_1, ..., one for each action."""
        return [
            self._build_given(),
            self._build_checked(),
            *CalibrationSteps(self.terms, self.dialect, self.clean, self._compare_value).build(self.kept),
            self._build_features(),
            self._build_scores(),
            *self._build_normalization(),
        ]

    def build_draws(self, prefix: str) -> list[SelectStep]:
        """The steps from the probabilities to uniform numbers by id, the first of the kept columns.

        The prefix, key and slash, occurs once: it may have a parameter in it.
        """
        message = f"{prefix} || {self.dialect.cast('kept_0', self.dialect.text)} AS message"
        probabilities = self._number_names("probability")
        hashed = [self.dialect.sha256.format(text) for text in self._write_messages("message")]
        hashes = [f"{text} AS hash_{i}" for i, text in enumerate(hashed)]
        return [
            SelectStep("messages", [*self.kept, *probabilities, message]),
            SelectStep("hashes", [*self.kept, *probabilities, *hashes]),
            SelectStep("draws", [*self.kept, *probabilities, *self._write_uniforms()]),
        ]

    def write_decisions(self) -> list[str]:
        """The expression of the decision."""
        same = len({type(action) for action in self.policy.actions}) == 1
        literals = [self.dialect.write_literal(a if same else str(a)) for a in self.policy.actions]
        heights = itertools.accumulate(self._number_names("probability"), "{} + {}".format)
        steps = zip(list(heights)[:-1], literals, strict=False)
        cases = [f"WHEN {height} > threshold THEN {literal}" for height, literal in steps]
        return [join_lines("CASE", "WHEN threshold IS NULL THEN NULL", *cases, f"ELSE {literals[-1]}", "END")]

    def list_decision_names(self) -> list[str]:
        return ["decision"]

    def _write_messages(self, message: str) -> list[str]:
        """What is hashed."""
        return [message]

    def _write_uniforms(self) -> list[str]:
        """One uniform number a row, times the sum of the probabilities."""
        return [f"{self._write_uniform(0)} * ({write_sum(self._number_names('probability'))}) AS threshold"]

    def _number_names(self, name: str) -> list[str]:
        return [f"{name}_{a}" for a in self.actions]

    def _build_given(self) -> SelectStep:
        """The columns of the table, numbers as 64-bit floats."""
        quoted = self.dialect.quote_name
        lines = [f"{quoted(column)} AS {name}" for column, name in zip(self.carried, self.kept, strict=True)]
        for cell, name in self.given.items():
            column = quoted(get_column(self.columns, *cell))
            if cell not in self.terms.known:
                column = self.dialect.cast(column, self.dialect.double)
            elif self._is_text(cell):
                column = self.dialect.cast(column, self.dialect.text)
            lines.append(f"{column} AS {name}")
        return SelectStep("given", lines)

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
        kinds = {type(label) for label in self.policy.action_space.classes}
        return cell.part == "references" and (int in kinds or len(kinds) > 1)

    def _build_checked(self) -> SelectStep:
        """Whether the row can be decided, and its numbers, of which the smallest are zero."""
        conditions = list(self._write_conditions())
        lines = [*self.kept, join_lines(conditions[0], *(f"AND {c}" for c in conditions[1:]), "AS valid")]
        zero, underflow, highest = map(self.dialect.write_float, (0.0, UNDERFLOW, HIGHEST))
        for cell, name in self.given.items():
            number = (
                f"ABS({name}) > {underflow}"
                if cell in self.terms.numbers
                else f"{name} BETWEEN {underflow} AND {highest}"
            )
            clean = name if cell in self.terms.known else f"CASE WHEN {number} THEN {name} ELSE {zero} END"
            lines.append(f"{clean} AS {self.clean[cell]}")
        return SelectStep("checked", lines)

    def _write_conditions(self) -> Iterator[str]:
        number = self.dialect.write_float
        for cells in self.terms.distributions:
            names = [self.given[cell] for cell in cells]
            for name in names:
                yield f"{name} BETWEEN {number(LOWEST)} AND {number(HIGHEST)}"
            yield f"ABS({write_sum(names)} - {number(1.0)}) <= {number(SUM_TOLERANCE)}"
        for cell in self.terms.known:
            yield f"{self.given[cell]} IN ({', '.join(itertools.chain(*self._write_values(cell).values()))})"
        for cell in self.terms.numbers:
            yield f"ABS({self.given[cell]}) <= {number(sys.float_info.max)}"

    def _build_features(self) -> SelectStep:
        """Those that have a weight in a score, except the constant."""
        features = [
            join_lines(
                write_comment(self.terms.names[k]),
                f"{self._write_product(product)} AS feature_{k}",
                indent="",
            )
            for k in self.terms.weighted
            if (product := self.terms.features[k])
        ]
        return SelectStep("features", [*self.kept, "valid", *features])

    def _compare_value(self, cell: Cell, value: Value) -> str:
        """The condition that a cell holds a value."""
        return f"{self.clean[cell]} IN ({', '.join(self._write_values(cell)[value])})"

    def _write_product(self, product: Product) -> str:
        one, zero = self.dialect.write_float(1.0), self.dialect.write_float(0.0)
        factors = [
            f"CASE WHEN {self._compare_value(f.cell, f.value)} THEN {one} ELSE {zero} END"
            if isinstance(f, Equals)
            else _bracket_sum([self.clean[cell] for cell in f.cells])
            for f in product
        ]
        return " * ".join(factors)

    def _build_scores(self) -> SelectStep:
        lines = []
        for a in self.actions:
            score = write_sum(list(self._write_summands(a))) or self.dialect.write_float(0.0)
            lines.append(join_lines("CASE WHEN valid THEN", score, f"END AS score_{a}"))
        return SelectStep("scores", [*self.kept, *lines])

    def _write_summands(self, action: int) -> Iterator[str]:
        for k, product in enumerate(self.terms.features):
            if weight := float(self.terms.scale[k, action]):
                yield self.dialect.write_float(weight) + (f" * feature_{k}" if product else "")

    def _build_normalization(self) -> list[SelectStep]:
        """Softmax."""
        number = self.dialect.write_float
        scores, weights = self._number_names("score"), self._number_names("weight")
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
            SelectStep("peaks", [*self.kept, *scores, f"GREATEST({', '.join(scores)}) AS peak"]),
            SelectStep("weights", [*self.kept, *exps]),
            SelectStep("totals", [*self.kept, *weights, f"{write_sum(weights)} AS total"]),
            SelectStep("probabilities", [*self.kept, *probabilities]),
        ]

    def _write_uniform(self, position: int) -> str:
        """The uniform number of an id: hex digits of its hash as a fraction."""
        place, start = position // PER_DIGEST, HEX_DIGITS * (position % PER_DIGEST) + 1
        digits = f"SUBSTR(hash_{place}, {start}, {HEX_DIGITS})"
        return f"{self.dialect.integer.format(digits)} / {self.dialect.write_float(16.0**HEX_DIGITS)}"


class SetStepBuilder(StepBuilder):
    """The same for sets: each label by itself."""

    def write_decisions(self) -> list[str]:
        """For each label the expression of whether it is in."""
        return [
            f"probability_{a} > uniform_{a} * (probability_{a} + (1 - probability_{a}))" for a in self.actions
        ]

    def list_decision_names(self) -> list[str]:
        return [f"in_{label}" for label in self.policy.actions]

    def _write_messages(self, message: str) -> list[str]:
        count = -(-len(self.actions) // PER_DIGEST)
        return [f"{message} || {self.dialect.write_literal(f'/{i}')}" for i in range(count)]

    def _write_uniforms(self) -> list[str]:
        """One uniform number a label."""
        return [f"{self._write_uniform(a)} AS uniform_{a}" for a in self.actions]

    def _build_normalization(self) -> list[SelectStep]:
        """A sigmoid for each label."""
        number = self.dialect.write_float
        scores, weights = self._number_names("score"), self._number_names("weight")
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
            SelectStep("weights", [*self.kept, *scores, *exps]),
            SelectStep("probabilities", [*self.kept, *probabilities]),
        ]


def _list_texts(value: Value) -> list[str]:
    """How databases write a value as text; a whole number also as it is in a column of floats."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return [str(value), f"{value}.0"] if whole else [str(value)]


def _bracket_sum(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({write_sum(terms)})"
