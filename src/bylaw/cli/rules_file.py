"""Rules in a TOML file: what to minimize, the rules, the roles of columns, and how to solve."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bylaw._base.validation import check_choice, check_margin, check_positive
from bylaw.errors import OptionError, RuleError, RuleSyntaxError
from bylaw.language.parser import parse
from bylaw.language.problem import Problem
from bylaw.rows.columns import ROLES

SOLVING = ("solver", "beta", "tol", "margin", "calibrate", "deterministic")
_TOP = ("minimize", "rules", "decisions", "reject", "columns", "solve")
_ADMITTED = {  # the values of keys, in words and as types; of others, text
    "rules": ("text, or a list of texts", (str, list)),
    "decisions": ("text, or a list of labels and options", (str, list)),
    "reject": ("text or a whole number", (str, int)),
    "columns": ("a table, [columns]", (dict,)),
    "solve": ("a table, [solve]", (dict,)),
    "probabilities": ("text, or a list of texts", (str, list)),
    "positive": ("a class", (str, int, float, bool)),
    "classes": ("a list", (list,)),
    "groups": ("text, a list of texts, or a table", (str, list, dict)),
    "group_probabilities": ("a table of columns", (dict,)),
    "true_groups": ("text, a list of texts, or a table", (str, list, dict)),
    "joint": ("a table of columns", (dict,)),
    "references": ("a table of columns", (dict,)),
    "costs": ("a table of columns", (dict,)),
    "normalize": ("true or false", (bool,)),
    "beta": ("a number, 'auto' or 'paper'", (int, float, str)),
    "tol": ("a number", (int, float)),
    "margin": ("a number or 'auto'", (int, float, str)),
    "deterministic": ("true or false", (bool,)),
}
_HOLDS_ANYTHING = ("columns", "solve", "classes", "decisions")
_DEPTH = {"references": 2, "costs": 2, "group_probabilities": 2, "joint": 3}  # of lists and tables of columns


@dataclass(frozen=True)
class RulesFile:
    """A problem, the roles of columns, and how to solve it."""

    problem: Problem
    columns: Mapping[str, Any] = field(default_factory=dict)
    solve: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RulesFile:
        """Return the content of a file; an error has the line and a caret at the mistake."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise OptionError(f"there is no file {path}") from None
        except (OSError, UnicodeDecodeError) as problem:
            raise OptionError(f"{path} cannot be read: {problem}") from None
        try:
            content = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as problem:
            raise OptionError(f"{path} is not valid TOML: {problem}") from None
        _check_keys(content, _TOP, str(path))
        columns, solving = content.get("columns", {}), content.get("solve", {})
        _check_keys(columns, ROLES, f"{path}, [columns]")
        _check_keys(solving, SOLVING, f"{path}, [solve]")
        try:
            _check_solving(solving)
        except OptionError as problem:
            problem.add_place(f"{path}, [solve]")
            raise
        rules = content.get("rules", [])
        statements = [
            _parse_rule(rule, text, path) for rule in ([rules] if isinstance(rules, str) else rules)
        ]
        minimize = _parse_rule(content.get("minimize", "error()"), text, path)
        options = {name: content[name] for name in ("decisions", "reject") if name in content}
        try:
            return cls(Problem(minimize, statements, **options), columns, solving)
        except RuleError as problem:
            problem.add_place(path)
            raise


def read_rules(path: Path | None, rule: Sequence[str] | None, minimize: str | None) -> RulesFile:
    """Return the rules of a file, those of the command line, or both."""
    if path is None and not rule:
        raise OptionError(
            "no rules are given: add --rules FILE or --rule 'rejected() <= 0.1'; see `bylaw rules`"
        )
    file = RulesFile.read(path) if path else RulesFile(Problem("error()"))
    if rule or minimize:
        own = file.problem
        rules = [*own.rules, *(rule or ())]
        file = replace(
            file, problem=Problem(minimize or own.minimize, rules, None, own.decisions, own.reject)
        )
    return file


def read_other_rules(path: Path | None, rule: Sequence[str] | None) -> RulesFile | None:
    """Return the rules to test instead of the policy's own, if any are given."""
    if not (path or rule):
        return None
    others = read_rules(path, rule, None)
    if not others.problem.rules:
        raise OptionError(f"{path} has no rules to test")
    return others


def _check_solving(solving: Mapping[str, Any]) -> None:
    """Raise an error about options of the solve, before any rows are read."""
    if "solver" in solving:
        from bylaw.fitting.solve import SOLVERS

        check_choice(solving["solver"], "solver", SOLVERS)
    if "calibrate" in solving:
        from bylaw.calibration.calibration import CHOICES

        check_choice(solving["calibrate"], "calibrate", CHOICES)
    if isinstance(beta := solving.get("beta", 1.0), str):
        check_choice(beta, "beta", ("auto", "paper"))
    else:
        check_positive(beta, "beta")
    if isinstance(margin := solving.get("margin", 0.0), str):
        check_choice(margin, "margin", ("auto",))
    else:
        check_margin(margin)
    check_positive(solving.get("tol", 1.0), "tol")


def _parse_rule(rule: Any, text: str, path: Path) -> Any:
    """Return a rule, or raise an error with its place in the file."""
    try:
        return parse(rule)
    except RuleSyntaxError as problem:
        # The line of the rule that is wrong, found in the file: its first line if quotes are escaped there.
        lines = problem.text.splitlines() or [""]
        wrong = lines[min(problem.line, len(lines)) - 1]
        line = _find_line(wrong, text) or 1
        begin = max(text.splitlines()[line - 1].find(wrong), 0) if text else 0
        message = f"{path}, line {line}: {problem.message}"
        raise RuleSyntaxError(message, text, line, begin + problem.column) from None
    except RuleError as problem:
        line = _find_line(str(rule), text)
        problem.add_place(f"{path}, line {line}" if line else path)
        raise


def _find_line(wanted: str, text: str) -> int:
    """Return the number of the first line with this text, or 0."""
    return next((i for i, line in enumerate(text.splitlines(), 1) if wanted and wanted in line), 0)


def _check_keys(content: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
            raise OptionError(f"{place}: unknown key {key!r}; {hint}")
        words, types = _ADMITTED.get(key, ("text", (str,)))
        holds_texts = isinstance(value, list | dict) and key not in _HOLDS_ANYTHING
        if (
            not isinstance(value, types)
            or (isinstance(value, bool) and bool not in types)
            or (holds_texts and not _holds_texts(value, _DEPTH.get(key, 1)))
        ):
            raise OptionError(f"{place}: {key} must be {words}, got {value!r}")


def _holds_texts(value: Any, depth: int) -> bool:
    """Return whether lists and tables, nested to some depth, hold text only."""
    inside = value.values() if isinstance(value, dict) else value
    nested = [item for item in inside if not isinstance(item, str)]
    return all(depth > 1 and isinstance(v, list | dict) and _holds_texts(v, depth - 1) for v in nested)
