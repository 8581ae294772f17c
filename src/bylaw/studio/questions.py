"""What a page asks, read from what it sent, which may be anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bylaw.errors import BylawError, OptionError, RuleSyntaxError
from bylaw.language.expressions import Band, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement, parse

View = Literal["predicted", "observed"]


@dataclass(frozen=True)
class Question:
    """A problem as a page states it: rules that are switched off are left out."""

    minimize: str
    rules: tuple[tuple[str, bool], ...]  # text, and whether it is on
    view: View = "predicted"

    @classmethod
    def read(cls, content: Mapping[str, Any], labelled: bool) -> Question:
        """From what a page sent, which may be anything."""
        minimize, rules, view = (content.get(name) for name in ("minimize", "rules", "view"))
        view = ("observed" if labelled else "predicted") if view is None else view
        if view not in ("predicted", "observed"):
            raise OptionError(f"view must be 'predicted' or 'observed', not {view!r}")
        if not isinstance(minimize, str):
            raise OptionError("minimize must be text")
        return cls(minimize, read_rules(rules), view)

    @property
    def places(self) -> list[int]:
        """Of the rules that are on, among all."""
        return [i for i, (_, on) in enumerate(self.rules) if on]


def read_place(content: Mapping[str, Any]) -> tuple[str, int]:
    """The tab that asks, and the number of its question."""
    tab, number = content.get("tab"), content.get("number")
    if not isinstance(tab, str) or type(number) is not int:
        raise OptionError("tab must be text, and number a whole number")
    return tab, number


def read_rules(rules: Any) -> tuple[tuple[str, bool], ...]:
    """From what a page sent, which may be anything: the text of each, and whether it is on."""
    if not isinstance(rules, list):
        raise OptionError("rules must be a list of {text, on}")
    read = []
    for rule in rules:
        if not isinstance(rule, dict) or not isinstance(rule.get("text"), str):
            raise OptionError("each of the rules must be {text, on}")
        read.append((rule["text"], bool(rule.get("on", True))))
    return tuple(read)


def parse_statement(text: str) -> Statement:
    """A rule or a family, and no rate."""
    statement = parse(text)
    if not isinstance(statement, Rule | Band | Family):
        raise RuleSyntaxError("a rule compares a rate: write <= or >= and a number, or a family", text)
    return statement


def locate_mistake(wrong: BylawError) -> dict[str, Any]:
    """A mistake in a text, and where it is."""
    if isinstance(wrong, RuleSyntaxError):
        return {"ok": False, "error": wrong.message, "line": wrong.line, "column": wrong.column}
    return {"ok": False, "error": str(wrong), "line": 1, "column": 0}
