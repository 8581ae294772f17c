"""Which column of a table is what, as the command line, a rules file or a policy states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bylaw.cli.console import remark
from bylaw.cli.inputs import Previous
from bylaw.cli.rules_file import RulesFile
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting.refit import counts_changes
from bylaw.language.expressions import CHANGED, shorten
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.rows.column_roles import OBVIOUS_LABELS, as_mapping, find_columns
from bylaw.rows.columns import Columns
from bylaw.rows.table_files import TableFile, name_table
from bylaw.rows.text_values import match_value

MAX_CLASSES = 20  # that are read of a column of labels which should have two


def find_fitting_columns(
    path: Path, rules: RulesFile, stated: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Return the columns of a table for the rules of a file, and what was guessed, which is remarked."""
    return _find(merge_columns(rules.columns, stated), TableFile(path).names, path, rules.problem, without)


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns by role, as a file and the command line state them; this goes first, name by name."""
    merged, scores = {**file, **flags}, flags.get("probabilities", "")
    if "positive" not in flags and ("*" in scores if isinstance(scores, str) else len(scores) > 1):
        merged.pop("positive", None)  # several columns are stated instead of that of one class
    for role, others in {
        "groups": ("group_probabilities",),
        "group_probabilities": ("groups",),
        "true_groups": ("groups",),
        "joint": ("groups",),
        "references": (),
    }.items():
        if role in file:
            instead = [name for other in others for name in flags.get(other, ())]
            kept = {name: column for name, column in as_mapping(file[role]).items() if name not in instead}
            merged[role] = {**kept, **as_mapping(flags.get(role))}
    return merged


def _find(
    stated: Mapping[str, Any], names: Sequence[str], path: Path, problem: Problem, without: Sequence[str]
) -> tuple[Columns, list[str]]:
    """Return the columns of a table, and what was guessed, which is remarked."""
    try:
        if stated.get("positive") is not None and not stated.get("classes"):
            stated = {**stated, **_read_classes(stated, names, path)}
        columns, guessed = find_columns(stated, names, problem, without)
    except EvidenceError as trouble:
        trouble.add_place(path)
        raise
    for guess in guessed:
        remark(f"{name_table(path)}: {guess}")
    return columns, guessed


def _read_classes(stated: Mapping[str, Any], names: Sequence[str], path: Path) -> dict[str, Any]:
    """Return the two classes of one column of scores: the true labels, if there are any."""
    label: str = stated.get("label") or next((name for name in OBVIOUS_LABELS if name in names), "")
    if label not in names:
        return {}
    seen: dict[Any, None] = {}
    for batch in TableFile(path, values={label: ()}).batches([label]):
        seen |= dict.fromkeys(batch.column(label).unique().to_pylist())
        if len(seen) > MAX_CLASSES:
            break
    classes = [value for value in seen if value is not None]
    if len(classes) != 2 or match_value(str(stated["positive"]), classes) is None:
        raise EvidenceError(
            f"positive is one of the two classes, not {stated['positive']!r}: the column {label!r} has "
            f"{shorten(classes)}"
        )
    return {"classes": sorted(classes, key=str)}


def find_policy_columns(
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
) -> Columns:
    """Return the columns that the policy was fitted on, or what the command line states instead.

    Parameters
    ----------
    policy : Policy
    path : Path
        of the table.
    stated : dict
        columns by role, as the command line states them.
    deciding : bool
        whether the rows are decided, which needs neither outcomes nor weights.
    names : sequence of str, optional
        the columns, if there is no table.
    others : RulesFile, optional
        rules that are judged instead of the policy's own, and what their file states of columns.
    previous : Previous, optional
        the policy that changed decisions are read off, instead of columns.
    changes : bool
        whether changed decisions are read at all.
    quiet : bool
        whether nothing is remarked of labels that are not there.
    """
    for role, flag in (("groups", "--group"), ("group_probabilities", "--group-probabilities")):
        for name in stated.get(role, ()) if deciding else ():
            if name not in policy.problem.attributes:
                raise OptionError(f"{flag} {name} has no effect: the policy decides without {name}")
    names = TableFile(path).names if names is None else names
    problem = policy.problem if others is None else join_problems(policy.problem, others.problem)
    remembered = _recall_columns(policy, path, names, stated, deciding, quiet)
    if previous is not None or not changes:
        problem = problem.with_rules([rule for rule in problem.rules if not counts_changes(rule)])
        remembered["costs"] = {k: v for k, v in remembered.get("costs", {}).items() if k != CHANGED}
    without = ["label", "weight", "propensity_weights"] if deciding else []
    if policy.card.columns and not (remembered.get("weight") or stated.get("weight")):
        without.append("weight")  # rows count alike, as they did in the fit

    def keep(name: str, one: Any) -> bool:
        """Return whether a group is needed; if no rule refers to it, it may be missing."""
        used = [one] if isinstance(one, str) else list(one.values())
        return name in problem.attributes or (not deciding and all(column in names for column in used))

    for role in ("groups", "group_probabilities"):
        groups = as_mapping(remembered.get(role))
        remembered[role] = {name: one for name, one in groups.items() if keep(name, one)}
    joint = as_mapping(remembered.get("joint"))
    remembered["joint"] = {n: one for n, one in joint.items() if n in remembered["group_probabilities"]}
    if others is not None:
        remembered |= merge_columns(remembered, others.columns)
    columns, _ = _find(merge_columns(remembered, stated), names, path, problem, without)

    # Joint probabilities follow the order of the policy's values.
    ordered = dict(columns.groups)
    for name, attribute in policy.feature_map.attributes.items():
        if not attribute.known and isinstance(one := columns.groups.get(name), Mapping):
            if missing := [value for value in attribute.values if value not in one]:
                raise EvidenceError(f"{name} has no column for {missing[0]!r}, which the policy knows")
            ordered[name] = {value: one[value] for value in attribute.values}
    return replace(columns, groups=ordered)


def _recall_columns(
    policy: Policy, path: Path, names: Sequence[str], stated: Mapping[str, Any], deciding: bool, quiet: bool
) -> dict[str, Any]:
    """Return columns by role, as the policy states them, or as they would be named if it states none."""
    if policy.card.columns:
        fitted = Columns.from_dict(policy.card.columns)
        fitted = fitted.without_outcomes() if deciding else fitted
        for what, name in (("label", fitted.label), ("id", fitted.id), ("weight", fitted.weights)):
            news = not (deciding or (quiet and what == "label"))
            if name is not None and name not in names and what not in stated and news:
                remark(f"{name_table(path)}: there is no column {name!r}, the {what} of the fitted table")
        return fitted.restate(names)
    attributes = policy.feature_map.attributes.items()
    guessed = {name: {v: f"{name}_{v}" for v in a.values} for name, a in attributes if not a.known}
    return {
        "classes": list(policy.action_space.classes),
        "groups": [name for name, a in attributes if a.known and name in names],
        "group_probabilities": {n: one for n, one in guessed.items() if {*one.values()} <= {*names}},
    }


def join_problems(own: Problem, other: Problem) -> Problem:
    """Return a problem with the rules of both, each once: it refers to the columns of both."""
    rules = {str(rule): rule for rule in (*own.rules, *other.rules)}
    decisions = own.kind if isinstance(own.decisions, str) else own.decisions
    return Problem(own.minimize, list(rules.values()), own.classes, decisions, own.reject)
