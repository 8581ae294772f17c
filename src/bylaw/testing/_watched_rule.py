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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats, Mask
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import Rule
from bylaw.rows.evidence import Limits
from bylaw.testing._hypotheses import DecidedRows, Hypothesis
from bylaw.testing._rounds import Events, RateSums, RecentMeans, RoundSums
from bylaw.testing._wealth import Course, Wealth

_MOST_POINTS = 28  # of a rule's history; then every second one is dropped
_FIRST_EVERY = 8  # rounds from one point to the next, at first
_DIGITS = 5  # of a point

# The stakes of a confidence sequence, as shares of the wealth. The smallest are for some ten million rows.
_STAKES = np.geomspace(3e-4, 0.98, 36)
_LEAST_SCALE = 0.02  # of the range of a rate: with a scale near zero, all stakes would be too bold


class Point(NamedTuple):
    """A rule at one time of its history."""

    row: int  # how many rows the monitor had seen
    estimate: float  # of the excess, or, of a `RuleWatch`, of the rate; nan before there is any
    lower: float
    upper: float
    ever: float  # log10 of the e-process
    change: float  # log10 of the e-detector


class Moment(NamedTuple):
    """The same, before its rate and bounds were asked for."""

    row: int
    ever: float
    change: float
    sums: tuple[float, ...]


@dataclass(frozen=True)
class WatchedRule:
    """A rule and its copies: of two labels, a rule about one is a rule about the other."""

    hypothesis: Hypothesis
    copies: tuple[str, ...]  # the texts of the rules; that of the hypothesis is the first
    events: Events

    @classmethod
    def of(cls, rule: Rule, space: ActionSpace, limits: Limits, batched: bool = False) -> WatchedRule:
        """Return a rule to watch; `limits` are those of its costs in `custom`."""
        hypothesis = Hypothesis.of(rule, space, limits)
        return cls(hypothesis, (str(rule),), Events.of(hypothesis, batched))

    @property
    def rule(self) -> Rule:
        return self.hypothesis.rule

    @property
    def needs(self) -> frozenset[str]:
        """Attributes, "label" and costs that rows must show."""
        return self.hypothesis.needs

    @property
    def constant(self) -> float:
        """Constant with which the sum of means is at most zero."""
        return self.hypothesis.constant

    def read(self, rows: DecidedRows) -> tuple[Floats, NDArray[np.intp]]:
        """Return weights and amounts (2 * n_events, n_rows) of rows in an event, and their places."""
        samples = rows.sample(self.hypothesis)
        columns = np.stack([*(s.sizes for s in samples), *(s.amounts for s in samples)])
        places = np.flatnonzero(columns[: len(samples)].any(axis=0))
        return (columns if len(places) == columns.shape[1] else columns[:, places]), places

    def begin(self) -> RuleState:
        """Return the state before there are rows."""
        recent = RecentMeans.begin(self.events) if self.events.guesses else None
        return RuleState(totals=np.zeros(2 * self.events.number), recent=recent)

    def play(self, columns: Floats, totals: Floats, recent: RecentMeans | None) -> Game:
        """Compute the bets on whole rounds, (2 * n_events, n_rounds * rows), after these totals."""
        events, sums = self.events, self.events.sum_rounds(columns)
        steps = np.column_stack([totals, events.sum_columns(columns)])
        course = np.add.accumulate(steps, axis=1)
        guess, recent = (np.empty(0), None) if recent is None else recent.follow(course)
        factors = events.find_factors(columns, sums, self.constant, guess)
        return Game(sums, factors, course[:, -1].copy(), recent)

    def advance(
        self, state: RuleState, columns: Floats, rows: NDArray[np.int64], limits: AlarmLimits
    ) -> RuleState:
        """Return the state after more rows of its events, (2 * n_events, n_rows).

        `rows` (n_rows,) is how many the monitor had seen with each.
        """
        events, n_columns = self.events, len(columns)
        waited = state.waiting.size // n_columns
        waiting = np.column_stack([state.waiting.reshape(n_columns, waited), columns]) if waited else columns
        size = waiting.shape[1] if events.batched else events.rows
        n_rounds = waiting.shape[1] // size if size else 0
        whole, counted = n_rounds * size, state.rows + len(rows)
        if not n_rounds:
            return replace(state, waiting=waiting, rows=counted)
        game = self.play(waiting[:, :whole], state.totals, state.recent)
        wealth, course = state.wealth.bet(game.factors, events.blocks_per_deposit)
        ends, followed = rows[size - waited - 1 :: size], state.sums.follow(game.sums)
        numbers = state.wealth.rounds + state.rounds_before + 1 + np.arange(n_rounds)
        every, history = _note(state, numbers, course, followed[:, 1:], ends)
        return RuleState(
            waiting=waiting[:, whole:].copy(),
            rows=counted,
            wealth=wealth,
            sums=RateSums(*followed[:, -1].tolist()),
            totals=game.totals,
            recent=game.recent,
            rounds_before=state.rounds_before,
            log_ever=float(course.ever[-1]),
            log_change=float(course.change[-1]),
            broken_at=_find_first(course.ever, limits.log_ever, ends, state.broken_at),
            changed_at=_find_first(course.change, limits.log_change, ends, state.changed_at),
            every=every,
            history=history,
        )

    def settle(self, state: RuleState, level: float) -> RuleState:
        """Return the state with rates and bounds at all times of its history."""
        moments = [moment for moment in state.history if isinstance(moment, Moment)]
        if not moments:
            return state
        found = np.stack(self.measure(np.array([moment.sums for moment in moments]).T, level), axis=1)
        points = iter(found.tolist())
        return replace(
            state,
            history=tuple(
                Point(at.row, *map(_round, (*next(points), at.ever, at.change)))
                if isinstance(at, Moment)
                else at
                for at in state.history
            ),
        )

    def measure(self, sums: Floats, level: float) -> tuple[Floats, Floats, Floats]:
        """Return the estimate of the excess and bounds around it, from sums over rounds (5, n_times).

        The excess is at most zero if the rule holds.
        """
        least, most = find_interval(sums, self.events, level)
        estimate = estimate_rates(sums)
        bounds = np.fmin(least, estimate) + self.constant, np.fmax(most, estimate) + self.constant
        return estimate + self.constant, *bounds


