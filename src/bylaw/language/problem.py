"""A problem: what to minimise, under which rules. Frozen, and free of data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bylaw._base.typing import Value
from bylaw._base.validation import as_scalar
from bylaw.errors import RuleError
from bylaw.language.action_space import Decisions
from bylaw.language.expressions import LABEL, Atom, Band, Groups, Kind, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement, parse


@dataclass(frozen=True, repr=False)
class Problem:
    """Minimise a rate subject to rules.

    Parameters
    ----------
    minimize
        a rate, or its text.
    rules
        rules and families, or their texts.
    classes
        the labels, when they should be checked against the evidence's.
    decisions
        "labels", "reject" (a label or a rejection) or "sets"; "auto" infers it from
        the rates used.
    reject
        the label that a rejection gets in the decisions.
    """

    minimize: Rate
    rules: tuple[Statement, ...] = ()
    classes: tuple[Value, ...] | None = None
    decisions: Kind | Literal["auto"] = "auto"
    reject: Value = "reject"

    def __init__(
        self,
        minimize: Rate | str,
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
        """The kind of decisions, as said or as the rates imply."""
        if self.decisions != "auto":
            Decisions(self.decisions, ())  # an unknown kind is refused
            return self.decisions
        implied = {atom.implies: atom.name for atom in self._atoms() if atom.implies}
        if len(implied) > 1:
            raise RuleError(
                f"{implied['reject']}() speaks of rejections and {implied['sets']}() of sets of labels; "
                "a problem has one kind of decisions"
            )
        return next(iter(implied), "labels")  # type: ignore[return-value]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The groups that the rules and the objective speak of."""
        named = [
            name for rule in self.rules if isinstance(rule, Family) for p in rule.attributes for name in p
        ]
        named += [name for atom in self._atoms() for name, _ in atom.conditions if name != LABEL]
        return tuple(dict.fromkeys(named))

    @property
    def references(self) -> tuple[str, ...]:
        """The earlier models that the rules and the objective speak of."""
        compared = [atom.arguments[0] for atom in self._atoms() if atom.name in ("disagreement", "omits")]
        return tuple(dict.fromkeys(compared))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The cost arrays that the rules and the objective read."""
        custom = [atom for atom in self._atoms() if atom.name == "custom" and atom.function is None]
        return tuple(dict.fromkeys(atom.arguments[0] for atom in custom))

    def _atoms(self) -> list[Atom]:
        return [atom for atom, _ in self.minimize.terms] + [a for rule in self.rules for a in rule.atoms()]

    def decisions_over(self, classes: tuple[Value, ...]) -> Decisions:
        """The decision space for these classes, checked against the problem's own."""
        if self.classes is not None and self.classes != classes:
            raise RuleError(
                f"the problem is about the classes {list(self.classes)}, the evidence {list(classes)}"
            )
        return Decisions(self.kind, classes, self.reject)

    def expand(self, classes: Sequence[Value], groups: Groups) -> list[tuple[Rule, Statement]]:
        """Every single rule, with the statement it comes from."""
        expanded: dict[str, tuple[Rule, Statement]] = {}
        for statement in self.rules:
            for rule in statement.expand(classes, groups):
                if str(rule) in expanded:
                    raise RuleError(f"the rule {rule} is stated twice; remove one of the two")
                if rule.excess.highest < 0:
                    raise RuleError(
                        f"the rule {rule} can never be broken: rates are fractions, so write 0.1 for 10 %"
                    )
                expanded[str(rule)] = (rule, statement)
        return list(expanded.values())

    def __str__(self) -> str:
        rules = "".join(f"\n  {rule}" for rule in self.rules)
        return f"minimize {self.minimize}" + (f"\nsubject to{rules}" if rules else "")

    __repr__ = __str__


def _objective(minimize: Any) -> Rate:
    rate = parse(minimize) if isinstance(minimize, str) else minimize
    if not isinstance(rate, Rate) or not rate.terms:
        raise RuleError(f"minimize must be a rate such as error(), not {minimize!r}")
    return rate


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
