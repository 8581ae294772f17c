"""bylaw watch: a policy's rules in production, with a state that grows from run to run."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import ExitCode, Grid, make_plain, remark, write_result
from bylaw.cli.files import check_outputs, open_tables
from bylaw.errors import EvidenceError, OptionError

if TYPE_CHECKING:
    from bylaw.cli.inputs import Previous
    from bylaw.cli.rules_file import RulesFile
    from bylaw.policy.policy import Policy
    from bylaw.testing import Monitor, RuleWatch


def run_watch(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    state: Annotated[
        Path,
        typer.Option(help="The state, a JSON file: read if it is there, and written.", show_default=False),
    ],
    late: Annotated[
        bool,
        typer.Option("--late", help="The table has ids, and labels or groups of rows that were seen before."),
    ] = False,
    rules: options.OtherRules = None,
    rule: options.OtherRule = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="Watch what was decided, in this column, not the policy's probabilities."),
    ] = None,
    ever: Annotated[
        float | None,
        typer.Option(
            help="The probability that a rule is ever called broken though all hold.", show_default="0.05"
        ),
    ] = None,
    run_length: Annotated[
        float | None,
        typer.Option(
            help="The least mean number of rows, or batches, until a rule is called changed though all hold.",
            show_default="100000 rows or 1000 batches",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="What is independent: rows, or batches, each a table, where days differ by chance.",
            show_default="rows",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            help="A name of these rows, such as a date. Their order follows from it, and no name is counted "
            "twice.",
            show_default="a hash of the files",
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="First forget the alarms: their cause was found.")
    ] = False,
    limit: options.Limit = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    min_cell: options.MinCell = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw rates and evidence, a PNG or SVG file.")
    ] = None,
    id_column: options.IdColumn = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Watch a policy on rows as they arrive, as often as you like.

    Exit codes, for jobs: 0 quiet, 1 an alarm, 2 trouble. While all rules hold, an alarm that one is broken is
    raised with probability --ever at most, over all runs together.
    A run counts its rows as a whole or not at all. The same rows again are not counted twice.

    [bold]Examples[/bold]

      bylaw watch policy.json today.parquet --state watch.json

      bylaw watch policy.json today.parquet --state watch.json --decisions decision --id-column id

      cat today.csv | bylaw watch policy.json - --format csv --state watch.json --batch 2024-05-17

      bylaw watch policy.json outcomes.parquet --state watch.json --late --id-column id --label y
    """
    from bylaw._base.files import lock_folder
    from bylaw.cli.inputs import load_previous
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.language.expressions import CHANGED
    from bylaw.policy.policy import Policy

    check_outputs(None, [policy, table, rules], state, plot)
    stated = options.state_columns(context)
    (table,) = open_tables(context, table)
    chosen, others = Policy.load(policy), read_other_rules(rules, rule)
    earlier = load_previous(previous, chosen)
    # What was decided is known: of the earlier policy only a rule on changes asks.
    blind = decisions is not None and earlier is None and CHANGED in chosen.problem.arrays
    with lock_folder(state.absolute().parent):  # another run on the same state waits
        with _refuse_changes(table):  # its columns are read one after the other
            if state.exists():
                monitor = _load_monitor(
                    state, chosen, others, limit, blind, ever=ever, run_length=run_length, unit=unit
                )
                if restart:
                    monitor.restart()
            else:
                if late:
                    raise OptionError(
                        f"there is no state {state}: rows are seen first, and their labels come late"
                    )
                options.refuse_idle("a state that is there", restart=restart)
                settings = options.keep_given(ever=ever, run_length=run_length, unit=unit)
                monitor = _make_monitor(chosen, others, limit, blind, table, stated, settings)
            name = _name_batch(table) if batch is None else batch
            counted = name not in monitor.batches
            if not counted:
                remark(f"{table} was counted before; it is not counted again")
            elif late:
                options.refuse(
                    "goes with new rows; with --late, a table has ids, labels and groups",
                    decisions=decisions,
                    outcomes=outcomes,
                    scores=scores,
                )
                _add_late(monitor, table, stated, name)
            else:
                _add_rows(monitor, table, stated, name, decisions, outcomes, earlier, blind)
        if name not in monitor.batches:
            counted = False
            remark(f"all rows of {table} were counted before, under another name")
        shown = options.keep_given(min_cell=min_cell)
        if plot is not None:
            import matplotlib

            matplotlib.use("Agg")
            monitor.plot(**shown).savefig(plot, dpi=120)
        monitor.save(state)
    facts = {**monitor.to_dict(**shown), "batch": name, "counted": counted}
    facts |= {"state": str(state), "policy": chosen.digest}
    code = ExitCode.BROKEN if monitor.alarm else ExitCode.SUCCESS
    write_result(facts, _describe(monitor, state, **shown), as_json, code)


