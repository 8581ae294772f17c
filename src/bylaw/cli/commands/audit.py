"""The commands that test a policy: audit, and watch, whose state is updated by each run."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import (
    ExitCode,
    describe_problem,
    make_plain,
    remark,
    word_for_shell,
    write_failure,
    write_result,
)
from bylaw.cli.files import check_outputs, open_tables
from bylaw.errors import EvidenceError, OptionError, Remedy, join_remedy

if TYPE_CHECKING:
    from bylaw.cli.tables import PolicyTables

_EXIT = {  # exit codes by verdict; others are undecided
    "certified": ExitCode.SUCCESS,
    "violated": ExitCode.BROKEN,
    "estimated to be broken": ExitCode.BROKEN,
}


@options.share(
    *("other_rules", "other_rule", *options.TESTS, "previous", "min_cell", "sample", "seed"),
    *(*options.LABELED, "weight", "propensity_weights", *options.READ, "as_json"),
)
def run_audit(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    decisions: Annotated[
        str | None, typer.Option(help="Test the decisions in this column, not the policy's probabilities.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="betting, hoeffding_bentkus or clopper_pearson; choose before you see a result.",
            show_default="betting",
        ),
    ] = None,
    fitted_rows: Annotated[
        str, typer.Option(help="'estimate' admits rows of the fit, without a certificate.")
    ] = "refuse",
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Record this audit and its rows in the policy's file; by default it is not changed.",
        ),
    ] = False,
) -> None:
    """Test each rule on held-out rows.

    Exit codes, for gates: 0 all rules are certified, 1 a rule is violated, 4 undecided, 2 an error, such as a
    missing file.
    Every audit is one look at the policy. With --record, later audits state the number of looks.
    If labels or groups of some rows are missing, each rule is tested on the rows that have what it needs.

    [bold]Examples[/bold]

      bylaw audit policy.json labeled.parquet --label y

      bylaw audit policy.json log.csv --label y --decisions decision --json > audit.json

      bylaw audit policy.json 'logs/2024-*.parquet' --label y --sample 1000000
    """
    from bylaw._base import check_choice
    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.tables import PolicyTables, check_propensity_weights
    from bylaw.testing import METHODS

    given = context.obj
    settings = {
        "confidence": options.check_confidence(given.confidence),
        "method": check_choice("betting" if method is None else method, "method", METHODS),
        "fitted_rows": check_choice(fitted_rows, "fitted_rows", ("refuse", "estimate")),
        **options.keep_given(min_cell=given.min_cell),
    }
    reading = options.make_reading(given)
    (table,) = open_tables(context, table)
    tables = PolicyTables.open(policy, given, reading=reading)
    tested, others = tables.policy, tables.others
    rows, _ = tables.read_held_out(table, given)
    check_propensity_weights(rows, given)
    if decisions is not None:
        settings["decisions"] = read_decisions(table, decisions, tested, reading)
    try:
        audit = bylaw.audit(
            tested, rows, rules=None if others is None else list(others.problem.rules), **settings
        )
    except EvidenceError as refused:
        if refused.remedy != Remedy("estimate_fitted_rows"):
            raise
        # An audit on rows of the fit is undecided.
        code = write_failure(refused, describe_problem(refused), ExitCode.UNDECIDED, given.as_json)
        raise typer.Exit(code) from None
    if not audit.certificate:
        options.refuse_idle("held-out rows", confidence=given.confidence, method=method, record=record)
    if record:
        tested.save(policy)
    statements = {} if others else {price.rule: price.statement for price in tested.rule_prices}
    code = _EXIT.get(audit.verdict, ExitCode.UNDECIDED)
    write_result(audit.to_dict(), _describe_audit(audit, statements), given.as_json, code)


def _describe_audit(audit: bylaw.Audit, statements: Mapping[str, str]) -> Iterator[Any]:
    """Yield lines for each rule or family with its worst single rule, and the verdict on all rules."""
    from bylaw.testing import describe_cost, describe_need, format_referred
    from bylaw.view import format_bounds

    families: dict[str, list[bylaw.RuleAudit]] = {}
    for rule in audit.shown.rules:
        families.setdefault(statements.get(rule.rule, rule.rule), []).append(rule)
    for statement, members in families.items():
        counts = Counter(str(rule.verdict) for rule in members)
        verdicts = [f"{n} {verdict}" if len(counts) > 1 else verdict for verdict, n in counts.items()]
        reasons = {join_remedy(rule.reason, rule.remedy, word_for_shell) for rule in members if rule.reason}
        reason = f" ({min(reasons)})" if reasons else ""
        yield make_plain(f"{statement}: {', '.join(verdicts)}{reason}", "bold")
        worst = max(members, key=lambda rule: -math.inf if math.isnan(rule.excess) else rule.excess)
        if worst.rule != statement:
            yield f"  worst: {worst.rule}"
        if not math.isnan(worst.estimate):
            bounds = format_bounds(worst.lower, worst.upper, "{:.4f}".format)
            estimate = f"{worst.estimate:.4f}{' as predicted' if worst.is_predicted else ''}"
            yield f"  estimate {estimate}{bounds and f', {100 * audit.confidence:g} % bounds {bounds}'}"
        if needs := [rule.rows_needed for rule in members if not math.isnan(rule.rows_needed)]:
            rules = "it" if len(needs) == 1 else f"all {len(needs)}"
            yield f"  {describe_need(max(needs), audit.rows, rules)}"
    costs = f"{audit.objective}, {describe_cost(audit)}: {audit.costs.describe(bool(audit.rules))}"
    yield f"{audit.rows:,} rows; {costs}{format_referred(audit.rejected)}"
    for name, count in audit.seen_rows.items():
        yield f"{name} is observed on {count:,} of {audit.rows:,} rows: rules that refer to it use those"
    if audit.looks:
        yield f"look {audit.looks:,} at this policy on held-out rows (--record notes it in the policy's file)"
    if audit.certificate and len(audit.rules) > 1:
        yield f"verdicts of single rules are adjusted for their number, {len(audit.rules)} (Holm)"
    yield f"all rules together: {audit.verdict} (--json has every single rule)"


@options.share(
    *("other_rules", "other_rule", "limit", "outcomes", "previous", "min_cell", "id_column"),
    *(*options.LABELED, *options.READ, "as_json"),
)
def run_watch(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    state: Annotated[
        Path,
        typer.Option(
            help="The state, a JSON file that is read if it exists, and written.", show_default=False
        ),
    ],
    late: Annotated[
        bool, typer.Option("--late", help="The table has ids, and labels or groups of rows of earlier runs.")
    ] = False,
    decisions: Annotated[
        str | None, typer.Option(help="Watch the decisions in this column, not the policy's probabilities.")
    ] = None,
    ever: Annotated[
        float | None,
        typer.Option(
            help="The largest probability that a rule is ever called broken while all hold.",
            show_default="0.05",
        ),
    ] = None,
    run_length: Annotated[
        float | None,
        typer.Option(
            help="The least average number of rows, or batches, until a false alarm of change.",
            show_default="100000 rows or 1000 batches",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The independent units: rows, or batches (one for each table) if days differ at random.",
            show_default="rows",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            help="A name of these rows, such as a date. It determines their order, and no name is counted "
            "twice.",
            show_default="a hash of the files",
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Clear the alarms first, after their cause was fixed.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot rates and evidence, a PNG or SVG file.")
    ] = None,
) -> None:
    """Watch a policy on rows as they arrive, as often as you like.

    Exit codes, for jobs: 0 no alarm, 1 an alarm, 2 an error. While all rules are satisfied, the probability
    of an alarm that a rule is violated is at most --ever, over all runs together.
    A run counts all of its rows or none. The same rows are not counted twice.

    [bold]Examples[/bold]

      bylaw watch policy.json today.parquet --state watch.json

      bylaw watch policy.json today.parquet --state watch.json --decisions decision --id-column id

      cat today.csv | bylaw watch policy.json - --format csv --state watch.json --batch 2024-05-17

      bylaw watch policy.json outcomes.parquet --state watch.json --late --id-column id --label y
    """
    from bylaw._base import hash_file, lock_folder
    from bylaw.cli.rules_file import RulesFile
    from bylaw.cli.tables import PolicyTables
    from bylaw.language import CHANGED
    from bylaw.rows import find_files, look_at

    given = context.obj
    check_outputs(None, [policy, table, given.other_rules], state, plot)
    (table,) = open_tables(context, table)
    tables = PolicyTables.open(policy, given, remarks=False)
    watched = tables.policy
    # If decisions are given, only a rule on changes needs the earlier policy.
    blind = decisions is not None and tables.earlier is None and CHANGED in watched.problem.arrays
    tables = replace(tables, reads_changes=not blind)
    settings = {"ever": ever, "run_length": run_length, "unit": unit}
    with lock_folder(state.absolute().parent):  # another run on the same state waits
        before = {path: look_at(path) for path in find_files(str(table))}
        try:  # columns are read one after the other
            if state.exists():
                monitor = _load_monitor(state, tables, given.limit, settings)
                if restart:
                    monitor.restart()
            elif late:
                raise OptionError(
                    f"the state {state} does not exist; count the rows first, then add labels with --late"
                )
            else:
                options.refuse_idle("a state that exists", restart=restart)
                monitor = _make_monitor(tables, table, given.limit, settings)
            if monitor.problem is not watched.problem and tables.others is None:
                tables = replace(tables, others=RulesFile(monitor.problem))
            if batch is None:  # a hash of all files, of 64 bits
                digests = [bytes.fromhex(hash_file(path)) for path in before]
                batch = hashlib.sha256(b"".join(digests)).hexdigest()[:16]
            counted = batch not in monitor.batches
            if not counted:
                remark(f"{table} was counted before and is not counted again")
            elif late:
                options.refuse(
                    "is for new rows; with --late, a table has ids, labels and groups",
                    decisions=decisions,
                    outcomes=given.outcomes,
                    scores=given.scores,
                )
                _add_late(monitor, tables, table, batch)
            else:
                _add_rows(monitor, tables, table, batch, decisions, given.outcomes)
        finally:
            if before != {path: look_at(path) for path in find_files(str(table))}:
                raise EvidenceError(
                    f"{table} was changed while it was read, so nothing was counted; run the command again"
                )
        if batch not in monitor.batches:
            counted = False
            remark(f"all rows of {table} were counted before, under another name, and are not counted again")
        shown = options.keep_given(min_cell=given.min_cell)
        if plot is not None:
            import matplotlib

            matplotlib.use("Agg")
            monitor.plot(**shown).savefig(plot, dpi=120)
        monitor.save(state)
    facts = {**monitor.to_dict(**shown), "batch": batch, "counted": counted}
    facts |= {"state": str(state), "policy": watched.digest}
    code = ExitCode.BROKEN if monitor.alarm else ExitCode.SUCCESS
    write_result(facts, _describe_watch(monitor, state, **shown), given.as_json, code)


def _load_monitor(
    state: Path, tables: PolicyTables, limit: list[str] | None, settings: Mapping[str, Any]
) -> bylaw.Monitor:
    """Return the monitor of an earlier run; raise if an option differs from that run."""
    from bylaw.cli.tables import parse_limits
    from bylaw.fitting import counts_changes

    monitor = bylaw.Monitor.load(state, tables.policy)
    if not tables.reads_changes and any(map(counts_changes, monitor.problem.rules)):
        raise OptionError(
            f"{state} watches changed decisions, which needs the earlier policy; pass it with --previous"
        )
    rules = [*map(str, monitor.problem.rules)]
    differs = {
        "rule": tables.others is not None and [*map(str, tables.problem.rules)] != rules,
        **{name: value not in (None, getattr(monitor, name)) for name, value in settings.items()},
        "limit": bool(limit) and parse_limits(limit, monitor.problem) != dict(monitor.limits),
    }
    options.refuse(f"differs from the first run of {state}; leave it out, or use another state", **differs)
    return monitor


def _make_monitor(
    tables: PolicyTables, table: Path, limit: list[str] | None, settings: Mapping[str, Any]
) -> bylaw.Monitor:
    """Return a new monitor. Values of groups that are not in the policy are read from the table.

    Without the earlier policy, rules on changed decisions are left out.
    """
    from bylaw.cli.tables import parse_limits, read_rows
    from bylaw.fitting import counts_changes

    problem, rules = tables.problem, None
    if not tables.reads_changes:
        kept = [rule for rule in problem.rules if not counts_changes(rule)]
        if not kept:
            raise OptionError(
                "all rules are on changed decisions, which need the earlier policy; pass it with --previous"
            )
        if len(kept) < len(problem.rules):
            remark("changed decisions are not watched, because they need the earlier policy (--previous)")
        problem = problem.with_rules(kept)
    if tables.others is not None or not tables.reads_changes:
        rules = list(problem.rules)
    values: dict[str, Any] = {}
    if any(name not in tables.values for name in problem.attributes):
        plain = replace(tables, earlier=None)
        evidence = read_rows(table, plain.find_columns(table), tables.values)
        values = {name: group for name, group in evidence.group_values.items() if name not in tables.values}
    limits = parse_limits(limit, problem)
    return bylaw.Monitor(
        tables.policy, rules=rules, limits=limits, groups=values, **options.keep_given(**settings)
    )


def _add_rows(
    monitor: bylaw.Monitor,
    tables: PolicyTables,
    table: Path,
    batch: str,
    decisions: str | None,
    outcomes: list[str] | None,
) -> None:
    """Count the rows of a table. Rows that were counted without labels before get their labels."""
    import numpy as np

    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.tables import read_outcomes
    from bylaw.language import CHANGED

    policy = tables.policy
    evidence, columns = tables.read(table)
    if not tables.reads_changes:  # no rule that is watched reads changes
        zeros = np.zeros((len(evidence), len(policy.actions)))
        evidence = evidence.with_columns(costs={**evidence.costs, CHANGED: zeros})
    monitor.update(
        evidence,
        ids=tables.read_ids(table, columns),
        decisions=None if decisions is None else read_decisions(table, decisions, policy, tables.reading),
        outcomes=read_outcomes(table, outcomes, monitor.problem, policy.action_space.classes),
        batch=batch,
    )


def _add_late(monitor: bylaw.Monitor, tables: PolicyTables, table: Path, batch: str) -> None:
    """Add labels and groups to rows that were counted before."""
    from bylaw.rows import TableFile

    card, stated = tables.policy.card.columns, tables.stated
    fitted = bylaw.Columns.from_dict(card) if card else bylaw.Columns()
    names = TableFile(table).names
    ids = stated.get("id") or fitted.id
    if ids is None or ids not in names:
        raise OptionError(
            f"{table} must have a column of ids, got none named {ids!r}; name it with --id-column NAME"
        )
    label = stated.get("label") or fitted.label
    columns = {**fitted.true_groups, **stated.get("groups", {}), **stated.get("true_groups", {})}
    groups = {group: column for group, column in columns.items() if column in names}
    if label not in names and not groups:
        raise EvidenceError(
            f"{table} must have labels or groups, got neither; name their columns with --label COLUMN or "
            "--true-group NAME=COLUMN"
        )
    values: dict[str, Any] = {column: monitor.groups.get(group, ()) for group, column in groups.items()}
    if label in names:
        values[label] = monitor.policy.action_space.classes
    rows = TableFile(table, (ids,), (), values).read([ids, *values])
    monitor.update(
        ids=rows[ids],
        labels=rows[label] if label in names else None,
        groups={group: rows[column] for group, column in groups.items()} or None,
        batch=batch,
    )


def _describe_watch(monitor: bylaw.Monitor, state: Path, **shown: int) -> Iterator[Any]:
    """Yield a table with each rule or family, by its worst single rule, and a summary."""
    from bylaw.testing import format_headline, format_interval, format_terms, sort_rules
    from bylaw.view import Table

    worst: dict[str, bylaw.RuleWatch] = {}
    for one in sort_rules(monitor, **shown):
        worst.setdefault(one.statement, one)
    lines = [
        (
            str(one.status),
            statement,
            "" if one.reason else f"{one.estimate:.4f}",
            f"{one.target:.4g}",
            "" if one.hidden else f"{one.rows:,}",
            f"{min(one.evidence, 9.99):.0%}",  # an alarm is 100 %, so that larger numbers add nothing
        )
        for statement, one in worst.items()
    ]
    heads = ("status", "rule", "so far", "bound", "its rows", "evidence")
    yield Table(heads, lines, numbers=range(2, 6))
    for statement, one in worst.items():
        if one.reason:
            yield f"{statement}: {one.reason}"
            continue
        if one.rule != statement and one.evidence > 0:
            yield f"{statement}: most evidence against {one.rule}"
        if one.since is not None:
            yield f"{statement}: {one.status}, alarm at row {one.since:,}; {format_interval(one)}"
    beyond = any(one.since is None and one.is_beyond for one in worst.values())
    aside = " (until then, a rate beyond its bound may be due to chance)" if beyond else ""
    yield make_plain(f"{format_headline(monitor)}; an alarm is 100 % of evidence{aside}", "bold")
    remark(format_terms(monitor))
    yield f"state: {state}"
