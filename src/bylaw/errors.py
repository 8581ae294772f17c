"""Exceptions and warnings: each names the thing and says what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
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


def positive(value: Any, what: str) -> float:
    """A finite number above zero, or an error that names it."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            if 0 < (number := float(value)) < math.inf:
                return number
    raise OptionError(f"{what} must be a positive number, not {value!r}")


class EvidenceError(BylawError, ValueError):
    """Rows that cannot be used as they are."""


class PolicyFileError(BylawError, ValueError):
    """A policy file that is damaged, hostile, or of another version."""


class InfeasibleRulesError(BylawError):
    """No policy can satisfy all the rules on these rows.

    Attributes
    ----------
    violations
        for each rule in the conflict, how far it is from holding (its rate
        minus its bound) under the last policy that was tried.
    least_violation
        whatever the policy, at least one rule of the conflict is missed
        by this much; the multipliers are the proof (a Farkas certificate).
    """

    def __init__(self, violations: Mapping[str, float], least_violation: float) -> None:
        self.violations = dict(violations)
        self.least_violation = least_violation
        listed = "\n".join(f"  {name}   (off by {gap:+.4g})" for name, gap in violations.items())
        super().__init__(
            "the rules conflict on these rows: any policy misses at least one of them by "
            f"{least_violation:.3g}.\n{listed}\n"
            "Loosen one of these rules or remove it, and solve again."
        )


class ConvergenceWarning(UserWarning):
    """The solver stopped before its tolerance; the message says by how much and what to do."""


class GuaranteeWarning(UserWarning):
    """Decisions were made in a way that the rules' guarantee does not cover."""
