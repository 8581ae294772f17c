"""Gap at equal error, and error at equal gap, on test rows, beside other tools.

    python -m experiments.estimator.equal_terms [--quick] [--seeds 10] [--only known]

Known groups: Adult, two genders that are known when a decision is made, parity and equalized odds, by number
of fitted rows. Hidden groups with small cells: the General Social Survey, high incomes, five marital states
that no decision sees, 2,000 rows of which the rarest state has about 80.

Each tool is fitted with its own tolerance. Ours is fitted for a range of tolerances; between the two nearest
of these lie its error at the gap that the peer shows on the test rows, and its gap at the peer's error.
Nothing is drawn: gaps and errors are those of the distributions. Differences are ours less the peer's, with
standard errors over draws of the fitted rows. Times are those of a processor at the same tolerance.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from benchmarks.peers import parity
from benchmarks.peers.programs import Rule
from benchmarks.peers.rows import Rows
from benchmarks.peers.tables import adult_rows, drawn
from experiments.data import DATA, Remembered, Table, logistic, save, wages
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression

from bylaw import ConstrainedClassifier, Problem, demographic_parity, equalized_odds, error, solve

HERE = Path(__file__).parent
SIZES = (1000, 3000, 10_000, 50_000)
ASKED = 0.02
TOLERANCES = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.09)
SURVEY_ROWS = 2000
SURVEY_ASKED = (0.03, 0.1)
SURVEY_TOLERANCES = (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.2, 0.3)
Point = tuple[float, float]  # gap and error on test rows


def compare(curve: list[Point], peer: Point) -> dict[str, float]:
    """Return our error at the peer's gap and our gap at the peer's error, less the peer's own."""
    gaps, errors = np.array(curve).T
    by_gap, by_error = np.argsort(gaps), np.argsort(errors)
    return {
        "gap": peer[0],
        "error": peer[1],
        "error apart": float(np.interp(peer[0], gaps[by_gap], errors[by_gap])) - peer[1],
        "gap apart": float(np.interp(peer[1], errors[by_error], gaps[by_error])) - peer[0],
    }


