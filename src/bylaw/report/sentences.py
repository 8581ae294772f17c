"""Rules in English sentences, made of the phrases that rates and families bring with them. A rule on a rate
without a phrase keeps its own text."""

from __future__ import annotations

from bylaw.errors import RuleError
from bylaw.language.action_space import ACTION_SPACES, Kind
from bylaw.language.expressions import (
    DEFINITIONS,
    LABEL,
    Atom,
    Band,
    Conditions,
    Objective,
    Rate,
    Ratio,
    Rule,
    Worst,
)
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.program.solution import Certificate
from bylaw.report.number_format import (
    Unit,
    capitalize,
    find_level_unit,
    find_unit,
    format_amount,
    format_percent,
    format_points,
    join_words,
    pluralize,
    quote,
    round_number,
)

_POINT = 0.01
_LEAST_SAVING = 1e-6


def write_sentence(statement: Statement, kind: Kind = "labels") -> str:
    """What a rule or family demands, in one sentence; its own text if there is none."""
    if isinstance(statement, Family):
        said = _write_family(statement, kind)
    elif not all(atom.definition.phrase for atom in statement.atoms()):
        said = ""
    elif isinstance(statement, Band):
        said = _write_band(statement, kind)
    else:
        said = _write_rule(statement, kind)
    return f"{capitalize(said)}." if said else str(statement)


def describe_rate(rate: Objective, kind: Kind = "labels") -> str:
    """A noun for a rate: "the share of all cases that are referred"; its own text if there is none."""
    if isinstance(rate, Worst):
        where = f"in the worst group by {_write_partition(rate)}"
        return f"{describe_rate(rate.rate, kind)} {where}"
    if isinstance(rate, Ratio):
        return _describe_ratio(rate, kind)
    if not all(atom.definition.phrase for atom, _ in rate.terms):
        return str(rate)
    match rate.terms:
        case ((atom, 1.0),) if not rate.constant:
            return _write_noun(atom, kind)
        case ((atom, -1.0),) if rate.constant == 1:
            return f"one less {_write_noun(atom, kind)}"
        case ((atom, 1.0), (other, factor)) if factor < 0 and not rate.constant:
            share = _write_factor(-factor)
            return f"{_write_noun(atom, kind)}, less {share}{_write_noun(other, kind, like=atom)}"
    return str(rate)


def _describe_ratio(ratio: Ratio, kind: Kind) -> str:
    if not all(atom.definition.phrase for atom, _ in ratio.terms):
        return str(ratio)
    match ratio.numerator, ratio.denominator:
        case Rate(((atom, 1.0),), 0.0), Rate(((other, 1.0),), 0.0):
            if part := _find_part_phrase(atom, other):
                whole = f"{_write_cases(atom, kind)} that {_fill_phrase(other, kind)}"
                return f"the share, among {whole}, of those that {part}"
            return f"the ratio of {_write_noun(atom, kind)} to {_write_noun(other, kind, like=atom)}"
    parts = [describe_rate(part, kind) for part in (ratio.numerator, ratio.denominator)]
    return f"the ratio of {parts[0]} to {parts[1]}"


def _find_part_phrase(atom: Atom, other: Atom) -> str | None:
    """How cases of one rate are counted among those of another, if they are."""
    return atom.definition.part_phrases.get(other.name) if atom.event == other.event else None


def _write_partition(objective: Worst) -> str:
    return join_words(["true label" if name == LABEL else name for name in objective.by])


def name_saving(rate: Objective) -> tuple[str, bool]:
    """What a lower rate saves, after its number; and whether the number is a share of cases."""
    return _find_saving(rate) or f"of {rate}", rate.is_probability


def name_cost(rate: Objective) -> str:
    """What is minimised, in a word or two."""
    return _find_saving(rate).removeprefix("of ") or "cost"


def _find_saving(rate: Objective) -> str:
    """In the definition of a single rate; empty if there is none."""
    if isinstance(rate, Worst):
        return f"of the worst group’s {name_cost(rate.rate)}"
    if isinstance(rate, Ratio):
        return ""
    match rate.terms:
        case ((Atom(conditions=()) as atom, 1.0),):
            return atom.definition.saving
    return ""


def name_step(statement: Statement) -> str:
    """The step of a rule's level that a price is stated for: a point, or a tenth of what is no share."""
    if find_level_unit(statement) != "plain":
        return "one point"
    step = _find_step(statement)
    return f"{round_number(step)} (a tenth)" if step != 1 else "1"


