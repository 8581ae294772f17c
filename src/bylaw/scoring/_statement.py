"""A policy as one SELECT statement, with the probabilities of the decisions and decisions by id."""

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
_HERE = "\0"  # stands for the parameter; names and texts cannot contain it


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
    """Return a SELECT statement that computes the probabilities and decisions of a policy for each row.

    The probabilities are those of `policy.probabilities`, the decisions those of `policy.decide`. The
    columns of the result are the id, those to keep, "p_<action>" for each action and, with an id,
    "decision". If decisions are sets, "p_<label>" is the probability that the label is included, and
    "in_<label>" is true if it is. Actions of several types, such as 0, 1 and "reject", become text.

    A row gets NULL if `policy.probabilities` would raise an error for it (a value is missing, unknown or not
    finite, or probabilities are outside [0, 1] or do not sum to one within 1e-4), or if its id is missing.

    Parameters
    ----------
    policy : Policy
        The policy; its rules must not contain Python functions.
    columns : Columns
        The roles of the columns of the table.
    dialect : {"duckdb", "postgres", "bigquery", "snowflake", "spark"}
        The SQL dialect of the database; PostgreSQL 12 or later.
    table : str or sequence of str
        The name of the table. Dots separate the parts of a qualified name, unless the parts are a sequence.
        All names are quoted, and so case-sensitive in databases in which quoted names are.
    id_column : str, optional
        The column of ids (text or whole numbers). With it, the result has decisions, which equal those of
        `policy.decide(evidence, ids=..., key=...)`.
    key : str, optional
        With an `id_column`, the key of the hash; by default the policy's digest. It is written into the
        statement, so it must not be secret.
    key_parameter : str, optional
        Instead of `key`, a placeholder for the key, in the form of your database driver: "?", "$1", "$key",
        ":key", "@key", "%s" or "%(key)s". It occurs once, and keeps a secret key out of the statement.
    keep : sequence of str, default=()
        Columns of the table to keep in the result.
    probabilities : bool, default=True
        If False, the result has no columns "p_<action>".

    Returns
    -------
    str
        The statement.

    Raises
    ------
    OptionError
        If a column that the policy reads is missing, or a name is not valid in this dialect.

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
        raise OptionError("id_column must be given if probabilities=False, because decisions need ids")
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
        raise OptionError(
            "key and key_parameter have no effect without id_column: pass it, or leave them out"
        )
    if key is not None:
        check_key(key)
        if key_parameter is not None:
            raise OptionError("key and key_parameter must not be given together: pass one of them")
    if key_parameter is not None and not _PLACEHOLDER.fullmatch(str(key_parameter)):
        raise OptionError(
            "key_parameter must be a placeholder such as '?', '$1', '$key', ':key', '@key', '%s' or "
            "'%(key)s', and not the key itself"
        )


def _draw_decisions(
    policy: Policy, chances: Vector, ids: Vector, prefix: Vector, language: Dialect
) -> Vector:
    """Return the decisions, drawn by a hash of `prefix` and the id, as a vector.

    If decisions are sets, the vector has one truth value for each label.
    """
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
    """Return the names of the columns of a result: carried-over columns, probabilities and decisions."""
    chances = _make_unique([alias(f"p_{action}") for action in policy.actions])
    decided = _make_unique([alias(name) for name in policy.action_space.list_decision_columns()])
    taken = {name.casefold() for name in (*chances, *decided)}
    for column in carried:
        if column.casefold() in taken:
            raise OptionError(
                f"id_column and keep must differ from the columns of the result, got {column!r}: rename it"
            )
    return [*carried, *(chances if probabilities else ()), *(decided if decisions else ())]


def _make_unique(wanted: list[str]) -> list[str]:
    """Make names unique without regard to case, by adding numbers.

    A name with a number never equals another of the names.
    """
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