def run_known(folder: Path, seeds: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Draw rows from one pool; every draw is judged on the same test rows."""
    pool, test = adult_rows(folder, quick)["adult"]
    for name, n, seed in product(("parity", "odds"), (800,) if quick else SIZES, range(seeds)):
        judge = partial(judge_fit, parity.CONTESTS[name], test)
        rows = drawn(pool.part(np.random.default_rng(seed).permutation(len(pool))), n)
        fitted = {tol: judge(fit_known, rows, tol) for tol in TOLERANCES[:: 4 if quick else 1]}
        for peer, fit in parity.THRESHOLDS.items():
            point, seconds = judge(fit, rows, ASKED)
            yield {
                "setting": f"{name}, known groups",
                "rows": n,
                "peer": peer,
                "asked": ASKED,
                "seed": seed,
                **compare([point for point, _ in fitted.values()], point),
                "time": fitted[ASKED][1] / max(seconds, 1e-9),
            }


def fit_known(rows: Rows, rule: Rule) -> parity.Law:
    """Fit ours on what every peer is given: scores, labels and groups."""
    family = equalized_odds if rule.odds else demographic_parity
    problem = Problem(error(), [family("group", tol=rule.tol, between="groups", labels=[1])])
    policy = solve(problem, parity.evidence_of(rows, rule), labels=rows.labels)
    return lambda new: policy.probabilities(parity.evidence_of(new, rule))


def judge_fit(
    contest: parity.Contest, test: Rows, fit: Callable[[Rows, Rule], parity.Law], rows: Rows, tol: float
) -> tuple[Point, float]:
    """Return gap and error on test rows, and the seconds of the fit."""
    begin = time.process_time()
    law = fit(rows, Rule(tol, odds=contest.rule.odds))
    seconds = time.process_time() - begin
    found = contest.judged(law(test), test)
    return (found["gap"], found["error"]), seconds


class Survey:
    """Rows of the survey to fit on, and all others to judge on."""

    def __init__(self, table: Table, seed: int, n: int, odds: bool) -> None:
        y, groups = np.isin(table.y, ["high", "highest"]).astype(int), table.X.maritalcat.to_numpy()
        X, order = table.X.drop(columns="maritalcat"), np.random.default_rng(seed).permutation(len(y))
        fit, test, self.odds = order[:n], order[SURVEY_ROWS:], odds
        columns = logistic(X)[:-1].set_output(transform="pandas").fit(X.iloc[fit])
        self.X, self.X_test = columns.transform(X.iloc[fit]), columns.transform(X.iloc[test])
        self.y, self.y_test, self.groups, self.groups_test = y[fit], y[test], groups[fit], groups[test]
        Remembered.trained.clear()

    def judge(self, chances: np.ndarray) -> Point:
        """Return the widest distance of a group's rate from that of all rows (of the same label), and the
        error."""
        y, groups = self.y_test, self.groups_test
        gaps = [
            abs(chances[stratum & (groups == group)].mean() - chances[stratum].mean())
            for stratum in ([y == 0, y == 1] if self.odds else [y >= 0])
            for group in np.unique(groups)
        ]
        return float(max(gaps)), float(np.where(y == 1, 1 - chances, chances).mean())

    def fit_ours(self, tol: float, **options: Any) -> Point:
        rule = (equalized_odds if self.odds else demographic_parity)("state", tol=tol, labels=[1])
        model = Remembered(LogisticRegression(max_iter=500))
        one = ConstrainedClassifier(model, [rule], group_estimator=model, random_state=0, **options)
        one.fit(
            self.X, self.y, sensitive_features=pandas.Series(self.groups, name="state", index=self.X.index)
        )
        return self.judge(one.predict_proba(self.X_test)[:, 1])

    def train(self, tol: float) -> Point:
        constraint = (EqualizedOdds if self.odds else DemographicParity)(difference_bound=tol)
        peer = ExponentiatedGradient(LogisticRegression(max_iter=500), constraint)
        peer.fit(self.X, self.y, sensitive_features=self.groups)
        return self.judge(peer._pmf_predict(self.X_test)[:, 1])


def run_hidden(folder: Path, seeds: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Fit our classifier, the same without correction, and a reduction that trains on the same rows."""
    table = wages(folder)
    for odds, seed in product((False, True), range(seeds)):
        survey = Survey(table, seed, 600 if quick else SURVEY_ROWS, odds)
        tolerances = SURVEY_TOLERANCES[:: 4 if quick else 1]
        curves = {
            variant: [survey.fit_ours(tol, **options) for tol in tolerances]
            for variant, options in (("default", {}), ("margin=0", {"margin": 0.0}))
        }
        plug_in = partial(survey.fit_ours, correction=False)
        peers = {"fairlearn, ExponentiatedGradient": survey.train, "plug-in": plug_in}
        for (name, peer), asked in product(peers.items(), SURVEY_ASKED):
            point = peer(asked)
            for variant, curve in curves.items():
                yield {
                    "setting": f"{'odds' if odds else 'parity'}, hidden groups, {variant}",
                    "rows": len(survey.y),
                    "peer": name,
                    "asked": asked,
                    "seed": seed,
                    **compare(curve, point),
                }


def table_of(found: list[dict[str, Any]]) -> str:
    """Means over draws; differences with their standard errors."""
    lines = [
        "| setting | rows | peer | asked | its gap, points | its error | our error at its gap, less its own "
        "| our gap at its error, less its own | our time over its |",
        "|---" * 9 + "|",
    ]
    frame = pandas.DataFrame(found)
    for (setting, n, peer, asked), part in frame.groupby(["setting", "rows", "peer", "asked"], sort=False):
        cells = [f"{100 * part[name].mean():.2f}" for name in ("gap", "error")]
        for name in ("error apart", "gap apart"):
            spread = part[name].std() / math.sqrt(len(part)) if len(part) > 1 else math.nan
            cells.append(f"{100 * part[name].mean():+.2f} ± {100 * spread:.2f}")
        times = part["time"].median() if "time" in part else math.nan
        cells[1] += " %"
        cells.append("" if math.isnan(times) else f"{times:.2f}")
        lines.append(f"| {setting} | {n:,} | {peer} | {asked:g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=["known", "hidden"], help="one half of the table")
    parser.add_argument("--quick", action="store_true", help="one draw of few rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the table states what is missed
    runs = {"known": run_known, "hidden": run_hidden}
    seeds = 1 if arguments.quick else arguments.seeds
    found = [
        row
        for name, run in runs.items()
        if arguments.only in (None, name)
        for row in run(arguments.data_dir, seeds, arguments.quick)
    ]
    save(found, table_of(found), arguments.out, "equal_terms")


if __name__ == "__main__":
    main()
