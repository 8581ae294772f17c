"""Arguments and flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", help="The least and most that custom('visit') can be: visit=0:10."),
]
