"""Who is treated how: rates of every group before and after, and whose decisions changed."""

from __future__ import annotations

import numpy as np

from bylaw.report.context import Facts
from bylaw.report.markup import Html, folded, join, section, table, tag
from bylaw.report.number_format import percent, plural, short
from bylaw.report.rows import Cell, Partition
from bylaw.report.svg_charts import axis, column, dots, scale_of

_MOST_ACTIONS = 6  # charts of one partition
_MOST_IN_TABLE = 12  # actions in a table of flows
_MOST_FLOWS = 12
_LEAST_FLOW = 5e-5
_NAME = 60
_NEAR_ZERO = 0.35  # of the largest rate: a scale of dots that far from zero leaves it out

_Row = tuple[str, float, float]  # a group's name, and its rates before and after


def before_and_after(facts: Facts) -> Html:
    cases = facts.judged
    parts = [_partition(partition, facts) for partition in cases.partitions]
    if not parts:
        everybody = Partition("all cases", (cases.everybody,), 0, False)
        note = tag("p", "No groups were given, so these are the rates of all cases.")
        parts = [note, _partition(everybody, facts)]
    what = "label is in a set" if cases.sets else "decision is taken"
    return section(
        "groups",
        "Before and after",
        tag("p", f"How often each {what}, group by group, on {facts.rows}, with chance averaged out."),
        _legend(),
        *parts,
    )


def _legend() -> Html:
    before, after = (
        tag("span", "", class_=f"key {look}", aria_hidden="true") for look in ("before", "after")
    )
    words = before, " before: the model alone ", after, " after: with the rules"
    return tag("p", *words, class_="legend note")


def _partition(partition: Partition, facts: Facts) -> Html:
    """The actions whose rates differ most between groups or change most, each as a small chart."""
    cases = facts.judged
    before = np.array([cases.shares(cell, before=True) for cell in partition.cells])
    after = np.array([cases.shares(cell) for cell in partition.cells])
    moved = np.abs(after - before).max(axis=0) + np.ptp(before, axis=0)
    kept = sorted(np.argsort(-moved, kind="stable")[:_MOST_ACTIONS].tolist())
    names = [cell.name for cell in partition.cells]
    charts = [
        _chart(_title(facts, a), list(zip(names, before[:, a].tolist(), after[:, a].tolist(), strict=True)))
        for a in kept
    ]
    wrong = [(cell.name, cases.mistakes(cell, before=True), cases.mistakes(cell)) for cell in partition.cells]
    complete: list[_Row] = [(n, b, a) for n, b, a in wrong if b is not None and a is not None]
    if len(complete) == len(wrong):
        what = "Sets that miss the true label" if cases.sets else "Answered wrongly"
        charts.append(_chart(f"{what}, {facts.measured}", complete))
    return join([tag("h3", f"By {partition.name}"), *charts, *_remarks(partition, facts, len(kept))])


def _remarks(partition: Partition, facts: Facts, shown: int) -> list[Html]:
    said, word = [], "label" if facts.kind == "sets" else "decision"
    if more := len(facts.policy.actions) - shown:
        said.append(f"{plural(more, 'more ' + word)} not drawn: they differ and change less.")
    if partition.left_out:
        said.append(f"{plural(partition.left_out, 'smaller group')} not drawn.")
    if partition.guessed:
        said.append(
            f"The true {partition.name} of these cases is not known here: the rates use its probabilities. "
            "Where it is given (groups=, or a column of true groups), they are as observed."
        )
    return [tag("p", " ".join(said), class_="note")] if said else []


def _title(facts: Facts, action: int) -> str:
    name = short(facts.policy.actions[action], _NAME)
    if facts.kind == "reject" and action == len(facts.policy.actions) - 1:
        return f"Referred ({name})"
    return f"In the set: {name}" if facts.kind == "sets" else f"Decided {name}"


def _chart(title: str, rows: list[_Row]) -> Html:
    """A table whose middle column is drawn."""
    values = [value for _, *pair in rows for value in pair]
    scale = scale_of(values, around_zero=min(values) < _NEAR_ZERO * max(values))
    lines = [
        [
            short(name, _NAME),
            dots(f"{name}: {percent(b)} before, {percent(a)} after", b, a, scale),
            percent(b),
            percent(a),
        ]
        for name, b, a in rows
    ]
    heads = ["Group", join([axis(scale, "share"), tag("span", "Chart", class_="unseen")]), "Before", "After"]
    return table(title, heads, lines, class_="chart")


def affected(facts: Facts) -> Html:
    cases = facts.judged
    what = (
        "A set counts as changed if it is not just the model’s best label."
        if cases.sets
        else "A decision counts as changed if it is not the one that the model alone would take."
    )
    return section(
        "affected",
        "Who is affected",
        tag("p", f"{what} Shares are expected ones, with chance averaged out, on {facts.rows}."),
        _changed_by_group(facts),
        *([_set_sizes(facts)] if cases.sets else [_changed_by_answer(facts), *_flows(facts)]),
    )


