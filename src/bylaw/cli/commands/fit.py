"""bylaw fit: a policy from a table of scores and rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw._base.validation import check_fraction
from bylaw.cli import options
from bylaw.cli.column_flags import ALL_FLAGS, Flags, takes_columns
from bylaw.cli.commands.report import page_of
from bylaw.cli.console import show_json, show_table, steps, tell, warn
from bylaw.cli.inputs import Rows, check_outputs, fitting_rows, limits_of, rows_of, rules_of
from bylaw.data.outcomes import observe
from bylaw.errors import OptionError
from bylaw.fitting.solve import solve
from bylaw.formulation.row_rates import decide_baseline
from bylaw.policy.policy import Policy


@takes_columns(*ALL_FLAGS, also=("--probabilities",))
def fit(
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the policy.")],
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    report: Annotated[Path | None, typer.Option(help="Also write a report, an HTML file.")] = None,
    certify: Annotated[
        Path | None,
        typer.Option(help="Rows that were held out: the policy is tightened until they certify it."),
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Other rows that were held out, for the verdicts of the report.")
    ] = None,
    confidence: options.Confidence = 0.95,
    margin: Annotated[
        float | None, typer.Option(help="Tighten every rule by so many standard errors, for new rows.")
    ] = None,
    limit: options.Limit = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Choose the policy of least cost that obeys the rules on these rows.

    Where there is a column of labels, the rules hold as observed; otherwise, as predicted.

    [bold]Examples[/bold]

      bylaw fit scores.parquet --rules rules.toml -o policy.json --report report.html

      bylaw fit scores.csv --rule "rejected() <= 0.1" -o policy.json
    """
    check_outputs([output, report], [table, rules, certify, held_out])
    if held_out is not None and report is None:
        raise OptionError(
            "--held-out goes with --report; to tighten the policy by held-out rows, use --certify"
        )
    check_fraction(confidence, "confidence")
    file = rules_of(rules, rule, minimize)
    if not file.problem.rules:
        warn("there are no rules: the policy is the model's best answers")
    rows, limits = fitting_rows(table, file, flags), limits_of(limit, file.problem)
    known = rows.evidence.group_values
    proof = None if certify is None else rows_of(certify, rows.roles, known)
    judges = None if held_out is None else rows_of(held_out, rows.roles, known).held_out(limits)
    solving: dict[str, Any] = {**file.solve, **({} if margin is None else {"margin": margin})}
    if proof is not None:
        solving |= {
            "guarantee": "high_probability",
            "held_out": proof.held_out(limits),
            "confidence": confidence,
        }
    with steps("solving") as callback:
        policy = solve(file.problem, rows.evidence, **rows.seen, **solving, callback=callback)
    card = replace(policy.card, source=table.name, columns=rows.roles.to_dict())
    policy = replace(policy, card=card)
    page = None if report is None else page_of(policy, rows, judges, confidence)
    policy.save(output)
    if page is not None and report is not None:
        page.save(report)
    (_as_json if as_json else _as_text)(policy, rows, output, report)


def _as_json(policy: Policy, rows: Rows, output: Path, report: Path | None) -> None:
    before, after = _costs(policy, rows)
    show_json(
        {
            "policy": str(output),
            "report": None if report is None else str(report),
            "hash": policy.digest,
            "rows": len(rows.evidence),
            "minimize": str(policy.problem.minimize),
            "cost_observed": rows.labels is not None,
            "cost_before": before,
            "cost_after": after,
            "prices": policy.prices,
            "status": policy.solution.status.name.lower(),
            "violation": policy.guarantee.violation,
            "certificate": policy.certificate and vars(policy.certificate),
            "columns": policy.card.columns,
            "guessed": list(rows.roles.guessed),
        }
    )


def _as_text(policy: Policy, rows: Rows, output: Path, report: Path | None) -> None:
    before, after = _costs(policy, rows)
    what = policy.problem.minimize
    how = "predicted" if rows.labels is None else "observed"
    tell(f"{len(rows.evidence):,} rows: {what}, {how}, is {before:.4g} without rules, {after:.4g} with them.")
    if policy.prices:
        prices = [(rule, f"{price:.4g}") for rule, price in policy.prices.items()]
        show_table("", ("rule", "one more unit of slack would save"), prices)
    if policy.certificate is not None:
        tell(str(policy.certificate))
    tell(f"policy: {output}" + (f"   report: {report}" if report else ""))


def _costs(policy: Policy, rows: Rows) -> tuple[float, float]:
    """Of the model's own answers, and of the policy: as observed, where labels are there."""
    minimize, evidence = policy.problem.minimize, rows.evidence
    seen = observe(evidence, rows.labels, rows.groups)
    parts = decide_baseline(policy.problem, evidence), policy.probabilities(evidence)
    before, after = (policy.expected(minimize, seen, probabilities=part) for part in parts)
    return before, after
