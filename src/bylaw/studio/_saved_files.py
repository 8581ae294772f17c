"""The files that a page saves: the rules, and a Python program that solves the same problem."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import Any, NamedTuple

from bylaw.language import Problem
from bylaw.rows import Columns


class SavedFile(NamedTuple):
    """The name, text and media type of a file to download."""

    name: str
    text: str
    media_type: str


@dataclass(frozen=True)
class Source:
    """The table from which the rows were read."""

    path: str  # as the user gave it
    name: str
    columns: Columns
    stated: Mapping[str, Any] = field(default_factory=dict)  # columns by role, as a rules file states them
    sample: int | None = None  # size of the random sample that was read; None for all rows
    seed: int = 0


def suggest_next(source: Source | None) -> dict[str, dict[str, str]]:
    """Return advice for each saved file: a sentence and a command that uses the file."""
    if source is None:
        return {}
    fit = f"bylaw fit {shlex.quote(source.path)} --rules rules.toml -o policy.json"
    label = "" if source.columns.label is None else f" --label {shlex.quote(source.columns.label)}"
    audit = f"bylaw audit policy.json new{PurePath(source.path).suffix}{label}"
    if label:
        words = "To test the policy on rows on which it was not fitted:"
    else:
        words = "To test the policy on labeled rows on which it was not fitted:"
        audit += " --label COLUMN"
    return {
        "policy": {"words": words, "command": audit},
        "rules": {"words": "To fit a policy with these rules:", "command": fit},
        "python": {"words": "To fit the same policy again:", "command": "python solve.py"},
    }


def write_rules(
    problem: Problem, off: Sequence[str], columns: Mapping[str, Any], solving: Mapping[str, Any]
) -> str:
    """Return the text of a rules file, in which rules that are switched off are comments."""
    lines = [f"minimize = {_write_toml(str(problem.minimize))}", "rules = ["]
    lines += [f"  {_write_toml(str(rule))}," for rule in problem.rules]
    lines += [f"  # off: {_write_toml(text)}" for text in off]
    lines += ["]"]
    if problem.decisions != "auto":
        lines.append(f"decisions = {_write_toml(problem.decisions)}")
    if problem.reject != "reject":
        lines.append(f"reject = {_write_toml(problem.reject)}")
    for title, part in (("columns", columns), ("solve", solving)):
        if part:
            lines += ["", f"[{title}]", *(f"{name} = {_write_toml(value)}" for name, value in part.items())]
    return "\n".join(lines) + "\n"


def _write_toml(value: Any) -> str:
    """Return the TOML text of a value, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{_write_toml(str(name))} = {_write_toml(part)}" for name, part in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write_toml, value))}]"
    # TOML escapes text like JSON, except that it has no lone surrogates and also escapes "delete".
    whole = str(value).encode("utf-8", "backslashreplace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_program(
    problem: Problem, source: Source | None, observed: bool, solving: Mapping[str, Any], title: str
) -> str:
    """Return a Python program that reads the same table and solves the same problem."""
    # A docstring has no quotes, backslashes and line breaks.
    remark = "".join(letter if letter.isprintable() and letter not in '"\\' else " " for letter in title)
    if source is None:
        names, given = "Problem, solve", "evidence"
        if observed:
            given = "evidence.with_observed(labels=labels, true_groups=groups)"
        reading = ["# The rows, as they were given to studio().", f"rows = {given}"]
    else:
        names, columns = "Columns, Problem, scan, solve", source.columns
        if not observed:
            columns = columns.without_observed()
        stated = [(part.name, getattr(columns, part.name)) for part in fields(columns)]
        rows = "read()" if source.sample is None else f"sample({source.sample}, seed={source.seed})"
        reading = ["columns = Columns(", *(f"    {name}={value!r}," for name, value in stated if value), ")"]
        reading.append(f"rows = scan({source.path!r}, columns).{rows}")
    options = [f"{name}={value!r}" for name, value in solving.items()]
    lines = [
        f'"""{remark}"""',
        "",
        f"from bylaw import {names}",
        "",
        *reading,
        "",
        "problem = Problem(",
        f"    {str(problem.minimize)!r},",
        "    [",
        *(f"        {str(rule)!r}," for rule in problem.rules),
        "    ],",
        *([] if problem.decisions == "auto" else [f"    decisions={problem.decisions!r},"]),
        *([] if problem.reject == "reject" else [f"    reject={problem.reject!r},"]),
        ")",
        f"policy = solve({', '.join(['problem', 'rows', *options])})",
        'policy.save("policy.json")',
        "print(policy)",
    ]
    return "\n".join(lines) + "\n"
