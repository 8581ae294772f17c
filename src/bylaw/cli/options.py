"""Arguments and flags that several commands share, and checks of them before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.errors import OptionError

if TYPE_CHECKING:
    from bylaw.cli.reading import Reading

Table = Annotated[
    Path,
    typer.Argument(
        help="CSV, Parquet, Arrow or JSON, by its ending; a folder of such files, a quoted pattern, "
        "'scores/*.parquet', or -, standard input.",
        show_default=False,
    ),
]
Scanned = Annotated[
    bool | None,
    typer.Option(
        "--scan/--in-memory",
        help="Go over the rows several times, or read them all at once; by default, whether they fit.",
        show_default=False,
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(help="Go by a random sample of so many rows, where a table does not fit in memory."),
]
Seed = Annotated[int | None, typer.Option(help="Of that sample.", show_default="0")]
PolicyPath = Annotated[Path, typer.Argument(help="A policy, as `bylaw fit` writes it.", show_default=False)]
Previous = Annotated[
    Path | None,
    typer.Option(
        help="The earlier policy, where a rule counts the decisions that changed since; see `bylaw refit`."
    ),
]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", "-r", help="A TOML file with rules; see `bylaw rules`.", show_default=False),
]
Rule = Annotated[
    list[str] | None, typer.Option("--rule", help="One rule, such as 'rejected() <= 0.1'; may be repeated.")
]
Minimize = Annotated[
    str | None, typer.Option("--minimize", help="The rate to minimise; by default the file's, or error().")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Confidence = Annotated[
    float | None, typer.Option(help="The confidence of each bound and certificate.", show_default="0.95")
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", help="The least and most that custom('visit') can be: visit=0:10."),
]
LargestWeight = Annotated[
    float | None,
    typer.Option(help="The largest weight that a held-out row can have, where rows have weights."),
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(
        "--outcomes",
        help="Columns of what custom('visit') turned out to be, visit=seen_visit_*; or visit=known.",
    ),
]
MinCell = Annotated[
    int | None,
    typer.Option(
        help="Show no rates and counts of groups with fewer rows; 0 shows all.", min=0, show_default="10"
    ),
]
Title = Annotated[str | None, typer.Option(help="The title of the report.", show_default="Policy report")]
Owner = Annotated[str | None, typer.Option(help="Who answers for the policy, in the report.")]
ModelVersion = Annotated[
    str | None, typer.Option(help="The version of the model that gave the scores, in the report.")
]
Margin = Annotated[
    str | None,
    typer.Option(
        help="Tighten every rule by so many standard errors, for new rows; 'auto': until all hold there with "
        "about 95 %. That is the default of ConstrainedClassifier; here it is 0, as of `bylaw frontier` and "
        "the studio, whose figures are those of the table.",
        show_default="0",
    ),
]


def check_confidence(confidence: float | None) -> float:
    """The confidence that was asked for, or the default."""
    from bylaw._base.validation import CONFIDENCE, check_fraction

    return CONFIDENCE if confidence is None else check_fraction(confidence, "confidence")


def check_min_cell(min_cell: int | None) -> int:
    """Return the number of rows from which groups are shown, or the default."""
    from bylaw._base.validation import MIN_CELL

    return MIN_CELL if min_cell is None else min_cell


def parse_margin(text: str) -> float | str:
    """Standard errors, or "auto"."""
    from bylaw._base.validation import check_margin

    if text == "auto":
        return text
    try:
        return check_margin(float(text))
    except ValueError as problem:
        if isinstance(problem, OptionError):
            raise
        raise OptionError(f"--margin is a number of standard errors or 'auto', not {text!r}") from None


def make_reading(sample: int | None, seed: int | None) -> Reading:
    """How tables are read by commands that can go by a sample."""
    from bylaw.cli.reading import Reading

    if sample is None:
        refuse_idle({"--seed": seed}, "--sample")
    elif sample < 1:
        raise OptionError(f"--sample is a number of rows, at least 1, not {sample}")
    if (seed or 0) < 0:
        raise OptionError(f"--seed is a whole number from 0 on, not {seed}")
    return Reading("go by a random sample of them: --sample 1000000", sample, seed or 0)


def refuse_idle(flags: Mapping[str, Any], without: str) -> None:
    """An error that names the first of these flags that was given, since it has no effect without others."""
    for flag, value in flags.items():
        if value is not None and value is not False and value != []:
            raise OptionError(f"{flag} has no effect without {without}")
