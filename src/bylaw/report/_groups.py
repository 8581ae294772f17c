"""Sections on groups: rates before and after, changed decisions, and a comparison with an earlier policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bylaw._base import Floats
from bylaw.report._action_words import name_action, title_action
from bylaw.report._context import Cell, Partition, ReportContext
from bylaw.view import (
    Content,
    Html,
    Scale,
    capitalize,
    draw_axis,
    draw_bar,
    draw_dots,
    find_unit,
    fit_scale,
    fold,
    format_amount,
    format_percent,
    format_points,
    join,
    make_page_table,
    pluralize,
    round_number,
    shorten,
    tag,
)

_MOST_CHARTS, _MOST_ACTIONS = 6, 12
_LEAST_FLOW = 5e-5  # smaller shares of cases are not listed
_NAME = 60  # maximum characters of the name of a group or action
_CHART = tag("span", "Chart", class_="unseen")


def write_before_and_after(context: ReportContext) -> Sequence[Content]:
    """Write the section that compares, by group, the decisions of the user's model and of the policy."""
    rows = context.judged
    partitions = rows.partitions or (Partition("all cases", (rows.all_rows,), 0, False),)
    charts = [_list_charts(partition, context) for partition in partitions]
    # Charts of the same kind have the same scale; it leaves out zero if all rates are far from it.
    scales = dict[bool, Scale]()
    for kind in (True, False):
        drawn = [lines for part in charts for _, is_mistake, lines in part if is_mistake is kind]
        values = [value for lines in drawn for _, *pair in lines for value in pair]
        scales[kind] = fit_scale(values, around_zero=not values or min(values) < 0.35 * max(values))
    parts = (
        [] if rows.partitions else [tag("p", "No groups were given, so these are the rates of all cases.")]
    )
    for partition, drawn in zip(partitions, charts, strict=True):
        parts.append(tag("h3", f"By {partition.name}" if rows.partitions else "All cases"))
        for title, is_mistake, lines in drawn:
            scale, body = scales[is_mistake], []
            for cell, before, after in lines:
                shares = format_percent(before), format_percent(after)
                dots = draw_dots(f"{cell.name}: {shares[0]} before, {shares[1]} after", before, after, scale)
                body.append([_name_cell(cell.name, cell), dots, *shares])
            heads = ["Group", join([draw_axis(scale, "share"), _CHART]), "Before", "After"]
            parts.append(make_page_table(title, heads, body, "chart"))
        parts += _list_remarks(partition, context, sum(not is_mistake for _, is_mistake, _ in drawn))
    lead = (
        f"How often each {context.words.frequency}, group by group, on {rows.name}, averaged over the "
        "policy’s random decisions. All these charts have the same scale, and so do all charts of mistakes."
    )
    before, after = (
        tag("span", "", class_=f"key {look}", aria_hidden="true") for look in ("before", "after")
    )
    legend = tag("p", before, " before: your model ", after, " after: with rules", class_="legend note")
    return [tag("p", lead), legend, *parts]


def _list_charts(
    partition: Partition, context: ReportContext
) -> list[tuple[str, bool, list[tuple[Cell, float, float]]]]:
    """Return the charts of a partition: the actions whose rates differ or change most, and mistakes.

    Each is a tuple of a title, whether it is about mistakes, and each group with its rates before and after.
    """
    rows, cells = context.judged, partition.cells
    if not cells:  # all are too small to be shown
        return []
    before, after = (
        np.array([cell.average(of) for cell in cells]) for of in (rows.model, rows.probabilities)
    )
    moved = np.abs(after - before).max(axis=0) + np.ptp(before, axis=0)
    charts = []
    for a in sorted(np.argsort(-moved, kind="stable")[:_MOST_CHARTS].tolist()):
        lines = list(zip(cells, before[:, a].tolist(), after[:, a].tolist(), strict=True))
        charts.append((title_action(context.policy.action_space, a), False, lines))
    costs = [rows.compare_mistakes(cell) for cell in cells]
    lines = [(cell, c.model, c.policy) for cell, c in zip(cells, costs, strict=True) if c is not None]
    if len(lines) == len(costs):
        charts.append((context.words.mistakes.format(measured=context.measurement), True, lines))
    return charts


