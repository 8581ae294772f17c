"""bylaw watch: a policy's rules in production, with a state that grows from run to run."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import remark, show_json, show_table, tell
from bylaw.cli.exit_codes import ExitCode
from bylaw.errors import EvidenceError, OptionError

if TYPE_CHECKING:
    from bylaw.cli.inputs import Previous
    from bylaw.data.evidence import Evidence
    from bylaw.language.problem import Problem
    from bylaw.policy.policy import Policy
    from bylaw.testing import Monitor, RuleWatch

_NAMED = 16  # digits of a hash
_EVER = 0.05
_MOST = 9.99  # of an alarm, that is shown


@takes_columns(
    "id_column", "scores", "group", "group_probabilities", "true_group", "reference", "label", "normalize"
)
def run_watch(
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
    rules: Annotated[
        Path | None, typer.Option("--rules", "-r", help="Watch the rules of this file, not its own.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Watch these rules, not its own.")] = None,
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
    as_json: options.AsJson = False,
    *,
    flags: Flags,
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
    from bylaw._base.atomic_files import lock_folder
    from bylaw.cli.inputs import check_outputs, counts_changed, load_previous
    from bylaw.policy.policy import Policy

    check_outputs([state, plot], [policy, table, rules])
    fewest = options.check_min_cell(min_cell)
    chosen = Policy.load(policy)
    settings: dict[str, Any] = {"--rules": rules, "--rule": rule, "--ever": ever}
    settings |= {"--run-length": run_length, "--unit": unit, "--limit": limit}
    earlier = load_previous(previous, chosen)
    # What was decided is known: of the earlier policy only a rule on changes asks.
    blind = decisions is not None and earlier is None and counts_changed(chosen)
    with lock_folder(state.absolute().parent):  # another run on the same state waits
        with _refuse_changes(table):  # its columns are read one after the other
            monitor = _open_state(
                chosen, table, state, flags, settings, late=late, restart=restart, blind=blind
            )
            name = _name_batch(table) if batch is None else batch
            counted = name not in monitor.batches
            if not counted:
                remark(f"{table} was counted before; it is not counted again")
            elif late:
                idle = {"--decisions": decisions, "--outcomes": outcomes, "--scores": flags.scores}
                _refuse(idle, "goes with new rows; with --late, a table has ids, labels and groups")
                _add_late(monitor, table, flags, name)
            else:
                _add_rows(monitor, table, flags, name, decisions, outcomes, earlier, blind)
        if name not in monitor.batches:
            counted = False
            remark(f"all rows of {table} were counted before, under another name")
        if plot is not None:
            _draw(monitor, plot, fewest)
        monitor.save(state)
    code = ExitCode.BROKEN if monitor.alarm else ExitCode.SUCCESS
    if as_json:
        run = {"batch": name, "counted": counted, "exit_code": int(code)}
        show_json({**monitor.to_dict(fewest), **run, "state": str(state), "policy": chosen.digest})
    else:
        _show_text(monitor, state, fewest)
    raise typer.Exit(code)


def _open_state(
    policy: Policy,
    table: Path,
    state: Path,
    flags: Flags,
    settings: dict[str, Any],
    *,
    late: bool,
    restart: bool,
    blind: bool,
) -> Monitor:
    """That of an earlier run, or a new one; `blind` if nothing is known of changed decisions."""
    from bylaw.fitting.refit import counts_changes
    from bylaw.testing import Monitor

    if not state.exists():
        if late:
            raise OptionError(f"there is no state {state}: rows are seen first, and their labels come late")
        options.refuse_idle({"--restart": restart}, "a state that is there")
        return _make_monitor(policy, table, flags, settings, blind)
    monitor = Monitor.load(state, policy)
    if blind and any(map(counts_changes, monitor.problem.rules)):
        raise OptionError(
            f"{state} watches changed decisions: give the earlier policy, --previous, as when it was begun"
        )
    _check_settings(monitor, settings, state)
    if restart:
        monitor.restart()
    return monitor


def _check_settings(monitor: Monitor, settings: dict[str, Any], state: Path) -> None:
    """Whoever states them again must state the same."""
    from bylaw.cli.commands.audit import read_others
    from bylaw.cli.inputs import parse_limits

    others = read_others(settings["--rules"], settings["--rule"])
    same = {
        "--rule": others is None or [*map(str, others.problem.rules)] == [*map(str, monitor.problem.rules)],
        "--ever": settings["--ever"] in (None, monitor.ever),
        "--run-length": settings["--run-length"] in (None, monitor.run_length),
        "--unit": settings["--unit"] in (None, monitor.unit),
        "--limit": not settings["--limit"]
        or parse_limits(settings["--limit"], monitor.problem) == dict(monitor.limits),
    }
    for flag, agrees in same.items():
        if not agrees:
            raise OptionError(
                f"{flag} differs from what {state} was begun with: leave it out, or begin another state"
            )


def _refuse(flags: dict[str, Any], why: str) -> None:
    """An error that names the first of these flags that was given."""
    for flag, value in flags.items():
        if value is not None and value != []:
            raise OptionError(f"{flag} {why}")


def _make_monitor(
    policy: Policy, table: Path, flags: Flags, settings: dict[str, Any], blind: bool
) -> Monitor:
    """Of the flags of a new state. The values of groups that the policy does not know are those of the
    table."""
    from bylaw.cli.commands.audit import read_others
    from bylaw.cli.inputs import find_policy_roles, list_group_values, parse_limits, read_rows
    from bylaw.testing import Monitor

    others = read_others(settings["--rules"], settings["--rule"])
    problem = policy.problem if others is None else others.problem
    if blind:
        problem = _leave_out_changes(problem)
    known, values = list_group_values(policy), {}
    if any(name not in known for name in problem.attributes):
        roles = find_policy_roles(policy, table, flags, others=others, changes=not blind, quiet=True)
        rows = read_rows(table, roles, known)
        values = {name: found for name, found in rows.evidence.group_values.items() if name not in known}
    return Monitor(
        policy,
        ever=_EVER if settings["--ever"] is None else settings["--ever"],
        run_length=settings["--run-length"],
        rules=None if others is None and not blind else list(problem.rules),
        limits=parse_limits(settings["--limit"], problem),
        groups=values,
        unit="rows" if settings["--unit"] is None else settings["--unit"],
    )


def _leave_out_changes(problem: Problem) -> Problem:
    """What can be watched without the earlier policy."""
    from bylaw.fitting.refit import counts_changes

    kept = [rule for rule in problem.rules if not counts_changes(rule)]
    if not kept:
        raise OptionError("there are only changed decisions to watch: give the earlier policy, --previous")
    if len(kept) < len(problem.rules):
        remark("changed decisions are not watched: that would take the earlier policy, --previous")
    return problem.with_rules(kept)


@contextlib.contextmanager
def _refuse_changes(table: Path) -> Iterator[None]:
    """Raise an error if the files of a table are others in the end, whatever else is wrong with them then."""
    from bylaw.data.table_files import find_files, look_at

    def look() -> dict[Path, Any]:
        return {path: look_at(path) for path in find_files(str(table))}

    before = look()
    try:
        yield
    finally:
        if look() != before:
            raise EvidenceError(f"{table} was changed while it was read; nothing was counted. Run it again")


def _name_batch(table: Path) -> str:
    """A hash of all files of a table."""
    from bylaw.data.table_files import TableFile

    hashed = hashlib.sha256()
    for file in TableFile(table).files:
        hashed.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return hashed.hexdigest()[:_NAMED]


def _add_rows(
    monitor: Monitor,
    table: Path,
    flags: Flags,
    name: str,
    decisions: str | None,
    outcomes: list[str] | None,
    previous: Previous | None,
    blind: bool,
) -> None:
    """New rows, or all rows of a table of which some were seen without their labels."""
    from bylaw.cli.inputs import (
        find_policy_roles,
        list_group_values,
        open_table,
        read_decisions,
        read_outcomes,
        read_rows,
    )
    from bylaw.cli.rules_file import RulesFile

    policy, values = monitor.policy, list_group_values(monitor.policy)
    others = None if monitor.problem is policy.problem else RulesFile(monitor.problem)
    known_of = {"previous": previous, "changes": not blind, "quiet": True}
    roles = find_policy_roles(policy, table, flags, others=others, **known_of)
    rows = read_rows(table, roles, values, previous=previous)
    evidence = _blank_changes(rows.evidence, policy) if blind else rows.evidence
    ids = None if roles.id is None else open_table(table, roles, values).read([roles.id])[roles.id]
    monitor.update(
        evidence,
        labels=rows.labels,
        groups=rows.groups,
        ids=ids,
        decisions=None if decisions is None else read_decisions(table, decisions, policy),
        outcomes=read_outcomes(table, outcomes, monitor.problem, policy.action_space.classes),
        batch=name,
    )


def _blank_changes(evidence: Evidence, policy: Policy) -> Evidence:
    """Rows that the policy would take. What was decided is known, so that it is not asked, and no rule that
    is watched reads changes."""
    import numpy as np

    from bylaw.language.expressions import CHANGED

    nothing = np.zeros((len(evidence), len(policy.actions)))
    return evidence.with_columns(costs={**evidence.costs, CHANGED: nothing})


def _add_late(monitor: Monitor, table: Path, flags: Flags, name: str) -> None:
    """Labels and groups of rows that were seen before."""
    from bylaw.data.column_roles import Roles
    from bylaw.data.table_files import TableFile

    card, stated = monitor.policy.card.columns, flags.list_roles()
    fitted = Roles.from_dict(card) if card else None
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


def _draw(monitor: Monitor, path: Path, min_cell: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    monitor.plot(min_cell=min_cell).savefig(path, dpi=120)


def _show_text(monitor: Monitor, state: Path, min_cell: int) -> None:
    """Each rule or family as it was stated, by its worst member."""
    from bylaw.testing import format_headline, format_interval, format_terms, sort_rules

    worst: dict[str, RuleWatch] = {}
    for one in sort_rules(monitor, min_cell):
        worst.setdefault(one.statement, one)
    lines = [
        (
            one.status,
            statement,
            "" if one.reason else f"{one.estimate:.4f}",
            f"{one.target:.4g}",
            "" if one.hidden else f"{one.rows:,}",
            f"{min(one.evidence, _MOST):.0%}",
        )
        for statement, one in worst.items()
    ]
    show_table("", ("status", "rule", "so far", "bound", "its rows", "evidence"), lines)
    for statement, one in worst.items():
        if one.reason:
            tell(f"{statement}: {one.reason}")
            continue
        if one.rule != statement and one.evidence > 0:
            tell(f"{statement}: most evidence against {one.rule}")
        if one.since is not None:
            tell(f"{statement}: {one.status}, alarm at row {one.since:,}; {format_interval(one)}")
    beyond = any(one.since is None and one.is_beyond for one in worst.values())
    aside = " (a rate beyond its bound may be chance until then)" if beyond else ""
    tell(f"{format_headline(monitor)}; an alarm is 100 % of evidence{aside}", style="bold")
    remark(format_terms(monitor))
    tell(f"state: {state}")
