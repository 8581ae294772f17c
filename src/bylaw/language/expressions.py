"""Rates, rules and objectives as objects: they add, scale, compare, condition and print.

A rate is a linear functional of the policy; comparing it with a number or another rate gives a rule. What a
rate means is a list of `Term`s: for each action, a coefficient times a column of the row. Nothing here
depends on data, solvers or policies.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

from bylaw._base.typing import Value
from bylaw._base.validation import as_name, as_scalar, check_number, make_visible
from bylaw.errors import Remedy, RuleError
from bylaw.language.action_space import ActionSpace, LabelSpace, OptionSpace, SetSpace

Conditions = tuple[tuple[str, Value], ...]
LABEL = "label"  # the condition on the true label
CHANGED = "changed"  # a cost that custom() reads: that of decisions other than an earlier policy's
DECISION = "decision"  # the condition on the decision, which makes a rate a quotient


@dataclass(frozen=True)
class ReferenceColumn:
    """1{the earlier model `name` answers `item`}."""

    name: str
    item: Value


@dataclass(frozen=True)
class CostColumn:
    """Column `item` of the cost array `name`."""

    name: str
    item: int


Source = ReferenceColumn | CostColumn  # a column of the evidence other than a probability


class Term(NamedTuple):
    """coefficient * source(x) * P(label | x), paid when `action` is taken."""

    action: Value
    coefficient: float
    label: Value | None = None
    source: Source | None = None


class Meaning(NamedTuple):
    """The terms and the constant that add up to a rate."""

    terms: Sequence[Term]
    constant: float = 0.0


@dataclass(frozen=True)
class Definition:
    """The meaning of a rate, and how the parser, audits and reports treat it.

    Parameters
    ----------
    constructor : callable
        the public function, whose name is the word.
    meaning : callable
        of the rate's arguments and `space=`: what each action pays.
    spaces : tuple
        the action spaces for which the rate makes sense; `instead` states what to use for the others.
    implies : type or callable, optional
        the action space of a problem that uses the rate, or a function of the rate's arguments.
    probability : bool
        whether values are always within [0, 1].
    reads : {"reference", "cost"}, optional
        what the first argument names in the evidence.
    phrase : str
        in a report, completes "the share of cases that ..."; a noun such as "the average cost", if it is not
        a probability. {0} is the first argument. `set_phrase` is the same where a decision is a set.
    saving : str
        what a lower rate saves, as in "0.2 points of error".
    part_phrases : dict
        for each rate, by name, that counts the cases of this one among others: completes "of cases that get
        an answer, at most 5 % ...", the wording of a rule that bounds this rate by a share of the other.
    decided : callable, optional
        of the arguments: the decision that the rate is always given, which makes it a quotient.
    whole : callable, optional
        of a quotient by anything else, what it divides by; like the meaning, which is that of the part.
    derived, factors : callable, optional
        of the classes: the rates that it is made of, or of which it is the geometric mean.
    """

    constructor: Callable[..., Rate]
    meaning: Callable[..., Meaning]
    spaces: tuple[type[ActionSpace], ...] = (LabelSpace, OptionSpace, SetSpace)
    instead: str = ""
    implies: type[ActionSpace] | Callable[..., type[ActionSpace] | None] | None = None
    probability: bool = True
    reads: Literal["reference", "cost"] | None = None
    phrase: str = ""
    set_phrase: str = ""
    saving: str = ""
    part_phrases: Mapping[str, str] = field(default_factory=dict)
    decided: Callable[..., Value] | None = None
    whole: Callable[..., Meaning] | None = None
    derived: Callable[[Sequence[Value]], Rate] | None = None
    factors: Callable[[Sequence[Value]], list[Rate]] | None = None

    @property
    def is_quotient(self) -> bool:
        """Whether the rate is a quotient without a condition, such as precision()."""
        return self.decided is not None or self.whole is not None


DEFINITIONS: dict[str, Definition] = {}


class Event(NamedTuple):
    """The cases that a rate is a mean over.

    They are the rows of some conditions. Of a quotient, each row counts by the denominator, such as the
    probability of the decision that the rate is given.
    """

    conditions: Conditions
    whole: Atom | None = None


def shorten(values: Sequence[Any], most: int = 10) -> str:
    """Return a list as text for messages, cut if it is long."""
    shown = ", ".join(map(repr, values[:most]))
    return f"[{shown}{f', ... {len(values)} in all' if len(values) > most else ''}]"


def format_conditions(event: Iterable[tuple[str, Any]]) -> str:
    """Return conditions as they are written in given()."""
    return ", ".join(f"{make_visible(name)}={value!r}" for name, value in event)


def format_number(value: float) -> str:
    """Return a number as it is written in a rule."""
    return repr(value).removesuffix(".0")


@dataclass(frozen=True)
class Atom:
    """One word of the vocabulary with its arguments and conditions.

    Given a decision it is a quotient, part / whole, such as P(error and decision) / P(decision). Both are
    linear: `part` and `whole` are atoms of the same word with a `share`.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    conditions: Conditions = ()
    function: Callable[..., Any] | None = field(default=None, repr=False)
    decision: Value | None = None
    share: Literal["", "part", "whole"] = ""
    abbreviation: str = field(default="", compare=False, repr=False)  # as it was written: recall('a')

    @property
    def definition(self) -> Definition:
        return DEFINITIONS[self.name]

    @property
    def implies(self) -> type[ActionSpace] | None:
        """The action space this rate needs, if it needs one."""
        space = self.definition.implies
        return space if space is None or isinstance(space, type) else space(*self.arguments)

    def reads(self, kind: Literal["reference", "cost"]) -> str | None:
        """Return the name of the reference or cost array that it reads, if it reads one."""
        return self.arguments[0] if self.definition.reads == kind else None

    @property
    def decided(self) -> Value | None:
        """The decision that it is given, by a condition or by its definition."""
        always = self.definition.decided
        return self.decision if always is None else always(*self.arguments)

    @property
    def is_quotient(self) -> bool:
        return not self.share and (self.decision is not None or self.definition.is_quotient)

    def list_factors(self, classes: Sequence[Value]) -> list[Rate]:
        """Return the rates that it is the geometric mean of."""
        assert self.definition.factors is not None
        factors = self.definition.factors(classes)
        return [rate.given(**dict(self.conditions)) for rate in factors] if self.conditions else factors

    @property
    def event(self) -> Event:
        return Event(self.conditions, self.whole if self.is_quotient else None)

    @property
    def part(self) -> Atom:
        """The numerator of a quotient."""
        return replace(self, share="part")

    @property
    def whole(self) -> Atom:
        """The denominator of a quotient; the same for all rates given the same decision and conditions."""
        if self.decided is None:
            return replace(self, share="whole")
        return Atom("selected", (self.decided,), self.conditions, decision=self.decided, share="whole")

    def meaning(self, space: ActionSpace) -> Meaning:
        """Return what this rate pays for each action without its conditions; of a quotient, its part."""
        definition = self.definition
        if self.share == "whole":
            if self.decided is not None:
                is_label = self.decided in space.classes
                return Meaning([Term(self.decided if is_label else space.find_decision(self.decided), 1.0)])
            assert definition.whole is not None
            return definition.whole(*self.arguments, space=space)
        if definition.factors is not None:
            raise RuleError(
                f"{self} is not linear, and no rule can bound it: maximize it, minimize=1 - {self} in solve()"
            )
        if not isinstance(space, definition.spaces):
            raise RuleError(
                f"{self.name}() makes no sense when a decision is {space.description}: {definition.instead}",
                None if self.implies is None else Remedy("choose_decisions", self.implies.kind),
            )
        meaning = definition.meaning(*self.arguments, space=space)
        if self.decision is None:
            return meaning
        # Only what is paid for the decision that the rate is given.
        action = space.find_decision(self.decided)
        terms = [term for term in meaning.terms if term.action == action]
        terms += [Term(action, meaning.constant)] if meaning.constant else []
        if all(term.label is None and term.source is None for term in terms):
            value = format_number(sum(term.coefficient for term in terms))
            raise RuleError(f"{replace(self, share='')} is {value} whatever the policy is; leave it out")
        return Meaning(terms)

    def needs_label(self, space: ActionSpace) -> bool:
        """Return whether it depends on the true label."""
        if self.definition.factors is not None or self.definition.derived is not None:
            return True  # they are about each class
        terms = self.meaning(space).terms
        return LABEL in dict(self.conditions) or any(term.label is not None for term in terms)

    def given(self, extra: Mapping[str, Any]) -> Atom:
        conditions = dict(self._all_conditions)
        for name, value in extra.items():
            attribute = as_name(name, "an attribute in given()")
            if attribute in conditions:
                raise RuleError(f"{self} is already given {attribute}={conditions[attribute]!r}")
            definition = self.definition
            made_of_labels = definition.derived is not None or definition.factors is not None
            if attribute in (LABEL, DECISION) and (definition.is_quotient or made_of_labels):
                raise RuleError(
                    f"{self} is made of labels and decisions, and takes no {attribute}=; give it groups"
                )
            conditions[attribute] = as_scalar(value, f"the value of {attribute!r} in given()")
        decision = conditions.pop(DECISION, None)
        return replace(self, conditions=tuple(sorted(conditions.items())), decision=decision)

    @property
    def _all_conditions(self) -> Conditions:
        """As they are written in given()."""
        decision = () if self.decision is None else ((DECISION, self.decision),)
        return tuple(sorted((*self.conditions, *decision), key=lambda condition: condition[0]))

    def __str__(self) -> str:
        written = []
        for argument in self.arguments:
            if isinstance(argument, tuple):  # a cost matrix
                rows = (f"[{', '.join(map(format_number, row))}]" for row in argument)
                written.append(f"[{', '.join(rows)}]")
            else:
                written.append(repr(argument))
        text = f"{self.abbreviation or self.name}({', '.join(written)})"
        conditions = self._all_conditions
        if self.abbreviation:  # it stands for a condition on the label
            conditions = tuple(condition for condition in conditions if condition[0] != LABEL)
        if not conditions:
            return text
        # Python reads such a name back as it is written: it normalizes identifiers beyond ASCII.
        if all(n.isascii() and n.isidentifier() and not keyword.iskeyword(n) for n, _ in conditions):
            return f"{text}.given({format_conditions(conditions)})"
        return f"{text}.given(**{dict(conditions)!r})"


