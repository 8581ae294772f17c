"""How soon is a rule that broke called broken or changed, and what does it cost to watch?

After a quiet time a rate, or the gap between the rates of two groups, moves beyond its bound. Noted are the
rows until the detector of changes and the e-process raise their alarm. The yardstick is an oracle: a CUSUM of
the likelihood ratio that knows all rates before and after the change, with a threshold by simulation so that
its average run length, where the rule just holds, is the one that the monitor promises. The null hypothesis
of its ratio is the closest to the rates after the change.

The cost of 40 rules is processor time per row, for updates of three sizes; the state is its file.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save
from experiments.monitoring.validity import EVER, RUN_LENGTH, find_factors
from scipy.special import rel_entr

from bylaw import Evidence, Monitor, Policy, Problem, demographic_parity, equalized_odds, error, solve
from bylaw.testing._wealth import Wealth

HERE = Path(__file__).parent
QUIET_ROWS = 10_000
CALIBRATED = (1000, 20_000)  # paths and their rows, from which the threshold of the oracle follows
SIZES = (500, 10_000, 100_000)
SEX, RACE = np.array(["F", "M"]), np.array(list("abcde"))
GROUPS = {"sex": SEX.tolist(), "race": RACE.tolist()}


class Case(NamedTuple):
    bound: float
    before: tuple[float, ...]  # the rate, or those of both groups
    after: tuple[float, ...]
    share: float = 1.0  # of the first group
    runs: int = 400

    @property
    def violation(self) -> float:
        """The rate, or the gap, after the change."""
        return self.after[0] - sum(self.after[1:])

    @property
    def null(self) -> tuple[float, ...]:
        """The rates at the bound that are closest to those after the change, by relative entropy."""
        if len(self.after) == 1:
            return (self.bound,)
        first = np.linspace(self.bound, 1, 10_002)[1:-1]
        rates, shares = np.stack([first, first - self.bound]), np.array([self.share, 1 - self.share])
        rates = np.clip(rates, 1e-9, 1 - 1e-9)
        distance = shares @ (rel_entr(np.array(self.after)[:, None], rates))
        distance += shares @ (rel_entr(1 - np.array(self.after)[:, None], 1 - rates))
        return tuple(rates[:, distance.argmin()].tolist())


CASES = (
    Case(0.2, (0.18,), (0.25,)),
    Case(0.2, (0.18,), (0.3,)),
    Case(0.2, (0.18,), (0.5,)),
    Case(0.2, (0.18,), (0.9,)),
    Case(0.05, (0.045,), (0.1,)),
    Case(0.02, (0.018,), (0.03,)),
    Case(0.05, (0.32, 0.3), (0.4, 0.3), 0.5),
    Case(0.05, (0.32, 0.3), (0.45, 0.3), 0.5),
    Case(0.05, (0.32, 0.3), (0.6, 0.3), 0.5),
    Case(0.05, (0.32, 0.3), (0.8, 0.3), 0.5),
    Case(0.05, (0.32, 0.3), (0.45, 0.3), 0.05),
    Case(0.05, (0.32, 0.3), (0.8, 0.3), 0.05),
)


def fit() -> Policy:
    yes = np.random.default_rng(0).random(500)
    return solve(Problem(error()), Evidence(np.column_stack([1 - yes, yes]), classes=["no", "yes"]))


def draw(
    case: Case, rates: Sequence[float], shape: int | tuple[int, ...], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The group of each row, 0 or 1, and whether it is accepted."""
    group = (rng.random(shape) >= case.share).astype(int)
    return group, rng.random(shape) < np.array(rates)[group]


