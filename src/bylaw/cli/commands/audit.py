"""Commands that test a policy: audit, and watch, with a state that grows from run to run."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import (
    ExitCode,
    Grid,
    describe_problem,
    make_plain,
    remark,
    word_for_shell,
    write_failure,
    write_result,
)
from bylaw.cli.files import check_outputs, open_tables
from bylaw.errors import EvidenceError, OptionError, Remedy, join_remedy

_EXIT = {  # of other verdicts, undecided
    "certified": ExitCode.SUCCESS,
    "violated": ExitCode.BROKEN,
    "estimated to be broken": ExitCode.BROKEN,
}


def run_audit(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    rules: options.OtherRules = None,
    rule: options.OtherRule = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="Test the decisions in this column, not the policy's probabilities."),
    ] = None,
    confidence: options.Confidence = None,
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
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    min_cell: options.MinCell = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.PropensityWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Test each rule on held-out rows.

    Exit codes, for gates: 0 all rules are certified, 1 a rule is violated, 4 undecided, 2 trouble, such as a
    missing file.
    An audit is one look at the policy: with --record, later audits state how many there were.
    If labels or groups of some rows are missing, each rule is tested on the rows with all that it refers to.

    [bold]Examples[/bold]

      bylaw audit policy.json labeled.parquet --label y

      bylaw audit policy.json log.csv --label y --decisions decision --json > audit.json

      bylaw audit policy.json 'logs/2024-*.parquet' --label y --sample 1000000
    """
    from bylaw._base.validation import check_choice
    from bylaw.cli import tables
    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.testing import METHODS

    settings = {
        "confidence": options.check_confidence(confidence),
        "method": check_choice("betting" if method is None else method, "method", METHODS),
        "fitted_rows": check_choice(fitted_rows, "fitted_rows", ("refuse", "estimate")),
        **options.keep_given(min_cell=min_cell),
    }
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    (table,) = open_tables(context, table)
    tested, others = bylaw.Policy.load(policy), read_other_rules(rules, rule)
    limits = tables.parse_limits(limit, (others or tested).problem)
    earlier = tables.load_previous(previous, tested)
    columns = tables.find_policy_columns(tested, table, stated, others=others, previous=earlier)
    rows = tables.read_rows(table, columns, tables.list_group_values(tested), reading, earlier)
    tables.check_propensity_weights(rows, stated)
    problem = tested.problem if others is None else tables.join_problems(tested.problem, others.problem)
    try:
        audit = bylaw.audit(
            tested,
            rows,
            rules=None if others is None else list(others.problem.rules),
            decisions=None if decisions is None else read_decisions(table, decisions, tested, reading),
            outcomes=tables.read_outcomes(table, outcomes, problem, rows.classes, reading),
            limits=limits,
            largest_weight=largest_weight,
            **settings,
        )
    except EvidenceError as refused:
        if refused.remedy != Remedy("estimate_fitted_rows"):
            raise
        # An audit on rows of the fit is undecided.
        code = write_failure(refused, describe_problem(refused), ExitCode.UNDECIDED, as_json)
        raise typer.Exit(code) from None
    if not audit.certificate:
        options.refuse_idle("held-out rows", confidence=confidence, method=method, record=record)
    if record:
        tested.save(policy)
    statements = {} if others else {price.rule: price.statement for price in tested.rule_prices}
    code = _EXIT.get(audit.verdict, ExitCode.UNDECIDED)
    write_result(audit.to_dict(), _describe_audit(audit, statements), as_json, code)


def _describe_audit(audit: bylaw.Audit, statements: Mapping[str, str]) -> Iterator[Any]:
    """Yield each rule or family as stated, with its worst member, and the verdict on all."""
    from bylaw.testing import describe_cost, describe_need, format_referred
    from bylaw.view.numbers import format_bounds

    families: dict[str, list[bylaw.RuleAudit]] = {}
    for rule in audit.shown.rules:
        families.setdefault(statements.get(rule.rule, rule.rule), []).append(rule)
    for statement, members in families.items():
        yield make_plain(f"{statement}: {_count_verdicts(members)}", "bold")
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


