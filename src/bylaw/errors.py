"""Exceptions and warnings: each names the thing and says what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class BylawError(Exception):
    """Anything that bylaw refuses."""


class RuleError(BylawError, ValueError):
    """A rate or rule that cannot be stated, or makes no sense for these decisions."""


class RuleSyntaxError(RuleError):
    """Text that is not in the language of rules; shows the place with a caret."""

    def __init__(self, message: str, text: str, line: int = 1, column: int = 0) -> None:
        self.text = text
        self.line = line
        self.column = column
        lines = text.splitlines() or [""]
        shown = lines[min(line, len(lines)) - 1]
        super().__init__(f"{message}\n  {shown}\n  {' ' * column}^")


class OptionError(BylawError, ValueError):
    """A setting that is out of range, or goes with no other."""


class EvidenceError(BylawError, ValueError):
    """Rows that cannot be used as they are."""


class PolicyFileError(BylawError, ValueError):
    """A policy file that is damaged, hostile, or of another version."""


class InfeasibleRulesError(BylawError):
    """No policy can satisfy all the rules on these rows.

    Attributes
    ----------
    diagnosis
        the `Diagnosis`, of which the others are parts.
    conflict
        the rules that conflict, by name; without any one of them, the others can hold.
    least
        for each rule of the conflict, the best its rate can reach while the others of it hold.
    violations
        for each rule of the conflict, how far it is off while the others of it hold.
    relaxation
        the smallest change that lets all rules hold: by how much to loosen which statement.
    small_cells
        conditions in the rules that too few rows meet.
    least_violation
        whatever the policy, at least one rule of the conflict is missed
        by this much; the diagnosis holds the proof (a Farkas certificate).
    """

    def __init__(self, diagnosis: Any) -> None:
        super().__init__(diagnosis)
        self.diagnosis = diagnosis
        self.conflict: tuple[str, ...] = diagnosis.conflict
        self.least: Mapping[str, float] = diagnosis.least
        self.violations: Mapping[str, float] = diagnosis.violations
        self.relaxation: Mapping[str, float] = diagnosis.relaxation
        self.small_cells: Mapping[str, float] = diagnosis.small_cells
        self.least_violation: float = diagnosis.least_violation

    def __str__(self) -> str:
        return str(self.diagnosis)


class UncertifiedError(BylawError):
    """Not even the most cautious policy could be certified on the rows that were held out.

    Attributes
    ----------
    rule
        the rule that failed.
    p_value
        of the hypothesis that it does not hold.
    rows_needed
        about how many certificate rows it would take; infinite if it is missed on these.
    """

    def __init__(self, rule: str, p_value: float, rows_needed: float, rows: int, confidence: float) -> None:
        super().__init__(rule, p_value, rows_needed, rows, confidence)
        self.rule = rule
        self.p_value = p_value
        self.rows_needed = rows_needed
        self.rows = rows
        self.confidence = confidence

    def __str__(self) -> str:
        advice = (
            f"about {self.rows_needed:,.0f} held-out rows would do; or loosen the rule, or accept a lower "
            "confidence"
            if math.isfinite(self.rows_needed)
            else "it is missed or just met on these rows even so. All rules are tightened together, and a "
            "tight one beside it may leave it no room. Give more rows or better probabilities, loosen this "
            "rule or the tightest, or give labels and groups of the fitting rows, if they were not given"
        )
        return (
            f"the rule {self.rule!r} cannot be certified with {100 * self.confidence:g} % confidence on "
            f"{self.rows:,} held-out rows (p = {self.p_value:.2g}), not even with the widest margin: {advice}"
        )


class ConvergenceWarning(UserWarning):
    """The solver stopped before its tolerance; the message says by how much and what to do."""


class GuaranteeWarning(UserWarning):
    """Decisions were made in a way that the rules' guarantee does not cover."""
