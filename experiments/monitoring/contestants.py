"""Ways to watch a rule in production, each as its own documentation has it.

A contestant is one function of a stream that returns the day of its first alarm, counted from 0, or None.
It decides about a day from that day, the days before it and the reference period, never from later days.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas
from experiments.monitoring.streams import BOUND, ROWS, Days, Stream
from scipy.stats import norm

os.environ["NML_DISABLE_USAGE_LOGGING"] = os.environ["DO_NOT_TRACK"] = (
    "1"  # nannyml and evidently report home
)

LEVEL = 0.05
PLANNED_DAYS = 60
WINDOW = 30


def first(alarms: Any) -> int | None:
    """The first day with an alarm."""
    days = np.flatnonzero(np.asarray(alarms))
    return int(days[0]) if len(days) else None


# ---- without a library


def p_values(counts: np.ndarray, approved: np.ndarray) -> np.ndarray:
    """One-sided z-tests of whether the gap is above the bound, with the usual standard error, (n_days,)."""
    rates = approved / counts
    error = np.sqrt((rates * (1 - rates) / counts).sum(axis=1))
    return norm.sf((rates[:, 0] - rates[:, 1] - BOUND) / error)


def z_test(stream: Stream, level: float = LEVEL) -> int | None:
    """A test of each day's rows."""
    return first(p_values(stream.counts, stream.approved) < level)


def z_test_so_far(stream: Stream) -> int | None:
    """A test of all rows so far, every day."""
    return first(p_values(stream.counts.cumsum(axis=0), stream.approved.cumsum(axis=0)) < LEVEL)


def threshold(stream: Stream) -> int | None:
    """A line on a dashboard: the gap of the day is above the bound."""
    return first(stream.gaps > BOUND)


# ---- nannyml: a value per chunk, alerts outside three standard deviations of the reference's chunks


def dated(days: Days, start: int, **columns: np.ndarray) -> pandas.DataFrame:
    """A table with a time for every row or, where a column has one value a day, for every day."""
    rows = len(next(iter(columns.values()))) // len(days)
    moments = pandas.Timestamp(2025, 1, 1) + pandas.to_timedelta(
        np.arange(start, start + len(days)), unit="D"
    )
    return pandas.DataFrame({"time": np.repeat(moments, rows), **columns})


def tables_of_group(stream: Stream, group: int) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The decisions about one group: the reference, and the days to watch."""
    periods = ((stream.reference, 0), (stream, len(stream.reference)))
    tables = (
        dated(days, start, approve=days.decision.ravel())[days.group.ravel() == group]
        for days, start in periods
    )
    reference, watched = tables
    return reference, watched


def alerts(calculator: Any, reference: pandas.DataFrame, watched: pandas.DataFrame) -> np.ndarray:
    """nannyml's alert for every day."""
    calculator.fit(reference)
    found = calculator.calculate(watched).filter(period="analysis").to_df()
    if len(found) != watched.time.nunique():
        raise ValueError(f"nannyml has {len(found)} chunks for {watched.time.nunique()} days.")
    return found.loc[:, found.columns.get_level_values(-1) == "alert"].any(axis=1).to_numpy()


def nannyml_rates(stream: Stream) -> int | None:
    """Summary statistics: the average decision of each group, an alert for either."""
    from nannyml import SummaryStatsAvgCalculator

    options = {"column_names": ["approve"], "timestamp_column_name": "time", "chunk_period": "D"}
    tables = (tables_of_group(stream, group) for group in (0, 1))
    return first(np.any([alerts(SummaryStatsAvgCalculator(**options), *pair) for pair in tables], axis=0))


def nannyml_gap(stream: Stream) -> int | None:
    """Summary statistics: the gap as a column with one value a day; only large values are alerts."""
    from nannyml import SummaryStatsAvgCalculator
    from nannyml.thresholds import StandardDeviationThreshold

    upper = StandardDeviationThreshold(std_lower_multiplier=None)
    options = {"timestamp_column_name": "time", "chunk_period": "D", "threshold": upper}
    calculator = SummaryStatsAvgCalculator(column_names=["gap"], **options)
    reference = dated(stream.reference, 0, gap=stream.reference.gaps)
    return first(alerts(calculator, reference, dated(stream, len(stream.reference), gap=stream.gaps)))


