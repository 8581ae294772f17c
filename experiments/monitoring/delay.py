"""How soon is a rule that broke called broken, and what does it cost to watch?

After 60 quiet days with 500 rows each, the gap between the rates of acceptance of two groups grows from 0.02
to 0.10 or 0.15. Noted are the days until the first alarm of a monitor of both sides of the gap: of the
e-process, of the detector of changes, and of the first of both. Beside them is an e-process without new
deposits: all of its money is there on the first day, and has lost on quiet days what it needs later.

The cost of 40 rules is processor time per row, for updates of three sizes; the state is its file.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save
from experiments.monitoring.validity import EVER, ROWS_PER_DAY, RUN_LENGTH, find_factors

from bylaw import Evidence, Monitor, Policy, Problem, demographic_parity, equalized_odds, error, solve
from bylaw.monitoring.wealth import Wealth

HERE = Path(__file__).parent
QUIET_DAYS, QUIET_GAP = 60, 0.02
MOST_DAYS = 365  # after the change
WAYS = ("broken", "changed", "alarm", "single deposit")
SIZES = (500, 10_000, 100_000)
SEX, RACE = np.array(["F", "M"]), np.array(list("abcde"))
GROUPS = {"sex": SEX.tolist(), "race": RACE.tolist()}


class Case(NamedTuple):
    bound: float
    gap: float  # after the change
    accepted: float  # rate of the group that is accepted less often
    share: float  # of the group that is accepted more often
    runs: int


def fit() -> Policy:
    yes = np.random.default_rng(0).random(500)
    return solve(Problem(error()), Evidence(np.column_stack([1 - yes, yes]), classes=["no", "yes"]))


def draw_columns(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(4, n_rows): what the rule on the gap reads, and the numbers of the rows."""
    quiet, after = QUIET_DAYS * ROWS_PER_DAY, MOST_DAYS * ROWS_PER_DAY
    gap = np.repeat([QUIET_GAP, case.gap], [quiet, after])
    women = rng.random(len(gap)) < case.share
    taken = rng.random(len(gap)) < case.accepted + gap * women
    columns = np.stack([women, ~women, women & taken, -1.0 * (~women & taken)])
    return columns, 1 + np.arange(len(gap))


def find_days(ends: np.ndarray, reached: np.ndarray) -> float:
    """From the change to the first alarm after it; nan where there was one before."""
    first = ends[reached][:1]
    if not len(first):
        return math.inf
    days = (int(first[0]) - QUIET_DAYS * ROWS_PER_DAY) / ROWS_PER_DAY
    return days if days > 0 else math.nan


def measure(case: Case) -> list[dict[str, Any]]:
    rules = [
        f"selected('yes').given(sex={one!r}) - selected('yes').given(sex={two!r}) <= {case.bound}"
        for one, two in itertools.permutations(GROUPS["sex"])
    ]
    groups = {"sex": GROUPS["sex"]}
    monitor = Monitor(fit(), rules=rules, ever=EVER, run_length=RUN_LENGTH, groups=groups)
    watched, limits = monitor.watched[0], monitor.alarm_limits
    rng = np.random.default_rng([int(1000 * value) for value in case[:4]])
    found = []
    for run in range(case.runs):
        factors, ends = find_factors(watched, *draw_columns(case, rng))
        _, course = Wealth().bet(factors, watched.events.blocks_per_deposit)
        broken, changed = course.ever >= limits.log_ever, course.change >= limits.log_change
        days = [find_days(ends, reached) for reached in (broken, changed, broken | changed)]
        days.append(find_days(ends, play_once(factors) >= limits.log_ever))
        found.append({**case._asdict(), "run": run, **dict(zip(WAYS, days, strict=True))})
    return found


def play_once(factors: np.ndarray) -> np.ndarray:
    """The e-process of a single deposit, in logarithms, after each round."""
    logs = np.log(factors).cumsum(axis=1)
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))


def format_days(days: np.ndarray, quantile: float) -> str:
    """Infinite ones are beyond the year."""
    known = np.sort(days[~np.isnan(days)])
    value = known[min(math.ceil(quantile * len(known)), len(known)) - 1]
    return f"{value:.1f}" if math.isfinite(value) else f"> {MOST_DAYS}"


