"""The columns and rows of tables, which commands read into memory, sample or scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bylaw._base import check_number
from bylaw.cli.console import remark, show_progress
from bylaw.cli.options import parse_pairs, state_columns
from bylaw.cli.rules_file import RulesFile, read_rules
from bylaw.engines import MEMORY_FACTOR, VALUE_BYTES, Scan, Watcher, count_most_values, find_memory, scan
from bylaw.errors import EvidenceError, OptionError
from bylaw.language import CHANGED, Problem, shorten
from bylaw.policy import Policy
from bylaw.rows import (
    KNOWN,
    OBVIOUS_LABELS,
    Columns,
    Evidence,
    TableFile,
    as_mapping,
    as_partial_vector,
    detect_format,
    find_columns,
    match_value,
    name_table,
    open_columns,
    order_columns,
)


@dataclass(frozen=True)
class Reading:
    """A way to read rows into memory: all of them, or a random sample."""

    help: str = "use fewer rows"  # advice if the rows are too many
    sample: int | None = None  # number of rows of the sample; None reads all rows
    seed: int = 0
    unlimited: bool = False  # whether to read all rows even if they may not fit into memory

    def read(self, file: TableFile, columns: Sequence[str]) -> Any:
        """Return some columns as an Arrow table; the same table and seed give the same sample."""
        if self.sample is not None:
            return self._sample(file, columns, self.sample)
        if self.unlimited:
            return file.read(columns)
        memory, rows = find_memory(), f"{file.path} has about {file.estimate_rows():,} rows"
        if _is_large(file, columns):
            needed = file.estimate_rows() * len(columns) * VALUE_BYTES * MEMORY_FACTOR
            raise EvidenceError(
                f"{rows}, too many to read into memory: they need about {needed / 1e9:,.1f} GB, and "
                f"{memory / 1e9:,.1f} GB are available; {self.help}"
            )
        try:  # texts may be longer than the numbers of the estimate
            return file.read(columns, memory / MEMORY_FACTOR)
        except MemoryError:
            raise EvidenceError(
                f"{rows}, whose columns are too large to read into memory ({memory / 1e9:,.1f} GB are "
                f"available); {self.help}"
            ) from None

    def _sample(self, file: TableFile, columns: Sequence[str], n_rows: int) -> Any:
        from bylaw.engines import TableFiles

        raw = file
        if detect_format(file.files[0]) == "csv":  # the type of a column follows from all rows of the sample
            raw = replace(file, text=[*file.text, *file.values], values={})
        engine = TableFiles.of(raw.split(columns), str(file.path))
        with show_progress("sampling") as progress:
            rows = Scan(engine, Columns(columns), progress).sample_table(n_rows, self.seed)
        if len(rows) == n_rows:
            remark(f"{name_table(file.path)}: a random sample of {n_rows:,} rows")
        return file.parse_values(rows)


_READING = Reading()


def _is_large(file: TableFile, columns: Sequence[str]) -> bool:
    """Return whether these columns have more values than fit into memory."""
    return file.estimate_rows() * len(columns) > count_most_values()


def open_rows(path: Path, columns: Columns, asked: bool | None, progress: Watcher | None) -> Evidence | Scan:
    """Return the rows of a table to fit; they are scanned if `asked` or, by default, if they are too many."""
    scanned = asked
    if asked is None and (scanned := _is_large(open_columns(path, columns), columns.names)):
        remark(f"{name_table(path)} is too large for memory, so its rows are scanned (unless --in-memory)")
    if scanned:
        return scan(path, replace(columns, propensity_weights=None), progress=progress)
    return read_rows(path, columns, {}, Reading("scan them: --scan", unlimited=asked is False))


def check_propensity_weights(rows: Evidence | Scan, given: Any) -> None:
    """Raise if inverse propensity weights are given but have no effect."""
    if not given.propensity_weights:
        return
    if isinstance(rows, Scan):
        raise OptionError(
            "--propensity-weights needs rows in memory, because scanned rows must be labeled; pass "
            "--in-memory"
        )
    if not rows.find_observed():
        raise OptionError(
            "--propensity-weights has no effect, because no label or group is missing; leave it out"
        )


def read_rows(
    path: Path, columns: Columns, groups: Mapping[str, Sequence[Any]], reading: Reading = _READING
) -> Evidence:
    """Return the rows of a table; columns of labels and true groups may be missing or empty.

    `groups` has the values of groups that are already known.
    """
    file = open_columns(path, columns, groups)
    columns = columns.keep_observed(file.names)
    table = reading.read(file, columns.names)
    if not len(table):
        raise EvidenceError(f"{path} must have at least one row, got none")
    present, partly, unweighted = [], False, replace(columns, propensity_weights=None)
    for column in unweighted.outcomes:
        observed = ~as_partial_vector(table[column], column)[1]
        partly |= bool(observed.any() and not observed.all())
        if observed.any():
            present.append(column)
        else:
            remark(f"{name_table(path)}: the column {column!r} has no values and is ignored")
    if partly and columns.propensity_weights is not None:  # without effect otherwise
        present.append(columns.propensity_weights)
    columns = columns.keep_observed(present)
    try:
        return columns.evidence(table)
    except EvidenceError as problem:
        # Name the first of several files that has an error, and count its rows in that file.
        names = columns.names
        for part in file.split(names) if len(file.files) > 1 else ():
            try:
                if len(rows := part.read(names)):
                    replace(columns, propensity_weights=None).evidence(rows)
            except EvidenceError as first:
                first.add_place(part.path)
                raise
        problem.add_place(file.path)
        raise


def read_outcomes(
    path: Path,
    texts: Sequence[str] | None,
    problem: Problem,
    classes: Sequence[Any],
    reading: Reading = _READING,
) -> dict[str, Any]:
    """Return observed values of custom costs, given as NAME=PATTERN, NAME=COLUMN,COLUMN or NAME=known."""
    outcomes: dict[str, Any] = {}
    for name, stated in parse_pairs(texts, "--outcomes").items():
        if name not in problem.arrays:
            raise OptionError(
                f"--outcomes {name} has no effect, because no rule uses custom({name!r}); leave it out"
            )
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


def parse_limits(texts: Sequence[str] | None, problem: Problem) -> dict[str, tuple[float, float]]:
    """Return {name: (smallest, largest value)} of custom costs from texts NAME=LEAST:MOST."""
    limits: dict[str, tuple[float, float]] = {}
    for name, ends in parse_pairs(texts, "--limit").items():
        if name not in problem.arrays:
            raise OptionError(
                f"--limit {name} has no effect, because no rule uses custom({name!r}); leave it out"
            )
        try:
            low, high = map(float, ends.split(":"))
        except ValueError:
            raise OptionError(f"--limit must be NAME=LEAST:MOST, got '{name}={ends}'") from None
        if check_number(low, f"the least of {name}") > check_number(high, f"the most of {name}"):
            raise OptionError(f"--limit must be NAME=LEAST:MOST with LEAST <= MOST, got {name}={ends}")
        limits[name] = (low, high)
    return limits


def add_tests(
    rows: Evidence,
    path: Path,
    given: Any,
    problem: Problem,
    limits: Mapping[str, tuple[float, float]],
    reading: Reading,
) -> Evidence:
    """Return held-out rows with the observed costs, limits and largest weight that their tests need."""
    outcomes = read_outcomes(path, given.outcomes, problem, rows.classes, reading)
    return rows.with_observed(outcomes=outcomes, limits=limits, largest_weight=given.largest_weight)


def find_fitting_columns(
    path: Path, rules: RulesFile, stated: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Return the columns of a table that a rules file needs, and lines that report the guessed columns."""
    return _find(merge_columns(rules.columns, stated), TableFile(path).names, path, rules.problem, without)


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge {role: columns} of a rules file and of flags; flags take precedence, name by name."""
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
    """Return the columns of a table, and the guesses about them, which are printed."""
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
    """Return the two classes for a single column of scores, from the column of true labels."""
    label: str = stated.get("label") or next((name for name in OBVIOUS_LABELS if name in names), "")
    if label not in names:
        return {}
    values: dict[Any, None] = {}
    for batch in TableFile(path, values={label: ()}).batches([label]):
        values |= dict.fromkeys(batch.column(label).drop_null().unique().to_pylist())
        if len(values) > 2:
            break
    classes = list(values)
    if len(classes) != 2 or match_value(str(stated["positive"]), classes) is None:
        raise EvidenceError(
            f"positive must be one of two classes, got {stated['positive']!r}: the column {label!r} has "
            f"{shorten(classes)}"
        )
    return {"classes": sorted(classes, key=str)}


@dataclass(frozen=True)
class PolicyTables:
    """A policy, and the way in which a command reads tables for it."""

    policy: Policy
    stated: Mapping[str, Any] = field(default_factory=dict)  # columns by role, as options name them
    others: RulesFile | None = None  # rules to test in place of those of the policy
    earlier: Policy | None = None  # policy of --previous, with which decisions are compared
    reading: Reading = _READING
    deciding: bool = False  # whether rows are only decided, which needs neither labels nor weights
    reads_changes: bool = True  # whether rules on changed decisions are evaluated
    remarks: bool = True  # whether to mention a missing column of labels

    @classmethod
    def open(cls, path: Path, given: Any, **settings: Any) -> PolicyTables:
        """Load the policy of a file, and check the shared options of the command."""
        stated, policy = state_columns(given), Policy.load(path)
        others, (file, rule) = None, (vars(given).get(name) for name in ("other_rules", "other_rule"))
        if file or rule:
            others = read_rules(file, rule, None)
            if not others.problem.rules:
                raise OptionError(f"{file} must have rules to test, got none")
        if given.previous is not None:
            if CHANGED not in policy.problem.arrays:
                raise OptionError(
                    "--previous has no effect, because no rule is about changed decisions; leave it out"
                )
            earlier, known = Policy.load(given.previous), policy.card.previous
            if known and known["policy"] != earlier.digest:
                raise OptionError(
                    f"--previous must be the policy with which decisions were compared (hash "
                    f"{known['policy'][:12]}), got {given.previous} with the hash {earlier.digest[:12]}"
                )
            settings["earlier"] = earlier
        return cls(policy, stated, others, **settings)

    @property
    def problem(self) -> Problem:
        """The problem whose rules are tested."""
        return (self.others or self.policy).problem

    @property
    def referred(self) -> Problem:
        """A problem that refers to all columns of the policy and of the tested rules."""
        own = self.policy.problem
        if self.others is None:
            return own
        rules = {str(rule): rule for rule in (*own.rules, *self.others.problem.rules)}
        decisions = own.kind if isinstance(own.decisions, str) else own.decisions
        return Problem(own.minimize, list(rules.values()), own.classes, decisions, own.reject)

    @property
    def values(self) -> dict[str, Sequence[Any]]:
        """The values of each attribute in the policy."""
        return {name: attribute.values for name, attribute in self.policy.feature_map.attributes.items()}

    def read(self, table: Path) -> tuple[Evidence, Columns]:
        """Return the rows of a table, with changed decisions marked, and its columns."""
        columns = self.find_columns(table)
        rows = read_rows(table, columns, self.values, self.reading)
        return self.mark(rows, self.read_ids(table, columns) if self.earlier else None), columns

    def read_ids(self, table: Path, columns: Columns) -> Any:
        """Return the ids of a table, or None if it has no column of ids."""
        if columns.id is None:
            return None
        return self.reading.read(open_columns(table, columns, self.values), [columns.id])[columns.id]

    def read_held_out(self, table: Path, given: Any) -> tuple[Evidence, Columns]:
        """Return held-out rows with the values that their tests need, and their columns."""
        limits = parse_limits(given.limit, self.problem)
        rows, columns = self.read(table)
        return add_tests(rows, table, given, self.referred, limits, self.reading), columns

    def mark(self, evidence: Evidence, ids: Any) -> Evidence:
        """Return rows with a cost of one for each decision that differs from that of the earlier policy."""
        if self.earlier is None:
            return evidence
        by_id = bool(self.policy.card.previous.get("by_id", False))
        if by_id and ids is None:
            raise OptionError(
                "changed decisions are counted by id, so a column of ids is needed; name it with --id-column"
            )
        return self.earlier.mark_changes(evidence, ids=ids if by_id else None)

    def find_columns(self, path: Path, names: Sequence[str] | None = None) -> Columns:
        """Return the columns of a table: those of the fit, or those that options name instead.

        `names` are the columns of the table; by default they are read from it.
        """
        from bylaw.fitting import counts_changes

        policy, problem, stated = self.policy, self.referred, self.stated
        for role, flag in (("groups", "--group"), ("group_probabilities", "--group-probabilities")):
            for name in stated.get(role, ()) if self.deciding else ():
                if name not in policy.problem.attributes:
                    raise OptionError(
                        f"{flag} {name} has no effect, because the policy does not use {name}; leave it out"
                    )
        names = TableFile(path).names if names is None else names
        known = self._recall_columns(path, names)
        if self.earlier is not None or not self.reads_changes:
            problem = problem.with_rules([rule for rule in problem.rules if not counts_changes(rule)])
            known["costs"] = {k: v for k, v in known.get("costs", {}).items() if k != CHANGED}
        without = ["label", "weight", "propensity_weights"] if self.deciding else []
        if policy.card.columns and not (known.get("weight") or stated.get("weight")):
            without.append("weight")  # the fit had no weights

        def keep(name: str, one: Any) -> bool:  # a group that no rule refers to may be missing
            used = [one] if isinstance(one, str) else list(one.values())
            return name in problem.attributes or (not self.deciding and {*used} <= {*names})

        for role in ("groups", "group_probabilities"):
            groups = as_mapping(known.get(role))
            known[role] = {name: one for name, one in groups.items() if keep(name, one)}
        joint = as_mapping(known.get("joint"))
        known["joint"] = {n: one for n, one in joint.items() if n in known["group_probabilities"]}
        if self.others is not None:
            known |= merge_columns(known, self.others.columns)
        columns, _ = _find(merge_columns(known, stated), names, path, problem, without)

        # Put unknown groups into the order of the policy's values, which joint probabilities follow.
        ordered = dict(columns.groups)
        for name, attribute in policy.feature_map.attributes.items():
            if not attribute.known and isinstance(one := columns.groups.get(name), Mapping):
                if missing := [value for value in attribute.values if value not in one]:
                    raise EvidenceError(
                        f"{name} must have a column for each of its values, got none for {missing[0]!r}"
                    )
                ordered[name] = {value: one[value] for value in attribute.values}
        return replace(columns, groups=ordered)

    def _recall_columns(self, path: Path, names: Sequence[str]) -> dict[str, Any]:
        """Return the {role: columns} saved in the policy or, without these, conventional names."""
        policy = self.policy
        if policy.card.columns:
            fitted = Columns.from_dict(policy.card.columns)
            fitted = fitted.without_outcomes() if self.deciding else fitted
            roles = {"label": fitted.label, "id": fitted.id, "weight": fitted.weights}
            mentioned = [role for role in roles if self.remarks or role != "label"]
            for role in () if self.deciding else mentioned:
                name = roles[role]
                if name is not None and name not in names and role not in self.stated:
                    remark(f"{name_table(path)}: column {name!r}, the {role} of the fitted table, is missing")
            return fitted.restate(names)
        attributes = policy.feature_map.attributes.items()
        guessed = {name: {v: f"{name}_{v}" for v in a.values} for name, a in attributes if not a.known}
        return {
            "classes": list(policy.action_space.classes),
            "groups": [name for name, a in attributes if a.known and name in names],
            "group_probabilities": {n: one for n, one in guessed.items() if {*one.values()} <= {*names}},
        }