def _find_step(statement: Statement) -> float:
    if find_level_unit(statement) != "plain":
        return _POINT
    try:
        level = statement.level
    except RuleError:  # several numbers
        return 1.0
    return 0.1 * abs(level) if isinstance(level, float) and level else 1.0


def write_amount_saved(price: float, statement: Statement, minimize: Objective) -> str:
    """How much one step of a rule's level saves at this price; empty if next to nothing."""
    saved = price * _find_step(statement)
    if saved < _LEAST_SAVING:
        return ""
    return format_points(saved) if minimize.is_probability else round_number(saved)


def write_saving(price: float, statement: Statement, minimize: Objective) -> str:
    """The same with what is saved, as in "0.2 points of error"."""
    amount = write_amount_saved(price, statement, minimize)
    return amount and f"{amount} {name_saving(minimize)[0]}"


def write_price(
    price: float,
    statement: Statement,
    minimize: Objective,
    without: float | None = None,
    vacuous: bool = False,
) -> str:
    """Write what a rule costs.

    Parameters
    ----------
    price : float
        its shadow price: what a small step of its level saves. At zero, the rule may still cost something.
    without : float, optional
        how much lower the objective is without the rule, where that was solved for.
    vacuous : bool
        whether the rule holds only as 0/0, so that its shadow price means nothing.
    """
    saved = "" if vacuous else write_saving(price, statement, minimize)
    said = f"Loosening it by {name_step(statement)} would save {saved or 'nothing'}."
    if vacuous:
        said = "It holds only because its rate is 0/0, so that it has no shadow price."
    if saved or without is None:
        return said
    if without < _LEAST_SAVING:
        return f"{said if vacuous else ''} It costs nothing: without it, nothing would be saved.".strip()
    amount = format_points(without) if minimize.is_probability else round_number(without)
    return f"{said} Without it, {amount} {name_saving(minimize)[0]} would be saved."


def describe_certificate(certificate: Certificate) -> str:
    """What was certified when a policy was made."""
    return (
        f"When the policy was made, {pluralize(certificate.rows, 'held-out case')} certified that all rules "
        f"hold together for the population they come from, with {format_percent(certificate.confidence)} "
        "confidence."
    )


def _fill_phrase(atom: Atom, kind: Kind) -> str:
    """What its definition says of the cases that a rate counts, or of their mean."""
    definition = atom.definition
    phrase = ACTION_SPACES[kind].choose_phrase(definition.phrase, definition.set_phrase)
    return phrase.format(*map(quote, atom.arguments))


def _write_cases(atom: Atom, kind: Kind) -> str:
    """The cases that a rate is a share of."""
    decided = "" if atom.decided is None else f" {_write_decided(quote(atom.decided), kind)}"
    if not atom.conditions:
        return f"cases{decided}" if decided else "all cases"
    return f"cases with {describe_group(atom.conditions)}{decided}"


def _write_decided(named: str, kind: Kind) -> str:
    selected = DEFINITIONS["selected"]
    return f"that {ACTION_SPACES[kind].choose_phrase(selected.phrase, selected.set_phrase).format(named)}"


def describe_group(conditions: Conditions) -> str:
    """The conditions that make a group."""
    named = [f"{name} {quote(value)}" for name, value in conditions if name != LABEL]
    named += [f"true label {quote(value)}" for name, value in conditions if name == LABEL]
    return join_words(named)


def _write_noun(atom: Atom, kind: Kind, like: Atom | None = None) -> str:
    if like is not None and (like.name, like.arguments) == (atom.name, atom.arguments):
        return f"that of {_write_cases(atom, kind)}"
    if not atom.definition.probability:
        among = f" among {_write_cases(atom, kind)}" if atom.conditions or atom.decided is not None else ""
        return f"{_fill_phrase(atom, kind)}{among}"
    return f"the share of {_write_cases(atom, kind)} that {_fill_phrase(atom, kind)}"


def _write_rule(rule: Rule, kind: Kind) -> str:
    """Empty where there is no sentence."""
    bound = "at most" if rule.sense == "<=" else "at least"
    left, right = rule.left, rule.right
    if left.constant:
        return ""
    match left.terms, right.terms:
        case ((atom, 1.0),), ():
            return _write_bound(atom, bound, right.constant, kind)
        case ((atom, 1.0),), ((other, factor),) if not right.constant:
            return _write_ratio(atom, bound, factor, other, kind)
        case ((atom, 1.0), (other, -1.0)), ():
            return _write_gap(atom, other, rule.sense, right, kind)
    return ""


