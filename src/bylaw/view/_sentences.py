"""Rules, rates and prices in English sentences.

Sentences are built from the phrases of rates and families. Rules without a phrase are shown as their exact
text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bylaw.errors import RuleError
from bylaw.language import (
    ACTION_SPACES,
    DEFINITIONS,
    LABEL,
    Atom,
    Band,
    Conditions,
    Family,
    Kind,
    Objective,
    Rate,
    Ratio,
    Rule,
    Statement,
    Worst,
)
from bylaw.view._numbers import (
    Unit,
    capitalize,
    format_amount,
    format_percent,
    format_points,
    join_words,
    pluralize,
    quote,
    round_number,
)

if TYPE_CHECKING:
    from bylaw.program import Certificate

_LEAST_SAVING = 1e-6  # smaller savings are written as nothing


def find_unit(rate: Objective) -> Unit:
    """Return the unit of a rate: "share" for shares of cases, "points" for differences, or "plain"."""
    if isinstance(rate, Worst):
        return "share" if rate.is_probability else "plain"
    if isinstance(rate, Ratio):
        return "share" if rate.numerator.is_probability and rate.denominator.is_probability else "plain"
    if not rate.is_probability:
        return "plain"
    is_share = len(rate.terms) == 1 and (rate.terms[0][1], rate.constant) in ((1.0, 0.0), (-1.0, 1.0))
    return "share" if is_share else "points"


def find_level_unit(statement: Statement) -> Unit:
    """Return the unit of the level of a rule; a level that multiplies a rate is a share."""
    if isinstance(statement, Family):
        return "share" if statement.definition.ratio else "points"
    rate, limit = _get_sides(statement)
    if not (rate.is_probability and (limit.is_probability or not limit.terms)):
        return "plain"
    return "share" if limit.terms or len(rate.terms) == 1 else "points"


def is_factor(statement: Statement) -> bool:
    """Return whether the level of a rule multiplies a rate, as in a >= 0.8 * b."""
    if isinstance(statement, Family):
        return statement.definition.ratio
    return bool(_get_sides(statement)[1].terms)


def _get_sides(rule: Rule | Band) -> tuple[Rate, Rate]:
    """Return the rate that is bounded and its bound."""
    return (rule.left, rule.right) if isinstance(rule, Rule) else (rule.rate, rule.limit)


def write_sentence(statement: Statement, kind: Kind = "labels") -> str:
    """Describe a rule or family in one sentence; return its exact text if it has no phrase."""
    if isinstance(statement, Family):
        sentence = _write_family(statement, kind)
    else:
        known = all(atom.definition.phrase for atom in statement.atoms())
        sentence = _write_rule(statement, kind) if known else ""
    return f"{capitalize(sentence)}." if sentence else str(statement)


def describe_rate(rate: Objective, kind: Kind = "labels") -> str:
    """Describe a rate, as in "the share of all cases that are referred"; else return its exact text."""
    if isinstance(rate, Worst):
        names = ["true label" if name == LABEL else name for name in rate.by]
        return f"{describe_rate(rate.rate, kind)} in the worst group by {join_words(names)}"
    if not all(atom.definition.phrase for atom, _ in rate.terms):
        return str(rate)
    if isinstance(rate, Ratio):
        match rate.numerator, rate.denominator:
            case Rate(((atom, 1.0),), 0.0), Rate(((other, 1.0),), 0.0):
                if part := _find_part_phrase(atom, other):
                    among = f"{_write_cases(atom, kind)} that {_fill_phrase(other, kind)}"
                    return f"the share, among {among}, of those that {part}"
                return f"the ratio of {_write_noun(atom, kind)} to {_write_noun(other, kind, like=atom)}"
        parts = describe_rate(rate.numerator, kind), describe_rate(rate.denominator, kind)
        return f"the ratio of {parts[0]} to {parts[1]}"
    match rate.terms:
        case ((atom, 1.0),) if not rate.constant:
            return _write_noun(atom, kind)
        case ((atom, -1.0),) if rate.constant == 1:
            return f"one minus {_write_noun(atom, kind)}"
        case ((atom, 1.0), (other, factor)) if factor < 0 and not rate.constant:
            share = _write_factor(-factor)
            return f"{_write_noun(atom, kind)}, minus {share}{_write_noun(other, kind, like=atom)}"
    return str(rate)


def _find_part_phrase(atom: Atom, other: Atom) -> str | None:
    """Return the phrase for cases of one rate among those of another; None without such a phrase."""
    return atom.definition.part_phrases.get(other.name) if atom.event == other.event else None


def name_saving(rate: Objective) -> str:
    """Return the words that follow the amount of a saving, such as "of error" in "2 points of error"."""
    return _find_saving(rate) or f"of {rate}"


def name_cost(rate: Objective) -> str:
    """Return the name of the objective in one or two words, such as "error"."""
    return _find_saving(rate).removeprefix("of ") or "cost"


def _find_saving(rate: Objective) -> str:
    if isinstance(rate, Worst):
        return f"of the worst group’s {name_cost(rate.rate)}"
    match rate.terms:
        case ((Atom(conditions=()) as atom, 1.0),) if not isinstance(rate, Ratio):
            return atom.definition.saving
    return ""


def _find_step(statement: Statement) -> float:
    """Return the change of a level for which a price is given: one point, or a tenth of other numbers."""
    if find_level_unit(statement) != "plain":
        return 0.01
    try:
        level = statement.level
    except RuleError:  # several numbers
        return 1.0
    return 0.1 * abs(level) if isinstance(level, float) and level else 1.0


def name_step(statement: Statement) -> str:
    """Return the change of a rule's level for which its price is given, as text."""
    if find_level_unit(statement) != "plain":
        return "one point"
    step = _find_step(statement)
    return f"{round_number(step)} (a tenth)" if step != 1 else "1"


