"""A rule that is monitored: its hypothesis, its state after the rows so far, and a confidence sequence.

With the true rate m, the sums of a round about it, X = U - m W, have mean zero and are never below -b. With
their total S and the total V of their squares, exp(s S / b + (log(1 - s) + s) V / b^2) is a supermartingale
for each stake s between 0 and 1 (Fan, Grama and Liu, 2015), and so is the mean of many. By Ville's inequality
it ever reaches 1 / level with probability `level` at most. All m for which it has not are the confidence
sequence. It is exact for a rate that is constant; where the rate drifts, read it as one about the average so
far.
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

_MOST_POINTS = 28  # of a rule's history; then every second one is dropped

# The stakes of a confidence sequence, as shares of the wealth. The smallest are for some ten million rows.
_STAKES = np.geomspace(3e-4, 0.98, 36)


class Point(NamedTuple):
    """A rule at one time of its history."""

    row: int  # how many rows the monitor had seen
    estimate: float  # of the excess, or, of a `RuleWatch`, of the rate; nan before there is any
    lower: float
    upper: float
    ever: float  # log10 of the e-process
    change: float  # log10 of the e-detector


@dataclass(frozen=True)
class WatchedRule:
    """A rule and its copies: of two labels, a rule about one is a rule about the other."""

    hypothesis: Hypothesis
    copies: tuple[str, ...]  # the texts of the rules; that of the hypothesis is the first
    events: Events

    def read(self, rows: DecidedRows) -> tuple[Floats, NDArray[np.intp]]:
        """Return weights and amounts (2 * n_events, n_rows) of rows in an event, and their places."""
        samples = rows.sample(self.hypothesis)
        columns = np.stack([*(s.sizes for s in samples), *(s.amounts for s in samples)])
        places = np.flatnonzero(columns[: len(samples)].any(axis=0))
        return (columns if len(places) == columns.shape[1] else columns[:, places]), places

    def begin(self) -> RuleState:
        """Return the state before there are rows; the first guess is the middle of each range."""
        totals, limits = np.zeros(2 * self.events.number), np.array(self.events.limits)
        if not self.events.guesses:
            return RuleState(totals=totals)
        return RuleState(totals=totals, guess=limits.mean(axis=1), marks=totals)

    def advance(
        self, state: RuleState, columns: Floats, rows: NDArray[np.int64], limits: AlarmLimits
    ) -> RuleState:
        """Return the state after more rows of its events, (2 * n_events, n_rows).

        `rows` (n_rows,) is how many the monitor had seen with each.
        """
        events, constant, n_columns = self.events, self.hypothesis.constant, len(columns)
        waited = state.waiting.size // n_columns
        waiting = np.column_stack([state.waiting.reshape(n_columns, waited), columns]) if waited else columns
        size = waiting.shape[1] if events.batched else events.rows
        n_rounds = waiting.shape[1] // size if size else 0
        counted = state.rows + len(rows)
        if not n_rounds:
            return replace(state, waiting=waiting, rows=counted)
        # Bet on whole rounds, by guesses from the rounds before.
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
        """Return the estimate of the excess and bounds around it, from sums over rounds (5, n_times).

        The excess is at most zero if the rule holds.
        """
        constant = self.hypothesis.constant
        least, most = find_interval(sums, self.events, level)
        estimate = estimate_rates(sums)
        return estimate + constant, np.fmin(least, estimate) + constant, np.fmax(most, estimate) + constant


class AlarmLimits(NamedTuple):
    """The evidence from which on a rule is called broken or changed."""

    log_ever: float
    log_change: float
    level: float  # of each end of a confidence sequence

    @classmethod
    def of(cls, ever: float, run_length: float, events: Sequence[Events]) -> AlarmLimits:
        """Return the limits for several rules together.

        The probability of ever a false alarm is at most `ever`, and the average run length of the detector,
        which gets a deposit each round, is at least `run_length` rows, or batches.
        """
        n_rules = len(events)
        deposits = sum(run_length / (1 if one.batched else one.rows) + 1 for one in events)
        return cls(math.log(n_rules / ever), math.log(deposits), ever / (2 * n_rules))


@dataclass(frozen=True)
class RuleState:
    """Everything that is kept of the rows of one rule."""

    waiting: Floats = field(default_factory=lambda: np.empty((0, 0)))  # rows of a round that is not whole
    rows: int = 0
    wealth: Wealth = field(default_factory=Wealth)
    sums: Floats = field(default_factory=lambda: np.zeros(5))  # as `follow_sums` adds them up
    totals: Floats = field(default_factory=lambda: np.empty(0))  # (2 * n_events,): of whole rounds
    guess: Floats = field(default_factory=lambda: np.empty(0))  # (n_events,) where bets are about guesses
    marks: Floats = field(default_factory=lambda: np.empty(0))  # (2 * n_events,), likewise
    rounds_before: int = 0  # of which the evidence was forgotten
    log_ever: float = 0.0
    log_change: float = -math.inf
    broken_at: int | None = None  # the number of rows that the monitor had seen
    changed_at: int | None = None
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


def merge_copies(rules: Sequence[Rule], rows: DecidedRows, batched: bool = False) -> list[WatchedRule]:
    """Return each hypothesis once, with its copies: rules that agree on all rows, which are random here.

    Of two labels, a rule about one is a rule about the other.
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

    Each is ever wrong with probability `level`.
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
    """Return the sum of conditional means, (n_times,); nan before there are rows of every event."""
    weights, amounts = sums[:2]
    return np.divide(amounts, weights, out=np.full(len(weights), np.nan), where=weights > 0)


def _is_refuted(rate: Floats, sums: Floats, events: Events, level: float, sign: float) -> Mask:
    """Check where the rate is too small (sign 1) or too large (-1) for the rounds so far."""
    weights, amounts, squares, products, squared_weights = sums
    total = sign * (amounts - rate * weights)
    variance = np.maximum(squares - 2 * rate * products + rate**2 * squared_weights, 0.0)
    # The more a round can fall behind, the farther ahead of zero their total can be by chance.
    behind = events.find_largest_loss(-rate, sign)
    # Stakes are relative to the scale; if it were near zero, all of them would be too bold.
    scale = np.maximum(behind, 0.02 * (events.highest - events.lowest))
    return find_log_wealth(total, variance, scale) > math.log(1 / level)


def find_log_wealth(total: Floats, variance: Floats, scale: Floats) -> Floats:
    """Compute the logarithm of the mean supermartingale over all stakes, (n_times,)."""
    logs = np.multiply.outer(_STAKES, total / scale) + np.multiply.outer(
        np.log1p(-_STAKES) + _STAKES, variance / scale**2
    )
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))
