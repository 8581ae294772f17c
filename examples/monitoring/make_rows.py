"""Files for the recipes: a policy, the rules to watch, and twelve days of rows; labels arrive late.

    python make_rows.py FOLDER

From the seventh day on, women apply with lower scores.
"""

from __future__ import annotations

import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bylaw import Evidence, Problem, error, rejected, selected, solve

FIRST, DAYS, ROWS = date(2026, 3, 2), 12, 600
RULES = """\
rules = [
  "selected('good').given(sex='F') >= 0.8 * selected('good').given(sex='M')",
  "rejected() <= 0.12",
  "error() <= 0.26",
]
"""


def draw_scores(n, rng, shift=0.0):
    """Return P(good) and the group of each row."""
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    x = 1.5 * rng.normal(size=n) + np.where(sex == "M", 0.5, -shift)
    return 1 / (1 + np.exp(-x)), sex


def fit_policy(rng):
    good, sex = draw_scores(8000, rng)
    rows = Evidence(np.column_stack([1 - good, good]), classes=["bad", "good"], groups={"sex": sex})
    women, men = selected("good").given(sex="F"), selected("good").given(sex="M")
    return solve(Problem(error(), [women >= 0.9 * men, rejected() <= 0.1]), rows)


def write_day(folder: Path, number: int, rng) -> None:
    day = FIRST + timedelta(days=number)
    good, sex = draw_scores(ROWS, rng, shift=0.0 if number < 6 else 1.0)
    ids = [f"{day}/{place}" for place in range(ROWS)]
    y = np.where(rng.random(ROWS) < good, "good", "bad")
    rows = {"id": ids, "p_bad": 1 - good, "p_good": good, "sex": sex}
    pq.write_table(pa.table(rows), folder / "rows" / f"{day}.parquet")
    pq.write_table(pa.table({"id": ids, "y": y}), folder / "labels" / f"{day}.parquet")


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part in ("rows", "labels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    fit_policy(rng).save(folder / "policy.json")
    (folder / "watched.toml").write_text(RULES)
    for number in range(DAYS):
        write_day(folder, number, rng)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