def _load_monitor(
    state: Path,
    policy: Policy,
    others: RulesFile | None,
    limit: list[str] | None,
    blind: bool,
    **settings: Any,
) -> Monitor:
    """Return the monitor of an earlier run; what is stated again must be the same."""
    from bylaw.cli.inputs import parse_limits
    from bylaw.fitting.refit import counts_changes
    from bylaw.testing import Monitor

    monitor = Monitor.load(state, policy)
    if blind and any(map(counts_changes, monitor.problem.rules)):
        raise OptionError(
            f"{state} watches changed decisions: give the earlier policy, --previous, as when it was begun"
        )
    rules = [*map(str, monitor.problem.rules)]
    differs = {
        "rule": others is not None and [*map(str, others.problem.rules)] != rules,
        **{name: value not in (None, getattr(monitor, name)) for name, value in settings.items()},
        "limit": bool(limit) and parse_limits(limit, monitor.problem) != dict(monitor.limits),
    }
    options.refuse(
        f"differs from what {state} was begun with: leave it out, or begin another state", **differs
    )
    return monitor


def _make_monitor(
    policy: Policy,
    others: RulesFile | None,
    limit: list[str] | None,
    blind: bool,
    table: Path,
    stated: Mapping[str, Any],
    settings: dict[str, Any],
) -> Monitor:
    """Return a new monitor; of groups that the policy does not know, it takes the values of the table.

    If `blind`, nothing is known of changed decisions, and the other rules are watched.
    """
    from bylaw.cli.inputs import list_group_values, parse_limits, read_rows
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.fitting.refit import counts_changes
    from bylaw.testing import Monitor

    problem = (others or policy).problem
    if blind:
        kept = [rule for rule in problem.rules if not counts_changes(rule)]
        if not kept:
            raise OptionError(
                "there are only changed decisions to watch: give the earlier policy, --previous"
            )
        if len(kept) < len(problem.rules):
            remark("changed decisions are not watched: that would take the earlier policy, --previous")
        problem = problem.with_rules(kept)
    known, values = list_group_values(policy), {}
    if any(name not in known for name in problem.attributes):
        columns = find_policy_columns(policy, table, stated, others=others, changes=not blind, quiet=True)
        rows = read_rows(table, columns, known)
        values = {name: found for name, found in rows.evidence.group_values.items() if name not in known}
    rules = list(problem.rules) if others is not None or blind else None
    return Monitor(policy, rules=rules, limits=parse_limits(limit, problem), groups=values, **settings)


@contextlib.contextmanager
def _refuse_changes(table: Path) -> Iterator[None]:
    """Raise an error if the files of a table are others in the end, whatever else is wrong with them then."""
    from bylaw.rows.table_files import find_files, look_at

    def look() -> dict[Path, Any]:
        return {path: look_at(path) for path in find_files(str(table))}

    before = look()
    try:
        yield
    finally:
        if look() != before:
            raise EvidenceError(f"{table} was changed while it was read; nothing was counted. Run it again")


def _name_batch(table: Path) -> str:
    """Return a hash of all files of a table, of 64 bits."""
    from bylaw.rows.table_files import find_files

    hashed = hashlib.sha256()
    for path in find_files(str(table)):
        hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()[:16]


