"""bylaw audit: whether a policy's rules hold on held-out rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import fail, show_json, tell
from bylaw.cli.exit_codes import ExitCode
from bylaw.cli.failures import show_failure
from bylaw.cli.remedies import describe_problem, word_for_shell
from bylaw.errors import EvidenceError, OptionError, Remedy, join_remedy

if TYPE_CHECKING:
    from bylaw.cli.rules_file import RulesFile
    from bylaw.testing import Audit, RuleAudit

_EXIT = {  # and undecided for the others
    "certified": ExitCode.SUCCESS,
    "violated": ExitCode.BROKEN,
    "estimated to be broken": ExitCode.BROKEN,
}


@takes_columns(
    "scores",
    "group",
    "group_probabilities",
    "true_group",
    "reference",
    "label",
    "weight",
    "seen_weights",
    "normalize",
)
def run_audit(
    policy: options.PolicyPath,
    table: options.Table,
    rules: Annotated[
        Path | None, typer.Option("--rules", "-r", help="Judge the rules of this file, not its own.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Judge these rules, not its own.")] = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="Judge what was decided, in this column, not the policy's probabilities."),
    ] = None,
    confidence: options.Confidence = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="betting, hoeffding_bentkus or clopper_pearson; choose before you look.",
            show_default="betting",
        ),
    ] = None,
    fitted_rows: Annotated[
        str, typer.Option(help="'estimate' admits rows that the policy was fitted on; they certify nothing.")
    ] = "refuse",
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Write into the policy's file that these rows judged it; else the file is not changed.",
        ),
    ] = False,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    min_cell: options.MinCell = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Judge each rule on rows that were held out.

    Exit codes, for gates: 0 all rules are certified, 1 a rule is violated, 4 undecided, 2 trouble, such as a
    file that is not there.
    An audit is one look: with --record, later ones state how many there were.
    Cells of labels and groups may be empty: each rule is judged on the rows that show all it refers to.

    [bold]Examples[/bold]

      bylaw audit policy.json labelled.parquet --label y

      bylaw audit policy.json log.csv --label y --decisions decision --json > audit.json

      bylaw audit policy.json 'logs/2024-*.parquet' --label y --sample 1000000
    """
    from bylaw.cli.inputs import (
        find_policy_roles,
        join_problems,
        list_group_values,
        load_previous,
        parse_limits,
        read_decisions,
        read_outcomes,
        read_rows,
    )
    from bylaw.policy.policy import Policy
    from bylaw.testing import audit

    judging, reading = _check_judging(confidence, method, fitted_rows), options.make_reading(sample, seed)
    chosen = Policy.load(policy)
    others = read_others(rules, rule)
    limits = parse_limits(limit, (others or chosen).problem)
    earlier = load_previous(previous, chosen)
    roles = find_policy_roles(chosen, table, flags, others=others, previous=earlier)
    rows = read_rows(table, roles, list_group_values(chosen), reading, earlier)
    rows.check_seen_weights(flags)
    judged = chosen.problem if others is None else join_problems(chosen.problem, others.problem)
    taken = None if decisions is None else read_decisions(table, decisions, chosen, reading)
    turned_out = read_outcomes(table, outcomes, judged, rows.evidence.classes, reading)
    try:
        found = audit(
            chosen,
            rows.evidence,
            **rows.outcomes,
            rules=None if others is None else list(others.problem.rules),
            decisions=taken,
            outcomes=turned_out,
            limits=limits,
            largest_weight=largest_weight,
            min_cell=options.check_min_cell(min_cell),
            **judging,
        )
    except EvidenceError as refused:
        if refused.remedy != Remedy("estimate_fitted_rows"):
            raise
        fail(text := describe_problem(refused))  # fitted rows decide nothing
        if as_json:
            show_failure(refused, text, ExitCode.UNDECIDED)
        raise typer.Exit(ExitCode.UNDECIDED) from None
    if not found.certificate:
        idle = {"--confidence": confidence, "--method": method, "--record": record}
        options.refuse_idle(idle, "held-out rows")
    if record:
        chosen.save(policy)
    code = _EXIT.get(found.verdict, ExitCode.UNDECIDED)
    if as_json:
        show_json({**found.to_dict(), "exit_code": int(code)})
    else:
        _show_audit(found, {} if others else {price.rule: price.statement for price in chosen.rule_prices})
    raise typer.Exit(code)


def read_others(rules: Path | None, rule: list[str] | None) -> RulesFile | None:
    """Rules that are judged instead of the policy's own, if there are any."""
    from bylaw.cli.inputs import read_rules

    if not (rules or rule):
        return None
    others = read_rules(rules, rule, None)
    if not others.problem.rules:
        raise OptionError(f"{rules} has no rules to judge")
    return others


def _check_judging(confidence: float | None, method: str | None, fitted_rows: str) -> dict[str, Any]:
    """How to judge, checked before anything is read."""
    from bylaw._base.validation import check_choice
    from bylaw.testing import METHODS

    return {
        "confidence": options.check_confidence(confidence),
        "method": check_choice("betting" if method is None else method, "method", METHODS),
        "fitted_rows": check_choice(fitted_rows, "fitted_rows", ("refuse", "estimate")),
    }


def _show_audit(found: Audit, statements: Mapping[str, str]) -> None:
    """Each rule or family as it was stated, with its worst member."""
    from bylaw.testing import describe_bounds, describe_cost, describe_need, format_referred

    families: dict[str, list[RuleAudit]] = {}
    for rule in found.shown.rules:
        families.setdefault(statements.get(rule.rule, rule.rule), []).append(rule)
    for statement, members in families.items():
        tell(f"{statement}: {_count_verdicts(members)}", style="bold")
        worst = max(members, key=lambda rule: -math.inf if math.isnan(rule.excess) else rule.excess)
        if worst.rule != statement:
            tell(f"  worst: {worst.rule}")
        if not math.isnan(worst.estimate):
            bounds = describe_bounds(worst.lower, worst.upper, "{:.4f}".format)
            shown = f"{worst.estimate:.4f}{' as predicted' if worst.is_predicted else ''}"
            tell(f"  estimate {shown}{bounds and f', {100 * found.confidence:g} % bounds {bounds}'}")
        if needs := [rule.rows_needed for rule in members if not math.isnan(rule.rows_needed)]:
            what = "it" if len(needs) == 1 else f"all {len(needs)}"
            tell(f"  {describe_need(max(needs), found.rows, what)}")
    kind = describe_cost(found)
    costs = found.costs.describe(bool(found.rules))
    tell(f"{found.rows:,} rows; {found.objective}, {kind}: {costs}{format_referred(found.rejected)}")
    for name, count in found.seen_rows.items():
        tell(f"{name} was seen on {count:,} of {found.rows:,} rows: rules that refer to it go by those")
    if found.looks:
        tell(f"look {found.looks:,} at this policy on held-out rows (--record notes it in the policy's file)")
    if found.certificate and len(found.rules) > 1:
        tell(f"verdicts of single rules are adjusted for their number, {len(found.rules)} (Holm)")
    tell(f"all rules together: {found.verdict} (--json has every single rule)")


def _count_verdicts(members: list[RuleAudit]) -> str:
    """How many rules of a family have which verdict, and why some have none."""
    counts = Counter(str(rule.verdict) for rule in members)
    text = ", ".join(f"{n} {verdict}" if len(counts) > 1 else verdict for verdict, n in counts.items())
    reasons = {join_remedy(rule.reason, rule.remedy, word_for_shell) for rule in members if rule.reason}
    return f"{text}{f' ({min(reasons)})' if reasons else ''}"
