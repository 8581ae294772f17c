"""Generated rows in partitions, and the problems that every engine must solve on them as if in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas

from bylaw import (
    Columns,
    Problem,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)

N = 3000
CLASSES = ["low", "mid", "high"]
JOINT = [[f"race {s} {k}" for k in CLASSES] for s in "bw"]
COLUMNS = Columns(
    CLASSES,
    groups={"sex": "sex", "dept": "dept", "race": {"b": "race b", "w": "race w"}},
    joint={"race": JOINT},
    references={"old": "old"},
    costs={"visit": ["visit low", "visit mid", "visit high", "visit reject"]},
    id="id",
)
# By the number of partitions: where each ends. The seven have an empty one, one with a single row, and one
# with all rows of dept 3.
ENDS = {1: [0, N], 2: [0, 1200, N], 7: [0, 700, 701, 701, 1500, 1600, 2400, N]}


@cache
def make_rows() -> pandas.DataFrame:
    rng = np.random.default_rng(5)
    sex, hidden = rng.choice(["F", "M"], N), rng.beta(2, 2, N)
    scores = rng.normal(size=(N, 3)) + np.outer(sex == "F", [0.6, 0.0, -0.6])
    P = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    tilt = np.column_stack([hidden, hidden**2, np.sqrt(hidden)])  # P(race = b | x, label)
    joint = np.stack([P * tilt, P * (1 - tilt)], axis=1)
    labels = (P.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1).clip(max=2)
    table = {
        "id": np.arange(N) * 7,
        **dict(zip(CLASSES, P.T, strict=True)),
        "sex": sex,
        "dept": np.where((np.arange(N) >= 1500) & (np.arange(N) < 1600), 3, rng.integers(1, 3, N)),
        "race b": joint[:, 0].sum(axis=1),
        "race w": joint[:, 1].sum(axis=1),
        **{JOINT[s][k]: joint[:, s, k] for s in range(2) for k in range(3)},
        "old": np.array(CLASSES)[np.where(rng.random(N) < 0.7, P.argmax(axis=1), rng.integers(0, 3, N))],
        "weight": rng.gamma(2.0, 1.0, N),
        **{name: rng.normal(size=N) for name in COLUMNS.costs["visit"]},
        "label": np.array(CLASSES)[labels],
    }
    return pandas.DataFrame(table)


def cut(frame: pandas.DataFrame, partitions: int) -> list[pandas.DataFrame]:
    return [frame.iloc[start:stop] for start, stop in pairwise(ENDS[partitions])]


@dataclass(frozen=True)
class Case:
    """A problem, the columns that it needs beside `COLUMNS`, and options of `solve`."""

    problem: Problem
    roles: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> Columns:
        return Columns(**{**vars(COLUMNS), **self.roles})

    def solve(self, rows: Any) -> Any:
        return solve(self.problem, rows, **self.options)

    def solve_in_memory(self) -> Any:
        frame, known = make_rows(), {}
        if "label" in self.roles:
            known = {"calibrate": "none"}
        return solve(self.problem, self.columns.evidence(frame), **self.options, **known)


PARITY = demographic_parity(["sex", "dept"], tol=0.03)
CASES = {
    "parity": Case(Problem(error(), [PARITY])),
    "rejection": Case(Problem(error(), [PARITY, rejected() <= 0.1])),
    "odds": Case(Problem(error(), [equalized_odds("sex", tol=0.05)])),
    "hidden": Case(
        Problem(error(), [equalized_odds("race", tol=0.02), demographic_parity("race", tol=0.02)])
    ),
    "references": Case(Problem(error(), [disagreement("old") <= 0.3])),
    "weights": Case(Problem(error(), [PARITY]), {"weights": "weight"}),
    "costs": Case(Problem(error() + 0.1 * custom("visit"), [rejected() <= 0.1, custom("visit") <= -0.5])),
    "options": Case(
        Problem(
            error() + 0.3 * selected("junior"),
            [selected("senior") <= 0.1, demographic_parity("sex", tol=0.02, labels=["senior"])],
            decisions=[*CLASSES, "junior", "senior"],
        ),
        {"costs": {}},
    ),
    "routing": Case(
        Problem(custom("visit"), [selected("a") <= 0.2, disagreement("old") <= 0.5, PARITY]),
        {
            "probabilities": (),
            "joint": {},
            "options": ["low", "mid", "high", "a"],
        },
    ),
    "sets": Case(
        Problem(size(), [miscoverage() <= 0.1, miscoverage().given(sex="F") <= 0.08], decisions="sets")
    ),
    "observed": Case(Problem(error(), [equalized_odds("sex", tol=0.05)]), {"label": "label"}),
    "margin": Case(Problem(error(), [demographic_parity("sex", tol=0.05)]), options={"margin": "auto"}),
}
CONFLICT = Problem(error(), [selected("low") >= 0.6, selected("high") >= 0.6])


@cache
def expect_value(name: str) -> float:
    return CASES[name].solve_in_memory().solution.value
