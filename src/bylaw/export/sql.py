"""A policy as one SELECT: the distribution of the decision of every row of a table, and keyed decisions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from bylaw.data.columns import Columns
from bylaw.errors import OptionError
from bylaw.export.formulas import make_terms, statements
from bylaw.export.sql_dialects import Dialect, DialectName, comment, dialect_of
from bylaw.export.sql_steps import SetSteps, Step, Steps
from bylaw.policy.policy import Policy


def to_sql(
    policy: Policy,
    columns: Columns,
    *,
    dialect: DialectName,
    table: str | Sequence[str],
    id_column: str | None = None,
    key: str | None = None,
    keep: Sequence[str] = (),
) -> str:
    """One SELECT with a line per row of the table: `policy.probabilities`, and `policy.decide` by id.

    Its columns are the id, those to keep, "p_<action>" for each action and, with an id, "decision";
    for sets, where "p_<label>" is the chance that the label is in, "in_<label>" for each label.
    Actions of several types, such as 0, 1 and "reject", are decided as text.

    Where `policy.probabilities` would refuse a row (a value that is missing, unseen or not finite,
    probabilities that are outside [0, 1] or do not sum to one within 1e-4), and where the id is
    missing, the row gets NULL: nothing is decided in silence.

    Parameters
    ----------
    columns
        which column of the table holds what.
    dialect
        "duckdb", "postgres" (12 or later), "bigquery", "snowflake" or "spark".
    table
        its name; dots separate the parts of a qualified one, unless the parts are given one by one.
        All names are quoted, so they are case-sensitive where quoted names are.
    id_column
        ids, text or whole numbers: the decision is that of `policy.decide(evidence, ids=..., key=...)`.
    key
        of the hash; default the policy's digest.
    keep
        columns that are carried along.
    """
    if key is not None and id_column is None:
        raise OptionError("key= belongs to keyed decisions, which need id_column=")
    if isinstance(keep, str):
        raise OptionError(f"keep takes a list of columns: keep=[{keep!r}]")
    language = dialect_of(dialect)
    carried = [column for column in dict.fromkeys([id_column, *keep]) if column is not None]
    steps_type = Steps if policy.action_space.exclusive else SetSteps
    steps = steps_type(policy, columns, make_terms(policy, columns), language, carried)
    key = policy.digest if key is None else key
    parts = table.split(".") if isinstance(table, str) else list(table)
    source = ".".join(language.name(part) for part in parts)
    chain = steps.probabilities() + ([] if id_column is None else steps.draws(key))
    probabilities, decisions = _result_names(steps, language, carried)
    result = [f"kept_{i} AS {language.name(column)}" for i, column in enumerate(carried)]
    result += [f"probability_{a} AS {language.name(name)}" for a, name in enumerate(probabilities)]
    if id_column is not None:
        drawn = steps.decisions()
        result += [f"{drawn[i]} AS {language.name(name)}" for i, name in enumerate(decisions)]
    header = _header(policy, language, None if id_column is None else key)
    return f"{header}\n{_statement(chain, result, source, language)}\n"


def _statement(chain: list[Step], result: list[str], source: str, language: Dialect) -> str:
    """Each step selects from the one before, the first from the table."""
    written = []
    for step in chain:
        written.append(
            f"bylaw_{step.name} AS {language.with_hint}(\n{_select(step.columns, source, '  ')}\n)"
        )
        source = f"bylaw_{step.name}"
    return f"WITH {', '.join(written)}\n{_select(result, source, '')}"


def _select(lines: list[str], source: str, indent: str) -> str:
    inner = indent + "  "
    body = f",\n{inner}".join(lines)
    return f"{indent}SELECT\n{inner}{body}\n{indent}FROM {source}"


def _result_names(steps: Steps, language: Dialect, carried: list[str]) -> tuple[list[str], list[str]]:
    """Names of the columns of probabilities and of decisions."""
    probabilities = _apart([language.alias(f"p_{action}") for action in steps.policy.actions])
    decisions = _apart([language.alias(name) for name in steps.decision_names()])
    taken = {name.casefold() for name in (*probabilities, *decisions)}
    for column in carried:
        if column.casefold() in taken:
            raise OptionError(f"the statement itself has a column {column!r}; rename that of the table")
    return probabilities, decisions


def _apart(wanted: list[str]) -> list[str]:
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


def _header(policy: Policy, language: Dialect, key: str | None) -> str:
    lines = [f"A policy for {language.title}, by bylaw {version('bylaw')}", *statements(policy)]
    lines += ["A row that lacks something, or has a value the policy was not fitted on, gets NULL."]
    if key is not None:
        lines += [f"Decisions are drawn by the SHA-256 of {key!r}, a slash and the id."]
    return "\n".join(comment(line) for line in lines)
