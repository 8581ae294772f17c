"""Commands that export a policy: as SQL, ONNX or plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import remark, tell
from bylaw.cli.files import STREAM, check_outputs, open_output
from bylaw.errors import OptionError

export = typer.Typer(no_args_is_help=True, help="Export a policy as SQL, ONNX or plain Python.")
Output = Annotated[
    Path, typer.Option("--output", "-o", help="The file to write; - for standard output.", allow_dash=True)
]
TextOutput = Annotated[
    Path,
    typer.Option(
        "--output", "-o", help="The file to write.", allow_dash=True, show_default="standard output"
    ),
]


@export.command("sql")
def run_sql(
    policy: options.PolicyPath,
    output: TextOutput = STREAM,
    dialect: Annotated[
        str | None, typer.Option(help="duckdb, postgres, bigquery, snowflake or spark.", show_default=False)
    ] = None,
    table: Annotated[str, typer.Option(help="The table that the statement reads.")] = "scores",
    id_column: Annotated[str | None, typer.Option(help="The column of ids.")] = None,
    key: Annotated[
        str | None,
        typer.Option(help="The key of the random draws; by default the policy's hash. The SQL shows it."),
    ] = None,
    key_parameter: Annotated[
        str | None,
        typer.Option(help="Instead, the placeholder of a parameter with the key, such as $1 or ?."),
    ] = None,
) -> None:
    """Write the policy as a SELECT statement with the probability of each action and, with ids, the decision.

    [bold]Examples[/bold]

      bylaw export sql policy.json --dialect duckdb

      bylaw export sql policy.json --dialect postgres --table scores --id-column id -o policy.sql
    """
    from bylaw.export import to_sql
    from bylaw.scoring import DIALECTS, DialectName, get_dialect

    if dialect is None:
        raise OptionError(f"--dialect must be one of {', '.join(DIALECTS)}, got none")
    get_dialect(known := cast("DialectName", dialect))  # checked before the policy is read
    loaded = _load(policy, output)
    columns = _find_columns(loaded)
    ids = id_column or columns.id
    if ids is None:
        options.refuse_idle("--id-column", key=key, key_parameter=key_parameter)
    names = {"table": table, "id_column": ids}
    statement = to_sql(loaded, columns, dialect=known, **names, key=key, key_parameter=key_parameter)
    _write(output, statement.rstrip("\n") + "\n")


@export.command("python")
def run_python(policy: options.PolicyPath, output: TextOutput = STREAM) -> None:
    """Write the policy as a Python file that needs only the standard library.

    [bold]Example[/bold]

      bylaw export python policy.json -o policy.py
    """
    from bylaw.export import to_python

    loaded = _load(policy, output)
    _write(output, to_python(loaded, _find_columns(loaded)))


@export.command("onnx")
def run_onnx(policy: options.PolicyPath, output: Output) -> None:
    """Write the policy as an ONNX model that computes the probabilities of the actions.

    [bold]Example[/bold]

      bylaw export onnx policy.json -o policy.onnx
    """
    from bylaw.export import to_onnx
    from bylaw.scoring import NORMALIZED, ReferenceForm

    loaded = _load(policy, output)
    columns = bylaw.Columns.from_dict(loaded.card.columns) if loaded.card.columns else None
    if columns is not None and columns.normalize:
        raise OptionError(NORMALIZED)
    models = {} if columns is None else columns.references
    forms: dict[str, ReferenceForm] = {
        name: "labels" if isinstance(column, str) else "probabilities" for name, column in models.items()
    }
    _write(output, lambda target: to_onnx(loaded, target, references=forms))


def _write(output: Path, content: str | Callable[[Path], Any]) -> None:
    """Write a text, or the output of a function, to a file or to standard output."""
    from bylaw._base import write_text

    with open_output(output, ".onnx") as target:
        write_text(target, content) if isinstance(content, str) else content(target)
    if output != STREAM:
        tell(f"written: {output}")


def _load(path: Path, output: Path) -> bylaw.Policy:
    """Return the policy to export; raise if it needs the decisions of an earlier policy."""
    from bylaw.language import CHANGED

    check_outputs(output, [path])
    policy = bylaw.Policy.load(path)
    if CHANGED in policy.problem.arrays and CHANGED not in policy.card.columns.get("costs", {}):
        raise OptionError(
            "a policy with a rule on changed decisions cannot be exported, because it needs those of the "
            "earlier policy. Use `bylaw decide POLICY TABLE --previous EARLIER`, or refit without --churn"
        )
    return policy


def _find_columns(policy: bylaw.Policy) -> bylaw.Columns:
    """Return the columns of the fit or, for a policy made in Python, those with conventional names."""
    from bylaw.language import LABEL

    if policy.card.columns:
        return bylaw.Columns.from_dict(policy.card.columns)
    attributes = policy.feature_map.attributes
    hidden = {name for name, attribute in attributes.items() if not attribute.known}
    events = [{name for name, _ in feature.event} for feature in policy.feature_map.features]
    # Columns of an unknown group together with the label, or with another one, have no obvious names.
    joint = any(event & hidden and len(event & {*hidden, LABEL}) > 1 for event in events)
    if policy.problem.arrays or joint:
        raise OptionError("the policy must name the columns that it reads, got none; fit it with `bylaw fit`")
    classes = policy.action_space.classes
    groups = {
        name: name if attribute.known else {value: f"{name}_{value}" for value in attribute.values}
        for name, attribute in attributes.items()
    }
    references = {name: name for name in policy.problem.references}
    columns = bylaw.Columns([f"p_{label}" for label in classes], classes, groups, references=references)
    remark(f"the policy does not name the columns that it reads; the export reads {columns.needed}")
    return columns
