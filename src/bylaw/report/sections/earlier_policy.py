"""Beside an earlier policy: rates and costs of both on the same cases, and the decisions that change."""

from __future__ import annotations

import numpy as np

from bylaw.report.action_words import title_action
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, make_section, make_table, tag
from bylaw.report.number_format import (
    capitalize,
    find_objective_unit,
    format_amount,
    format_percent,
    format_points,
    pluralize,
    round_number,
    shorten,
)
from bylaw.testing import Comparison

_MOST_ACTIONS = 12
_MOST_LINES = 60


def write_earlier_policy(context: ReportContext) -> Html | None:
    compared = context.comparison
    if compared is None:
        return None
    return make_section(
        "earlier",
        "Beside the earlier policy",
        tag("p", _write_lead(compared, context)),
        _tabulate_rules(compared, context),
        _tabulate_groups(compared, context.judged.min_cell),
        _tabulate_flows(compared, context),
    )


def _write_lead(compared: Comparison, context: ReportContext) -> str:
    objective = context.policy.problem.minimize
    unit = find_objective_unit(objective)
    before, after = (format_amount(cost, unit) for cost in (compared.cost_before, compared.cost_after))
    needs = (
        " The new policy must know what the earlier one would decide: the earlier policy’s file goes with it."
        if compared.needs_previous
        else ""
    )
    return (
        f"Both policies on {pluralize(compared.rows, 'case')}. {format_percent(compared.changed)} of "
        f"decisions change. {capitalize(context.describe_rate(objective))} is {before} with the earlier "
        f"policy and {after} with the new one, {compared.measurement}.{needs}"
    )


def _tabulate_rules(compared: Comparison, context: ReportContext) -> Html:
    statements = {str(rule): rule for rule in context.policy.problem.rules}
    lines = [
        [
            context.write_sentence(statements[one.statement]),
            *(round_number(value, 4) for value in (one.target, one.before, one.after)),
        ]
        for one in compared.rules[:_MOST_LINES]
    ]
    heads = ["Rule, by its worst part", "Bound", "Earlier policy", "New policy"]
    return make_table("Rules under both policies", heads, lines)


def _tabulate_groups(compared: Comparison, min_cell: int) -> Html | None:
    shown = compared.list_shown_groups(min_cell)
    if not shown:
        return None
    lines = [
        [
            f"{shorten(one.attribute)}: {shorten(one.value)}",
            format_percent(one.rows),
            format_percent(one.changed),
            format_points(one.changed - compared.changed),
        ]
        for one in shown[:_MOST_LINES]
    ]
    heads = ["Group", "Share of cases", "Decisions that change", "Beyond the average"]
    return make_table("Whose decisions change", heads, lines)


def _tabulate_flows(compared: Comparison, context: ReportContext) -> Html:
    """From the earlier decision, down, to the new one, across."""
    shares = compared.flows.sum(axis=1) + compared.flows.sum(axis=0)
    kept = sorted(np.argsort(-shares, kind="stable")[:_MOST_ACTIONS].tolist())
    names = [title_action(context.policy.action_space, place) for place in kept]
    lines = [
        [name, *(format_percent(float(compared.flows[one, other])) for other in kept)]
        for name, one in zip(names, kept, strict=True)
    ]
    return make_table(
        "From the earlier decision (down) to the new one (across), in shares of all cases",
        ["", *names],
        lines,
    )