@dataclass(frozen=True, repr=False)
class Rate:
    """A sum of atoms with coefficients, plus a constant."""

    terms: tuple[tuple[Atom, float], ...]
    constant: float = 0.0

    __array_ufunc__ = None  # so that np.float64(2) * rate reaches Rate.__rmul__

    @property
    def is_probability(self) -> bool:
        """Whether every term is one, so that values are shares of rows or differences of shares."""
        return all(atom.definition.probability for atom, _ in self.terms)

    @property
    def highest(self) -> float:
        """No policy makes the rate exceed this; infinite where a term is not a probability."""
        if not self.is_probability:
            return math.inf
        return self.constant + sum(c for _, c in self.terms if c > 0)

    @property
    def lowest(self) -> float:
        """No policy makes the rate fall below this."""
        return -(-self).highest

    def given(self, /, **conditions: Any) -> Rate:
        """Return this rate among the rows with these group values.

        With `label=`, rows have this true label; with `decision=`, they get this decision.
        """
        if not conditions:
            raise RuleError("given() needs a condition, such as given(sex='Female')")
        return _sum([(atom.given(conditions), c) for atom, c in self.terms], self.constant)

    def resolve(self, classes: Sequence[Value]) -> Rate:
        """Replace rates that are made of others, such as balanced_error(), by these."""
        if not any(atom.definition.derived for atom, _ in self.terms):
            return self
        total = Rate((), self.constant)
        for atom, coefficient in self.terms:
            rate, conditions = Rate(((atom, 1.0),)), dict(atom.conditions)
            if atom.definition.derived is not None:
                rate = atom.definition.derived(classes)
                rate = rate.given(**conditions) if conditions else rate
            total += rate * coefficient
        return total

    def split(self) -> Ratio | None:
        """Return the rate as one ratio of linear rates; None if it has no quotient."""
        if not any(atom.is_quotient for atom, _ in self.terms):
            return None
        numerator = self.multiply_out()
        whole = next(atom.whole for atom, _ in self.terms if atom.is_quotient)
        return Ratio(numerator, Rate(((whole, 1.0),)))

    def multiply_out(self) -> Rate:
        """Return a linear rate that is at most zero where this one is: part - level * whole.

        Raises
        ------
        RuleError
            where quotients have several wholes, or stand beside other rates.
        """
        if not any(atom.is_quotient for atom, _ in self.terms):
            return self
        wholes = {atom.whole if atom.is_quotient else None for atom, _ in self.terms}
        whole = wholes.pop()
        if wholes or whole is None:
            raise RuleError(
                f"{self} compares a rate given a decision with another rate, which is not linear: bound it "
                "by a number, or compare groups by predictive_parity() in solve()"
            )
        return _sum([(atom.part, c) for atom, c in self.terms] + [(whole, self.constant)], 0.0)

    @property
    def is_linear(self) -> bool:
        """Whether no term is a quotient, or a product of rates."""
        return not any(atom.is_quotient or atom.definition.factors is not None for atom, _ in self.terms)

    def by_event(self) -> dict[Event, Rate]:
        """Return the rate as a sum of parts, each of one event, without the constant."""
        events = dict.fromkeys(atom.event for atom, _ in self.terms)
        return {e: Rate(tuple(term for term in self.terms if term[0].event == e)) for e in events}

    def by_condition(self) -> dict[Conditions, Rate]:
        """Return the rate as a sum of parts, each of one condition, without the constant."""
        conditions = dict.fromkeys(atom.conditions for atom, _ in self.terms)
        return {c: Rate(tuple(term for term in self.terms if term[0].conditions == c)) for c in conditions}

    def __add__(self, other: Rate | float) -> Rate:
        if isinstance(other, Ratio):
            return NotImplemented
        other = as_rate(other)
        return _sum([*self.terms, *other.terms], self.constant + other.constant)

    def __mul__(self, factor: float) -> Rate:
        if isinstance(factor, Rate | Ratio):
            raise RuleError("a product of two rates is not linear; multiply a rate by a number")
        factor = check_number(factor, "the factor of a rate", RuleError)
        return _sum([(atom, c * factor) for atom, c in self.terms], self.constant * factor)

    def __truediv__(self, divisor: Any) -> Any:
        """Divide by a number, or by a rate, which makes a `Ratio`."""
        if isinstance(divisor, Rate):
            return Ratio(self, divisor)
        divisor = check_number(divisor, "the divisor of a rate", RuleError)
        if divisor == 0:
            raise RuleError("a rate cannot be divided by zero")
        return _sum([(atom, c / divisor) for atom, c in self.terms], self.constant / divisor)

    def __neg__(self) -> Rate:
        return self * -1.0

    def __sub__(self, other: Rate | float) -> Rate:
        return self + -as_rate(other)

    def __rsub__(self, other: Rate | float) -> Rate:
        return as_rate(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __abs__(self) -> Magnitude:
        return Magnitude(self)

    def __le__(self, other: Rate | float) -> Rule:
        return Rule(self, "<=", as_rate(other))

    def __ge__(self, other: Rate | float) -> Rule:
        return Rule(self, ">=", as_rate(other))

    def __lt__(self, other: object) -> Rule:
        raise RuleError("rules are written with <= or >=, not < or >")

    __gt__ = __lt__

    def __str__(self) -> str:
        texts = [str(a) if abs(c) == 1 else f"{format_number(abs(c))} * {a}" for a, c in self.terms]
        parts = [(c < 0, text) for (_, c), text in zip(self.terms, texts, strict=True)]
        if self.constant or not parts:
            first = self.constant > 0 and bool(parts) and parts[0][0]  # 1 - a, not -a + 1
            parts.insert(0 if first else len(parts), (self.constant < 0, format_number(abs(self.constant))))
        first = f"-{parts[0][1]}" if parts[0][0] else parts[0][1]
        return first + "".join(f" {'-' if minus else '+'} {text}" for minus, text in parts[1:])

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class Ratio:
    """A rate divided by a rate: an objective, or a rule once it is compared with a number.

    Numbers are added and multiplied; `a / b <= 0.05` is the linear rule `a <= 0.05 * b`.
    """

    numerator: Rate
    denominator: Rate

    is_probability: ClassVar = False
    is_linear: ClassVar = False
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if not (self.numerator.is_linear and self.denominator.is_linear):
            raise RuleError(f"{self} divides a quotient; write it as one rate over another")
        if not self.denominator.terms:
            raise RuleError(f"{self} divides by a number; write it as a rate times a number")

    @property
    def terms(self) -> tuple[tuple[Atom, float], ...]:
        """All atoms in it."""
        return self.numerator.terms + self.denominator.terms

    def resolve(self, classes: Sequence[Value]) -> Ratio:
        """Replace rates that are made of others, as in `Rate.resolve`."""
        return Ratio(self.numerator.resolve(classes), self.denominator.resolve(classes))

    def split(self) -> Ratio:
        return self

    def given(self, /, **conditions: Any) -> Ratio:
        """Return this ratio among the rows with these group values."""
        return Ratio(self.numerator.given(**conditions), self.denominator.given(**conditions))

    def __add__(self, number: float) -> Ratio:
        return Ratio(self.numerator + self._check(number) * self.denominator, self.denominator)

    def __mul__(self, number: float) -> Ratio:
        return Ratio(self._check(number) * self.numerator, self.denominator)

    def __truediv__(self, number: float) -> Ratio:
        return Ratio(self.numerator / self._check(number), self.denominator)

    def __neg__(self) -> Ratio:
        return self * -1.0

    def __sub__(self, number: float) -> Ratio:
        return self + -self._check(number)

    def __rsub__(self, number: float) -> Ratio:
        return -self + number

    __radd__ = __add__
    __rmul__ = __mul__

    def __le__(self, level: float) -> Rule:
        return self.numerator <= self._check(level) * self.denominator

    def __ge__(self, level: float) -> Rule:
        return self.numerator >= self._check(level) * self.denominator

    def _check(self, number: float) -> float:
        if isinstance(number, Rate | Ratio):
            raise RuleError(
                f"{self} takes numbers alone: with another rate, a sum, product or rule is not linear"
            )
        return check_number(number, "what a ratio is compared with, added to or multiplied by", RuleError)

    def __str__(self) -> str:
        return f"{_enclose(self.numerator)} / {_enclose(self.denominator)}"

    __repr__ = __str__


def _enclose(rate: Rate) -> str:
    """Return the text of a rate, in parentheses if it is more than one atom."""
    alone = len(rate.terms) == 1 and rate.terms[0][1] == 1 and not rate.constant
    return str(rate) if alone else f"({rate})"


def _sum(terms: Iterable[tuple[Atom, float]], constant: float) -> Rate:
    """Return a rate with like terms merged and zero terms dropped, so that equal text means equal rates."""
    merged: dict[Atom, float] = {}
    for atom, coefficient in terms:
        merged[atom] = merged.get(atom, 0.0) + coefficient
    if not all(map(math.isfinite, [*merged.values(), constant])):
        raise RuleError("a coefficient of this rate is not finite")
    return Rate(tuple((a, c) for a, c in merged.items() if c), constant + 0.0)


def as_rate(value: Rate | float) -> Rate:
    """Return a rate unchanged, and a number as a constant rate."""
    if isinstance(value, Rate):
        return value
    return Rate((), check_number(value, "what a rate is compared with or added to", RuleError))


@dataclass(frozen=True, repr=False)
class Rule:
    """One linear rule, kept as it was written."""

    is_band: ClassVar = False  # whether it bounds a difference on both sides

    left: Rate
    sense: Literal["<=", ">="]
    right: Rate

    def __post_init__(self) -> None:
        if not self.excess.terms:
            raise RuleError(f"the rule {self} does not depend on the decisions")

    @cached_property
    def excess(self) -> Rate:
        """The rate that must be <= 0."""
        return self.left - self.right if self.sense == "<=" else self.right - self.left

    @property
    def level(self) -> float:
        """The number that the rule can be swept over: its bound, or the one coefficient on its right."""
        return _find_level(self.right, self)

    @property
    def factor(self) -> Rate | None:
        """The rate that the level multiplies, as b in a >= 0.8 * b, which is a rule on a / b.

        None if the level is a bound, or multiplies a rate that may be negative.
        """
        side = self.right
        if len(side.terms) != 1 or side.constant or not (side.is_probability and self.is_linear):
            return None
        return Rate(((side.terms[0][0], 1.0),))

    @property
    def is_about_ratio(self) -> bool:
        """Whether its level is that of a ratio or a quotient: what is multiplied out is not in its unit."""
        return self.factor is not None or not (self.excess.is_linear or self.right.terms)

    @property
    def denominators(self) -> list[Rate]:
        """The denominators of its ratios: b in a >= 0.8 * b, or those of quotients."""
        if self.factor is not None:
            return [self.factor]
        return [Rate(((event.whole, 1.0),)) for event in self.excess.by_event() if event.whole is not None]

    @property
    def bounded(self) -> Rate | Ratio:
        """The expression that the rule bounds by a number: all rates together, or a / b."""
        if self.factor is not None:
            return Ratio(self.left, self.factor)
        return replace(self.left - self.right, constant=0.0)

    @property
    def bound(self) -> float:
        """The number on the right, once all rates are on the left."""
        return self.right.constant - self.left.constant

    @property
    def template(self) -> str:
        """Its text, with `level` in place of the number."""
        return f"{self.left} {self.sense} {_format_template(self.right, self)}"

    @property
    def loosening(self) -> Literal[-1, 1]:
        """The direction in which the level loosens the rule."""
        return 1 if self.sense == "<=" else -1

    def at(self, level: float) -> Rule:
        """Return the same rule at another level."""
        return replace(self, right=_set_level(self.right, level, self))

    @property
    def is_linear(self) -> bool:
        """Whether it has no quotient, as written."""
        return self.left.is_linear and self.right.is_linear

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        return (self,)

    def atoms(self) -> Iterable[Atom]:
        return (atom for side in (self.left, self.right) for atom, _ in side.terms)

    def __bool__(self) -> bool:
        raise RuleError(
            "a rule has no truth value; write 0.1 <= rate <= 0.2 as two rules, rate >= 0.1 and rate <= 0.2"
        )

    def __str__(self) -> str:
        return f"{self.left} {self.sense} {self.right}"

    __repr__ = __str__


Groups = Mapping[str, tuple[Value, ...]]


def _find_level(side: Rate, rule: Rule | Band) -> float:
    """Return the single number on a side: a bound, or the factor of a single rate."""
    if not side.terms:
        return side.constant
    if len(side.terms) == 1 and not side.constant:
        return side.terms[0][1]
    raise RuleError(
        f"the rule {rule} has several numbers on its right, so it has no single level; write it with one "
        "number there, such as rejected() <= 0.1 or error() <= 0.05 * accepted()"
    )


def _format_template(side: Rate, rule: Rule | Band) -> str:
    _find_level(side, rule)
    return f"level * {side.terms[0][0]}" if side.terms else "level"


def _set_level(side: Rate, level: float, rule: Rule | Band) -> Rate:
    level = check_number(level, f"a level of {rule}", RuleError)
    _find_level(side, rule)
    return level * Rate(((side.terms[0][0], 1.0),)) if side.terms else as_rate(level)


@dataclass(frozen=True, repr=False)
class Magnitude:
    """The absolute value of a rate, which becomes a rule once it is compared with a bound."""

    rate: Rate

    def __le__(self, limit: Rate | float) -> Band:
        return Band(self.rate, as_rate(limit))

    def __ge__(self, limit: object) -> Band:
        raise RuleError("abs(rate) >= bound is not convex; only abs(rate) <= bound is a rule")

    def __lt__(self, limit: object) -> Band:
        raise RuleError("abs(rate) is compared with <= and a bound, and not otherwise")

    __gt__ = __lt__

    def __str__(self) -> str:
        return f"abs({self.rate})"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class Band:
    """abs(rate) <= limit: two rules."""

    is_band: ClassVar = True
    loosening: ClassVar[Literal[-1, 1]] = 1  # the direction in which the level loosens the rule

    rate: Rate
    limit: Rate

    def __post_init__(self) -> None:
        if not self.rate.terms:
            raise RuleError(f"the rule {self} does not depend on the decisions")

    @property
    def level(self) -> float:
        """The number that the rule can be swept over: its limit, or the one coefficient in it."""
        return _find_level(self.limit, self)

    @property
    def template(self) -> str:
        """Its text, with `level` in place of the number."""
        return f"abs({self.rate}) <= {_format_template(self.limit, self)}"

    def at(self, level: float) -> Band:
        """Return the same rule at another level."""
        return replace(self, limit=_set_level(self.limit, level, self))

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        return (self.rate <= self.limit, self.rate >= -self.limit)

    def atoms(self) -> Iterable[Atom]:
        return (atom for side in (self.rate, self.limit) for atom, _ in side.terms)

    def __bool__(self) -> bool:
        raise RuleError("a rule has no truth value; pass it to Problem(rules=[...])")

    def __str__(self) -> str:
        return f"abs({self.rate}) <= {self.limit}"

    __repr__ = __str__


OVERALL = 0.01  # the part of the rate over all rows beside that of the worst group


@dataclass(frozen=True, repr=False)
class Worst:
    """The rate of the group in which it is largest: max over groups g of rate.given(g). Made by `worst`."""

    rate: Rate
    by: tuple[str, ...]  # attributes, and "label"; several for their intersections

    @property
    def terms(self) -> tuple[tuple[Atom, float], ...]:
        """The terms of the rate, without the condition on the group."""
        return self.rate.terms

    @property
    def is_probability(self) -> bool:
        """Whether values are shares of rows or differences of shares."""
        return self.rate.is_probability

    @property
    def is_linear(self) -> bool:
        """Whether each group's rate is."""
        return self.rate.is_linear

    def list_groups(self, classes: Sequence[Value], groups: Groups) -> tuple[Conditions, ...]:
        """Return the conditions of every group."""
        values = {LABEL: tuple(classes), **groups}
        for name in self.by:
            if name not in values:
                raise RuleError(f"{self}: no group column {name!r}; the evidence has {sorted(groups)}")
        cells = itertools.product(*(values[name] for name in self.by))
        return tuple(tuple(zip(self.by, cell, strict=True)) for cell in cells)

    def given(self, group: Conditions) -> Rate:
        """Return the rate of one group."""
        return self.rate.given(**dict(group))

    def weigh(self, weights: Mapping[Conditions, float]) -> Rate:
        """Return the linear objective for weights of the groups that sum to one.

        Its optimum for the worst weights is that of the worst group. The rate over all rows has a small
        weight, which decides on rows of groups that are not the worst.
        """
        parts = [weight * self.given(group) for group, weight in weights.items()]
        return sum(parts, OVERALL * self.rate)

    def compare(self, reference: Conditions, others: Sequence[Conditions]) -> tuple[Rule, ...]:
        """Return rules by which no other group is worse than the reference."""
        return tuple(-self.given(reference) + self.given(group) <= 0 for group in others)

    def _refuse(self, other: object) -> NoReturn:
        raise RuleError(
            f"{self} is minimized alone: it makes no rule and no sum. To bound every group, write a "
            "rule for each, such as error().given(race='a') <= 0.1; a sum of rates goes inside worst()"
        )

    __le__ = __ge__ = __lt__ = __gt__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse

    def __str__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else self.by
        return f"worst({self.rate}, by={by!r})"

    __repr__ = __str__


Objective = Rate | Ratio | Worst  # what a problem minimizes


def worst(rate: Rate | str, by: Any) -> Worst:
    """Return the rate of the group where it is largest, to be minimized: minimax fairness (Rawls).

    Among several policies with the same worst group, the one with the lowest rate over all rows is best: that
    rate has a weight of 0.01.

    Parameters
    ----------
    rate : Rate or str
        such as `error()` or its text, `cost(...)`, `size()`, or a sum of rates.
    by : str or tuple
        "race"; or ("sex", "race"), the intersections; "label" for the true label, also among others.

    Returns
    -------
    Worst
        what `Problem(minimize=...)` takes; it cannot be part of a sum or a rule.

    Examples
    --------
    >>> from bylaw import error
    >>> worst(error(), by="race")
    worst(error(), by='race')
    >>> worst(error(), by=("sex", "race"))
    worst(error(), by=('sex', 'race'))
    """
    if isinstance(rate, str):
        from bylaw.language.parser import parse  # which knows this function

        rate = parse(rate)  # type: ignore[assignment]
    if not isinstance(rate, Rate) or not rate.terms:
        raise RuleError(f"worst() takes a rate such as error(), and by=, the groups; not {rate!r}")
    if not rate.is_linear:
        raise RuleError(f"worst(): {rate} is a quotient of rates; worst() takes rates such as error()")
    names = by if isinstance(by, tuple) else (by,)
    if not names or not all(isinstance(name, str) for name in names):
        raise RuleError(
            f"worst(): by is a column name like 'race', 'label', or a tuple of them for intersections; "
            f"got {by!r}"
        )
    if len(set(names)) < len(names):
        raise RuleError(f"worst(): the intersection {names} names an attribute twice")
    for atom, _ in rate.terms:
        if taken := sorted(set(names).intersection(dict(atom.conditions))):
            raise RuleError(f"worst(): {atom} is already given {taken[0]!r}, and by= ranges over it")
    return Worst(rate, tuple(as_name(name, "an attribute") for name in names))
