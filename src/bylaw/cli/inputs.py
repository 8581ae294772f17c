"""From files and flags to a problem and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylaw._base.validation import check_number
from bylaw.cli.column_flags import Flags, parse_pairs
from bylaw.cli.console import remark
from bylaw.cli.decision_columns import make_decision_column
from bylaw.cli.reading import Reading
from bylaw.cli.rules_file import RulesFile
from bylaw.cli.standard_streams import STREAM
from bylaw.data.arrays import as_partial_vector
from bylaw.data.column_roles import OBVIOUS_LABELS, Roles, as_mapping, find_roles, order_columns
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import KNOWN, HeldOut, observe
from bylaw.data.table_files import TableFile, is_many, name_table, would_read
from bylaw.data.text_values import match_value
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting.refit import counts_changes
from bylaw.fitting.solve import solve_without_rules
from bylaw.language.expressions import CHANGED, shorten
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.testing import Costs, compare_costs, is_observed, measure_referred

_READING = Reading()
_MOST_CLASSES = 20  # of which some are named in an error
# What the command line states of a group under one role makes what the file states under another void.
_INSTEAD = {
    "groups": ("group_probabilities",),
    "group_probabilities": ("groups",),
    "true_groups": ("groups",),
    "joint": ("groups",),
}


def read_rules(path: Path | None, rule: Sequence[str] | None, minimize: str | None) -> RulesFile:
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


class Measured(NamedTuple):
    """Of a policy on some rows."""

    n_rows: int
    costs: Costs
    referred: float  # the share of decisions that are no labels; nan where there are only labels, or none
    observed: bool  # where there are labels


@dataclass(frozen=True)
class InputRows:
    """A table in memory, by the roles of its columns."""

    evidence: Evidence
    roles: Roles
    labels: Any = None
    groups: Mapping[str, Any] | None = None  # as observed, where the evidence has probabilities
    seen_weights: Any = None  # None, too, where no label or group is missing
    seen_rows: Mapping[str, int] = field(default_factory=dict)  # how many show what others lack, by column
    scanned: ClassVar[bool] = False

    @property
    def outcomes(self) -> dict[str, Any]:
        """What was observed, as arguments of `solve`, `audit` and others."""
        return {"labels": self.labels, "groups": self.groups, "seen_weights": self.seen_weights}

    def check_seen_weights(self, flags: Flags) -> None:
        """An error if they were asked for and have no effect."""
        if flags.seen_weights is not None and not self.seen_rows:
            raise OptionError("--seen-weights has no effect: no label or group is missing")

    @property
    def source(self) -> Evidence:
        """What is solved for."""
        return self.evidence

    def describe(self, problem: Problem) -> Evidence:
        """Rows with the classes and the groups of all."""
        return self.evidence

    def sample(self, policy: Policy) -> InputRows:
        """Rows for a report: all of them."""
        return self

    def measure(self, policy: Policy) -> Measured:
        """What the policy costs on these rows."""
        seen = observe(policy.calibrate(self.evidence), **self.outcomes)
        observed = is_observed(policy.problem.minimize, seen, policy.action_space)
        chances = policy.probabilities(self.evidence)
        referred = measure_referred(chances, policy.action_space, self.evidence)
        without = solve_without_rules(policy, self.evidence, **self.outcomes)
        costs = compare_costs(policy, seen, probabilities=chances, without_rules=without)
        return Measured(len(self.evidence), costs, referred, observed)

    def hold_out(self, outcomes: Mapping[str, Any], **known: Any) -> HeldOut:
        """The rows as held-out ones, with what is known of their costs and weights."""
        return HeldOut(self.evidence, **self.outcomes, outcomes=outcomes, **known)


def open_table(
    path: Path, roles: Roles, groups: Mapping[str, Sequence[Any]], others: Sequence[str] = ()
) -> TableFile:
    """A file, read by the roles of its columns; `groups` has the values of attributes that are known, and
    `others` are columns that have no role and stay as they are."""
    ids = () if roles.id is None else (roles.id,)
    numbers, values = roles.numbers, roles.values(groups)
    text = [name for name in others if name not in numbers and name not in values]
    return TableFile(path, [*ids, *text], numbers, values)


def list_group_values(policy: Policy) -> dict[str, Sequence[Any]]:
    """The values of each attribute that the policy knows."""
    return {name: attribute.values for name, attribute in policy.feature_map.attributes.items()}


@dataclass(frozen=True)
class Previous:
    """The earlier policy that a rule compares decisions with."""

    policy: Policy
    by_id: bool  # whether its decisions are those that ids drew

    def mark(self, evidence: Evidence, ids: Any) -> Evidence:
        """The rows with what it costs to decide otherwise."""
        if self.by_id and ids is None:
            raise OptionError(
                "changes since the earlier policy are counted by id: name the column with --id-column"
            )
        return self.policy.mark_changes(evidence, ids=ids if self.by_id else None)


def counts_changed(policy: Policy) -> bool:
    """Whether a rule counts the decisions that changed since an earlier policy."""
    return CHANGED in policy.problem.arrays


def load_previous(path: Path | None, policy: Policy) -> Previous | None:
    """Of --previous; an error if it has no effect, or is another one than the policy was fitted beside."""
    if path is None:
        return None
    if not counts_changed(policy):
        raise OptionError("--previous has no effect: the policy has no rule on changed decisions")
    earlier, known = Policy.load(path), policy.card.previous
    if known and known["policy"] != earlier.digest:
        raise OptionError(
            f"--previous {path}: changes were counted since another policy (hash "
            f"{known['policy'][:12]}, not {earlier.digest[:12]})"
        )
    return Previous(earlier, bool(known.get("by_id", False)))


def read_rows(
    path: Path,
    roles: Roles,
    groups: Mapping[str, Sequence[Any]],
    reading: Reading = _READING,
    previous: Previous | None = None,
) -> InputRows:
    """The rows of a table; it need not have labels and true groups, though the fitted one had. With a
    previous policy, decisions other than its own are marked."""
    file = open_table(path, roles, groups)
    observed = {name: column for name, column in roles.true_groups.items() if column in file.names}
    extra = [*observed.values(), *(name for name in (roles.label, roles.seen_weights) if name in file.names)]
    table = reading.read(file, list(dict.fromkeys([*roles.needed, *extra])))
    if not len(table):
        raise EvidenceError(f"{path} has no rows")
    seen = {column: _count_seen(table[column], column) for column in extra if column != roles.seen_weights}
    for column in [column for column, count in seen.items() if not count]:
        remark(f"{name_table(path)}: the column {column!r} has no values; it is not read")
    partly = {column: count for column, count in seen.items() if 0 < count < len(table)}
    evidence = _make_evidence(table, file, roles)
    if previous is not None:
        ids = None if roles.id is None else reading.read(file, [roles.id])[roles.id]
        evidence = previous.mark(evidence, ids)
    groups = {name: table[column] for name, column in observed.items() if seen[column]}
    weights = table[roles.seen_weights] if partly and roles.seen_weights in extra else None
    labels = table[roles.label] if seen.get(roles.label or "") else None
    return InputRows(evidence, roles, labels, groups or None, weights, partly)


def _make_evidence(table: Any, file: TableFile, roles: Roles) -> Evidence:
    """Of all rows; of several files, an error names the one that it is about."""
    try:
        evidence = roles.columns.evidence(table)
    except EvidenceError as problem:
        _check_files(file, roles)
        problem.add_place(file.path)
        raise
    labels = [name for name in table.column_names if name == roles.label]
    if any({*table[name].unique().to_pylist()} - {*evidence.classes, None} for name in labels):
        _check_files(file, roles, labels)
    return evidence


def _check_files(file: TableFile, roles: Roles, labels: Sequence[str] = ()) -> None:
    """Of several files, an error about the first that is wrong by itself: rows are counted in it."""
    names = list(dict.fromkeys([*roles.needed, *labels]))
    for part in file.split(names) if len(file.files) > 1 else ():
        rows = part.read(names)
        try:
            if len(rows):
                observe(roles.columns.evidence(rows), *(rows[label] for label in labels))
        except EvidenceError as problem:
            problem.add_place(part.path)
            raise


def read_outcomes(
    path: Path,
    texts: Sequence[str] | None,
    problem: Problem,
    classes: Sequence[Any],
    reading: Reading = _READING,
) -> dict[str, Any]:
    """What custom costs turned out to be, by NAME=PATTERN, NAME=COLUMN,COLUMN or NAME=known."""
    outcomes: dict[str, Any] = {}
    for name, stated in parse_pairs(texts, "--outcomes").items():
        if name not in problem.arrays:
            raise OptionError(f"--outcomes {name}: no rule refers to custom({name!r})")
        if stated == KNOWN:
            outcomes[name] = KNOWN
            continue
        actions = problem.action_space(tuple(classes)).actions
        parts = stated.split(",")
        given = parts if len(parts) > 1 else stated
        columns = order_columns(given, TableFile(path).names, actions, f"--outcomes {name}")
        table = reading.read(TableFile(path, numbers=columns), columns)
        outcomes[name] = np.column_stack([table[column].to_numpy() for column in columns])
    return outcomes


def read_decisions(table: Path, column: str, policy: Policy, reading: Reading = _READING) -> Any:
    """What was decided, in the actions of the policy."""
    values = reading.read(TableFile(table, text=(column,)), [column])[column].to_pylist()
    try:
        return make_decision_column(policy).read(values)
    except EvidenceError as problem:
        problem.add_place(f"{table}, {column}")
        raise


def _count_seen(column: Any, name: str) -> int:
    return int((~as_partial_vector(column, name)[1]).sum())


def find_fitting_roles(path: Path, rules: RulesFile, flags: Flags, without: Sequence[str] = ()) -> Roles:
    """The roles of a table's columns for a problem, with a remark on what was guessed."""
    return _find_roles(state_roles(rules, flags), TableFile(path).names, path, rules.problem, without)


