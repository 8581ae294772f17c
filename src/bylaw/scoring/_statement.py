"""A policy as one SELECT statement: probabilities of the decisions on each row, and decisions by id."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from bylaw._base import HEX_DIGITS, PER_DIGEST, check_key
from bylaw.errors import OptionError
from bylaw.rows import Columns
from bylaw.scoring._printers import Dialect, DialectName, SqlPrinter, get_dialect, write_comment
from bylaw.scoring._program import Features, compute_probabilities, describe_policy
from bylaw.scoring._vectors import Vector, apply, case, constant, join, linear, read

if TYPE_CHECKING:
    from bylaw.policy import Policy

_PLACEHOLDER = re.compile(r"\?|%s|%\([A-Za-z_][A-Za-z0-9_]*\)s|[$:@][A-Za-z0-9_]{1,30}", re.ASCII)
_HERE = "\0"  # where the parameter goes: no name and no text can have it


def to_sql(
    policy: Policy,
    columns: Columns,
    *,
    dialect: DialectName,
    table: str | Sequence[str],
    id_column: str | None = None,
    key: str | None = None,
    key_parameter: str | None = None,
    keep: Sequence[str] = (),
    probabilities: bool = True,
) -> str:
    """Return a policy as one SELECT statement, with its probabilities and its decisions by id.

    The probabilities are those of `policy.probabilities`, the decisions those of `policy.decide`. The
    columns of the result are the id, those to keep, "p_<action>" for each action and, with an id,
    "decision"; for sets, "p_<label>" is the probability that the label is in, and "in_<label>" whether it
    is. Actions of several types, such as 0, 1 and "reject", are decided as text.

    If `policy.probabilities` would refuse a row (a value that is missing, unknown or not finite,
    probabilities that are outside [0, 1] or do not sum to one within 1e-4), or if the id is missing, the row
    gets NULL.

    Parameters
    ----------
    policy : Policy
        without Python functions in its rules.
    columns : Columns
        which column of the table holds what.
    dialect : {"duckdb", "postgres", "bigquery", "snowflake", "spark"}
        of the database; PostgreSQL 12 or later.
    table : str or sequence of str
        its name; dots separate the parts of a qualified one, unless the parts are given one by one.
        All names are quoted, so they are case-sensitive where quoted names are.
    id_column : str, optional
        ids, text or whole numbers: the decision is that of `policy.decide(evidence, ids=..., key=...)`.
    key : str, optional
        of the hash, with an `id_column`; by default the policy's digest. It is written into the statement,
        so it must not be a secret.
    key_parameter : str, optional
        instead of `key`: the placeholder of a parameter that holds it, once in the statement, as your driver
        writes them: "?", "$1", "$key", ":key", "@key", "%s" or "%(key)s". So a secret key is in no file.
    keep : sequence of str, default=()
        columns of the table to have in the result.
    probabilities : bool, default=True
        whether the result has the columns "p_<action>".

    Returns
    -------
    str
        the statement.

    Raises
    ------
    OptionError
        if the columns lack something that the policy reads, or a name does not serve in this dialect.

    Examples
    --------
    >>> from bylaw import Columns, Evidence, Problem, error, rejected, solve
    >>> from bylaw.export import to_sql
    >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], classes=["no", "yes"])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    >>> columns = Columns(["p_no", "p_yes"], classes=["no", "yes"])
    >>> statement = to_sql(policy, columns, dialect="duckdb", table="scores", id_column="id")
    >>> [line for line in statement.splitlines() if line.startswith("-- subject to")]
    ['-- subject to rejected() <= 0.2']
    """
    _check_key(key, key_parameter, id_column)
    if isinstance(keep, str):
        raise OptionError(f"keep must be a list of columns, got a text: pass keep=[{keep!r}]")
    if not probabilities and id_column is None:
        raise OptionError("without probabilities there are decisions alone, which need id_column=")
    language = get_dialect(dialect)
    carried = [column for column in dict.fromkeys([id_column, *keep]) if column is not None]
    features = Features(policy.feature_map, columns, policy.calibration)
    chances = compute_probabilities(policy, features, features.is_valid())
    kept = read(*carried).named("kept")
    results = [kept, *([chances] if probabilities else [])]
    if id_column is not None:
        literal = constant(f"{policy.digest if key is None else key}/")
        prefix = literal if key_parameter is None else apply("{} || {}", read(_HERE), constant("/"))
        results.append(_draw_decisions(policy, chances, kept.take([0]), prefix, language))
    names = name_results(
        policy,
        carried,
        probabilities=probabilities,
        decisions=id_column is not None,
        alias=language.make_alias,
    )
    sources = {column: language.quote_name(column) for column in carried}
    sources |= {_HERE: language.cast(_HERE, language.text)}
    printer = SqlPrinter(language, features, sources)
    parts = table.split(".") if isinstance(table, str) else list(table)
    source = ".".join(language.quote_name(part) for part in parts)
    lines = [f"A policy for {language.title}, by bylaw {version('bylaw')}", *describe_policy(policy)]
    lines += ["A row with a missing value, or with one that the policy was not fitted on, gets NULL."]
    if id_column is not None:
        hashed = repr(policy.digest if key is None else key) if key_parameter is None else "the parameter"
        lines += [f"Decisions are sampled by the SHA-256 of {hashed}, a slash and the id."]
    header = "\n".join(write_comment(line) for line in lines)
    statement = f"{header}\n{printer.write_statement(results, names, source)}\n"
    if key_parameter is None:
        return statement
    # Drivers that write parameters with % read every other one as %%.
    plain = statement.replace("%", "%%") if key_parameter.startswith("%") else statement
    return plain.replace(_HERE, key_parameter)


def _check_key(key: str | None, key_parameter: str | None, id_column: str | None) -> None:
    if (key is not None or key_parameter is not None) and id_column is None:
        raise OptionError("key= is for decisions by id, which need id_column=")
    if key is not None:
        check_key(key)
        if key_parameter is not None:
            raise OptionError("pass either key=, which is written into the statement, or key_parameter=")
    if key_parameter is not None and not _PLACEHOLDER.fullmatch(str(key_parameter)):
        raise OptionError(
            "key_parameter is a placeholder such as '?', '$1', '$key', ':key', '@key', '%s' or '%(key)s'; it "
            "is not the key itself"
        )


def _draw_decisions(
    policy: Policy, chances: Vector, ids: Vector, prefix: Vector, language: Dialect
) -> Vector:
    """Return the decisions by id: of sets, whether each label is in."""
    text = apply(language.cast("{}", language.text), ids)
    message = apply("{} || {}", prefix, text).named("message")
    exclusive, n_actions = policy.action_space.exclusive, len(policy.actions)
    n_draws = 1 if exclusive else n_actions
    hashes = join(
        apply(language.sha256, message if exclusive else apply("{} || {}", message, constant(f"/{i}")))
        for i in range(-(-n_draws // PER_DIGEST))
    ).named("hash")
    uniforms = []
    for position in range(n_draws):
        start = HEX_DIGITS * (position % PER_DIGEST) + 1
        digits = apply(f"SUBSTR({{}}, {start}, {HEX_DIGITS})", hashes.take([position // PER_DIGEST]))
        uniforms.append(apply(language.integer, digits) / 16.0**HEX_DIGITS)
    uniform = join(uniforms).named("uniform")
    if not exclusive:
        return uniform * (chances + (constant(1) - chances)) < chances
    threshold = (uniform * chances.sum()).named("threshold")
    heights = linear(chances, np.triu(np.ones((n_actions, n_actions))))
    same = len({type(action) for action in policy.actions}) == 1
    actions = [constant(action if same else str(action)) for action in policy.actions]
    reached = [threshold < heights.take([a]) for a in range(n_actions - 1)]
    reached.append(threshold <= heights.take([n_actions - 1]))
    return case(*zip(reached, actions, strict=True), otherwise=None)


def name_results(
    policy: Policy,
    carried: Sequence[str],
    alias: Callable[[str], str] = lambda name: name,
    *,
    probabilities: bool,
    decisions: bool,
) -> list[str]:
    """Return the columns of a table of answers: carried over, probabilities, and decisions."""
    chances = _make_unique([alias(f"p_{action}") for action in policy.actions])
    decided = _make_unique([alias(name) for name in policy.action_space.list_decision_columns()])
    taken = {name.casefold() for name in (*chances, *decided)}
    for column in carried:
        if column.casefold() in taken:
            raise OptionError(f"the answer itself has a column {column!r}; rename that of the table")
    return [*carried, *(chances if probabilities else ()), *(decided if decisions else ())]


def _make_unique(wanted: list[str]) -> list[str]:
    """Return the names, with numbers where they differ only by case; no number makes one another's name."""
    taken = {name.casefold() for name in wanted}
    seen: set[str] = set()
    found = []
    for name in wanted:
        unique, count = name, 1
        while unique.casefold() in (taken if count > 1 else seen):
            count += 1
            unique = f"{name}_{count}"
        seen.add(unique.casefold())
        taken.add(unique.casefold())
        found.append(unique)
    return found
