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
    from bylaw.cli.tables import Reading

FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "json", "jsonl")
MIN_KEY_BYTES = 16  # 128 bits, which cannot be guessed
_NEW_KEY = "make one with: openssl rand -hex 32"


def _column(flag: str, text: str) -> Any:
    """Return an option that names columns; the help lists these together."""
    return typer.Option(
        flag, help=text, rich_help_panel="Columns, if they differ from the rules file or the policy"
    )


# Options that name columns; `state_columns` reads them from the context of the command.
Scores = Annotated[
    str | None, _column("--scores", "Columns of P(class): a pattern such as p_*, or names with commas.")
]
Positive = Annotated[
    str | None, _column("--positive", "The class, of two, whose probability the one column of --scores is.")
]
Classes = Annotated[
    str | None, _column("--classes", "The classes, with commas, in the order of the columns.")
]
Group = Annotated[list[str] | None, _column("--group", "A known group: its name, or NAME=COLUMN.")]
GroupProbabilities = Annotated[
    list[str] | None, _column("--group-probabilities", "An unknown group: NAME=PATTERN, as in race=race_*.")
]
TrueGroup = Annotated[
    list[str] | None, _column("--true-group", "Observed values of an unknown group: NAME=COLUMN.")
]
Reference = Annotated[
    list[str] | None, _column("--reference", "An earlier model: NAME=COLUMN of its labels, or a pattern.")
]
Label = Annotated[str | None, _column("--label", "The column of true labels.")]
Weight = Annotated[str | None, _column("--weight", "The column of sample weights.")]
PropensityWeights = Annotated[
    str | None,
    _column("--propensity-weights", "The column of 1/P(observed), if labels or groups are missing."),
]
IdColumn = Annotated[str | None, _column("--id-column", "The column of ids.")]
Normalize = Annotated[bool, _column("--normalize", "Divide rounded probabilities by their sum.")]

# Options of how tables are read.
Table = Annotated[
    Path,
    typer.Argument(
        help="A CSV, Parquet, Arrow or JSON file; a folder of such files; a quoted pattern, "
        "'scores/*.parquet'; or -, standard input.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", help="The delimiter of CSV files, such as ';'.", show_default="a comma"),
]
InputFormat = Annotated[
    str | None, typer.Option("--format", help=f"The format of a table that is -: {', '.join(FORMATS)}.")
]
Scanned = Annotated[
    bool | None,
    typer.Option(
        "--scan/--in-memory",
        help="Scan the rows several times, or read them all into memory; by default, it depends on the size.",
        show_default=False,
    ),
]
Sample = Annotated[
    int | None, typer.Option(help="Use a random sample of this many rows of a table that does not fit.")
]
Seed = Annotated[int | None, typer.Option(help="The seed of the sample.", show_default="0")]

# Other options.
PolicyPath = Annotated[Path, typer.Argument(help="A policy file, from `bylaw fit`.", show_default=False)]
Previous = Annotated[
    Path | None,
    typer.Option(help="The earlier policy, if a rule counts changed decisions; see `bylaw refit`."),
]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", "-r", help="A TOML file with rules; see `bylaw rules`.", show_default=False),
]
Rule = Annotated[
    list[str] | None, typer.Option("--rule", help="One rule, such as 'rejected() <= 0.1'; may be repeated.")
]
OtherRules = Annotated[
    Path | None, typer.Option("--rules", "-r", help="Use the rules of this file, not those of the policy.")
]
OtherRule = Annotated[
    list[str] | None, typer.Option("--rule", help="Use this rule, not those of the policy.")
]
Minimize = Annotated[
    str | None, typer.Option("--minimize", help="The rate to minimize; by default the file's, or error().")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Confidence = Annotated[
    float | None, typer.Option(help="The confidence of bounds and certificates.", show_default="0.95")
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", help="The least and the most value of custom('visit'): visit=0:10."),
]
LargestWeight = Annotated[
    float | None, typer.Option(help="The largest possible weight of a held-out row, if rows have weights.")
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(
        "--outcomes",
        help="Columns of observed values of custom('visit'): visit=seen_visit_*; or visit=known.",
    ),
]
MinCell = Annotated[
    int | None,
    typer.Option(
        help="Hide rates and counts of groups with fewer rows; 0 hides none.", min=0, show_default="10"
    ),
]
Title = Annotated[str | None, typer.Option(help="The title of the report.", show_default="Policy report")]
Owner = Annotated[str | None, typer.Option(help="The owner of the policy, for the report.")]
ModelVersion = Annotated[
    str | None, typer.Option(help="The version of the model that gave the scores, for the report.")
]
Margin = Annotated[
    str | None,
    typer.Option(
        help="Tighten each rule by this many standard errors, for new rows. 'auto': all rules hold on new "
        "rows with about 95 %, the default of ConstrainedClassifier.",
        show_default="0",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", help="The key of the random draws; by default the policy's hash. Keep one over releases."
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="A file with a secret key, if people can choose their ids.")
]


def state_columns(context: typer.Context) -> dict[str, Any]:
    """Return the columns by role, as the options of a command state them."""
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
        "id": given.get("id_column"),
        **{name: given.get(name) for name in ("label", "weight", "propensity_weights", "normalize")},
    }
    if both := stated["groups"].keys() & stated["group_probabilities"]:
        raise OptionError(f"{min(both)} is either known, --group, or not, --group-probabilities")
    return {role: value for role, value in stated.items() if value}


