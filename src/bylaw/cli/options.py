"""Options that several commands share, and checks of options that need no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand
from typer.main import get_command

from bylaw.cli.console import warn
from bylaw.errors import OptionError
from bylaw.rows import parse_values

if TYPE_CHECKING:
    from bylaw.cli.tables import Reading

T = TypeVar("T", bound=Callable[..., Any])
FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "json", "jsonl")
MIN_KEY_BYTES = 16  # 128 bits cannot be guessed
_NEW_KEY = "make one with: openssl rand -hex 32"

# Names of shared options, by what a command reads of a table.
SCORED = ("scores", "positive", "group", "group_probabilities", "reference")
LABELED = (*SCORED, "true_group", "label")
READ = ("normalize", "delimiter", "format_")
TESTS = ("confidence", "limit", "largest_weight", "outcomes")

# Arguments and options that commands have in their signatures.
Table = Annotated[
    Path,
    typer.Argument(
        help="A CSV, Parquet, Arrow or JSON file; a folder of such files; a quoted pattern, "
        "'scores/*.parquet'; or -, standard input.",
        show_default=False,
    ),
]
PolicyPath = Annotated[Path, typer.Argument(help="A policy file, from `bylaw fit`.", show_default=False)]


def share(*names: str) -> Callable[[T], T]:
    """Declare that a command has these shared options; their values are attributes of `context.obj`."""

    def mark(command: T) -> T:
        command.__dict__["shared"] = names
        return command

    return mark


class SharingCommand(TyperCommand):
    """A command with the options in its signature and the shared options that `share` names."""

    def __init__(self, *args: Any, callback: Any, params: Any, **settings: Any) -> None:
        shared = [_SHARED[name] for name in getattr(callback, "shared", ())]
        super().__init__(*args, callback=callback, params=[*params, *shared], **settings)


def _column(text: str, *flags: str) -> Any:
    """Return an option that names columns; help lists all of these in one panel."""
    panel = "Columns, if they differ from the rules file or the policy"
    return typer.Option(*flags, help=text, rich_help_panel=panel)


def _declare(
    # Options that name columns; `state_columns` reads them.
    scores: Annotated[
        str | None, _column("Columns of P(class): a pattern such as p_*, or names with commas.")
    ] = None,
    positive: Annotated[
        str | None, _column("The class whose probability is in the single column of --scores.")
    ] = None,
    classes: Annotated[str | None, _column("The classes, with commas, in the order of the columns.")] = None,
    group: Annotated[
        list[str] | None, _column("A group that is known at decision time: NAME, or NAME=COLUMN.")
    ] = None,
    group_probabilities: Annotated[
        list[str] | None, _column("A group known only by probabilities: NAME=PATTERN, as in race=race_*.")
    ] = None,
    true_group: Annotated[list[str] | None, _column("Observed values of such a group: NAME=COLUMN.")] = None,
    reference: Annotated[
        list[str] | None, _column("An earlier model: NAME=COLUMN of its labels, or a pattern.")
    ] = None,
    label: Annotated[str | None, _column("The column of true labels.")] = None,
    weight: Annotated[str | None, _column("The column of sample weights.")] = None,
    propensity_weights: Annotated[
        str | None, _column("The column of 1/P(observed), if labels or groups are missing.")
    ] = None,
    id_column: Annotated[str | None, _column("The column of ids.")] = None,
    normalize: Annotated[bool, _column("Divide rounded probabilities by their sum.", "--normalize")] = False,
    # Options of how tables are read.
    delimiter: Annotated[
        str | None, typer.Option(help="The delimiter of CSV files, such as ';'.", show_default="a comma")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"The format of a table that is -, or of parts that decide writes: {', '.join(FORMATS)}.",
        ),
    ] = None,
    scanned: Annotated[
        bool | None,
        typer.Option(
            "--scan/--in-memory",
            help="Scan the rows several times, or read them all into memory; by default, it depends on the "
            "size.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Use a random sample of this many rows of a table that does not fit.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the sample.", show_default="0")] = None,
    # Other options.
    previous: Annotated[
        Path | None,
        typer.Option(help="The earlier policy, if a rule counts changed decisions; see `bylaw refit`."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", "-r", help="A TOML file with rules; see `bylaw rules`.")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="One rule, such as 'rejected() <= 0.1'; may be repeated.")
    ] = None,
    other_rules: Annotated[
        Path | None,
        typer.Option("--rules", "-r", help="Use the rules of this file, not those of the policy."),
    ] = None,
    other_rule: Annotated[
        list[str] | None, typer.Option("--rule", help="Use this rule, not those of the policy.")
    ] = None,
    minimize: Annotated[
        str | None, typer.Option(help="The rate to minimize; by default the file's, or error().")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    confidence: Annotated[
        float | None, typer.Option(help="The confidence of bounds and certificates.", show_default="0.95")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="The smallest and largest value of custom('visit'), as visit=0:10."),
    ] = None,
    largest_weight: Annotated[
        float | None,
        typer.Option(help="The largest possible weight of a held-out row, if rows have weights."),
    ] = None,
    outcomes: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of observed values of custom('visit'): visit=seen_visit_*; or visit=known."
        ),
    ] = None,
    min_cell: Annotated[
        int | None,
        typer.Option(
            help="Hide rates and counts of groups with fewer rows; 0 hides none.", min=0, show_default="10"
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The title of the report.", show_default="Policy report")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="The owner of the policy, for the report.")] = None,
    model_version: Annotated[
        str | None, typer.Option(help="The version of the model that gave the scores, for the report.")
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(
            help="Tighten each rule by this many standard errors, for new rows. 'auto': all rules hold on "
            "new rows with about 95 %, the default of ConstrainedClassifier.",
            show_default="0",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="The key of the random draws; by default the policy's hash. Keep one over releases."
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="A file with a secret key, if people can choose their ids.")
    ] = None,
) -> None:
    """Declare, as arguments, the options that several commands share."""


def _keep(context: Any, option: Any, value: Any) -> None:
    """Store the value of a shared option in the context of its command."""
    if option.name in ("previous", "rules", "other_rules", "key_file") and value is not None:
        value = Path(value)  # older versions of Typer convert it only for the function of a command
    context.obj = context.obj or SimpleNamespace()
    setattr(context.obj, option.name, value)


def _make_shared() -> dict[str, Any]:
    """Return the shared options by name."""
    declared = typer.Typer(add_completion=False)
    declared.command()(_declare)
    shared: dict[str, Any] = {str(option.name): option for option in get_command(declared).params}
    for option in shared.values():
        option.expose_value, option.callback = False, _keep
    return shared


_SHARED = _make_shared()


def state_columns(given: Any) -> dict[str, Any]:
    """Return {role: columns} as the options of a command name them, such as {"label": "y"}."""
    options: dict[str, Any] = vars(given)
    for name in ("scores", "positive", "classes", "label", "weight", "propensity_weights", "id_column"):
        if options.get(name) == "":
            raise OptionError(f"--{name.replace('_', '-')} must name a column or value, got an empty text")
    scores = (options.get("scores") or "").split(",")
    stated = {
        "probabilities": scores if len(scores) > 1 else scores[0],
        "classes": parse_values(options["classes"].split(",")) if options.get("classes") else None,
        "groups": parse_pairs(options.get("group"), "--group"),
        "group_probabilities": parse_pairs(options.get("group_probabilities"), "--group-probabilities"),
        "true_groups": parse_pairs(options.get("true_group"), "--true-group"),
        "references": parse_pairs(options.get("reference"), "--reference"),
        "id": options.get("id_column"),
        **{n: options.get(n) for n in ("positive", "label", "weight", "propensity_weights", "normalize")},
    }
    if both := stated["groups"].keys() & stated["group_probabilities"]:
        raise OptionError(
            f"each group must be known (--group) or unknown (--group-probabilities), got both for {min(both)}"
        )
    return {role: value for role, value in stated.items() if value}


def parse_pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    """Return {name: column} for texts NAME=COLUMN, or NAME if the column has the same name."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not name or (equals and not column):
            raise OptionError(f"{flag} must be NAME=COLUMN, got {text!r}")
        if name in pairs:
            raise OptionError(f"{flag} must be given once for each name, got {name} twice")
        pairs[name] = column or name
    return pairs


