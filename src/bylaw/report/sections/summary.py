"""The first page: what was decided, whether the rules hold, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw._base.typing import Value
from bylaw.report.action_words import Figure, describe_cost, list_figures
from bylaw.report.context import ReportContext, make_badge
from bylaw.report.markup import Html, join, make_section, make_table, tag
from bylaw.report.number_format import (
    capitalize,
    count_of,
    format_count,
    format_percent,
    join_words,
    pluralize,
    quote,
    shorten,
)
from bylaw.report.rows import Cell, name_cases
from bylaw.report.sentences import describe_certificate
from bylaw.testing import Verdict

_MOST_NAMED = 6  # labels or groups in a sentence
_MOST_LINES = 12  # groups in the table
_NOTICED = 0.005  # a rise of errors that is worth a sentence


def write_summary(context: ReportContext) -> Html:
    heading = tag(
        "p", make_badge(context.verdict), tag("span", f" All rules together, on {context.judged_name}.")
    )
    proof = context.policy.certificate
    paragraphs = [
        f"{_write_offer(context)} {_write_verdict(context)}",
        f"{describe_cost(context.judged, context.measurement)} {_write_changes(context)}",
        _write_worse_off(context),
        "" if proof is None else describe_certificate(proof),
    ]
    random = format_percent(context.judged.random_share)
    figures = [
        *list_figures(context.judged),
        Figure(
            "Random decisions",
            random,
            "decisions without chance"
            if context.policy.deterministic
            else "repeatable, with stated probabilities",
        ),
    ]
    return make_section(
        "summary",
        "Summary",
        tag("div", heading, class_="verdict") if context.bounded_rates else None,
        *(tag("p", text, class_="lead") for text in paragraphs if text),
        tag("dl", *map(_show_figure, figures), class_="figures"),
        tag("p", _define_references(context), class_="note"),
        _tabulate_groups(context),
    )


def _define_references(context: ReportContext) -> str:
    """What is compared with what."""
    policy, space = context.policy, context.policy.action_space
    decided = f"the {'label' if space.classes else 'option'} of least cost"
    if not policy.problem.minimize.is_linear and space.classes:
        decided = "the likeliest label"
    before = ", before they were calibrated" if policy.calibration else ""
    said = f"“Your model” decides by its own scores{before}: {decided}. Changes are counted from it."
    if not policy.problem.rules:
        return said
    alike = "calibration and decisions" if policy.calibration else "scores and decisions"
    return (
        f"{said} “Without rules” is the best policy for the same objective, {alike}, but without the rules."
    )


def _tabulate_groups(context: ReportContext) -> Html | None:
    """Each group's size, how often it gets no answer, mistakes and changes."""
    rows, words = context.judged, context.words
    cells = [(partition.name, cell) for partition in rows.partitions for cell in partition.cells]
    if not cells:
        return None
    shown = [("", rows.all_rows), *cells[:_MOST_LINES]]
    lines = []
    for name, cell in shown:
        withheld = [] if words.withheld is None else [_measure_withheld(context, cell)]
        changed = format_percent(rows.compute_changed_share(cell))
        title = f"{name}: {shorten(cell.name)}" if name else "All cases"
        lines.append([title, format_count(cell.cases), *withheld, *_write_mistakes(context, cell), changed])
    heads = ["Group", "Cases", *([] if words.withheld is None else [capitalize(words.withheld_name)])]
    heads += [f"{words.mistake_name}: your model", "With rules"] if words.mistake is not None else []
    heads += ["Changed"]
    table = make_table(f"Group by group, on {context.judged_name}", heads, lines)
    more = len(cells) + 1 - len(shown)
    left = f"{pluralize(more, 'more group')}: see “Before and after”." if more > 0 else ""
    return join([table, tag("p", left, class_="note") if left else None])


def _write_mistakes(context: ReportContext, cell: Cell) -> list[str]:
    """Before and after; nothing where no decision is wrong."""
    if context.words.mistake is None:
        return []
    costs = context.judged.compare_mistakes(cell)
    return ["—", "—"] if costs is None else [format_percent(cost) for cost in (costs.model, costs.policy)]


