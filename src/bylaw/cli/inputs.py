"""The rows of tables, as commands read them: in memory, sampled or scanned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.validation import check_number
from bylaw.cli.console import remark, show_passes
from bylaw.cli.options import parse_pairs
from bylaw.engines import scan
from bylaw.engines.files import TableFiles
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting.solve import solve_without_rules
from bylaw.language.expressions import CHANGED, LABEL
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.rows.arrays import as_partial_vector
from bylaw.rows.column_roles import order_columns
from bylaw.rows.columns import Columns
from bylaw.rows.evidence import KNOWN, Evidence
from bylaw.rows.outcomes import observe
from bylaw.rows.table_files import TableFile, detect_format, name_table, open_columns
from bylaw.testing import Costs, compare_costs, compare_scanned_costs, is_observed, measure_referred

SAMPLE_ROWS = 1_000_000  # of a report on rows that are scanned


@dataclass(frozen=True)
class Reading:
    """How rows come into memory: all of them, or a random sample where they are too many."""

    help: str = "give fewer of them"  # what to do where they are too many
    sample: int | None = None  # rows
    seed: int = 0
    unlimited: bool = False  # all rows are asked for, however many they are

    def read(self, file: TableFile, columns: Sequence[str]) -> Any:
        """Return some columns as an Arrow table. Of one table and one sample, it is always the same rows."""
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
        try:  # texts may be longer than the numbers that the estimate supposes
            return file.read(columns, memory / scan.MEMORY_FACTOR)
        except MemoryError:
            raise EvidenceError(
                f"{rows}, whose columns are too large to be read into memory for this "
                f"({memory / 1e9:,.1f} GB may be taken); {self.help}"
            ) from None

    def _sample(self, file: TableFile, columns: Sequence[str], n_rows: int) -> Any:
        raw = file
        if detect_format(file.files[0]) == "csv":  # all rows of the sample decide what text stands for
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
    """What a policy costs on some rows."""

    n_rows: int
    costs: Costs
    referred: float  # the share of decisions that are no labels; nan where there are only labels, or none
    observed: bool  # whether there are labels


def count_observed(rows: Evidence | scan.Scan, columns: Columns) -> dict[str, int]:
    """Return how many rows have a label or a true group that is missing on others, by column."""
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
        remark(f"the report goes by a random sample of {SAMPLE_ROWS:,} rows")
    return sample


def measure(policy: Policy, rows: Evidence | scan.Scan) -> Measured:
    """Return what the policy costs on these rows."""
    objective, space = policy.problem.minimize, policy.action_space
    if isinstance(rows, scan.Scan):
        surveyed = rows.survey(policy.problem)
        seen = (
            observe(surveyed.evidence.without_observed()) if surveyed.observed is None else surveyed.observed
        )
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
    """Return the rows of a table to fit: in memory or scanned, as was asked, or as they fit in memory.

    Parameters
    ----------
    path : Path
        of the table.
    columns : Columns
        of its columns.
    asked : bool, optional
        whether the rows are to be scanned.
    progress : callable, optional
        called after each part of a pass.
    """
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
    """The earlier policy that a rule compares decisions with."""

    policy: Policy
    by_id: bool  # whether its decisions are those that ids drew

    def mark(self, evidence: Evidence, ids: Any) -> Evidence:
        """Return the rows with what it costs to decide otherwise."""
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
    """Return the rows of a table in memory, which need not have the labels and true groups of the fit.

    With a previous policy, decisions other than its own are marked.
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
    """Return evidence of all rows; an error names the one of several files that it is about."""
    try:
        return columns.evidence(table)
    except EvidenceError as problem:
        _check_files(file, replace(columns, propensity_weights=None))
        problem.add_place(file.path)
        raise


def _check_files(file: TableFile, columns: Columns) -> None:
    """Raise an error about the first of several files that is wrong alone: rows are counted in it."""
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
    """Return what custom costs turned out to be, by NAME=PATTERN, NAME=COLUMN,COLUMN or NAME=known."""
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
    """Return the least and the most that custom costs can be, of NAME=LEAST:MOST."""
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
            raise OptionError(f"--limit is NAME=LEAST:MOST, not {text!r}") from None
        if check_number(low, f"the least of {name}") > check_number(high, f"the most of {name}"):
            raise OptionError(f"--limit {text}: the least is above the most")
        limits[name] = (low, high)
    return limits


def read_held_out(
    path: Path | None,
    columns: Columns,
    problem: Problem,
    classes: Sequence[Any],
    groups: Mapping[str, Sequence[Any]],
    *,
    outcomes: Sequence[str] | None,
    limits: Mapping[str, tuple[float, float]],
    largest_weight: float | None,
    reading: Reading = _READING,
    previous: Previous | None = None,
) -> Evidence | None:
    """Return held-out rows, with what is known of their costs and weights; None if there is no table."""
    if path is None:
        return None
    found = read_outcomes(path, outcomes, problem, classes, reading)
    rows = read_rows(path, columns, groups, reading, previous)
    return rows.with_observed(outcomes=found, limits=limits, largest_weight=largest_weight)
