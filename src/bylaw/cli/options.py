"""Arguments and flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COLUMNS = "Columns, if not as the rules file or the policy says"

Table = Annotated[
    Path, typer.Argument(help="CSV, Parquet, Arrow or JSON lines, by its ending.", show_default=False)
]
PolicyPath = Annotated[Path, typer.Argument(help="A policy, as `bylaw fit` writes it.", show_default=False)]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", "-r", help="A TOML file with rules; see `bylaw rules`.", show_default=False),
]
Rule = Annotated[
    list[str] | None, typer.Option("--rule", help="One rule, such as 'rejected() <= 0.1'; may be repeated.")
]
Minimize = Annotated[
    str | None, typer.Option("--minimize", help="What to minimise; error() if nobody says otherwise.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Confidence = Annotated[float, typer.Option(help="Of each bound and certificate.")]

_SCORES = "Columns of P(class): a pattern, p_*, or names with commas."
Probabilities = Annotated[
    str | None, typer.Option("--probabilities", "--scores", help=_SCORES, rich_help_panel=COLUMNS)
]
Scores = Annotated[str | None, typer.Option(help=_SCORES, rich_help_panel=COLUMNS)]
Classes = Annotated[
    str | None,
    typer.Option(help="The classes, with commas, in the order of the columns.", rich_help_panel=COLUMNS),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", help="A known group: its name, or NAME=COLUMN.", rich_help_panel=COLUMNS),
]
GroupProbabilities = Annotated[
    list[str] | None,
    typer.Option(help="An unknown group: NAME=PATTERN, race=race_*.", rich_help_panel=COLUMNS),
]
TrueGroup = Annotated[
    list[str] | None,
    typer.Option(
        "--true-group", help="What was seen of an unknown group: NAME=COLUMN.", rich_help_panel=COLUMNS
    ),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(help="An earlier model: NAME=COLUMN of its labels, or a pattern.", rich_help_panel=COLUMNS),
]
Label = Annotated[str | None, typer.Option(help="The column of true labels.", rich_help_panel=COLUMNS)]
Weight = Annotated[str | None, typer.Option(help="The column of weights.", rich_help_panel=COLUMNS)]
Normalize = Annotated[
    bool,
    typer.Option(
        "--normalize", help="Divide probabilities by their sum: they were rounded.", rich_help_panel=COLUMNS
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", help="The least and most that custom('visit') can be: visit=0:10."),
]
IdColumn = Annotated[str | None, typer.Option(help="The column of ids.", rich_help_panel=COLUMNS)]
