"""Errors and warnings, with remedies that each interface puts into its own words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bylaw.reductions import Diagnosis


@dataclass(frozen=True)
class Remedy:
    """Advice on how to resolve an error or a warning, which each interface puts into its own words.

    Attributes
    ----------
    action : str
        What to do: a key of `IN_PYTHON`, such as "pass_labels".
    subject : str
        The name of the group, cost, earlier model, column or other thing that the advice is about.
    choices : tuple of str
        Names to choose from, or names that belong together.

    Examples
    --------
    >>> word_for_python(Remedy("pass_groups", "sex"))
    "pass groups={'sex': ...}"
    """

    action: str
    subject: str = ""
    choices: tuple[str, ...] = ()


IN_PYTHON = {  # the text of each action for users of the Python library
    "pass_labels": "pass labels=",
    "pass_groups": "pass groups={{{subject!r}: ...}}",
    "pass_group_probabilities": "pass groups={{{subject!r}: {{value: its probabilities, ...}}}}",
    "pass_true_groups": "pass the observed values, groups={{{subject!r}: ...}}",
    "pass_combinations": "pass the probabilities of their combinations, groups={{{choices!r}: {{...}}}}",
    "pass_joint": "pass joint={{{subject!r}: ...}}, or give {subject!r} at decision time",
    "drop_copies": "pass each row once",
    "pass_largest_weight": "pass largest_weight= to audit() or Evidence()",
    "pass_limits": "pass limits={{{subject!r}: (least, most)}} to audit(), Evidence() or Monitor()",
    "pass_outcomes": "pass outcomes={{{subject!r}: an array}} to audit() or Evidence(), or {{{subject!r}: "
    "'known'}} if it does not depend on the outcome",
    "pass_reference": "pass references={{{subject!r}: its labels}}",
    "pass_costs": "pass costs={{{subject!r}: an array}}",
    "pass_changes": "pass earlier.mark_changes(evidence), where earlier is the policy that decided before",
    "pass_decisions": "pass the decisions that were taken, decisions=, or use method='betting'",
    "choose_method": "use method={subject!r}",
    "choose_solver": "otherwise use solver={subject!r}",
    "choose_decisions": "for other decisions use Problem(decisions={subject!r})",
    "choose_reject": "choose another name with reject=",
    "choose_probabilities": "pass probabilities='p_*', or a list of columns, one for each class",
    "choose_scores": "pass probabilities='score'",
    "choose_positive": "pass positive=",
    "name_classes": "pass classes=['another', {subject!r}]",
    "choose_group": "pass groups=[{subject!r}] or group_probabilities={{{subject!r}: '{subject}_*'}}",
    "choose_column": "pass {subject}={choices[0]!r}, for instance",
    "list_columns": "give the columns as a list, in the order of the classes",
    "state_delimiter": "write it with commas, or read it into a frame first",
    "normalize": "correct it, or pass normalize=True to divide each row by its sum",
    "align_rows": "if both have the same rows in the same order, pass them with .reset_index(drop=True); "
    "otherwise bring {subject} into the order of {choices[0]} with .reindex(...)",
    "read_all_rows": "solve with a sample, rows.sample(1_000_000).evidence",
    "estimate_fitted_rows": "pass rows that were held out, or fitted_rows='estimate' for an estimate without "
    "a certificate",
    "plan_looks": "audit once, on all rows together; for looks that are planned beforehand, divide the error "
    "by their number: confidence={subject} for {choices[0]}",
    "add_steps": "raise max_steps, raise tol, or lower beta",
    "loosen_tolerance": "raise tol or lower beta",
    "refit": "fit it again",
}


def word_for_python(remedy: Remedy) -> str:
    """Return the text of a remedy for users of the Python library."""
    return IN_PYTHON[remedy.action].format(subject=remedy.subject, choices=remedy.choices)


def join_remedy(message: str, remedy: Remedy | None, word: Callable[[Remedy], str] = word_for_python) -> str:
    """Return a message followed by the text of its remedy, which is a separate sentence after a question."""
    if remedy is None:
        return message
    advice = word(remedy)
    return f"{message} {advice[0].upper()}{advice[1:]}" if message.endswith("?") else f"{message}; {advice}"


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra from a clone of bylaw."""
    return f"pip install '.[{extra}]' in a clone of bylaw"


