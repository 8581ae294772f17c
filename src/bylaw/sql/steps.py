"""The steps from the columns of a table to decisions, each a list of SQL expressions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence

from bylaw._base.hashing import HEX_DIGITS, PER_DIGEST
from bylaw._base.softmax import NEGLIGIBLE
from bylaw.data.columns import Columns
from bylaw.formulation.formulas import DecisionRule, Terms
from bylaw.sql.calibration_steps import CalibrationSteps
from bylaw.sql.cells import CellWriter
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
        self.terms = terms
        self.cells = CellWriter(terms, columns, policy.action_space.reference_actions, dialect)
        self.dialect = dialect
        self.carried = carried  # columns of the table
        self.kept = [f"kept_{i}" for i in range(len(carried))]
        self.actions = range(len(policy.actions))

    def build_probabilities(self) -> list[SelectStep]:
        """The steps to probability_0, probability_1, ..., one for each action."""
        cells = self.cells
        return [
            self._build_given(),
            self._build_checked(),
            *CalibrationSteps(self.terms, self.dialect, cells.clean, cells.compare_value).build(self.kept),
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
        kept = [f"{quoted(column)} AS {name}" for column, name in zip(self.carried, self.kept, strict=True)]
        return SelectStep("given", [*kept, *self.cells.list_given()])

    def _build_checked(self) -> SelectStep:
        """Whether the row can be decided, and its numbers, of which the smallest are zero."""
        conditions = self.cells.list_conditions()
        valid = join_lines(conditions[0], *(f"AND {c}" for c in conditions[1:]), "AS valid")
        return SelectStep("checked", [*self.kept, valid, *self.cells.list_clean()])

    def _build_features(self) -> SelectStep:
        """Those that have a weight in a score, except the constant."""
        features = [
            join_lines(
                write_comment(self.terms.names[k]),
                f"{self.cells.write_product(product)} AS feature_{k}",
                indent="",
            )
            for k in self.terms.weighted
            if (product := self.terms.features[k])
        ]
        return SelectStep("features", [*self.kept, "valid", *features])

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