def state_roles(rules: RulesFile, flags: Flags) -> dict[str, Any]:
    """Columns by role, as a rules file would state what it and the command line do."""
    return _merge_roles(rules.columns, flags.list_roles())


def _merge_roles(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
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
    flags: Flags,
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
    stated = flags.list_roles()
    if deciding:
        _refuse_idle_groups(policy, stated)
    names = TableFile(path).names if names is None else names
    remembered = _recall_roles(policy, path, names, stated, deciding, quiet)
    without = ["label", "weight", "seen_weights"] if deciding else []
    if policy.card.columns and not (remembered.get("weight") or flags.weight):
        without.append("weight")  # rows count alike, as they did in the fit
    problem = policy.problem if others is None else join_problems(policy.problem, others.problem)
    if previous is not None or not changes:
        problem = problem.with_rules([rule for rule in problem.rules if not counts_changes(rule)])
        remembered["costs"] = {k: v for k, v in remembered.get("costs", {}).items() if k != CHANGED}
    remembered = _drop_groups(remembered, names, problem, deciding)
    if others is not None:
        remembered = {**remembered, **_merge_roles(remembered, others.columns)}
    roles = _find_roles(_merge_roles(remembered, stated), names, path, problem, without)
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


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Nothing that is read, or written before, is written over; and folders are there."""
    given = [path for path in inputs if path is not None]
    known = [_resolve(path) for path in given]
    for path in [path for path in outputs if path is not None]:
        if path == STREAM:
            raise OptionError("only -o can be -, standard output; write the other to a file")
        if not path.parent.is_dir():
            raise OptionError(f"cannot write {path}: there is no folder {path.parent}")
        if _resolve(path) in known:
            raise OptionError(f"{path} is an input or another output of this command; choose another name")
        for table in given:
            if is_many(table) and would_read(table, path):
                raise OptionError(
                    f"{path} is among the files of {table}: the next run would read it; write it elsewhere"
                )
        known.append(_resolve(path))


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise OptionError(f"{path} is a link that leads nowhere") from None


def parse_limits(texts: Sequence[str] | None, problem: Problem) -> dict[str, tuple[float, float]]:
    """The least and the most that custom costs can be, of NAME=LEAST:MOST."""
    limits: dict[str, tuple[float, float]] = {}
    for text in texts or ():
        name, _, ends = text.partition("=")
        if name not in problem.arrays:
            raise OptionError(f"--limit {text}: no rule refers to custom({name!r})")
        if name in limits:
            raise OptionError(f"--limit {name} is given twice")
        least, _, most = ends.partition(":")
        try:
            low, high = float(least), float(most)
        except ValueError:
            raise OptionError(f"--limit is NAME=LEAST:MOST, not {text!r}") from None
        if check_number(low, f"the least of {name}") > check_number(high, f"the most of {name}"):
            raise OptionError(f"--limit {text}: the least is above the most")
        limits[name] = (low, high)
    return limits