def _measure_withheld(context: ReportContext, cell: Cell) -> str:
    rows, actions = context.judged, len(context.policy.action_space.classes)
    return format_percent(float(rows.compute_shares(cell)[1][actions:].sum()))


def _write_offer(context: ReportContext) -> str:
    space = context.policy.action_space
    labels, options = _count_actions(space.classes, "label"), _count_actions(space.options, "option")
    given = context.words.offer.format(labels=labels, options=options)
    rules = pluralize(len(context.policy.problem.rules), "rule")
    return f"For each case the policy gives {given}. It starts from a trained model and must satisfy {rules}."


def _count_actions(actions: Sequence[Value], word: str) -> str:
    """Such as "2 labels (“no” or “yes”)"."""
    named = f" ({join_words([quote(action) for action in actions], 'or')})" if actions else ""
    return pluralize(len(actions), word) + (named if len(actions) <= _MOST_NAMED else "")


def _write_verdict(context: ReportContext) -> str:
    level = format_percent(context.confidence)
    return {
        Verdict.CERTIFIED: f"Held-out cases, which had no part in choosing it, prove with {level} confidence "
        "that every rule holds for the population they come from.",
        Verdict.VIOLATED: f"Held-out cases, which had no part in choosing it, prove with {level} confidence "
        "that at least one rule does not hold.",
        Verdict.UNDECIDED: "The held-out cases do not suffice to prove that every rule holds, or that one "
        f"does not; {_write_estimates(context)}.",
        Verdict.HOLDS: f"Every rule is satisfied on {context.judged_name}, {context.rate_measurement}; this "
        "is an estimate, and no proof for new cases.",
        Verdict.BROKEN: f"At least one rule is not satisfied on {context.judged_name}, "
        f"{context.rate_measurement}; this is an estimate, and no proof.",
        Verdict.UNJUDGED: "Not every rule could be judged."
        if context.bounded_rates
        else "There are no rules to be judged.",
    }[context.verdict]


def _write_estimates(context: ReportContext) -> str:
    count = len(context.bounded_rates)
    if unjudged := sum(bool(bounded.reason) for bounded in context.bounded_rates):
        return f"{count_of(unjudged, count, 'rate')} could not be judged at all"
    outside = sum(bounded.slack < 0 for bounded in context.bounded_rates)
    if not outside:
        few = any(bounded.hidden for bounded in context.bounded_rates)
        rates = "its rate is within its bounds" if count == 1 else "all rates are within the bounds"
        if few:
            return "the rates of some groups are not shown, since they have too few cases"
        return f"by the estimates, {rates}"
    verb = "is" if outside == 1 else "are"
    return f"by the estimates, {count_of(outside, count, 'rate')} {verb} outside the bounds"


def _write_changes(context: ReportContext) -> str:
    rows = context.judged
    changed = format_percent(rows.compute_changed_share(rows.all_rows))
    random = format_percent(rows.random_share)
    said = f"{context.words.changes.format(share=changed)}, and {random} of the cases are decided at random."
    return f"{said} Since then, {context.alarms}." if context.monitor else said


def _write_worse_off(context: ReportContext) -> str:
    """The groups in which errors rise."""
    rows = context.judged
    cells = [(f"{p.name} {quote(cell.name)}", cell) for p in rows.partitions for cell in p.cells]
    rates = [
        (f"{name} ({name_cases(cell)})", costs)
        for name, cell in cells
        if (costs := rows.compare_mistakes(cell)) is not None
    ]
    worse = [(name, costs) for name, costs in rates if costs.policy - costs.model > _NOTICED]
    if not worse:
        return ""
    shown = sorted(worse, key=lambda group: group[1].model - group[1].policy)[:_MOST_NAMED]
    groups = [
        f"{name}, from {format_percent(costs.model)} to {format_percent(costs.policy)}"
        for name, costs in shown
    ]
    more = f" (and {len(worse) - len(shown)} more)" if len(worse) > len(shown) else ""
    number = pluralize(len(worse), "group")
    return f"Compared with your model, {context.words.more_mistakes} in {number}{more}: {join_words(groups)}."


def _show_figure(figure: Figure) -> Html:
    shown = join([tag("span", figure.number, class_="number"), tag("span", figure.remark, class_="remark")])
    return tag("div", tag("dt", figure.name), tag("dd", shown))
