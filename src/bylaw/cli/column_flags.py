"""Flags that state which column is what; each command takes some of them, and gets them together."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import typer

from bylaw.cli.standard_streams import Delimiter, InputFormat, check_inputs, open_inputs
from bylaw.data.text_values import parse_values
from bylaw.errors import OptionError

Flag = Literal[
    "scores",
    "positive",
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
    "positive": ("--positive", "Of two classes, the one whose P(class) the one column of --scores holds."),
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
_POSITIVE: Flag = "positive"  # goes with the scores
_TABLES = {"table": "the table", "certify": "--certify", "held_out": "--held-out"}
_LISTS = ("group", "group_probabilities", "true_group", "reference")
_PANEL = "Columns, if other than the rules file or the policy states"


@dataclass(frozen=True)
class Flags:
    """What the command line states about columns; it goes before what a file states."""

    scores: str | None = None
    positive: str | None = None
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
        if _check_name(self.positive, "--positive"):
            roles["positive"] = self.positive
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


def takes_columns(*names: Flag, streams: bool = True) -> Callable[[Any], Any]:
    """A command gets these flags as one argument, `flags`. Its tables may have another delimiter and, with
    `streams`, one of them may be standard input. Where --probabilities is no option of its own, it tells that
    columns are named by --scores."""

    def decorate(command: Any) -> Any:
        own = inspect.signature(command, eval_str=True)
        kept = [parameter for parameter in own.parameters.values() if parameter.name != "flags"]
        every: list[Flag] = [*names, *((_POSITIVE,) if "scores" in names and _POSITIVE not in names else ())]
        added = [_make_parameter(name) for name in every]
        added += _list_reading(own, streams)

        @functools.wraps(command)
        def call(*args: Any, **options: Any) -> None:
            given = {name: options.pop(name) for name in every if name in options}
            delimiter = options.pop("delimiter", None)
            if options.pop("old_scores", None) is not None:
                raise OptionError(
                    "--probabilities names no columns any more: use --scores, as in --scores 'p_*'"
                )
            arguments = own.bind_partial(
                *args, **{k: v for k, v in options.items() if k in own.parameters}
            ).arguments
            stream = (
                (lambda: _open_tables(arguments, options.get("input_format"))) if streams else nullcontext
            )
            with _read_delimited(delimiter), stream():
                command(**arguments, flags=Flags(**given))

        call.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
        return call

    return decorate


def _list_reading(own: inspect.Signature, streams: bool) -> list[inspect.Parameter]:
    """Options of how tables are read, beside those of the command."""
    found: dict[str, Any] = {"delimiter": Delimiter}
    if streams:
        found["input_format"] = InputFormat
    if "probabilities" not in own.parameters:
        found["old_scores"] = Annotated[str | None, typer.Option("--probabilities", hidden=True)]
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=None, annotation=one) for name, one in found.items()]


@contextlib.contextmanager
def _open_tables(arguments: dict[str, Any], format_: str | None) -> Iterator[None]:
    """With a file in place of standard input."""
    tables = {what: arguments.get(name) for name, what in _TABLES.items()}
    check_inputs(tables, format_)
    with open_inputs(tables, format_) as found:
        names = {what: name for name, what in _TABLES.items()}
        arguments.update({names[what]: path for what, path in found.items() if path is not None})
        yield


@contextlib.contextmanager
def _read_delimited(delimiter: str | None) -> Iterator[None]:
    if delimiter is None:
        yield
        return
    from bylaw.data.table_files import read_with_delimiter

    with read_with_delimiter(delimiter):
        yield


def _make_parameter(name: Flag) -> inspect.Parameter:
    flag, text = _FLAGS[name]
    kind: Any = bool if name == "normalize" else list[str] | None if name in _LISTS else str | None
    option = typer.Option(flag, help=text, rich_help_panel=_PANEL)
    annotation = Annotated[kind, option]
    default = False if name == "normalize" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
