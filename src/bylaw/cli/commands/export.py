"""bylaw export: policies that leave Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bylaw._base.atomic_files import write_text
from bylaw.cli import options
from bylaw.cli.console import pour, say, tell
from bylaw.cli.inputs import check_outputs
from bylaw.data.column_roles import Roles
from bylaw.data.columns import Columns
from bylaw.errors import OptionError
from bylaw.export.layout import NORMALIZED, ReferenceForm
from bylaw.export.sql_dialects import DialectName
from bylaw.language.expressions import LABEL
from bylaw.policy.policy import Policy

export = typer.Typer(no_args_is_help=True, help="Policies that leave Python: as SQL, ONNX or plain Python.")
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")]
TextOutput = Annotated[
    Path, typer.Option("--output", "-o", help="Where to write it; - for standard output.", allow_dash=True)
]


@export.command()
def sql(
    policy: options.PolicyPath,
    output: TextOutput,
    dialect: Annotated[DialectName, typer.Option(help="Whose SQL.")],
    table: Annotated[str, typer.Option(help="The table that the statement reads.")] = "scores",
    id_column: Annotated[str | None, typer.Option(help="The column of ids.")] = None,
    key: Annotated[str | None, typer.Option(help="Of the draws; by default the policy's hash.")] = None,
) -> None:
    """One SELECT statement: the probability of each action and, with ids, the decision.

    [bold]Example[/bold]

      bylaw export sql policy.json --dialect postgres --table scores --id-column id -o policy.sql
    """
    from bylaw.export import to_sql

    check_outputs([output], [policy])
    chosen = Policy.load(policy)
    roles = _roles(chosen)
    text = to_sql(
        chosen,
        roles.columns,
        dialect=dialect,
        table=table,
        id_column=id_column or roles.id,
        key=key,
    )
    _written(output, text)


@export.command()
def python(policy: options.PolicyPath, output: TextOutput) -> None:
    """A Python file that needs only the standard library.

    [bold]Example[/bold]

      bylaw export python policy.json -o policy.py
    """
    from bylaw.export import to_python

    check_outputs([output], [policy])
    chosen = Policy.load(policy)
    _written(output, to_python(chosen, _roles(chosen).columns))


@export.command()
def onnx(policy: options.PolicyPath, output: Output) -> None:
    """An ONNX model of the probabilities.

    [bold]Example[/bold]

      bylaw export onnx policy.json -o policy.onnx
    """
    from bylaw.export import to_onnx

    check_outputs([output], [policy])
    if str(output) == "-":
        raise OptionError("an ONNX model is no text: write it to a file")
    chosen = Policy.load(policy)
    columns = Roles.from_dict(chosen.card.columns).columns if chosen.card.columns else None
    if columns is not None and columns.normalize:
        raise OptionError(NORMALIZED)
    models = {} if columns is None else columns.references
    forms: dict[str, ReferenceForm] = {
        name: "labels" if isinstance(column, str) else "probabilities" for name, column in models.items()
    }
    to_onnx(chosen, output, references=forms)
    tell(f"written: {output}")


def _written(output: Path, text: str) -> None:
    """To a file, or to standard output."""
    if str(output) == "-":
        pour(text.rstrip("\n"))
        return
    write_text(output, text)
    tell(f"written: {output}")


def _roles(policy: Policy) -> Roles:
    """Those it was fitted on; of a policy fitted in Python, columns named as `bylaw fit` would guess."""
    if policy.card.columns:
        return Roles.from_dict(policy.card.columns)
    attributes = policy.feature_map.attributes
    hidden = [
        {name for name in dict(feature.event) if name != LABEL and not attributes[name].known}
        for feature in policy.feature_map.features
    ]
    if policy.problem.arrays or any(len(names) > 1 for names in hidden):
        raise OptionError("the policy does not say which columns it reads; fit it with `bylaw fit`")
    classes = policy.action_space.classes
    groups = {
        name: name if attribute.known else {value: f"{name}_{value}" for value in attribute.values}
        for name, attribute in attributes.items()
    }
    references = {name: name for name in policy.problem.references}
    columns = Columns([f"p_{label}" for label in classes], classes, groups, references=references)
    say(f"the policy does not say which columns it reads; the export reads {Roles(columns).needed}")
    return Roles(columns)
