"""Violations of rules on some rows: for each single rule, and in a small table for each rule or family."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bylaw.rows import make_frame
from bylaw.view import Card, Table, bar, code


class StatementViolation(NamedTuple):
    """Summary of the violations of a rule or family on some rows."""

    statement: str  # the rule or family as it was written
    rules: int  # the number of single rules that it consists of
    violated: int  # the number of these that are violated
    worst: float  # the largest excess: observed rate minus bound; nan if no row meets the conditions
    at: str  # the single rule with that excess


class Violations(Mapping[str, float]):
    """The excess of each single rule: its observed rate minus its bound.

    A mapping from the text of each single rule to its excess, returned by `ConstrainedClassifier.violations`.
    If the excess is above zero, the rule is violated on these rows; it is nan if no row meets the conditions
    of the rule. The printed form and `to_frame` are a small table with one line for each rule or family.

    Attributes
    ----------
    statements : tuple of StatementViolation
        A summary for each rule or family as it was written.

    Examples
    --------
    >>> violations = Violations({"error() <= 0.1": -0.02}, [("error() <= 0.1", ["error() <= 0.1"])])
    >>> violations["error() <= 0.1"]
    -0.02
    >>> violations
    rule            rules  violated  worst
    error() <= 0.1      1         0  -0.02
    """

    def __init__(
        self, excesses: Mapping[str, float], statements: Sequence[tuple[str, Sequence[str]]]
    ) -> None:
        self._excesses = dict(excesses)
        summaries = []
        for statement, rules in statements:
            known = [rule for rule in rules if not math.isnan(self[rule])]
            at = max(known, key=self.__getitem__, default="")
            violated = sum(self[rule] > 0 for rule in known)
            worst = self[at] if at else math.nan
            summaries.append(StatementViolation(statement, len(rules), violated, worst, at))
        self.statements = tuple(summaries)

    def __getitem__(self, rule: str) -> float:
        return self._excesses[rule]

    def __iter__(self) -> Iterator[str]:
        return iter(self._excesses)

    def __len__(self) -> int:
        return len(self._excesses)

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with one line for each rule or family.

        Its columns are rule (the text of the rule or family), rules (the number of single rules), violated
        (the number of violated ones), worst (the largest excess) and at (the single rule with the largest
        excess).

        Parameters
        ----------
        like : frame, optional
            The table is a frame of the same library; by default, of the first one that is installed of
            pandas, polars and pyarrow.
        """
        names = ("rule", *StatementViolation._fields[1:])
        columns = list(zip(*self.statements, strict=True)) or [()] * len(names)
        return make_frame(dict(zip(names, map(list, columns), strict=True)), like)

    def __repr__(self) -> str:
        rows = [
            [one.statement, f"{one.rules}", f"{one.violated}", f"{one.worst:.3g}"] for one in self.statements
        ]
        table = Table(("rule", "rules", "violated", "worst"), rows, numbers=(1, 2, 3))
        return "\n".join(table.to_lines(heads=True))

    def _repr_html_(self) -> str:
        most = max((one.worst for one in self.statements if one.worst > 0), default=0.0)
        rows = [
            [
                code(one.statement),
                f"{one.violated} of {one.rules}",
                f"{one.worst:+.3g}",
                bar(one.worst, most, "bad"),
                code(one.at) if one.rules > 1 else None,
            ]
            for one in self.statements
        ]
        table = Table(("rule", "violated", "worst excess", "", "of"), rows, numbers=(1, 2))
        return Card("Observed rates minus their bounds", [table]).to_html()
