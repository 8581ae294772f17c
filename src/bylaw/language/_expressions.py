"""Rates, rules and objectives as objects that can be added, scaled, compared, conditioned and printed.

A rate is a linear functional of the policy. Comparing a rate with a number or with another rate makes a
rule. The meaning of a rate is a list of `Term`s, each a coefficient times a column of the rows, for one
action. This module does not depend on data, solvers or policies.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

from bylaw._base import Value, as_name, as_scalar, check_number, make_visible
from bylaw.errors import Remedy, RuleError
from bylaw.language._action_space import ActionSpace, LabelSpace, OptionSpace, SetSpace

Conditions = tuple[tuple[str, Value], ...]
LABEL = "label"  # the name of a condition on the true label
CHANGED = "changed"  # the cost array for custom(): 1 for decisions that differ from an earlier policy's
DECISION = "decision"  # the name of a condition on the decision, which makes a rate a ratio


@dataclass(frozen=True)
class ReferenceColumn:
    """A column of the evidence: 1 where the earlier model `name` predicts `item`, 0 elsewhere."""

    name: str
    item: Value


@dataclass(frozen=True)
class CostColumn:
    """A column of the evidence: the costs of the action at index `item` in the cost array `name`."""

    name: str
    item: int


Source = ReferenceColumn | CostColumn  # a column of the evidence other than a probability


class Term(NamedTuple):
    """A summand of a rate: coefficient * source(x) * P(label | x) on rows where `action` is taken, else 0.

    Without a source or a label, that factor is 1.
    """

    action: Value
    coefficient: float
    label: Value | None = None
    source: Source | None = None


class Meaning(NamedTuple):
    """The terms and the constant whose sum is a rate."""

    terms: Sequence[Term]
    constant: float = 0.0


@dataclass(frozen=True)
class Definition:
    """The meaning of a rate, and how the parser, audits and reports treat it.

    Parameters
    ----------
    constructor : callable
        The public function. The name of the rate is the name of this function.
    meaning : callable
        A function of the rate's arguments and `space=` that returns the `Meaning` of the rate: the terms of
        each action. For a ratio of rates it returns the numerator.
    spaces : tuple
        The action spaces for which the rate is defined.
    instead : str
        What to use for other action spaces, for error messages.
    implies : type or callable, optional
        The action space of a problem that uses the rate, or a function of the rate's arguments that returns
        it.
    probability : bool
        Whether values are always within [0, 1].
    reads : {"reference", "cost"}, optional
        The kind of data in the evidence that the rate's first argument names, if it names any.
    phrase : str
        The wording in a report. It completes "the share of cases that ..."; for a rate that is not a
        probability it is a noun such as "the average cost". {0} is the first argument.
    set_phrase : str
        The wording where decisions are sets, if it differs.
    saving : str
        What a lower rate saves, as in "0.2 points of error".
    part_phrases : dict
        The wording of rules that bound this rate by a share of another rate, by the name of the other rate.
        It completes, for instance, "of cases that get an answer, at most 5 % ...".
    decided : callable, optional
        A function of the rate's arguments that returns the decision on which the rate is always conditioned,
        if there is one. The rate is then a ratio.
    whole : callable, optional
        For other ratios: a function like `meaning` that returns the denominator.
    derived : callable, optional
        A function of the classes that returns the combination of rates that this rate equals.
    factors : callable, optional
        A function of the classes that returns the rates of which this rate is the geometric mean.
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
        """Whether the rate is a ratio even without a condition, as precision() is."""
        return self.decided is not None or self.whole is not None


DEFINITIONS: dict[str, Definition] = {}


class Event(NamedTuple):
    """The cases over which a rate is a mean.

    These are the rows that satisfy `conditions`. If the rate is a ratio, each row is weighted by the
    denominator `whole`, such as the probability of the decision on which the rate is conditioned.
    """

    conditions: Conditions
    whole: Atom | None = None


def shorten(values: Sequence[Any], most: int = 10) -> str:
    """Format a list as text for messages; of a long list only the first `most` values are shown."""
    shown = ", ".join(map(repr, values[:most]))
    return f"[{shown}{f', ... {len(values)} in all' if len(values) > most else ''}]"


