"""From files and flags to a problem and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bylaw.cli.column_flags import Flags
from bylaw.cli.console import say
from bylaw.cli.rules_file import RulesFile
from bylaw.data.column_roles import Roles, find_roles, named
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import HeldOut
from bylaw.data.table_files import TableFile
from bylaw.errors import EvidenceError, OptionError
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy

# What the command line says of a group under one role makes what the file says under another void.
_INSTEAD = {
    "groups": ("group_probabilities",),
    "group_probabilities": ("groups",),
    "true_groups": ("groups",),
    "joint": ("groups",),
}


def rules_of(path: Path | None, rule: Sequence[str] | None, minimize: str | None) -> RulesFile:
    """The rules of a file, those of the command line, or both."""
    if path is None and not rule:
        raise OptionError("which rules? Give --rules FILE or --rule 'rejected() <= 0.1'; see `bylaw rules`")
    file = RulesFile.read(path) if path else RulesFile(Problem("error()"))
    if rule or minimize:
        own = file.problem
        changed = Problem(
            minimize or own.minimize, [*own.rules, *(rule or ())], None, own.decisions, own.reject
        )
        file = replace(file, problem=changed)
    return file


@dataclass(frozen=True)
class Rows:
    """A table in memory, by the roles of its columns."""

    evidence: Evidence
    roles: Roles
    labels: Any = None
    groups: Mapping[str, Any] | None = None  # as they were seen, where the evidence has probabilities

    @property
    def seen(self) -> dict[str, Any]:
        """For `solve`, `audit` and others."""
        return {"labels": self.labels, "groups": self.groups}

    def held_out(self, limits: Mapping[str, tuple[float, float]]) -> HeldOut:
        return HeldOut(self.evidence, self.labels, self.groups, limits=limits)


def table_of(path: Path, roles: Roles, groups: Mapping[str, Sequence[Any]]) -> TableFile:
    """A file, read by the roles of its columns; `groups` has the values of attributes that are known."""
    ids = () if roles.id is None else (roles.id,)
    return TableFile(path, ids, roles.numbers, roles.values(groups))


def groups_of(policy: Policy) -> dict[str, Sequence[Any]]:
    """The values of each attribute that the policy knows."""
    return {name: attribute.values for name, attribute in policy.feature_map.attributes.items()}


def rows_of(path: Path, roles: Roles, groups: Mapping[str, Sequence[Any]]) -> Rows:
    """All rows of a file; it need not have labels and true groups, though the fitted one had."""
    file = table_of(path, roles, groups)
    label = roles.label if roles.label in file.names else None
    truth = {name: column for name, column in roles.true_groups.items() if column in file.names}
    extra = [*truth.values(), *([] if label is None else [label])]
    table = file.read(list(dict.fromkeys([*roles.needed, *extra])))
    if not len(table):
        raise EvidenceError(f"{path} has no rows")
    for column in extra:
        if missing := table[column].null_count:
            row = table[column].is_null().index(True).as_py()
            raise EvidenceError(f"{path}: {column} has {missing} missing values, the first in row {row}")
    try:
        evidence = roles.columns.evidence(table)
    except EvidenceError as problem:
        raise EvidenceError(f"{path}: {problem}") from None
    seen = {name: table[column] for name, column in truth.items()}
    return Rows(evidence, roles, None if label is None else table[label], seen or None)


def fitting_rows(path: Path, rules: RulesFile, flags: Flags, without: Sequence[str] = ()) -> Rows:
    """The rows of a table for a problem; what was guessed is said."""
    said = _merged(rules.columns, flags.said())
    return rows_of(path, _found(said, TableFile(path).names, path, rules.problem, without), {})


def _merged(file: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The command line goes first, name by name."""
    merged = {**file, **said}
    for role in ("groups", "group_probabilities", "true_groups", "joint", "references"):
        if role in file:
            instead = [name for other in _INSTEAD.get(role, ()) for name in said.get(other, ())]
            kept = {name: column for name, column in named(file[role]).items() if name not in instead}
            merged[role] = {**kept, **said.get(role, {})}
    return merged


