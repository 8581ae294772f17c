"""Verdicts: how a rule is judged, the same way in audits and in reports."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np

from bylaw._base.small_cells import choose_shown
from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError, Remedy
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import LABEL, Conditions, Rate, Rule, format_conditions
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.program.linear_form import compile_problem
from bylaw.program.row_rates import measure_factor
from bylaw.rows.evidence import RowData
from bylaw.rows.outcomes import ObservedRows
from bylaw.testing._hypotheses import NEVER, describe_vacuous

# A rule is estimated to hold if it is missed by no more than the solver's own bound plus this much, in the
# unit of the rule: a millionth, one row in a million. `solve` stops at such a gradient mapping by default,
# and its correction for observed labels counts what is missed by less as not missed. It is far below what
# any report prints, and far above the rounding errors of sums over rows.
TOLERANCE = 1e-6
_FAR = 1000  # times as many rows are no advice


class Verdict(StrEnum):
    """What rows tell about a rule.

    Held-out rows give `CERTIFIED`, `VIOLATED` or `UNDECIDED`; rows on which the policy was chosen prove
    nothing and give the estimates `HOLDS` or `BROKEN`. `UNJUDGED` is a rule that they cannot test.

    Examples
    --------
    >>> from bylaw import Verdict
    >>> Verdict("certified") is Verdict.CERTIFIED
    True
    >>> [str(verdict) for verdict in Verdict]  # worst first
    ['violated', 'estimated to be broken', 'undecided', 'not judged', 'certified', 'estimated to hold']
    """

    VIOLATED = "violated"
    BROKEN = "estimated to be broken"
    UNDECIDED = "undecided"
    UNJUDGED = "not judged"
    CERTIFIED = "certified"
    HOLDS = "estimated to hold"

    @property
    def severity(self) -> int:
        """Its place among the verdicts, worst first."""
        return list(type(self)).index(self)


def find_worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of these verdicts; `UNJUDGED` if there are none."""
    return min(verdicts, key=lambda verdict: verdict.severity, default=Verdict.UNJUDGED)


@dataclass(frozen=True)
class RuleAudit:
    """The audit of one single rule: all rates are on its left, and the number on its right is the target.

    A rule with a share of a rate on its right, such as `error() <= 0.05 * accepted()` or the four-fifths
    rule, is about the ratio of both: the target is its level, 0.05.

    Parameters
    ----------
    rule : str
        its text.
    sense : "<=" or ">="
        whether the target is an upper or a lower bound of the rate.
    target : float
        the bound.
    estimate : float
        the observed rate, with the random decisions averaged out; the predicted one if `is_predicted`.
    lower, upper : float
        one-sided confidence bounds on the rate, each right with the audit's confidence.
    p_value : float
        of the hypothesis that the rule does not hold.
    p_holm : float
        the same, adjusted for the number of rules (Holm, 1979).
    p_violated : float
        of the hypothesis that the rule holds.
    rows : float
        the effective sample size; of two groups, that of the smaller.
    verdict : Verdict
    rows_needed : float
        about how many rows like these would decide an undecided rule.
    reason : str
        why the rule could not be judged, or empty.
    remedy : Remedy or None
        what would let it be judged.
    judged_rows : int
        the rows that show all labels and groups that the rule refers to; the others are left out.

    Examples
    --------
    >>> from bylaw import RuleAudit
    >>> judged = RuleAudit("rejected() <= 0.25", "<=", 0.25, estimate=0.5)
    >>> judged.excess
    0.25
    >>> str(judged.verdict)
    'not judged'
    """

    rule: str
    sense: Literal["<=", ">="]
    target: float
    estimate: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    p_value: float = math.nan
    p_holm: float = math.nan
    p_violated: float = math.nan
    rows: float = 0.0
    verdict: Verdict = Verdict.UNJUDGED
    rows_needed: float = math.nan
    reason: str = ""
    remedy: Remedy | None = None
    judged_rows: int = 0

    @property
    def is_predicted(self) -> bool:
        """Whether the rule was not judged, since costs in it are predictions."""
        return self.remedy is not None and self.remedy.action == "pass_outcomes"

    @property
    def excess(self) -> float:
        """By how much the estimate misses the target; at or below zero, the rule holds."""
        return self.estimate - self.target if self.sense == "<=" else self.target - self.estimate


def describe_rule(
    rule: Rule, excess: float = math.nan, rows: float = 0.0, factor: float = math.nan
) -> RuleAudit:
    """A rule with its target and the estimate of its rate or ratio, not judged yet.

    Parameters
    ----------
    rule : Rule
    excess : float
        the estimate of `rule.excess`, the rate that must be at most zero; nan if there is none.
    rows : float
        the effective sample size of the estimate.
    factor : float
        the estimate of `rule.factor`, if it has one.
    """
    distance = excess if rule.sense == "<=" else -excess
    if rule.factor is None:
        return RuleAudit(str(rule), rule.sense, rule.bound, rule.bound + distance, rows=rows)
    ratio = rule.level + distance / factor if factor else math.nan
    return RuleAudit(str(rule), rule.sense, rule.level, ratio, rows=rows)