def format_conditions(event: Iterable[tuple[str, Any]]) -> str:
    """Format conditions as the arguments of given(), such as "sex='F'"."""
    return ", ".join(f"{make_visible(name)}={value!r}" for name, value in event)


def format_number(value: float) -> str:
    """Format a number as rules show it: without a trailing ".0"."""
    return repr(value).removesuffix(".0")


@dataclass(frozen=True)
class Atom:
    """One rate of the language, such as error(), with its arguments and conditions.

    Conditioned on a decision it is a ratio, such as P(error and decision) / P(decision). The numerator `part`
    and the denominator `whole` are linear; they are atoms of the same name with another `share`.
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
        """The action space that this rate requires; None if it is defined for several."""
        space = self.definition.implies
        return space if space is None or isinstance(space, type) else space(*self.arguments)

    def reads(self, kind: Literal["reference", "cost"]) -> str | None:
        """Return the name of the reference or cost array that the rate reads; None if it reads none."""
        return self.arguments[0] if self.definition.reads == kind else None

    @property
    def decided(self) -> Value | None:
        """The decision on which the rate is conditioned, by given(decision=...) or by its definition."""
        always = self.definition.decided
        return self.decision if always is None else always(*self.arguments)

    @property
    def is_quotient(self) -> bool:
        return not self.share and (self.decision is not None or self.definition.is_quotient)

    def list_factors(self, classes: Sequence[Value]) -> list[Rate]:
        """Return the rates of which this rate is the geometric mean."""
        assert self.definition.factors is not None
        factors = self.definition.factors(classes)
        return [rate.given(**dict(self.conditions)) for rate in factors] if self.conditions else factors

    @property
    def event(self) -> Event:
        return Event(self.conditions, self.whole if self.is_quotient else None)

    @property
    def part(self) -> Atom:
        """The numerator of a rate that is a ratio."""
        return replace(self, share="part")

    @property
    def whole(self) -> Atom:
        """The denominator if the rate is a ratio, equal for all rates with this decision and conditions."""
        if self.decided is None:
            return replace(self, share="whole")
        return Atom("selected", (self.decided,), self.conditions, decision=self.decided, share="whole")

    def meaning(self, space: ActionSpace) -> Meaning:
        """Return the terms of this rate without its conditions; for a ratio, those of the numerator."""
        definition = self.definition
        if self.share == "whole":
            if self.decided is not None:
                is_label = self.decided in space.classes
                return Meaning([Term(self.decided if is_label else space.find_decision(self.decided), 1.0)])
            assert definition.whole is not None
            return definition.whole(*self.arguments, space=space)
        if definition.factors is not None:
            raise RuleError(
                f"{self} is not linear and rules cannot bound it; maximize it by minimize=1 - {self} "
                "in solve()"
            )
        if not isinstance(space, definition.spaces):
            raise RuleError(
                f"{self.name}() is not defined if a decision is {space.description}; {definition.instead}",
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
            raise RuleError(f"{replace(self, share='')} equals {value} for every policy; leave it out")
        return Meaning(terms)

    def needs_label(self, space: ActionSpace) -> bool:
        """Return whether the rate depends on the true label."""
        if self.definition.factors is not None or self.definition.derived is not None:
            return True  # they are about each class
        terms = self.meaning(space).terms
        return LABEL in dict(self.conditions) or any(term.label is not None for term in terms)

    def given(self, extra: Mapping[str, Any]) -> Atom:
        conditions = dict(self._all_conditions)
        for name, value in extra.items():
            attribute = as_name(name, "an attribute in given()")
            if attribute in conditions:
                raise RuleError(f"conditions in given() must be new, got another {attribute!r} for {self}")
            definition = self.definition
            made_of_labels = definition.derived is not None or definition.factors is not None
            if attribute in (LABEL, DECISION) and (definition.is_quotient or made_of_labels):
                raise RuleError(
                    f"conditions of {self} must be groups, got {attribute}=: it already depends on "
                    "labels and decisions"
                )
            conditions[attribute] = as_scalar(value, f"the value of {attribute!r} in given()")
        decision = conditions.pop(DECISION, None)
        return replace(self, conditions=tuple(sorted(conditions.items())), decision=decision)

    @property
    def _all_conditions(self) -> Conditions:
        """The conditions as they are written in given(), including one on the decision."""
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
    """A linear combination of atoms, such as error() or rejected(), plus a constant.

    Parameters
    ----------
    terms : tuple of (Atom, float)
        The atoms and their coefficients.
    constant : float
        The number that is added.
    """

    terms: tuple[tuple[Atom, float], ...]
    constant: float = 0.0

    __array_ufunc__ = None  # so that np.float64(2) * rate reaches Rate.__rmul__

    @property
    def is_probability(self) -> bool:
        """Whether all terms are probabilities, so that values are shares of rows or differences of shares."""
        return all(atom.definition.probability for atom, _ in self.terms)

    @property
    def highest(self) -> float:
        """An upper bound of the rate over all policies; infinite if a term is not a probability."""
        if not self.is_probability:
            return math.inf
        return self.constant + sum(c for _, c in self.terms if c > 0)

    @property
    def lowest(self) -> float:
        """A lower bound of the rate over all policies; minus infinity if a term is not a probability."""
        return -(-self).highest

    def given(self, /, **conditions: Any) -> Rate:
        """Return this rate among the rows that satisfy conditions.

        Parameters
        ----------
        **conditions
            Attributes with the value of the group, such as `sex="Female"`. `label=` selects rows by their
            true label, and `decision=` conditions on the decision of the policy.

        Returns
        -------
        Rate
        """
        if not conditions:
            raise RuleError("given() must get a condition, such as given(sex='Female')")
        return _sum([(atom.given(conditions), c) for atom, c in self.terms], self.constant)

    def resolve(self, classes: Sequence[Value]) -> Rate:
        """Return the rate with rates such as balanced_error() replaced by the rates that define them."""
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
        """Return the rate as one ratio of linear rates; None if it contains no ratio."""
        if not any(atom.is_quotient for atom, _ in self.terms):
            return None
        numerator = self.multiply_out()
        whole = next(atom.whole for atom, _ in self.terms if atom.is_quotient)
        return Ratio(numerator, Rate(((whole, 1.0),)))

    def multiply_out(self) -> Rate:
        """Return a linear rate that is at most zero if and only if this rate is.

        It is the numerator plus the constant times the denominator.

        Raises
        ------
        RuleError
            If ratios have different denominators, or are added to rates that are not ratios.
        """
        if not any(atom.is_quotient for atom, _ in self.terms):
            return self
        wholes = {atom.whole if atom.is_quotient else None for atom, _ in self.terms}
        whole = wholes.pop()
        if wholes or whole is None:
            raise RuleError(
                f"{self} is not linear, since it compares a ratio, such as a rate given a decision, "
                "with another "
                "rate; bound it by a number, or compare groups by predictive_parity() in solve()"
            )
        return _sum([(atom.part, c) for atom, c in self.terms] + [(whole, self.constant)], 0.0)

    @property
    def is_linear(self) -> bool:
        """Whether no term is a ratio or a geometric mean of rates."""
        return not any(atom.is_quotient or atom.definition.factors is not None for atom, _ in self.terms)

    def by_event(self) -> dict[Event, Rate]:
        """Split the rate, without its constant, into a rate per event (the rows over which it is a mean)."""
        events = dict.fromkeys(atom.event for atom, _ in self.terms)
        return {e: Rate(tuple(term for term in self.terms if term[0].event == e)) for e in events}

    def by_condition(self) -> dict[Conditions, Rate]:
        """Split the rate without its constant into one rate per combination of conditions."""
        conditions = dict.fromkeys(atom.conditions for atom, _ in self.terms)
        return {c: Rate(tuple(term for term in self.terms if term[0].conditions == c)) for c in conditions}

    def __add__(self, other: Rate | float) -> Rate:
        if isinstance(other, Ratio):
            return NotImplemented
        other = as_rate(other)
        return _sum([*self.terms, *other.terms], self.constant + other.constant)

    def __mul__(self, factor: float) -> Rate:
        if isinstance(factor, Rate | Ratio):
            raise RuleError(
                "a rate must be multiplied by a number, got another rate: the product is not linear"
            )
        factor = check_number(factor, "the factor of a rate", RuleError)
        return _sum([(atom, c * factor) for atom, c in self.terms], self.constant * factor)

    def __truediv__(self, divisor: Any) -> Any:
        """Divide by a number, which gives a rate, or by a rate, which gives a `Ratio`."""
        if isinstance(divisor, Rate):
            return Ratio(self, divisor)
        divisor = check_number(divisor, "the divisor of a rate", RuleError)
        if divisor == 0:
            raise RuleError("the divisor of a rate must not be zero")
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
        raise RuleError("rules must use <= or >=, got < or >")

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
    """A rate divided by a rate. It is an objective, or makes a rule when it is compared with a number.

    Numbers can be added and multiplied; `a / b <= 0.05` is the linear rule `a <= 0.05 * b`.

    Parameters
    ----------
    numerator : Rate
        The rate that is divided.
    denominator : Rate
        The rate by which it is divided.
    """

    numerator: Rate
    denominator: Rate

    is_probability: ClassVar = False
    is_linear: ClassVar = False
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if not (self.numerator.is_linear and self.denominator.is_linear):
            raise RuleError(
                f"numerator and denominator must not be ratios themselves, got {self}; write it as one ratio"
            )
        if not self.denominator.terms:
            raise RuleError(
                f"the denominator must be a rate, got a number in {self}; multiply the rate by a number"
            )

    @property
    def terms(self) -> tuple[tuple[Atom, float], ...]:
        """The terms of the numerator and of the denominator."""
        return self.numerator.terms + self.denominator.terms

    def resolve(self, classes: Sequence[Value]) -> Ratio:
        """Return the ratio with rates such as balanced_error() replaced by the rates that define them."""
        return Ratio(self.numerator.resolve(classes), self.denominator.resolve(classes))

    def split(self) -> Ratio:
        return self

    def given(self, /, **conditions: Any) -> Ratio:
        """Return this ratio among the rows that satisfy conditions, as in `Rate.given`."""
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
                f"the ratio {self} must be combined or compared with a number, got a rate: that is not linear"
            )
        return check_number(number, "the number that a ratio is combined or compared with", RuleError)

    def __str__(self) -> str:
        return f"{_enclose(self.numerator)} / {_enclose(self.denominator)}"

    __repr__ = __str__


def _enclose(rate: Rate) -> str:
    """Format a rate, in parentheses if it is more than one atom."""
    alone = len(rate.terms) == 1 and rate.terms[0][1] == 1 and not rate.constant
    return str(rate) if alone else f"({rate})"


def _sum(terms: Iterable[tuple[Atom, float]], constant: float) -> Rate:
    """Return the sum of terms as a rate; like terms are merged, so that equal rates have equal text."""
    merged: dict[Atom, float] = {}
    for atom, coefficient in terms:
        merged[atom] = merged.get(atom, 0.0) + coefficient
    if not all(map(math.isfinite, [*merged.values(), constant])):
        raise RuleError("the coefficients of a rate must be finite")
    return Rate(tuple((a, c) for a, c in merged.items() if c), constant + 0.0)


def as_rate(value: Rate | float) -> Rate:
    """Convert a number to a constant rate; return a rate unchanged."""
    if isinstance(value, Rate):
        return value
    return Rate((), check_number(value, "the value that a rate is compared with or added to", RuleError))


@dataclass(frozen=True, repr=False)
class Rule:
    """One linear rule, with both sides as they were written.

    Parameters
    ----------
    left : Rate
        The left-hand side.
    sense : {"<=", ">="}
        The direction of the comparison.
    right : Rate
        The right-hand side.
    """

    is_band: ClassVar = False  # whether it bounds an absolute value

    left: Rate
    sense: Literal["<=", ">="]
    right: Rate

    def __post_init__(self) -> None:
        if not self.excess.terms:
            raise RuleError(f"a rule must depend on the decisions, got {self}")

    @cached_property
    def excess(self) -> Rate:
        """The rate that is at most zero if and only if the rule is satisfied."""
        return self.left - self.right if self.sense == "<=" else self.right - self.left

    @property
    def level(self) -> float:
        """The number that bounds the rule: its right-hand side, or the only coefficient there."""
        return _find_level(self.right, self)

    @property
    def factor(self) -> Rate | None:
        """The rate that the level multiplies: b in a >= 0.8 * b, which is a rule on the ratio a / b.

        None if the level is a bound, or multiplies a rate that can be negative.
        """
        side = self.right
        if len(side.terms) != 1 or side.constant or not (side.is_probability and self.is_linear):
            return None
        return Rate(((side.terms[0][0], 1.0),))

    @property
    def is_about_ratio(self) -> bool:
        """Whether the level of the rule bounds a ratio of rates, so that `excess` has another unit."""
        return self.factor is not None or not (self.excess.is_linear or self.right.terms)

    @property
    def denominators(self) -> list[Rate]:
        """The denominators of the ratios in the rule, such as b in a >= 0.8 * b."""
        if self.factor is not None:
            return [self.factor]
        return [Rate(((event.whole, 1.0),)) for event in self.excess.by_event() if event.whole is not None]

    @property
    def bounded(self) -> Rate | Ratio:
        """The expression that the rule bounds by a number: a ratio, or all rates moved to the left."""
        if self.factor is not None:
            return Ratio(self.left, self.factor)
        return replace(self.left - self.right, constant=0.0)

    @property
    def bound(self) -> float:
        """The number on the right-hand side after all rates are moved to the left-hand side."""
        return self.right.constant - self.left.constant

    @property
    def template(self) -> str:
        """The text of the rule with the word `level` in place of the number that bounds it."""
        return f"{self.left} {self.sense} {_format_template(self.right, self)}"

    @property
    def loosening(self) -> Literal[-1, 1]:
        """1 if a larger level makes the rule less strict, -1 if a smaller one does."""
        return 1 if self.sense == "<=" else -1

    def at(self, level: float) -> Rule:
        """Return the same rule with another level, the number that bounds it."""
        return replace(self, right=_set_level(self.right, level, self))

    @property
    def is_linear(self) -> bool:
        """Whether both sides, as they are written, contain no ratio."""
        return self.left.is_linear and self.right.is_linear

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        return (self,)

    def atoms(self) -> Iterable[Atom]:
        return (atom for side in (self.left, self.right) for atom, _ in side.terms)

    def __bool__(self) -> bool:
        raise RuleError(
            "a rule has no truth value; write two rules, rate >= 0.1 and rate <= 0.2, for 0.1 <= rate <= 0.2"
        )

    def __str__(self) -> str:
        return f"{self.left} {self.sense} {self.right}"

    __repr__ = __str__


Groups = Mapping[str, tuple[Value, ...]]


def _find_level(side: Rate, rule: Rule | Band) -> float:
    """Return the level on one side of a rule: a bound, or the coefficient of a single rate."""
    if not side.terms:
        return side.constant
    if len(side.terms) == 1 and not side.constant:
        return side.terms[0][1]
    raise RuleError(
        f"the right-hand side of a rule must contain a single number to be varied, got {rule}; write it like "
        "rejected() <= 0.1 or error() <= 0.05 * accepted()"
    )


def _format_template(side: Rate, rule: Rule | Band) -> str:
    _find_level(side, rule)
    return f"level * {side.terms[0][0]}" if side.terms else "level"


def _set_level(side: Rate, level: float, rule: Rule | Band) -> Rate:
    level = check_number(level, f"the level of {rule}", RuleError)
    _find_level(side, rule)
    return level * Rate(((side.terms[0][0], 1.0),)) if side.terms else as_rate(level)


@dataclass(frozen=True, repr=False)
class Magnitude:
    """The absolute value of a rate, which makes a rule when it is compared with a bound."""

    rate: Rate

    def __le__(self, limit: Rate | float) -> Band:
        return Band(self.rate, as_rate(limit))

    def __ge__(self, limit: object) -> Band:
        raise RuleError("rules on abs(rate) must use <=, got >=, which is not convex")

    def __lt__(self, limit: object) -> Band:
        raise RuleError("rules on abs(rate) must use <=, got < or >")

    __gt__ = __lt__

    def __str__(self) -> str:
        return f"abs({self.rate})"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class Band:
    """The rule abs(rate) <= limit, which is short for two linear rules.

    Parameters
    ----------
    rate : Rate
        The rate whose absolute value is bounded.
    limit : Rate
        The bound.
    """

    is_band: ClassVar = True
    loosening: ClassVar[Literal[-1, 1]] = 1  # a larger level makes the rule less strict

    rate: Rate
    limit: Rate

    def __post_init__(self) -> None:
        if not self.rate.terms:
            raise RuleError(f"a rule must depend on the decisions, got {self}")

    @property
    def level(self) -> float:
        """The number that bounds the rule: its limit, or the only coefficient in the limit."""
        return _find_level(self.limit, self)

    @property
    def template(self) -> str:
        """The text of the rule with the word `level` in place of the number that bounds it."""
        return f"abs({self.rate}) <= {_format_template(self.limit, self)}"

    def at(self, level: float) -> Band:
        """Return the same rule with another level, the number that bounds it."""
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


OVERALL = 0.01  # the weight of the rate over all rows, next to the weight 1 of the worst group


@dataclass(frozen=True, repr=False)
class Worst:
    """The largest rate of any group, the maximum over groups g of rate.given(g), made by `worst`.

    Parameters
    ----------
    rate : Rate
        The rate.
    by : tuple of str
        The attributes of the groups; several for their intersections.
    """

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
        """Whether the rate of each group is linear."""
        return self.rate.is_linear

    def list_groups(self, classes: Sequence[Value], groups: Groups) -> tuple[Conditions, ...]:
        """Return the conditions of every group, such as (("sex", "F"), ("race", "A"))."""
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

        With the least favorable weights it has the same optimal policy as the worst group's rate. The rate
        over all rows is added with a small weight, which selects the best of several optimal policies.
        """
        parts = [weight * self.given(group) for group, weight in weights.items()]
        return sum(parts, OVERALL * self.rate)

    def compare(self, reference: Conditions, others: Sequence[Conditions]) -> tuple[Rule, ...]:
        """Return rules which require that no other group has a larger rate than the group `reference`."""
        return tuple(-self.given(reference) + self.given(group) <= 0 for group in others)

    def _refuse(self, other: object) -> NoReturn:
        raise RuleError(
            f"{self} must be minimized alone: it cannot be part of a rule or a sum. To bound every "
            "group, write a "
            "rule for each, such as error().given(race='a') <= 0.1; write sums of rates inside worst()"
        )

    __le__ = __ge__ = __lt__ = __gt__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse

    def __str__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else self.by
        return f"worst({self.rate}, by={by!r})"

    __repr__ = __str__


