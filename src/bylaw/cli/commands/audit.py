"""bylaw audit: whether a policy's rules hold on held-out rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import ExitCode, make_plain, write_failure, write_result
from bylaw.cli.files import open_tables
from bylaw.cli.remedies import describe_problem, word_for_shell
from bylaw.errors import EvidenceError, Remedy, join_remedy

if TYPE_CHECKING:
    from bylaw.testing import Audit, RuleAudit

_EXIT = {  # and undecided for the others
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
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.SeenWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
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
    from bylaw._base.validation import check_choice
    from bylaw.cli.decisions import read_decisions
    from bylaw.cli.inputs import list_group_values, load_previous, parse_limits, read_outcomes, read_rows
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.cli.table_columns import find_policy_columns, join_problems
    from bylaw.policy.policy import Policy
    from bylaw.testing import METHODS, audit

    judging = {
        "confidence": options.check_confidence(confidence),
        "method": check_choice("betting" if method is None else method, "method", METHODS),
        "fitted_rows": check_choice(fitted_rows, "fitted_rows", ("refuse", "estimate")),
        **options.keep_given(min_cell=min_cell),
    }
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    (table,) = open_tables(context, table)
    chosen, others = Policy.load(policy), read_other_rules(rules, rule)
    limits, earlier = parse_limits(limit, (others or chosen).problem), load_previous(previous, chosen)
    columns = find_policy_columns(chosen, table, stated, others=others, previous=earlier)
    rows = read_rows(table, columns, list_group_values(chosen), reading, earlier)
    rows.check_propensity_weights(stated)
    judged = chosen.problem if others is None else join_problems(chosen.problem, others.problem)
    try:
        found = audit(
            chosen,
            rows.evidence,
            **rows.outcomes,
            rules=None if others is None else list(others.problem.rules),
            decisions=None if decisions is None else read_decisions(table, decisions, chosen, reading),
            outcomes=read_outcomes(table, outcomes, judged, rows.evidence.classes, reading),
            limits=limits,
            largest_weight=largest_weight,
            **judging,
        )
    except EvidenceError as refused:
        if refused.remedy != Remedy("estimate_fitted_rows"):
            raise
        # Fitted rows decide nothing.
        code = write_failure(refused, describe_problem(refused), ExitCode.UNDECIDED, as_json)
        raise typer.Exit(code) from None
    if not found.certificate:
        options.refuse_idle("held-out rows", confidence=confidence, method=method, record=record)
    if record:
        chosen.save(policy)
    statements = {} if others else {price.rule: price.statement for price in chosen.rule_prices}
    code = _EXIT.get(found.verdict, ExitCode.UNDECIDED)
    write_result(found.to_dict(), _describe(found, statements), as_json, code)


def _describe(found: Audit, statements: Mapping[str, str]) -> Iterator[Any]:
    """Yield each rule or family as it was stated, with its worst member, and what holds of all."""
    from bylaw.testing import describe_cost, describe_need, format_referred
    from bylaw.view.numbers import format_bounds

    families: dict[str, list[RuleAudit]] = {}
    for rule in found.shown.rules:
        families.setdefault(statements.get(rule.rule, rule.rule), []).append(rule)
    for statement, members in families.items():
        yield make_plain(f"{statement}: {_count_verdicts(members)}", "bold")
        worst = max(members, key=lambda rule: -math.inf if math.isnan(rule.excess) else rule.excess)
        if worst.rule != statement:
            yield f"  worst: {worst.rule}"
        if not math.isnan(worst.estimate):
            bounds = format_bounds(worst.lower, worst.upper, "{:.4f}".format)
            shown = f"{worst.estimate:.4f}{' as predicted' if worst.is_predicted else ''}"
            yield f"  estimate {shown}{bounds and f', {100 * found.confidence:g} % bounds {bounds}'}"
        if needs := [rule.rows_needed for rule in members if not math.isnan(rule.rows_needed)]:
            what = "it" if len(needs) == 1 else f"all {len(needs)}"
            yield f"  {describe_need(max(needs), found.rows, what)}"
    costs = f"{found.objective}, {describe_cost(found)}: {found.costs.describe(bool(found.rules))}"
    yield f"{found.rows:,} rows; {costs}{format_referred(found.rejected)}"
    for name, count in found.seen_rows.items():
        yield f"{name} was seen on {count:,} of {found.rows:,} rows: rules that refer to it go by those"
    if found.looks:
        yield f"look {found.looks:,} at this policy on held-out rows (--record notes it in the policy's file)"
    if found.certificate and len(found.rules) > 1:
        yield f"verdicts of single rules are adjusted for their number, {len(found.rules)} (Holm)"
    yield f"all rules together: {found.verdict} (--json has every single rule)"


def _count_verdicts(members: list[RuleAudit]) -> str:
    """Return how many rules of a family have which verdict, and why some have none."""
    counts = Counter(str(rule.verdict) for rule in members)
    text = ", ".join(f"{n} {verdict}" if len(counts) > 1 else verdict for verdict, n in counts.items())
    reasons = {join_remedy(rule.reason, rule.remedy, word_for_shell) for rule in members if rule.reason}
    return f"{text}{f' ({min(reasons)})' if reasons else ''}"
