"""How wide are confidence sequences, and are alarms and intervals right in the first days, too?

Widths are beside those of the stitched empirical Bernstein bound of Howard, Ramdas, McAuliffe and Sekhon
(2021) and, as the sharpest that is known for decisions that are 0 or 1, of the beta-binomial mixture; of a
gap, the latter is the difference of two sequences at half the level each.

Then streams of 3,000 rows go through a monitor, 50 rows a day, and it is looked at every day. Each rule just
holds. "Broken" counts streams with that alarm by row 100, 500 and 3,000, and "missed" those in which an
interval ever missed the rate; at most 5 of 100 are promised where the assumption of the monitor's unit holds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import save
from experiments.monitoring.delay import fit
from scipy.special import betaln, xlog1py, xlogy, zeta

from bylaw import Evidence, Monitor
from bylaw.testing._rounds import Events, follow_sums
from bylaw.testing._watched_rule import find_interval

HERE = Path(__file__).parent
TIMES = (100, 500, 3000)
LEVEL = 0.025  # of each end
ROWS_PER_DAY = 50
GRID = np.linspace(-1, 1, 40_001)  # of rates and gaps


def measure_width(inside: np.ndarray) -> float:
    """Of an interval whose points on the grid are marked."""
    places = np.flatnonzero(inside)
    return float(GRID[places[-1]] - GRID[places[0]])


def stitch(sums: np.ndarray, low: float, high: float) -> float:
    """The width of the stitched bound, from the same five sums at one time."""
    weights, amounts, squares, products, squared_weights = sums
    rates = GRID[(low <= GRID) & (high >= GRID)]
    variance = np.maximum(squares - 2 * rates * products + rates**2 * squared_weights, 0.0)
    total, inside = amounts - rates * weights, np.zeros(len(GRID), dtype=bool)
    kept = np.ones(len(rates), dtype=bool)
    for sign, scale in ((1, rates - low), (-1, high - rates)):
        scale = np.maximum(scale, 1e-6)
        grown = np.maximum(variance, scale**2 / 4)
        effort = 1.4 * np.log1p(np.log2(4 * grown / scale**2)) + math.log(zeta(1.4) / LEVEL)
        k1, k2 = (2**0.25 + 2**-0.25) / math.sqrt(2), (math.sqrt(2) + 1) / 2
        bound = np.sqrt(k1**2 * grown * effort + (k2 * scale * effort) ** 2) + k2 * scale * effort
        kept &= sign * total <= bound
    inside[(low <= GRID) & (high >= GRID)] = kept
    return measure_width(inside)


def mix_betas(accepted: int, n_rows: int, level: float) -> float:
    """The width of the beta-binomial mixture at one time, with a uniform prior."""
    rates = GRID[GRID >= 0]
    mixture = betaln(accepted + 1, n_rows - accepted + 1)
    ratio = mixture - xlogy(accepted, rates) - xlog1py(n_rows - accepted, -rates)
    inside = np.zeros(len(GRID), dtype=bool)
    inside[GRID >= 0] = ratio < math.log(1 / level)
    return measure_width(inside)


def compare_widths(name: str, rates: tuple[float, ...], share: float, runs: int) -> dict[str, Any]:
    """Mean widths at each time."""
    rng, gap = np.random.default_rng(int(1000 * (rates[0] + share))), len(rates) == 2
    events = Events(((0.0, 1.0), (-1.0, 0.0))) if gap else Events(((0.0, 1.0),))
    widths = {way: np.zeros(len(TIMES)) for way in ("bylaw", "stitched", "mixture")}
    for _ in range(runs):
        first = rng.random(max(TIMES)) < share
        accepted = rng.random(max(TIMES)) < np.where(first, rates[0], rates[-1])
        groups = [first, ~first] if gap else [np.ones_like(first)]
        signed = [sign * (group & accepted) for group, sign in zip(groups, (1.0, -1.0), strict=False)]
        columns = np.stack([*groups, *signed]).astype(float)
        for place, n_rows in enumerate(TIMES):
            part = columns[:, : n_rows // events.rows * events.rows]
            sums = follow_sums(np.zeros(5), events.sum_rounds(part))[:, -1:]
            lower, upper = find_interval(sums, events, LEVEL)
            widths["bylaw"][place] += float(upper[0] - lower[0])
            widths["stitched"][place] += stitch(sums[:, 0], events.lowest, events.highest)
            for group in groups:
                here = group[:n_rows]
                taken = int((here & accepted[:n_rows]).sum())
                widths["mixture"][place] += mix_betas(taken, int(here.sum()), 2 * LEVEL / len(groups))
    return {"rate": name, **{way: (total / runs).tolist() for way, total in widths.items()}}


RATES = (
    ("rate .02", (0.02,), 1.0),
    ("rate .2", (0.2,), 1.0),
    ("rate .5", (0.5,), 1.0),
    ("gap .05, half of the rows", (0.35, 0.3), 0.5),
    ("gap .05, 5 % of the rows", (0.35, 0.3), 0.05),
)


def table_of_widths(found: list[dict[str, Any]]) -> str:
    lines = [
        "Mean widths of confidence sequences of 95 % after 100, 500 and 3,000 rows. The sharpest that is "
        "known is the beta-binomial mixture, for decisions that are 0 or 1 alone.\n",
        "| | bylaw | stitched bound | beta-binomial | bylaw / best |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        cells = [" ".join(f"{width:.3f}" for width in row[way]) for way in ("bylaw", "stitched", "mixture")]
        best = [ours / least for ours, least in zip(row["bylaw"], row["mixture"], strict=True)]
        lines.append(f"| {row['rate']} | {' | '.join(cells)} | {' '.join(f'{x:.2f}' for x in best)} |")
    return "\n".join(lines) + "\n"


# Streams through a monitor.


class Stream(NamedTuple):
    """Rows of which a rule just holds."""

    rule: str
    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]  # a day: group a, and accepted
    target: float
    unit: str = "rows"
    named: bool = True


def draw_rate(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.random(ROWS_PER_DAY) < 0.5, rng.random(ROWS_PER_DAY) < 0.2


def draw_gap(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    first = rng.random(ROWS_PER_DAY) < 0.3
    return first, rng.random(ROWS_PER_DAY) < np.where(first, 0.35, 0.3)


def draw_swing(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Hours at random, at which groups and approvals swing: over the day the gap is .2 / 1.5 = .1333."""
    swing = np.sign(np.sort(rng.random(ROWS_PER_DAY)) - 0.5)
    first = rng.random(ROWS_PER_DAY) < 0.5 + swing / 3
    return first, rng.random(ROWS_PER_DAY) < 0.4 + 0.1 * swing


