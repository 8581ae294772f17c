"""The requests of a page: problems to solve, levels of rules, and answers that can be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bylaw.errors import BylawError, OptionError, RuleError, RuleSyntaxError
from bylaw.language import Band, Family, Rule, Statement, parse
from bylaw.program import Step
from bylaw.reductions import Diagnosis
from bylaw.view import find_level_unit

View = Literal["predicted", "observed"]
Purpose = Literal["solve", "frontier", "save"]


@dataclass(frozen=True)
class Question:
    """A problem as the page states it, with rules that may be switched off."""

    minimize: str
    rules: tuple[tuple[str, bool], ...]  # text, and whether it is on
    view: View = "predicted"

    @classmethod
    def read(cls, content: Mapping[str, Any], labeled: bool) -> Question:
        """Return the question in the content of a request; raise if the content is malformed."""
        minimize, rules, view = (content.get(name) for name in ("minimize", "rules", "view"))
        view = ("observed" if labeled else "predicted") if view is None else view
        if view not in ("predicted", "observed"):
            raise OptionError(f"view must be 'predicted' or 'observed', got {view!r}")
        if not isinstance(minimize, str):
            raise OptionError(f"minimize must be text, got {type(minimize).__name__}")
        return cls(minimize, read_rules(rules), view)

    @property
    def places(self) -> list[int]:
        """The indices of the rules that are switched on."""
        return [i for i, (_, on) in enumerate(self.rules) if on]


def read_place(content: Mapping[str, Any]) -> tuple[str, int]:
    """Return the browser tab of a request, and the number of the request."""
    tab, number = content.get("tab"), content.get("number")
    if not isinstance(tab, str) or type(number) is not int:
        raise OptionError(f"tab must be text and number a whole number, got {tab!r} and {number!r}")
    return tab, number


def read_rules(rules: Any) -> tuple[tuple[str, bool], ...]:
    """Return the text of each rule in a request, and whether the rule is on; raise if malformed."""
    if not isinstance(rules, list):
        raise OptionError(f"rules must be a list of {{text, on}}, got {type(rules).__name__}")
    for rule in rules:
        if not isinstance(rule, dict) or not isinstance(rule.get("text"), str):
            raise OptionError(f"each rule must be {{text, on}}, got {type(rule).__name__}")
    return tuple((rule["text"], bool(rule.get("on", True))) for rule in rules)


def parse_statement(text: str) -> Statement:
    """Return the rule or family that a text states; raise if the text is only a rate."""
    statement = parse(text)
    if not isinstance(statement, Rule | Band | Family):
        raise RuleSyntaxError(
            "a rule must compare a rate with a number, such as rejected() <= 0.1, or be a family", text
        )
    return statement


def locate_mistake(wrong: BylawError) -> dict[str, Any]:
    """Return the message of an error in a text, and the line and column of the error."""
    if isinstance(wrong, RuleSyntaxError):
        return {"ok": False, "error": wrong.message, "line": wrong.line, "column": wrong.column}
    return {"ok": False, "error": str(wrong), "line": 1, "column": 0}


def describe_level(statement: Statement) -> dict[str, Any]:
    """Return the range of the slider for the level of a rule, and the texts around the level.

    All values are None if the rule does not have exactly one level.
    """
    names = ("level", "lowest", "highest", "step", "unit", "template", "parts", "loosening")
    any_level = 0.123457
    try:
        level, template, moved = statement.level, statement.template, str(statement.at(any_level))
    except RuleError:
        return dict.fromkeys(names)
    if isinstance(level, tuple):
        return dict.fromkeys(names)
    unit = find_level_unit(statement)
    if unit == "plain":
        highest = 10.0 ** float(np.ceil(np.log10(2 * abs(level)))) if level else 1.0
    else:
        highest = next((end for end in (0.2, 0.5, 1.0) if abs(level) <= 0.8 * end), 1.0)
    step, lowest = highest / 200, -highest if level < 0 else 0.0
    # Find the word "level" in the template that stands for the number.
    place = template.find("level")
    while template[:place] + repr(any_level) + template[place + 5 :] != moved:
        place = template.index("level", place + 1)
    parts = [template[:place], template[place + 5 :]]
    values = (level, lowest, max(highest, level), step, unit, template, parts, statement.loosening)
    return dict(zip(names, values, strict=True))


def relax(place: int, statement: Statement, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the level of a rule after the smallest relaxation, rounded towards looser levels.

    The level is None if it is unknown.
    """
    slack, level = diagnosis.relaxation[str(statement)], diagnosis.levels.get(str(statement))
    if level is None:
        return {"rule": place, "level": None, "loosened": slack}
    loose = statement.loosening * level + slack * 1e-3
    loosest = statement.loosening * float(np.ceil(loose * 1e4) / 1e4)
    return {"rule": place, "level": loosest, "loosened": abs(loosest - level) + slack}


class CancelledError(Exception):
    """The answer to a question was cancelled, because its page asked a newer question."""


@dataclass(eq=False)
class Job:
    """A question that is being answered, and its progress."""

    purpose: Purpose
    number: int
    cancelled: bool = False
    step: int = 0  # number of passes over the rows
    off_by: float | None = None  # the last gradient mapping of the solver
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """The time since the question was asked."""
        return time.perf_counter() - self.started

    def check(self) -> None:
        """Raise `CancelledError` if the question was cancelled."""
        if self.cancelled:
            raise CancelledError

    @contextmanager
    def hold(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock; raise `CancelledError` if the question is cancelled while it waits."""
        while not lock.acquire(timeout=0.05):
            self.check()
        try:
            self.check()
            yield
        finally:
            lock.release()

    def advance(self) -> None:
        """Count one more pass over the rows."""
        self.check()
        self.step += 1

    def watch(self, step: Step | Any) -> None:
        """Record the progress of a solver or a frontier."""
        self.check()
        if isinstance(step, Step):
            self.off_by = step.gradient_mapping


class Jobs:
    """The questions that are being answered; a newer question of a tab cancels its older ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, list[Job]] = {}
        self._newest: dict[tuple[str, Purpose], int] = {}

    @contextmanager
    def run(self, tab: str, purpose: Purpose, number: int) -> Iterator[Job]:
        """Begin to answer a question, and cancel older questions of the tab with the same purpose.

        A new problem to solve cancels all older questions of the tab.
        """
        with self._lock:
            job = Job(purpose, number)
            newest = max(number, self._newest.get((tab, purpose), number))
            job.cancelled = number < newest
            self._newest[tab, purpose] = newest
            for other in self._running.get(tab, ()):
                if other.number < number and purpose in ("solve", other.purpose):
                    other.cancelled = True
            self._running.setdefault(tab, []).append(job)
        try:
            yield job
        finally:
            with self._lock:
                self._running[tab].remove(job)
                if not self._running[tab]:
                    del self._running[tab]

    def cancel(self, tab: str | None = None) -> None:
        """Cancel all questions of one tab or, by default, of all tabs."""
        with self._lock:
            for name, jobs in self._running.items():
                for job in jobs if tab in (None, name) else ():
                    job.cancelled = True

    def describe(self, tab: str) -> dict[str, Any]:
        """Return the progress of the newest question of a tab."""
        with self._lock:
            running = self._running.get(tab)
            if not running:
                return {"busy": False, "step": 0, "off_by": None, "seconds": 0.0}
            job = running[-1]
            return {"busy": True, "step": job.step, "off_by": job.off_by, "seconds": job.seconds}
