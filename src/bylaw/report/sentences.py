"""Rules in English sentences. What has no sentence keeps its own text."""

from __future__ import annotations

from collections.abc import Callable

from bylaw.language.action_space import Kind
from bylaw.language.expressions import LABEL, Atom, Band, Conditions, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.report.number_format import Unit, amount, listed, quoted, unit_of

# What a rate says of the cases that it counts: "the share of all cases that ...".
_PREDICATES: dict[str, Callable[..., str]] = {
    "error": lambda: "are answered wrongly",
    "rejected": lambda: "are referred",
    "accepted": lambda: "get an answer",
    "disagreement": lambda old: f"are decided otherwise than by {quoted(old)}",
    "omits": lambda old: f"get a set without the answer of {quoted(old)}",
    "miscoverage": lambda: "get a set that misses the true label",
}
_MEANS: dict[str, Callable[..., str]] = {
    "size": lambda: "the average number of labels in a set",
    "cost": lambda _: "the average cost, by the given table of costs,",
    "custom": lambda name: f"the average {quoted(name)}",
}
# What is saved by a looser rule, where one such rate is minimised.
_SAVINGS = {
    "error": "of error",
    "rejected": "of referrals",
    "disagreement": "of changed decisions",
    "omits": "of sets without the earlier answer",
    "miscoverage": "of missed labels",
}


def sentence(statement: Statement, kind: Kind = "labels") -> str:
    """What a rule or family demands, in one sentence."""
    if isinstance(statement, Family):
        said = _family(statement, kind)
    elif isinstance(statement, Band):
        said = _band(statement, kind)
    else:
        said = _rule(statement, kind)
    return f"{said[0].upper()}{said[1:]}." if said else str(statement)


def rate_in_words(rate: Rate, kind: Kind = "labels") -> str:
    """A noun for a rate: "the share of all cases that are referred"; its own text if there is none."""
    match rate.terms:
        case ((atom, 1.0),) if not rate.constant:
            return _noun(atom, kind)
        case ((atom, 1.0), (other, factor)) if factor < 0 and not rate.constant:
            return f"{_noun(atom, kind)}, less {_times(-factor)}{_noun(other, kind, like=atom)}"
    return str(rate)


def saving(rate: Rate) -> tuple[str, bool]:
    """What a saving is called, after its number; and whether the number is a share of cases."""
    if len(rate.terms) == 1 and rate.terms[0][1] == 1 and not rate.terms[0][0].conditions:
        name = rate.terms[0][0].name
        if name in _SAVINGS:
            return _SAVINGS[name], True
        return {"size": "labels per set", "cost": "of cost"}.get(name, f"of {rate}"), False
    return f"of {rate}", unit_of(rate) != "plain"


def _predicate(atom: Atom, kind: Kind) -> str:
    if atom.name == "selected":
        label = quoted(atom.arguments[0])
        return f"get a set that contains {label}" if kind == "sets" else f"are decided {label}"
    return _PREDICATES[atom.name](*atom.arguments)


def _cases(conditions: Conditions) -> str:
    if not conditions:
        return "all cases"
    named = [f"{name} {quoted(value)}" for name, value in conditions if name != LABEL]
    named += [f"true label {quoted(value)}" for name, value in conditions if name == LABEL]
    return f"cases with {listed(named)}"


def _noun(atom: Atom, kind: Kind, like: Atom | None = None) -> str:
    if like is not None and (like.name, like.arguments) == (atom.name, atom.arguments):
        return f"that of {_cases(atom.conditions)}"
    if atom.name in _MEANS:
        among = f" among {_cases(atom.conditions)}" if atom.conditions else ""
        return f"{_MEANS[atom.name](*atom.arguments)}{among}"
    return f"the share of {_cases(atom.conditions)} that {_predicate(atom, kind)}"


def _rule(rule: Rule, kind: Kind) -> str:
    """Empty where there is no sentence."""
    bound = "at most" if rule.sense == "<=" else "at least"
    left, right = rule.left, rule.right
    if left.constant:
        return ""
    match left.terms, right.terms:
        case ((atom, 1.0),), ():
            return _bounded(atom, bound, right.constant, kind)
        case ((atom, 1.0),), ((other, factor),) if not right.constant:
            return _relative(atom, bound, factor, other, kind)
        case ((atom, 1.0), (other, -1.0)), ():
            return _gap(atom, other, rule.sense, right, kind)
    return ""


