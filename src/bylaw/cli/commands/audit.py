"""bylaw audit: what rows that were held out say of a policy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw.auditing.audit import Audit, RuleAudit, Verdict, audit
from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import in_shell, show_json, tell
from bylaw.cli.decision_columns import read_decisions
from bylaw.cli.inputs import groups_of, limits_of, policy_roles, rows_of, rules_of
from bylaw.data.table_files import TableFile
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy.policy import Policy

_EXIT = {Verdict.CERTIFIED: 0, Verdict.VIOLATED: 1, Verdict.BROKEN: 1}  # 2 for the others


@takes_columns(
    "scores", "group", "group_probabilities", "true_group", "reference", "label", "weight", "normalize"
)
def audited(
    policy: options.PolicyPath,
    table: options.Table,
    rules: Annotated[
        Path | None, typer.Option("--rules", "-r", help="Judge the rules of this file, not its own.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Judge these rules, not its own.")] = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="Judge what was decided, in this column, not the policy's distribution."),
    ] = None,
    confidence: options.Confidence = 0.95,
    method: Annotated[
        str, typer.Option(help="betting, hoeffding_bentkus or clopper_pearson; choose before you look.")
    ] = "betting",
    fitted_rows: Annotated[
        str, typer.Option(help="'estimate' to see what fitted rows say; they certify nothing.")
    ] = "refuse",
    limit: options.Limit = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Judge each rule on rows that had no say in the policy.

    Exit codes, for gates: 0 all rules are certified, 1 a rule is violated, 2 undecided, or an error.

    [bold]Examples[/bold]

      bylaw audit policy.json labelled.parquet --label y

      bylaw audit policy.json log.csv --label y --decisions decision --json > audit.json
    """
    chosen = Policy.load(policy)
    others = rules_of(rules, rule, None) if rules or rule else None
    if others is not None and not others.problem.rules:
        raise OptionError(f"{rules} has no rules to judge")
    rows = rows_of(table, policy_roles(chosen, table, flags, others=others), groups_of(chosen))
    taken = None if decisions is None else _taken(table, decisions, chosen)
    found = audit(
        chosen,
        rows.evidence,
        **rows.seen,
        rules=None if others is None else list(others.problem.rules),
        decisions=taken,
        limits=limits_of(limit, (others or chosen).problem),
        confidence=confidence,
        method=method,  # type: ignore[arg-type]
        fitted_rows=fitted_rows,  # type: ignore[arg-type]
    )
    if as_json:
        show_json(found.to_dict())
    else:
        _show(found, {} if others else {price.rule: price.statement for price in chosen.rule_prices})
    raise typer.Exit(_EXIT.get(found.verdict, 2))


def _taken(table: Path, column: str, policy: Policy) -> Any:
    values = TableFile(table, text=(column,)).read([column])[column].to_pylist()
    try:
        return read_decisions(values, policy)
    except EvidenceError as problem:
        raise EvidenceError(f"{table}, {column}: {problem}") from None


def _show(found: Audit, statements: Mapping[str, str]) -> None:
    """Each rule or family as it was stated, with its worst member."""
    families: dict[str, list[RuleAudit]] = {}
    for rule in found.rules:
        families.setdefault(statements.get(rule.rule, rule.rule), []).append(rule)
    for statement, members in families.items():
        tell(f"{statement}: {_verdicts(members)}", style="bold")
        worst = max(members, key=lambda rule: -math.inf if math.isnan(rule.excess) else rule.excess)
        if worst.rule != statement:
            tell(f"  worst: {worst.rule}")
        if not math.isnan(worst.estimate):
            sure = f"{100 * found.confidence:g} % bounds {worst.lower:.4f} to {worst.upper:.4f}"
            tell(f"  estimate {worst.estimate:.4f}{'' if math.isnan(worst.lower) else f', {sure}'}")
    kind = "observed" if found.cost_observed else "predicted"
    tell(
        f"{found.rows:,} rows; {found.objective}, {kind}: {found.cost_before:.4g} without rules, "
        f"{found.cost_after:.4g} with them"
    )
    tell(f"all rules together: {found.verdict} (--json has every single rule)")


def _verdicts(members: list[RuleAudit]) -> str:
    counts = Counter(str(rule.verdict) for rule in members)
    said = ", ".join(f"{n} {verdict}" if len(counts) > 1 else verdict for verdict, n in counts.items())
    reasons = {rule.reason for rule in members if rule.reason}
    return f"{said}{f' ({in_shell(min(reasons))})' if reasons else ''}"