def write_cost(amount: float, minimize: Objective) -> str:
    """Format a change of the objective, in points if the objective is a share or a difference of shares."""
    return format_points(amount) if minimize.is_probability else round_number(amount)


def write_amount_saved(price: float, statement: Statement, minimize: Objective) -> str:
    """Format the saving from loosening a rule by one step; empty if it is practically zero."""
    saved = price * _find_step(statement)
    return "" if saved < _LEAST_SAVING else write_cost(saved, minimize)


def write_saving(price: float, statement: Statement, minimize: Objective) -> str:
    """Format the saving from loosening a rule by one step, as in "0.2 points of error"; empty if zero."""
    amount = write_amount_saved(price, statement, minimize)
    return amount and f"{amount} {name_saving(minimize)}"


def write_price(
    price: float,
    statement: Statement,
    minimize: Objective,
    without: float | None = None,
    vacuous: bool = False,
) -> str:
    """Describe in a sentence what a rule costs.

    Parameters
    ----------
    price : float
        The shadow price: the saving from a small change of the level, per unit. A rule with price zero may
        still have a cost.
    statement : Rule, Band or Family
        The rule or family.
    minimize : Rate, Ratio or Worst
        The objective.
    without : float, optional
        How much lower the objective is without the rule, if that is known.
    vacuous : bool
        Whether the rule is satisfied only because its rate is 0/0, so that its price has no meaning.
    """
    saved = "" if vacuous else write_saving(price, statement, minimize)
    sentence = f"Loosening it by {name_step(statement)} would save {saved or 'nothing'}."
    if vacuous:
        sentence = "It is satisfied only because its rate is 0/0, so it has no shadow price."
    if saved or without is None:
        return sentence
    if without < _LEAST_SAVING:
        return f"{sentence if vacuous else ''} It costs nothing: removing it would save nothing.".strip()
    return f"{sentence} Without it, {write_cost(without, minimize)} {name_saving(minimize)} would be saved."


def describe_certificate(certificate: Certificate) -> str:
    """Describe in a sentence what held-out rows certified when the policy was made."""
    return (
        f"When the policy was made, {pluralize(certificate.rows, 'held-out case')} proved that all rules "
        f"hold together for the population they come from, with {format_percent(certificate.confidence)} "
        "confidence."
    )


def describe_group(conditions: Conditions) -> str:
    """Describe the conditions of a group, as in 'sex “F” and true label “1”'."""
    named = [f"{name} {quote(value)}" for name, value in conditions if name != LABEL]
    named += [f"true label {quote(value)}" for name, value in conditions if name == LABEL]
    return join_words(named)


def _fill_phrase(atom: Atom, kind: Kind) -> str:
    """Return the phrase of a rate with its arguments filled in."""
    definition = atom.definition
    phrase = ACTION_SPACES[kind].choose_phrase(definition.phrase, definition.set_phrase)
    return phrase.format(*map(quote, atom.arguments))


def _write_cases(atom: Atom, kind: Kind) -> str:
    """Describe the cases of which a rate is a share."""
    decided = "" if atom.decided is None else f" {_write_decided(quote(atom.decided), kind)}"
    if not atom.conditions:
        return f"cases{decided}" if decided else "all cases"
    return f"cases with {describe_group(atom.conditions)}{decided}"


def _write_decided(named: str, kind: Kind) -> str:
    selected = DEFINITIONS["selected"]
    return f"that {ACTION_SPACES[kind].choose_phrase(selected.phrase, selected.set_phrase).format(named)}"


