"""The worst group as an objective: the largest of a rate's values over the groups of a partition."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from bylaw._base.typing import Value
from bylaw._base.validation import as_name
from bylaw.errors import RuleError
from bylaw.language.expressions import LABEL, Atom, Conditions, Groups, Rate, Ratio, Rule

OVERALL = 0.01  # the part of the rate over all rows beside that of the worst group


@dataclass(frozen=True, repr=False)
class Worst:
    """The rate of the group in which it is largest: max over groups g of rate.given(g). Made by `worst`."""

    rate: Rate
    by: tuple[str, ...]  # attributes, and "label"; several for their intersections

    @property
    def terms(self) -> tuple[tuple[Atom, float], ...]:
        """Those of the rate, whatever the group."""
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
        """The conditions of every group."""
        values = {LABEL: tuple(classes), **groups}
        for name in self.by:
            if name not in values:
                raise RuleError(
                    f"{self}: there is no group column {name!r}; the evidence has {sorted(groups)}"
                )
        cells = itertools.product(*(values[name] for name in self.by))
        return tuple(tuple(zip(self.by, cell, strict=True)) for cell in cells)

    def given(self, group: Conditions) -> Rate:
        """The rate of one group."""
        return self.rate.given(**dict(group))

    def weigh(self, weights: Mapping[Conditions, float]) -> Rate:
        """The linear objective that weights of the groups, of sum one, make of it. Its optimum for the worst
        weights is that of the worst group. Groups that are not the worst would be left to chance: the rate
        over all rows, with a small part, decides there."""
        parts = [weight * self.given(group) for group, weight in weights.items()]
        return sum(parts, OVERALL * self.rate)

    def compare(self, reference: Conditions, others: Sequence[Conditions]) -> tuple[Rule, ...]:
        """That no other group is worse than the reference."""
        return tuple(-self.given(reference) + self.given(group) <= 0 for group in others)

    def _refuse(self, other: object) -> NoReturn:
        raise RuleError(
            f"{self} is what is minimised, alone: it makes no rule and no sum. To bound every group, write a "
            "rule for each, such as error().given(race='a') <= 0.1; a sum of rates goes inside worst()"
        )

    __le__ = __ge__ = __lt__ = __gt__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse

    def __str__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else self.by
        return f"worst({self.rate}, by={by!r})"

    __repr__ = __str__


Objective = Rate | Ratio | Worst  # what a problem minimises


def worst(rate: Rate | str, by: Any) -> Worst:
    """The rate of the group where it is largest, to be minimised: minimax fairness (Rawls).

    Of several policies with the same worst group, the one with the lowest rate over all rows: that counts
    0.01 beside the worst group's.

    Parameters
    ----------
    rate : Rate or str
        such as `error()` or its text, `cost(...)`, `size()`, or a sum of rates.
    by : str or tuple
        "race"; or ("sex", "race"), the intersections; "label" for the true label, also among others.

    Returns
    -------
    Worst
        what `Problem(minimize=...)` takes; it is no rate, and makes no rule.

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
