"""One rule that is watched: what it reads of rows, and all that is kept of the rows so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.errors import RuleError
from bylaw.language.expressions import Event, Rate, Rule
from bylaw.testing._confidence_sequences import estimate_rates, find_interval
from bylaw.testing._hypotheses import HeldOutSample, are_disjoint, drop_conditions, list_names
from bylaw.testing._rounds import Events, RateSums, RecentMeans, RoundSums
from bylaw.testing._wealth import Course, Wealth

_MOST_POINTS = 28  # of a rule's history; then every second one is dropped
_FIRST_EVERY = 8  # rounds from one point to the next, at first
_DIGITS = 5  # of a point


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
    """A rule, and its copies: of two labels, a rule about one is a rule about the other."""

    rule: Rule
    copies: tuple[str, ...]  # their texts; its own is the first
    needs: frozenset[str]  # attributes, "label" and costs that rows must show
    events: Events
    constant: float  # with which the sum of means is at most zero

    @classmethod
    def of(cls, rule: Rule, sample: HeldOutSample, batched: bool = False) -> WatchedRule:
        """`sample` has rows with all that rules read; only their limits count."""
        excess = rule.excess.resolve(sample.space.classes)
        if any(atom.definition.factors is not None for atom, _ in excess.terms):
            raise RuleError(f"{rule}: a geometric mean is no mean over rows, and cannot be watched")
        parts = excess.by_event()
        events = Events.of(
            sample.make_samples(rule),
            disjoint=are_disjoint(tuple(parts)),
            binary=all(event.whole is None for event in parts),
            cancels=_cancels(parts),
            batched=batched,
        )
        needs = frozenset(list_names(excess, sample.space))
        return cls(rule, (str(rule),), needs, events, excess.constant)

    def read(self, sample: HeldOutSample) -> tuple[Floats, NDArray[np.intp]]:
        """(2 * n_events, n_rows): weights and amounts of the rows that are in an event; and their places."""
        samples = sample.make_samples(self.rule)
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
        """Return the state after more rows of its events, (2 * n_events, n_rows); `rows` (n_rows,) is how
        many the monitor had seen with each."""
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
        """With rates and bounds at all times of its history."""
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
        """Compute the estimate of the excess, which is at most zero where the rule holds, and bounds around
        it, from sums over rounds (5, n_times)."""
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
        """For several rules together: ever a false alarm with probability `ever`, and a mean number of at
        least `run_length` rows, or batches, until one of the detector, which gets a deposit each round."""
        n_rules = len(events)
        deposits = sum(run_length / (1 if one.batched else one.rows) + 1 for one in events)
        return cls(math.log(n_rules / ever), math.log(deposits), ever / (2 * n_rules))


@dataclass(frozen=True)
class RuleState:
    """All that is kept of the rows of one rule."""

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
    """The history with the moments that are due, and how many rounds are between them. That depends on the
    numbers of the rounds alone."""
    every, history = state.every, list(state.history)
    due = np.flatnonzero(numbers % every == 0)
    while len(history) + len(due) > _MOST_POINTS:
        every, history = 2 * every, history[1::2]
        due = due[numbers[due] % every == 0]
    logs = np.stack([course.ever[due], course.change[due]]) / math.log(10)
    lines = zip(ends[due].tolist(), *logs.tolist(), map(tuple, sums[:, due].T.tolist()), strict=True)
    return every, (*history, *(Moment(*line) for line in lines))


def _find_first(course: Floats, limit: float, ends: NDArray[np.int64], before: int | None) -> int | None:
    """The number of rows at which a course first reached a limit."""
    if before is not None:
        return before
    reached = np.flatnonzero(course >= limit)
    return int(ends[reached[0]]) if len(reached) else None


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _cancels(parts: Mapping[Event, Rate]) -> bool:
    """Whether one of two events is a part of the other, and what rows pay there has the opposite sign."""
    if len(parts) != 2 or any(event.whole is not None for event in parts):
        return False
    one, other = (dict(event.conditions).items() for event in parts)
    total = sum((drop_conditions(rate) for rate in parts.values()), Rate(()))
    return (one <= other or other <= one) and not total.terms and total.constant == 0


def merge_copies(rules: Sequence[Rule], sample: HeldOutSample, batched: bool = False) -> list[WatchedRule]:
    """Each hypothesis once: rules that tell the same of any row, such as those about each of two labels.
    `sample` has random rows."""
    found: dict[Any, WatchedRule] = {}
    for rule in rules:
        watched = WatchedRule.of(rule, sample, batched)
        key = _describe(watched, sample)
        if key in found:
            first = found[key]
            found[key] = replace(first, copies=(*first.copies, str(rule)))
        else:
            found[key] = watched
    return list(found.values())


def _describe(watched: WatchedRule, sample: HeldOutSample) -> tuple[Any, ...]:
    """What it makes of rows, up to constants that its events exchange."""
    constant, columns = watched.constant, list[bytes]()
    for one in sample.make_samples(watched.rule):
        inside = one.sizes > 0
        if not inside.any():  # none of the rows tells this rule from others
            return (str(watched.rule),)
        values = one.amounts[inside] / one.sizes[inside]
        level = float(values[0])
        constant += level
        columns.append(np.round(one.sizes, 9).tobytes() + (np.round(values - level, 9) + 0.0).tobytes())
    return (round(constant, 9), *sorted(columns))