def _bounded(atom: Atom, bound: str, level: float, kind: Kind) -> str:
    if atom.name in _MEANS:
        return f"{_noun(atom, kind)} is {bound} {_exact(level, 'plain')}"
    return f"{bound} {_exact(level, 'share')} of {_cases(atom.conditions)} {_predicate(atom, kind)}"


def _relative(atom: Atom, bound: str, factor: float, other: Atom, kind: Kind) -> str:
    if (atom.name, other.name) == ("error", "accepted") and atom.conditions == other.conditions:
        share = _exact(factor, "share")
        return f"of {_cases(atom.conditions)} that get an answer, {bound} {share} get a wrong one"
    return f"{_noun(atom, kind)} is {bound} {_times(factor)}{_noun(other, kind, like=atom)}"


def _gap(atom: Atom, other: Atom, sense: str, right: Rate, kind: Kind) -> str:
    """A difference with a bound; below zero, what is meant is how far it may fall short."""
    level, unit = right.constant, unit_of(Rate(((atom, 1.0), (other, -1.0))))
    if sense == "<=" and level >= 0:
        verb, limit = "exceeds", "at most"
    elif sense == ">=" and level <= 0:
        verb, limit = "falls short of", "at most"
    else:
        verb, limit = ("exceeds" if level > 0 else "falls short of"), "at least"
    return f"{_noun(atom, kind)} {verb} {_noun(other, kind, like=atom)} by {limit} {_exact(abs(level), unit)}"


def _band(band: Band, kind: Kind) -> str:
    if band.limit.terms or band.rate.constant:
        return ""
    match band.rate.terms:
        case ((atom, 1.0), (other, -1.0)):
            limit = _exact(band.limit.constant, unit_of(band.rate))
            return f"{_noun(atom, kind)} differs from {_noun(other, kind, like=atom)} by at most {limit}"
    return ""


def _exact(level: float, unit: Unit) -> str:
    """A number that a rule states is never rounded."""
    return amount(level, unit, exactly=True)


def _times(factor: float) -> str:
    return "" if factor == 1 else f"{_exact(factor, 'share')} of "


def _family(family: Family, kind: Kind) -> str:
    who = _everyone(family)
    if family.name == "equal_opportunity":
        own = "that label in its sets" if kind == "sets" else "that label as its decision"
        labels = "each true label" if family.labels is None else f"the true label {_labels(family)}"
        return f"for {labels}, {who} gets {own} at {_rate_of(family)}"
    what = {
        "error_parity": f"{who} is answered wrongly",
        "rejection_parity": f"{who} is referred",
        "coverage_parity": f"{who} gets sets that miss the true label",
    }.get(family.name)
    if what is None:
        if kind == "sets":
            given = "each label is" if family.labels is None else f"{_labels(family)} is"
            what = f"{given} in the sets of {who}"
        else:
            given = "each decision is" if family.labels is None else f"the decision {_labels(family)} is"
            what = f"{given} given to {who}"
    among = "among cases with the same true label, " if family.name == "equalized_odds" else ""
    return f"{among}{what} at {_rate_of(family)}"


def _labels(family: Family) -> str:
    return listed([quoted(label) for label in family.labels or ()], "or")


def _everyone(family: Family) -> str:
    parts = [a[0] if len(a) == 1 else f"combination of {listed(list(a))}" for a in family.attributes]
    return listed([f"every {part}" for part in parts])


def _rate_of(family: Family) -> str:
    pairs = family.between == "groups"
    if family.name == "disparate_impact":
        whose = "the rate of any other group" if pairs else "the overall rate"
        return f"no less than {_levels(family, 'share')} of {whose}"
    whose = "that of any other group" if pairs else "the overall rate"
    return f"a rate within {_levels(family, 'points')} of {whose}"


def _levels(family: Family, unit: Unit) -> str:
    if not isinstance(family.level, tuple):
        return _exact(family.level, unit)
    return listed([f"{_exact(level, unit)} (for {_key(group)})" for group, level in family.level])


def _key(group: object) -> str:
    parts = group if isinstance(group, tuple) else (group,)
    return listed([quoted(str(part)) for part in parts])


def is_share(rate: Rate) -> bool:
    """Whether values are shares of cases or differences of such."""
    return unit_of(rate) != "plain"