def draw_lucky_day(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.random(ROWS_PER_DAY) < 0.5, rng.random(ROWS_PER_DAY) < rng.choice([0.05, 0.35])


def draw_lucky_gap(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    first = rng.random(ROWS_PER_DAY) < 0.3
    return first, rng.random(ROWS_PER_DAY) < np.where(first, 0.35 + rng.choice([-0.2, 0.2]), 0.3)


RATE = "selected('yes') <= 0.2"
GAP = "selected('yes').given(sex='F') - selected('yes').given(sex='M') <= "
STREAMS = {
    "rate": Stream(RATE, draw_rate, 0.2),
    "gap": Stream(f"{GAP}0.05", draw_gap, 0.05),
    "gap, groups and approvals swing within the day": Stream(f"{GAP}{0.4 / 3}", draw_swing, 0.4 / 3),
    "rate, days differ; unit: rows": Stream(RATE, draw_lucky_day, 0.2),
    "rate, days differ; unit: batches": Stream(RATE, draw_lucky_day, 0.2, "batches"),
    "gap, days differ; unit: rows": Stream(f"{GAP}0.05", draw_lucky_gap, 0.05),
    "gap, days differ; unit: batches": Stream(f"{GAP}0.05", draw_lucky_gap, 0.05, "batches"),
}


def watch(case: tuple[str, int]) -> dict[str, Any]:
    name, runs = case
    stream, rng = STREAMS[name], np.random.default_rng(list(name.encode()))
    counts = {"broken": np.zeros(len(TIMES)), "missed": np.zeros(len(TIMES)), "changed": 0}
    groups = {"sex": ["F", "M"]}
    for _ in range(runs):
        monitor, missed = Monitor(fit(), rules=stream.rule, groups=groups, unit=stream.unit), math.inf
        while monitor.rows < max(TIMES):
            first, accepted = stream.draw(rng)
            rows = Evidence(np.full((len(first), 2), 0.5), classes=["no", "yes"])
            taken, sex = np.where(accepted, "yes", "no"), np.where(first, "F", "M")
            monitor.update(rows, decisions=taken, groups={"sex": sex}, batch=str(monitor.rows))
            (one,) = monitor.status
            if not one.lower - 1e-9 <= stream.target <= one.upper + 1e-9:
                missed = min(missed, monitor.rows)
        state = monitor.states[0]
        counts["broken"] += (state.broken_at or math.inf) <= np.array(TIMES)
        counts["missed"] += missed <= np.array(TIMES)
        counts["changed"] += state.changed_at is not None
    shares = {key: (value / runs).tolist() for key, value in counts.items() if key != "changed"}
    return {"stream": name, "runs": runs, **shares, "changed": counts["changed"] / runs}


def table_of_streams(found: list[dict[str, Any]]) -> str:
    lines = [
        f"In % of {found[0]['runs']:,} streams of 3,000 rows, {ROWS_PER_DAY} a day, in which the rule just "
        'holds: called broken by row 100, 500 and 3,000, and intervals that ever missed the rate. "Days '
        'differ": rates of whole days are above or below by the toss of a coin.\n',
        "| stream | broken | missed |",
        "|---|---|---|",
    ]
    for row in found:
        cells = [" ".join(f"{100 * share:.1f}" for share in row[key]) for key in ("broken", "missed")]
        lines.append(f"| {row['stream']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--workers", type=int, help="processes; by default, one for each core")
    parser.add_argument("--quick", action="store_true", help="few runs")
    arguments = parser.parse_args()
    widths = [compare_widths(*rate, 2 if arguments.quick else 20) for rate in RATES]
    save(widths, table_of_widths(widths), arguments.out, "widths")
    with Pool(arguments.workers) as pool:
        cases = [(name, 2 if arguments.quick else 100) for name in STREAMS]
        found = pool.map(watch, cases, chunksize=1)
    save(found, table_of_streams(found), arguments.out, "days")


if __name__ == "__main__":
    main()
