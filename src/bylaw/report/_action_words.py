"""The wording and the measures of a report that depend on the kind of decisions.

A new kind of action space needs one entry in `WORDS`; the rest of the report stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bylaw._base import Floats
from bylaw.language import (
    LABEL,
    ActionSpace,
    LabelSpace,
    Objective,
    OptionSpace,
    Rate,
    RejectSpace,
    SetSpace,
    accepted,
    error,
    miscoverage,
    rejected,
    size,
)
from bylaw.program import measure_rate
from bylaw.testing import is_observed
from bylaw.view import (
    capitalize,
    describe_rate,
    find_unit,
    format_amount,
    format_percent,
    round_number,
    shorten,
)

if TYPE_CHECKING:
    from bylaw.report._context import ReportRows

_LONGEST_TITLE, _LONGEST_CELL = 60, 24  # characters of an action in a title, and in a cell of a table


@dataclass(frozen=True)
class ActionWords:
    """The wording and the measures of a report for one kind of decisions."""

    mistake: Rate | None  # the rate of wrong decisions
    offer: str  # completes "For each case the policy gives ..."; {labels} and {options} are filled in
    action: str  # the name of one action
    frequency: str  # completes "How often each ..."
    title: str  # of the chart of one action, {name}
    mistakes: str  # title of the chart of mistakes, {measured} as observed or predicted
    mistake_name: str  # in the head of a table
    more_mistakes: str  # followed by "in 2 groups: ..."
    change: str  # a sentence that defines a changed decision
    changes: str  # a clause with the {share} of changed decisions
    changed_figure: tuple[str, str]  # name and remark of the share of changes in the summary
    compute_changes: Callable[[Floats, Floats], Floats]  # from (model, policy) probabilities
    glossary: str = ""  # explains a term that these reports use
    withheld: Rate | None = None  # the rate of cases without an answer, which are not errors
    withheld_name: str = ""  # the name of these cases
    withheld_remark: str = ""  # what these cases get
    mean_size: Rate | None = None  # the average number of labels of a decision, if it varies
    cost_note: str = ""  # a remark wherever errors are shown
    list_gaps: Callable[[ReportRows], list[str]] = lambda _: []  # sentences on what is not guaranteed


def get_words(space: ActionSpace) -> ActionWords:
    """Return the wording for an action space."""
    return WORDS[type(space)] if space.classes else _ROUTES


def title_action(space: ActionSpace, position: int) -> str:
    """Return the title of the chart of one action, given by its index."""
    name = shorten(space.actions[position], _LONGEST_TITLE)
    if position == space.reject_position:
        return f"Referred (“{name}”)"
    if space.classes and position >= len(space.classes):
        return f"Sent to “{name}”"
    return get_words(space).title.format(name=name)


def name_action(space: ActionSpace, position: int) -> str:
    """Return the name of an action, given by its index, for a cell of a table."""
    if position == space.reject_position:
        return "referred"
    return f"“{shorten(space.actions[position], _LONGEST_CELL)}”"


def describe_cost(rows: ReportRows, measured: str) -> str:
    """Describe the objective and the mistakes in sentences.

    The sentences compare the user's model, the policy without rules, and the policy. `measured` is how
    mistakes were measured, such as "as observed".
    """
    policy, words, mistakes = rows.policy, rows.words, ""
    if words.mean_size is not None:
        costs, mean = rows.compare(miscoverage()), round_number(rows.measure(words.mean_size))
        mistakes = (
            f"The sets miss the true label of {format_percent(costs.policy)} of the cases ({measured}) and "
            f"contain {mean} {'label' if mean == '1' else 'labels'} on average; your model, with its single "
            f"best label, misses {format_percent(costs.model)}."
        )
    elif words.mistake is not None:
        mistakes = _describe_errors(rows, measured)
    minimize, space = policy.problem.minimize, policy.action_space
    if str(minimize) == str(words.mistake):
        return mistakes
    how = measured if is_observed(minimize, rows.seen, space) else "as predicted"
    costs = rows.compare(minimize).describe(
        bool(policy.problem.rules), lambda cost: format_amount(cost, find_unit(minimize))
    )
    objective = describe_rate(minimize, space.kind).rstrip(",")
    return f"The objective, {objective}, is {costs} ({how}). {mistakes}".rstrip()


def list_figures(rows: ReportRows) -> list[tuple[str, str, str]]:
    """Return the figures of the summary as tuples of a name, a number and a remark.

    The figures are the objective (unless it equals the rate of mistakes), mistakes, cases without an answer,
    and changed decisions.
    """
    words, minimize, figures = rows.words, rows.policy.problem.minimize, []
    compared: list[tuple[str, Objective, str]] = []
    if words.mistake is not None:
        compared.append((words.mistake_name, words.mistake, ""))
    if str(minimize) != str(words.mistake):
        name = describe_rate(minimize, rows.policy.action_space.kind).rstrip(",")
        compared.insert(0, ("Objective", minimize, f"{shorten(name, _LONGEST_TITLE)}: "))
    for name, rate, about in compared:
        costs, rules = rows.compare(rate), rows.policy.problem.rules
        model, without, after = (format_amount(cost, find_unit(rate)) for cost in costs)
        unruled = f"; {without} without rules" if rules and not math.isnan(costs.without_rules) else ""
        counted = ""
        if rate is words.mistake and words.withheld is not None:
            counted = f"; those {words.withheld_name} count as no error"
        remark = f"{about}your model → with {'rules' if rules else 'this policy'}{unruled}{counted}"
        figures.append((name, f"{model} → {after}", remark))
    if words.withheld is not None:
        share = format_percent(rows.measure(words.withheld))
        figures.append((capitalize(words.withheld_name), share, words.withheld_remark))
    if words.mean_size is not None:
        figures.append(("Labels in a set", round_number(rows.measure(words.mean_size)), "on average"))
    name, remark = words.changed_figure
    return [*figures, (name, format_percent(rows.compute_changed_share(rows.all_rows)), remark)]


def _describe_errors(rows: ReportRows, measured: str) -> str:
    """Describe the error rates of the user's model, of the policy without rules, and of the policy.

    If errors fall because fewer cases get an answer, the text explains this and adds the error rate among
    answers.
    """
    words, costs, has_rules = rows.words, rows.compare(error()), bool(rows.policy.problem.rules)
    model, without, after = map(format_percent, costs)
    unruled, reason = f"Without rules, {without} are answered wrongly", ""
    if words.withheld is not None:
        space = rows.policy.action_space
        if rows.without_rules is not None:
            share = measure_rate(words.withheld, rows.seen, rows.without_rules, space)
            unruled += f", and {format_percent(share)} are {words.withheld_name}" if share > 0 else ""
        share, answered = rows.measure(words.withheld), rows.measure(accepted())
        fewer = f"{format_percent(share)} of all cases are {words.withheld_name}"
        falls = costs.policy < costs.model and share > 0
        reason = f", because {fewer} and count as no error" if falls else f", and {fewer}"
        if answered > 0:
            wrong = format_percent(rows.measure(error()) / answered)
            reason += f"; of the cases that still get an answer, {wrong} get a wrong one"
    unruled = f"{unruled}. " if has_rules and not math.isnan(costs.without_rules) else ""
    how = "With rules" if has_rules else "With this policy, which has no rules"
    return (
        f"Your model answers {model} of all cases wrongly ({measured}). {unruled}{how}, {after} are answered "
        f"wrongly{reason}."
    )


def _list_referral_gaps(rows: ReportRows) -> list[str]:
    """Return a remark if no rule compares the referral rates of groups, else an empty list."""
    space = rows.policy.action_space
    for one in rows.single_rules:
        for atom in one.rule.atoms():
            # A rate is about referrals if it depends on whether a case is referred, and on nothing else.
            terms, paid = atom.meaning(space).terms, dict.fromkeys(space.actions, 0.0)
            for term in terms:
                paid[term.action] += term.coefficient
            answers = {paid[label] for label in space.classes}
            depends = any(term.label is not None or term.source is not None for term in terms)
            is_about_referral = not depends and len(answers) == 1 and paid[space.reject] not in answers
            if is_about_referral and any(name != LABEL for name, _ in atom.conditions):
                return []
    return ["That groups are referred equally often: no rule here compares referrals by group."]


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
    changed_figure=("Decisions changed", "compared with your model"),
    compute_changes=lambda model, chances: 1.0 - (model * chances).sum(axis=1),  # another action
)
_REFERRALS = replace(
    _ANSWERS,
    offer="one of {labels}, or refers it: a referred case gets no automatic answer",
    mistakes="Answered wrongly, {measured}; cases that are referred count as no error",
    cost_note="A case that is referred counts as no error.",
    withheld=rejected(),
    withheld_name="referred",
    withheld_remark="no automatic answer",
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
    withheld_remark="no label of the model",
)
_ROUTES = replace(
    _ANSWERS,
    mistake=None,
    offer="one of {options}",
    title="Sent to “{name}”",
)
_SETS = replace(
    _ANSWERS,
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
    changed_figure=("Sets changed", "not just the best label of your model"),
    compute_changes=lambda model, chances: (  # another set than the label of your model alone
        1.0 - np.where(model > 0, chances, 1.0 - chances).prod(axis=1)
    ),
    mean_size=size(),
)
WORDS: Mapping[type[ActionSpace], ActionWords] = {
    LabelSpace: _ANSWERS,
    RejectSpace: _REFERRALS,
    OptionSpace: _OPTIONS,
    SetSpace: _SETS,
}
