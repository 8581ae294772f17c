"""Options that several commands share, and checks of them that need no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli.console import warn
from bylaw.errors import OptionError
from bylaw.rows.text_values import parse_values

if TYPE_CHECKING:
    from bylaw.cli.inputs import Reading

FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "json", "jsonl")
MIN_KEY_BYTES = 16  # 128 bits, which cannot be guessed
_NEW_KEY = "make one with: openssl rand -hex 32"


def _column(flag: str, text: str) -> Any:
    """Return an option that names columns; all of these are listed together in the help."""
    return typer.Option(
        flag, help=text, rich_help_panel="Columns, if other than the rules file or the policy states"
    )


# Options that name columns, by the names that `state_columns` looks for.
Scores = Annotated[
    str | None, _column("--scores", "Columns of P(class): a pattern, p_*, or names with commas.")
]
Positive = Annotated[
    str | None,
    _column("--positive", "Of two classes, the one whose P(class) the one column of --scores holds."),
]
Classes = Annotated[
    str | None, _column("--classes", "The classes, with commas, in the order of the columns.")
]
Group = Annotated[list[str] | None, _column("--group", "A known group: its name, or NAME=COLUMN.")]
GroupProbabilities = Annotated[
    list[str] | None, _column("--group-probabilities", "An unknown group: NAME=PATTERN, race=race_*.")
]
TrueGroup = Annotated[
    list[str] | None, _column("--true-group", "Observed values of an unknown group: NAME=COLUMN.")
]
Reference = Annotated[
    list[str] | None,
    _column("--reference", "An earlier model: NAME=COLUMN of its labels, or a pattern."),
]
Label = Annotated[str | None, _column("--label", "The column of true labels.")]
Weight = Annotated[str | None, _column("--weight", "The column of sample weights.")]
SeenWeights = Annotated[
    str | None,
    _column("--propensity-weights", "Where labels or groups are missing: the column of 1/P(seen)."),
]
IdColumn = Annotated[str | None, _column("--id-column", "The column of ids.")]
Normalize = Annotated[bool, _column("--normalize", "Divide probabilities by their sum: they were rounded.")]

# Options of how tables are read.
Table = Annotated[
    Path,
    typer.Argument(
        help="CSV, Parquet, Arrow or JSON, by its ending; a folder of such files, a quoted pattern, "
        "'scores/*.parquet', or -, standard input.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="Between the columns of CSV files that are read, such as ';'.",
        show_default="a comma",
    ),
]
InputFormat = Annotated[
    str | None, typer.Option("--format", help=f"Of a table that is -: {', '.join(FORMATS)}.")
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

# Other options.
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
OtherRules = Annotated[
    Path | None, typer.Option("--rules", "-r", help="The rules of this file, not those of the policy.")
]
OtherRule = Annotated[list[str] | None, typer.Option("--rule", help="These rules, not those of the policy.")]
Minimize = Annotated[
    str | None, typer.Option("--minimize", help="The rate to minimize; by default the file's, or error().")
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
Key = Annotated[
    str | None,
    typer.Option("--key", help="Of the random draws; by default the policy's hash. Keep one over releases."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="A file with a secret key, where people may choose their ids."),
]


def state_columns(context: typer.Context) -> dict[str, Any]:
    """Return what the options of a command state about columns, by role, as a rules file would."""
    given = context.params
    for name in ("scores", "positive", "classes", "label", "weight", "propensity_weights", "id_column"):
        if given.get(name) == "":
            raise OptionError(f"--{name.replace('_', '-')} is empty")
    scores = (given.get("scores") or "").split(",")
    stated = {
        "probabilities": scores if len(scores) > 1 else scores[0],
        "positive": given.get("positive"),
        "classes": parse_values(given["classes"].split(",")) if given.get("classes") else None,
        "groups": parse_pairs(given.get("group"), "--group"),
        "group_probabilities": parse_pairs(given.get("group_probabilities"), "--group-probabilities"),
        "true_groups": parse_pairs(given.get("true_group"), "--true-group"),
        "references": parse_pairs(given.get("reference"), "--reference"),
        "label": given.get("label"),
        "weight": given.get("weight"),
        "propensity_weights": given.get("propensity_weights"),
        "id": given.get("id_column"),
        "normalize": given.get("normalize"),
    }
    if both := stated["groups"].keys() & stated["group_probabilities"]:
        raise OptionError(f"{min(both)} is either known, --group, or not, --group-probabilities")
    return {role: value for role, value in stated.items() if value}


def parse_pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    """Return {name: column} of texts NAME=COLUMN, or of NAME alone, which is the name of its column."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not name or (equals and not column):
            raise OptionError(f"{flag} is NAME=COLUMN, not {text!r}")
        if name in pairs:
            raise OptionError(f"{flag} {name} is given twice")
        pairs[name] = column or name
    return pairs


def refuse(reason: str, **options: Any) -> None:
    """Raise an error that names the first of these options that was given, and the reason against it."""
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise OptionError(f"--{name.replace('_', '-')} {reason}")


def refuse_idle(without: str, **options: Any) -> None:
    """Raise an error if one of these options was given, which have no effect without another one."""
    refuse(f"has no effect without {without}", **options)


def keep_given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; of the others, the library knows the defaults."""
    return {name: value for name, value in options.items() if value is not None}


def check_confidence(confidence: float | None) -> float:
    """Return the confidence that was asked for, or the default."""
    from bylaw._base.validation import CONFIDENCE, check_fraction

    return CONFIDENCE if confidence is None else check_fraction(confidence, "confidence")


def parse_margin(text: str) -> float | str:
    """Return a number of standard errors, or "auto"."""
    from bylaw._base.validation import check_margin

    if text == "auto":
        return text
    try:
        margin = float(text)
    except ValueError:
        raise OptionError(f"--margin is a number of standard errors or 'auto', not {text!r}") from None
    return check_margin(margin)


def make_reading(sample: int | None, seed: int | None) -> Reading:
    """Return how tables are read by commands that can go by a sample."""
    from bylaw.cli.inputs import Reading

    if sample is None:
        refuse_idle("--sample", seed=seed)
    elif sample < 1:
        raise OptionError(f"--sample is a number of rows, at least 1, not {sample}")
    if (seed or 0) < 0:
        raise OptionError(f"--seed is a whole number from 0 on, not {seed}")
    return Reading("go by a random sample of them: --sample 1000000", sample, seed or 0)


def read_key(key: str | None, path: Path | None) -> str | None:
    """Return the key of random draws: as it was given, or from a file, without the end of its last line."""
    if path is None:
        return key
    if key is not None:
        raise OptionError("give either --key or --key-file")
    if path.is_dir():
        raise OptionError(f"--key-file: {path} is a folder; {_NEW_KEY}")
    secret = path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < MIN_KEY_BYTES:
        raise OptionError(
            f"--key-file: {path} has {len(secret)} bytes, and a secret has {MIN_KEY_BYTES} at least; "
            f"{_NEW_KEY}"
        )
    if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
        warn(f"--key-file: everybody on this machine can read {path}; chmod 600 it")
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise OptionError(
            f"--key-file: {path} is no text (UTF-8), as databases take it; {_NEW_KEY}"
        ) from None