def _list_remarks(partition: Partition, context: ReportContext, shown: int) -> list[Html]:
    """Return a note on actions and groups that are not drawn, and on predicted groups."""
    remarks, few = [], context.judged.min_cell
    if more := len(context.policy.actions) - shown:
        actions = pluralize(more, f"more {context.words.action}")
        remarks.append(f"Not drawn: {actions}, with smaller differences and changes.")
    if partition.left_out:
        reason = (
            f" Groups of fewer than {few} cases are never shown, nor is the next smallest group."
            if few > 1
            else ""
        )
        remarks.append(f"Not drawn: {pluralize(partition.left_out, 'smaller group')}.{reason}")
    if partition.is_predicted:
        remarks.append(
            f"The true {partition.name} of these cases is not known: the rates use its probabilities. "
            "If it is given (groups=, or a column of true groups), the rates are observed."
        )
    return [tag("p", " ".join(remarks), class_="note")] if remarks else []


def _name_cell(name: str, cell: Cell) -> Html:
    """Return the name of a group with its number of cases."""
    return join([shorten(name, _NAME), tag("span", cell.size, class_="size")], " ")


def write_affected(context: ReportContext) -> Sequence[Content]:
    """Write the section on changed decisions: in which groups, and from which to which action."""
    rows, exclusive = context.judged, context.policy.action_space.exclusive
    lead = f"{context.words.change} Shares are averages over the policy’s random decisions, on {rows.name}."
    # The share of changed decisions in each group, and the most common change.
    cells = [(rows.all_rows, "All cases")]
    cells += [(cell, f"{part.name}: {cell.name}") for part in rows.partitions for cell in part.cells]
    shares = [rows.compute_changed_share(cell) for cell, _ in cells]
    lines = []
    for (cell, name), share in zip(cells, shares, strict=True):
        lines.append([_name_cell(name, cell), *_make_bar(name, share, max(shares))])
        if exclusive:
            moves = _list_moves(context, cell, 1)
            lines[-1].append(", ".join(moves[0]) if moves else "—")
    heads = ["Group", _CHART, "Changed", *(["Most often"] if exclusive else [])]
    table = make_page_table("Changed decisions by group", heads, lines, "chart wide")
    if exclusive:
        content = [table, _tabulate_answers(context), _tabulate_flows(context)]
    else:
        sizes, lines = rows.set_sizes.tolist(), []
        for size, share in enumerate(sizes):
            more = size == len(sizes) - 1 < len(context.policy.actions)
            name = f"{size} or more" if more else "none" if size == 0 else str(size)
            lines.append([name, *_make_bar(name, share, max(sizes), "of the cases")])
        title, heads = "How many labels the sets have", ["Labels", _CHART, "Share"]
        content = [table, make_page_table(title, heads, lines, "chart")]
    return [tag("p", lead), *content]


def _make_bar(name: str, share: float, most: float, of: str = "changed") -> list[Html | str]:
    """Return the two table cells of a bar chart: the bar and the number."""
    number = format_percent(share)
    return [draw_bar(f"{name}: {number} {of}", share / most if most else 0.0), number]


def _list_moves(context: ReportContext, cell: Cell, most: int) -> list[tuple[str, str]]:
    """Return the most common changes of decisions in a group, with their shares of its cases."""
    flow, space = context.judged.compute_flow(cell), context.policy.action_space
    moves = flow - np.diag(np.diag(flow))
    names, lines = [name_action(space, i) for i in range(len(space.actions))], []
    for place in np.argsort(-moves, axis=None, kind="stable")[:most].tolist():
        if (share := float(moves.flat[place])) >= _LEAST_FLOW:
            before, after = divmod(place, len(names))
            lines.append((f"{names[before]} → {names[after]}", format_percent(share)))
    return lines