def measure_oracle(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Rows until the alarm of the CUSUM, (n_runs,)."""
    after, null = np.array(case.after), np.array(case.null)
    gains = np.log(np.stack([(1 - after) / (1 - null), after / null], axis=1))  # of each group and decision

    def step(height: np.ndarray, rates: Sequence[float]) -> np.ndarray:
        group, accepted = draw(case, rates, len(height), rng)
        return np.maximum(height, 0) + gains[group, accepted.astype(int)]

    paths, rows = CALIBRATED
    height = top = np.zeros(paths)
    for _ in range(rows):
        height = step(height, case.null)
        top = np.maximum(top, height)
    # First passages are nearly exponential: within so many rows, this share has an alarm.
    limit = np.quantile(top, math.exp(-rows / RUN_LENGTH))
    height = np.zeros(case.runs)
    for _ in range(1000):
        height = np.minimum(step(height, case.before), limit - 1e-9)
    found, row = np.zeros(case.runs), 0
    while not found.all():
        row, height = row + 1, step(height, case.after)
        found[(found == 0) & (height >= limit)] = row
    return found


def measure(case: Case) -> dict[str, Any]:
    """Mean numbers of rows from the change to each alarm; runs with an alarm before it do not count."""
    gap = len(case.after) == 2
    one, two = (f"selected('yes').given(sex={value!r})" for value in GROUPS["sex"])
    rule = f"{one} - {two} <= {case.bound}" if gap else f"selected('yes') <= {case.bound}"
    groups = {"sex": GROUPS["sex"]} if gap else None
    monitor = Monitor(fit(), rules=rule, ever=EVER, run_length=RUN_LENGTH, groups=groups)
    watched, limits = monitor.watched[0], monitor.alarm_limits
    rng = np.random.default_rng([int(1000 * value) for value in (case.bound, *case.after, case.share)])
    oracle = measure_oracle(case, rng)
    n_rows, found = int(40 * oracle.mean()) + 1000, []
    for _ in range(case.runs):
        parts = [draw(case, case.before, QUIET_ROWS, rng), draw(case, case.after, n_rows, rng)]
        group, accepted = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        columns = [group == 0, group == 1, (group == 0) & accepted, -1.0 * ((group == 1) & accepted)]
        columns = np.stack(columns if gap else [columns[0], columns[2]]) * 1.0
        factors, ends = find_factors(watched, columns, 1 + np.arange(len(group)))
        _, course = Wealth().bet(factors, watched.events.blocks_per_deposit)
        reached = course[1] >= limits.log_change, course[0] >= limits.log_ever
        found.append([int(ends[way][0]) - QUIET_ROWS if way.any() else n_rows for way in reached])
    rows = np.array(found)
    late = (rows > 0).all(axis=1)
    return {
        **case._asdict(),
        "oracle": float(oracle.mean()),
        "changed": float(rows[late, 0].mean()),
        "broken": float(rows[late, 1].mean()),
        "early": float(1 - late.mean()),
    }


def table_of(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"Mean number of rows from a change to the alarm, after {QUIET_ROWS:,} quiet rows, in "
        f"{found[0]['runs']} runs (standard errors are about 4 %). One rule is watched, ever={EVER:g} and "
        f'run_length={RUN_LENGTH:,}. "Of the oracle" is "changed" over the delay of a CUSUM that knows all '
        'rates and has the same average run length; "early" is the share of runs with an alarm before the '
        "change.\n",
        "| rule | before | after | oracle | changed | of the oracle | broken | early, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        gap = len(row["after"]) == 2
        rule = f"{'gap' if gap else 'rate'} <= {row['bound']:g}"
        rule += f", a group of {100 * row['share']:.0f} %" if gap else ""
        before, after = (f"{rates[0] - sum(rates[1:]):.3g}" for rates in (row["before"], row["after"]))
        rows = " | ".join(f"{row[name]:,.0f}" for name in ("oracle", "changed"))
        lines.append(
            f"| {rule} | {before} | {after} | {rows} | {row['changed'] / row['oracle']:.2f} "
            f"| {row['broken']:,.0f} | {100 * row['early']:.0f} |"
        )
    return "\n".join(lines) + "\n"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--workers", type=int, help="processes; by default, one for each core")
    parser.add_argument("--quick", action="store_true", help="few runs, few rows")
    arguments = parser.parse_args()
    rows, seconds = (1000, 0.0) if arguments.quick else (max(SIZES), 5.0)
    costs = measure_cost(rows, seconds)
    save(costs, table_of_costs(costs), arguments.out, "cost")
    cases = [case._replace(runs=5) for case in CASES[2:10:7]] if arguments.quick else CASES
    with Pool(arguments.workers) as pool:
        found = pool.map(measure, cases, chunksize=1)
    save(found, table_of(found), arguments.out, "delay")


if __name__ == "__main__":
    main()