def _count_verdicts(members: list[bylaw.RuleAudit]) -> str:
    """Return the number of rules of a family with each verdict, and the reason if one has none."""
    counts = Counter(str(rule.verdict) for rule in members)
    text = ", ".join(f"{n} {verdict}" if len(counts) > 1 else verdict for verdict, n in counts.items())
    reasons = {join_remedy(rule.reason, rule.remedy, word_for_shell) for rule in members if rule.reason}
    return f"{text}{f' ({min(reasons)})' if reasons else ''}"


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
        bool,
        typer.Option("--late", help="The table has ids, and labels or groups of rows of earlier runs."),
    ] = False,
    rules: options.OtherRules = None,
    rule: options.OtherRule = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="Watch the decisions in this column, not the policy's probabilities."),
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
    limit: options.Limit = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    min_cell: options.MinCell = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot rates and evidence, a PNG or SVG file.")
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

    Exit codes, for jobs: 0 no alarm, 1 an alarm, 2 trouble. While all rules hold, the probability of an
    alarm that one is broken is at most --ever, over all runs together.
    A run counts all of its rows or none. The same rows are not counted twice.

    [bold]Examples[/bold]

      bylaw watch policy.json today.parquet --state watch.json

      bylaw watch policy.json today.parquet --state watch.json --decisions decision --id-column id

      cat today.csv | bylaw watch policy.json - --format csv --state watch.json --batch 2024-05-17

      bylaw watch policy.json outcomes.parquet --state watch.json --late --id-column id --label y
    """
    from bylaw._base.files import lock_folder
    from bylaw.cli import tables
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.language.expressions import CHANGED

    check_outputs(None, [policy, table, rules], state, plot)
    stated = options.state_columns(context)
    (table,) = open_tables(context, table)
    watched, others = bylaw.Policy.load(policy), read_other_rules(rules, rule)
    earlier = tables.load_previous(previous, watched)
    # If decisions are given, only a rule on changes needs the earlier policy.
    blind = decisions is not None and earlier is None and CHANGED in watched.problem.arrays
    with lock_folder(state.absolute().parent):  # another run on the same state waits
        with _refuse_changes(table):  # its columns are read one after the other
            settings = {"ever": ever, "run_length": run_length, "unit": unit}
            if state.exists():
                monitor = _load_monitor(state, watched, others, limit, blind, settings)
                if restart:
                    monitor.restart()
            else:
                if late:
                    raise OptionError(
                        f"there is no state {state}: count the rows first, and add their labels with --late "
                        "later"
                    )
                options.refuse_idle("a state that exists", restart=restart)
                monitor = _make_monitor(watched, others, limit, blind, table, stated, settings)
            name = _name_batch(table) if batch is None else batch
            counted = name not in monitor.batches
            if not counted:
                remark(f"{table} was counted before; it is not counted again")
            elif late:
                options.refuse(
                    "is for new rows; with --late, a table has ids, labels and groups",
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
    facts |= {"state": str(state), "policy": watched.digest}
    code = ExitCode.BROKEN if monitor.alarm else ExitCode.SUCCESS
    write_result(facts, _describe_watch(monitor, state, **shown), as_json, code)


def _load_monitor(
    state: Path,
    policy: bylaw.Policy,
    others: Any,
    limit: list[str] | None,
    blind: bool,
    settings: Mapping[str, Any],
) -> bylaw.Monitor:
    """Return the monitor of an earlier run, or raise if an option differs from those of that run."""
    from bylaw.cli.tables import parse_limits
    from bylaw.fitting.refit import counts_changes

    monitor = bylaw.Monitor.load(state, policy)
    if blind and any(map(counts_changes, monitor.problem.rules)):
        raise OptionError(
            f"{state} watches changed decisions: give the earlier policy, --previous, as in its first run"
        )
    rules = [*map(str, monitor.problem.rules)]
    differs = {
        "rule": others is not None and [*map(str, others.problem.rules)] != rules,
        **{name: value not in (None, getattr(monitor, name)) for name, value in settings.items()},
        "limit": bool(limit) and parse_limits(limit, monitor.problem) != dict(monitor.limits),
    }
    options.refuse(f"differs from the first run of {state}: leave it out, or use another state", **differs)
    return monitor


def _make_monitor(
    policy: bylaw.Policy,
    others: Any,
    limit: list[str] | None,
    blind: bool,
    table: Path,
    stated: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> bylaw.Monitor:
    """Return a new monitor; the table has the values of groups that the policy does not know.

    If `blind`, the earlier policy is unknown, and rules on changed decisions are left out.
    """
    from bylaw.cli import tables
    from bylaw.fitting.refit import counts_changes

    problem = (others or policy).problem
    if blind:
        kept = [rule for rule in problem.rules if not counts_changes(rule)]
        if not kept:
            raise OptionError("all rules are on changed decisions: give the earlier policy, --previous")
        if len(kept) < len(problem.rules):
            remark("changed decisions are not watched: that needs the earlier policy, --previous")
        problem = problem.with_rules(kept)
    known, values = tables.list_group_values(policy), {}
    if any(name not in known for name in problem.attributes):
        columns = tables.find_policy_columns(
            policy, table, stated, others=others, changes=not blind, quiet=True
        )
        evidence = tables.read_rows(table, columns, known)
        values = {name: group for name, group in evidence.group_values.items() if name not in known}
    rules = list(problem.rules) if others is not None or blind else None
    given = {name: value for name, value in settings.items() if value is not None}
    limits = tables.parse_limits(limit, problem)
    return bylaw.Monitor(policy, rules=rules, limits=limits, groups=values, **given)


@contextlib.contextmanager
def _refuse_changes(table: Path) -> Iterator[None]:
    """Raise an error at the end if the files of a table have changed meanwhile, whatever else failed."""
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
    from bylaw._base.files import hash_file
    from bylaw.rows.table_files import find_files

    digests = [bytes.fromhex(hash_file(path)) for path in find_files(str(table))]
    return hashlib.sha256(b"".join(digests)).hexdigest()[:16]


def _add_rows(
    monitor: bylaw.Monitor,
    table: Path,
    stated: Mapping[str, Any],
    name: str,
    decisions: str | None,
    outcomes: list[str] | None,
    previous: Any,
    blind: bool,
) -> None:
    """Count the rows of a table, of which some may have been counted without their labels."""
    import numpy as np

    from bylaw.cli import tables
    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.rules_file import RulesFile
    from bylaw.language.expressions import CHANGED

    policy, values = monitor.policy, tables.list_group_values(monitor.policy)
    others = None if monitor.problem is policy.problem else RulesFile(monitor.problem)
    columns = tables.find_policy_columns(
        policy, table, stated, others=others, previous=previous, changes=not blind, quiet=True
    )
    evidence = tables.read_rows(table, columns, values, previous=previous)
    if blind:  # no rule that is watched reads changes
        zeros = np.zeros((len(evidence), len(policy.actions)))
        evidence = evidence.with_columns(costs={**evidence.costs, CHANGED: zeros})
    made = None if decisions is None else read_decisions(table, decisions, policy, tables.Reading())
    monitor.update(
        evidence,
        ids=tables.read_ids(table, columns, values),
        decisions=made,
        outcomes=tables.read_outcomes(table, outcomes, monitor.problem, policy.action_space.classes),
        batch=name,
    )


def _add_late(monitor: bylaw.Monitor, table: Path, stated: Mapping[str, Any], name: str) -> None:
    """Add labels and groups of rows that were counted before."""
    from bylaw.rows.table_files import TableFile

    card = monitor.policy.card.columns
    fitted = bylaw.Columns.from_dict(card) if card else bylaw.Columns()
    names = TableFile(table).names
    ids = stated.get("id") or fitted.id
    if ids is None or ids not in names:
        raise OptionError(f"{table} has no column of ids {ids!r}: name it with --id-column NAME")
    label = stated.get("label") or fitted.label
    columns = {**fitted.true_groups, **stated.get("groups", {}), **stated.get("true_groups", {})}
    groups = {group: column for group, column in columns.items() if column in names}
    if label not in names and not groups:
        raise EvidenceError(
            f"{table} has neither labels nor groups: name their columns, --label COLUMN or --true-group "
            "NAME=COLUMN"
        )
    values: dict[str, Any] = {column: monitor.groups.get(group, ()) for group, column in groups.items()}
    if label in names:
        values[label] = monitor.policy.action_space.classes
    rows = TableFile(table, (ids,), (), values).read([ids, *values])
    monitor.update(
        ids=rows[ids],
        labels=rows[label] if label in names else None,
        groups={group: rows[column] for group, column in groups.items()} or None,
        batch=name,
    )


def _describe_watch(monitor: bylaw.Monitor, state: Path, **shown: int) -> Iterator[Any]:
    """Yield each rule or family as stated, by its worst member, and the headline of all."""
    from bylaw.testing import format_headline, format_interval, format_terms, sort_rules

    worst: dict[str, bylaw.RuleWatch] = {}
    for one in sort_rules(monitor, **shown):
        worst.setdefault(one.statement, one)
    lines = [
        (
            one.status,
            statement,
            "" if one.reason else f"{one.estimate:.4f}",
            f"{one.target:.4g}",
            "" if one.hidden else f"{one.rows:,}",
            f"{min(one.evidence, 9.99):.0%}",  # an alarm is 100 %, so that larger numbers add nothing
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
