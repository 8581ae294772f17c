"""Monitored rules: a hypothesis, its state after the rows so far, and a confidence sequence.

With the true rate m, the sums of a round about it, X = U - m W, have mean zero and are never below -b. With
their total S and the total V of their squares, exp(s S / b + (log(1 - s) + s) V / b^2) is a supermartingale
for each stake s between 0 and 1 (Fan, Grama and Liu, 2015), and so is the mean of many. By Ville's inequality
it ever reaches 1 / level with probability at most `level`. All m for which it has not are the confidence
sequence. It is exact for a rate that is constant; if the rate drifts, it is about the average so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Mask
from bylaw.language import Rule
from bylaw.testing._hypotheses import DecidedRows, Hypothesis
from bylaw.testing._rounds import Events, follow_means, follow_sums
from bylaw.testing._wealth import Wealth

_MOST_POINTS = 28  # the most points of a rule's history; then every second one is dropped

# The stakes of a confidence sequence, as shares of the wealth. The smallest are for some ten million rows.
_STAKES = np.geomspace(3e-4, 0.98, 36)


class Point(NamedTuple):
    """The estimate, interval and evidence of a rule at one time of its history."""

    row: int  # number of rows that the monitor had seen
    estimate: float  # of the excess (in a `RuleWatch`, of the rate); nan without rows
    lower: float  # confidence bounds of the same
    upper: float
    ever: float  # log10 of the e-process
    change: float  # log10 of the e-detector


@dataclass(frozen=True)
class WatchedRule:
    """A monitored rule and its copies, which are rules with the same meaning.

    For example, with two labels, a rule about one label may be the same as a rule about the other.
    """

    hypothesis: Hypothesis
    copies: tuple[str, ...]  # the texts of all rules with this meaning, first that of the hypothesis
    events: Events

    def read(self, rows: DecidedRows) -> tuple[Floats, NDArray[np.intp]]:
        """Return weights and amounts of the rows in any event, (2 * n_events, n_rows), and positions."""
        samples = rows.sample(self.hypothesis)
        columns = np.stack([*(s.sizes for s in samples), *(s.amounts for s in samples)])
        places = np.flatnonzero(columns[: len(samples)].any(axis=0))
        return (columns if len(places) == columns.shape[1] else columns[:, places]), places

    def begin(self) -> RuleState:
        """Return the state before any rows; the first guess of each mean is the middle of its range."""
        totals, limits = np.zeros(2 * self.events.number), np.array(self.events.limits)
        if not self.events.guesses:
            return RuleState(totals=totals)
        return RuleState(totals=totals, guess=limits.mean(axis=1), marks=totals)

    def advance(
        self, state: RuleState, columns: Floats, rows: NDArray[np.int64], limits: AlarmLimits
    ) -> RuleState:
        """Return the state after further rows of the rule's events, given as columns (2 * n_events, n_rows).

        `rows` (n_rows,) is the number of rows that the monitor had seen when it counted each of them.
        """
        events, constant, n_columns = self.events, self.hypothesis.constant, len(columns)
        waited = state.waiting.size // n_columns
        waiting = np.column_stack([state.waiting.reshape(n_columns, waited), columns]) if waited else columns
        size = waiting.shape[1] if events.batched else events.rows
        n_rounds = waiting.shape[1] // size if size else 0
        counted = state.rows + len(rows)
        if not n_rounds:
            return replace(state, waiting=waiting, rows=counted)
        # Bet on complete rounds, with guesses from earlier rounds.
        whole = waiting[:, : n_rounds * size]
        sums = events.sum_rounds(whole)
        totals = np.add.accumulate(np.column_stack([state.totals, events.sum_columns(whole)]), axis=1)
        guesses, guess, marks = np.empty(0), state.guess, state.marks
        if events.guesses:
            guesses, guess, marks = follow_means(guess, marks, totals)
        factors = events.find_factors(whole, sums, constant, guesses)
        wealth, course = state.wealth.bet(factors, events.blocks_per_deposit)
        # Note the first alarms, and the times of the history that are due by the numbers of their rounds.
        ends, followed = rows[size - waited - 1 :: size], follow_sums(state.sums, sums)
        alarms = [state.broken_at, state.changed_at]
        for kind, limit in enumerate((limits.log_ever, limits.log_change)):
            if alarms[kind] is None and len(reached := np.flatnonzero(course[kind] >= limit)):
                alarms[kind] = int(ends[reached[0]])
        numbers = state.wealth.rounds + state.rounds_before + 1 + np.arange(n_rounds)
        every, history = state.every, state.history
        due = np.flatnonzero(numbers % every == 0)
        while len(history) + len(due) > _MOST_POINTS:
            every, history = 2 * every, history[1::2]
            due = due[numbers[due] % every == 0]
        if len(due):
            logs = course[:, due] / math.log(10)
            points = np.stack([*self.measure(followed[:, 1 + due], limits.level), *logs], axis=1).tolist()
            digits = [[float(f"{value:.5g}") for value in point] for point in points]
            history += tuple(
                Point(row, *point) for row, point in zip(ends[due].tolist(), digits, strict=True)
            )
        return RuleState(
            waiting=waiting[:, n_rounds * size :].copy(),
            rows=counted,
            wealth=wealth,
            sums=followed[:, -1].copy(),
            totals=totals[:, -1].copy(),
            guess=guess,
            marks=marks,
            rounds_before=state.rounds_before,
            log_ever=float(course[0, -1]),
            log_change=float(course[1, -1]),
            broken_at=alarms[0],
            changed_at=alarms[1],
            every=every,
            history=history,
        )

    def measure(self, sums: Floats, level: float) -> tuple[Floats, Floats, Floats]:
        """Return the estimate of the rule's excess and confidence bounds, from sums over rounds (5, n_times).

        The excess is at most zero if the rule is satisfied.
        """
        constant = self.hypothesis.constant
        least, most = find_interval(sums, self.events, level)
        estimate = estimate_rates(sums)
        return estimate + constant, np.fmin(least, estimate) + constant, np.fmax(most, estimate) + constant


class AlarmLimits(NamedTuple):
    """The log evidence at which a rule is called broken or changed."""

    log_ever: float  # of the e-process, for "broken"
    log_change: float  # of the e-detector, for "changed"
    level: float  # error probability of each end of a confidence sequence

    @classmethod
    def of(cls, ever: float, run_length: float, events: Sequence[Events]) -> AlarmLimits:
        """Return the limits for several rules together.

        The probability that there is ever a false alarm is at most `ever`. The average run length of the
        detector, which gets a deposit in each round, is at least `run_length` rows, or batches.
        """
        n_rules = len(events)
        deposits = sum(run_length / (1 if one.batched else one.rows) + 1 for one in events)
        return cls(math.log(n_rules / ever), math.log(deposits), ever / (2 * n_rules))


@dataclass(frozen=True)
class RuleState:
    """The state of one monitored rule after the rows so far."""

    waiting: Floats = field(default_factory=lambda: np.empty((0, 0)))  # rows of an incomplete round
    rows: int = 0  # number of rows in an event
    wealth: Wealth = field(default_factory=Wealth)
    sums: Floats = field(default_factory=lambda: np.zeros(5))  # from `follow_sums`
    totals: Floats = field(default_factory=lambda: np.empty(0))  # (2 * n_events,): over complete rounds
    guess: Floats = field(default_factory=lambda: np.empty(0))  # (n_events,): guessed means
    marks: Floats = field(default_factory=lambda: np.empty(0))  # (2 * n_events,): totals at the last guess
    rounds_before: int = 0  # number of rounds before the last restart
    log_ever: float = 0.0  # log of the e-process
    log_change: float = -math.inf  # log of the e-detector
    broken_at: int | None = None  # number of rows that the monitor had seen at the alarm
    changed_at: int | None = None  # the same
    every: int = 8  # rounds from one point of the history to the next
    history: tuple[Point, ...] = ()

    def restart(self) -> RuleState:
        """Return the state without alarms and with new wealth; rates and history stay."""
        return replace(
            self,
            wealth=Wealth(),
            rounds_before=self.rounds_before + self.wealth.rounds,
            log_ever=0.0,
            log_change=-math.inf,
            broken_at=None,
            changed_at=None,
        )


class Watch(StrEnum):
    """The status of a rule under a monitor.

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
        The text of the rule.
    statement : str
        The text of the rule or family of the problem that it is part of.
    sense : "<=" or ">="
        Whether the target is an upper or a lower bound of the rate.
    target : float
        The bound.
    estimate : float
        The rate so far, averaged over random decisions; nan without rows. A rule on groups compares them
        within rounds, or within batches; the estimate is the weighted average over these.
    lower, upper : float
        A confidence sequence of the rate: valid at all times and for all rules together, with probability
        `confidence`.
    rows : int
        The number of rows that the rule is about, without missing labels, groups or outcomes.
    e_value : float
        The e-process: evidence that the rule was violated at some time.
    detector : float
        The e-detector: evidence that the rule was violated lately.
    evidence : float
        The larger of both as a share of its alarm limit, on the scale of logarithms; 1 is an alarm.
    status : Watch
        "broken" if the e-process has reached its limit, "changed" if only the e-detector has.
    since : int or None
        The number of rows that the monitor had seen at the first alarm.
    reason : str
        Why the rule has no rows yet, or empty.
    history : tuple of Point
        At some times, evenly spaced in rows: row, estimate, lower, upper, and the decimal logarithms of the
        e-process (ever) and the e-detector (change).
    confidence : float
        The probability that all intervals are correct together, 1 - `ever`.
    hidden : bool
        Whether numbers were left out because they are about a group of few rows.
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
        reason = f"not shown: it is about a group of fewer than {min_cell} rows so far, or could reveal it"
        return replace(
            self, **unknown, rows=0, evidence=0.0, reason=self.reason or reason, history=(), hidden=True
        )

    @property
    def is_beyond(self) -> bool:
        """True if the rate so far is beyond the bound, which may be due to random errors."""
        return self.estimate > self.target if self.sense == "<=" else self.estimate < self.target