def refuse(reason: str, **options: Any) -> None:
    """Raise an error with this reason for the first of these options that was given."""
    for name, value in options.items():
        if value is not None and value is not False and value not in ([], ()):
            raise OptionError(f"--{name.replace('_', '-')} {reason}")


def refuse_idle(without: str, **options: Any) -> None:
    """Raise if one of these options was given, because it has no effect without another option."""
    refuse(f"has no effect without {without}", **options)


def refuse_idle_tests(given: Any, without: str) -> None:
    """Raise if an option about tests was given, because it has no effect without held-out rows."""
    refuse_idle(without, **{name: getattr(given, name) for name in TESTS})


def keep_given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, without those that are None."""
    return {name: value for name, value in options.items() if value is not None}


def check_confidence(confidence: float | None) -> float:
    """Return the confidence or its default; raise if it is not between 0 and 1."""
    from bylaw._base import CONFIDENCE, check_fraction

    return CONFIDENCE if confidence is None else check_fraction(confidence, "confidence")


def parse_margin(text: str | None) -> dict[str, Any]:
    """Return the argument `margin` of `solve`, as a dict that is empty if no margin was given."""
    if text is None or text == "auto":
        return keep_given(margin=text)
    try:
        return {"margin": float(text)}
    except ValueError:
        raise OptionError(f"--margin must be a number of standard errors or 'auto', got {text!r}") from None


def make_reading(given: Any) -> Reading:
    """Return the way to read tables into memory that --sample and --seed specify."""
    from bylaw.cli.tables import Reading

    sample, seed = given.sample, given.seed
    if sample is None:
        refuse_idle("--sample", seed=seed)
    elif sample < 1:
        raise OptionError(f"--sample must be a number of rows, at least 1, got {sample}")
    if (seed or 0) < 0:
        raise OptionError(f"--seed must be a whole number of at least 0, got {seed}")
    return Reading("use a random sample of them: --sample 1000000", sample, seed or 0)


def read_key(given: Any) -> str | None:
    """Return the key of random draws, from --key or from the file of --key-file."""
    key, path = given.key, given.key_file
    if path is None:
        return key
    if key is not None:
        raise OptionError("--key and --key-file cannot be combined; pass one of them")
    if path.is_dir():
        raise OptionError(f"--key-file must be a file with a secret, got the folder {path}; {_NEW_KEY}")
    secret = path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < MIN_KEY_BYTES:
        raise OptionError(
            f"--key-file: the secret in {path} must have {MIN_KEY_BYTES} bytes or more, got {len(secret)}; "
            f"{_NEW_KEY}"
        )
    if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
        warn(f"--key-file: all users of this machine can read {path}; protect it with: chmod 600 {path}")
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise OptionError(
            f"--key-file: {path} must be UTF-8 text, so that databases accept it; {_NEW_KEY}"
        ) from None
