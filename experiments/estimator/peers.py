"""Against fairlearn on Adult, parity between genders, with the same base learner and the same rows.

ExponentiatedGradient does not look at the group when it decides, and neither does our classifier beside
it, with and without a calibrator; ThresholdOptimizer does, and so does ours beside it. Ours is fitted
for a range of tolerances; its error is read off at the gap that the peer shows on the test rows. Nothing
is drawn: gaps and errors are those of the distributions.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from experiments.data import DATA, Remembered, adult, logistic, save
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from bylaw import ConstrainedClassifier, demographic_parity

HERE = Path(__file__).parent
TOLERANCES = (0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
BOUNDS = (0.01, 0.02, 0.05)  # of ExponentiatedGradient
CALIBRATOR = make_pipeline(StandardScaler(), PolynomialFeatures(3), LogisticRegression(max_iter=500))


class Rows:
    """One split of Adult, features as numbers, gender not among them."""

    def __init__(self, folder: Path, seed: int, limit: int | None) -> None:
        X, y, groups = adult(folder)
        here, there = train_test_split(np.arange(len(X))[:limit], test_size=0.5, random_state=seed)
        columns = logistic(X)[:-1].set_output(transform="pandas").fit(X.iloc[here])
        self.X, self.X_test = columns.transform(X.iloc[here]), columns.transform(X.iloc[there])
        rich, sex = (y == ">50K").astype(int), groups.gender.to_numpy()
        self.y, self.y_test, self.sex, self.sex_test = rich[here], rich[there], sex[here], sex[there]

    def judged(self, chance: np.ndarray) -> tuple[float, float]:
        """Gap between the men's rate and the overall one, and error, for P(decision = 1) on test rows."""
        gap = chance[self.sex_test == "Male"].mean() - chance.mean()
        return float(gap), float(np.where(self.y_test == 1, 1 - chance, chance).mean())


def seconds_of(fit: Callable[[], Any]) -> float:
    start = time.perf_counter()
    fit()
    return time.perf_counter() - start


def ours(rows: Rows, learner: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gaps and errors on test rows, for every tolerance."""
    found = []
    at_decision = {} if "group_estimator" in options else {"sensitive_features": rows.sex_test}
    for tol in TOLERANCES:
        classifier = fitted(rows, learner, tol=tol, **options)
        found.append(rows.judged(classifier.predict_proba(rows.X_test, **at_decision)[:, 1]))
    return np.array(found).T[0], np.array(found).T[1]


def fitted(rows: Rows, learner: Any, *, tol: float = 0.02, **options: Any) -> ConstrainedClassifier:
    rules = [demographic_parity("gender", tol=tol)]
    classifier = ConstrainedClassifier(learner, rules, margin=0, random_state=0, **options)
    return classifier.fit(rows.X, rows.y, sensitive_features=rows.sex)


def race(folder: Path, seed: int, limit: int | None) -> Iterator[dict[str, Any]]:
    rows = Rows(folder, seed, limit)
    base = LogisticRegression(max_iter=500)
    Remembered.trained.clear()
    label_model = FrozenEstimator(clone(base).fit(rows.X, rows.y))
    group_model = FrozenEstimator(clone(base).fit(rows.X, rows.sex))
    contests = []
    for name, more in (("", {}), (", calibrated", {"calibrator": CALIBRATOR})):
        curve = ours(rows, Remembered(base), group_estimator=Remembered(base), **more)
        post = seconds_of(lambda more=more: fitted(rows, label_model, group_estimator=group_model, **more))
        whole = seconds_of(lambda more=more: fitted(rows, base, group_estimator=base, **more))
        contests.append((name, curve, post, whole))
    for bound in BOUNDS:
        peer = ExponentiatedGradient(clone(base), DemographicParity(difference_bound=bound))
        seconds = seconds_of(lambda peer=peer: peer.fit(rows.X, rows.y, sensitive_features=rows.sex))
        judged = rows.judged(peer._pmf_predict(rows.X_test)[:, 1])
        for name, *own in contests:
            yield compared(f"ExponentiatedGradient, bound {bound:g}{name}", seed, judged, seconds, *own)
    peer = ThresholdOptimizer(estimator=label_model, prefit=True, predict_method="predict_proba")
    seconds = seconds_of(lambda: peer.fit(rows.X, rows.y, sensitive_features=rows.sex))
    judged = rows.judged(peer._pmf_predict(rows.X_test, sensitive_features=rows.sex_test)[:, 1])
    post = seconds_of(lambda: fitted(rows, label_model))
    yield compared("ThresholdOptimizer", seed, judged, seconds, ours(rows, Remembered(base)), post, math.nan)


def compared(
    name: str,
    seed: int,
    peer: tuple[float, float],
    seconds: float,
    curve: tuple[np.ndarray, np.ndarray],
    post: float,
    whole: float,
) -> dict[str, Any]:
    """Our error at the peer's gap, between the two nearest of our tolerances."""
    order = np.argsort(curve[0])
    error = float(np.interp(peer[0], curve[0][order], curve[1][order]))
    return {
        "peer": name,
        "seed": seed,
        "gap": peer[0],
        "peer error": peer[1],
        "our error": error,
        "times faster, policy": seconds / post,
        "times faster, with models": seconds / whole,
    }


def table_of(found: list[dict[str, Any]]) -> str:
    """Means over seeds; the difference with its standard error."""
    lines = [
        "| peer | its gap on test rows | its error | our error at that gap | difference | policy chosen "
        "| models trained too |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["peer"] for row in found):
        rows = [row for row in found if row["peer"] == name]
        mean = {
            key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key not in ("peer", "seed")
        }
        apart = np.array([row["our error"] - row["peer error"] for row in rows])
        spread = apart.std(ddof=1) / math.sqrt(len(rows)) if len(rows) > 1 else math.nan
        together = mean["times faster, with models"]
        lines.append(
            f"| {name} | {100 * mean['gap']:.2f} | {100 * mean['peer error']:.2f} % "
            f"| {100 * mean['our error']:.2f} % | {100 * apart.mean():+.2f} ± {100 * spread:.2f} "
            f"| {mean['times faster, policy']:.3g} times faster "
            f"| {'' if math.isnan(together) else f'{together:.3g} times faster'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="one seed, few rows")
    arguments = parser.parse_args()
    seeds, limit = (1, 3000) if arguments.quick else (5, None)
    found = [row for seed in range(seeds) for row in race(arguments.data_dir, seed, limit)]
    save(found, table_of(found), arguments.out, "peers")


if __name__ == "__main__":
    main()
