"""A policy as one SELECT statement: probabilities of the decisions on each row, and decisions by id."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version

from bylaw._base.validation import check_key
from bylaw.data.columns import Columns
from bylaw.errors import OptionError
from bylaw.formulation.formulas import DecisionRule, describe_policy, make_terms
from bylaw.sql.dialects import Dialect, DialectName, get_dialect, write_comment
from bylaw.sql.steps import SetStepBuilder, StepBuilder
from bylaw.sql.text import SelectStep

_PLACEHOLDER = re.compile(r"\?|%s|%\([A-Za-z_][A-Za-z0-9_]*\)s|[$:@][A-Za-z0-9_]{1,30}", re.ASCII)
_HERE = "\0"  # where the parameter goes: no name and no text can have it


def to_sql(
    policy: DecisionRule,
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
    """A policy as one SELECT statement: `policy.probabilities` of each row, and `policy.decide` by id.

    The columns of the result are the id, those to keep, "p_<action>" for each action and, with an id,
    "decision"; for sets, "p_<label>" is the probability that the label is in, and "in_<label>" whether it
    is. Actions of several types, such as 0, 1 and "reject", are decided as text.

    Where `policy.probabilities` would refuse a row (a value that is missing, unseen or not finite,
    probabilities that are outside [0, 1] or do not sum to one within 1e-4), and where the id is
    missing, the row gets NULL.

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
        so it is no place for a secret.
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
        raise OptionError(f"keep takes a list of columns: keep=[{keep!r}]")
    if not probabilities and id_column is None:
        raise OptionError("without probabilities there are decisions alone, which need id_column=")
    language = get_dialect(dialect)
    carried = [column for column in dict.fromkeys([id_column, *keep]) if column is not None]
    builder = StepBuilder if policy.action_space.exclusive else SetStepBuilder
    steps = builder(policy, columns, make_terms(policy, columns), language, carried)
    prefix = _write_prefix(policy, language, key, key_parameter)
    parts = table.split(".") if isinstance(table, str) else list(table)
    source = ".".join(language.quote_name(part) for part in parts)
    chain = steps.build_probabilities() + ([] if id_column is None else steps.build_draws(prefix))
    written = [f"kept_{i}" for i in range(len(carried))]
    written += [f"probability_{a}" for a in steps.actions] if probabilities else []
    written += [] if id_column is None else steps.write_decisions()
    named = name_results(
        policy,
        carried,
        probabilities=probabilities,
        decisions=id_column is not None,
        alias=language.make_alias,
    )
    result = [f"{what} AS {language.quote_name(name)}" for what, name in zip(written, named, strict=True)]
    header = _write_header(policy, language, None if id_column is None else (key, key_parameter))
    statement = f"{header}\n{_write_statement(chain, result, source, language)}\n"
    return statement if key_parameter is None else _set_parameter(statement, key_parameter)


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


def _write_prefix(policy: DecisionRule, language: Dialect, key: str | None, key_parameter: str | None) -> str:
    """The key and a slash, as an expression."""
    if key_parameter is None:
        return language.write_literal(f"{policy.digest if key is None else key}/")
    return f"{language.cast(_HERE, language.text)} || {language.write_literal('/')}"


def _set_parameter(statement: str, key_parameter: str) -> str:
    """Drivers that write parameters with % read every other one as %%."""
    plain = statement.replace("%", "%%") if key_parameter.startswith("%") else statement
    return plain.replace(_HERE, key_parameter)


def _write_statement(chain: list[SelectStep], result: list[str], source: str, language: Dialect) -> str:
    """Each step selects from the one before, the first from the table."""
    written = []
    for step in chain:
        written.append(
            f"bylaw_{step.name} AS {language.with_hint}(\n{_write_select(step.columns, source, '  ')}\n)"
        )
        source = f"bylaw_{step.name}"
    return f"WITH {', '.join(written)}\n{_write_select(result, source, '')}"


def _write_select(lines: list[str], source: str, indent: str) -> str:
    inner = indent + "  "
    body = f",\n{inner}".join(lines)
    return f"{indent}SELECT\n{inner}{body}\n{indent}FROM {source}"


def name_results(
    policy: DecisionRule,
    carried: Sequence[str],
    alias: Callable[[str], str] = lambda name: name,
    *,
    probabilities: bool,
    decisions: bool,
) -> list[str]:
    """The columns of a table of answers: those that are carried over, of probabilities, and of decisions."""
    chances = _make_unique([alias(f"p_{action}") for action in policy.actions])
    decided = _make_unique([alias(name) for name in policy.action_space.list_decision_columns()])
    taken = {name.casefold() for name in (*chances, *decided)}
    for column in carried:
        if column.casefold() in taken:
            raise OptionError(f"the answer itself has a column {column!r}; rename that of the table")
    return [*carried, *(chances if probabilities else ()), *(decided if decisions else ())]


def _make_unique(wanted: list[str]) -> list[str]:
    """The names, with numbers where they differ only by case; no number makes one the name of another."""
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


def _write_header(policy: DecisionRule, language: Dialect, keys: tuple[str | None, str | None] | None) -> str:
    lines = [f"A policy for {language.title}, by bylaw {version('bylaw')}", *describe_policy(policy)]
    lines += ["A row with a missing value, or with one that the policy was not fitted on, gets NULL."]
    if keys is not None:
        key, parameter = keys
        what = repr(policy.digest if key is None else key) if parameter is None else "the parameter"
        lines += [f"Decisions are sampled by the SHA-256 of {what}, a slash and the id."]
    return "\n".join(write_comment(line) for line in lines)