class Game(NamedTuple):
    """The bets on some rounds."""

    sums: RoundSums
    factors: Floats  # (n_alternatives, n_rounds): by what the money is multiplied
    totals: Floats  # (2 * n_events,): after the rounds
    recent: RecentMeans | None


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
    sums: RateSums = field(default_factory=RateSums)
    totals: Floats = field(default_factory=lambda: np.empty(0))  # (2 * n_events,): of whole rounds
    recent: RecentMeans | None = None  # where bets are about guessed means
    rounds_before: int = 0  # of which the evidence was forgotten
    log_ever: float = 0.0
    log_change: float = -math.inf
    broken_at: int | None = None  # the number of rows that the monitor had seen
    changed_at: int | None = None
    every: int = _FIRST_EVERY  # rounds from one point of the history to the next
    history: tuple[Point | Moment, ...] = ()

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


def _note(
    state: RuleState, numbers: NDArray[np.int64], course: Course, sums: Floats, ends: NDArray[np.int64]
) -> tuple[int, tuple[Point | Moment, ...]]:
    """Return the history with the moments that are due, and the number of rounds between them.

    That number depends on the numbers of the rounds alone.
    """
    every, history = state.every, list(state.history)
    due = np.flatnonzero(numbers % every == 0)
    while len(history) + len(due) > _MOST_POINTS:
        every, history = 2 * every, history[1::2]
        due = due[numbers[due] % every == 0]
    logs = np.stack([course.ever[due], course.change[due]]) / math.log(10)
    lines = zip(ends[due].tolist(), *logs.tolist(), map(tuple, sums[:, due].T.tolist()), strict=True)
    return every, (*history, *(Moment(*line) for line in lines))


