"""Rules files in TOML, with an objective, rules, the roles of columns, and options of the solver."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bylaw._base import check_choice, check_margin, check_positive
from bylaw.errors import OptionError, RuleError, RuleSyntaxError
from bylaw.language import Problem, parse
from bylaw.rows import ROLES

SOLVING = ("solver", "beta", "tol", "margin", "calibrate", "deterministic")
_TOP = ("minimize", "rules", "decisions", "reject", "columns", "solve")
# The valid values of keys: in words, as types, and the depth at which their lists and tables contain text (0
# for any values). The values of all other keys are text.
_ADMITTED: dict[str, tuple[str, tuple[type, ...], int]] = {
    "rules": ("text, or a list of texts", (str, list), 1),
    "decisions": ("text, or a list of labels and options", (str, list), 0),
    "reject": ("text or a whole number", (str, int), 0),
    "columns": ("a table, [columns]", (dict,), 0),
    "solve": ("a table, [solve]", (dict,), 0),
    "probabilities": ("text, or a list of texts", (str, list), 1),
    "positive": ("a class", (str, int, float, bool), 0),
    "classes": ("a list", (list,), 0),
    "groups": ("text, a list of texts, or a table", (str, list, dict), 1),
    "group_probabilities": ("a table of columns", (dict,), 2),
    "true_groups": ("text, a list of texts, or a table", (str, list, dict), 1),
    "joint": ("a table of columns", (dict,), 3),
    "references": ("a table of columns", (dict,), 2),
    "costs": ("a table of columns", (dict,), 2),
    "normalize": ("true or false", (bool,), 0),
    "beta": ("a number, 'auto' or 'paper'", (int, float, str), 0),
    "tol": ("a number", (int, float), 0),
    "margin": ("a number or 'auto'", (int, float, str), 0),
    "deterministic": ("true or false", (bool,), 0),
}


@dataclass(frozen=True)
class RulesFile:
    """The content of a rules file: a problem, the roles of columns, and options of `solve`."""

    problem: Problem
    columns: Mapping[str, Any] = field(default_factory=dict)
    solve: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RulesFile:
        """Return the content of a file; errors contain the line, with a caret below the error."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise OptionError(f"the rules file {path} does not exist") from None
        except (OSError, UnicodeDecodeError) as problem:
            raise OptionError(f"the rules file {path} cannot be read: {problem}") from None
        try:
            content = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as problem:
            raise OptionError(f"the rules file {path} must be valid TOML: {problem}") from None
        _check_keys(content, _TOP, str(path))
        columns, solving = content.get("columns", {}), content.get("solve", {})
        _check_keys(columns, ROLES, f"{path}, [columns]")
        _check_keys(solving, SOLVING, f"{path}, [solve]")
        try:
            check_solving(solving)
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
    """Return the rules of a file and of the command line; raise without any rule."""
    if path is None and not rule:
        raise OptionError(
            "at least one rule must be given, got none; add --rules FILE or --rule 'rejected() <= 0.1'; see "
            "`bylaw rules`"
        )
    file = RulesFile.read(path) if path else RulesFile(Problem("error()"))
    if not (rule or minimize):
        return file
    own, rules = file.problem, [*file.problem.rules, *(rule or ())]
    return replace(file, problem=Problem(minimize or own.minimize, rules, None, own.decisions, own.reject))


def check_solving(solving: Mapping[str, Any]) -> None:
    """Raise if an option of `solve` is invalid, before any rows are read."""
    from bylaw.calibration import CHOICES
    from bylaw.fitting import SOLVERS

    for name, value in solving.items():
        words: dict[str, Collection[Any]] = {"beta": ("auto", "paper"), "margin": ("auto",)}
        words |= {"solver": SOLVERS, "calibrate": CHOICES}
        if isinstance(value, str) and name in words:
            check_choice(value, name, words[name])
        elif name in ("beta", "tol"):
            check_positive(value, name)
        elif name == "margin":
            check_margin(value)


def _parse_rule(rule: Any, text: str, path: Path) -> Any:
    """Return the rule of a text; errors contain its line in the file."""

    def find_line(wanted: str) -> int:
        """Return the number of the first line that contains this text, or 0."""
        return next((i for i, line in enumerate(text.splitlines(), 1) if wanted and wanted in line), 0)

    try:
        return parse(rule)
    except RuleSyntaxError as problem:
        # The line of the rule that is wrong, found in the file: its first line if quotes are escaped there.
        lines = problem.text.splitlines() or [""]
        wrong = lines[min(problem.line, len(lines)) - 1]
        line = find_line(wrong) or 1
        begin = max(text.splitlines()[line - 1].find(wrong), 0) if text else 0
        message = f"{path}, line {line}: {problem.message}"
        raise RuleSyntaxError(message, text, line, begin + problem.column) from None
    except RuleError as problem:
        line = find_line(str(rule))
        problem.add_place(f"{path}, line {line}" if line else path)
        raise


def _check_keys(content: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise if a table of the file has an unknown key or a value of the wrong type."""
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
            raise OptionError(f"{place}: unknown key {key!r}; {hint}")
        words, types, depth = _ADMITTED.get(key, ("text", (str,), 0))
        if (
            not isinstance(value, types)
            or (isinstance(value, bool) and bool not in types)
            or (depth and not _holds_texts(value, depth))
        ):
            raise OptionError(f"{place}: {key} must be {words}, got {value!r}")


def _holds_texts(value: Any, depth: int) -> bool:
    """Return whether a value is text, or lists and tables of texts that are nested to this depth."""
    if isinstance(value, list | dict) and depth:
        parts = value.values() if isinstance(value, dict) else value
        return all(_holds_texts(part, depth - 1) for part in parts)
    return isinstance(value, str)