def nannyml_drift(stream: Stream) -> int | None:
    """Univariate drift of the decision in each group, by its default distance for categories."""
    from nannyml import UnivariateDriftCalculator

    found = []
    for group in (0, 1):
        tables = [table.astype({"approve": str}) for table in tables_of_group(stream, group)]
        calculator = UnivariateDriftCalculator(
            column_names=["approve"], timestamp_column_name="time", chunk_period="D"
        )
        found.append(alerts(calculator, *tables))
    return first(np.any(found, axis=0))


# ---- evidently: a report a day, with tests


def fails(report: Any, current: Any, reference: Any = None) -> bool:
    """Whether a test of a report fails."""
    return any(test.status.value == "FAIL" for test in report.run(current, reference).tests_results)


def evidently_drift(stream: Stream, method: str | None = None) -> int | None:
    """Drift of the day's decisions in each group against the reference; without a method, its default."""
    from evidently import DataDefinition, Dataset, Report
    from evidently.metrics import ValueDrift

    def dataset(decisions: np.ndarray) -> Any:
        table = pandas.DataFrame({"approve": np.where(decisions, "yes", "no")})
        return Dataset.from_pandas(table, data_definition=DataDefinition(categorical_columns=["approve"]))

    report = Report([ValueDrift(column="approve", method=method)], include_tests=True)
    before = stream.reference
    references = [dataset(before.decision[before.group == group]) for group in (0, 1)]
    for day in range(len(stream)):
        if any(fails(report, dataset(stream.of(day, group)), references[group]) for group in (0, 1)):
            return day
    return None


def evidently_gap(stream: Stream) -> int | None:
    """A test that the mean of a column, the day's gap, is at most the bound."""
    from evidently import DataDefinition, Dataset, Report
    from evidently.metrics import MeanValue
    from evidently.tests import lte

    report = Report([MeanValue(column="gap", tests=[lte(BOUND)])])
    definition = DataDefinition(numerical_columns=["gap"])
    for day, gap in enumerate(stream.gaps):
        if fails(report, Dataset.from_pandas(pandas.DataFrame({"gap": [gap]}), data_definition=definition)):
            return day
    return None


# ---- river: detectors of change, one per series; they see the reference first


def changes(detector: Any, values: np.ndarray) -> bool:
    """Whether a detector finds a change while it sees these values."""
    found = False
    for value in values.tolist():
        detector.update(value)
        found = found or detector.drift_detected
    return found


def river_rows(stream: Stream, detector: str) -> int | None:
    """A detector per group with its default options, on each row's decision."""
    from river import drift

    detectors = [getattr(drift, detector)() for _ in (0, 1)]
    for group in (0, 1):
        changes(detectors[group], stream.reference.decision[stream.reference.group == group])
    for day in range(len(stream)):
        if any(changes(detectors[group], stream.of(day, group)) for group in (0, 1)):
            return day
    return None


def river_gap(stream: Stream) -> int | None:
    """ADWIN on the gap of each day; it checks every day, not every 32."""
    from river.drift import ADWIN

    detector = ADWIN(clock=1)
    changes(detector, stream.reference.gaps)
    return first([changes(detector, stream.gaps[[day]]) for day in range(len(stream))])


# ---- glide: a confidence sequence of the running mean, one batch a day


def contrasts(days: Days, day: int) -> np.ndarray:
    """Values whose mean estimates the gap: each row of the rarer group with its part of the others.

    The standard error of their mean is that of the difference of the two rates.
    """
    a, b = days.of(day, 0), days.of(day, 1)
    n = min(len(a), len(b))
    means = [
        np.add.reduceat(x, starts) / np.diff([*starts, len(x)])
        for x in (a, b)
        for starts in [starts_of(x, n)]
    ]
    return means[0] - means[1]


def starts_of(values: np.ndarray, parts: int) -> np.ndarray:
    """Where the parts of an array begin, equal in size to within one."""
    return np.arange(parts) * len(values) // parts


def glide(stream: Stream, confidence: float = 1 - LEVEL, window: int | None = None) -> int | None:
    """AsymptoticClassicalRM on all days so far, or on the last `window` days."""
    from glide.monitors import AsymptoticClassicalRM

    values = [contrasts(stream, day) for day in range(len(stream))]

    def alarms(start: int, end: int) -> np.ndarray:
        batches = np.repeat(np.arange(start, end), [len(x) for x in values[start:end]])
        options = {"higher_is_better": False, "threshold": BOUND, "confidence_level": confidence}
        return AsymptoticClassicalRM().detect(np.concatenate(values[start:end]), batches, **options).alarms

    if window is None:  # from the tenth day on, one call for all days is the same as one a day
        return first(alarms(0, len(stream)))
    return next((day for day in range(len(stream)) if alarms(max(day + 1 - window, 0), day + 1)[-1]), None)


