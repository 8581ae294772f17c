"""Flags that state which column is what; each command takes some of them, and gets them together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import typer

from bylaw.data.text_values import parse_values
from bylaw.errors import OptionError

Flag = Literal[
    "scores",
    "classes",
    "group",
    "group_probabilities",
    "true_group",
    "reference",
    "label",
    "weight",
    "seen_weights",
    "id_column",
    "normalize",
]
ALL_FLAGS: tuple[Flag, ...] = get_args(Flag)
_FLAGS: dict[Flag, tuple[str, str]] = {  # with their help
    "scores": ("--scores", "Columns of P(class): a pattern, p_*, or names with commas."),
    "classes": ("--classes", "The classes, with commas, in the order of the columns."),
    "group": ("--group", "A known group: its name, or NAME=COLUMN."),
    "group_probabilities": ("--group-probabilities", "An unknown group: NAME=PATTERN, race=race_*."),
    "true_group": ("--true-group", "Observed values of an unknown group: NAME=COLUMN."),
    "reference": ("--reference", "An earlier model: NAME=COLUMN of its labels, or a pattern."),
    "label": ("--label", "The column of true labels."),
    "weight": ("--weight", "The column of sample weights."),
    "seen_weights": ("--seen-weights", "Where labels or groups are missing: the column of 1/P(seen)."),
    "id_column": ("--id-column", "The column of ids."),
    "normalize": ("--normalize", "Divide probabilities by their sum: they were rounded."),
}
_LISTS = ("group", "group_probabilities", "true_group", "reference")
_PANEL = "Columns, if other than the rules file or the policy states"


@dataclass(frozen=True)
class Flags:
    """What the command line states about columns; it goes before what a file states."""

    scores: str | None = None
    classes: str | None = None
    group: Sequence[str] | None = None
    group_probabilities: Sequence[str] | None = None
    true_group: Sequence[str] | None = None
    reference: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    seen_weights: str | None = None
    id_column: str | None = None
    normalize: bool = False

    def list_roles(self) -> dict[str, Any]:
        """Columns by role, for `find_roles`."""
        roles: dict[str, Any] = {
            "groups": parse_pairs(self.group, "--group"),
            "group_probabilities": parse_pairs(self.group_probabilities, "--group-probabilities"),
            "true_groups": parse_pairs(self.true_group, "--true-group"),
            "references": parse_pairs(self.reference, "--reference"),
            "label": _check_name(self.label, "--label"),
            "weight": _check_name(self.weight, "--weight"),
            "seen_weights": _check_name(self.seen_weights, "--seen-weights"),
            "id": _check_name(self.id_column, "--id-column"),
            "normalize": self.normalize,
        }
        if both := set(roles["groups"]) & set(roles["group_probabilities"]):
            raise OptionError(f"{min(both)} is either known, --group, or not, --group-probabilities")
        if _check_name(self.scores, "--scores"):
            names = str(self.scores).split(",")
            roles["probabilities"] = names if len(names) > 1 else self.scores
        if _check_name(self.classes, "--classes"):
            roles["classes"] = parse_values(str(self.classes).split(","))
        return {name: value for name, value in roles.items() if value}


def _check_name(text: str | None, flag: str) -> str | None:
    if text == "":
        raise OptionError(f"{flag} is empty")
    return text


def parse_pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    """{name: column} of NAME=COLUMN, each name once."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not name or (equals and not column):
            raise OptionError(f"{flag} is NAME=COLUMN, not {text!r}")
        if name in pairs:
            raise OptionError(f"{flag} {name} is given twice")
        pairs[name] = column if equals else name
    return pairs


def takes_columns(*names: Flag, also: Sequence[str] = ()) -> Callable[[Any], Any]:
    """A command gets these flags as one argument, `flags`; `also` are other names of --scores."""

    def decorate(command: Any) -> Any:
        own = inspect.signature(command, eval_str=True)
        kept = [parameter for parameter in own.parameters.values() if parameter.name != "flags"]
        added = [_make_parameter(name, also if name == "scores" else ()) for name in names]

        @functools.wraps(command)
        def call(*args: Any, **options: Any) -> None:
            given = {name: options.pop(name) for name in names if name in options}
            command(*args, flags=Flags(**given), **options)

        call.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
        return call

    return decorate


def _make_parameter(name: Flag, also: Sequence[str]) -> inspect.Parameter:
    flag, text = _FLAGS[name]
    kind: Any = bool if name == "normalize" else list[str] | None if name in _LISTS else str | None
    option = typer.Option(*also, flag, help=text, rich_help_panel=_PANEL)
    annotation = Annotated[kind, option]
    default = False if name == "normalize" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
