"""Against other tools where the group is known when a decision is made: error at equal gap, rules kept.

    python -m experiments.estimator.known_groups [--quick] [--seeds 5] [--only Adult]

Two fifths of the rows train a model, three tenths fit each tool on the same scores, three tenths judge. All
tools see the scores, labels and groups of the fitted rows, and the scores and groups of new rows; only
ExponentiatedGradient trains models of its own, on all rows but those that judge, and does not look at
the group of new rows. Each tool is asked for parity (rates of the groups within a tolerance of each other)
at several tolerances; its error is read off at the same gap on the test rows. Nothing is drawn: gaps and
errors are those of the distributions.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from benchmarks.peers import parity
from benchmarks.peers.given import Given
from benchmarks.peers.programs import Rule
from benchmarks.peers.rows import Rows
from experiments.data import DATA, Table, adult, logistic, save, wages
from experiments.estimator.binned_program import solve_binned
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import BernoulliNB

from bylaw import ConstrainedClassifier, demographic_parity

HERE = Path(__file__).parent
TOLERANCES = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1)
ASKED = 0.02  # the tolerance whose keeping is counted, and the gap at which errors are compared
TABLES: dict[str, tuple[Callable[[Path], Table], Sequence[str]]] = {
    "Adult": (adult, [">50K"]),
    "GSS wages, upper two fifths": (wages, ["high", "highest"]),
}
MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": partial(LogisticRegression, max_iter=500),
    "gradient boosting": partial(HistGradientBoostingClassifier, random_state=0),
    "naive Bayes": BernoulliNB,
    "logistic regression, 20 times as sure": lambda: Sharpened(20.0),
}


class Sharpened(LogisticRegression):
    """Its log-odds are multiplied by a factor when it predicts."""

    def __init__(self, factor: float) -> None:
        super().__init__(max_iter=500)
        self.factor = factor

    def predict_proba(self, X: Any) -> np.ndarray:
        return expit(self.factor * np.outer(self.decision_function(X), [-1, 1]))


def bylaw(rows: Rows, rule: Rule, **options: Any) -> parity.Law:
    """The classifier with its default settings, around a model that is not trained again."""
    rules = [demographic_parity("group", tol=rule.tol, between="groups", labels=[1])]
    classifier = ConstrainedClassifier(FrozenEstimator(Given(2)), rules, random_state=0, **options)
    classifier.fit(rows.scores, rows.labels, sensitive_features={"group": rows.groups})
    return lambda new: classifier.predict_proba(new.scores, sensitive_features={"group": new.groups})


OURS = "bylaw"
TOOLS: dict[str, Callable[[Rows, Rule], parity.Law]] = {
    OURS: bylaw,
    "bylaw, margin=0": partial(bylaw, margin=0.0),
    "bylaw, calibrator=None": partial(bylaw, calibrator=None),
    "linear program over score bins": solve_binned,
    "fairlearn, ThresholdOptimizer": parity.threshold_optimizer,
    "error-parity": parity.error_parity,
    "OxonFair": parity.oxonfair,
}
TRAINER = "fairlearn, ExponentiatedGradient"  # beside logistic regression only, which it trains many times
TRAINERS_TOLERANCES = (0.01, 0.02, 0.05)


class Split:
    """One table with one model: rows to fit on, rows to judge, and all but those for who trains."""

    def __init__(self, table: Table, positive: Sequence[str], model: Any, seed: int) -> None:
        X, label, groups = table
        y, codes = np.isin(label, positive).astype(int), pandas.factorize(groups.gender, sort=True)[0]
        rest, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y)
        train, fit = train_test_split(rest, test_size=3 / 7, random_state=seed, stratify=y[rest])
        columns = logistic(X)[:-1].fit(X.iloc[train])
        features = columns.transform(X)
        scores = model.fit(features[train], y[train]).predict_proba(features).clip(1e-12, 1 - 1e-12)
        whole = Rows(scores, y, codes, features=features)
        self.fit, self.rest, self.test = (whole.part(part) for part in (fit, rest, test))
        chosen = y[train]
        self.sign = 1 if chosen[codes[train] == 1].mean() > chosen[codes[train] == 0].mean() else -1

    def judge(self, distribution: np.ndarray) -> tuple[float, float]:
        """The gap on test rows, positive in the direction of the labels' own gap, and the error."""
        rows, chosen = self.test, distribution[:, 1]
        gap = chosen[rows.groups == 1].mean() - chosen[rows.groups == 0].mean()
        return self.sign * float(gap), float(np.where(rows.labels == 1, 1 - chosen, chosen).mean())


def race(split: Split, with_trainer: bool, tolerances: Sequence[float]) -> Iterator[dict[str, Any]]:
    tools = {**TOOLS, TRAINER: parity.exponentiated_gradient} if with_trainer else TOOLS
    for name, fit in tools.items():
        rows = split.rest if name == TRAINER else split.fit
        for tol in TRAINERS_TOLERANCES if name == TRAINER else tolerances:
            start = time.process_time()
            law = fit(rows, Rule(tol))
            seconds = time.process_time() - start
            gap, cost = split.judge(law(split.test))
            yield {"tool": name, "tolerance": tol, "gap": gap, "error": cost, "seconds": seconds}


def error_at(rows: pandas.DataFrame, gap: float = ASKED) -> float:
    """Between the two nearest gaps that the tool shows on the test rows; nan if all are larger, and the
    error at the largest if all are smaller."""
    ordered = rows.sort_values("gap")
    return float(np.interp(gap, ordered.gap, ordered.error, left=math.nan))


def table_of(found: list[dict[str, Any]]) -> str:
    """Means over seeds; differences from ours with their standard errors."""
    frame = pandas.DataFrame(found)
    lines = [
        f"| table | model | tool | error at a gap of {100 * ASKED:g} points | less ours "
        f"| keeps {ASKED:g} | gap at {ASKED:g}, points | seconds |",
        "|---" * 8 + "|",
    ]
    for (table, model), part in frame.groupby(["table", "model"], sort=False):
        at = {name: rows.groupby("seed").apply(error_at) for name, rows in part.groupby("tool", sort=False)}
        for name, errors in at.items():
            apart = (errors - at[OURS]).dropna()
            spread = apart.std() / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
            asked = part[(part.tool == name) & np.isclose(part.tolerance, ASKED)]
            kept = (asked.gap.abs() <= ASKED).sum()
            less = "" if name == OURS else f"{100 * apart.mean():+.2f} ± {100 * spread:.2f}"
            lines.append(
                f"| {table} | {model} | {name} | {100 * errors.mean():.2f} % | {less} "
                f"| {kept} of {len(asked)} | {100 * asked.gap.mean():+.2f} | {asked.seconds.mean():.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="tables whose names begin so")
    parser.add_argument("--quick", action="store_true", help="Adult, one seed, few rows, two tolerances")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of peers' own dependencies; the table states what is missed
    quick, found = arguments.quick, []
    for name, (load, positive) in list(TABLES.items())[: 1 if quick else None]:
        if not name.startswith(arguments.only):
            continue
        table = Table(*(part[:3000] if quick else part for part in load(arguments.data_dir)))
        for seed in range(1 if quick else arguments.seeds):
            for model, make in list(MODELS.items())[: 1 if quick else None]:
                split = Split(table, positive, make(), seed)
                rows = race(split, make is MODELS["logistic regression"] and not quick, TOLERANCES)
                found += [{"table": name, "model": model, "seed": seed, **row} for row in rows]
    save(found, table_of(found), arguments.out, "known_groups")


if __name__ == "__main__":
    main()
