"""Families of rules, such as demographic parity: rules of the same kind for every group and label."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from bylaw._base import Value, as_name, as_scalar, check_nonnegative
from bylaw.errors import RuleError
from bylaw.language._expressions import DECISION, LABEL, Atom, Band, Groups, Rate, Rule, format_number
from bylaw.language._rates import error, miscoverage, precision, rejected, selected

Attributes = tuple[str, ...]
Tolerance = float | tuple[tuple[Any, float], ...]  # a number, or pairs (group, number)
Between = Literal["overall", "groups"]


@dataclass(frozen=True, repr=False)
class Family:
    """Rules of the same kind for every group of some attributes and, in some families, for every label.

    Parameters
    ----------
    name : str
        The name of the family, such as "demographic_parity".
    attributes : tuple of tuple of str
        One tuple per partition of the rows: ("sex",) for one attribute, ("sex", "race") for intersections.
    level : float or tuple
        The number that bounds every rule, or pairs of a group and its number.
    between : {"overall", "groups"}
        Whether each group is compared with all rows or with every other group.
    labels : tuple, optional
        The labels that the rules refer to; all by default.
    """

    name: str
    attributes: tuple[Attributes, ...]
    level: Tolerance
    between: Between
    labels: tuple[Value, ...] | None = None

    def at(self, level: float) -> Family:
        """Return the same family with another level, the number that bounds its rules."""
        if isinstance(self.level, tuple):
            raise RuleError(
                f"{self} has one tolerance per group, which a single level cannot replace; give it a single "
                "number, or write a rule for each group and vary one of these"
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
        """Whether the rules bound the absolute value of a difference, rather than a ratio."""
        return not self.definition.ratio

    @property
    def loosening(self) -> Literal[-1, 1]:
        """1 if a larger level makes the rules less strict, -1 if a smaller one does."""
        return -1 if self.definition.ratio else 1

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> tuple[Rule, ...]:
        """Return the single rules, for every group and label.

        Without classes, the options take the place of the labels.
        """
        if self.labels is not None and (unknown := set(self.labels) - {*classes, *options}):
            beside = f" and options {list(options)}" if options else ""
            raise RuleError(
                f"the labels of {self} must be among the classes {list(classes)}{beside}, "
                f"got {sorted(map(str, unknown))}"
            )
        labels = self.labels if self.labels is not None else classes or options
        compared, rules = self.definition.compared(labels, classes), list[Rule]()
        if not compared:
            raise RuleError(
                f"{self} compares rows with the same true label, but the problem has options only and "
                "no classes"
            )
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
                    elif self.between == "groups":  # the pair in reverse order bounds the other side
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
        """Return all groups of some attributes; raise if there is only one, or one has no tolerance."""
        for name in attributes:
            if name not in groups:
                raise RuleError(f"{self}: no group column {name!r}; the evidence has {sorted(groups)}")
            if len(groups[name]) < 2:
                raise RuleError(f"{self} compares groups, but {name!r} has the single value {groups[name]}")
        cells = list(itertools.product(*(groups[name] for name in attributes)))
        if isinstance(self.level, tuple):
            # A tolerance is for a group, or for a group and a true label if the family compares true labels.
            rates = self.definition.compared(classes if self.labels is None else self.labels, classes)
            events = [dict(rate.terms[0][0].conditions) for rate in rates]
            labels = {event[LABEL] for event in events if LABEL in event}
            wanted, given = {_group_key(cell) for cell in cells}, set(dict(self.level))
            if unknown := given - wanted - {(group, label) for group in wanted for label in labels}:
                raise RuleError(
                    f"the tolerances of {self} must be for the groups {wanted}, got one for {unknown}"
                )
            if missing := {
                group
                for group in wanted - given
                if not labels or not all((group, label) in given for label in labels)
            }:
                raise RuleError(f"{self} must have a tolerance for every group; add one for {missing}")
        return cells

    @property
    def compares_quotients(self) -> bool:
        """Whether the rules bound differences of ratios, which are not linear."""
        return self.definition.compares_quotients

    def atoms(self) -> Iterator[Atom]:
        """Return examples of the rates that the rules use, from which the kind of decisions is inferred."""
        return (atom for rate in self.definition.compared([0], [0]) for atom, _ in rate.terms)

    def __bool__(self) -> bool:
        raise RuleError("a family of rules has no truth value; pass it to Problem(rules=[...])")

    @property
    def template(self) -> str:
        """The text of the family with the word `level` in place of the number that bounds its rules."""
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
    """A family that compares ratios, replaced by linear rules that keep each ratio near a common level.

    For each label, the ratio of every group must be within the tolerance of the label's common level; if
    pairs of groups are compared, within half of the tolerance.
    """

    common: tuple[tuple[float, ...], ...] = ()  # for each partition, the common level of each label

    @property
    def compares_quotients(self) -> bool:
        """Whether the rules bound differences of ratios: False, since each ratio is bounded separately."""
        return False

    @property
    def share(self) -> float:
        """The largest distance of a ratio to the common level, as a share of the tolerance."""
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
    """Yield the rules that bound a rate between two numbers; bounds outside (0, 1) are left out."""
    if high < 1:
        yield rate <= high
    if low > 0:
        yield rate >= low


class FamilyDefinition(NamedTuple):
    """The rates that a family compares between groups, how it compares them, and the wording in reports."""

    constructor: Callable[..., Family]  # the public function
    compared: Callable[[Sequence[Value], Sequence[Value]], list[Rate]]  # a function of labels and classes
    # The start of the sentence "... at a rate within ...", with placeholders such as {who} and {decision}.
    phrase: str
    set_phrase: str = ""  # the same if decisions are sets
    ratio: bool = (
        False  # whether rules are rate >= level * other rate, rather than abs(rate - other rate) <= level
    )
    default_between: Between = "overall"
    compares_quotients: bool = False  # whether the rates are ratios, so that their differences are not linear

    @property
    def level_name(self) -> str:
        """The name of the argument that sets the level."""
        return "ratio" if self.ratio else "tol"


def demographic_parity(
    attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None
) -> Family:
    """Return demographic parity: abs(P(decision = y | group) - P(decision = y)) <= tol.

    There is a rule for every group and label y. Another name is statistical parity.

    Parameters
    ----------
    attributes : str, list or tuple
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").
    labels : list, optional
        The labels that the rules refer to; all by default, or all options if there are no classes. Other
        options must be named.

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

    Examples
    --------
    >>> demographic_parity('sex', tol=0.02)
    demographic_parity('sex', tol=0.02)
    """
    return _family("demographic_parity", attributes, tol, between, labels)


def equalized_odds(attributes: Any, *, tol: Any, between: Between = "overall", labels: Any = None) -> Family:
    """Return equalized odds: abs(P(decision = y | group, Y = t) - P(decision = y | Y = t)) <= tol.

    There is a rule for every group, decision y and true label t; Y is the true label.

    Parameters
    ----------
    attributes : str, list or tuple
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}, or one per group and
        true label as in {("Female", 1): 0.01, ...}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").
    labels : list, optional
        The decisions y that the rules refer to; all labels by default.

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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

    There is a rule for every group and label y; Y is the true label.

    Parameters
    ----------
    attributes : str, list or tuple
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}, or one per group and
        true label as in {("Female", 1): 0.01, ...}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").
    labels : list, optional
        The labels that the rules refer to; all by default.

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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

    There is a rule for every pair of groups and every label y.

    Parameters
    ----------
    attributes : str, list or tuple
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    ratio : float or dict
        The smallest ratio of rates, or one per group.
    between : {"groups", "overall"}
        Compare each group with every other group ("groups") or with all rows ("overall").
    labels : list, optional
        The labels or options that the rules refer to, usually the favorable outcome; all labels by default.

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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

    There is a rule for every group and label y: a decision is correct equally often in every group (Y is the
    true label). These rates are ratios and their differences are not linear. `solve` therefore bounds the
    precision of each group near a common level, and searches for the level with the least cost. If a label is
    never assigned in a group, its precision in that group is undefined, and the group's rule for the label is
    satisfied.

    Parameters
    ----------
    attributes : str, list or tuple
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").
    labels : list, optional
        The labels that the rules refer to, usually the favorable outcome; all by default.

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

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
        The attributes whose groups are compared: a name such as "sex", a list such as ["sex", "race"] for
        each attribute separately, or a tuple such as ("sex", "race") for their intersections.
    tol : float or dict
        The largest difference, or one per group as in {"Female": 0.01, "Male": 0.02}.
    between : {"overall", "groups"}
        Compare each group with all rows ("overall") or with every other group ("groups").

    Returns
    -------
    Family
        The rules, for `Problem(rules=...)`.

    Examples
    --------
    >>> coverage_parity('sex', tol=0.01)
    coverage_parity('sex', tol=0.01)
    """
    return _family("coverage_parity", attributes, tol, between, None)


def _family(name: str, attributes: Any, level: Any, between: Any, labels: Any) -> Family:
    """Validate the arguments of a family and return the family."""
    if between not in ("overall", "groups"):
        raise RuleError(f"between in {name}() must be 'overall' or 'groups', got {between!r}")
    partitions, word = list[Attributes](), FAMILIES[name].level_name
    for part in attributes if isinstance(attributes, list) else [attributes]:
        names = part if isinstance(part, tuple) else (part,)
        if not names or not all(isinstance(one, str) and one not in (LABEL, DECISION) for one in names):
            raise RuleError(
                "an attribute must be a name such as 'sex', or a tuple of names for intersections, "
                f"got {part!r}"
            )
        if len(set(names)) < len(names):
            raise RuleError(f"the attributes of an intersection must differ from each other, got {names}")
        partitions.append(tuple(as_name(one, "an attribute") for one in names))
    if not partitions:
        raise RuleError(f"{name}() must get at least one attribute, got []")
    per_group = isinstance(level, Mapping)
    if per_group:
        if not level:
            raise RuleError(f"{word} in {name}() must have an entry for each group, got {{}}")
        level = tuple((_key(k), _fraction(v, f"{name}: {word}[{k!r}]", word)) for k, v in level.items())
    else:
        level = _fraction(level, f"{name}: {word}", word)
    if labels is not None:
        if isinstance(labels, str) or not isinstance(labels, Sequence) or not labels:
            raise RuleError(f"labels in {name}() must be a list of classes, such as ['>50K'], got {labels!r}")
        labels = tuple(as_scalar(label, "a label") for label in labels)
    if per_group and (len(partitions) > 1 or between == "groups"):
        raise RuleError(
            f"{word} in {name}() must be a number if there are several attributes or "
            "between='groups', got one "
            "per group; write one family per attribute, with between='overall'"
        )
    return Family(name, tuple(partitions), level, between, labels)


def _fraction(value: Any, what: str, word: str) -> float:
    value = check_nonnegative(value, what, RuleError)
    if value > 1 or (value == 1 and word == "tol"):
        advice = "0.01 for one point" if word == "tol" else "0.8 for four fifths"
        raise RuleError(f"{what} must be a fraction, got {format_number(value)}; write {advice}")
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