def _add_rows(
    monitor: Monitor,
    table: Path,
    stated: Mapping[str, Any],
    name: str,
    decisions: str | None,
    outcomes: list[str] | None,
    previous: Previous | None,
    blind: bool,
) -> None:
    """Count new rows, or all rows of a table of which some were seen without their labels."""
    import numpy as np

    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.inputs import Reading, list_group_values, read_ids, read_outcomes, read_rows
    from bylaw.cli.rules_file import RulesFile
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.language.expressions import CHANGED

    policy, values = monitor.policy, list_group_values(monitor.policy)
    others = None if monitor.problem is policy.problem else RulesFile(monitor.problem)
    columns = find_policy_columns(
        policy, table, stated, others=others, previous=previous, changes=not blind, quiet=True
    )
    rows = read_rows(table, columns, values, previous=previous)
    evidence = rows.evidence
    if blind:  # no rule that is watched reads changes, and what was decided is known
        nothing = np.zeros((len(evidence), len(policy.actions)))
        evidence = evidence.with_columns(costs={**evidence.costs, CHANGED: nothing})
    monitor.update(
        evidence,
        labels=rows.labels,
        groups=rows.groups,
        ids=read_ids(table, columns, values),
        decisions=None if decisions is None else read_decisions(table, decisions, policy, Reading()),
        outcomes=read_outcomes(table, outcomes, monitor.problem, policy.action_space.classes),
        batch=name,
    )


def _add_late(monitor: Monitor, table: Path, stated: Mapping[str, Any], name: str) -> None:
    """Add labels and groups of rows that were seen before."""
    from bylaw.rows.columns import Columns
    from bylaw.rows.table_files import TableFile

    card = monitor.policy.card.columns
    fitted = Columns.from_dict(card) if card else None
    names = TableFile(table).names
    ids = stated.get("id") or (fitted and fitted.id)
    if ids is None or ids not in names:
        raise OptionError(f"{table} has no column of ids {ids!r}: name it with --id-column NAME")
    label = stated.get("label") or (fitted and fitted.label)
    columns = {
        **(fitted.true_groups if fitted else {}),
        **stated.get("groups", {}),
        **stated.get("true_groups", {}),
    }
    groups = {group: column for group, column in columns.items() if column in names}
    if label not in names and not groups:
        raise EvidenceError(
            f"{table} has neither labels nor groups: name their columns, --label COLUMN or --true-group "
            "NAME=COLUMN"
        )
    values: dict[str, Any] = {column: monitor.groups.get(group, ()) for group, column in groups.items()}
    if label in names:
        values[label] = monitor.policy.action_space.classes
    read = TableFile(table, (ids,), (), values).read([ids, *values])
    monitor.update(
        ids=read[ids],
        labels=read[label] if label in names else None,
        groups={group: read[column] for group, column in groups.items()} or None,
        batch=name,
    )


def _describe(monitor: Monitor, state: Path, **shown: int) -> Iterator[Any]:
    """Yield each rule or family as it was stated, by its worst member, and what holds of all."""
    from bylaw.testing import format_headline, format_interval, format_terms, sort_rules

    worst: dict[str, RuleWatch] = {}
    for one in sort_rules(monitor, **shown):
        worst.setdefault(one.statement, one)
    lines = [
        (
            one.status,
            statement,
            "" if one.reason else f"{one.estimate:.4f}",
            f"{one.target:.4g}",
            "" if one.hidden else f"{one.rows:,}",
            f"{min(one.evidence, 9.99):.0%}",  # more is an alarm anyway
        )
        for statement, one in worst.items()
    ]
    yield Grid(("status", "rule", "so far", "bound", "its rows", "evidence"), lines)
    for statement, one in worst.items():
        if one.reason:
            yield f"{statement}: {one.reason}"
            continue
        if one.rule != statement and one.evidence > 0:
            yield f"{statement}: most evidence against {one.rule}"
        if one.since is not None:
            yield f"{statement}: {one.status}, alarm at row {one.since:,}; {format_interval(one)}"
    beyond = any(one.since is None and one.is_beyond for one in worst.values())
    aside = " (a rate beyond its bound may be chance until then)" if beyond else ""
    yield make_plain(f"{format_headline(monitor)}; an alarm is 100 % of evidence{aside}", "bold")
    remark(format_terms(monitor))
    yield f"state: {state}"
