"""Exceptions and warnings: each names the thing, and carries a remedy that each interface words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bylaw.reductions import Diagnosis


@dataclass(frozen=True)
class Remedy:
    """Advice on an error, a warning, or a rule that was not judged, which each interface puts into words.

    Attributes
    ----------
    action : str
        What to do, a key of `IN_PYTHON` such as "pass_labels".
    subject : str
        The name of the group, cost, earlier model, role, method or solver.
    choices : tuple of str
        The names among which to choose, or that belong together.

    Examples
    --------
    >>> word_for_python(Remedy("pass_groups", "sex"))
    "pass groups={'sex': ...}"
    """

    action: str
    subject: str = ""
    choices: tuple[str, ...] = ()


IN_PYTHON = {  # the words of each action for callers from Python
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
    "'known'}} if it does not depend on what turns out",
    "pass_reference": "pass references={{{subject!r}: its labels}}",
    "pass_costs": "pass costs={{{subject!r}: an array}}",
    "pass_changes": "pass earlier.mark_changes(evidence), where earlier is the policy that decided before",
    "pass_decisions": "pass the decisions that were taken, decisions=, or use method='betting'",
    "choose_method": "use method={subject!r}",
    "choose_solver": "otherwise use solver={subject!r}",
    "choose_decisions": "for other decisions use Problem(decisions={subject!r})",
    "choose_reject": "choose another with reject=",
    "choose_probabilities": "pass probabilities='p_*', or a list of columns, one for each class",
    "choose_scores": "pass probabilities='score'",
    "choose_positive": "pass positive=",
    "name_classes": "pass classes=['another', {subject!r}]",
    "choose_group": "pass groups=[{subject!r}] or group_probabilities={{{subject!r}: '{subject}_*'}}",
    "choose_column": "pass {subject}={choices[0]!r}, for instance",
    "list_columns": "give the columns as a list, in the order of the classes",
    "state_delimiter": "write it with commas, or read it into a frame first",
    "normalize": "correct it, or pass normalize=True to divide each row by its sum",
    "align_rows": "where they have the same rows in the same order, pass both with .reset_index(drop=True); "
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
    """Return a remedy in words for callers from Python."""
    return IN_PYTHON[remedy.action].format(subject=remedy.subject, choices=remedy.choices)


def join_remedy(message: str, remedy: Remedy | None, word: Callable[[Remedy], str] = word_for_python) -> str:
    """Return a message with its remedy in words; after a question, the remedy is a sentence of its own."""
    if remedy is None:
        return message
    advice = word(remedy)
    return f"{message} {advice[0].upper()}{advice[1:]}" if message.endswith("?") else f"{message}; {advice}"


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra; without a release, bylaw is a clone."""
    return f"pip install '.[{extra}]' in a clone of bylaw"


class _Advising(Exception):  # noqa: N818, since warnings have it in common with errors
    """A message, and a remedy that each interface words for its callers.

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
        """Return the message with its remedy, in the words of an interface."""
        return join_remedy(self.message, self.remedy, word)

    def add_place(self, place: object) -> None:
        """Put a place, such as a file, before the message."""
        self.message = f"{place}: {self.message}"

    def __str__(self) -> str:
        return self.describe(word_for_python)


class BylawError(_Advising):
    """The base class of the errors of bylaw.

    Attributes
    ----------
    message : str
        The message without advice.
    remedy : Remedy or None
        What to do about it; `str(error)` has it in the words of Python.
    """


class RuleError(BylawError, ValueError):
    """A rate or rule that is not possible, or not for these decisions."""


class RuleSyntaxError(RuleError):
    """Text that is not in the language of rules; the message shows the place with a caret.

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
        """Return the message, the line of the text, and a caret."""
        lines = self.text.splitlines() or [""]
        shown = lines[min(self.line, len(lines)) - 1]
        return f"{super().describe(word)}\n  {shown}\n  {' ' * self.column}^"


class OptionError(BylawError, ValueError):
    """An option that is out of range, or that has no effect beside the others."""


class EvidenceError(BylawError, ValueError):
    """Rows that cannot be used as they are."""


class PolicyFileError(BylawError, ValueError):
    """A policy file that is damaged, hostile, or of another version."""


class InfeasibleRulesError(BylawError):
    """No policy can satisfy all the rules on these rows.

    Attributes
    ----------
    diagnosis : Diagnosis
        The diagnosis, of which the other attributes are parts.
    conflict : tuple of str
        The rules that conflict, by name; without any one of them, the others can hold.
    least : dict of str to float
        For each rule of the conflict, the best value of its rate while the others of it hold.
    violations : dict of str to float
        For each rule of the conflict, its least violation while the others of it hold.
    relaxation : dict of str to float
        The smallest change that lets all rules hold: for each statement, by how much to loosen it.
    small_cells : dict of str to float
        Conditions in the rules that too few rows meet, with their number.
    least_violation : float
        Every policy violates at least one rule of the conflict by this much; the diagnosis holds the proof (a
        Farkas certificate).
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
        The rule that prevents it: tightened for a test on so few rows, it conflicts with the others, or no
        policy satisfies it.
    p_value : float
        The p-value of the hypothesis that the rules do not all hold.
    rows_needed : float
        The approximate number of held-out rows that would suffice; infinite if no number does.
    rows : int
        The number of held-out rows.
    confidence : float
        The confidence that was asked for.
    conflict : tuple of str
        The other rules, if the rule conflicts only with all of these.
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
            ": tightened as far as that takes, they leave each other no room"
            if conflict
            else ", not even with the widest margin that there is room for"
        )
        which = "one of the rules" if conflict else "the rule"
        advice = (
            f"About {rows_needed:,.0f} held-out rows would do; or loosen {which}, or lower the confidence"
            if math.isfinite(rows_needed)
            else "It is missed or just met on these rows even so, and more of them would hardly help. Loosen "
            f"{which}, use better probabilities, or give labels and groups of the fitting rows, if they were "
            "not given"
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
    """The solver stopped before its tolerance.

    Attributes
    ----------
    message : str
        What was reached, without advice.
    remedy : Remedy or None
        What to do about it.
    """


class GuaranteeWarning(_Advising, UserWarning):
    """A guarantee does not cover the decisions, or not all of the rules.

    Attributes
    ----------
    message : str
        What is not covered, without advice.
    remedy : Remedy or None
        What to do about it.
    """