def _find_first(course: Floats, limit: float, ends: NDArray[np.int64], before: int | None) -> int | None:
    """Return the number of rows at which a course first reached a limit."""
    if before is not None:
        return before
    reached = np.flatnonzero(course >= limit)
    return int(ends[reached[0]]) if len(reached) else None


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def merge_copies(rules: Sequence[Rule], rows: DecidedRows, batched: bool = False) -> list[WatchedRule]:
    """Return each hypothesis once, with its copies: rules that agree on all rows, which are random here.

    Of two labels, a rule about one is a rule about the other.
    """
    merged: dict[Any, WatchedRule] = {}
    for rule in rules:
        watched = WatchedRule.of(rule, rows.space, rows.limits, batched)
        key = _describe(watched, rows)
        copies = merged[key].copies if key in merged else ()
        merged[key] = replace(merged.get(key, watched), copies=(*copies, str(rule)))
    return list(merged.values())


def _describe(watched: WatchedRule, rows: DecidedRows) -> tuple[Any, ...]:
    """Return weights and amounts of the rows, up to constants that events may exchange."""
    constant, columns = watched.constant, list[bytes]()
    for one in rows.sample(watched.hypothesis):
        inside = one.sizes > 0
        if not inside.any():  # none of the rows distinguishes this rule from others
            return (str(watched.rule),)
        values = one.amounts[inside] / one.sizes[inside]
        level = float(values[0])
        constant += level
        columns.append(np.round(one.sizes, 9).tobytes() + (np.round(values - level, 9) + 0.0).tobytes())
    return (round(constant, 9), *sorted(columns))


def find_interval(sums: Floats, events: Events, level: float) -> tuple[Floats, Floats]:
    """Compute lower and upper bounds on the sum of conditional means, from sums (5, n_times) over rounds.

    Each is ever wrong with probability `level`.
    """
    n_times, estimate = sums.shape[1], estimate_rates(sums)
    inside = np.clip(np.nan_to_num(estimate, nan=events.lowest), events.lowest, events.highest)
    lower = _search(sums, events, level, np.full(n_times, events.lowest), inside, 1.0)
    upper = _search(sums, events, level, np.full(n_times, events.highest), inside, -1.0)
    unseen = np.isnan(estimate)
    return np.where(unseen, events.lowest, lower), np.where(unseen, events.highest, upper)


def estimate_rates(sums: Floats) -> Floats:
    """Return the sum of conditional means, (n_times,); nan before there are rows of every event."""
    weights, amounts = sums[:2]
    return np.divide(amounts, weights, out=np.full(len(weights), np.nan), where=weights > 0)


def _search(sums: Floats, events: Events, level: float, out: Floats, inside: Floats, sign: float) -> Floats:
    """Return the end of the sequence, between a value that may be out of it and one that is in it."""
    kept = ~_is_refuted(out, sums, events, level, sign)
    refuted, held = out.copy(), inside.copy()
    for _ in range(40):  # halvings, to the last bits
        middle = (refuted + held) / 2
        gone = _is_refuted(middle, sums, events, level, sign)
        refuted, held = np.where(gone, middle, refuted), np.where(gone, held, middle)
    return np.where(kept, out, held)


def _is_refuted(rate: Floats, sums: Floats, events: Events, level: float, sign: float) -> Mask:
    """Check where the rate is too small (sign 1) or too large (-1) for the rounds so far."""
    weights, amounts, squares, products, squared_weights = sums
    total = sign * (amounts - rate * weights)
    variance = np.maximum(squares - 2 * rate * products + rate**2 * squared_weights, 0.0)
    # The more a round can fall behind, the farther ahead of zero their total can be by chance.
    behind = events.find_largest_loss(-rate) if sign > 0 else events.find_largest_gain(-rate)
    # Stakes are relative to the scale.
    scale = np.maximum(behind, _LEAST_SCALE * (events.highest - events.lowest))
    return find_log_wealth(total, variance, scale) > math.log(1 / level)


def find_log_wealth(total: Floats, variance: Floats, scale: Floats) -> Floats:
    """Compute the logarithm of the mean supermartingale over all stakes, (n_times,)."""
    logs = np.multiply.outer(_STAKES, total / scale) + np.multiply.outer(
        np.log1p(-_STAKES) + _STAKES, variance / scale**2
    )
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))
