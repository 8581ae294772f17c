"""Rules in a TOML file: what to minimise, the rules, the columns' roles, and how to solve."""

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
from bylaw.rows.column_roles import ROLES

SOLVING = ("solver", "beta", "tol", "margin", "calibrate", "deterministic")
_TOP = ("minimize", "rules", "decisions", "reject", "columns", "solve")
_TEXT, _TEXTS, _TABLE = "text", "text, or a list of texts", "a table of columns"
_ADMITTED = {  # what a key may hold, in words and as types
    "minimize": ("text", (str,)),
    "rules": (_TEXTS, (str, list)),
    "decisions": ("text, or a list of labels and options", (str, list)),
    "reject": ("text or a whole number", (str, int)),
    "columns": ("a table, [columns]", (dict,)),
    "solve": ("a table, [solve]", (dict,)),
    "probabilities": (_TEXTS, (str, list)),
    "positive": ("a class", (str, int, float, bool)),
    "classes": ("a list", (list,)),
    "groups": ("text, a list of texts, or a table", (str, list, dict)),
    "group_probabilities": (_TABLE, (dict,)),
    "true_groups": ("text, a list of texts, or a table", (str, list, dict)),
    "joint": (_TABLE, (dict,)),
    "references": (_TABLE, (dict,)),
    "costs": (_TABLE, (dict,)),
    "label": (_TEXT, (str,)),
    "weight": (_TEXT, (str,)),
    "propensity_weights": (_TEXT, (str,)),
    "id": (_TEXT, (str,)),
    "normalize": ("true or false", (bool,)),
    "solver": (_TEXT, (str,)),
    "beta": ("a number, 'auto' or 'paper'", (int, float, str)),
    "tol": ("a number", (int, float)),
    "margin": ("a number or 'auto'", (int, float, str)),
    "calibrate": (_TEXT, (str,)),
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
        """The content of a file; an error has the line and a caret where something is wrong."""
        text = _read_text(path)
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
        return cls(_make_problem(content, text, path), columns, solving)


def read_rules(path: Path | None, rule: Sequence[str] | None, minimize: str | None) -> RulesFile:
    """Return the rules of a file, those of the command line, or both."""
    if path is None and not rule:
        raise OptionError("which rules? Give --rules FILE or --rule 'rejected() <= 0.1'; see `bylaw rules`")
    file = RulesFile.read(path) if path else RulesFile(Problem("error()"))
    if rule or minimize:
        own = file.problem
        changed = Problem(
            minimize or own.minimize, [*own.rules, *(rule or ())], None, own.decisions, own.reject
        )
        file = replace(file, problem=changed)
    return file


def read_other_rules(path: Path | None, rule: Sequence[str] | None) -> RulesFile | None:
    """Return the rules that are judged instead of the policy's own, if there are any."""
    if not (path or rule):
        return None
    others = read_rules(path, rule, None)
    if not others.problem.rules:
        raise OptionError(f"{path} has no rules to judge")
    return others


def _check_solving(solving: Mapping[str, Any]) -> None:
    """Values that no fit takes are refused before rows are read."""
    if "solver" in solving:
        from bylaw.fitting.solve import SOLVERS

        check_choice(solving["solver"], "solver", SOLVERS)
    if isinstance(beta := solving.get("beta", 1.0), str):
        check_choice(beta, "beta", ("auto", "paper"))
    else:
        check_positive(beta, "beta")
    check_positive(solving.get("tol", 1.0), "tol")
    if isinstance(margin := solving.get("margin", 0.0), str):
        check_choice(margin, "margin", ("auto",))
    else:
        check_margin(margin)
    if "calibrate" in solving:
        from bylaw.calibration.calibration import CHOICES

        check_choice(solving["calibrate"], "calibrate", CHOICES)


def _make_problem(content: Mapping[str, Any], text: str, path: Path) -> Problem:
    rules = content.get("rules", [])
    if isinstance(rules, str):
        rules = [rules]
    statements = [_parse_rule(rule, text, path) for rule in rules]
    minimize = _parse_rule(content.get("minimize", "error()"), text, path)
    options = {name: content[name] for name in ("decisions", "reject") if name in content}
    try:
        return Problem(minimize, statements, **options)
    except RuleError as problem:
        problem.add_place(path)
        raise


def _parse_rule(rule: Any, text: str, path: Path) -> Any:
    """A rule, or an error that shows its place in the file."""
    try:
        return parse(rule)
    except RuleSyntaxError as problem:
        line, column = _find_place(problem, text)
        raise RuleSyntaxError(f"{path}, line {line}: {problem.message}", text, line, column) from None
    except RuleError as problem:
        line = _find_line(str(rule), text)
        problem.add_place(f"{path}, line {line}" if line else path)
        raise


def _find_place(problem: RuleSyntaxError, text: str) -> tuple[int, int]:
    """The line and the column of the file that the error is about."""
    lines = problem.text.splitlines() or [""]
    wrong = lines[min(problem.line, len(lines)) - 1]
    line = _find_line(wrong, text) or 1
    begin = max(text.splitlines()[line - 1].find(wrong), 0) if text else 0
    return line, begin + problem.column


def _find_line(wanted: str, text: str) -> int:
    """The number of the first line with this text; 0 if there is none, as with escaped quotes."""
    return next((i for i, line in enumerate(text.splitlines(), 1) if wanted and wanted in line), 0)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise OptionError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise OptionError(f"{path} cannot be read: {problem}") from None


def _check_keys(content: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise OptionError(f"{place}: unknown key {key!r}; {hint}")
        words, kinds = _ADMITTED[key]
        value = content[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise OptionError(f"{place}: {key} must be {words}, not {value!r}")
        holds_texts = isinstance(value, list | dict) and key not in _HOLDS_ANYTHING
        if holds_texts and not _holds_texts(value, _DEPTH.get(key, 1)):
            raise OptionError(f"{place}: {key} must be {words}, not {value!r}")


def _holds_texts(value: Any, depth: int) -> bool:
    """Whether lists and tables, one in another down to some depth, hold text only."""
    inside = value.values() if isinstance(value, dict) else value
    nested = [item for item in inside if not isinstance(item, str)]
    return all(depth > 1 and isinstance(v, list | dict) and _holds_texts(v, depth - 1) for v in nested)