def _write_bound(atom: Atom, bound: str, level: float, kind: Kind) -> str:
    if not atom.definition.probability:
        return f"{_write_noun(atom, kind)} is {bound} {_write_exactly(level, 'plain')}"
    share = _write_exactly(level, "share")
    return f"{bound} {share} of {_write_cases(atom, kind)} {_fill_phrase(atom, kind)}"


def _write_ratio(atom: Atom, bound: str, factor: float, other: Atom, kind: Kind) -> str:
    if part := _find_part_phrase(atom, other):
        share, whole = _write_exactly(factor, "share"), _fill_phrase(other, kind)
        return f"of {_write_cases(atom, kind)} that {whole}, {bound} {share} {part}"
    noun = _write_noun(other, kind, like=atom)
    return f"{_write_noun(atom, kind)} is {bound} {_write_factor(factor)}{noun}"


def _write_gap(atom: Atom, other: Atom, sense: str, right: Rate, kind: Kind) -> str:
    """A difference with a bound; below zero, what is meant is how far it may fall short."""
    level, unit = right.constant, find_unit(Rate(((atom, 1.0), (other, -1.0))))
    if sense == "<=" and level >= 0:
        verb, limit = "exceeds", "at most"
    elif sense == ">=" and level <= 0:
        verb, limit = "falls short of", "at most"
    else:
        verb, limit = ("exceeds" if level > 0 else "falls short of"), "at least"
    one, two = _write_noun(atom, kind), _write_noun(other, kind, like=atom)
    return f"{one} {verb} {two} by {limit} {_write_exactly(abs(level), unit)}"


def _write_band(band: Band, kind: Kind) -> str:
    if band.limit.terms or band.rate.constant:
        return ""
    match band.rate.terms:
        case ((atom, 1.0), (other, -1.0)):
            limit = _write_exactly(band.limit.constant, find_unit(band.rate))
            noun = _write_noun(other, kind, like=atom)
            return f"{_write_noun(atom, kind)} differs from {noun} by at most {limit}"
    return ""


def _write_exactly(level: float, unit: Unit) -> str:
    """A number that a rule states is never rounded."""
    return format_amount(level, unit, exactly=True)


def _write_factor(factor: float) -> str:
    return "" if factor == 1 else f"{_write_exactly(factor, 'share')} of "


def _write_family(family: Family, kind: Kind) -> str:
    """The phrase of its definition, filled in, and the level; empty where there is no phrase."""
    definition = family.definition
    phrase = ACTION_SPACES[kind].choose_phrase(definition.phrase, definition.set_phrase)
    if not phrase:
        return ""
    named = join_words([quote(label) for label in family.labels or ()], "or")
    said = phrase.format(
        who=_write_groups(family),
        decision=f"the decision {named} is" if named else "each decision is",
        label=f"{named} is" if named else "each label is",
        true_label=f"the true label {named}" if named else "each true label",
        whole=_write_whole(named, kind),
    )
    return f"{said} at {_write_level(family)}"


def _write_whole(named: str, kind: Kind) -> str:
    """The cases that a precision is a share of."""
    if not named:
        return ACTION_SPACES[kind].choose_phrase(
            "among cases with the same decision", "among cases with a label in their sets"
        )
    return f"among cases {_write_decided(named, kind)}"


def _write_groups(family: Family) -> str:
    parts = [a[0] if len(a) == 1 else f"combination of {join_words(list(a))}" for a in family.attributes]
    return join_words([f"every {part}" for part in parts])


def _write_level(family: Family) -> str:
    pairs = family.between == "groups"
    if family.definition.ratio:
        whose = "the rate of any other group" if pairs else "the overall rate"
        return f"no less than {_write_levels(family, 'share')} of {whose}"
    whose = "that of any other group" if pairs else "the overall rate"
    return f"a rate within {_write_levels(family, 'points')} of {whose}"


def _write_levels(family: Family, unit: Unit) -> str:
    if not isinstance(family.level, tuple):
        return _write_exactly(family.level, unit)
    return join_words(
        [f"{_write_exactly(level, unit)} (for {_write_key(group)})" for group, level in family.level]
    )


def _write_key(group: object) -> str:
    parts = group if isinstance(group, tuple) else (group,)
    return join_words([quote(str(part)) for part in parts])