Objective = Rate | Ratio | Worst  # what a problem minimizes


def worst(rate: Rate | str, by: Any) -> Worst:
    """Return the largest rate of any group, to be minimized: minimax fairness (Rawls).

    Among policies with the same largest rate, the one with the lowest rate over all rows is best: the rate
    over all rows is added to the objective with a weight of 0.01.

    Parameters
    ----------
    rate : Rate or str
        A rate such as `error()`, `cost(...)` or `size()`, a sum of rates, or its text.
    by : str or tuple
        The attribute that defines the groups, such as "race"; a tuple such as ("sex", "race") for
        intersections. "label" stands for the true label.

    Returns
    -------
    Worst
        The objective, for `Problem(minimize=...)`. It cannot be part of a sum or a rule.

    Raises
    ------
    RuleError
        If the rate is a ratio, or an argument has another type.

    Examples
    --------
    >>> from bylaw import error
    >>> worst(error(), by="race")
    worst(error(), by='race')
    >>> worst(error(), by=("sex", "race"))
    worst(error(), by=('sex', 'race'))
    """
    if isinstance(rate, str):
        from bylaw.language._problem import parse  # which knows this function

        rate = parse(rate)  # type: ignore[assignment]
    if not isinstance(rate, Rate) or not rate.terms:
        raise RuleError(f"the rate in worst() must be a rate such as error(), got {rate!r}")
    if not rate.is_linear:
        raise RuleError(f"the rate in worst() must be linear, such as error(), got the ratio {rate}")
    names = by if isinstance(by, tuple) else (by,)
    if not names or not all(isinstance(name, str) for name in names):
        raise RuleError(
            f"by in worst() must be an attribute such as 'race', 'label', or a tuple of these for "
            f"intersections, got {by!r}"
        )
    if len(set(names)) < len(names):
        raise RuleError(f"the attributes in by must differ from each other, got {names}")
    for atom, _ in rate.terms:
        if taken := sorted(set(names).intersection(dict(atom.conditions))):
            raise RuleError(
                f"by in worst() must not contain {taken[0]!r}, since {atom} is already conditioned on it"
            )
    return Worst(rate, tuple(as_name(name, "an attribute") for name in names))