def merge_copies(rules: Sequence[Rule], rows: DecidedRows, batched: bool = False) -> list[WatchedRule]:
    """Return one monitored rule for all rules with the same values on these random rows.

    For example, with two labels, a rule about one label may be the same as a rule about the other.
    """
    merged: dict[Any, WatchedRule] = {}
    for rule in rules:
        hypothesis = Hypothesis.of(rule, rows.space, rows.limits)
        # Compare weights and amounts of the rows, up to constants that events may exchange.
        constant, columns = hypothesis.constant, list[bytes]()
        for one in rows.sample(hypothesis):
            inside = one.sizes > 0
            values = one.amounts[inside] / one.sizes[inside]
            level = float(values[0]) if len(values) else math.nan
            constant += level
            columns.append(np.round(one.sizes, 9).tobytes() + (np.round(values - level, 9) + 0.0).tobytes())
        # If none of the rows is in an event, they do not distinguish the rule from others.
        key = str(rule) if math.isnan(constant) else (round(constant, 9), *sorted(columns))
        watched = merged.get(key, WatchedRule(hypothesis, (), Events.of(hypothesis, batched)))
        merged[key] = replace(watched, copies=(*watched.copies, str(rule)))
    return list(merged.values())


def find_interval(sums: Floats, events: Events, level: float) -> tuple[Floats, Floats]:
    """Compute lower and upper bounds on the sum of conditional means, from sums (5, n_times) over rounds.

    The probability that a bound is ever wrong is at most `level`.
    """
    estimate, ends = estimate_rates(sums), list[Floats]()
    inside = np.clip(np.nan_to_num(estimate, nan=events.lowest), events.lowest, events.highest)
    for sign, end in ((1.0, events.lowest), (-1.0, events.highest)):
        # Bisect between the end of the range, if it is refuted, and the estimate, to the last bits.
        refuted, held = np.full(len(estimate), end), inside
        kept = np.isnan(estimate) | ~_is_refuted(refuted, sums, events, level, sign)
        for _ in range(40):
            middle = (refuted + held) / 2
            gone = _is_refuted(middle, sums, events, level, sign)
            refuted, held = np.where(gone, middle, refuted), np.where(gone, held, middle)
        ends.append(np.where(kept, end, held))
    return ends[0], ends[1]


