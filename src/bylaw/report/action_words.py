"""What a report words, measures and remarks depending on the action space, in one table.

A new kind of action space needs one entry in `WORDS`, and nothing else in the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.language.action_space import ActionSpace, LabelSpace, OptionSpace, RejectSpace, SetSpace
from bylaw.language.expressions import LABEL, Atom, Objective, Rate
from bylaw.language.rates import accepted, error, miscoverage, rejected, size
from bylaw.program.row_rates import measure_rate
from bylaw.report.number_format import (
    find_objective_unit,
    format_amount,
    format_percent,
    round_number,
    shorten,
)
from bylaw.report.sentences import describe_rate
from bylaw.testing import is_observed

if TYPE_CHECKING:
    from bylaw.report.rows import ReportRows

_LONGEST_NAME = 60  # characters of an action in a title
_LONGEST_CELL = 24  # and in a cell of a table


class Figure(NamedTuple):
    """One number of the summary."""

    name: str
    number: str
    remark: str


@dataclass(frozen=True)
class ActionWords:
    """The part of a report that depends on what a decision can be."""

    mistake: Rate | None  # the share of decisions that are wrong
    offer: str  # completes "For each case the policy gives ..."; {labels} and {options} are filled in
    action: str  # what one action is called
    frequency: str  # completes "How often each ..."
    title: str  # of the chart of one action, {name}
    mistakes: str  # title of the chart of mistakes, {measured} as said
    mistake_name: str  # in the head of a table
    more_mistakes: str  # completed by "in 2 groups: ..."
    change: str  # when a decision counts as changed
    changes: str  # how many have changed, {share}
    describe_mistakes: Callable[[ReportRows, str], str]  # of the rows, and how errors were measured
    list_figures: Callable[[ReportRows], list[Figure]]
    compute_changes: Callable[[Floats, Floats], Floats]  # of your model and of probabilities, to (n_rows,)
    glossary: str = ""  # explains a word of its own
    withheld: Rate | None = None  # the share of cases without an answer, which count as no error
    withheld_name: str = ""  # what these are
    cost_note: str = ""  # what must be said wherever errors are shown
    list_gaps: Callable[[ReportRows], list[str]] = lambda _: []  # what no rule guarantees


def get_words(space: ActionSpace) -> ActionWords:
    return WORDS[type(space)] if space.classes else _ROUTES


def title_action(space: ActionSpace, position: int) -> str:
    """The title of a chart of one action."""
    name = shorten(space.actions[position], _LONGEST_NAME)
    if position == space.reject_position:
        return f"Referred (“{name}”)"
    if space.classes and position >= len(space.classes):
        return f"Sent to “{name}”"
    return get_words(space).title.format(name=name)


def name_action(space: ActionSpace, position: int) -> str:
    """An action in a table."""
    if position == space.reject_position:
        return "referred"
    return f"“{shorten(space.actions[position], _LONGEST_CELL)}”"


def describe_cost(rows: ReportRows, measured: str) -> str:
    """What is minimised, in its own unit, and mistakes: with your model, without rules and with rules."""
    if is_about_mistakes(rows):
        return rows.words.describe_mistakes(rows, measured)
    policy = rows.policy
    minimize, space = policy.problem.minimize, policy.action_space
    how = measured if is_observed(minimize, rows.seen, space) else "as predicted"
    costs = rows.compare(minimize).describe(
        bool(policy.problem.rules), lambda cost: format_amount(cost, find_objective_unit(minimize))
    )
    said = f"The objective, {describe_rate(minimize, space.kind).rstrip(',')}, is {costs} ({how})."
    return f"{said} {rows.words.describe_mistakes(rows, measured)}".rstrip()


def is_about_mistakes(rows: ReportRows) -> bool:
    """Whether mistakes are what is minimised."""
    return str(rows.policy.problem.minimize) == str(rows.words.mistake)


def list_figures(rows: ReportRows) -> list[Figure]:
    """What is minimised, in its own unit, unless that is mistakes; and mistakes and changes."""
    figures, minimize = rows.words.list_figures(rows), rows.policy.problem.minimize
    if is_about_mistakes(rows):
        return figures
    name = describe_rate(minimize, rows.policy.action_space.kind).rstrip(",")
    return [_compare_rate("Objective", minimize, rows, f"{shorten(name, _LONGEST_NAME)}: "), *figures]


def _describe_errors(rows: ReportRows, measured: str, reason: str = "") -> str:
    costs = rows.compare(error())
    model, without, after = map(format_percent, costs)
    known = rows.policy.problem.rules and not math.isnan(costs.without_rules)
    unruled = f"Without rules, {without} are answered wrongly{_count_withheld(rows)}. " if known else ""
    how = "With rules" if rows.policy.problem.rules else "With this policy, which has no rules"
    return (
        f"Your model answers {model} of all cases wrongly ({measured}). {unruled}{how}, {after} are answered "
        f"wrongly{reason}."
    )


def _describe_fewer_answers(rows: ReportRows, measured: str) -> str:
    """Errors that fall because fewer cases get an answer are said to do so, with those among the answered."""
    words, costs = rows.words, rows.compare(error())
    assert words.withheld is not None
    share = rows.measure(words.withheld)
    fewer = f"{format_percent(share)} of all cases are {words.withheld_name}"
    falls = costs.policy < costs.model and share > 0
    reason = f", because {fewer} and count as no error" if falls else f", and {fewer}"
    return _describe_errors(rows, measured, f"{reason}{_compare_answered(rows)}")


def _count_withheld(rows: ReportRows) -> str:
    """How many cases get no answer without rules."""
    words, chances = rows.words, rows.without_rules
    if words.withheld is None or chances is None:
        return ""
    share = measure_rate(words.withheld, rows.seen, chances, rows.policy.action_space)
    return f", and {format_percent(share)} are {words.withheld_name}" if share > 0 else ""


def _compare_answered(rows: ReportRows) -> str:
    """Errors among the cases that get an answer."""
    answered = rows.measure(accepted())
    if answered <= 0:
        return ""
    share = rows.measure(error()) / answered
    return f"; of the cases that still get an answer, {format_percent(share)} get a wrong one"


def _describe_sets(rows: ReportRows, measured: str) -> str:
    costs, mean = rows.compare(miscoverage()), round_number(rows.measure(size()))
    return (
        f"The sets miss the true label of {format_percent(costs.policy)} of the cases ({measured}) and "
        f"contain {mean} {'label' if mean == '1' else 'labels'} on average; your model, with its single best "
        f"label, misses {format_percent(costs.model)}."
    )


def _list_answer_figures(rows: ReportRows) -> list[Figure]:
    return [_compare_rate("Wrong answers", error(), rows), _changed(rows)]


def _list_referral_figures(rows: ReportRows) -> list[Figure]:
    return _list_fewer_answers(rows, "Referred", "no automatic answer")


def _list_option_figures(rows: ReportRows) -> list[Figure]:
    return _list_fewer_answers(rows, "Sent to an option", "no label of the model")


def _list_fewer_answers(rows: ReportRows, name: str, remark: str) -> list[Figure]:
    mistakes, changed = _list_answer_figures(rows)
    words = rows.words
    assert words.withheld is not None
    counted = f"{mistakes.remark}; those {words.withheld_name} count as no error"
    share = format_percent(rows.measure(words.withheld))
    return [mistakes._replace(remark=counted), Figure(name, share, remark), changed]


def _changed(rows: ReportRows) -> Figure:
    changed = format_percent(rows.compute_changed_share(rows.all_rows))
    return Figure("Decisions changed", changed, "compared with your model")


def _list_set_figures(rows: ReportRows) -> list[Figure]:
    changed = format_percent(rows.compute_changed_share(rows.all_rows))
    return [
        _compare_rate("True label missed", miscoverage(), rows),
        Figure("Labels in a set", round_number(rows.measure(size())), "on average"),
        Figure("Sets changed", changed, "not just the best label of your model"),
    ]


def _compare_rate(name: str, rate: Objective, rows: ReportRows, about: str = "") -> Figure:
    """A rate with your model and with rules, and without rules below it."""
    costs, rules, unit = rows.compare(rate), rows.policy.problem.rules, find_objective_unit(rate)
    model, without, after = (format_amount(cost, unit) for cost in costs)
    unruled = f"; {without} without rules" if rules and not math.isnan(costs.without_rules) else ""
    remark = f"{about}your model → with {'rules' if rules else 'this policy'}{unruled}"
    return Figure(name, f"{model} → {after}", remark)


def _compute_other_answers(model: Floats, probabilities: Floats) -> Floats:
    """The probability of another action than the one of your model."""
    return 1.0 - (model * probabilities).sum(axis=1)


def _compute_other_sets(model: Floats, probabilities: Floats) -> Floats:
    """The probability of another set than the one with the label of your model alone."""
    return 1.0 - np.where(model > 0, probabilities, 1.0 - probabilities).prod(axis=1)


def _list_referral_gaps(rows: ReportRows) -> list[str]:
    options = rows.policy.action_space.options
    expanded = rows.policy.problem.expand(rows.seen.classes, rows.seen.group_values, options)
    atoms = [atom for found in expanded for atom in found.rule.atoms()]
    compared = [atom for atom in atoms if any(name != LABEL for name, _ in atom.conditions)]
    if any(_is_about_referral(atom, rows.policy.action_space) for atom in compared):
        return []
    return ["That groups are referred equally often: no rule here compares referrals by group."]


def _is_about_referral(atom: Atom, space: ActionSpace) -> bool:
    """Whether a rate depends on whether a case is referred, and on nothing else."""
    terms = atom.meaning(space).terms
    if any(term.label is not None or term.source is not None for term in terms):
        return False
    paid = dict.fromkeys(space.actions, 0.0)
    for term in terms:
        paid[term.action] += term.coefficient
    answers = {paid[label] for label in space.classes}
    return len(answers) == 1 and paid[space.reject] not in answers


_ANSWERS = ActionWords(
    mistake=error(),
    offer="one of {labels}",
    action="decision",
    frequency="decision is taken",
    title="Decided “{name}”",
    mistakes="Answered wrongly, {measured}",
    mistake_name="Wrong answers",
    more_mistakes="wrong answers rise",
    change="A decision counts as changed if it is not that of your model.",
    changes="In {share} of the cases the decision is not that of your model",
    describe_mistakes=_describe_errors,
    list_figures=_list_answer_figures,
    compute_changes=_compute_other_answers,
)
_REFERRALS = replace(
    _ANSWERS,
    offer="one of {labels}, or refers it: a referred case gets no automatic answer",
    mistakes="Answered wrongly, {measured}; cases that are referred count as no error",
    cost_note="A case that is referred counts as no error.",
    withheld=rejected(),
    withheld_name="referred",
    describe_mistakes=_describe_fewer_answers,
    list_figures=_list_referral_figures,
    glossary="“Referred” means: no automatic answer. ",
    list_gaps=_list_referral_gaps,
)
_OPTIONS = replace(
    _ANSWERS,
    offer="one of {labels}, or sends it to one of {options}: such a case gets no label from the model",
    mistakes="Answered wrongly, {measured}; cases that are sent to an option count as no error",
    cost_note="A case that is sent to an option counts as no error.",
    withheld=1 - accepted(),
    withheld_name="sent to an option",
    describe_mistakes=_describe_fewer_answers,
    list_figures=_list_option_figures,
)
_ROUTES = replace(
    _ANSWERS,
    mistake=None,
    offer="one of {options}",
    title="Sent to “{name}”",
    describe_mistakes=lambda rows, measured: "",
    list_figures=lambda rows: [_changed(rows)],
)
_SETS = ActionWords(
    mistake=miscoverage(),
    offer="a set of labels, taken from {labels}",
    action="label",
    frequency="label is in a set",
    title="In the set: “{name}”",
    mistakes="Sets that miss the true label, {measured}",
    mistake_name="True label missed",
    more_mistakes="sets miss the true label more often",
    change="A set counts as changed if it is not just the best label of your model.",
    changes="In {share} of the cases the set is not just the best label of your model",
    describe_mistakes=_describe_sets,
    list_figures=_list_set_figures,
    compute_changes=_compute_other_sets,
)
WORDS: Mapping[type[ActionSpace], ActionWords] = {
    LabelSpace: _ANSWERS,
    RejectSpace: _REFERRALS,
    OptionSpace: _OPTIONS,
    SetSpace: _SETS,
}
