"""One rule as a monitor tells of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from bylaw.testing._watched_rule import Point


class Watch(StrEnum):
    """The state of a rule under a monitor.

    Examples
    --------
    >>> [str(status) for status in Watch]  # worst first
    ['broken', 'changed', 'quiet', 'no rows yet']
    """

    BROKEN = "broken"
    CHANGED = "changed"
    QUIET = "quiet"
    UNSEEN = "no rows yet"


@dataclass(frozen=True)
class RuleWatch:
    """A rule under a monitor, as `Monitor.status` returns it.

    Parameters
    ----------
    rule : str
        its text.
    statement : str
        the rule or family that it is part of, as it was stated.
    sense : "<=" or ">="
    target : float
        the bound.
    estimate : float
        the rate so far, with random decisions averaged out; nan before there are rows. A rule on groups
        compares them within rounds, or within batches, as the evidence does; it is their weighted average.
    lower, upper : float
        a confidence sequence of the same rate: right at all times and for all rules together, with
        probability `confidence`.
    rows : int
        rows that the rule is about and that show all it refers to.
    e_value : float
        evidence that the rule was broken at some time: the e-process.
    detector : float
        evidence that it was broken lately: the e-detector.
    evidence : float
        how far the larger of both is on the way to an alarm, on the scale of logarithms; one is an alarm.
    status : Watch
        "broken" where the e-process has reached its limit, "changed" where only the detector has.
    since : int or None
        how many rows the monitor had seen at the first alarm.
    reason : str
        why no row has told anything yet, or empty.
    history : tuple of Point
        at some times, evenly spaced in rows: row, estimate, lower, upper, and the decimal logarithms of both
        kinds of evidence, ever and change.
    confidence : float
        the probability of all intervals together, 1 - `ever`.
    hidden : bool
        whether numbers were left out, since they are about a group of few rows.
    """

    rule: str
    statement: str
    sense: str
    target: float
    estimate: float
    lower: float
    upper: float
    rows: int
    e_value: float
    detector: float
    evidence: float
    status: Watch
    since: int | None
    reason: str
    history: tuple[Point, ...]
    confidence: float
    hidden: bool = False

    def hide(self, min_cell: int) -> RuleWatch:
        """Return the rule with its status, and without numbers that reveal single rows."""
        unknown = dict.fromkeys(("estimate", "lower", "upper", "e_value", "detector"), math.nan)
        reason = f"not shown: it is about a group of fewer than {min_cell} rows so far, or beside one"
        return replace(
            self, **unknown, rows=0, evidence=0.0, reason=self.reason or reason, history=(), hidden=True
        )

    @property
    def is_beyond(self) -> bool:
        """Whether the rate so far is beyond the bound, which may be chance."""
        return self.estimate > self.target if self.sense == "<=" else self.estimate < self.target
