"""bylaw refit: the same rules on new rows, with few decisions changed."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import show_json, show_table, tell
from bylaw.cli.standard_streams import check_output, find_file, name_output, open_output
from bylaw.errors import BylawError, InfeasibleRulesError, UncertifiedError

if TYPE_CHECKING:
    from bylaw.data.column_roles import Roles
    from bylaw.policy.policy import Policy
    from bylaw.testing import Comparison


@takes_columns(
    "scores",
    "group",
    "group_probabilities",
    "true_group",
    "reference",
    "label",
    "weight",
    "seen_weights",
    "id_column",
    "normalize",
)
def run_refit(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the new policy.")],
    churn: Annotated[
        float | None,
        typer.Option(
            help="The largest share of decisions that may change, such as 0.05.", show_default="any"
        ),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", "-r", help="The rules of this file, not those of the policy.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="These rules, not its own.")] = None,
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
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Fit the rules of a policy again on new rows, and change few of its decisions.

    Where the rules alone change no more than --churn, the new policy needs nothing else. Elsewhere it must
    know what the earlier one would decide: give that to `bylaw decide` and others as --previous.

    [bold]Examples[/bold]

      bylaw refit policy.json new.parquet --churn 0.05 -o policy2.json --report refit.html

      bylaw refit policy.json new.parquet --churn 0.05 --certify held.parquet -o policy2.json
    """
    from bylaw.cli.commands.audit import read_others
    from bylaw.cli.inputs import (
        check_outputs,
        find_policy_roles,
        list_group_values,
        load_previous,
        parse_limits,
        read_outcomes,
        read_rows,
    )
    from bylaw.data.table_files import name_table
    from bylaw.fitting.refit import refit
    from bylaw.policy.policy import Policy
    from bylaw.testing import compare_policies

    check_output(output, as_json)
    check_outputs([find_file(output), report], [policy, table, rules, certify, previous])
    if certify is None:
        idle = {"--confidence": confidence, "--limit": limit, "--outcomes": outcomes}
        options.refuse_idle({**idle, "--largest-weight": largest_weight}, "--certify")
    earlier = Policy.load(policy)
    others, older = read_others(rules, rule), load_previous(previous, earlier)
    problem = earlier.problem if others is None else others.problem
    roles = find_policy_roles(earlier, table, flags, others=others, previous=older)
    values = list_group_values(earlier)
    rows = read_rows(table, roles, values, previous=older)
    ids, held_ids = _read_ids(table, roles, values), None
    solving: dict[str, Any] = {} if others is None else dict(others.solve)
    solving |= {} if margin is None else {"margin": options.parse_margin(margin)}
    solving |= {} if certify is None else {"confidence": options.check_confidence(confidence)}
    held_out = None
    if certify is not None:
        held_roles = find_policy_roles(earlier, certify, flags, others=others, previous=older)
        held = read_rows(certify, held_roles, values, previous=older)
        held_ids = _read_ids(certify, held_roles, values) if ids is not None else None
        found = read_outcomes(certify, outcomes, problem, earlier.action_space.classes)
        held_out = held.hold_out(found, limits=parse_limits(limit, problem), largest_weight=largest_weight)
    with _name_churn():
        new = refit(
            earlier,
            rows.evidence,
            churn=churn,
            ids=ids,
            rules=None if others is None else list(problem.rules),
            held_out=held_out,
            held_out_ids=held_ids,
            **rows.outcomes,
            **solving,
        )
    new = replace(new, card=replace(new.card, source=name_table(table), columns=roles.to_dict()))
    with open_output(output, ".json") as target:
        new.save(target)
        seen = {"labels": rows.labels, "groups": rows.groups}
        compared = compare_policies(earlier, new, rows.evidence, ids=ids, **seen)
        if report is not None:
            _write_report(new, rows, compared, output, report)
        (_show_json if as_json else _show_text)(new, compared, output, report)


def _read_ids(table: Path, roles: Roles, values: Any) -> Any:
    """None if there is no column of ids."""
    from bylaw.cli.inputs import open_table
    from bylaw.cli.repeated_ids import check_ids

    if roles.id is None:
        return None
    ids = open_table(table, roles, values).read([roles.id])[roles.id]
    check_ids(ids)
    return ids


@contextlib.contextmanager
def _name_churn() -> Iterator[None]:
    """Whatever is told of the rule on changes names the flag that stated it."""
    try:
        yield
    except (InfeasibleRulesError, UncertifiedError) as problem:
        problem.message = _say_churn(problem.message)
        raise


def _say_churn(text: str) -> str:
    """With --churn in place of its rule; in a column, as wide as that."""

    def word(found: re.Match[str]) -> str:
        flag = f"--churn {found[1]}"
        return flag.ljust(len(found[0])) if found[2] else flag

    return re.sub(r"custom\('changed'\) <= ([\d.e-]+)( {2,})?", word, text)


def _write_report(new: Policy, rows: Any, compared: Comparison, output: Path, path: Path) -> None:
    from bylaw.report import report

    try:
        report(new, compared.evidence, **rows.outcomes, comparison=compared).save(path)
    except BylawError as problem:
        raise BylawError(
            f"the policy is saved as {output}, but its report failed: {problem.message}", problem.remedy
        ) from problem


def _show_json(new: Policy, compared: Comparison, output: Path, report: Path | None) -> None:
    show_json(
        {
            "policy": str(output),
            "hash": new.digest,
            "report": None if report is None else str(report),
            "needs_previous": compared.needs_previous,
            **compared.to_dict(),
        }
    )


def _word_referred(compared: Comparison) -> str:
    """The share of cases referred before and after, beside costs that fall with it."""
    if math.isnan(compared.referred_after) or not compared.referred_before + compared.referred_after:
        return ""
    return (
        f", with {100 * compared.referred_before:.3g} % and {100 * compared.referred_after:.3g} % of cases "
        "referred"
    )


def _show_text(new: Policy, compared: Comparison, output: Path, report: Path | None) -> None:
    lines = [
        (_say_churn(one.statement), f"{one.target:.4g}", f"{one.before:.4f}", f"{one.after:.4f}")
        for one in compared.rules
    ]
    show_table("", ("rule, its worst part", "bound", "earlier", "new"), lines)
    tell(
        f"{compared.rows:,} rows: {compared.objective}, {compared.measurement}, is "
        f"{compared.cost_before:.4g} with the earlier policy and {compared.cost_after:.4g} with the new one"
        f"{_word_referred(compared)}; "
        f"{compared.changed:.2%} of decisions change"
    )
    if new.certificate is not None:
        tell(f"certified: {new.certificate}")
    if compared.needs_previous:
        tell("the new policy counts changed decisions: give the earlier one to `bylaw decide` as --previous")
    tell(f"policy: {name_output(output)}")
    if report is not None:
        tell(f"report: {report}")
