"""Are alarms as rare as a monitor says? Years of rows for which every rule is exactly at its bound.

Rules that only just hold are those that are called broken most often. Each year has 365 days of 500 rows;
decisions, labels, groups and costs are drawn so that the rate of the rule is exactly its bound, on every day.
Of each year it is noted whether a rule was called broken, which may happen in 5 of 100 years however often
anybody looks, and whether the confidence sequence missed the rate at one of its times. The detector of
changes runs through all years and begins anew after each false alarm; their mean distance is 100,000 rows at
least. The first year of every kind goes through `Monitor.update`, day by day, and must end in the same state.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save

from bylaw import Evidence, Monitor, Policy, Problem, error, miscoverage, rejected, size, solve
from bylaw.testing._rounds import follow_means
from bylaw.testing._watched_rows import WatchedRows
from bylaw.testing._watched_rule import RuleState, WatchedRule
from bylaw.testing._wealth import Wealth

HERE = Path(__file__).parent
EVER, RUN_LENGTH = 0.05, 100_000
ROWS_PER_DAY = 500
REGIONS = tuple("abcdefgh")
VALUES = {"sex": ("F", "M"), "region": REGIONS}
LIMITS = {"loss": (0.0, 5.0)}
CLASSES = ("no", "yes", "maybe")  # the last of sets alone
NO, YES, REJECT = 0, 1, 2
Generator = np.random.Generator


class Drawn(NamedTuple):
    """Rows as they turned out, all as codes; (n_rows,) each."""

    decisions: np.ndarray  # of sets (n_rows, n_labels), whether a label is in
    labels: np.ndarray | None = None
    groups: dict[str, np.ndarray] = {}  # noqa: RUF012
    old: np.ndarray | None = None
    loss: np.ndarray | None = None  # of the decision that was taken


class Kind(NamedTuple):
    """Rules that are exactly at their bounds, and rows for which that is so."""

    rules: tuple[str, ...]
    draw: Callable[[Generator, np.ndarray], Drawn]  # from the day of the year of each row
    sets: bool = False
    days_late: int = 0  # of labels


def choose(rng: Generator, chance: np.ndarray | float, n: int) -> np.ndarray:
    return rng.random(n) < chance


def draw_rate(rng: Generator, day: np.ndarray) -> Drawn:
    return Drawn(np.where(choose(rng, 0.2, len(day)), REJECT, YES))


def draw_errors(rng: Generator, day: np.ndarray) -> Drawn:
    """Women are decided wrongly in 15 of 100 cases, men in 40."""
    n = len(day)
    men, labels = choose(rng, 0.7, n), choose(rng, 0.5, n)
    return Drawn(labels ^ choose(rng, np.where(men, 0.4, 0.15), n), labels, {"sex": men})


def draw_groups(
    women: Callable[[np.ndarray], Any], men: Callable[[np.ndarray], Any], share: Callable[[np.ndarray], Any]
) -> Callable[[Generator, np.ndarray], Drawn]:
    """Both groups with their rates of acceptance, and the share of women, by the day of the year."""

    def draw(rng: Generator, day: np.ndarray) -> Drawn:
        is_man = ~choose(rng, share(day), len(day))
        return Drawn(choose(rng, np.where(is_man, men(day), women(day)), len(day)), groups={"sex": is_man})

    return draw


def constant(value: float) -> Callable[[np.ndarray], float]:
    return lambda day: value


def season(mean: float, swing: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda day: mean + swing * np.sin(2 * np.pi * day / 365)


def draw_selective(rng: Generator, day: np.ndarray) -> Drawn:
    """Of rows that are accepted, one in ten is wrong; of the others, four in ten."""
    n = len(day)
    decided = choose(rng, 0.4, n)
    return Drawn(decided, decided ^ choose(rng, np.where(decided, 0.1, 0.4), n))


def draw_precision(rng: Generator, day: np.ndarray) -> Drawn:
    """Accepted women are right more often by 5 of 100; they are accepted less often."""
    n = len(day)
    men = choose(rng, 0.6, n)
    decided = choose(rng, np.where(men, 0.5, 0.3), n)
    return Drawn(decided, choose(rng, np.where(decided, np.where(men, 0.7, 0.75), 0.3), n), {"sex": men})


def draw_sets(rng: Generator, day: np.ndarray) -> Drawn:
    """The true label is in the set in nine of ten cases, and each of the two others in three of ten."""
    n = len(day)
    labels = rng.integers(3, size=n)
    true = labels[:, None] == np.arange(3)
    return Drawn(rng.random((n, 3)) < np.where(true, 0.9, 0.3), labels)


def draw_churn(rng: Generator, day: np.ndarray) -> Drawn:
    decided = choose(rng, 0.5, len(day))
    return Drawn(decided, old=decided ^ choose(rng, 0.1, len(day)))


def draw_losses(rng: Generator, day: np.ndarray) -> Drawn:
    """Of mean one between zero and five: small ones mostly."""
    return Drawn(choose(rng, 0.5, len(day)), loss=5 * rng.beta(0.5, 2.0, len(day)))


def draw_odds(rng: Generator, day: np.ndarray) -> Drawn:
    """Among true labels yes, three of ten rows are women, accepted more often than all by 5 of 100."""
    n = len(day)
    labels = choose(rng, 0.5, n)
    men = choose(rng, np.where(labels, 0.7, 0.4), n)
    accepted = np.where(men, 0.6, 0.6 + 0.05 / 0.7)
    return Drawn(choose(rng, np.where(labels, accepted, 0.2), n), labels, {"sex": men})


def draw_regions(rng: Generator, day: np.ndarray) -> Drawn:
    return Drawn(choose(rng, 0.3, len(day)), groups={"region": rng.integers(8, size=len(day))})


GAP = "selected('yes').given(sex='F') - selected('yes').given(sex='M') <= 0.05"
TO_ALL = "selected('yes').given(sex='F') - selected('yes') <= 0.03"
SHARE = season(0.4, 0.3)
KINDS = {
    "rate": Kind(("rejected() <= 0.2",), draw_rate),
    "rate of a group": Kind(("error().given(sex='F') <= 0.15",), draw_errors),
    "gap between groups": Kind((GAP,), draw_groups(constant(0.35), constant(0.3), constant(0.5))),
    "gap, one group of 5 %": Kind((GAP,), draw_groups(constant(0.35), constant(0.3), constant(0.05))),
    "gap, rates and shares move with the season": Kind(
        (GAP,), draw_groups(season(0.45, 0.3), season(0.4, 0.3), SHARE)
    ),
    "group against all": Kind(
        (TO_ALL,), draw_groups(constant(0.3 + 0.03 / 0.7), constant(0.3), constant(0.3))
    ),
    "group against all, rates and shares move": Kind(
        (TO_ALL,),
        draw_groups(lambda day: season(0.4, 0.3)(day) + 0.03 / (1 - SHARE(day)), season(0.4, 0.3), SHARE),
    ),
    "ratio": Kind(
        ("selected('yes').given(sex='F') >= 0.8 * selected('yes').given(sex='M')",),
        draw_groups(constant(0.4), constant(0.5), constant(0.4)),
    ),
    "error of a decision": Kind(("error().given(decision='yes') <= 0.1",), draw_selective),
    "gap of precisions": Kind(
        ("precision('yes').given(sex='F') - precision('yes').given(sex='M') <= 0.05",), draw_precision
    ),
    "size of sets": Kind(("size() <= 1.5",), draw_sets, sets=True),
    "miscoverage": Kind(("miscoverage() <= 0.1",), draw_sets, sets=True),
    "churn": Kind(("disagreement('old') <= 0.1",), draw_churn),
    "cost from 0 to 5": Kind(("custom('loss') <= 1.0",), draw_losses),
    "odds, labels 30 days late": Kind(
        ("selected('yes').given(sex='F', label='yes') - selected('yes').given(label='yes') <= 0.05",),
        draw_odds,
        days_late=30,
    ),
    "eight rates at once": Kind(
        tuple(f"selected('yes').given(region={region!r}) <= 0.3" for region in REGIONS), draw_regions
    ),
}


@cache
def fit(sets: bool) -> Policy:
    """A policy, whose decisions are not asked for: those that were taken are drawn."""
    scores = np.random.default_rng(0).dirichlet(np.ones(3 if sets else 2), 400)
    problem = Problem(size(), [miscoverage() <= 0.1]) if sets else Problem(error(), [rejected() <= 0.2])
    return solve(problem, Evidence(scores, classes=CLASSES[: scores.shape[1]]))


def begin(kind: Kind) -> Monitor:
    return Monitor(
        fit(kind.sets),
        rules=list(kind.rules),
        ever=EVER,
        run_length=RUN_LENGTH,
        groups=VALUES,
        limits=LIMITS if any("loss" in rule for rule in kind.rules) else None,
    )


def convert(drawn: Drawn) -> WatchedRows:
    """As the monitor reads them."""
    decisions = drawn.decisions
    taken = decisions.astype(float) if decisions.ndim == 2 else np.eye(3)[decisions.astype(int)]
    labels = np.zeros(len(taken), int) if drawn.labels is None else drawn.labels.astype(int)
    columns = {"decisions": taken, "labels": labels}
    columns |= {f"groups/{name}": codes.astype(int) for name, codes in drawn.groups.items()}
    if drawn.old is not None:
        columns["references/old"] = drawn.old.astype(int)
    if drawn.loss is not None:
        columns["costs/loss"] = np.repeat(drawn.loss[:, None], 3, axis=1)
    return WatchedRows(columns)


class Course(NamedTuple):
    """What a rule reads of a year."""

    columns: np.ndarray  # (2 * n_events, n_rows)
    numbers: np.ndarray  # (n_rows,): how many rows the monitor had seen with each


def read(monitor: Monitor, kind: Kind, drawn: Drawn, day: np.ndarray) -> list[Course]:
    """For each rule; labels that would come after the year are not there."""
    rows, numbers = convert(drawn), 1 + np.arange(len(day))
    if kind.days_late:
        known = np.flatnonzero(day + kind.days_late < day[-1] + 1)
        rows, numbers = rows.take(known), (day[known] + kind.days_late + 1) * int((day == 0).sum())
    sample = monitor._sample(rows)
    found = [rule.read(sample) for rule in monitor.watched]
    return [Course(columns, numbers[places]) for columns, places in found]


def judge_year(monitor: Monitor, courses: Sequence[Course]) -> tuple[list[RuleState], dict[str, Any]]:
    """Whether a rule was called broken, and whether a confidence sequence missed its rate at some time."""
    limits, states, missed = monitor.alarm_limits, [], False
    for rule, course in zip(monitor.watched, courses, strict=True):
        states.append(rule.advance(rule.begin(), course.columns, course.numbers, limits))
        missed |= any(not point.lower <= 1e-9 or not point.upper >= -1e-9 for point in states[-1].history)
    return states, {"broken": any(state.broken_at is not None for state in states), "missed": missed}


class Detector:
    """Runs on and on, and begins anew after each alarm."""

    def __init__(self, monitor: Monitor) -> None:
        self.rules, self.limit = monitor.watched, monitor.alarm_limits.log_change
        self.wealths = [Wealth() for _ in self.rules]
        self.before = self.begun = 0  # rows
        self.lengths: list[int] = []

    def run(self, courses: Sequence[Course], n_rows: int) -> None:
        parts = [find_factors(rule, *course) for rule, course in zip(self.rules, courses, strict=True)]
        while True:
            played = [
                wealth.bet(part[0], rule.events.blocks_per_deposit)
                for rule, wealth, part in zip(self.rules, self.wealths, parts, strict=True)
            ]
            pairs = zip(parts, played, strict=True)
            alarms = [ends[course[1] >= self.limit][:1] for (_, ends), (_, course) in pairs]
            if not any(len(alarm) for alarm in alarms):
                break
            first = min(int(alarm[0]) for alarm in alarms if len(alarm))
            self.lengths.append(self.before + first - self.begun)
            self.begun, self.wealths = self.before + first, [Wealth() for _ in self.rules]
            parts = [(factors[:, ends > first], ends[ends > first]) for factors, ends in parts]
        self.wealths, self.before = [wealth for wealth, _ in played], self.before + n_rows


def find_factors(rule: WatchedRule, columns: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """(n_alternatives, n_rounds): of each round, and how many rows the monitor had seen after it."""
    events, begun = rule.events, rule.begin()
    part = columns[:, : columns.shape[1] // events.rows * events.rows]
    totals = np.add.accumulate(np.column_stack([begun.totals, events.sum_columns(part)]), axis=1)
    guesses = follow_means(begun.guess, begun.marks, totals)[0] if events.guesses else begun.guess
    factors = events.find_factors(part, events.sum_rounds(part), rule.hypothesis.constant, guesses)
    return factors, numbers[events.rows - 1 : part.shape[1] : events.rows]


def replay(kind: Kind, drawn: Drawn, day: np.ndarray) -> list[RuleState]:
    """The same year day by day through the front door."""
    monitor, rows = begin(kind), convert(drawn)
    classes, actions = monitor.policy.action_space.classes, monitor.policy.action_space.actions
    labels = None if drawn.labels is None else np.array(classes, object)[rows.columns["labels"]]
    for today in range(int(day[-1]) + 1):
        part = np.flatnonzero(day == today)
        chances = np.full((len(part), len(classes)), 1 / len(classes))
        old = {} if drawn.old is None else {"old": np.array(classes, object)[drawn.old[part].astype(int)]}
        taken = drawn.decisions[part]
        monitor.update(
            Evidence(chances, classes=classes, references=old),
            decisions=taken if kind.sets else np.array(actions, object)[taken.astype(int)],
            groups={
                name: np.array(VALUES[name])[codes[part]] for name, codes in rows.select("groups").items()
            },
            labels=None if labels is None or kind.days_late else labels[part],
            outcomes={name: cost[part] for name, cost in rows.select("costs").items()} or None,
            ids=part if kind.days_late else None,
        )
        if kind.days_late and today >= kind.days_late:
            known = np.flatnonzero(day == today - kind.days_late)
            assert labels is not None
            monitor.update(ids=known, labels=labels[known])
    return monitor.states


def assert_same(one: Sequence[RuleState], two: Sequence[RuleState]) -> None:
    for mine, other in zip(one, two, strict=True):
        for name in ("rows", "sums", "log_ever", "log_change", "broken_at", "changed_at", "history"):
            if not np.array_equal(getattr(mine, name), getattr(other, name)):
                raise AssertionError(f"{name} differs: {getattr(mine, name)!r}, {getattr(other, name)!r}")
        if not all(
            (getattr(mine.wealth, name) == getattr(other.wealth, name)).all()
            for name in ("ever", "change", "product", "inverses")
        ):
            raise AssertionError("the wealth differs")


class Case(NamedTuple):
    kind: str
    seed: int
    years: int
    days: int


def measure(case: Case) -> dict[str, Any]:
    """So many years of one kind, one after the other."""
    kind, rng = KINDS[case.kind], np.random.default_rng([case.seed, *case.kind.encode()])
    monitor = begin(kind)
    detector, day = Detector(monitor), np.repeat(np.arange(case.days), ROWS_PER_DAY)
    count = {"broken": 0, "missed": 0}
    for year in range(case.years):
        drawn = kind.draw(rng, day)
        courses = read(monitor, kind, drawn, day)
        states, found = judge_year(monitor, courses)
        count = {name: count[name] + found[name] for name in count}
        detector.run(courses, len(day))
        if case.seed == year == 0:
            assert_same(states, replay(kind, drawn, day))
    lengths = {"rows": detector.before, "alarms": len(detector.lengths), "lengths": detector.lengths}
    return {**case._asdict(), **count, **lengths}


def summarise(found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for name, kind in KINDS.items():
        parts = [part for part in found if part["kind"] == name]
        years, rows, alarms = (sum(part[key] for part in parts) for key in ("years", "rows", "alarms"))
        lengths = np.array([length for part in parts for length in part["lengths"]])
        yield {
            "kind": name,
            "rules": len(kind.rules),
            "years": years,
            "broken": sum(part["broken"] for part in parts) / years,
            "missed": sum(part["missed"] for part in parts) / years,
            "alarms": alarms,
            "mean_run_length": rows / max(alarms, 1),
            "tenth": float(np.quantile(lengths, 0.1)) if alarms else math.nan,
            "median": float(np.median(lengths)) if alarms else math.nan,
        }


def table_of(found: Sequence[dict[str, Any]], days: int) -> str:
    years = found[0]["years"]
    error_of = 100 * math.sqrt(EVER * (1 - EVER) / years)
    lines = [
        f"{years:,} years of {days} days with {ROWS_PER_DAY} rows each, every rule exactly at its bound. In "
        "% of years: a rule was called broken at some time, or a confidence sequence missed the rate at some "
        f"time (each at most {100 * EVER:.0f}; the standard error of {100 * EVER:.0f} % is {error_of:.1f}). "
        "In rows: from one false alarm of the detector to the next (their mean is "
        f"{RUN_LENGTH:,} at least).\n",
        "| rules at their bounds | called broken | rate missed | false alarms | mean run | one in ten below "
        "| half below |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        runs = [format_rows(row[name], row["alarms"]) for name in ("mean_run_length", "tenth", "median")]
        lines.append(
            f"| {row['kind']} | {100 * row['broken']:.1f} | {100 * row['missed']:.1f} | {row['alarms']:,} | "
            f"{' | '.join(runs)} |"
        )
    return "\n".join(lines) + "\n"


def format_rows(rows: float, alarms: int) -> str:
    if math.isnan(rows):
        return "-"
    return f"{'' if alarms else 'above '}{rows:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--workers", type=int, help="processes; by default, one for each core")
    parser.add_argument("--quick", action="store_true", help="few years, of few days")
    arguments = parser.parse_args()
    parts, years, days = (2, 2, 40) if arguments.quick else (2, 40, 365)
    cases = [Case(name, seed, years, days) for name in KINDS for seed in range(parts)]
    with Pool(arguments.workers) as pool:
        found = list(summarise(pool.map(measure, cases, chunksize=1)))
    save(found, table_of(found, days), arguments.out, "validity")


if __name__ == "__main__":
    main()
