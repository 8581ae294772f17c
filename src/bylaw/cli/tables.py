"""The columns and rows of tables, as commands read them: in memory, sampled or scanned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from bylaw._base.validation import check_number
from bylaw.cli.console import remark, show_passes
from bylaw.cli.options import parse_pairs
from bylaw.cli.rules_file import RulesFile
from bylaw.engines import scan
from bylaw.engines.files import TableFiles
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting.refit import counts_changes
from bylaw.fitting.solve import solve_without_rules
from bylaw.language.expressions import CHANGED, LABEL, shorten
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.rows.arrays import as_partial_vector
from bylaw.rows.columns import OBVIOUS_LABELS, Columns, as_mapping, find_columns, order_columns
from bylaw.rows.evidence import KNOWN, Evidence
from bylaw.rows.outcomes import observe
from bylaw.rows.table_files import TableFile, detect_format, name_table, open_columns
from bylaw.rows.text_values import match_value
from bylaw.testing import Costs, compare_costs, compare_scanned_costs, is_observed, measure_referred

SAMPLE_ROWS = 1_000_000  # of a report on rows that are scanned
MAX_CLASSES = 20  # that are read of a column of labels which should have two


@dataclass(frozen=True)
class Reading:
    """A way to read rows into memory: all of them, or a random sample."""

    help: str = "give fewer of them"  # what to do if there are too many
    sample: int | None = None  # rows
    seed: int = 0
    unlimited: bool = False  # whether to read all rows, however many there are

    def read(self, file: TableFile, columns: Sequence[str]) -> Any:
        """Return some columns as an Arrow table; the same table and seed give the same sample."""
        if self.sample is not None:
            return self._sample(file, columns, self.sample)
        if self.unlimited:
            return file.read(columns)
        memory, rows = scan.find_memory(), f"{file.path} has about {file.estimate_rows():,} rows"
        if _is_large(file, columns):
            needed = file.estimate_rows() * len(columns) * scan.VALUE_BYTES * scan.MEMORY_FACTOR
            raise EvidenceError(
                f"{rows}, too many to be read into memory for this; {self.help}. They would take about "
                f"{needed / 1e9:,.1f} GB, and {memory / 1e9:,.1f} GB may be taken"
            )
        try:  # texts may be longer than the numbers of the estimate
            return file.read(columns, memory / scan.MEMORY_FACTOR)
        except MemoryError:
            raise EvidenceError(
                f"{rows}, whose columns are too large to be read into memory for this "
                f"({memory / 1e9:,.1f} GB may be taken); {self.help}"
            ) from None

    def _sample(self, file: TableFile, columns: Sequence[str], n_rows: int) -> Any:
        raw = file
        if detect_format(file.files[0]) == "csv":  # the type of a column follows from all rows of the sample
            raw = replace(file, text=[*file.text, *file.values], values={})
        engine = TableFiles.of(raw.split(columns), str(file.path))
        with show_passes("sampling") as progress:
            rows = scan.Scan(engine, Columns(columns), progress).sample_table(n_rows, self.seed)
        if len(rows) == n_rows:
            remark(f"{name_table(file.path)}: a random sample of {n_rows:,} rows")
        return file.parse_values(rows)


_READING = Reading()


def _is_large(file: TableFile, columns: Sequence[str]) -> bool:
    """Return whether these columns are more than should be in memory at once."""
    return file.estimate_rows() * len(columns) > scan.count_most_values()


class Measured(NamedTuple):
    """The costs of a policy on some rows."""

    n_rows: int
    costs: Costs
    referred: float  # the share of decisions that are not labels; nan if there are only labels, or none
    observed: bool  # whether there are labels


def count_observed(rows: Evidence | scan.Scan, columns: Columns) -> dict[str, int]:
    """Return the number of rows with a label or a true group that others lack, by column."""
    if isinstance(rows, scan.Scan):
        return {}
    masks, names = rows.find_observed(), {LABEL: columns.label, **columns.true_groups}
    return {column: int(masks[name].sum()) for name, column in names.items() if column and name in masks}


def check_propensity_weights(rows: Evidence | scan.Scan, stated: Mapping[str, Any]) -> None:
    """Raise an error if inverse propensity weights are stated and have no effect."""
    if "propensity_weights" in stated and (isinstance(rows, scan.Scan) or not rows.find_observed()):
        raise OptionError(
            "--propensity-weights needs rows in memory: scanned rows must be labeled; pass --in-memory"
            if isinstance(rows, scan.Scan)
            else "--propensity-weights has no effect: no label or group is missing"
        )


def sample_rows(rows: Evidence | scan.Scan, policy: Policy) -> Evidence:
    """Return rows for a report: all that are in memory, or a sample of those that are scanned."""
    if not isinstance(rows, scan.Scan):
        return rows
    sample = rows.sample(SAMPLE_ROWS, values=list_group_values(policy))
    if len(sample) == SAMPLE_ROWS:
        remark(f"the report uses a random sample of {SAMPLE_ROWS:,} rows")
    return sample


def measure(policy: Policy, rows: Evidence | scan.Scan) -> Measured:
    """Return the costs of the policy on these rows."""
    objective, space = policy.problem.minimize, policy.action_space
    if isinstance(rows, scan.Scan):
        surveyed = rows.survey(policy.problem)
        seen = observe(surveyed.evidence) if surveyed.observed is None else surveyed.observed
        return Measured(*compare_scanned_costs(policy, surveyed), is_observed(objective, seen, space))
    seen = observe(policy.calibrate(rows))
    probabilities = policy.probabilities(rows)
    without = solve_without_rules(policy, rows)
    costs = compare_costs(policy, seen, probabilities=probabilities, without_rules=without)
    referred = measure_referred(probabilities, space, rows)
    return Measured(len(rows), costs, referred, is_observed(objective, seen, space))


def open_rows(
    path: Path, columns: Columns, asked: bool | None, progress: scan.Watcher | None
) -> Evidence | scan.Scan:
    """Return the rows of a table to fit: scanned if `asked` or, by default, if they do not fit in memory."""
    if asked is None:
        names = list(dict.fromkeys([*columns.needed, *columns.outcomes]))
        if scanned := _is_large(open_columns(path, columns), names):
            remark(f"{name_table(path)} is too large to be read at once: its rows are scanned (--in-memory)")
    else:
        scanned = asked
    if scanned:
        return scan.scan(path, replace(columns, propensity_weights=None), progress=progress)
    return read_rows(path, columns, {}, Reading("scan them: --scan", unlimited=asked is False))


def list_group_values(policy: Policy) -> dict[str, Sequence[Any]]:
    """Return the values of each attribute that the policy knows."""
    return {name: attribute.values for name, attribute in policy.feature_map.attributes.items()}


@dataclass(frozen=True)
class Previous:
    """The earlier policy of a rule on changed decisions."""

    policy: Policy
    by_id: bool  # whether its decisions are drawn by ids

    def mark(self, evidence: Evidence, ids: Any) -> Evidence:
        """Return the rows with a cost for each decision that differs."""
        if self.by_id and ids is None:
            raise OptionError(
                "changes since the earlier policy are counted by id: name the column with --id-column"
            )
        return self.policy.mark_changes(evidence, ids=ids if self.by_id else None)


def load_previous(path: Path | None, policy: Policy) -> Previous | None:
    """Return the policy of --previous, or raise if it has no effect or is not the one of the fit."""
    if path is None:
        return None
    if CHANGED not in policy.problem.arrays:
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
    columns: Columns,
    groups: Mapping[str, Sequence[Any]],
    reading: Reading = _READING,
    previous: Previous | None = None,
) -> Evidence:
    """Return the rows of a table, which need not have the labels and true groups of the fit.

    With a previous policy, decisions that differ from its own are marked.
    """
    file = open_columns(path, columns, groups)
    columns = columns.keep_observed(file.names)
    table = reading.read(file, list(dict.fromkeys([*columns.needed, *columns.outcomes])))
    if not len(table):
        raise EvidenceError(f"{path} has no rows")
    present, partly = [], False
    for column in replace(columns, propensity_weights=None).outcomes:
        observed = ~as_partial_vector(table[column], column)[1]
        partly |= bool(observed.any() and not observed.all())
        if observed.any():
            present.append(column)
        else:
            remark(f"{name_table(path)}: the column {column!r} has no values; it is not read")
    if partly and columns.propensity_weights is not None:  # without effect otherwise
        present.append(columns.propensity_weights)
    evidence = _make_evidence(table, file, columns.keep_observed(present))
    if previous is not None:
        ids = None if columns.id is None else reading.read(file, [columns.id])[columns.id]
        evidence = previous.mark(evidence, ids)
    return evidence


def _make_evidence(table: Any, file: TableFile, columns: Columns) -> Evidence:
    """Return evidence of all rows; an error names the file that it is about."""
    try:
        return columns.evidence(table)
    except EvidenceError as problem:
        _check_files(file, replace(columns, propensity_weights=None))
        problem.add_place(file.path)
        raise


def _check_files(file: TableFile, columns: Columns) -> None:
    """Raise the error of the first of several files that has one: its rows are counted in the file."""
    names = list(dict.fromkeys([*columns.needed, *columns.outcomes]))
    for part in file.split(names) if len(file.files) > 1 else ():
        rows = part.read(names)
        try:
            if len(rows):
                columns.evidence(rows)
        except EvidenceError as problem:
            problem.add_place(part.path)
            raise


def read_ids(path: Path, columns: Columns, groups: Mapping[str, Sequence[Any]]) -> Any:
    """Return the ids of a table, or None if it has no column of ids."""
    return None if columns.id is None else open_columns(path, columns, groups).read([columns.id])[columns.id]


def read_outcomes(
    path: Path,
    texts: Sequence[str] | None,
    problem: Problem,
    classes: Sequence[Any],
    reading: Reading = _READING,
) -> dict[str, Any]:
    """Return observed values of custom costs, from NAME=PATTERN, NAME=COLUMN,COLUMN or NAME=known."""
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


def parse_limits(texts: Sequence[str] | None, problem: Problem) -> dict[str, tuple[float, float]]:
    """Return the least and the most value of custom costs, from NAME=LEAST:MOST."""
    limits: dict[str, tuple[float, float]] = {}
    for text in texts or ():
        name, _, ends = text.partition("=")
        if name not in problem.arrays:
            raise OptionError(f"--limit {text}: no rule refers to custom({name!r})")
        if name in limits:
            raise OptionError(f"--limit {name} is given twice")
        try:
            low, high = map(float, ends.split(":"))
        except ValueError:
            raise OptionError(f"--limit must be NAME=LEAST:MOST, got {text!r}") from None
        if check_number(low, f"the least of {name}") > check_number(high, f"the most of {name}"):
            raise OptionError(f"--limit {text}: the least is above the most")
        limits[name] = (low, high)
    return limits


def parse_tests(context: typer.Context, problem: Problem) -> dict[str, Any]:
    """Return the options of tests on held-out rows: texts of outcomes, limits and the largest weight."""
    given = context.params
    limits = parse_limits(given.get("limit"), problem)
    return {"outcomes": given["outcomes"], "limits": limits, "largest_weight": given["largest_weight"]}


def read_held_out(
    path: Path | None,
    columns: Columns,
    problem: Problem,
    classes: Sequence[Any],
    groups: Mapping[str, Sequence[Any]],
    known: Mapping[str, Any],
    reading: Reading = _READING,
    previous: Previous | None = None,
) -> Evidence | None:
    """Return held-out rows with observed costs and `known` limits, or None if there is no table."""
    if path is None:
        return None
    outcomes = read_outcomes(path, known["outcomes"], problem, classes, reading)
    rows = read_rows(path, columns, groups, reading, previous)
    return rows.with_observed(**{**known, "outcomes": outcomes})


def find_fitting_columns(
    path: Path, rules: RulesFile, stated: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Return the columns of a table for the rules of a file, and guesses, which are printed."""
    return _find(merge_columns(rules.columns, stated), TableFile(path).names, path, rules.problem, without)


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns by role, as a file and flags state them; flags take precedence, name by name."""
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
    """Return the columns of a table, and guesses, which are printed."""
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
    """Return the two classes of one column of scores, from the column of true labels."""
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
            f"positive must be one of two classes, got {stated['positive']!r}: the column {label!r} has "
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
    """Return the columns that the policy was fitted on, or those that flags name instead.

    Without a table, `names` are its columns. Rows that are decided need neither outcomes nor weights. Rules
    of `others` are tested instead of the policy's own. Changed decisions are read from columns, unless there
    is a `previous` policy or `changes` is false. If `quiet`, missing labels are not mentioned.
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
        without.append("weight")  # the fit had no weights

    def keep(name: str, one: Any) -> bool:  # a group that no rule refers to may be missing
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

    # Put unknown groups into the order of the policy's values, which joint probabilities follow.
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
    """Return columns by role, as the policy has them, or with conventional names if it has none."""
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
    """Return a problem with the rules of both, which refers to the columns of both."""
    rules = {str(rule): rule for rule in (*own.rules, *other.rules)}
    decisions = own.kind if isinstance(own.decisions, str) else own.decisions
    return Problem(own.minimize, list(rules.values()), own.classes, decisions, own.reject)