def _changed_by_group(facts: Facts) -> Html:
    cases = facts.judged
    cells = [(cases.everybody, "All cases")]
    cells += [(cell, f"{p.name}: {cell.name}") for p in cases.partitions for cell in p.cells]
    most = max(cases.changed_share(cell) for cell, _ in cells)
    rows = []
    for cell, name in cells:
        share = cases.changed_share(cell)
        drawn = column(f"{name}: {percent(share)} changed", share, most)
        rows.append([short(name, _NAME), drawn, percent(share), _main_flow(facts, cell)])
    heads = ["Group", tag("span", "Chart", class_="unseen"), "Changed", "" if cases.sets else "Most often"]
    if cases.sets:
        rows, heads = [row[:3] for row in rows], heads[:3]
    return table("Changed decisions by group", heads, rows, class_="chart wide")


def _main_flow(facts: Facts, cell: Cell) -> str:
    flow = _off_diagonal(facts, cell)
    a, b = np.unravel_index(int(flow.argmax()), flow.shape)
    if flow[a, b] < _LEAST_FLOW:
        return "—"
    return f"{_name(facts, int(a))} → {_name(facts, int(b))}, {percent(float(flow[a, b]))}"


def _off_diagonal(facts: Facts, cell: Cell) -> np.ndarray:
    flow = facts.judged.flow(cell)
    return flow - np.diag(np.diag(flow))


def _name(facts: Facts, action: int) -> str:
    if facts.kind == "reject" and action == len(facts.policy.action_space.classes):
        return "referred"
    return f"“{short(facts.policy.actions[action], 24)}”"


def _changed_by_answer(facts: Facts) -> Html:
    """Among the cases with each of the model's own answers."""
    cases = facts.judged
    flow = cases.flow(cases.everybody)[: len(facts.policy.action_space.classes)]
    total = flow.sum(axis=1)
    lost = total - np.diag(flow)
    order = [a for a in np.argsort(-lost, kind="stable") if total[a] > 0]
    kept = sorted(order[:_MOST_IN_TABLE])
    most = max((float(lost[a] / total[a]) for a in kept), default=0.0)
    rows = []
    for a in kept:
        share = float(lost[a] / total[a])
        name = short(facts.policy.actions[a], _NAME)
        drawn = column(f"{name}: {percent(share)} changed", share, most)
        rows.append([name, drawn, percent(share), percent(float(total[a]))])
    heads = ["Model’s answer", tag("span", "Chart", class_="unseen"), "Changed", "Of all cases"]
    whole = table("Changed decisions by the model’s own answer", heads, rows, class_="chart wide")
    more = len(order) - len(kept)
    left = tag("p", f"{plural(more, 'more label')} not shown: fewer of their cases change.", class_="note")
    return join([whole, left if more > 0 else None])


def _flows(facts: Facts) -> list[Html]:
    """From what to what: a square table, or the largest changes where there are many labels."""
    actions, cases = facts.policy.actions, facts.judged
    n = len(facts.policy.action_space.classes)
    flow = cases.flow(cases.everybody)
    if len(actions) <= _MOST_IN_TABLE:
        heads = ["The model alone", *(_name(facts, b) for b in range(len(actions)))]
        rows = [[_name(facts, a), *(percent(float(v)) for v in flow[a])] for a in range(n)]
        title = "From what to what: shares of all cases, by the model’s answer (line) and decision (column)"
        return [folded("From what to what", table(title, heads, rows))]
    off = _off_diagonal(facts, cases.everybody)
    largest = [np.unravel_index(i, off.shape) for i in np.argsort(-off, axis=None)[:_MOST_FLOWS]]
    rows = [
        [f"{_name(facts, int(a))} → {_name(facts, int(b))}", percent(float(off[a, b]))]
        for a, b in largest
        if off[a, b] >= _LEAST_FLOW
    ]
    title = f"The {plural(len(rows), 'largest change', 'largest changes')}, as shares of all cases"
    return [folded("From what to what", table(title, ["Change", "Share"], rows))]


def _set_sizes(facts: Facts) -> Html:
    sizes = facts.judged.set_sizes.tolist()
    most = max(sizes)
    last = len(sizes) - 1
    rows = []
    for size, share in enumerate(sizes):
        more = size == last < len(facts.policy.actions)
        name = f"{size} or more" if more else "none" if size == 0 else str(size)
        rows.append([name, column(f"{name}: {percent(share)} of the cases", share, most), percent(share)])
    heads = ["Labels", tag("span", "Chart", class_="unseen"), "Share"]
    return table("How many labels the sets have", heads, rows, class_="chart")