def estimate_rates(sums: Floats) -> Floats:
    """Return the sum of conditional means, (n_times,); nan until there are rows of every event."""
    weights, amounts = sums[:2]
    return np.divide(amounts, weights, out=np.full(len(weights), np.nan), where=weights > 0)


def _is_refuted(rate: Floats, sums: Floats, events: Events, level: float, sign: float) -> Mask:
    """Return a mask of the times at which the rate is refuted as too small (sign 1) or too large (-1)."""
    weights, amounts, squares, products, squared_weights = sums
    total = sign * (amounts - rate * weights)
    variance = np.maximum(squares - 2 * rate * products + rate**2 * squared_weights, 0.0)
    # A larger possible loss in a round makes larger totals plausible.
    behind = events.find_largest_loss(-rate, sign)
    # Stakes are relative to the scale; if it were near zero, all of them would be too bold.
    scale = np.maximum(behind, 0.02 * (events.highest - events.lowest))
    return find_log_wealth(total, variance, scale) > math.log(1 / level)


def find_log_wealth(total: Floats, variance: Floats, scale: Floats) -> Floats:
    """Compute the logarithm of the supermartingale averaged over all stakes, (n_times,)."""
    logs = np.multiply.outer(_STAKES, total / scale) + np.multiply.outer(
        np.log1p(-_STAKES) + _STAKES, variance / scale**2
    )
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))
