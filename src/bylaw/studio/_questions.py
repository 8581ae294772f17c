"""What a page asks: problems and levels of rules, and questions that are answered or cancelled."""

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
    """A problem as a page states it: rules that are switched off are left out."""

    minimize: str
    rules: tuple[tuple[str, bool], ...]  # text, and whether it is on
    view: View = "predicted"

    @classmethod
    def read(cls, content: Mapping[str, Any], labeled: bool) -> Question:
        """Return the question in the content of a request; raise if it is malformed."""
        minimize, rules, view = (content.get(name) for name in ("minimize", "rules", "view"))
        view = ("observed" if labeled else "predicted") if view is None else view
        if view not in ("predicted", "observed"):
            raise OptionError(f"view must be 'predicted' or 'observed', not {view!r}")
        if not isinstance(minimize, str):
            raise OptionError("minimize must be text")
        return cls(minimize, read_rules(rules), view)

    @property
    def places(self) -> list[int]:
        """The places of the rules that are on, among all rules."""
        return [i for i, (_, on) in enumerate(self.rules) if on]


def read_place(content: Mapping[str, Any]) -> tuple[str, int]:
    """Return the tab that asks, and the number of its question."""
    tab, number = content.get("tab"), content.get("number")
    if not isinstance(tab, str) or type(number) is not int:
        raise OptionError("tab must be text, and number a whole number")
    return tab, number


def read_rules(rules: Any) -> tuple[tuple[str, bool], ...]:
    """Return the text of each rule of a request, and whether it is on; raise if it is malformed."""
    if not isinstance(rules, list):
        raise OptionError("rules must be a list of {text, on}")
    for rule in rules:
        if not isinstance(rule, dict) or not isinstance(rule.get("text"), str):
            raise OptionError("each of the rules must be {text, on}")
    return tuple((rule["text"], bool(rule.get("on", True))) for rule in rules)


def parse_statement(text: str) -> Statement:
    """Return the rule or family of a text; raise if it is only a rate."""
    statement = parse(text)
    if not isinstance(statement, Rule | Band | Family):
        raise RuleSyntaxError("a rule compares a rate: write <= or >= and a number, or a family", text)
    return statement


def locate_mistake(wrong: BylawError) -> dict[str, Any]:
    """Return a mistake in a text, and its place."""
    if isinstance(wrong, RuleSyntaxError):
        return {"ok": False, "error": wrong.message, "line": wrong.line, "column": wrong.column}
    return {"ok": False, "error": str(wrong), "line": 1, "column": 0}


def describe_level(statement: Statement) -> dict[str, Any]:
    """Return the slider of a level: its range, and the text around the number; None without a level."""
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
    """Return the level that lets all rules hold, rounded outwards; None if it is not known."""
    slack, level = diagnosis.relaxation[str(statement)], diagnosis.levels.get(str(statement))
    if level is None:
        return {"rule": place, "level": None, "loosened": slack}
    loose = statement.loosening * level + slack * 1e-3
    loosest = statement.loosening * float(np.ceil(loose * 1e4) / 1e4)
    return {"rule": place, "level": loosest, "loosened": abs(loosest - level) + slack}


class CancelledError(Exception):
    """A question was cancelled, because its page asked something else."""


@dataclass(eq=False)
class Job:
    """A question of a tab, and how far its answer is."""

    purpose: Purpose
    number: int
    cancelled: bool = False
    step: int = 0  # passes over the rows
    off_by: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """The time since it was asked."""
        return time.perf_counter() - self.started

    def check(self) -> None:
        """Raise if it was cancelled."""
        if self.cancelled:
            raise CancelledError

    @contextmanager
    def hold(self, lock: threading.Lock) -> Iterator[None]:
        """Wait for a lock, and raise if it is cancelled meanwhile."""
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
        """Note the progress of a solver or a frontier."""
        self.check()
        if isinstance(step, Step):
            self.off_by = step.gradient_mapping


class Jobs:
    """The questions that are being answered: the newest question of a tab cancels its older ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, list[Job]] = {}
        self._newest: dict[tuple[str, Purpose], int] = {}

    @contextmanager
    def run(self, tab: str, purpose: Purpose, number: int) -> Iterator[Job]:
        """Begin a question, which cancels older ones of its purpose; a new problem cancels all older ones."""
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
        """Cancel all questions of a tab, or of all tabs."""
        with self._lock:
            for name, jobs in self._running.items():
                for job in jobs if tab in (None, name) else ():
                    job.cancelled = True

    def describe(self, tab: str) -> dict[str, Any]:
        """Return how far the newest question of a tab is."""
        with self._lock:
            running = self._running.get(tab)
            if not running:
                return {"busy": False, "step": 0, "off_by": None, "seconds": 0.0}
            job = running[-1]
            return {"busy": True, "step": job.step, "off_by": job.off_by, "seconds": job.seconds}