def _found(
    said: Mapping[str, Any], names: Sequence[str], path: Path, problem: Problem, without: Sequence[str]
) -> Roles:
    """What was guessed is said."""
    try:
        roles = find_roles(said, names, problem, without)
    except EvidenceError as trouble:
        if str(path) in str(trouble):
            raise
        raise EvidenceError(f"{path}: {trouble}") from None
    for guess in roles.guessed:
        say(f"{path.name}: {guess}")
    return roles


def policy_roles(
    policy: Policy,
    path: Path,
    flags: Flags,
    *,
    deciding: bool = False,
    names: Sequence[str] | None = None,
    others: RulesFile | None = None,
) -> Roles:
    """The columns that the policy was fitted on, or what the command line says instead.

    A decision needs neither the truth nor weights. `names` are those of the columns, if there is no file;
    `others` are rules that are judged instead of its own, and what they say of columns.
    """
    names = TableFile(path).names if names is None else names
    remembered = _remembered(policy, path, names, flags, deciding)
    without = ["label", "weight"] if deciding else []
    if policy.card.columns and not (remembered.get("weight") or flags.weight):
        without.append("weight")  # rows count alike, as they did in the fit
    problem = policy.problem
    if others is not None:
        remembered = {**remembered, **_merged(remembered, others.columns)}
        problem = _of_both(problem, others.problem)
    roles = _found(_merged(remembered, flags.said()), names, path, problem, without)
    return replace(roles, columns=replace(roles.columns, groups=_as_fitted(roles.columns.groups, policy)))


def _remembered(
    policy: Policy, path: Path, names: Sequence[str], flags: Flags, deciding: bool
) -> dict[str, Any]:
    """What the policy says of columns."""
    if policy.card.columns:
        fitted, said = Roles.from_dict(policy.card.columns), flags.said()
        fitted = fitted.deciding() if deciding else fitted
        for what, name in (("label", fitted.label), ("id", fitted.id), ("weight", fitted.columns.weights)):
            if name is not None and name not in names and what not in said and not deciding:
                say(f"{path.name}: there is no column {name!r}, the {what} of the fitted table")
        return fitted.said(names)
    known = [name for name, a in policy.feature_map.attributes.items() if a.known and name in names]
    guessed = {
        name: {value: f"{name}_{value}" for value in a.values}
        for name, a in policy.feature_map.attributes.items()
        if not a.known and all(f"{name}_{value}" in names for value in a.values)
    }
    return {
        "classes": list(policy.action_space.classes),
        "groups": known,
        "group_probabilities": guessed,
    }


def _of_both(own: Problem, other: Problem) -> Problem:
    """With the rules of both, each once: what columns they speak of."""
    rules = {str(rule): rule for rule in (*own.rules, *other.rules)}
    return Problem(own.minimize, list(rules.values()), own.classes, own.kind, own.reject)


def _as_fitted(groups: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    """Probabilities of a group in the order of the policy's values, which joint probabilities follow."""
    ordered = dict(groups)
    for name, attribute in policy.feature_map.attributes.items():
        if not attribute.known and isinstance(columns := groups.get(name), Mapping):
            if missing := [value for value in attribute.values if value not in columns]:
                raise EvidenceError(f"{name} has no column for {missing[0]!r}, which the policy knows")
            ordered[name] = {value: columns[value] for value in attribute.values}
    return ordered


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Nothing that is read, or written before, is written over; and folders are there."""
    known = [_resolved(path) for path in inputs if path is not None]
    for path in [path for path in outputs if path is not None]:
        if not path.parent.is_dir():
            raise OptionError(f"cannot write {path}: there is no folder {path.parent}")
        if _resolved(path) in known:
            raise OptionError(f"{path} is an input or another output of this command; choose another name")
        known.append(_resolved(path))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise OptionError(f"{path} is a link that leads nowhere") from None


def limits_of(texts: Sequence[str] | None, problem: Problem) -> dict[str, tuple[float, float]]:
    """The least and the most that custom costs can be."""
    limits = {}
    for text in texts or ():
        name, _, ends = text.partition("=")
        if name not in problem.arrays:
            raise OptionError(f"--limit {text}: no rule speaks of custom({name!r})")
        least, _, most = ends.partition(":")
        try:
            limits[name] = (float(least), float(most))
        except ValueError:
            raise OptionError(f"--limit is NAME=LEAST:MOST, not {text!r}") from None
    return limits
