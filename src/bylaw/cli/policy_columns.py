"""Which column of a table is what, as the command line, a rules file or a policy states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bylaw.cli.console import remark
from bylaw.cli.inputs import Previous
from bylaw.cli.rules_file import RulesFile
from bylaw.data.column_roles import OBVIOUS_LABELS, Roles, as_mapping, find_roles
from bylaw.data.table_files import TableFile, name_table
from bylaw.data.text_values import match_value
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting.refit import counts_changes
from bylaw.language.expressions import CHANGED, shorten
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy

_MOST_CLASSES = 20  # of which some are named in an error
# What the command line states of a group under one role makes what the file states under another void.
_INSTEAD = {
    "groups": ("group_probabilities",),
    "group_probabilities": ("groups",),
    "true_groups": ("groups",),
    "joint": ("groups",),
}


def find_fitting_roles(
    path: Path, rules: RulesFile, stated: Mapping[str, Any], without: Sequence[str] = ()
) -> Roles:
    """The roles of a table's columns for a problem, with a remark on what was guessed."""
    return _find_roles(
        merge_roles(rules.columns, stated), TableFile(path).names, path, rules.problem, without
    )


def merge_roles(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The command line goes first, name by name."""
    merged = {**file, **flags}
    if "positive" not in flags and _has_many(flags.get("probabilities", "")):
        merged.pop("positive", None)
    for role in ("groups", "group_probabilities", "true_groups", "joint", "references"):
        if role in file:
            instead = [name for other in _INSTEAD.get(role, ()) for name in flags.get(other, ())]
            kept = {name: column for name, column in as_mapping(file[role]).items() if name not in instead}
            merged[role] = {**kept, **as_mapping(flags.get(role))}
    return merged


def _has_many(scores: Any) -> bool:
    """Whether several columns of scores are stated."""
    return "*" in scores if isinstance(scores, str) else len(scores) > 1


def _name_classes(stated: Mapping[str, Any], names: Sequence[str], path: Path) -> Mapping[str, Any]:
    """With one column of scores: the two classes, where they are not stated those of the true labels."""
    if stated.get("positive") is None or stated.get("classes"):
        return stated
    label: str = stated.get("label") or next((name for name in OBVIOUS_LABELS if name in names), "")
    if label not in names:
        return stated
    seen: dict[Any, None] = {}
    for batch in TableFile(path, values={label: ()}).batches([label]):
        seen |= dict.fromkeys(batch.column(label).unique().to_pylist())
        if len(seen) > _MOST_CLASSES:
            break
    classes = [value for value in seen if value is not None]
    if len(classes) != 2 or match_value(str(stated["positive"]), classes) is None:
        raise EvidenceError(
            f"positive is one of the two classes, not {stated['positive']!r}: the column {label!r} has "
            f"{shorten(classes)}"
        )
    return {**stated, "classes": sorted(classes, key=str)}


def _find_roles(
    stated: Mapping[str, Any], names: Sequence[str], path: Path, problem: Problem, without: Sequence[str]
) -> Roles:
    """The roles of a file's columns, with a remark on what was guessed."""
    try:
        roles = find_roles(_name_classes(stated, names, path), names, problem, without)
    except EvidenceError as trouble:
        trouble.add_place(path)
        raise
    for guess in roles.guessed:
        remark(f"{name_table(path)}: {guess}")
    return roles


def find_policy_roles(
    policy: Policy,
    path: Path,
    stated: Mapping[str, Any],
    *,
    deciding: bool = False,
    names: Sequence[str] | None = None,
    others: RulesFile | None = None,
    previous: Previous | None = None,
    changes: bool = True,
    quiet: bool = False,
) -> Roles:
    """The columns that the policy was fitted on, or what the command line states instead.

    A decision needs neither outcomes nor weights. `names` are those of the columns, if there is no file;
    `others` are rules that are judged instead of its own, and what they state of columns. Changed decisions
    are read off the `previous` policy, and not off columns; without `changes`, not at all. If `quiet`, labels
    that are not there are no news.
    """
    if deciding:
        _refuse_idle_groups(policy, stated)
    names = TableFile(path).names if names is None else names
    remembered = _recall_roles(policy, path, names, stated, deciding, quiet)
    without = ["label", "weight", "seen_weights"] if deciding else []
    if policy.card.columns and not (remembered.get("weight") or stated.get("weight")):
        without.append("weight")  # rows count alike, as they did in the fit
    problem = policy.problem if others is None else join_problems(policy.problem, others.problem)
    if previous is not None or not changes:
        problem = problem.with_rules([rule for rule in problem.rules if not counts_changes(rule)])
        remembered["costs"] = {k: v for k, v in remembered.get("costs", {}).items() if k != CHANGED}
    remembered = _drop_groups(remembered, names, problem, deciding)
    if others is not None:
        remembered = {**remembered, **merge_roles(remembered, others.columns)}
    roles = _find_roles(merge_roles(remembered, stated), names, path, problem, without)
    return replace(roles, columns=replace(roles.columns, groups=_order_groups(roles.columns.groups, policy)))


def _refuse_idle_groups(policy: Policy, stated: Mapping[str, Any]) -> None:
    for role, flag in (("groups", "--group"), ("group_probabilities", "--group-probabilities")):
        for name in stated.get(role, ()):
            if name not in policy.problem.attributes:
                raise OptionError(f"{flag} {name} has no effect: the policy decides without {name}")


def _recall_roles(
    policy: Policy, path: Path, names: Sequence[str], stated: Mapping[str, Any], deciding: bool, quiet: bool
) -> dict[str, Any]:
    """What the policy states of columns."""
    if policy.card.columns:
        fitted = Roles.from_dict(policy.card.columns)
        fitted = fitted.without_outcomes() if deciding else fitted
        for what, name in (("label", fitted.label), ("id", fitted.id), ("weight", fitted.columns.weights)):
            news = not (deciding or (quiet and what == "label"))
            if name is not None and name not in names and what not in stated and news:
                remark(f"{name_table(path)}: there is no column {name!r}, the {what} of the fitted table")
        return fitted.restate(names)
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


def _drop_groups(
    remembered: Mapping[str, Any], names: Sequence[str], problem: Problem, deciding: bool
) -> dict[str, Any]:
    """Without groups that no rule refers to, where they are not in the table or no decision needs them."""

    def keep(name: str, columns: Any) -> bool:
        used = [columns] if isinstance(columns, str) else list(columns.values())
        return name in problem.attributes or (not deciding and all(column in names for column in used))

    kept = dict(remembered)
    for role in ("groups", "group_probabilities"):
        stated = as_mapping(remembered.get(role))
        kept[role] = {name: columns for name, columns in stated.items() if keep(name, columns)}
    stated = as_mapping(remembered.get("joint"))
    kept["joint"] = {name: cells for name, cells in stated.items() if name in kept["group_probabilities"]}
    return kept


def join_problems(own: Problem, other: Problem) -> Problem:
    """With the rules of both, each once: what columns they refer to."""
    rules = {str(rule): rule for rule in (*own.rules, *other.rules)}
    decisions = own.kind if isinstance(own.decisions, str) else own.decisions
    return Problem(own.minimize, list(rules.values()), own.classes, decisions, own.reject)


def _order_groups(groups: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    """Probabilities of a group in the order of the policy's values, which joint probabilities follow."""
    ordered = dict(groups)
    for name, attribute in policy.feature_map.attributes.items():
        if not attribute.known and isinstance(columns := groups.get(name), Mapping):
            if missing := [value for value in attribute.values if value not in columns]:
                raise EvidenceError(f"{name} has no column for {missing[0]!r}, which the policy knows")
            ordered[name] = {value: columns[value] for value in attribute.values}
    return ordered