def table_of(found: Sequence[dict[str, Any]], runs: int) -> str:
    lines = [
        f"Days until an alarm at {ROWS_PER_DAY} rows a day, after {QUIET_DAYS} quiet days with a gap of "
        f"{QUIET_GAP}: the median of {runs} runs, and what 90 % of them need at most. Two rules are watched, "
        f'ever={EVER:g} and run_length={RUN_LENGTH:,}; "early" is the share of runs with an alarm before the '
        "change.\n",
        "| gap | bound | accepted | the group is | alarm | broken | changed | single deposit | early, % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in sorted({tuple(row[name] for name in Case._fields[:4]) for row in found}, key=order):
        rows = [row for row in found if tuple(row[name] for name in Case._fields[:4]) == case]
        bound, gap, accepted, share = case
        cells = []
        for way in ("alarm", "broken", "changed", "single deposit"):
            days = np.array([row[way] for row in rows])
            cells.append(f"{format_days(days, 0.5)} ({format_days(days, 0.9)})")
        early = 100 * np.mean([math.isnan(row["alarm"]) for row in rows])
        lines.append(
            f"| {gap:.2f} | {bound:.2f} | {accepted:.1f} | {100 * share:.0f} % | {' | '.join(cells)} "
            f"| {early:.1f} |"
        )
    return "\n".join(lines) + "\n"


def order(case: tuple[Any, ...]) -> tuple[float, ...]:
    bound, gap, accepted, share = case
    return -share, -gap, -bound, accepted


# Cost.


def make_monitor() -> Monitor:
    """Exactly 40 rules that are told apart."""
    families = [demographic_parity("race", tol=0.05), demographic_parity(("sex", "race"), tol=0.1)]
    policy, more = fit(), equalized_odds("race", tol=0.1)
    expanded = [rule for family in [*families, more] for rule in family.expand(("no", "yes"), read_groups())]
    for number in range(len(expanded), 0, -1):
        monitor = Monitor(policy, rules=expanded[:number], groups=GROUPS)
        if len(monitor.watched) == 40:
            return monitor
    raise AssertionError("there are fewer than 40 rules")


def read_groups() -> dict[str, tuple[str, ...]]:
    return {name: tuple(values) for name, values in GROUPS.items()}


def measure_cost(rows: int, seconds: float) -> list[dict[str, Any]]:
    """Microseconds a row, of the whole update and without what the policy itself needs to decide."""
    rng, monitor = np.random.default_rng(0), make_monitor()
    yes = rng.random(max(SIZES))
    sex, race = rng.choice(SEX, len(yes)), rng.choice(RACE, len(yes))
    labels = np.where(rng.random(len(yes)) < yes, "yes", "no")
    evidence = Evidence(np.column_stack([1 - yes, yes]), classes=["no", "yes"])
    taken = monitor.policy.decide(evidence, rng=0)
    found = []
    for size in SIZES:
        part, updates, begun = np.arange(min(size, rows)), 0, time.process_time()
        here = evidence.rows(part)
        while not updates or time.process_time() - begun < seconds:
            groups = {"sex": sex[part], "race": race[part]}
            monitor.update(here, labels=labels[part], groups=groups, decisions=taken[part])
            updates += 1
        spent = time.process_time() - begun
        found.append({"rows": len(part), "microseconds": 1e6 * spent / (updates * len(part))})
    with tempfile.TemporaryDirectory() as folder:
        monitor.save(Path(folder) / "state.json")
        state = (Path(folder) / "state.json").stat().st_size / 1000
    return [{**row, "rules": len(monitor.watched), "state_kb": state, "seen": monitor.rows} for row in found]


def table_of_costs(found: Sequence[dict[str, Any]]) -> str:
    first = found[0]
    lines = [
        f"Processor time of a monitor of {first['rules']} rules, with labels, groups and decisions; its "
        f"state has {first['state_kb']:.0f} kB after {first['seen']:,} rows.\n",
        "| rows of an update | microseconds a row |",
        "|---|---|",
    ]
    lines += [f"| {row['rows']:,} | {row['microseconds']:.2f} |" for row in found]
    return "\n".join(lines) + "\n"


def list_cases(runs: int) -> list[Case]:
    grid = itertools.product((0.05, 0.03, 0.02), (0.15, 0.10), (0.3, 0.5), (0.5, 0.05))
    return [Case(*values, runs) for values in grid]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--workers", type=int, help="processes; by default, one for each core")
    parser.add_argument("--quick", action="store_true", help="few runs, few rows")
    arguments = parser.parse_args()
    runs, rows, seconds = (3, 1000, 0.0) if arguments.quick else (200, max(SIZES), 5.0)
    costs = measure_cost(rows, seconds)
    save(costs, table_of_costs(costs), arguments.out, "cost")
    with Pool(arguments.workers) as pool:
        found = [row for rows in pool.map(measure, list_cases(runs), chunksize=1) for row in rows]
    save(found, table_of(found, runs), arguments.out, "delay")


if __name__ == "__main__":
    main()