class _Advising(Exception):  # noqa: N818, because it is a base of errors and of warnings
    """An error or warning with a message and a remedy.

    Attributes
    ----------
    message : str
        The message without advice.
    remedy : Remedy or None
        What to do about it.
    """

    def __init__(self, message: object = "", remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.message = str(message)
        self.remedy = remedy

    def describe(self, word: Callable[[Remedy], str]) -> str:
        """Return the message with its remedy, which `word` puts into the words of an interface."""
        return join_remedy(self.message, self.remedy, word)

    def add_place(self, place: object) -> None:
        """Put a location, such as the name of a file, before the message."""
        self.message = f"{place}: {self.message}"

    def __str__(self) -> str:
        return self.describe(word_for_python)


class BylawError(_Advising):
    """The base class of all errors that bylaw raises.

    Attributes
    ----------
    message : str
        The message without advice.
    remedy : Remedy or None
        What to do about it; `str(error)` contains it, in words for users of Python.
    """


class RuleError(BylawError, ValueError):
    """A rate or rule that is not valid, or not valid for this kind of decisions."""


class RuleSyntaxError(RuleError):
    """Text that is not in the language of rules; the message marks the error with a caret.

    Attributes
    ----------
    text : str
        The text that was parsed.
    line : int
        The line of the error, counted from 1.
    column : int
        The column of the error, counted from 0.
    """

    def __init__(self, message: str, text: str, line: int = 1, column: int = 0) -> None:
        super().__init__(message)
        self.args = (message, text, line, column)
        self.text = text
        self.line = line
        self.column = column

    def describe(self, word: Callable[[Remedy], str]) -> str:
        """Return the message, the line with the error, and a caret below the error."""
        lines = self.text.splitlines() or [""]
        shown = lines[min(self.line, len(lines)) - 1]
        return f"{super().describe(word)}\n  {shown}\n  {' ' * self.column}^"


class OptionError(BylawError, ValueError):
    """An argument or option that is invalid, or that has no effect in combination with the others."""


class EvidenceError(BylawError, ValueError):
    """Rows that are invalid, or that do not have what a function needs."""


class PolicyFileError(BylawError, ValueError):
    """A saved file, such as that of a policy, that is damaged, malicious or of another version."""


class InfeasibleRulesError(BylawError):
    """No policy satisfies all the rules on these rows.

    Attributes
    ----------
    diagnosis : Diagnosis
        The full diagnosis; the other attributes are some of its fields.
    conflict : tuple of str
        The names of conflicting rules. If any one of them is removed, the others can be satisfied together.
    least : dict of str to float
        For each conflicting rule, the value of its rate nearest to its bound that is possible while the other
        conflicting rules are satisfied.
    violations : dict of str to float
        For each conflicting rule, its least violation while the other conflicting rules are satisfied.
    relaxation : dict of str to float
        The smallest change after which all rules can be satisfied: for each rule or family, by how much to
        loosen it.
    small_cells : dict of str to float
        Conditions in the rules that too few rows meet, with the number of these rows.
    least_violation : float
        Every policy violates at least one conflicting rule by this amount or more; the diagnosis contains the
        proof (a Farkas certificate).
    """

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis)
        self.diagnosis = diagnosis
        self.conflict: tuple[str, ...] = diagnosis.conflict
        self.least: Mapping[str, float] = diagnosis.least
        self.violations: Mapping[str, float] = diagnosis.violations
        self.relaxation: Mapping[str, float] = diagnosis.relaxation
        self.small_cells: Mapping[str, float] = diagnosis.small_cells
        self.least_violation: float = diagnosis.least_violation


class UncertifiedError(BylawError):
    """No policy could be certified on the held-out rows, not even the most cautious one.

    Attributes
    ----------
    rule : str
        The rule that prevents certification. Held-out rows can only certify it with a margin, and with this
        margin it conflicts with other rules, or no policy satisfies it.
    p_value : float
        The p-value of the hypothesis that at least one rule is violated.
    rows_needed : float
        The approximate number of held-out rows that would be enough; infinite if no number is enough.
    rows : int
        The number of held-out rows.
    confidence : float
        The confidence that was requested.
    conflict : tuple of str
        The other rules whose margins conflict with that of the rule, if there are any.
    """

    def __init__(
        self,
        rule: str,
        p_value: float,
        rows_needed: float,
        rows: int,
        confidence: float,
        conflict: tuple[str, ...] = (),
    ) -> None:
        together = f", together with {' and '.join(map(repr, conflict))}," if conflict else ""
        why = (
            ": with the margins that this requires, they conflict"
            if conflict
            else ", not even with the widest possible margin"
        )
        which = "one of the rules" if conflict else "the rule"
        advice = (
            f"About {rows_needed:,.0f} held-out rows would be enough; add rows, loosen {which}, or lower the "
            "confidence"
            if math.isfinite(rows_needed)
            else "On these rows it is violated or barely satisfied, so more rows would hardly help. Loosen "
            f"{which}, use better probabilities, or pass labels and groups of the fitting rows"
        )
        super().__init__(
            f"the rule {rule!r}{together} cannot be certified with {100 * confidence:g} % confidence on "
            f"{rows:,} held-out rows (p = {p_value:.2g}){why}. {advice}"
        )
        self.args = (rule, p_value, rows_needed, rows, confidence, conflict)
        self.rule = rule
        self.p_value = p_value
        self.rows_needed = rows_needed
        self.rows = rows
        self.confidence = confidence
        self.conflict = conflict


class ConvergenceWarning(_Advising, UserWarning):
    """The solver stopped before it reached its tolerance, or the policy violates rules.

    Attributes
    ----------
    message : str
        The precision or the violations, without advice.
    remedy : Remedy or None
        What to do about it.
    """


class GuaranteeWarning(_Advising, UserWarning):
    """A guarantee does not cover some of the rules, rows or decisions.

    Attributes
    ----------
    message : str
        What is not covered, without advice.
    remedy : Remedy or None
        What to do about it.
    """
