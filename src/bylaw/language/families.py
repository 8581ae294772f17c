"""Named families of rules, expanded when the classes and the groups are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from bylaw._base.typing import Value
from bylaw._base.validation import as_name, as_scalar, check_nonnegative
from bylaw.errors import RuleError
from bylaw.language.expressions import DECISION, LABEL, Atom, Band, Groups, Rate, Rule, format_number
from bylaw.language.rates import error, miscoverage, precision, rejected, selected

Attributes = tuple[str, ...]
Tolerance = float | tuple[tuple[Any, float], ...]  # a number, or pairs (group, number)
Between = Literal["overall", "groups"]


@dataclass(frozen=True, repr=False)
class Family:
    """Rules for every group of some attributes, and for every label where that applies.

    `attributes` holds one tuple per partition of the rows: ("sex",) is one attribute,
    ("sex", "race") their intersections.
    """

    name: str
    attributes: tuple[Attributes, ...]
    level: Tolerance
    between: Between
    labels: tuple[Value, ...] | None = None

    def at(self, level: float) -> Family:
        """Return the same family at another level."""
        if isinstance(self.level, tuple):
            raise RuleError(
                f"{self} has a tolerance per group, and one level cannot replace them; state it with a "
                "single number, or write a rule per group and sweep one of those"
            )
        return replace(
            self,
            level=check_nonnegative(level, f"{self.name}: {self.definition.level_name}", RuleError),
        )

    @property
    def definition(self) -> FamilyDefinition:
        return FAMILIES[self.name]

    @property
    def is_band(self) -> bool:
        """Whether its rules bound differences on both sides."""
        return not self.definition.ratio

    @property
    def loosening(self) -> Literal[-1, 1]:
        """The direction in which the level loosens the rules."""
        return -1 if self.definition.ratio else 1

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        """Return one rule, or two, per group and label, in the order of the paper.

        Without classes, there are rules for each option.
        """
        if self.labels is not None and (unknown := set(self.labels) - {*classes, *options}):
            beside = f", the options {list(options)}" if options else ""
            raise RuleError(
                f"{self}: no such class as {sorted(map(str, unknown))}; the classes are "
                f"{list(classes)}{beside}"
            )
        labels = self.labels if self.labels is not None else classes or options
        compared, rules = self.definition.compared(labels, classes), list[Rule]()
        if not compared:
            raise RuleError(f"{self} compares rows of the same true label, and there are no classes")
        for attributes in self.attributes:
            cells = self._list_cells(attributes, groups, classes)
            for rate in compared:
                rates = {cell: rate.given(**dict(zip(attributes, cell, strict=True))) for cell in cells}
                pairs = [(cell, rate) for cell in cells]
                if self.between == "groups":
                    pairs = [(cell, rates[other]) for cell, other in itertools.permutations(cells, 2)]
                for cell, there in pairs:
                    here, level = rates[cell], self._level_of(cell, rate)
                    if self.definition.ratio:
                        rules.append(here >= level * there)
                    elif self.between == "groups":  # the permutation holds the other side of the band
                        rules.append(here - there <= level)
                    else:
                        rules += Band(here - there, level + Rate(())).expand((), {})
        return tuple(rules)

    def _level_of(self, cell: tuple, rate: Rate) -> float:
        if not isinstance(self.level, tuple):
            return self.level
        levels = dict(self.level)
        group = _group_key(cell)
        label = dict(rate.terms[0][0].conditions).get(LABEL)
        return levels[(group, label)] if (group, label) in levels else levels[group]

    def _list_cells(self, attributes: Attributes, groups: Groups, classes: Sequence[Value]) -> list[tuple]:
        """Return the groups of some attributes; raise unless there are several, each with a tolerance."""
        for name in attributes:
            if name not in groups:
                raise RuleError(f"{self}: no group column {name!r}; the evidence has {sorted(groups)}")
            if len(groups[name]) < 2:
                raise RuleError(
                    f"{self}: {name!r} has the single value {groups[name]}; there is nothing to compare"
                )
        cells = list(itertools.product(*(groups[name] for name in attributes)))
        if isinstance(self.level, tuple):
            # A tolerance is that of a group, or of a group and a true label that the family distinguishes.
            rates = self.definition.compared(classes if self.labels is None else self.labels, classes)
            events = [dict(rate.terms[0][0].conditions) for rate in rates]
            labels = {event[LABEL] for event in events if LABEL in event}
            wanted, given = {_group_key(cell) for cell in cells}, set(dict(self.level))
            if unknown := given - wanted - {(group, label) for group in wanted for label in labels}:
                raise RuleError(f"{self}: a tolerance is given for {unknown}, but the groups are {wanted}")
            if missing := {
                group
                for group in wanted - given
                if not labels or not all((group, label) in given for label in labels)
            }:
                raise RuleError(f"{self}: no tolerance is given for {missing}")
        return cells

    @property
    def compares_quotients(self) -> bool:
        """Whether its rules are differences of quotients, which are not linear."""
        return self.definition.compares_quotients

    def atoms(self) -> Iterator[Atom]:
        """Yield examples of the rates used, enough to infer the kind of decisions."""
        return (atom for rate in self.definition.compared([0], [0]) for atom, _ in rate.terms)

    def __bool__(self) -> bool:
        raise RuleError("a family of rules has no truth value; pass it to Problem(rules=[...])")

    @property
    def template(self) -> str:
        """Its text, with `level` in place of the number."""
        return self._format("level")

    def __str__(self) -> str:
        if not isinstance(self.level, tuple):
            return self._format(format_number(self.level))
        return self._format("{" + ", ".join(f"{k!r}: {format_number(v)}" for k, v in self.level) + "}")

    def _format(self, level: str) -> str:
        shown = [a[0] if len(a) == 1 else a for a in self.attributes]
        definition = self.definition
        parts = [repr(shown[0] if len(shown) == 1 else shown)]
        parts.append(f"{definition.level_name}={level}")
        if self.between != definition.default_between:
            parts.append(f"between={self.between!r}")
        if self.labels is not None:
            parts.append(f"labels={list(self.labels)!r}")
        return f"{self.name}({', '.join(parts)})"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class FamilyAtLevels(Family):
    """A family that compares quotients, near a common level for each label.

    Its rules bound single quotients, which are linear once they are multiplied out: within the tolerance of
    the level or, between groups, within half of it.
    """

    common: tuple[tuple[float, ...], ...] = ()  # levels: for each partition, one for each label

    @property
    def compares_quotients(self) -> bool:
        """Whether its rules are differences of quotients: with levels, they are not."""
        return False

    @property
    def share(self) -> float:
        """The share of the tolerance on each side of the level."""
        return 0.5 if self.between == "groups" else 1.0

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        rates = self.definition.compared(classes if self.labels is None else self.labels, classes)
        for attributes, levels in zip(self.attributes, self.common, strict=True):
            cells = self._list_cells(attributes, groups, classes)
            for rate, level in zip(rates, levels, strict=True):
                for cell in cells:
                    tol = self.share * self._level_of(cell, rate)
                    here = rate.given(**dict(zip(attributes, cell, strict=True)))
                    rules += hold_within(here, level - tol, level + tol)
        return tuple(rules)


def hold_within(rate: Rate, low: float, high: float) -> Iterator[Rule]:
    """Yield the rules that hold a share of cases between two numbers in (0, 1)."""
    if high < 1:
        yield rate <= high
    if low > 0:
        yield rate >= low


class FamilyDefinition(NamedTuple):
    """The rates that a family compares between groups, in which sense, and the wording of reports."""

    constructor: Callable[..., Family]  # the public function
    compared: Callable[[Sequence[Value], Sequence[Value]], list[Rate]]  # of labels and classes, without group
    # Completed by "at a rate within ...": {who}, {decision}, {label}, {true_label}, {whole} are filled in.
    phrase: str
    set_phrase: str = ""  # the same, where a decision is a set
    ratio: bool = False  # rate >= level * other rate; otherwise their difference is within the level
    default_between: Between = "overall"
    compares_quotients: bool = False  # whose differences are not linear

    @property
    def level_name(self) -> str:
        """The name of the argument that is the level."""
        return "ratio" if self.ratio else "tol"


def demographic_parity(
    attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None
) -> Family:
    """Return demographic parity: abs(P(decision = y | group) - P(decision = y)) <= tol.

    The rules are for every group and label y. It is also called statistical parity.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.
    labels : list, optional
        the labels that the rules refer to; all by default, and where there are no classes all options.
        Options beside the labels are meant where they are named.

    Examples
    --------
    >>> demographic_parity('sex', tol=0.02)
    demographic_parity('sex', tol=0.02)
    """
    return _family("demographic_parity", attributes, tol, between, labels)


def equalized_odds(attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None) -> Family:
    """Return equalized odds: abs(P(decision = y | group, Y = t) - P(decision = y | Y = t)) <= tol.

    The rules are for every group, decision y and true label t.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}, or
        one per group and true label, {("Female", 1): 0.01, ...}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.
    labels : list, optional
        the labels that the rules refer to; all by default.

    Examples
    --------
    >>> equalized_odds(['sex', 'race'], tol=0.05, between='groups')
    equalized_odds(['sex', 'race'], tol=0.05, between='groups')
    """
    return _family("equalized_odds", attributes, tol, between, labels)


def equal_opportunity(
    attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None
) -> Family:
    """Return equal opportunity: abs(P(decision = y | group, Y = y) - P(decision = y | Y = y)) <= tol.

    The rules are for every group and label y.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}, or
        one per group and true label, {("Female", 1): 0.01, ...}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.
    labels : list, optional
        the labels that the rules refer to; all by default.

    Examples
    --------
    >>> equal_opportunity('race', tol=0.03, labels=['hire'])
    equal_opportunity('race', tol=0.03, labels=['hire'])
    """
    return _family("equal_opportunity", attributes, tol, between, labels)


def disparate_impact(
    attributes: Any, *, ratio: Any = 0.8, between: Between = "groups", labels: Any = None
) -> Family:
    """Return the four-fifths rule: P(decision = y | group) >= ratio * P(decision = y | other group).

    The rules are for every pair of groups and every label y.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    ratio : float or dict
        the smallest ratio of rates: a number, or one per group.
    between : {"groups", "overall"}
        compare all pairs of groups, or each group with all rows.
    labels : list, optional
        the labels that the rules refer to; all by default. Name the favorable outcome. An option may be
        named, too.

    Examples
    --------
    >>> disparate_impact('sex', labels=['hire'])
    disparate_impact('sex', ratio=0.8, labels=['hire'])
    """
    return _family("disparate_impact", attributes, ratio, between, labels)


def error_parity(attributes: Any, *, tol: Any, between: Between = "overall") -> Family:
    """Return error parity: abs(error().given(group) - error()) <= tol, for every group.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.

    Examples
    --------
    >>> error_parity('sex', tol=0.01)
    error_parity('sex', tol=0.01)
    """
    return _family("error_parity", attributes, tol, between, None)


def predictive_parity(
    attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None
) -> Family:
    """Return predictive parity: abs(P(Y = y | decision = y, group) - P(Y = y | decision = y)) <= tol.

    The rules are for every group and label y: a decision is right equally often in every group. These are
    differences of quotients, which are not linear: `solve` holds the precision of each group near a common
    level, and searches for the level of least cost. A group to which a label is never decided has no
    precision, and its rules hold.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.
    labels : list, optional
        the labels that the rules refer to; all by default. Name the favorable outcome.

    Examples
    --------
    >>> predictive_parity('sex', tol=0.05, labels=['hire'])
    predictive_parity('sex', tol=0.05, labels=['hire'])
    """
    return _family("predictive_parity", attributes, tol, between, labels)


def rejection_parity(attributes: Any, *, tol: Any, between: Between = "overall") -> Family:
    """Return rejection parity: abs(rejected().given(group) - rejected()) <= tol, for every group.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.

    Examples
    --------
    >>> rejection_parity(('sex', 'race'), tol=0.03)
    rejection_parity(('sex', 'race'), tol=0.03)
    """
    return _family("rejection_parity", attributes, tol, between, None)


def coverage_parity(attributes: Any, *, tol: Any, between: Between = "overall") -> Family:
    """Return coverage parity: abs(miscoverage().given(group) - miscoverage()) <= tol, for all groups.

    Parameters
    ----------
    attributes : str, list or tuple
        "sex"; or ["sex", "race"], each attribute separately; or ("sex", "race"), their intersections.
    tol : float or dict
        the largest difference: a number, or one per group, {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        compare each group with all rows, or all pairs of groups.

    Examples
    --------
    >>> coverage_parity('sex', tol=0.01)
    coverage_parity('sex', tol=0.01)
    """
    return _family("coverage_parity", attributes, tol, between, None)


def _family(name: str, attributes: Any, level: Any, between: Any, labels: Any) -> Family:
    """Return a family of checked arguments."""
    if between not in ("overall", "groups"):
        raise RuleError(f"{name}: between must be 'overall' or 'groups', not {between!r}")
    partitions, word = list[Attributes](), FAMILIES[name].level_name
    for part in attributes if isinstance(attributes, list) else [attributes]:
        names = part if isinstance(part, tuple) else (part,)
        if not names or not all(isinstance(one, str) and one not in (LABEL, DECISION) for one in names):
            raise RuleError(
                f"an attribute is a column name like 'sex', an intersection a tuple of them; got {part!r}"
            )
        if len(set(names)) < len(names):
            raise RuleError(f"the intersection {names} names an attribute twice")
        partitions.append(tuple(as_name(one, "an attribute") for one in names))
    if not partitions:
        raise RuleError(f"{name} needs at least one attribute")
    per_group = isinstance(level, Mapping)
    if per_group:
        if not level:
            raise RuleError(f"{name}: {word} has no entries")
        level = tuple((_key(k), _fraction(v, f"{name}: {word}[{k!r}]", word)) for k, v in level.items())
    else:
        level = _fraction(level, f"{name}: {word}", word)
    if labels is not None:
        if isinstance(labels, str) or not isinstance(labels, Sequence) or not labels:
            raise RuleError(f"{name}: labels must be a list of classes, such as labels=['>50K']")
        labels = tuple(as_scalar(label, "a label") for label in labels)
    if per_group and (len(partitions) > 1 or between == "groups"):
        raise RuleError(
            f"{name}: one tolerance per group needs a single attribute and between='overall'; write one "
            "family per attribute"
        )
    return Family(name, tuple(partitions), level, between, labels)


def _fraction(value: Any, what: str, word: str) -> float:
    value = check_nonnegative(value, what, RuleError)
    if value > 1 or (value == 1 and word == "tol"):
        advice = "0.01 for one point" if word == "tol" else "0.8 for four fifths"
        raise RuleError(f"{what} is a fraction, and {format_number(value)} is too large: write {advice}")
    return value


def _key(key: Any) -> Any:
    return tuple(map(_key, key)) if isinstance(key, tuple) else as_scalar(key, "a group")


def _group_key(cell: tuple) -> Any:
    return cell[0] if len(cell) == 1 else cell


def _selected_by_label(labels: Sequence[Value], _: Sequence[Value]) -> list[Rate]:
    return [selected(y) for y in labels]


_DECISION = "{decision} given to {who}"
_MEMBERSHIP = "{label} in the sets of {who}"
_SAME_LABEL = "among cases with the same true label, "

FAMILIES: dict[str, FamilyDefinition] = {
    definition.constructor.__name__: definition
    for definition in (
        FamilyDefinition(demographic_parity, _selected_by_label, _DECISION, _MEMBERSHIP),
        FamilyDefinition(
            equalized_odds,
            lambda labels, classes: [selected(y).given(label=t) for t in classes for y in labels],
            _SAME_LABEL + _DECISION,
            _SAME_LABEL + _MEMBERSHIP,
        ),
        FamilyDefinition(
            equal_opportunity,
            lambda labels, _: [selected(y).given(label=y) for y in labels],
            "for {true_label}, {who} gets that label as its decision",
            "for {true_label}, {who} gets that label in its sets",
        ),
        FamilyDefinition(
            disparate_impact,
            _selected_by_label,
            _DECISION,
            _MEMBERSHIP,
            ratio=True,
            default_between="groups",
        ),
        FamilyDefinition(error_parity, lambda *_: [error()], "{who} is answered wrongly"),
        FamilyDefinition(
            predictive_parity,
            lambda labels, _: [precision(y) for y in labels],
            "{whole}, {who} has that label as its true one",
            compares_quotients=True,
        ),
        FamilyDefinition(rejection_parity, lambda *_: [rejected()], "{who} is referred"),
        FamilyDefinition(
            coverage_parity, lambda *_: [miscoverage()], "{who} gets sets that miss the true label"
        ),
    )
}