def parse_pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    """Return {name: column} for texts NAME=COLUMN, or NAME if both are the same."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not name or (equals and not column):
            raise OptionError(f"{flag} must be NAME=COLUMN, got {text!r}")
        if name in pairs:
            raise OptionError(f"{flag} {name} is given twice")
        pairs[name] = column or name
    return pairs


def refuse(reason: str, **options: Any) -> None:
    """Raise an error with the reason if one of these options was given, and name that option."""
    for name, value in options.items():
        if value is not None and value is not False and value not in ([], ()):
            raise OptionError(f"--{name.replace('_', '-')} {reason}")


def refuse_idle(without: str, **options: Any) -> None:
    """Raise an error if one of these options was given, which have no effect without another one."""
    refuse(f"has no effect without {without}", **options)


def refuse_idle_tests(context: typer.Context, without: str) -> None:
    """Raise an error if an option of tests on held-out rows was given, and no held-out rows."""
    names = ("confidence", "limit", "outcomes", "largest_weight")
    refuse_idle(without, **{name: context.params.get(name) for name in names})


def keep_given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the library has the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None}


def check_confidence(confidence: float | None) -> float:
    """Return the confidence, or its default, or raise if it is not between 0 and 1."""
    from bylaw._base.validation import CONFIDENCE, check_fraction

    return CONFIDENCE if confidence is None else check_fraction(confidence, "confidence")


def parse_margin(text: str | None) -> dict[str, Any]:
    """Return the option `margin` of a solve, a number of standard errors or "auto", if it was given."""
    from bylaw._base.validation import check_margin

    if text is None or text == "auto":
        return keep_given(margin=text)
    try:
        margin = float(text)
    except ValueError:
        raise OptionError(f"--margin must be a number of standard errors or 'auto', got {text!r}") from None
    return {"margin": check_margin(margin)}


def make_reading(sample: int | None, seed: int | None) -> Reading:
    """Return how a command reads tables that it can sample."""
    from bylaw.cli.tables import Reading

    if sample is None:
        refuse_idle("--sample", seed=seed)
    elif sample < 1:
        raise OptionError(f"--sample must be a number of rows, at least 1, got {sample}")
    if (seed or 0) < 0:
        raise OptionError(f"--seed must be a whole number from 0 on, got {seed}")
    return Reading("use a random sample of them: --sample 1000000", sample, seed or 0)


def read_key(key: str | None, path: Path | None) -> str | None:
    """Return the key of random draws as it was given, or from a file without the end of its last line."""
    if path is None:
        return key
    if key is not None:
        raise OptionError("give either --key or --key-file")
    if path.is_dir():
        raise OptionError(f"--key-file: {path} is a folder; {_NEW_KEY}")
    secret = path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < MIN_KEY_BYTES:
        raise OptionError(
            f"--key-file: a secret must have {MIN_KEY_BYTES} bytes or more, and {path} has {len(secret)}; "
            f"{_NEW_KEY}"
        )
    if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
        warn(f"--key-file: all users of this machine can read {path}; chmod 600 it")
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise OptionError(
            f"--key-file: {path} must be UTF-8 text, which databases can take; {_NEW_KEY}"
        ) from None