def _tabulate_answers(context: ReportContext) -> Html:
    """Return a table of the share of changed cases, by the decision of the user's model."""
    rows = context.judged
    flow = rows.compute_flow(rows.all_rows)[: len(context.policy.action_space.model_actions)]
    total = flow.sum(axis=1)
    changed = total - np.diag(flow)
    order = [a for a in np.argsort(-changed, kind="stable").tolist() if total[a] > 0]
    kept = sorted(order[:_MOST_ACTIONS])
    most = max((float(changed[a] / total[a]) for a in kept), default=0.0)
    lines = []
    for a in kept:
        name = shorten(context.policy.actions[a], _NAME)
        share = float(changed[a] / total[a])
        lines.append([name, *_make_bar(name, share, most), format_percent(float(total[a]))])
    heads = ["Decision of your model", _CHART, "Changed", "Of all cases"]
    table = make_page_table("Changed decisions by decision of your model", heads, lines, "chart wide")
    more = len(order) - len(kept)
    note = tag("p", f"Not shown: {pluralize(more, 'more label')}, where fewer cases change.", class_="note")
    return join([table, note if more > 0 else None])


def _tabulate_flows(context: ReportContext) -> Html:
    """Return a table of changes between actions; if there are many actions, only the largest changes."""
    rows, space = context.judged, context.policy.action_space
    if len(space.actions) <= _MOST_ACTIONS:
        names = [name_action(space, place) for place in range(len(space.actions))]
        flow = rows.compute_flow(rows.all_rows)[: len(space.model_actions)]
        title = "From what to what: shares of all cases, by your model (row) and by the policy (column)"
        return fold("From what to what", _tabulate_square(title, "Your model", names, flow))
    lines = _list_moves(context, rows.all_rows, _MOST_ACTIONS)
    title = f"The {pluralize(len(lines), 'largest change', 'largest changes')}, as shares of all cases"
    return fold("From what to what", make_page_table(title, ["Change", "Share"], lines))


def _tabulate_square(title: str, corner: str, names: list[str], shares: Floats) -> Html:
    """Return a table of shares by earlier decision (rows) and new decision (columns)."""
    lines = [[name, *map(format_percent, line)] for name, line in zip(names, shares, strict=False)]
    return make_page_table(title, [corner, *names], lines)


def write_earlier_policy(context: ReportContext) -> Sequence[Content]:
    """Write the section that compares an earlier policy and this one on the same cases."""
    compared = context.comparison
    if compared is None:
        return []
    objective, statements = context.policy.problem.minimize, context.policy.problem.rules
    costs = (compared.cost_before, compared.cost_after)
    before, after = (format_amount(cost, find_unit(objective)) for cost in costs)
    lead = (
        f"Both policies on {pluralize(compared.rows, 'case')}. {format_percent(compared.changed)} of "
        f"decisions change. {capitalize(context.describe_rate(objective))} is {before} with the earlier "
        f"policy and {after} with the new one, {compared.measurement}."
    )
    if compared.needs_previous:
        lead += (
            " The new policy needs the decisions of the earlier one, so the earlier policy’s file must be "
            "kept with it."
        )
    sentences = {str(rule): context.write_sentence(rule) for rule in statements}
    rules = [
        [sentences[one.statement], *(round_number(value, 4) for value in (one.target, one.before, one.after))]
        for one in compared.rules
    ]
    groups = [
        [
            f"{shorten(one.attribute)}: {shorten(one.value)}",
            format_percent(one.rows),
            format_percent(one.changed),
            format_points(one.changed - compared.changed),
        ]
        for one in compared.list_shown_groups(context.judged.min_cell)
    ]
    group_heads = ["Group", "Share of cases", "Decisions that change", "Beyond the average"]
    shares = compared.flows.sum(axis=1) + compared.flows.sum(axis=0)
    kept = sorted(np.argsort(-shares, kind="stable")[:_MOST_ACTIONS].tolist())
    names = [title_action(context.policy.action_space, place) for place in kept]
    title = "From the earlier decision (down) to the new one (across), in shares of all cases"
    return [
        tag("p", lead),
        make_page_table(
            "Rules under both policies",
            ["Rule (its worst group)", "Bound", "Earlier policy", "New policy"],
            rules,
        ),
        make_page_table("Whose decisions change", group_heads, groups) if groups else None,
        _tabulate_square(title, "", names, compared.flows[np.ix_(kept, kept)]),
    ]
