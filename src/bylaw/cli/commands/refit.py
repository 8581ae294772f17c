"""bylaw refit: the same rules on new rows, with few decisions changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import Grid, write_result
from bylaw.cli.files import check_outputs, name_output, name_saved, open_output, open_tables
from bylaw.errors import InfeasibleRulesError, UncertifiedError

if TYPE_CHECKING:
    from bylaw.testing import Comparison


def run_refit(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the new policy.")],
    churn: Annotated[
        float | None,
        typer.Option(
            help="The largest share of decisions that may change, such as 0.05.", show_default="any"
        ),
    ] = None,
    rules: options.OtherRules = None,
    rule: options.OtherRule = None,
    margin: options.Margin = None,
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows: rules and changes are certified on them.")
    ] = None,
    confidence: options.Confidence = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a report of both policies, an HTML file.")
    ] = None,
    previous: options.Previous = None,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.SeenWeights = None,
    id_column: options.IdColumn = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit the rules of a policy again on new rows, and change few of its decisions.

    Where the rules alone change no more than --churn, the new policy needs nothing else. Elsewhere it must
    know what the earlier one would decide: give that to `bylaw decide` and others as --previous.

    [bold]Examples[/bold]

      bylaw refit policy.json new.parquet --churn 0.05 -o policy2.json --report refit.html

      bylaw refit policy.json new.parquet --churn 0.05 --certify held.parquet -o policy2.json
    """
    from bylaw.cli.commands.report import write_report
    from bylaw.cli.decisions import check_ids
    from bylaw.cli.inputs import (
        list_group_values,
        load_previous,
        parse_limits,
        read_held_out,
        read_ids,
        read_rows,
    )
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.cli.table_columns import find_policy_columns
    from bylaw.fitting.refit import refit
    from bylaw.policy.policy import Policy
    from bylaw.rows.table_files import name_table
    from bylaw.testing import compare_policies

    check_outputs(output, [policy, table, rules, certify, previous], report, as_json=as_json)
    if certify is None:
        options.refuse_idle(
            "--certify", confidence=confidence, limit=limit, outcomes=outcomes, largest_weight=largest_weight
        )
    stated = options.state_columns(context)
    table, certify = open_tables(context, table, certify=certify)
    earlier, others = Policy.load(policy), read_other_rules(rules, rule)
    problem, older = (others or earlier).problem, load_previous(previous, earlier)
    values, solving = list_group_values(earlier), {} if others is None else dict(others.solve)
    if margin is not None:
        solving["margin"] = options.parse_margin(margin)
    columns = find_policy_columns(earlier, table, stated, others=others, previous=older)
    rows, ids = read_rows(table, columns, values, previous=older), read_ids(table, columns, values)
    if ids is not None:
        check_ids(ids)
    if certify is not None:
        held_columns = find_policy_columns(earlier, certify, stated, others=others, previous=older)
        solving["confidence"] = options.check_confidence(confidence)
        solving["held_out"] = read_held_out(
            certify,
            held_columns,
            problem,
            earlier.action_space.classes,
            values,
            outcomes=outcomes,
            limits=parse_limits(limit, problem),
            largest_weight=largest_weight,
            previous=older,
        )
        if ids is not None and (held_ids := read_ids(certify, held_columns, values)) is not None:
            check_ids(held_ids)
            solving["held_out_ids"] = held_ids
    try:
        new = refit(
            earlier,
            rows,
            churn=churn,
            ids=ids,
            rules=None if others is None else list(problem.rules),
            **solving,
        )
    except (InfeasibleRulesError, UncertifiedError) as refused:
        refused.message = _name_churn(refused.message)
        raise
    new = replace(new, card=replace(new.card, source=name_table(table), columns=columns.to_dict()))
    with open_output(output, ".json") as target:
        new.save(target)
        compared = compare_policies(earlier, new, rows, ids=ids)
        if report is not None:
            with name_saved(output):
                write_report(new, compared.evidence, report, None, comparison=compared)
        facts = {
            "policy": str(output),
            "hash": new.digest,
            "report": None if report is None else str(report),
            "needs_previous": compared.needs_previous,
            **compared.to_dict(),
        }
        text = [*_describe(compared, new.certificate), f"policy: {name_output(output)}"]
        write_result(facts, [*text, *([] if report is None else [f"report: {report}"])], as_json)


def _name_churn(text: str) -> str:
    """Return a text with --churn in place of the rule that it stands for; in a column, as wide as that."""

    def word(found: re.Match[str]) -> str:
        flag = f"--churn {found[1]}"
        return flag.ljust(len(found[0])) if found[2] else flag

    return re.sub(r"custom\('changed'\) <= ([\d.e-]+)( {2,})?", word, text)


def _describe(compared: Comparison, certificate: Any) -> Iterator[str | Grid]:
    """Yield both policies side by side."""
    lines = [
        (_name_churn(one.statement), f"{one.target:.4g}", f"{one.before:.4f}", f"{one.after:.4f}")
        for one in compared.rules
    ]
    yield Grid(("rule, its worst part", "bound", "earlier", "new"), lines)
    before, after = compared.referred_before, compared.referred_after
    referred = ""  # where there is no rejection, or nothing is rejected
    if before + after > 0:
        referred = f", with {100 * before:.3g} % and {100 * after:.3g} % of cases referred"
    yield (
        f"{compared.rows:,} rows: {compared.objective}, {compared.measurement}, is "
        f"{compared.cost_before:.4g} with the earlier policy and {compared.cost_after:.4g} with the new one"
        f"{referred}; {compared.changed:.2%} of decisions change"
    )
    if certificate is not None:
        yield f"certified: {certificate}"
    if compared.needs_previous:
        yield "the new policy counts changed decisions: give the earlier one to `bylaw decide` as --previous"
