"""Flags that say which column is what; every command takes some of them, and gets them together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import typer

from bylaw.data.text_values import values_of
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
    "id_column",
    "normalize",
]
ALL_FLAGS: tuple[Flag, ...] = get_args(Flag)
_FLAGS: dict[Flag, tuple[str, str]] = {  # and what is said of them
    "scores": ("--scores", "Columns of P(class): a pattern, p_*, or names with commas."),
    "classes": ("--classes", "The classes, with commas, in the order of the columns."),
    "group": ("--group", "A known group: its name, or NAME=COLUMN."),
    "group_probabilities": ("--group-probabilities", "An unknown group: NAME=PATTERN, race=race_*."),
    "true_group": ("--true-group", "What was seen of an unknown group: NAME=COLUMN."),
    "reference": ("--reference", "An earlier model: NAME=COLUMN of its labels, or a pattern."),
    "label": ("--label", "The column of true labels."),
    "weight": ("--weight", "The column of weights."),
    "id_column": ("--id-column", "The column of ids."),
    "normalize": ("--normalize", "Divide probabilities by their sum: they were rounded."),
}
_LISTS = ("group", "group_probabilities", "true_group", "reference")
_PANEL = "Columns, if not as the rules file or the policy says"


@dataclass(frozen=True)
class Flags:
    """What was said on the command line about columns; it goes before what a file says."""

    scores: str | None = None
    classes: str | None = None
    group: Sequence[str] | None = None
    group_probabilities: Sequence[str] | None = None
    true_group: Sequence[str] | None = None
    reference: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    id_column: str | None = None
    normalize: bool = False

    def said(self) -> dict[str, Any]:
        lists: dict[str, Any] = {
            "groups": _pairs(self.group, "group"),
            "group_probabilities": _pairs(self.group_probabilities, "group-probabilities"),
            "true_groups": _pairs(self.true_group, "true-group"),
            "references": _pairs(self.reference, "reference"),
        }
        if both := set(lists["groups"]) & set(lists["group_probabilities"]):
            raise OptionError(f"{min(both)} is either known, --group, or not, --group-probabilities")
        singles = {
            "label": self.label,
            "weight": self.weight,
            "id": self.id_column,
            "normalize": self.normalize,
        }
        if self.scores is not None:
            names = self.scores.split(",")
            lists["probabilities"] = names if len(names) > 1 else self.scores
        if self.classes is not None:
            lists["classes"] = values_of(self.classes.split(","))
        return {name: value for name, value in {**lists, **singles}.items() if value}


def _pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    cut = [text.partition("=") for text in texts or ()]
    pairs = {name: column if equals else name for name, equals, column in cut}
    if "" in pairs or "" in pairs.values():
        raise OptionError(f"--{flag} is NAME=COLUMN")
    return pairs


def takes_columns(*names: Flag, also: Sequence[str] = ()) -> Callable[[Any], Any]:
    """A command gets these flags as one argument, `flags`; `also` are other names of --scores."""

    def decorated(command: Any) -> Any:
        own = inspect.signature(command, eval_str=True)
        kept = [parameter for parameter in own.parameters.values() if parameter.name != "flags"]
        added = [_parameter(name, also if name == "scores" else ()) for name in names]

        @functools.wraps(command)
        def called(*args: Any, **options: Any) -> None:
            given = {name: options.pop(name) for name in names if name in options}
            command(*args, flags=Flags(**given), **options)

        called.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
        return called

    return decorated


def _parameter(name: Flag, also: Sequence[str]) -> inspect.Parameter:
    flag, text = _FLAGS[name]
    kind: Any = bool if name == "normalize" else list[str] | None if name in _LISTS else str | None
    option = typer.Option(*also, flag, help=text, rich_help_panel=_PANEL)
    annotation = Annotated[kind, option]
    default = False if name == "normalize" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
