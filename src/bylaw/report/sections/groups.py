"""Who is treated how: rates of every group before and after, and whose decisions changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bylaw._base.scales import Scale, fit_scale
from bylaw._base.typing import Floats
from bylaw.report.action_words import name_action, title_action
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, join, make_section, make_table, tag
from bylaw.report.number_format import format_percent, pluralize, shorten
from bylaw.report.rows import Cell, Partition, name_cases
from bylaw.report.svg_charts import draw_axis, draw_column, draw_dots

_MOST_ACTIONS = 6  # charts of one partition
_MOST_IN_TABLE = 12  # actions in a table of flows
_MOST_FLOWS = 12
_LEAST_FLOW = 5e-5
_NAME = 60
_NEAR_ZERO = 0.35  # of the largest rate: a scale of dots that far from zero leaves it out


class _Chart(NamedTuple):
    """A rate of every group of a partition, before and after."""

    title: str
    is_mistake: bool  # or how often an action is taken: charts of the same kind have the same scale
    lines: list[tuple[Cell, float, float]]


def write_before_and_after(context: ReportContext) -> Html:
    rows = context.judged
    partitions = rows.partitions or (Partition("all cases", (rows.all_rows,), 0, False),)
    charts = [_list_charts(partition, context) for partition in partitions]
    scales = _fit_scales([chart for drawn in charts for chart in drawn])
    parts = []
    if not rows.partitions:
        parts.append(tag("p", "No groups were given, so these are the rates of all cases."))
    for partition, drawn in zip(partitions, charts, strict=True):
        parts.append(tag("h3", f"By {partition.name}" if rows.partitions else "All cases"))
        parts += [_draw_chart(chart, scales[chart.is_mistake]) for chart in drawn]
        parts += _list_remarks(partition, context, sum(not chart.is_mistake for chart in drawn))
    return make_section(
        "groups",
        "Before and after",
        tag(
            "p",
            f"How often each {context.words.frequency}, group by group, on {context.judged_name}, averaged "
            "over the policy’s random decisions. These charts have one scale, and so have those of mistakes.",
        ),
        _make_legend(),
        *parts,
    )


def _make_legend() -> Html:
    before, after = (
        tag("span", "", class_=f"key {look}", aria_hidden="true") for look in ("before", "after")
    )
    words = before, " before: your model ", after, " after: with rules"
    return tag("p", *words, class_="legend note")


def _list_charts(partition: Partition, context: ReportContext) -> list[_Chart]:
    """The actions whose rates differ most between groups or change most, and mistakes."""
    rows, cells = context.judged, partition.cells
    if not cells:  # all are too small to be shown
        return []
    before, after = np.array([rows.compute_shares(cell) for cell in partition.cells]).transpose(1, 0, 2)
    moved = np.abs(after - before).max(axis=0) + np.ptp(before, axis=0)
    kept = sorted(np.argsort(-moved, kind="stable")[:_MOST_ACTIONS].tolist())
    charts = []
    for a in kept:
        lines = list(zip(cells, before[:, a].tolist(), after[:, a].tolist(), strict=True))
        charts.append(_Chart(title_action(context.policy.action_space, a), False, lines))
    costs = [rows.compare_mistakes(cell) for cell in cells]
    lines = [(cell, c.model, c.policy) for cell, c in zip(cells, costs, strict=True) if c is not None]
    if len(lines) == len(costs):
        charts.append(_Chart(context.words.mistakes.format(measured=context.measurement), True, lines))
    return charts


def _fit_scales(charts: list[_Chart]) -> dict[bool, Scale]:
    """One for the charts of actions, and one for those of mistakes."""
    scales = {}
    for mistakes in {chart.is_mistake for chart in charts}:
        own = [chart for chart in charts if chart.is_mistake is mistakes]
        values = [value for chart in own for _, *pair in chart.lines for value in pair]
        scales[mistakes] = fit_scale(values, around_zero=min(values) < _NEAR_ZERO * max(values))
    return scales


def _list_remarks(partition: Partition, context: ReportContext, shown: int) -> list[Html]:
    said = []
    if more := len(context.policy.actions) - shown:
        said.append(
            f"Not drawn: {pluralize(more, 'more ' + context.words.action)}, with smaller differences and "
            "changes."
        )
    if partition.left_out:
        few = context.judged.min_cell
        hidden = (
            f" Groups of fewer than {few} cases, and one beside them, are never shown." if few > 1 else ""
        )
        said.append(f"Not drawn: {pluralize(partition.left_out, 'smaller group')}.{hidden}")
    if partition.is_predicted:
        said.append(
            f"The true {partition.name} of these cases is not known here: the rates use its probabilities. "
            "Where it is given (groups=, or a column of true groups), they are as observed."
        )
    return [tag("p", " ".join(said), class_="note")] if said else []


def _draw_chart(chart: _Chart, scale: Scale) -> Html:
    """A table whose middle column is drawn."""
    lines = [
        [
            _name_cell(cell.name, cell),
            draw_dots(f"{cell.name}: {format_percent(b)} before, {format_percent(a)} after", b, a, scale),
            format_percent(b),
            format_percent(a),
        ]
        for cell, b, a in chart.lines
    ]
    heads = [
        "Group",
        join([draw_axis(scale, "share"), tag("span", "Chart", class_="unseen")]),
        "Before",
        "After",
    ]
    return make_table(chart.title, heads, lines, class_="chart")


def _name_cell(name: str, cell: Cell) -> Html:
    """A group, and how many cases it has."""
    return join([shorten(name, _NAME), tag("span", name_cases(cell), class_="size")], " ")


def write_affected(context: ReportContext) -> Html:
    exclusive = context.policy.action_space.exclusive
    return make_section(
        "affected",
        "Who is affected",
        tag(
            "p",
            f"{context.words.change} Shares are averages over the policy’s random decisions, on "
            f"{context.judged_name}.",
        ),
        _tabulate_groups(context),
        *(
            [_tabulate_answers(context), _tabulate_flows(context)]
            if exclusive
            else [_tabulate_sizes(context)]
        ),
    )


def _tabulate_groups(context: ReportContext) -> Html:
    """The share of changed decisions in each group and, where one action replaces another, the most common
    change."""
    rows = context.judged
    cells = [(rows.all_rows, "All cases")]
    cells += [(cell, f"{p.name}: {cell.name}") for p in rows.partitions for cell in p.cells]
    most = max(rows.compute_changed_share(cell) for cell, _ in cells)
    exclusive = context.policy.action_space.exclusive
    lines = []
    for cell, name in cells:
        share = rows.compute_changed_share(cell)
        drawn = draw_column(f"{name}: {format_percent(share)} changed", share, most)
        common = [_name_main_flow(context, cell)] if exclusive else []
        lines.append([_name_cell(name, cell), drawn, format_percent(share), *common])
    heads = [
        "Group",
        tag("span", "Chart", class_="unseen"),
        "Changed",
        *(["Most often"] if exclusive else []),
    ]
    return make_table("Changed decisions by group", heads, lines, class_="chart wide")


def _name_main_flow(context: ReportContext, cell: Cell) -> str:
    flow = _compute_moves(context, cell)
    a, b = np.unravel_index(int(flow.argmax()), flow.shape)
    if flow[a, b] < _LEAST_FLOW:
        return "—"
    return f"{_name_flow(context, int(a), int(b))}, {format_percent(float(flow[a, b]))}"


def _name_flow(context: ReportContext, before: int, after: int) -> str:
    space = context.policy.action_space
    return f"{name_action(space, before)} → {name_action(space, after)}"


def _compute_moves(context: ReportContext, cell: Cell) -> Floats:
    """(n_actions, n_actions): shares of cases whose decision changes, from which to which."""
    flow = context.judged.compute_flow(cell)
    return flow - np.diag(np.diag(flow))


def _tabulate_answers(context: ReportContext) -> Html:
    """Changes among the cases with each decision of your model."""
    rows = context.judged
    flow = rows.compute_flow(rows.all_rows)[: len(context.policy.action_space.model_actions)]
    total = flow.sum(axis=1)
    lost = total - np.diag(flow)
    order = [a for a in np.argsort(-lost, kind="stable") if total[a] > 0]
    kept = sorted(order[:_MOST_IN_TABLE])
    most = max((float(lost[a] / total[a]) for a in kept), default=0.0)
    lines = []
    for a in kept:
        share = float(lost[a] / total[a])
        name = shorten(context.policy.actions[a], _NAME)
        drawn = draw_column(f"{name}: {format_percent(share)} changed", share, most)
        lines.append([name, drawn, format_percent(share), format_percent(float(total[a]))])
    heads = ["Decision of your model", tag("span", "Chart", class_="unseen"), "Changed", "Of all cases"]
    whole = make_table("Changed decisions by decision of your model", heads, lines, class_="chart wide")
    more = len(order) - len(kept)
    left = tag("p", f"Not shown: {pluralize(more, 'more label')}, where fewer cases change.", class_="note")
    return join([whole, left if more > 0 else None])


def _tabulate_flows(context: ReportContext) -> Html:
    """From what to what: a square table, or the largest changes where there are many labels."""
    rows, space = context.judged, context.policy.action_space
    if len(space.actions) <= _MOST_IN_TABLE:
        heads = ["Your model", *(name_action(space, b) for b in range(len(space.actions)))]
        flow = rows.compute_flow(rows.all_rows)[: len(space.model_actions)]
        lines = [
            [name_action(space, a), *(format_percent(float(v)) for v in line)] for a, line in enumerate(flow)
        ]
        title = "From what to what: shares of all cases, by your model (row) and by the policy (column)"
        return fold("From what to what", make_table(title, heads, lines))
    moves = _compute_moves(context, rows.all_rows)
    largest = [np.unravel_index(i, moves.shape) for i in np.argsort(-moves, axis=None)[:_MOST_FLOWS]]
    lines = [
        [_name_flow(context, int(a), int(b)), format_percent(float(moves[a, b]))]
        for a, b in largest
        if moves[a, b] >= _LEAST_FLOW
    ]
    title = f"The {pluralize(len(lines), 'largest change', 'largest changes')}, as shares of all cases"
    return fold("From what to what", make_table(title, ["Change", "Share"], lines))


def _tabulate_sizes(context: ReportContext) -> Html:
    sizes = context.judged.set_sizes.tolist()
    most = max(sizes)
    last = len(sizes) - 1
    lines = []
    for size, share in enumerate(sizes):
        more = size == last < len(context.policy.actions)
        name = f"{size} or more" if more else "none" if size == 0 else str(size)
        drawn = draw_column(f"{name}: {format_percent(share)} of the cases", share, most)
        lines.append([name, drawn, format_percent(share)])
    heads = ["Labels", tag("span", "Chart", class_="unseen"), "Share"]
    return make_table("How many labels the sets have", heads, lines, class_="chart")
