"""A problem: what to minimise, under which rules. Frozen, and free of data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bylaw._base.typing import Value
from bylaw._base.validation import as_scalar
from bylaw.errors import OptionError, RuleError
from bylaw.language.action_space import (
    ActionSpace,
    Kind,
    LabelSpace,
    RejectSpace,
    SetSpace,
    make_action_space,
)
from bylaw.language.expressions import LABEL, Atom, Band, Groups, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement, parse
from bylaw.language.worst import Objective, Worst


class ExpandedRule(NamedTuple):
    """A single rule, and the statement of the problem that it is part of."""

    rule: Rule
    statement: Statement
    place: int  # of the statement among the problem's rules


@dataclass(frozen=True, repr=False)
class Problem:
    """Minimise a rate subject to rules. Frozen, and free of data.

    Parameters
    ----------
    minimize : Rate, Worst or str
        a rate, `worst(rate, by=...)`, or the text of either.
    rules : list of Rule, Band, Family or str
        rules and families, or their texts.
    classes : list, optional
        the labels, if they should be checked against the evidence's.
    decisions : {"auto", "labels", "reject", "sets"}
        one label per row, a label or a rejection, or a set of labels; "auto" infers it from the rates used.
    reject : str, int, float or bool
        the label that a rejection gets in the decisions.

    Examples
    --------
    >>> from bylaw import demographic_parity, error, rejected
    >>> Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1])
    minimize error()
    subject to
      demographic_parity('sex', tol=0.02)
      rejected() <= 0.1
    """

    minimize: Objective
    rules: tuple[Statement, ...] = ()
    classes: tuple[Value, ...] | None = None
    decisions: Kind | Literal["auto"] = "auto"
    reject: Value = "reject"

    def __init__(
        self,
        minimize: Objective | str,
        rules: Sequence[Statement | str] | Statement | str = (),
        classes: Sequence[Any] | None = None,
        decisions: Kind | Literal["auto"] = "auto",
        reject: Any = "reject",
    ) -> None:
        if isinstance(rules, Rule | Band | Family | str):
            rules = [rules]
        set_field = object.__setattr__
        set_field(self, "minimize", _objective(minimize))
        set_field(self, "rules", tuple(_statement(i, rule) for i, rule in enumerate(rules)))
        set_field(
            self, "classes", None if classes is None else tuple(as_scalar(c, "a class") for c in classes)
        )
        set_field(self, "decisions", decisions)
        set_field(self, "reject", as_scalar(reject, "the label of a rejection"))
        _ = self.kind  # a mix of kinds is refused now

    @property
    def kind(self) -> Kind:
        """The kind of decisions, as stated or as the rates imply: "labels", "reject" or "sets"."""
        return self._space_type.kind

    @property
    def _space_type(self) -> type[ActionSpace]:
        if self.decisions != "auto":
            return type(make_action_space(self.decisions, ()))  # an unknown kind is refused
        implied = {atom.implies: atom.name for atom in self._atoms() if atom.implies}
        if len(implied) > 1:
            raise RuleError(
                f"{implied[RejectSpace]}() refers to rejections and {implied[SetSpace]}() to sets of labels; "
                "a problem has one kind of decisions"
            )
        return next(iter(implied), LabelSpace)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The groups that the rules and the objective refer to."""
        named = [
            name for rule in self.rules if isinstance(rule, Family) for p in rule.attributes for name in p
        ]
        if isinstance(self.minimize, Worst):
            named += [name for name in self.minimize.by if name != LABEL]
        named += [name for atom in self._atoms() for name, _ in atom.conditions if name != LABEL]
        return tuple(dict.fromkeys(named))

    @property
    def references(self) -> tuple[str, ...]:
        """The earlier models that the rules and the objective refer to."""
        compared = [atom.reads("reference") for atom in self._atoms()]
        return tuple(dict.fromkeys(name for name in compared if name is not None))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The cost arrays that the rules and the objective read."""
        arrays = [atom.reads("cost") for atom in self._atoms() if atom.function is None]
        return tuple(dict.fromkeys(name for name in arrays if name is not None))

    @property
    def functions(self) -> tuple[str, ...]:
        """The costs that Python functions compute."""
        computed = [atom.reads("cost") for atom in self._atoms() if atom.function is not None]
        return tuple(dict.fromkeys(name for name in computed if name is not None))

    @property
    def of_worst_group(self) -> bool:
        """Whether what is minimised is the rate of the worst group."""
        return isinstance(self.minimize, Worst)

    @property
    def rate(self) -> Rate:
        """The rate that is minimised, over all rows or in the worst group."""
        return self.minimize.rate if isinstance(self.minimize, Worst) else self.minimize

    def _atoms(self) -> list[Atom]:
        return [atom for atom, _ in self.minimize.terms] + [a for rule in self.rules for a in rule.atoms()]

    def action_space(self, classes: tuple[Value, ...]) -> ActionSpace:
        """The decision space for these classes, checked against the problem's own."""
        if self.classes is not None and self.classes != classes:
            raise RuleError(
                f"the problem is about the classes {list(self.classes)}, the evidence {list(classes)}"
            )
        return make_action_space(self.kind, classes, self.reject)

    def find(self, statement: Statement | str) -> int:
        """The place of a rule or family, given as itself or as text, among the problem's."""
        wanted: Any = statement
        if isinstance(statement, str):
            with suppress(RuleError):
                wanted = parse(statement)
        if wanted not in self.rules:
            raise OptionError(
                f"the problem has no rule {str(wanted)!r}; its rules are {[str(rule) for rule in self.rules]}"
            )
        return self.rules.index(wanted)

    def with_rules(self, rules: Sequence[Statement]) -> Problem:
        """Other rules, and the same kind of decisions, even where nothing else implies it."""
        found = Problem(self.minimize, rules, self.classes, self.decisions, self.reject)
        if found.kind == self.kind:
            return found
        return Problem(self.minimize, rules, self.classes, self.kind, self.reject)

    def with_objective(self, minimize: Rate, rules: Sequence[Statement] = ()) -> Problem:
        """Another objective, with more rules, and the same kind of decisions."""
        return Problem(minimize, [*self.rules, *rules], self.classes, self.kind, self.reject)

    def expand(self, classes: Sequence[Value], groups: Groups) -> list[ExpandedRule]:
        """Every single rule, with the statement it comes from."""
        expanded: dict[Rule, ExpandedRule] = {}
        for place, statement in enumerate(self.rules):
            for rule in statement.expand(classes, groups):
                if rule in expanded:
                    raise RuleError(f"the rule {rule} is stated twice; remove one of the two")
                if rule.excess.highest < 0:
                    raise RuleError(
                        f"the rule {rule} can never be broken: rates are fractions, so write 0.1 for 10 %"
                    )
                expanded[rule] = ExpandedRule(rule, statement, place)
        return list(expanded.values())

    def __str__(self) -> str:
        rules = "".join(f"\n  {rule}" for rule in self.rules)
        return f"minimize {self.minimize}" + (f"\nsubject to{rules}" if rules else "")

    __repr__ = __str__


def _objective(minimize: Any) -> Objective:
    objective = parse(minimize) if isinstance(minimize, str) else minimize
    if not isinstance(objective, Rate | Worst) or not objective.terms:
        raise RuleError(f"minimize must be a rate such as error(), or worst(rate, by=), not {minimize!r}")
    return objective


def _statement(position: int, rule: Any) -> Statement:
    statement = parse(rule) if isinstance(rule, str) else rule
    if isinstance(statement, bool):
        raise RuleError(f"rules[{position}] is {statement}: == makes no rule; write abs(rate - value) <= 0")
    if not isinstance(statement, Rule | Band | Family):
        raise RuleError(
            f"rules[{position}] is {rule!r}, not a rule; write one such as rejected() <= 0.1, "
            "or a family such as demographic_parity('sex', tol=0.02)"
        )
    return statement