# ---- bylaw: its place; once written, add it to CONTESTANTS: Contestant("bylaw, Monitor", bylaw, "bylaw")


# ---- bylaw

RULE = f"selected(1).given(group=0) - selected(1).given(group=1) <= {BOUND}"


@cache
def any_policy() -> Any:
    """With two decisions and two groups: what is watched are the decisions as they were taken."""
    from bylaw import Evidence, Problem, error, solve

    evidence = Evidence(np.tile([[0.4, 0.6], [0.7, 0.3]], (20, 1)), groups={"group": np.arange(40) // 2 % 2})
    return solve(Problem(error(), [RULE.replace(str(BOUND), "1")]), evidence)


def monitor(stream: Stream, statuses: tuple[str, ...] = ("broken", "changed")) -> int | None:
    """`Monitor` with the rule. Into how many updates the rows are cut makes no difference, so it is one; the
    day is that of the row at which the alarm was raised."""
    from bylaw import Evidence, Monitor

    rows = Evidence(np.full((stream.group.size, 2), 0.5), groups={"group": stream.group.ravel()})
    watch = Monitor(any_policy(), rules=[RULE])
    watch.update(rows, decisions=stream.decision.ravel())
    times = {"broken": watch.states[0].broken_at, "changed": watch.states[0].changed_at}
    found = [times[status] for status in statuses if times[status] is not None]
    return (min(found) - 1) // ROWS if found else None


@dataclass(frozen=True)
class Contestant:
    """One way to watch.

    Attributes
    ----------
    name
        As shown.
    watch
        From a stream to the day of its first alarm.
    package
        What it imports, or nothing.
    asks
        "rule": whether the gap is above the bound; "change": whether something differs from the reference.
    runs
        How many streams it watches, fewer where it is slow.
    """

    name: str
    watch: Callable[[Stream], int | None]
    package: str = ""
    asks: str = "rule"
    runs: int = 2000

    @property
    def importable(self) -> bool:
        return not self.package or find_spec(self.package) is not None


ADWIN, PAGE_HINKLEY = partial(river_rows, detector="ADWIN"), partial(river_rows, detector="PageHinkley")
CORRECTED = partial(z_test, level=LEVEL / PLANNED_DAYS)
EVIDENTLY_Z = partial(evidently_drift, method="z")
BROKEN = partial(monitor, statuses=("broken",))
CONTESTANTS = (
    Contestant("bylaw, Monitor", monitor, runs=500),
    Contestant("bylaw, Monitor, only where a rule is called broken", BROKEN, runs=500),
    Contestant("z-test of the day", z_test),
    Contestant(f"z-test of the day, Bonferroni for {PLANNED_DAYS} days", CORRECTED),
    Contestant("z-test of all rows so far, every day", z_test_so_far),
    Contestant("threshold on the day's gap", threshold),
    Contestant("nannyml, mean decision of each group", nannyml_rates, "nannyml", "change", 60),
    Contestant("nannyml, gap as a daily column", nannyml_gap, "nannyml", "change", 60),
    Contestant("nannyml, drift of the decision in each group", nannyml_drift, "nannyml", "change", 60),
    Contestant("evidently, drift in each group, default", evidently_drift, "evidently", "change", 6),
    Contestant("evidently, drift in each group, z-test", EVIDENTLY_Z, "evidently", "change", 40),
    Contestant("evidently, test that the day's gap <= 0.05", evidently_gap, "evidently", runs=40),
    Contestant("river, ADWIN on each group's rows", ADWIN, "river", "change", 300),
    Contestant("river, Page-Hinkley on each group's rows", PAGE_HINKLEY, "river", "change", 300),
    Contestant("river, ADWIN on the daily gap", river_gap, "river", "change", 300),
    Contestant("glide, all days so far, 95 %", glide, "glide", runs=150),
    Contestant(
        "glide, all days so far, 80 % (its default)", partial(glide, confidence=0.8), "glide", runs=150
    ),
    Contestant(f"glide, the last {WINDOW} days, 95 %", partial(glide, window=WINDOW), "glide", runs=150),
)