def _write_noun(atom: Atom, kind: Kind, like: Atom | None = None) -> str:
    if like is not None and (like.name, like.arguments) == (atom.name, atom.arguments):
        return f"that of {_write_cases(atom, kind)}"
    if not atom.definition.probability:
        among = f" among {_write_cases(atom, kind)}" if atom.conditions or atom.decided is not None else ""
        return f"{_fill_phrase(atom, kind)}{among}"
    return f"the share of {_write_cases(atom, kind)} that {_fill_phrase(atom, kind)}"


def _write_rule(rule: Rule | Band, kind: Kind) -> str:
    """Describe a rule in words; empty unless it bounds a rate, a share of a rate, or a difference."""
    rate, limit = _get_sides(rule)
    level, unit = limit.constant, find_unit(rate)
    if rate.constant:
        return ""
    if isinstance(rule, Band):
        match rate.terms, limit.terms:
            case ((atom, 1.0), (other, -1.0)), ():
                noun = _write_noun(other, kind, like=atom)
                return f"{_write_noun(atom, kind)} differs from {noun} by at most {_write_level(level, unit)}"
        return ""
    bound = "at most" if rule.sense == "<=" else "at least"
    match rate.terms, limit.terms:
        case ((atom, 1.0),), () if not atom.definition.probability:
            return f"{_write_noun(atom, kind)} is {bound} {_write_level(level, 'plain')}"
        case ((atom, 1.0),), ():
            share = _write_level(level, "share")
            return f"{bound} {share} of {_write_cases(atom, kind)} {_fill_phrase(atom, kind)}"
        case ((atom, 1.0),), ((other, factor),) if not level:
            if part := _find_part_phrase(atom, other):
                cases = f"{_write_cases(atom, kind)} that {_fill_phrase(other, kind)}"
                return f"of {cases}, {bound} {_write_level(factor, 'share')} {part}"
            noun = _write_noun(other, kind, like=atom)
            return f"{_write_noun(atom, kind)} is {bound} {_write_factor(factor)}{noun}"
        case ((atom, 1.0), (other, -1.0)), ():
            # A bound below zero limits by how much the first rate falls short of the second.
            is_limit = level >= 0 if rule.sense == "<=" else level <= 0
            exceeds = level > 0 or (level == 0 and rule.sense == "<=")
            verb = "exceeds" if exceeds else "falls short of"
            amount = f"{'at most' if is_limit else 'at least'} {_write_level(abs(level), unit)}"
            return f"{_write_noun(atom, kind)} {verb} {_write_noun(other, kind, like=atom)} by {amount}"
    return ""


def _write_level(level: float, unit: Unit) -> str:
    """Format a number of a rule, which is never rounded."""
    return format_amount(level, unit, exactly=True)


def _write_factor(factor: float) -> str:
    return "" if factor == 1 else f"{_write_level(factor, 'share')} of "


def _write_family(family: Family, kind: Kind) -> str:
    """Describe a family by its phrase and level; empty if it has no phrase."""
    definition, space = family.definition, ACTION_SPACES[kind]
    phrase = space.choose_phrase(definition.phrase, definition.set_phrase)
    if not phrase:
        return ""
    named = join_words([quote(label) for label in family.labels or ()], "or")
    groups = [a[0] if len(a) == 1 else f"combination of {join_words(list(a))}" for a in family.attributes]
    among = "among cases with the same decision", "among cases with a label in their sets"
    sentence = phrase.format(
        who=join_words([f"every {group}" for group in groups]),
        decision=f"the decision {named} is" if named else "each decision is",
        label=f"{named} is" if named else "each label is",
        true_label=f"the true label {named}" if named else "each true label",
        whole=f"among cases {_write_decided(named, kind)}" if named else space.choose_phrase(*among),
    )
    pairs = family.between == "groups"
    if definition.ratio:
        other = "the rate of any other group" if pairs else "the overall rate"
        return f"{sentence} at no less than {_write_levels(family, 'share')} of {other}"
    other = "that of any other group" if pairs else "the overall rate"
    return f"{sentence} at a rate within {_write_levels(family, 'points')} of {other}"


def _write_levels(family: Family, unit: Unit) -> str:
    """Format the level of a family, or the levels of its groups."""
    if not isinstance(family.level, tuple):
        return _write_level(family.level, unit)
    levels = []
    for group, level in family.level:
        values = group if isinstance(group, tuple) else (group,)
        levels.append(f"{_write_level(level, unit)} (for {join_words([quote(value) for value in values])})")
    return join_words(levels)