def judge_estimate(
    rule: Rule, excess: float, effective_rows: float, policy: Policy, rows: RowData, probabilities: Floats
) -> RuleAudit:
    """A rule with an estimate of its rate, judged without a test: `HOLDS` or `BROKEN`.

    It holds if its excess is at most the policy's `guarantee.violation` plus `TOLERANCE`, both times the
    unit of the rule on these rows. A solver holds quotients multiplied out: their excess may be larger by
    what they divide by, for decisions with these `probabilities` (n_rows, n_actions). Where that is zero, the
    quotient is 0/0, and the rule is not judged.
    """
    limit = (policy.guarantee.violation + TOLERANCE) * measure_unit(rule, rows, policy.action_space)
    wholes = {
        event: policy.expected(Rate(((event.whole, 1.0),)), rows, probabilities=probabilities)
        for event in rule.excess.by_event()
        if event.whole is not None
    }
    if wholes:
        rarest = min(wholes, key=lambda event: wholes[event])
        if wholes[rarest] * len(rows) <= NEVER:
            return replace(describe_rule(rule), reason=describe_vacuous(rarest))
        limit /= wholes[rarest]
    verdict = Verdict.HOLDS if excess <= limit else Verdict.BROKEN
    factor = measure_factor(rule, rows, probabilities, policy.action_space)
    return replace(describe_rule(rule, excess, effective_rows, factor), verdict=verdict)


def measure_unit(rule: Rule, rows: RowData, space: ActionSpace) -> float:
    """The unit in which solvers measure a rule: 1 for shares of rows, and for rates that are far larger or
    smaller, such as costs in cents, their own size on these rows."""
    rate = rule.excess
    if rate.is_probability and max(abs(coefficient) for _, coefficient in rate.terms) == 1:
        return 1.0
    if len(rate.by_event()) > 1 and not rate.is_linear:
        return 1.0  # a gap between quotients, which no solver holds by itself
    rate = rate.multiply_out()
    alone = Problem(rate, [rule], decisions=space.decisions, reject=space.reject)
    return float(compile_problem(alone, rows).scales[0])


def list_hidden_rules(
    rules: Iterable[Rule], rows: ObservedRows, min_cell: int, others: Iterable[Conditions] = ()
) -> frozenset[str]:
    """Return the texts of the single rules, and of the `others`, that are about cells too small to be shown.

    Cells are the groups that rules refer to, those of one attribute and true label together."""
    conditions = {rule: {atom.conditions for atom in rule.atoms()} for rule in rules}
    others = list(others)
    named = {cell for cells in (*conditions.values(), others) for cell in cells} if min_cell > 1 else ()
    counts: dict[Conditions, float] = {}
    for cell in named:
        with suppress(EvidenceError):  # no row has such a value, or no column tells of it
            counts[cell] = float(np.minimum(rows.event_weights(cell), 1.0).sum())
    hidden = find_hidden_cells(counts, min_cell)
    texts = [str(rule) for rule, cells in conditions.items() if cells & hidden]
    return frozenset([*texts, *(format_conditions(cell) for cell in others if cell in hidden)])


def find_hidden_cells(counts: Mapping[Conditions, float], min_cell: int) -> set[Conditions]:
    """Return the cells that are too small to be shown, or beside one, from how many rows each has. Those of
    the same attributes and true label are one partition."""
    partitions: dict[Hashable, list[Conditions]] = {}
    for cell in sorted(counts, key=str):
        named = dict(cell)
        label = named.pop(LABEL, None)
        if named:
            partitions.setdefault((label, *named), []).append(cell)
    hidden: set[Conditions] = set()
    for cells in partitions.values():
        shown = choose_shown([counts[cell] for cell in cells], min_cell)
        hidden |= {cell for cell, is_shown in zip(cells, shown, strict=True) if not is_shown}
    return hidden


def hide_numbers(judged: RuleAudit, min_cell: int) -> RuleAudit:
    """Return a rule about a small cell with its verdict, and without numbers that tell about single rows."""
    unknown = dict.fromkeys(
        ("estimate", "lower", "upper", "p_value", "p_holm", "p_violated", "rows", "rows_needed"), math.nan
    )
    reason = judged.reason or f"not shown: it is about a group of fewer than {min_cell} rows, or beside one"
    return replace(judged, **unknown, judged_rows=0, reason=reason)


def is_out_of_reach(rows_needed: float, rows: float) -> bool:
    """Whether so many rows would be needed that a rule is at its limit, and more rows are no advice."""
    return rows_needed > _FAR * rows
